//! Rendezvous hashing (Thaler and Ravishankar, 1998; Ignite's affinity), by weight as in Schindelhauer and Schomaker, 2005.

use serde::{Deserialize, Serialize};

use super::field::planned;
use super::murmur3::{mix, x64_128};
use super::{Plan, Planner, Request, Spec};

/// A partition belongs to the node that hashes highest with it, and there to the shard that does: nothing moves but what a
/// place that joins takes or one that leaves had, and between shards of one node only if their number changes.
///
/// A place is off its share by a standard deviation of 1 / sqrt(its partitions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rendezvous {
    /// Another one gives another plan.
    pub seed: u32,
}

/// Something that partitions choose among.
struct Candidate {
    hash: u64,
    weight: u64,
    /// Its place in the list that it comes from.
    at: usize,
}

impl Planner for Rendezvous {
    fn plan(&self, request: &Request<'_>) -> Plan {
        planned(request, |field, _| {
            let (mut nodes, mut shards, mut begin) = (Vec::new(), Vec::new(), 0);
            for specs in field.nodes() {
                let id = specs.first().map_or([0; 16], |spec| spec.place.node.0);
                let [hash, other] = x64_128(&id, self.seed);
                let weight = |one: &Spec<'_>| u64::from(one.weight);
                let at = nodes.len();
                nodes.push(Candidate {
                    hash,
                    weight: specs.iter().map(weight).sum(),
                    at,
                });
                let of_node = specs.iter().zip(begin..).map(|(spec, at)| Candidate {
                    hash: mix(other ^ u64::from(spec.place.shard.0)),
                    weight: weight(spec),
                    at,
                });
                shards.push(of_node.collect::<Vec<_>>());
                begin += specs.len();
            }
            let shards: Vec<_> = shards.iter().map(|shards| Choice::among(shards)).collect();
            let nodes = Choice::among(&nodes);
            let owner = |partition: u16| {
                let hash = mix(!u64::from(partition));
                shards.get(nodes.of(hash)?)?.of(hash)
            };
            (0..field.partitions).filter_map(owner).collect()
        })
    }
}

struct Choice<'a> {
    candidates: &'a [Candidate],
    is_equal: bool,
}

impl<'a> Choice<'a> {
    fn among(candidates: &'a [Candidate]) -> Self {
        let mut pairs = candidates.iter().zip(candidates.iter().skip(1));
        Choice {
            candidates,
            is_equal: pairs.all(|(one, next)| one.weight == next.weight),
        }
    }

    /// The candidate with the lowest -ln(hash) / weight, where hashes are from 0 to 1: without weights that with the highest
    /// hash.
    fn of(&self, key: u64) -> Option<usize> {
        let hash = |one: &Candidate| mix(one.hash ^ key) | 0x7ff;
        let found = match self.is_equal {
            true => self.candidates.iter().rev().max_by_key(|one| hash(one)),
            false => {
                let cost = |one: &Candidate| -ln(hash(one)) / one.weight as f64;
                let costs = self.candidates.iter().map(|one| (cost(one), one));
                costs
                    .min_by(|(one, _), (other, _)| one.total_cmp(other))
                    .map(|(_, one)| one)
            }
        };
        found.map(|one| one.at)
    }
}

/// The logarithm of a number of 64 bits as a share of 2^64.
///
/// It is made of operations that IEEE 754 rounds in one way: that of the system's library may differ between machines, and
/// coordinators have to agree.
fn ln(x: u64) -> f64 {
    let zeros = x.leading_zeros();
    // From 1 to below 2.
    let mantissa = ((x << zeros) >> 11) as f64 / (1_u64 << 52) as f64;
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut series = 0.0;
    for odd in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * square + 1.0 / odd;
    }
    2.0 * s * series - f64::from(zeros + 1) * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests;
