//! Which shard gets which partition: the policies that the field knows, as pure functions.
//!
//! ```text
//! Policy (name and parameters) -> Planner::plan(Request: partitions, places, who has what) -> Plan: owners, what is unmet
//! ```
//!
//! A plan follows from its request alone, in whatever order places are listed: they are sorted by node and shard first. What
//! is under way stays where it goes to, and so does what belongs to a place that takes no part.
//!
//! A partition has one owner, so a rack holds no second copy of anything: every policy gives a rack what the weights of
//! its nodes say, and none moves a partition for the sake of a rack. [`RoundRobin`] alone looks at racks: neighbours go to
//! different ones, so that losing a rack takes no range of neighbours.

use ephesus_wire::{NodeId, ShardId};
use serde::{Deserialize, Serialize};

mod bounded_ring;
pub mod by_load;
mod contiguous;
mod cooperative_sticky;
mod field;
pub mod jump;
mod maglev;
pub mod murmur3;
mod policy;
mod rendezvous;
pub mod ring;
mod round_robin;
mod sticky;
mod unmet;

pub use bounded_ring::BoundedRing;
pub use contiguous::Contiguous;
pub use cooperative_sticky::CooperativeSticky;
pub use jump::Jump;
pub use maglev::Maglev;
pub use policy::{POLICIES, Policy, PolicyError};
pub use rendezvous::Rendezvous;
pub use ring::Ring;
pub use round_robin::RoundRobin;
pub use sticky::{Located, Move, Share, Sticky, rebalance};
pub use unmet::Unmet;

/// A way to choose owners.
pub trait Planner {
    /// Who is to own each partition.
    fn plan(&self, request: &Request<'_>) -> Plan;
}

/// What a plan follows from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// How many partitions there are, from 0 on.
    pub partitions: u16,
    /// Who takes part, in any order; of the same place one counts.
    pub places: &'a [Spec<'a>],
    /// Who has what, in any order; a partition that is not here has no owner.
    pub current: &'a [Located],
    /// So many moves may be under way at a time, those that are now included: [`CooperativeSticky`] heeds it.
    pub moves_max: usize,
}

/// A shard that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// The shard.
    pub place: Place,
    /// Its part of all weights, e.g. the capacity of its node; 0: it is to be emptied.
    pub weight: u32,
    /// The rack of its node.
    pub rack: Option<&'a str>,
}

/// What is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By partition who is to own it; none: it has no owner, and nobody can be given it.
    pub owners: Vec<Option<Place>>,
    /// So many moves follow once those of this plan are done.
    pub later: usize,
    /// What could not be done.
    pub unmet: Vec<Unmet>,
}

impl Plan {
    /// What has to move, ascending by partition; what had no owner moves from nowhere, and is not here.
    #[must_use]
    pub fn moves(&self, current: &[Located]) -> Vec<Move> {
        let moved = |located: &Located| {
            let owner = self.owners.get(usize::from(located.partition.0))?;
            let to = owner.filter(|to| *to != located.place)?;
            let partition = located.partition;
            (!located.is_fixed).then_some(Move { partition, to })
        };
        let mut moves: Vec<Move> = current.iter().filter_map(moved).collect();
        moves.sort_unstable();
        moves.dedup_by_key(|one| one.partition);
        moves
    }
}

/// The plan of partitions none of which has an owner on places that are all alike; the answer holds, per partition, an
/// index into `places`.
///
/// # Errors
/// When there is no place at all.
pub fn plan(partitions: u16, places: &[Place], policy: Policy) -> Result<Vec<usize>, NoPlaces> {
    let weight = 1;
    let shares = places.iter().map(|place| Share {
        place: *place,
        weight,
    });
    plan_shares(partitions, &shares.collect::<Vec<_>>(), policy)
}

/// The same of places with weights.
fn plan_shares(partitions: u16, places: &[Share], policy: Policy) -> Result<Vec<usize>, NoPlaces> {
    let specs: Vec<Spec<'_>> = places.iter().map(|share| share.anywhere()).collect();
    if specs.iter().all(|spec| spec.weight == 0) {
        return Err(NoPlaces);
    }
    let mut order: Vec<(Place, usize)> = places.iter().map(|share| share.place).zip(0..).collect();
    order.sort_unstable();
    let index = |owner: Option<Place>| {
        let at = order.partition_point(|(place, _)| Some(*place) < owner);
        order.get(at).map(|(_, index)| *index).ok_or(NoPlaces)
    };
    let plan = policy.plan(&Request {
        partitions,
        places: &specs,
        current: &[],
        moves_max: usize::MAX,
    });
    plan.owners.into_iter().map(index).collect()
}

/// A shard that can own partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// The shard of that node.
    pub shard: ShardId,
}

/// There is nobody to own a partition: wait until a node has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no shard to place a partition on")]
pub struct NoPlaces;

#[cfg(test)]
mod tests;
