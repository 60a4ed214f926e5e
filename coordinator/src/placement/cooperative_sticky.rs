//! Kafka's `CooperativeStickyAssignor` (KIP-429): what is sticky, in steps none of which leaves a partition unserved.

use std::collections::BTreeMap;

use super::{Located, Place, Plan, Planner, Request, Sticky};

/// The plan of [`Sticky`], of which as many moves are made as may be under way at a time; what has no owner gets one at
/// once. Planned again after each step it comes to as even a plan with as many moves.
#[derive(Clone, Copy, Debug)]
pub struct CooperativeSticky;

impl Planner for CooperativeSticky {
    fn plan(&self, request: &Request<'_>) -> Plan {
        let mut plan = Sticky.plan(request);
        let under_way = request.current.iter().filter(|one| one.is_fixed).count();
        let now = request.moves_max.saturating_sub(under_way);
        // Those who get take turns: each step leaves them as equal as the whole does.
        let mut turns = BTreeMap::<Place, usize>::new();
        let moves = plan.moves(request.current).into_iter();
        let mut moves: Vec<_> = moves
            .map(|one| {
                let turn = turns.entry(one.to).or_default();
                *turn += 1;
                (*turn, one.to, one.partition)
            })
            .collect();
        moves.sort_unstable();
        let later: Vec<_> = moves.into_iter().skip(now).collect();
        if later.is_empty() {
            return plan;
        }
        plan.later = later.len();
        let mut owners = BTreeMap::new();
        for Located {
            partition, place, ..
        } in request.current
        {
            owners.insert(*partition, *place);
        }
        for (_, _, partition) in later {
            if let Some(owner) = plan.owners.get_mut(usize::from(partition.0)) {
                *owner = owners.get(&partition).copied();
            }
        }
        plan
    }
}
