//! Loads every key that `redis-benchmark -r N` can draw: `key:000000000000` and on.

use crate::error::Result;
use crate::load::{self, Distribution, Indexes, Mix, Op, Plan, Span};

#[cfg(test)]
mod tests;

pub const KEY_BYTES: usize = 16;

const CONNECTIONS: usize = 4;
const BATCH_KEYS: u32 = 256;

/// The `index`-th key, in redis-benchmark's format.
pub fn key(index: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key:000000000000";
    let mut rest = index;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The slot of the `index`-th key.
pub fn slot_of_key(index: u64) -> usize {
    usize::from(ephesus_wire::slot_of(&key(index)).0)
}

/// Does something with each key once, pipelined, and returns once every reply has arrived.
pub fn each(mut plan: Plan, op: Op, indexes: Indexes) -> Result<()> {
    plan.pace.rate = 0;
    plan.pace.count = None;
    plan.pace.connections = CONNECTIONS;
    plan.pace.pipeline = BATCH_KEYS;
    plan.workload.mix = Mix::of(&[(op, 1)]);
    plan.workload.keys = indexes;
    plan.workload.distribution = Distribution::Once;
    let outcome = load::run(&plan, Span::default())?;
    outcome.flawless().map(drop)
}
