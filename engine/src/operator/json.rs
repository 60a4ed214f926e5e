//! Reports as JSON, for scripts: what is here stays here, under its name and in its unit.
//!
//! ```text
//! status        {"cluster": hex or "", "healthy": bool, "problems": [PROBLEM], "leader": number,
//!                "term", "commit_index", "table_version", "coordinators",
//!                "nodes": {status: count}, "partitions": {status: count}, "keys", "bytes",
//!                "hot_keys": [KEY], those that are too much for a shard each, 16 at most}
//! PROBLEM       {"kind": snake_case word, "message": sentence, what the sentence names: value}
//! nodes         [{"name", "id": hex, "status", "draining": bool, "incarnation", "shards",
//!                "capacity": per cent, "partitions", "keys", "bytes", "last_heartbeat_ms": null if this leader has not heard of it,
//!                "table_version", "entry": "host:port", "peer": "host:port",
//!                "shard_cpu_us_per_s": [by shard, over the last minute; null if it has not told this leader],
//!                "rack": name or ""}]
//! partitions    [{"partition", "first_slot", "last_slot", "status", "epoch", "node": name or null,
//!                "shard": number or null}]
//! by load       {"shards": [{"node": name, "shard", WINDOWS}],
//!                "partitions": [{"partition", "first_slot", "last_slot", "node": name or null, "shard",
//!                "cpu_us_per_s", "ops_per_s", "traffic_bytes_per_s": in and out, "bytes": of keys and values,
//!                each null if the owner has not told it to this leader, and rounded to about 12% but for rates of the hottest
//!                of a node, WINDOWS}], the hottest first}
//! WINDOWS       "last_1s": RATES, "last_1m": RATES, "last_10m": RATES; null if not told, as of partitions that
//!               are none of the hottest of their node
//! RATES         {"ops_per_s", "bytes_in_per_s", "bytes_out_per_s", "cpu_us_per_s"}
//! hot           {"partitions": as by load, 16 at most, and with --keys "keys": [KEY], the hottest first}
//! KEY           {"key": its first 128 bytes at most as text, in which `\\` is `\`, `\xff` a byte that is no UTF-8, and
//!                `\u{202e}` and the like what does not print, "key_bytes": how many it has, "database", "node": name,
//!                "shard", "ops_per_s": about, few uses are counted, "share_of_shard": of all uses of keys there,
//!                "cpu_us_per_s": the same part of the CPU time of the shard's partitions, null if not told,
//!                "saturates": whether no move helps}
//! coordinators  [{"id", "address": "host:port", "leader": bool, "votes": bool, "matched": log index,
//!                "active": bool, "last_heard_ms": null if this leader has not heard of it,
//!                "refused": likewise, "refusals": {reason: count}}]
//! migrations    {"migrations": [MIGRATION], by id, "draining": [{"node": name, "partitions"}],
//!                "limit_mb_s": 1,000,000 bytes per second and node, 0 without a limit}
//! placement     {"policy", "current": texts, "followed_by": text, "state": "follows", "changes" or "rests",
//!                "moves_max": 0 without a bound, "under_way", "waiting", "partitions", "imbalance_permille",
//!                "nodes": [PART], "racks": [PART], "shards": [PART], "moves", "bytes",
//!                "bytes_per_s", "seconds": null if not known, "rebalance_moves", "unmet": [sentence],
//!                "plan": [{"partition", "migration": null, "from_node", "from_shard", "to_node",
//!                "to_shard", "refusal": null}]}
//! PART          {"node": name of node or rack, "shard": number or null, "rack", "partitions",
//!                "share_ppm", "fair_ppm"}
//! MIGRATION     {"id", "partition", "state", "from_node": name, "from_shard", "to_node": name,
//!                "to_shard", "attempt": from 1, "will_retry": bool, "keys", "bytes", "keys_per_s",
//!                "bytes_per_s", "hold_us": 0 if not known, "last_error": sentence or "",
//!                "abort_reason": snake_case word, or null if it was not aborted}
//! ```
//!
//! Fields and words may be added. Statuses of nodes are `starting`, `live`, `failed`; those of
//! partitions `unassigned`, `assigned`, `online`, `migrating`, and `failed` where the owner is;
//! states of migrations `waiting`, `planned`, `copying`, `committed`, `aborted`.

use std::collections::BTreeMap;

use ephesus_coordinator::report::{
    HotKeyRow, HotKeysReport, MigrationsReport, PartitionLoadRow, Problem, Report, StatusReport,
};
use serde::Serialize;
use serde_json::{Map, Value};

