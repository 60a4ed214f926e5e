//! A large cluster in one process: the coordinators that ship, with nodes that say what nodes say, on a
//! virtual clock. What counts is the work of the leader: CPU time per turn, memory, and what is encoded.

use std::path::Path;

use ephesus_bench::error::{BenchError, Result};
use ephesus_bench::heap;

mod leader;
mod node;
pub mod nodes;
mod world;

use world::World;

/// Nodes that fail.
pub const FAILED: usize = 10;

/// How large the cluster is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: u16,
    pub partitions: u16,
}

/// What a life of a cluster has come to.
pub struct Life {
    /// CPU time of the leader's turns by what went on, ms.
    pub turns: Vec<(&'static str, Vec<f64>)>,
    /// Partitions that have moved.
    pub moves: usize,
    /// Versions of the table at the end.
    pub versions: u64,
    /// Updates of the table that were encoded; the most for the same step of the table in one turn.
    pub encoded: usize,
    pub encoded_again: usize,
    /// Messages of raft that found a queue full.
    pub dropped: usize,
    /// The most proposals that were under way at a time.
    pub undecided_max: usize,
    pub heap_peak_bytes: u64,
}

/// All nodes register, those of the first half get everything, ten fail, what is left is balanced, the ten are
/// removed, and operators ask for all that there is.
pub fn live(size: Size, dir: &Path) -> Result<Life> {
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
        heap_peak_bytes: heap::peak(),
    })
}

fn wrong(what: &str, problem: impl std::fmt::Display) -> BenchError {
    BenchError::failed(what.to_owned(), problem)
}
