//! Clusters on paper, before and after a change.

use std::collections::BTreeMap;
use std::time::Instant;

use ephesus_coordinator::placement::murmur3::x64_128;
use ephesus_coordinator::placement::{Located, Place, Plan, Planner, Policy, Request, Spec};
use ephesus_wire::{NodeId, PartitionId, ShardId};

use super::Scenario;
use crate::heap;
use crate::stats;

/// What was found: name, unit, value.
pub(super) type Measures = Vec<(&'static str, &'static str, f64)>;

pub(super) struct Change {
    partitions: u16,
    before: Vec<Spec<'static>>,
    after: Vec<Spec<'static>>,
}

const RACKS: [&str; 3] = ["a", "b", "c"];
/// Of capacity.
const USUAL: u32 = 100;

fn node(
    id: NodeId,
    shards: u16,
    (weight, rack): (u32, Option<&'static str>),
) -> Vec<Spec<'static>> {
    let place = |shard| Place {
        node: id,
        shard: ShardId(shard),
    };
    let spec = |shard| Spec {
        place: place(shard),
        weight,
        rack,
    };
    (0..shards).map(spec).collect()
}

/// The UUID of a node.
pub(super) fn uuid(number: u16, round: u64) -> NodeId {
    let [high, low] = x64_128(&number.to_le_bytes(), round as u32);
    NodeId(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
}

impl Change {
    pub(super) fn new(
        scenario: Scenario,
        (nodes, round): (u16, u64),
        (shards, partitions): (u16, u16),
    ) -> Self {
        let joins = match scenario {
            Scenario::Double => nodes,
            Scenario::Leave => 0,
            _ => 1,
        };
        let kind = |number: u16| match scenario {
            Scenario::Weights if number >= nodes => (2 * USUAL, None),
            Scenario::Weights => (USUAL / 2 * (u32::from(number) % 4 + 1), None),
            Scenario::Racks if number >= nodes => (USUAL, Some(RACKS[0])),
            Scenario::Racks => (USUAL, Some(RACKS[usize::from(number) % 3])),
            _ => (USUAL, None),
        };
        let all = (0..nodes + joins).map(|number| node(uuid(number, round), shards, kind(number)));
        let mut after: Vec<Spec<'_>> = all.flatten().collect();
        let before = after[..usize::from(nodes) * usize::from(shards)].to_vec();
        if scenario == Scenario::Leave {
            let leaving = after.iter_mut().take(shards.into());
            leaving.for_each(|spec| spec.weight = 0);
        }
        Change {
            partitions,
            before,
            after,
        }
    }

    /// Small ones, by what happens.
    pub(super) fn golden() -> Vec<(&'static str, Self)> {
        let named = |names: &[&str]| -> Vec<Spec<'static>> {
            let id = |name: &&str| {
                let mut id = [0; 16];
                id[..name.len()].copy_from_slice(name.as_bytes());
                NodeId(id)
            };
            let nodes = names
                .iter()
                .flat_map(|name| node(id(name), 1, (USUAL, None)));
            nodes.collect()
        };
        let change = |partitions, before: &[&str], joins| Change {
            partitions,
            before: named(before),
            after: named(&[before, &[joins]].concat()),
        };
        let three = ["athens", "byzantium", "cyrene"];
        vec![
            (
                "9 on athens, byzantium, cyrene; ephesus joins",
                change(9, &three, "ephesus"),
            ),
            (
                "30 on athens, byzantium, cyrene; delphi joins",
                change(30, &three, "delphi"),
            ),
            (
                "12 on athens; byzantium joins",
                change(12, &three[..1], "byzantium"),
            ),
            (
                "12 on athens, byzantium; cyrene joins",
                change(12, &three[..2], "cyrene"),
            ),
        ]
    }

    fn plan(&self, policy: &Policy, places: &[Spec<'_>], current: &[Located]) -> Plan {
        policy.plan(&Request {
            partitions: self.partitions,
            places,
            current,
            moves_max: usize::MAX,
        })
    }

    fn first(&self, policy: &Policy) -> Vec<Located> {
        located(&self.plan(policy, &self.before, &[]))
    }

    pub(super) fn measure(&self, policy: &Policy) -> Measures {
        let before = self.first(policy);
        let ((plan, peak), ms) =
            timed(|| heap::peak_of(|| self.plan(policy, &self.after, &before)));
        let (mut sent, mut received) = (BTreeMap::<NodeId, u64>::new(), BTreeMap::new());
        let moves = plan.moves(&before);
        for one in &moves {
            let from = before[usize::from(one.partition.0)].place.node;
            *sent.entry(from).or_default() += 1;
            *received.entry(one.to.node).or_insert(0) += 1;
        }
        let partitions = f64::from(self.partitions);
        let percent = |count: u64| count as f64 * 100.0 / partitions;
        let most = |of: &BTreeMap<NodeId, u64>| percent(of.values().copied().max().unwrap_or(0));
        let (was, is) = (fair(&self.before), fair(&self.after));
        let grown = is
            .iter()
            .map(|(node, share)| share - was.get(node).unwrap_or(&0.0));
        let least: f64 = grown.filter(|more| *more > 0.0).sum();
        let moved = moves.len() as f64 / partitions;
        let mut loads = BTreeMap::<NodeId, f64>::new();
        for owner in plan.owners.iter().flatten() {
            *loads.entry(owner.node).or_default() += 1.0 / partitions;
        }
        let takes = is.iter().filter(|(_, share)| **share > 0.0);
        let ratio = |(node, share): (&NodeId, &f64)| loads.get(node).unwrap_or(&0.0) / share;
        let ratios: Vec<f64> = takes.map(ratio).collect();
        let quantile = |q| stats::quantile(&ratios, q).unwrap_or(f64::NAN);
        let mut found = vec![
            ("moved", "%", moved * 100.0),
            ("moved / least", "times", moved / least),
            ("max / mean", "times", quantile(1.0)),
            ("p99 / mean", "times", quantile(0.99)),
            ("most that a node sends", "%", most(&sent)),
            ("most that a node receives", "%", most(&received)),
            ("time of a plan", "ms", ms),
            ("memory of a plan", "MB", peak as f64 / 1e6),
        ];
        let racks: BTreeMap<Place, &str> = (self.after.iter())
            .filter_map(|spec| Some((spec.place, spec.rack?)))
            .collect();
        if !racks.is_empty() {
            let rack = |owner: &Option<Place>| racks.get(&owner.as_ref().copied()?).copied();
            let pairs = plan
                .owners
                .windows(2)
                .filter(|two| rack(&two[0]) == rack(&two[1]));
            found.push(("neighbours in one rack", "%", percent(pairs.count() as u64)));
        }
        found
    }

    /// Who has each partition before and after.
    pub(super) fn owners(&self, policy: &Policy) -> [Vec<NodeId>; 2] {
        let before = self.first(policy);
        let after = located(&self.plan(policy, &self.after, &before));
        [before, after].map(|owners| owners.iter().map(|one| one.place.node).collect())
    }

    /// What moves, and what nodes have in the end.
    pub(super) fn loads(&self, policy: &Policy) -> Measures {
        let before = self.first(policy);
        let plan = self.plan(policy, &self.after, &before);
        let loads = self.after.iter().map(|spec| {
            let owners = plan.owners.iter().flatten();
            owners.filter(|owner| **owner == spec.place).count()
        });
        let loads: Vec<usize> = loads.collect();
        let moved = plan.moves(&before).len();
        let ends = [loads.iter().min(), loads.iter().max()];
        let [least, most] = ends.map(|end| end.copied().unwrap_or(0) as f64);
        let unit = "partitions";
        vec![
            ("moved", unit, moved as f64),
            ("fewest", unit, least),
            ("most", unit, most),
        ]
    }

    /// Milliseconds and MB of the first plan and of the next.
    pub(super) fn costs(&self, policy: &Policy) -> [(f64, f64); 2] {
        let cost = |places: &[Spec<'_>], current: &[Located]| {
            let ((plan, peak), ms) = timed(|| heap::peak_of(|| self.plan(policy, places, current)));
            (plan, (ms, peak as f64 / 1e6))
        };
        let (first, its) = cost(&self.before, &[]);
        let (_, next) = cost(&self.after, &located(&first));
        [its, next]
    }
}

fn located(plan: &Plan) -> Vec<Located> {
    let owners = plan.owners.iter().zip(0..);
    let of = |(owner, partition): (&Option<Place>, u16)| {
        Some(Located {
            partition: PartitionId(partition),
            place: (*owner)?,
            is_fixed: false,
        })
    };
    owners.filter_map(of).collect()
}

/// The share of each node.
fn fair(places: &[Spec<'_>]) -> BTreeMap<NodeId, f64> {
    let all: f64 = places.iter().map(|spec| f64::from(spec.weight)).sum();
    let mut shares = BTreeMap::new();
    for spec in places {
        *shares.entry(spec.place.node).or_insert(0.0) += f64::from(spec.weight) / all;
    }
    shares
}

pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed().as_secs_f64() * 1e3)
}
