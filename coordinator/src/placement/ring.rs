//! Consistent hashing (Karger et al., STOC 1997) with Cassandra's virtual nodes and, if wanted, its token allocation.

use serde::{Deserialize, Serialize};

use super::field::{Field, planned};
use super::{Plan, Planner, Request, Unmet, murmur3};

pub use tokens::{Sorted, position};

mod allocation;
mod tokens;

/// Tokens of a plan at most, 16 bytes each.
const TOKENS_MAX: u64 = 1 << 21;

/// Places have tokens on a ring, as many as their weight says; a partition belongs to the next one. Its points are as far
/// from one another as can be: clients' slot maps stay short.
///
/// What joins takes from some and nothing else moves; what leaves gives to some. With hashed tokens a place is off its share
/// by a standard deviation of 1 / sqrt(tokens), and by 1 / sqrt(partitions of the place) where these are fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ring {
    /// Tokens of a place that has a weight of 100.
    pub vnodes: u16,
    /// Where tokens are.
    pub tokens: Tokens,
    /// Another one gives another ring of hashed tokens.
    pub seed: u32,
}

/// Where tokens are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Tokens {
    /// At hashes of the place and the number of the token: follows from the places alone.
    #[default]
    Hashed,
    /// What is owned now is the ring; who joins splits the ranges of those who have most.
    Even,
}

impl Default for Ring {
    /// As many tokens as Cassandra has since 4.0.
    fn default() -> Self {
        Ring {
            vnodes: 16,
            tokens: Tokens::Hashed,
            seed: 0,
        }
    }
}

impl Planner for Ring {
    fn plan(&self, request: &Request<'_>) -> Plan {
        planned(request, |field, unmet| match self.tokens {
            Tokens::Even => allocation::owners(field, self.vnodes),
            Tokens::Hashed => {
                let ring = hashed(field, (self.vnodes, self.seed), unmet);
                let points = (0..field.partitions).map(|p| position(p, field.partitions));
                points.filter_map(|point| ring.owner(point)).collect()
            }
        })
    }
}

/// A ring with the hashed tokens of all places.
pub(super) fn hashed(
    field: &Field<'_>,
    (vnodes, seed): (u16, u32),
    unmet: &mut Vec<Unmet>,
) -> Sorted {
    let count = |spec| Field::scaled(vnodes.into(), spec);
    let tokens: u64 = field.places.iter().map(count).sum();
    let divisor = tokens.div_ceil(TOKENS_MAX);
    if divisor > 1 {
        unmet.push(Unmet::Tokens { tokens, divisor });
    }
    let of_place = |(index, spec)| {
        let count = count(spec).div_ceil(divisor);
        let mut key = [0; 26];
        let (node, rest) = key.split_at_mut(16);
        node.copy_from_slice(&spec.place.node.0);
        let (shard, _) = rest.split_at_mut(2);
        shard.copy_from_slice(&spec.place.shard.0.to_be_bytes());
        (0..count).map(move |number: u64| {
            let (_, end) = key.split_at_mut(18);
            end.copy_from_slice(&number.to_be_bytes());
            let [token, _] = murmur3::x64_128(&key, seed);
            (token, index)
        })
    };
    Sorted::new(field.places.iter().enumerate().flat_map(of_place))
}

#[cfg(test)]
mod tests;
