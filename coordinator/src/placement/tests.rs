use std::collections::BTreeMap;

use ephesus_wire::PartitionId;
use proptest::prelude::*;

use super::*;

mod bed;
mod golden;
mod properties;
mod published;
mod unmet;

fn places(shards_of_nodes: &[u16]) -> Vec<Share> {
    weighted(
        &shards_of_nodes
            .iter()
            .map(|n| (*n, 100))
            .collect::<Vec<_>>(),
    )
}

/// By node, its shards and the weight of each.
fn weighted(nodes: &[(u16, u32)]) -> Vec<Share> {
    let nodes = nodes.iter().enumerate();
    nodes
        .flat_map(|(node, &(shards, weight))| {
            let node = NodeId([node as u8 + 1; 16]);
            (0..shards).map(move |shard| Share {
                place: Place {
                    node,
                    shard: ShardId(shard),
                },
                weight,
            })
        })
        .collect()
}

fn counts(plan: &[usize], places: usize) -> Vec<usize> {
    let mut counts = vec![0; places];
    for &place in plan {
        counts[place] += 1;
    }
    counts
}

#[test]
fn nine_partitions_over_three_nodes_round_robin() {
    let plan = plan_shares(9, &places(&[1, 1, 1]), Policy::RoundRobin).unwrap();
    assert_eq!(plan, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn nine_partitions_over_three_nodes_contiguous() {
    let plan = plan_shares(9, &places(&[1, 1, 1]), Policy::Contiguous).unwrap();
    assert_eq!(plan, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn round_robin_visits_every_node_before_a_second_shard() {
    let plan = plan_shares(8, &places(&[3, 1, 2]), Policy::RoundRobin).unwrap();
    assert_eq!(plan, [0, 3, 4, 1, 5, 2, 0, 3]);
}

#[test]
fn a_thousand_partitions_over_three_are_three_ranges() {
    let plan = plan_shares(1024, &places(&[1, 1, 1]), Policy::Contiguous).unwrap();
    assert_eq!(counts(&plan, 3), [342, 341, 341]);
    assert!(plan.is_sorted());
}

#[test]
fn fewer_partitions_than_shards_reach_every_node() {
    let contiguous = plan_shares(2, &places(&[2, 2]), Policy::Contiguous).unwrap();
    assert_eq!(contiguous, [0, 2]);
    let round_robin = plan_shares(2, &places(&[2, 2]), Policy::RoundRobin).unwrap();
    assert_eq!(round_robin, [0, 2]);
}

#[test]
fn one_shard_gets_everything() {
    for policy in [Policy::Contiguous, Policy::RoundRobin] {
        assert_eq!(plan_shares(5, &places(&[1]), policy), Ok(vec![0; 5]));
        let node = NodeId([1; 16]);
        let shard = ShardId(0);
        assert_eq!(plan(5, &[Place { node, shard }], policy), Ok(vec![0; 5]));
    }
}

#[test]
fn no_place_is_an_error_and_no_partition_is_an_empty_plan() {
    assert_eq!(plan_shares(9, &[], Policy::Contiguous), Err(NoPlaces));
    assert_eq!(
        plan_shares(0, &places(&[2]), Policy::Contiguous),
        Ok(vec![])
    );
}

#[test]
fn more_weight_gets_more() {
    let nodes = weighted(&[(1, 100), (1, 200), (1, 300)]);
    let plan_of = |policy| plan_shares(12, &nodes, policy).unwrap();
    let contiguous = plan_of(Policy::Contiguous);
    assert_eq!(contiguous, [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    let round_robin = plan_of(Policy::RoundRobin);
    assert_eq!(counts(&round_robin, 3), [2, 4, 6]);
    assert_eq!(round_robin, [2, 1, 0, 2, 1, 2, 2, 1, 0, 2, 1, 2]);
    let none = plan_shares(9, &weighted(&[(3, 0)]), Policy::Contiguous);
    assert_eq!(none, Err(NoPlaces));
}

proptest! {
    #[test]
    fn every_place_gets_its_share_rounded(
        partitions in 1u16..=16384,
        nodes in prop::collection::vec((1u16..5, 0u32..1000), 1..9),
        round_robin: bool,
    ) {
        let policy = if round_robin { Policy::RoundRobin } else { Policy::Contiguous };
        let places = weighted(&nodes);
        let weights: u64 = places.iter().map(|share| u64::from(share.weight)).sum();
        prop_assume!(weights > 0);
        let plan = plan_shares(partitions, &places, policy).unwrap();
        prop_assert_eq!(plan.len(), usize::from(partitions));
        for (place, count) in counts(&plan, places.len()).into_iter().enumerate() {
            let fair = u64::from(partitions) * u64::from(places[place].weight);
            let (least, most) = (fair / weights, fair.div_ceil(weights));
            prop_assert!((least..=most).contains(&(count as u64)), "{count}, {least} to {most}");
        }
        // A rebalance finds nothing to do.
        let located: Vec<Located> = plan
            .iter()
            .enumerate()
            .map(|(index, place)| Located {
                partition: PartitionId(index as u16),
                place: places[*place].place,
                is_fixed: false,
            })
            .collect();
        prop_assert_eq!(rebalance(&located, &[], &places), []);
    }

    #[test]
    fn every_plan_is_balanced_within_one(
        partitions in 1u16..=16384,
        shards in prop::collection::vec(1u16..9, 1..9),
        round_robin: bool,
    ) {
        let policy = if round_robin { Policy::RoundRobin } else { Policy::Contiguous };
        let places = places(&shards);
        let plan = plan_shares(partitions, &places, policy).unwrap();
        prop_assert_eq!(plan.len(), usize::from(partitions));
        let counts = counts(&plan, places.len());
        let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
        prop_assert!(spread <= 1, "{counts:?}");
        prop_assert!(round_robin || plan.is_sorted());
    }
}