/// The report as JSON; none if it is no answer to a question.
#[must_use]
#[expect(clippy::expect_used, reason = "rows of numbers and text are JSON")]
pub fn render(report: &Report) -> Option<String> {
    let text = match report {
        Report::Status(report) => serde_json::to_string_pretty(&Status::of(report)),
        Report::Nodes(rows) => serde_json::to_string_pretty(rows),
        Report::Partitions(rows) => serde_json::to_string_pretty(rows),
        Report::Coordinators(rows) => serde_json::to_string_pretty(rows),
        Report::Migrations(report) => serde_json::to_string_pretty(report),
        Report::Placement(report) => serde_json::to_string_pretty(report),
        Report::Load(report) => serde_json::to_string_pretty(report),
        _ => return None,
    };
    let mut text = text.expect("rows of numbers and text are JSON");
    text.push('\n');
    Some(text)
}

#[derive(Debug, Serialize)]
struct Key<'a> {
    key: String,
    key_bytes: u32,
    database: u8,
    node: &'a str,
    shard: u16,
    ops_per_s: u64,
    share_of_shard: f64,
    cpu_us_per_s: Option<u64>,
    saturates: bool,
}

impl Key<'_> {
    fn of(row: &HotKeyRow) -> Key<'_> {
        Key {
            key: key_text(&row.key),
            key_bytes: row.key_bytes,
            database: row.database,
            node: &row.node,
            shard: row.shard,
            ops_per_s: row.ops_per_s,
            share_of_shard: f64::from(row.share_of_shard) / 1e6,
            cpu_us_per_s: row.cpu_us_per_s,
            saturates: row.saturates(),
        }
    }
}

/// Hot partitions, and keys if they were asked for.
#[must_use]
#[expect(clippy::expect_used, reason = "rows of numbers and text are JSON")]
pub fn hot(partitions: &[PartitionLoadRow], keys: Option<&HotKeysReport>) -> String {
    #[derive(Serialize)]
    struct Hot<'a> {
        partitions: &'a [PartitionLoadRow],
        #[serde(skip_serializing_if = "Option::is_none")]
        keys: Option<Vec<Key<'a>>>,
    }
    let hot = Hot {
        partitions,
        keys: keys.map(|report| report.keys.iter().map(Key::of).collect()),
    };
    serde_json::to_string_pretty(&hot).expect("rows of numbers and text are JSON") + "\n"
}

/// A key for people and JSON. No two keys have the same: `\` and what does not print are escaped as in a string of
/// Rust, and bytes that are no UTF-8 as `\xff`.
pub(super) fn key_text(key: &[u8]) -> String {
    let mut text = String::new();
    for chunk in key.utf8_chunks() {
        // Quotes are not escaped: nothing is around it.
        let valid = chunk.valid().escape_debug().to_string();
        text += &valid.replace("\\\"", "\"").replace("\\'", "'");
        text += &chunk.invalid().escape_ascii().to_string();
    }
    text
}

/// The same on one line, for what is shown again and again.
#[must_use]
#[expect(clippy::expect_used, reason = "rows of numbers and text are JSON")]
pub fn line(report: &MigrationsReport) -> String {
    let text = serde_json::to_string(report);
    text.expect("rows of numbers and text are JSON") + "\n"
}

#[derive(Debug, Serialize)]
struct Status<'a> {
    cluster: &'a str,
    healthy: bool,
    problems: Vec<Trouble>,
    leader: u64,
    term: u64,
    commit_index: u64,
    table_version: u64,
    coordinators: u64,
    nodes: &'a BTreeMap<String, u64>,
    partitions: &'a BTreeMap<String, u64>,
    keys: u64,
    bytes: u64,
    hot_keys: Vec<Key<'a>>,
}

impl Status<'_> {
    fn of(report: &StatusReport) -> Status<'_> {
        Status {
            cluster: &report.cluster,
            healthy: report.healthy,
            problems: report.problems.iter().map(Trouble::of).collect(),
            leader: report.leader.0,
            term: report.term,
            commit_index: report.commit_index,
            table_version: report.table_version,
            coordinators: report.coordinators,
            nodes: &report.nodes,
            partitions: &report.partitions,
            keys: report.keys,
            bytes: report.bytes,
            hot_keys: report.hot_keys.iter().map(Key::of).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Trouble {
    kind: String,
    message: String,
    #[serde(flatten)]
    details: Map<String, Value>,
}

impl Trouble {
    /// serde writes a variant as its name, or as an object of its name and its fields.
    #[expect(clippy::expect_used, reason = "numbers and text are JSON")]
    fn of(problem: &Problem) -> Trouble {
        let value = serde_json::to_value(problem).expect("numbers and text are JSON");
        let (kind, details) = match value {
            Value::Object(variant) => variant.into_iter().next().unwrap_or_default(),
            value => (value.as_str().unwrap_or_default().to_owned(), Value::Null),
        };
        Trouble {
            kind,
            message: problem.to_string(),
            details: match details {
                Value::Object(details) => details,
                _ => Map::new(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
