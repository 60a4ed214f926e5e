//! How long keys have to live, as INFO estimates it: from some of them at a time.

use std::collections::BTreeMap;

use ephesus_wire::{Database, database};

use super::Keyspace;

/// Table units (about 32 keys each) that are looked at in one go.
const UNITS: usize = 4;

/// What the newest keys count in the average.
const NEWEST: f64 = 0.1;

/// Where the next keys are looked at, and what is known.
#[derive(Default)]
pub(super) struct Lifetimes {
    /// Index into the owned partitions, and where in its table.
    at: usize,
    cursor: u64,
    /// Of keys that expire, ms.
    averages: BTreeMap<Database, f64>,
}

impl Keyspace {
    /// Looks at some more keys; answers the average time that keys of each database have to live which expire, ms.
    pub fn average_lifetimes(&mut self) -> BTreeMap<Database, u64> {
        let now_ms = self.now_ms;
        let mut lifetimes = std::mem::take(&mut self.lifetimes);
        let mut found: BTreeMap<Database, (f64, u32)> = BTreeMap::new();
        let count = self.owned.len();
        for step in 0..count {
            let at = (lifetimes.at + step) % count;
            let partition = self.owned.get(at).and_then(|id| self.served(*id));
            let Some(partition) = partition.filter(|copy| copy.table.expiring() > 0) else {
                lifetimes.cursor = 0;
                continue;
            };
            for _ in 0..UNITS {
                lifetimes.cursor = partition.table.scan(lifetimes.cursor, &mut |_, entry| {
                    if entry.expire_at_ms > now_ms {
                        let (database, _) = database::split(entry.key);
                        let (sum, keys) = found.entry(database).or_default();
                        *sum += (entry.expire_at_ms - now_ms) as f64;
                        *keys += 1;
                    }
                });
                if lifetimes.cursor == 0 {
                    break;
                }
            }
            lifetimes.at = at + usize::from(lifetimes.cursor == 0);
            break;
        }
        for (database, (sum, keys)) in found {
            let newest = sum / f64::from(keys);
            let average = lifetimes.averages.entry(database).or_insert(newest);
            *average += (newest - *average) * NEWEST;
        }
        let averages = lifetimes.averages.iter();
        let averages = averages.map(|(database, average)| (*database, *average as u64));
        let averages = averages.collect();
        self.lifetimes = lifetimes;
        averages
    }
}
