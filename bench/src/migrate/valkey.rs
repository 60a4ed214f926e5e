use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::error::{During, Result};
use crate::locate;
use crate::record::ServerRecord;
use crate::resp::{self, Connection, Value, unexpected};
use crate::runner::join;
use crate::server::{Durability, Product, Server, ServerSpec};

use super::round::{Contestant, Ends, Pair, Said, Stage};

#[cfg(test)]
mod tests;

const LAST_SLOT: u16 = 16_383;
/// The last of the slots that move: half of them.
const LAST_MOVING: u16 = LAST_SLOT / 2;
const QUIET_TIMEOUT: Duration = Duration::from_secs(120);
const DAY_MS: f64 = 86_400_000.0;

/// Makes a member of a cluster of it that converges under writes: the last of them may be under way
/// when it stops to take more, and no limit on what waits to be sent ends the move.
const CLUSTER_SETTINGS: &str = "--cluster-enabled yes --slot-migration-max-failover-repl-bytes 4194304 \
    --client-output-buffer-limit replica 0 0 0";

/// Two Valkeys in one cluster, the first of which owns every slot.
pub(super) struct ValkeyPair {
    servers: [Server; 2],
    ends: Ends,
    is_copying: bool,
    /// When the move was over, seconds since the order.
    ended_s: f64,
    _dir: TempDir,
}

impl ValkeyPair {
    pub(super) fn start(
        binary: &Path,
        root: &Path,
        contestant: Contestant,
        cpus: [usize; 2],
    ) -> Result<Self> {
        let dir = locate::dir_in(root, "valkey-")?;
        let in_memory = match contestant.aof() {
            Some(_) => "",
            None => " --appendonly no",
        };
        let start = |name: &str, cpu| {
            let spec = ServerSpec {
                product: Product::Valkey,
                binary: binary.to_owned(),
                durability: contestant.aof().unwrap_or(Durability::EverySecond),
                dir: dir.path().join(name),
                cpus: vec![cpu],
                extra: format!("{CLUSTER_SETTINGS}{in_memory}"),
            };
            Server::start(spec)
        };
        let servers = [start("source", cpus[0])?, start("target", cpus[1])?];
        let [source, target] = &servers;
        let pids = Some([source.pid(), target.pid()]);
        let mut ends = Ends::new([source.address, target.address], pids);
        ends.add(0, LAST_MOVING, true);
        ends.add(LAST_MOVING + 1, LAST_SLOT, false);
        join(&servers, 1)?;
        Ok(ValkeyPair {
            servers,
            ends,
            is_copying: false,
            ended_s: 0.0,
            _dir: dir,
        })
    }

    fn connect(&self, end: usize) -> Result<Connection> {
        self.servers[end].connect()
    }

    /// The newest migration as one end sees it, which is called so there.
    fn newest(&self, end: usize) -> Result<Option<Migration>> {
        let reply = self.connect(end)?.call(&["CLUSTER", "GETSLOTMIGRATIONS"])?;
        newest(&reply, ["EXPORT", "IMPORT"][end])
    }
}

impl Pair for ValkeyPair {
    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn settle(&self) -> Result<()> {
        self.servers.iter().try_for_each(|server| {
            server.await_quiet(QUIET_TIMEOUT)?;
            server.verify_confined()
        })
    }

    fn order(&mut self) -> Result<()> {
        let to = self.connect(1)?.text(&["CLUSTER", "MYID"])?;
        let last = LAST_MOVING.to_string();
        let what = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", &last, "NODE"];
        self.connect(0)?.text(&[&what[..], &[&to]].concat())?;
        Ok(())
    }

    fn look(&mut self, at_s: f64) -> Result<(Stage, u64)> {
        // The source says when it begins. That it has ended the target says, which serves by then: the
        // source answers nobody before it has dropped what it gave.
        if !self.is_copying {
            let stage = self.newest(0)?.as_ref().map_or(Stage::Waiting, stage);
            self.is_copying = stage == Stage::Copying;
            return Ok((stage, 0));
        }
        let stage = match self.newest(1)?.as_ref().map(stage) {
            None | Some(Stage::Waiting) => Stage::Copying,
            Some(stage) => stage,
        };
        self.ended_s = at_s;
        let info = self.servers[1].info("stats")?;
        let received = resp::info_number(&info, "total_net_cluster_slot_import_bytes");
        Ok((stage, received.unwrap_or(0)))
    }

    fn said(&mut self) -> Result<Said> {
        let log = self.servers[0].spec.log_path();
        let text = fs::read_to_string(&log).during(log.display())?;
        let forked = self
            .newest(0)?
            .and_then(|export| number(&export, "cow_size"));
        let holds = hold_ms(&text).map(|ms| [self.ended_s, ms]);
        Ok(Said {
            holds: holds.into_iter().collect(),
            retries: 0,
            forked_bytes: forked.unwrap_or(0),
        })
    }

    fn described(&self) -> Vec<ServerRecord> {
        self.servers.iter().map(Server::describe).collect()
    }
}

type Migration = BTreeMap<String, String>;

/// The one that was begun last of those that this end calls so, of a reply to `CLUSTER GETSLOTMIGRATIONS`.
fn newest(reply: &Value, operation: &str) -> Result<Option<Migration>> {
    let all = match reply {
        Value::Array(items) => {
            let read = |item| Some(Migration::from_iter(resp::pairs(item)?));
            items.iter().map(read).collect::<Option<Vec<_>>>()
        }
        _ => None,
    };
    let all = all.ok_or_else(|| unexpected(&["CLUSTER", "GETSLOTMIGRATIONS"], reply))?;
    let is_meant = |migration: &Migration| word(migration, "operation") == operation;
    // Of those of one second the first: Valkey's list begins with the newest.
    let meant = all.into_iter().rev().filter(is_meant);
    Ok(meant.max_by_key(|migration| number(migration, "create_time")))
}

fn word<'a>(migration: &'a Migration, name: &str) -> &'a str {
    migration.get(name).map_or("", String::as_str)
}

fn number(migration: &Migration, name: &str) -> Option<u64> {
    word(migration, name).parse().ok()
}

fn stage(migration: &Migration) -> Stage {
    match word(migration, "state") {
        "success" => Stage::Done,
        state @ ("failed" | "cancelled") => {
            Stage::Failed(format!("{state}: {}", word(migration, "message")))
        }
        "snapshotting" | "replicating" | "failover-paused" | "failover-granted" => Stage::Copying,
        _ => Stage::Waiting,
    }
}

/// From when the source paused writes until it knew the target as the owner, by its log, the last
/// time it did both.
fn hold_ms(log: &str) -> Option<f64> {
    let last = |what: &str| {
        let mut lines = log.lines();
        lines.rfind(|line| line.contains(what)).and_then(at_ms)
    };
    let began = last("-> failover-paused")?;
    let ended = last("failover-granted -> success")?;
    Some((ended - began).rem_euclid(DAY_MS))
}

/// Time of day of a line such as `7:M 21 Nov 2026 19:11:14.717 * text`, ms.
fn at_ms(line: &str) -> Option<f64> {
    let time = line.split(' ').nth(4)?;
    let seconds = time.split(':').try_fold(0.0, |sum, part| {
        Some(sum * 60.0 + part.parse::<f64>().ok()?)
    });
    Some(seconds? * 1e3)
}
