//! Kafka's `RoundRobinAssignor`, with turns by weight (as nginx's smooth weighted round-robin) and by rack.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::NodeId;

use super::field::{Field, planned};
use super::{Plan, Planner, Request, Unmet};

/// The places take turns, those with more weight more often: within one of the fair share. Neighbours go to different
/// racks, then to different nodes, then to different shards: hot ranges are spread. A place that joins moves most of them.
#[derive(Clone, Copy, Debug)]
pub struct RoundRobin;

impl Planner for RoundRobin {
    fn plan(&self, request: &Request<'_>) -> Plan {
        planned(request, |field, unmet| {
            let (owners, heaviest) = turns(field);
            unmet.extend(heaviest);
            owners
        })
    }
}

/// Whose turn it is, for each partition, and the rack that has so many that it follows itself.
#[expect(
    clippy::indexing_slicing,
    reason = "ranks are of the order, which has each of the places; racks have numbers below their count"
)]
pub(super) fn turns(field: &Field<'_>) -> (Vec<usize>, Option<Unmet>) {
    let (order, racks) = order(field);
    let rack_of = |rank: usize| racks[rank];
    let quotas = quotas(field, &order);
    // The n-th of a place that gets q is due at (2n + 1) / q.
    let due = |n: u64, quota: u64| ((2 * n + 1) << 32) / quota;
    let ranks = (0..order.len()).filter(|rank| quotas[*rank] > 0);
    // Who is due, in each rack; nodes without one are in 0, whose places may follow one another.
    let mut dues = vec![BTreeSet::new(); racks.iter().max().map_or(0, |last| last + 1)];
    let mut left = vec![0_u64; dues.len()];
    for rank in ranks {
        dues[rack_of(rank)].insert((due(0, quotas[rank]), rank, 0_u64));
        left[rack_of(rank)] += quotas[rank];
    }
    let mut all = u64::from(field.partitions);
    let named = left.iter().enumerate().skip(1);
    let heaviest = named.max_by_key(|(_, left)| **left).map(|(rack, _)| rack);
    let unmet = heaviest.filter(|rack| 2 * left[*rack] > all + 1);
    let unmet = unmet.and_then(|rack| {
        let rank = racks.iter().position(|of| *of == rack)?;
        Some(Unmet::Rack {
            rack: field.places[order[rank]].rack?.to_owned(),
            partitions: left[rack],
            of: all,
        })
    });
    let heads = dues.iter().enumerate();
    let mut heads: BTreeSet<_> = heads
        .filter_map(|(rack, dues)| dues.first().map(|head| (*head, rack)))
        .collect();
    let mut most: BTreeSet<_> = left.iter().copied().zip(0..).skip(1).collect();
    let (mut plan, mut last) = (Vec::new(), 0);
    loop {
        // What has half of all that is left comes now, or it has to follow itself later.
        let pressing = most.last().filter(|(left, _)| 2 * left > all);
        let pressing = pressing.map(|(_, rack)| *rack);
        let is_next = |rack: &usize| *rack != last || last == 0;
        let earliest = || {
            heads
                .iter()
                .find(|(_, rack)| is_next(rack))
                .or(heads.first())
        };
        let next = pressing.filter(is_next);
        let Some(rack) = next.or_else(|| earliest().map(|(_, rack)| *rack)) else {
            break;
        };
        let Some(head) = dues[rack].pop_first() else {
            break;
        };
        heads.remove(&(head, rack));
        let (_, rank, n) = head;
        plan.push(order[rank]);
        if n + 1 < quotas[rank] {
            dues[rack].insert((due(n + 1, quotas[rank]), rank, n + 1));
        }
        heads.extend(dues[rack].first().map(|head| (*head, rack)));
        if most.remove(&(left[rack], rack)) {
            most.insert((left[rack] - 1, rack));
        }
        left[rack] -= 1;
        all -= 1;
        last = rack;
    }
    (plan, unmet)
}

/// The first place of every node, then the second of every node that has one, and so on; with racks, among these first one
/// node of every rack. And for each of them the number of its rack, 0 without one.
pub(super) fn order(field: &Field<'_>) -> (Vec<usize>, Vec<usize>) {
    let mut places_of_node = BTreeMap::<NodeId, usize>::new();
    let mut numbers = BTreeMap::<&str, usize>::new();
    let mut nodes_of_rack = BTreeMap::<usize, usize>::new();
    let mut node_in_rack = BTreeMap::<NodeId, usize>::new();
    let mut order = Vec::new();
    for (index, spec) in field.places.iter().enumerate() {
        let next = numbers.len() + 1;
        let rack = spec
            .rack
            .map_or(0, |rack| *numbers.entry(rack).or_insert(next));
        let node = node_in_rack.entry(spec.place.node).or_insert_with(|| {
            let nodes = nodes_of_rack.entry(rack).or_default();
            *nodes += 1;
            if rack == 0 { 0 } else { *nodes }
        });
        let rank = places_of_node.entry(spec.place.node).or_default();
        *rank += 1;
        order.push((*rank, *node, index, rack));
    }
    order.sort_unstable();
    let of_rank = order.into_iter();
    of_rank.map(|(_, _, index, rack)| (index, rack)).unzip()
}

/// By rank the fair shares, rounded so that they add up: up where most is missing, among equals the first ones.
#[expect(clippy::indexing_slicing, reason = "ranks are of the order")]
fn quotas(field: &Field<'_>, order: &[usize]) -> Vec<u64> {
    let partitions = u64::from(field.partitions);
    let fair = |rank: usize| partitions * u64::from(field.places[order[rank]].weight);
    let ranks = 0..order.len();
    let mut quotas: Vec<u64> = ranks
        .clone()
        .map(|rank| fair(rank) / field.weights)
        .collect();
    let rest = partitions - quotas.iter().sum::<u64>();
    let mut candidates: Vec<usize> = ranks.collect();
    candidates.sort_by_key(|rank| (u64::MAX - fair(*rank) % field.weights, *rank));
    for rank in candidates.into_iter().take(rest as usize) {
        quotas[rank] += 1;
    }
    quotas
}
