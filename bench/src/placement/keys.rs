//! Keys that find their node without partitions, beside those that are in partitions which are placed.

use std::collections::BTreeMap;

use ephesus_coordinator::placement::murmur3::{mix, x64_128};
use ephesus_coordinator::placement::{Policy, ring};
use ephesus_wire::NodeId;

use super::Scenario;
use super::paper::{Change, Measures, timed, uuid};
use crate::stats;

pub(super) const HOW: &str = "Hashes of keys lead to nodes: by their remainder, by a ring of 16 or of 256 tokens per node, by \
    a jump; or to one of 16384 partitions, which has a node by what is sticky. A node joins, with the last number, or the \
    middle one leaves. Where there are no partitions every key has to be looked at to find those that move.";

const KEYS: u64 = 1 << 17;
const KEYS_QUICK: u64 = 1 << 12;
const PARTITIONS: u16 = 16384;

/// Answers which node has a key.
type Lookup = Box<dyn Fn(u64) -> NodeId>;

fn rest(nodes: &[NodeId]) -> Lookup {
    let nodes = nodes.to_vec();
    Box::new(move |key| nodes[(key % nodes.len() as u64) as usize])
}

fn jump(nodes: &[NodeId]) -> Lookup {
    let nodes = nodes.to_vec();
    let hash = ephesus_coordinator::placement::jump::hash;
    Box::new(move |key| nodes[hash(key, nodes.len() as u64) as usize])
}

fn tokens(nodes: &[NodeId], count: u16) -> Lookup {
    let nodes = nodes.to_vec();
    let of = |(index, node): (usize, &NodeId)| {
        let token =
            move |n: u16, id: NodeId| x64_128(&[&id.0[..], &n.to_le_bytes()].concat(), 0)[0];
        let id = *node;
        (0..count).map(move |n| (token(n, id), index))
    };
    let ring = ring::Sorted::new(nodes.iter().enumerate().flat_map(of));
    Box::new(move |key| nodes[ring.owner(key).unwrap_or(0)])
}

pub(super) fn measure(
    (count, round): (u16, u64),
    is_quick: bool,
    found: &mut BTreeMap<String, Measures>,
) {
    let keys: Vec<u64> = (0..if is_quick { KEYS_QUICK } else { KEYS })
        .map(|key| mix(!key))
        .collect();
    let nodes: Vec<NodeId> = (0..count).map(|number| uuid(number, round)).collect();
    let joined = [&nodes[..], &[uuid(count, round)]].concat();
    let mut left = nodes.clone();
    left.remove(nodes.len() / 2);
    type Make = fn(&[NodeId]) -> Lookup;
    let makes: [(&str, Make); 4] = [
        ("hash mod N", rest),
        ("ring of 16", |nodes| tokens(nodes, 16)),
        ("ring of 256", |nodes| tokens(nodes, 256)),
        ("jump", jump),
    ];
    for (name, make) in makes {
        let of = |lookup: Lookup| keys.iter().map(|key| lookup(*key)).collect::<Vec<_>>();
        let lookup = make(&nodes);
        let (before, ms) = timed(|| of(lookup));
        let moved = |after: Vec<NodeId>| {
            let pairs = before.iter().zip(&after).filter(|(was, is)| was != is);
            pairs.count() as f64 / keys.len() as f64
        };
        let most = most(&before, nodes.len());
        let moved = [&joined, &left].map(|nodes| moved(of(make(nodes))));
        found.insert(
            name.to_owned(),
            measures(count, moved, most, ms * 1e6 / keys.len() as f64),
        );
    }
    let plan =
        |scenario| Change::new(scenario, (count, round), (1, PARTITIONS)).owners(&Policy::Sticky);
    let ([before, joined], [_, left]) = (plan(Scenario::Join), plan(Scenario::Leave));
    let of = |owners: &[NodeId]| {
        let partition = |key: &u64| owners[(key % u64::from(PARTITIONS)) as usize];
        keys.iter().map(partition).collect::<Vec<_>>()
    };
    let (was, ms) = timed(|| of(&before));
    let moved = [&joined, &left].map(|after| {
        let pairs = before.iter().zip(after).filter(|(was, is)| was != is);
        pairs.count() as f64 / f64::from(PARTITIONS)
    });
    let most = most(&was, nodes.len());
    found.insert(
        "partitions".to_owned(),
        measures(count, moved, most, ms * 1e6 / keys.len() as f64),
    );
}

fn measures(nodes: u16, [joins, leaves]: [f64; 2], most: f64, ns: f64) -> Measures {
    let nodes = f64::from(nodes);
    vec![
        ("moved by a join", "%", joins * 100.0),
        ("moved by a join / least", "times", joins * (nodes + 1.0)),
        ("moved by a leave", "%", leaves * 100.0),
        ("moved by a leave / least", "times", leaves * nodes),
        ("max / mean", "times", most),
        ("lookup", "ns", ns),
    ]
}

fn most(owners: &[NodeId], nodes: usize) -> f64 {
    let mut loads = BTreeMap::<NodeId, f64>::new();
    for owner in owners {
        *loads.entry(*owner).or_default() += nodes as f64 / owners.len() as f64;
    }
    let loads: Vec<f64> = loads.into_values().collect();
    stats::quantile(&loads, 1.0).unwrap_or(f64::NAN)
}
