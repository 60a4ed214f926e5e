//! Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, Google, 2016).

use serde::{Deserialize, Serialize};

use super::field::planned;
use super::ring::{hashed, position};
use super::{Plan, Planner, Request};

/// The ring with hashed tokens, on which a place is full at its fair share times (1 + epsilon), rounded up, and what it has
/// no room for goes on to the next token. What joins or leaves moves its share and, on average, so many times more as
/// 1 / epsilon^2 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BoundedRing {
    /// Tokens of a place that has a weight of 100.
    pub vnodes: u16,
    /// Thousandths of a fair share that a place may have beyond it.
    pub epsilon_permille: u16,
    /// Another one gives another plan.
    pub seed: u32,
}

impl Default for BoundedRing {
    fn default() -> Self {
        BoundedRing {
            vnodes: 16,
            epsilon_permille: 250,
            seed: 0,
        }
    }
}

impl Planner for BoundedRing {
    fn plan(&self, request: &Request<'_>) -> Plan {
        planned(request, |field, unmet| {
            let ring = hashed(field, (self.vnodes, self.seed), unmet);
            let tokens = ring.tokens();
            let most = 1000 + u128::from(self.epsilon_permille);
            let room = |weight: u32| {
                let share = u128::from(field.partitions) * u128::from(weight) * most;
                share.div_ceil(u128::from(field.weights) * 1000) as u64
            };
            let mut rooms: Vec<u64> = field.places.iter().map(|one| room(one.weight)).collect();
            // By token the first one from it on that may have room, or one on the way there.
            let mut next: Vec<usize> = (0..tokens.len()).collect();
            let mut open = tokens.len();
            let mut owners = Vec::new();
            for partition in 0..field.partitions {
                let begin = ring.find(position(partition, field.partitions));
                let mut at = begin.map_or(0, |(at, _)| at);
                let owner = loop {
                    // All have room for all together, but a place may lose its tokens to equal ones.
                    if open == 0 {
                        break rooms.iter().position(|room| *room > 0).unwrap_or(0);
                    }
                    at = follow(&mut next, at);
                    let owner = tokens.get(at).map_or(0, |(_, owner)| *owner);
                    if rooms.get(owner) != Some(&0) {
                        break owner;
                    }
                    if let Some(next) = next.get_mut(at) {
                        *next = (at + 1) % tokens.len();
                        open -= 1;
                    }
                };
                if let Some(room) = rooms.get_mut(owner) {
                    *room = room.saturating_sub(1);
                }
                owners.push(owner);
            }
            owners
        })
    }
}

/// The token at the end of the way, which is halved for who comes later.
fn follow(next: &mut [usize], mut at: usize) -> usize {
    while let Some(after) = next.get(at).copied().filter(|after| *after != at) {
        let beyond = next.get(after).copied().unwrap_or(after);
        if let Some(next) = next.get_mut(at) {
            *next = beyond;
        }
        at = after;
    }
    at
}
