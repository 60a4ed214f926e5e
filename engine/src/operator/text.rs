//! Reports as tables.

use std::collections::BTreeMap;

use ephesus_coordinator::report::{CoordinatorRow, NodeRow, PartitionRow, Report, StatusReport};

pub mod load;
pub mod migrations;
pub mod placement;

pub use migrations::{place, plan};

use super::table::{Align, Table};
use super::units;

/// What stands where there is nothing.
const NOTHING: &str = "-";

/// The report as lines; none if it is no answer to a question.
#[must_use]
pub fn render(report: &Report) -> Option<String> {
    match report {
        Report::Status(report) => Some(status(report)),
        Report::Nodes(rows) => Some(nodes(rows)),
        Report::Partitions(rows) => Some(partitions(rows)),
        Report::Coordinators(rows) => Some(coordinators(rows)),
        Report::Migrations(report) => Some(migrations::migrations(report)),
        Report::Placement(report) => Some(placement::placement(report)),
        Report::Load(report) => Some(load::load(report)),
        _ => None,
    }
}

fn status(report: &StatusReport) -> String {
    let cluster = match report.cluster.as_str() {
        "" => "none yet",
        cluster => cluster,
    };
    let health = match report.problems.len() as u64 {
        0 => "ok".to_owned(),
        problems => units::count(problems, "problem"),
    };
    let leader = format!(
        "coordinator {} ({} in all), term {}, commit index {}",
        report.leader, report.coordinators, report.term, report.commit_index
    );
    let mut table = Table::plain([Align::Left, Align::Left]);
    for (name, value) in [
        ("cluster", cluster.to_owned()),
        ("health", health),
        ("leader", leader),
        ("table", format!("version {}", report.table_version)),
        ("nodes", by_status(&report.nodes)),
        ("partitions", by_status(&report.partitions)),
        ("keys", report.keys.to_string()),
        ("bytes", units::bytes(report.bytes)),
    ] {
        table.row([name.to_owned(), value]);
    }
    for key in &report.hot_keys {
        table.row(["hot key".to_owned(), load::saturating(key)]);
    }
    table.render()
}

/// `9: 6 online, 3 failed`.
fn by_status(counts: &BTreeMap<String, u64>) -> String {
    let total: u64 = counts.values().sum();
    if total == 0 {
        return "none".to_owned();
    }
    let parts: Vec<String> = counts
        .iter()
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    format!("{total}: {}", parts.join(", "))
}

fn nodes(rows: &[NodeRow]) -> String {
    let mut table = Table::with_head(&[
        ("NAME", Align::Left),
        ("STATUS", Align::Left),
        ("RACK", Align::Left),
        ("SHARDS", Align::Right),
        ("PARTITIONS", Align::Right),
        ("KEYS", Align::Right),
        ("BYTES", Align::Right),
        ("BUSIEST", Align::Right),
        ("HEARTBEAT", Align::Right),
        ("ADDRESS", Align::Left),
        ("ID", Align::Left),
    ]);
    for row in rows {
        // What a node holds is known only from its heartbeats.
        let heard = |text: String| match row.last_heartbeat_ms {
            Some(_) => text,
            None => NOTHING.to_owned(),
        };
        table.row([
            row.name.clone(),
            if row.draining {
                format!("{}, draining", row.status)
            } else {
                row.status.clone()
            },
            or_nothing(&row.rack),
            row.shards.to_string(),
            row.partitions.to_string(),
            heard(row.keys.to_string()),
            heard(units::bytes(row.bytes)),
            load::busiest(&row.shard_cpu_us_per_s),
            heard(units::ago(row.last_heartbeat_ms.unwrap_or(0))),
            row.entry.clone(),
            row.id.clone(),
        ]);
    }
    table.render()
}

/// A name, if there is one.
fn or_nothing(name: &str) -> String {
    match name {
        "" => NOTHING.to_owned(),
        name => name.to_owned(),
    }
}

/// Neighbours that differ in nothing but their epochs are one line.
fn partitions(rows: &[PartitionRow]) -> String {
    let mut table = Table::with_head(&[
        ("PARTITIONS", Align::Left),
        ("SLOTS", Align::Left),
        ("STATUS", Align::Left),
        ("NODE", Align::Left),
        ("SHARD", Align::Right),
        ("EPOCH", Align::Right),
    ]);
    let is_alike = |a: &PartitionRow, b: &PartitionRow| {
        (&a.node, a.shard, &a.status) == (&b.node, b.shard, &b.status)
    };
    for run in rows.chunk_by(is_alike) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let epochs = run.iter().map(|row| row.epoch);
        let (oldest, newest) = (epochs.clone().min(), epochs.max());
        table.row([
            range(first.partition.into(), last.partition.into()),
            range(first.first_slot.into(), last.last_slot.into()),
            first.status.clone(),
            first.node.clone().unwrap_or_else(|| NOTHING.to_owned()),
            first
                .shard
                .map_or_else(|| NOTHING.to_owned(), |shard| shard.to_string()),
            range(oldest.unwrap_or(0), newest.unwrap_or(0)),
        ]);
    }
    table.render()
}

/// `0-341`, or `7` if that is all.
fn range(first: u64, last: u64) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
}

fn coordinators(rows: &[CoordinatorRow]) -> String {
    let mut table = Table::with_head(&[
        ("ID", Align::Right),
        ("ADDRESS", Align::Left),
        ("ROLE", Align::Left),
        ("STATUS", Align::Left),
        ("LOG", Align::Right),
        ("HEARD", Align::Right),
        ("REFUSED", Align::Right),
    ]);
    for row in rows {
        let heard = match row.last_heard_ms {
            _ if row.leader => NOTHING.to_owned(),
            Some(ms) => units::ago(ms),
            None => NOTHING.to_owned(),
        };
        table.row([
            row.id.to_string(),
            row.address.clone(),
            match (row.leader, row.votes) {
                (true, _) => "leader",
                (false, true) => "follower",
                (false, false) => "learner",
            }
            .to_owned(),
            if row.active { "active" } else { "silent" }.to_owned(),
            row.matched.to_string(),
            heard,
            row.refused
                .map_or_else(|| NOTHING.to_owned(), |count| count.to_string()),
        ]);
    }
    table.render()
}

#[cfg(test)]
pub(super) mod tests;
