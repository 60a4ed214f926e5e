//! A large cluster in one process: the coordinators that ship, with nodes that say what nodes say, on a
//! virtual clock. What counts is the work of the leader: CPU time per turn, memory, and what is encoded.

use std::path::Path;

use crate::error::{BenchError, Result};
use crate::measure::Goal;
use crate::stats;

use super::settings::Settings;
use super::{Case, CaseReport};

mod leader;
mod node;
mod nodes;
mod world;

use world::World;

const TURN_GOAL_MS: f64 = 50.0;
const HEAP_GOAL_MB: f64 = 200.0;

/// Nodes that fail.
const FAILED: usize = 10;

/// How large the cluster is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) nodes: u16,
    pub(super) partitions: u16,
}

/// What a life of a cluster has come to.
pub(super) struct Life {
    /// CPU time of the leader's turns by what went on, ms.
    turns: Vec<(&'static str, Vec<f64>)>,
    /// Partitions that have moved.
    moves: usize,
    /// Versions of the table at the end.
    versions: u64,
    /// Updates of the table that were encoded; the most for the same step of the table in one turn.
    encoded: usize,
    encoded_again: usize,
    /// Messages of raft that found a queue full.
    dropped: usize,
    /// The most proposals that were under way at a time.
    undecided_max: usize,
    heap_peak_bytes: u64,
}

/// All nodes register, those of the first half get everything, ten fail, what is left is balanced, the ten are
/// removed, and operators ask for all that there is.
pub(super) fn live(size: Size, dir: &Path) -> Result<Life> {
    let mut turns = Vec::new();
    let mut world = World::found(size, dir)?;
    world.start_all();
    world.until("every partition to be online", World::is_online)?;
    turns.push(("assignment", world.leader.take_turns()));
    let failed = world.fail(FAILED);
    world.until("ten nodes to be failed", |world| world.failed() == FAILED)?;
    turns.push(("ten nodes fail", world.leader.take_turns()));
    let moves = world.rebalance()?;
    world.until("all moves to end", World::is_still)?;
    turns.push(("rebalance", world.leader.take_turns()));
    for name in failed {
        world.remove(&name)?;
    }
    world.until("what was lost to be online again", |world| {
        world.failed() == 0 && world.is_online()
    })?;
    turns.push(("ten nodes are removed", world.leader.take_turns()));
    world.ask_everything()?;
    turns.push(("operators ask", world.leader.take_turns()));
    let leader = &world.leader;
    Ok(Life {
        turns,
        moves,
        versions: leader.state().table().version,
        encoded: leader.encoded,
        encoded_again: leader.encoded_again,
        dropped: leader.dropped,
        undecided_max: leader.undecided_max,
        heap_peak_bytes: crate::heap::peak(),
    })
}

pub(super) fn run(settings: &Settings) -> Result<CaseReport> {
    let size = settings.size;
    let (nodes, partitions) = (size.nodes, size.partitions);
    let mut report = CaseReport::new(
        Case::Scale,
        format!(
            "3 coordinators as they ship, {nodes} simulated nodes of {} shards, {partitions} partitions, virtual \
             clock: all nodes register at once, half of them get everything, {FAILED} fail, a rebalance, the \
             {FAILED} are removed, operators ask. A turn of the leader is its decisions, its log's writes and the encoding of what \
             it sends; its memory is what it has allocated",
            nodes::SHARDS
        ),
    );
    let life = live(size, settings.root())?;
    let mut all = Vec::new();
    for (when, turns) in life.turns {
        let longest = stats::quantile(&turns, 1.0).into_iter().collect();
        let goal = Some(Goal::ValueAtMost(TURN_GOAL_MS));
        report.add(format!("longest turn, {when}"), "ms", longest, goal);
        let p99 = stats::quantile(&turns, 0.99).into_iter().collect();
        report.add(format!("99% of {} turns", turns.len()), "ms", p99, None);
        all.extend(turns);
    }
    let mut one = |name: &str, unit, value: f64, most: Option<f64>| {
        report.add(name, unit, vec![value], most.map(Goal::ValueAtMost));
    };
    one("turns", "", all.len() as f64, None);
    one("CPU of all turns", "ms", all.iter().sum(), None);
    let undecided = life.undecided_max as f64;
    one("proposals under way, most", "", undecided, None);
    one("partitions moved", "", life.moves as f64, None);
    one("versions of the table", "", life.versions as f64, None);
    one("updates encoded", "", life.encoded as f64, None);
    let again = life.encoded_again as f64;
    one("encoded more than once", "", again, Some(0.0));
    let dropped = life.dropped as f64;
    one("messages of raft dropped", "", dropped, Some(0.0));
    let mb = life.heap_peak_bytes as f64 / 1e6;
    one("most memory", "MB", mb, Some(HEAP_GOAL_MB));
    Ok(report)
}

fn wrong(what: &str, problem: impl ToString) -> BenchError {
    BenchError::failed(what.to_owned(), problem)
}

#[cfg(test)]
mod tests;
