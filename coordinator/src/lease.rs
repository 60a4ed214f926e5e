//! What a node's shards share with the thread that heartbeats for them: until when they may serve, and that they do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ephesus_wire::ShardId;

use crate::agent::Pulse;
use crate::membership::boottime_ms;
use crate::sole_node::SoleNode;

/// Whether the node may serve what the table says is its own, for whoever serves it.
///
/// A shard [looks](Lease::look) at it at the beginning of every turn, which is the sign of life that heartbeats tell
/// of: a node one of whose shards stands still is not to be counted as alive, however well it heartbeats.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// Of CLOCK_BOOTTIME, ms.
    until_ms: Arc<AtomicU64>,
    /// None is needed while the coordinator inside is the only one, and this node too.
    alone: Option<SoleNode>,
    shards: Arc<[Shard]>,
    /// Rings when all shards have acted on a newer table.
    acted: Option<flume::Sender<()>>,
    /// The clock in place of CLOCK_BOOTTIME, ms.
    #[cfg(feature = "planted")]
    clock_ms: Option<Arc<AtomicU64>>,
}

/// What one shard shows of itself.
#[derive(Debug, Default)]
struct Shard {
    /// When its last turn has begun, by the clock of the lease; 0: it has not begun.
    turn_ms: AtomicU64,
    /// The version of the table that it acts on.
    table_version: AtomicU64,
}

impl Lease {
    /// Of a node with so many shards; the answer rings when all have acted on a newer table.
    pub(crate) fn new(shards: u16, alone: Option<SoleNode>) -> (Lease, flume::Receiver<()>) {
        let (acted, rings) = flume::bounded(1);
        let lease = Lease {
            alone,
            shards: (0..shards).map(|_| Shard::default()).collect(),
            acted: Some(acted),
            ..Lease::default()
        };
        (lease, rings)
    }

    /// It holds until then, ms of CLOCK_BOOTTIME.
    pub fn set_until_ms(&self, until_ms: u64) {
        self.until_ms.store(until_ms, Ordering::Release);
    }

    /// Whether it holds at this moment.
    #[inline]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.is_alone() || self.holds_at(self.now_ms())
    }

    /// The same for a shard that begins a turn: it is alive.
    #[inline]
    #[must_use]
    pub fn look(&self, shard: ShardId) -> bool {
        let now_ms = self.now_ms();
        if let Some(shard) = self.shards.get(usize::from(shard.0)) {
            shard.turn_ms.store(now_ms, Ordering::Release);
        }
        self.is_alone() || self.holds_at(now_ms)
    }

    /// A shard acts on this version of the table from now on.
    pub fn acts_on(&self, shard: ShardId, version: u64) {
        let Some(acting) = self.shards.get(usize::from(shard.0)) else {
            return;
        };
        // In one order for all shards: the last of them sees what the others have stored.
        acting.table_version.store(version, Ordering::SeqCst);
        if self.table_version() >= version
            && let Some(acted) = &self.acted
        {
            // It may be ringing already.
            let _ = acted.try_send(());
        }
    }

    /// What all shards have done.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        let turns = self
            .shards
            .iter()
            .map(|s| s.turn_ms.load(Ordering::Acquire));
        Pulse {
            table_version: self.table_version(),
            turn_ms: turns.filter(|turn_ms| *turn_ms > 0).min(),
        }
    }

    fn table_version(&self) -> u64 {
        let shards = self.shards.iter();
        let versions = shards.map(|s| s.table_version.load(Ordering::SeqCst));
        versions.min().unwrap_or(0)
    }

    #[inline]
    fn is_alone(&self) -> bool {
        self.alone.as_ref().is_some_and(SoleNode::is_so)
    }

    #[inline]
    fn holds_at(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms.load(Ordering::Acquire)
    }

    #[inline]
    fn now_ms(&self) -> u64 {
        #[cfg(feature = "planted")]
        if let Some(clock_ms) = &self.clock_ms {
            return clock_ms.load(Ordering::Acquire);
        }
        boottime_ms()
    }

    /// One of a node with so many shards that a simulation extends, by its own clock.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn simulated(shards: u16, until_ms: Arc<AtomicU64>, clock_ms: Arc<AtomicU64>) -> Lease {
        Lease {
            until_ms,
            clock_ms: Some(clock_ms),
            ..Lease::new(shards, None).0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_is_that_of_the_shard_that_is_behind() {
        let (lease, rings) = Lease::new(2, None);
        assert_eq!(lease.pulse(), Pulse::default());
        let [first, second] = [0, 1].map(ShardId);
        lease.acts_on(first, 7);
        assert!(rings.try_recv().is_err(), "one of them does not know it");
        lease.acts_on(second, 5);
        assert!(rings.try_recv().is_ok());
        lease.acts_on(second, 7);
        assert!(rings.try_recv().is_ok());
        assert_eq!(lease.pulse().table_version, 7);

        assert!(!lease.look(first));
        let turn_ms = lease.pulse().turn_ms;
        assert!(turn_ms.is_some(), "the other one has not begun");
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(!lease.look(second));
        assert_eq!(lease.pulse().turn_ms, turn_ms, "the first one stands");
    }
}
