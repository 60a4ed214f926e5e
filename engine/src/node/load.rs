//! The load of a node's shards and partitions: what shards count, and the look at it now and then.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use ephesus_coordinator::load::{Amount, Board, Counted, HotKeys};

use super::routes::Routes;
use super::shared::NodeShared;
use crate::shard::ShardStats;

/// What was counted of one partition; it may be another shard that adds to it next.
#[derive(Debug, Default)]
pub struct PartitionCounts {
    ops: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    cpu_ns: AtomicU64,
}

impl PartitionCounts {
    pub fn add(&self, amount: &Amount) {
        self.ops.fetch_add(amount.ops, Ordering::Relaxed);
        self.bytes_in.fetch_add(amount.bytes_in, Ordering::Relaxed);
        self.bytes_out
            .fetch_add(amount.bytes_out, Ordering::Relaxed);
        self.cpu_ns.fetch_add(amount.cpu_ns, Ordering::Relaxed);
    }

    fn amount(&self) -> Amount {
        Amount {
            ops: self.ops.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
        }
    }
}

fn amount_of(stats: &ShardStats) -> Amount {
    Amount {
        ops: stats.load_ops.get(),
        bytes_in: stats.load_bytes_in.get(),
        bytes_out: stats.load_bytes_out.get(),
        cpu_ns: stats.cpu_nanos.get(),
    }
}

impl NodeShared {
    /// Looks at what was counted by `now_ms`, of the partitions that lead to shards of this node.
    pub fn look_at_load(&self, routes: &Routes, now_ms: u64) {
        let counted = self.partitioning.partitions().map(|id| {
            routes.owner_of(id).local()?;
            let place = usize::from(id.0);
            let bytes = self.partition_bytes.get(place)?.get();
            Some(Counted {
                amount: self.partition_loads.get(place)?.amount(),
                // It was not published yet.
                bytes: if bytes == u64::MAX { 0 } else { bytes },
            })
        });
        let mut keys = Vec::new();
        for published in &self.hot_keys {
            let published = published.lock().unwrap_or_else(PoisonError::into_inner);
            keys.extend(published.iter().cloned());
        }
        self.with_load(|board| {
            board.look(now_ms, self.stats.iter().map(amount_of), counted);
            board.set_hot_keys(HotKeys::new(keys));
        });
    }

    /// Asks or changes what is known of the load.
    pub fn with_load<T>(&self, with: impl FnOnce(&mut Board) -> T) -> T {
        with(&mut self.load.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
