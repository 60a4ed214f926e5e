use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::locate;
use crate::record::ServerRecord;
use crate::resp::{self, Connection};
use crate::server::{self, Durability, Product, Server, ServerSpec};

use super::contestant::Contestant;
use super::pair::{Ends, Pair, Said, Stage};
use super::slot_migration::{self, Side, SlotMigration};
use super::slots::SlotSet;

const LAST_SLOT: u16 = 16_383;
/// The last of the slots that move: half of them.
const LAST_MOVING: u16 = LAST_SLOT / 2;
/// How long two nodes may take to know each other.
const MEET_TIMEOUT: Duration = Duration::from_secs(60);
const MEET_POLL: Duration = Duration::from_millis(20);
/// How long a server may go on working after writes.
const QUIET_TIMEOUT: Duration = Duration::from_secs(120);

/// Makes a member of a cluster of it that converges under writes: the last of them may be under way
/// when it stops to take more, and no limit on what waits to be sent ends the move.
const CLUSTER_SETTINGS: &[&str] = &[
    "--cluster-enabled",
    "yes",
    "--slot-migration-max-failover-repl-bytes",
    "4194304",
    "--client-output-buffer-limit",
    "replica",
    "0",
    "0",
    "0",
];

/// Two Valkeys in one cluster, the first of which owns every slot.
pub(super) struct ValkeyPair {
    source: Server,
    target: Server,
    ends: Ends,
    is_copying: bool,
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
        let mut extra: Vec<String> = CLUSTER_SETTINGS.iter().map(|&word| word.into()).collect();
        if contestant.aof().is_none() {
            extra.extend(["--appendonly".to_owned(), "no".to_owned()]);
        }
        let start = |name: &str, cpu| {
            let spec = ServerSpec {
                product: Product::Valkey,
                binary: binary.to_owned(),
                durability: contestant.aof().unwrap_or(Durability::EverySecond),
                dir: dir.path().join(name),
                cpus: vec![cpu],
                shards: 1,
                wal_budget_bytes: 0,
                max_memory_bytes: 0,
                extra: extra.clone(),
            };
            Server::start(spec, None)
        };
        let (source, target) = (start("source", cpus[0])?, start("target", cpus[1])?);
        let ends = Ends {
            source: source.address(),
            target: target.address(),
            pids: Some([source.pid(), target.pid()]),
            owned: SlotSet::of_ranges([(0, LAST_SLOT)]),
            moving: SlotSet::of_ranges([(0, LAST_MOVING)]),
        };
        let pair = ValkeyPair {
            source,
            target,
            ends,
            is_copying: false,
            _dir: dir,
        };
        pair.meet()?;
        Ok(pair)
    }

    /// Gives every slot to the source and waits until both know that.
    fn meet(&self) -> Result<()> {
        let mut first = self.source.connect()?;
        let mut second = self.target.connect()?;
        first.text(&["CLUSTER", "SET-CONFIG-EPOCH", "1"])?;
        second.text(&["CLUSTER", "SET-CONFIG-EPOCH", "2"])?;
        first.text(&["CLUSTER", "ADDSLOTSRANGE", "0", &LAST_SLOT.to_string()])?;
        let to = self.target.address();
        let (host, port) = (to.ip().to_string(), to.port().to_string());
        first.text(&["CLUSTER", "MEET", &host, &port])?;
        let state = ("a cluster of two Valkeys", "ready");
        interrupt::wait_for(state, MEET_TIMEOUT, MEET_POLL, || {
            Ok(knows_both(&mut first)? && knows_both(&mut second)?)
        })
    }
}

fn newest(connection: &mut Connection, side: Side) -> Result<Option<SlotMigration>> {
    let reply = connection.call(&["CLUSTER", "GETSLOTMIGRATIONS"])?;
    slot_migration::newest(&reply, side)
}

fn knows_both(connection: &mut Connection) -> Result<bool> {
    let info = connection.text(&["CLUSTER", "INFO"])?;
    let number = |name| resp::info_number(&info, name);
    Ok(resp::info_field(&info, "cluster_state") == Some("ok")
        && number("cluster_known_nodes") == Some(2)
        && number("cluster_slots_ok") == Some(u64::from(LAST_SLOT) + 1))
}

impl Pair for ValkeyPair {
    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn settle(&self) -> Result<()> {
        for server in [&self.source, &self.target] {
            if !server.wait_quiet(QUIET_TIMEOUT)? {
                return Err(server.timed_out("idle", QUIET_TIMEOUT));
            }
            server.verify_confined()?;
        }
        Ok(())
    }

    fn order(&mut self) -> Result<()> {
        let to = self.target.connect()?.text(&["CLUSTER", "MYID"])?;
        let last = LAST_MOVING.to_string();
        let order = [
            "CLUSTER",
            "MIGRATESLOTS",
            "SLOTSRANGE",
            "0",
            &last,
            "NODE",
            &to,
        ];
        self.source.connect()?.text(&order).map(|_| ())
    }

    fn look(&mut self) -> Result<Stage> {
        // The source says when it begins. That it has ended the target says, which serves by then: the
        // source answers nobody before it has dropped what it gave.
        if self.is_copying {
            let import = newest(&mut self.target.connect()?, Side::Import)?;
            return Ok(
                import.map_or(Stage::Copying, |import| match import.stage() {
                    Stage::Waiting => Stage::Copying,
                    stage => stage,
                }),
            );
        }
        let export = newest(&mut self.source.connect()?, Side::Export)?;
        let stage = export.map_or(Stage::Waiting, |export| export.stage());
        self.is_copying = stage == Stage::Copying;
        Ok(stage)
    }

    fn said(&mut self) -> Result<Said> {
        let log = self.source.spec().log_path();
        let text = fs::read_to_string(&log).map_err(BenchError::io(log.display().to_string()))?;
        let export = newest(&mut self.source.connect()?, Side::Export)?;
        Ok(Said {
            holds_ms: slot_migration::hold_ms(&text).into_iter().collect(),
            retries: 0,
            forked_bytes: export.map_or(0, |export| export.cow_bytes),
        })
    }

    fn described(&self) -> Vec<ServerRecord> {
        vec![
            server::describe(&self.source),
            server::describe(&self.target),
        ]
    }
}
