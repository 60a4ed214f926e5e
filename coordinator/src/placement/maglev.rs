//! Maglev hashing (Eisenbud et al., "Maglev: a fast and reliable software network load balancer", NSDI 2016).

use serde::{Deserialize, Serialize};

use super::field::planned;
use super::murmur3::x64_128;
use super::round_robin::turns;
use super::{Plan, Planner, Request, Spec};

/// The table of partitions is Maglev's lookup table: places take turns, and each takes the next free partition of its own
/// permutation of all. Within one of the fair share; a place that joins or leaves moves somewhat more than its share.
///
/// Permutations are of the next prime number of entries, of which those beyond the partitions are skipped; turns are those
/// of [`RoundRobin`](super::RoundRobin), which is how weights count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Maglev {
    /// Another one gives another plan.
    pub seed: u32,
}

/// Where a place is in its permutation.
struct Walk {
    at: u64,
    skip: u64,
}

impl Planner for Maglev {
    fn plan(&self, request: &Request<'_>) -> Plan {
        planned(request, |field, _| {
            let entries = next_prime(u64::from(field.partitions));
            let walk = |spec: &Spec<'_>| {
                let mut key = [0; 18];
                let (node, shard) = key.split_at_mut(16);
                node.copy_from_slice(&spec.place.node.0);
                shard.copy_from_slice(&spec.place.shard.0.to_be_bytes());
                let [offset, skip] = x64_128(&key, self.seed);
                Walk {
                    at: offset % entries,
                    skip: skip % (entries - 1) + 1,
                }
            };
            let mut walks: Vec<Walk> = field.places.iter().map(walk).collect();
            let mut owners = vec![None; field.held.len()];
            for place in turns(field).0 {
                let Some(walk) = walks.get_mut(place) else {
                    continue;
                };
                for _ in 0..entries {
                    let at = walk.at;
                    walk.at = (at + walk.skip) % entries;
                    if let Some(free @ None) = owners.get_mut(at as usize) {
                        *free = Some(place);
                        break;
                    }
                }
            }
            owners.into_iter().flatten().collect()
        })
    }
}

/// The smallest prime that is not below a number, nor below 3: a permutation needs another step than all.
fn next_prime(from: u64) -> u64 {
    let is_prime = |n: &u64| {
        (2..)
            .take_while(|d| d * d <= *n)
            .all(|d| !n.is_multiple_of(d))
    };
    (from.max(3)..).find(is_prime).unwrap_or(from)
}
