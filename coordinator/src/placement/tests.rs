use proptest::prelude::*;

use super::*;

fn places(shards_of_nodes: &[u16]) -> Vec<Place> {
    let nodes = shards_of_nodes.iter().enumerate();
    nodes
        .flat_map(|(node, &shards)| {
            let node = NodeId([node as u8 + 1; 16]);
            (0..shards).map(move |shard| Place {
                node,
                shard: ShardId(shard),
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
    let plan = plan(9, &places(&[1, 1, 1]), Policy::RoundRobin).unwrap();
    assert_eq!(plan, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn nine_partitions_over_three_nodes_contiguous() {
    let plan = plan(9, &places(&[1, 1, 1]), Policy::Contiguous).unwrap();
    assert_eq!(plan, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn round_robin_visits_every_node_before_a_second_shard() {
    let plan = plan(8, &places(&[3, 1, 2]), Policy::RoundRobin).unwrap();
    assert_eq!(plan, [0, 3, 4, 1, 5, 2, 0, 3]);
}

#[test]
fn a_thousand_partitions_over_three_are_three_ranges() {
    let plan = plan(1024, &places(&[1, 1, 1]), Policy::Contiguous).unwrap();
    assert_eq!(counts(&plan, 3), [342, 341, 341]);
    assert!(plan.is_sorted());
}

#[test]
fn fewer_partitions_than_shards_reach_every_node() {
    let contiguous = plan(2, &places(&[2, 2]), Policy::Contiguous).unwrap();
    assert_eq!(contiguous, [0, 2]);
    let round_robin = plan(2, &places(&[2, 2]), Policy::RoundRobin).unwrap();
    assert_eq!(round_robin, [0, 2]);
}

#[test]
fn one_shard_gets_everything() {
    for policy in [Policy::Contiguous, Policy::RoundRobin] {
        assert_eq!(plan(5, &places(&[1]), policy), Ok(vec![0; 5]));
    }
}

#[test]
fn no_place_is_an_error_and_no_partition_is_an_empty_plan() {
    assert_eq!(plan(9, &[], Policy::Contiguous), Err(NoPlaces));
    assert_eq!(plan(0, &places(&[2]), Policy::Contiguous), Ok(vec![]));
}

proptest! {
    #[test]
    fn every_plan_is_balanced_within_one(
        partitions in 1u16..=16384,
        shards in prop::collection::vec(1u16..9, 1..9),
        round_robin: bool,
    ) {
        let policy = if round_robin { Policy::RoundRobin } else { Policy::Contiguous };
        let places = places(&shards);
        let plan = plan(partitions, &places, policy).unwrap();
        prop_assert_eq!(plan.len(), usize::from(partitions));
        let counts = counts(&plan, places.len());
        let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
        prop_assert!(spread <= 1, "{counts:?}");
        prop_assert!(round_robin || plan.is_sorted());
    }
}
