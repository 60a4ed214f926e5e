//! Removal of expired keys that nobody asks for: a sweep over the tables, in slices.

use ephesus_wire::PartitionId;

use super::{Keyspace, Partition};
use crate::migration::Stage;

/// Table units (about 32 keys each, fewer large ones) that one slice looks at.
const UNITS_PER_SLICE: usize = 16;

/// Where the sweep stands.
#[derive(Default)]
pub struct Sweep {
    /// Index into the owned partitions.
    at: usize,
    cursor: u64,
    expired: Vec<Vec<u8>>,
}

impl Keyspace {
    /// Whether any key that is served has an expiry.
    #[must_use]
    pub fn has_expiring(&self) -> bool {
        self.all_served().any(|p| p.table.expiring() > 0)
    }

    /// Removes expired keys in the next part of the keyspace; true when a round is complete.
    pub fn sweep_slice(&mut self) -> bool {
        let now_ms = self.now_ms;
        let mut sweep = std::mem::take(&mut self.sweep);
        let mut finished = false;
        for _ in 0..UNITS_PER_SLICE {
            let Some(&id) = self.owned.get(sweep.at) else {
                sweep = Sweep::default();
                finished = true;
                break;
            };
            let table = &self
                .partition(id)
                .expect("an owned partition is here")
                .table;
            if table.expiring() > 0 && self.may_expire(id) {
                let expired = &mut sweep.expired;
                sweep.cursor = table.scan(sweep.cursor, &mut |_, entry| {
                    if entry.expire_at_ms != 0 && entry.expire_at_ms <= now_ms {
                        expired.push(entry.key.to_vec());
                    }
                });
            } else {
                sweep.cursor = 0;
            }
            self.remove_expired(id, &mut sweep.expired);
            if sweep.cursor == 0 {
                sweep.at += 1;
            }
        }
        self.sweep = sweep;
        finished
    }

    /// Whether keys of the partition may be removed now: not by anyone but its owner, and not behind the
    /// end of a stream that moves it.
    pub(super) fn may_expire(&self, id: PartitionId) -> bool {
        let is_over = |p: &Partition| p.outgoing().is_some_and(|o| o.stage() == Stage::Final);
        self.served(id).is_some_and(|p| !is_over(p))
    }

    fn remove_expired(&mut self, partition: PartitionId, keys: &mut Vec<Vec<u8>>) {
        for bytes in keys.drain(..) {
            let key = super::Key {
                bytes: &bytes,
                hash: self.hasher.hash(&bytes),
                partition,
            };
            self.expire(&key);
        }
    }
}
