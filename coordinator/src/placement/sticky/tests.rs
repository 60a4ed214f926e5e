use ephesus_wire::{NodeId, ShardId};
use proptest::prelude::*;

use super::*;

fn place(node: u8, shard: u16) -> Place {
    Place {
        node: NodeId([node; 16]),
        shard: ShardId(shard),
    }
}

/// Partitions in order, so many per place.
fn located(counts: &[(Place, usize)]) -> Vec<Located> {
    let places = counts.iter().flat_map(|(place, n)| vec![*place; *n]);
    let locate = |(index, place)| Located {
        partition: PartitionId(index as u16),
        place,
        is_fixed: false,
    };
    places.enumerate().map(locate).collect()
}

fn equal(places: &[Place]) -> Vec<Share> {
    let share = |place: &Place| Share {
        place: *place,
        weight: 1,
    };
    places.iter().map(share).collect()
}

fn carry_out(partitions: &mut [Located], moves: &[Move]) {
    for Move { partition, to } in moves {
        let located = partitions.iter_mut().find(|l| l.partition == *partition);
        located.expect("one of them").place = *to;
    }
}

fn count(partitions: &[Located], at: Place) -> u64 {
    partitions.iter().filter(|l| l.place == at).count() as u64
}

/// How many moves leave each place, by `places`.
fn leaving(partitions: &[Located], moves: &[Move], places: &[Place]) -> Vec<usize> {
    let from = |m: &Move| {
        let located = partitions.iter().find(|l| l.partition == m.partition);
        located.expect("one of them").place
    };
    let leaves = |place: &Place| moves.iter().filter(|m| from(m) == *place).count();
    places.iter().map(leaves).collect()
}

#[test]
fn thirty_partitions_over_three_nodes_and_a_fourth() {
    let nodes: Vec<Place> = (1..=4).map(|n| place(n, 0)).collect();
    let mut partitions = located(&[(nodes[0], 10), (nodes[1], 10), (nodes[2], 10)]);
    let moves = rebalance(&partitions, &[], &equal(&nodes));
    assert_eq!(moves.len(), 7);
    assert!(moves.iter().all(|m| m.to == nodes[3]));
    assert_eq!(leaving(&partitions, &moves, &nodes), [2, 2, 3, 0]);
    carry_out(&mut partitions, &moves);
    assert!(nodes.iter().all(|at| count(&partitions, *at) <= 8));
}

#[test]
fn twelve_partitions_for_one_then_two_then_three() {
    let nodes: Vec<Place> = (1..=3).map(|n| place(n, 0)).collect();
    let mut partitions = located(&[(nodes[0], 12)]);
    let moves = rebalance(&partitions, &[], &equal(&nodes[..2]));
    assert_eq!(moves.len(), 6);
    carry_out(&mut partitions, &moves);
    let moves = rebalance(&partitions, &[], &equal(&nodes));
    assert_eq!(leaving(&partitions, &moves, &nodes), [2, 2, 0]);
    assert!(moves.iter().all(|m| m.to == nodes[2]));
    carry_out(&mut partitions, &moves);
    assert!(nodes.iter().all(|at| count(&partitions, *at) == 4));
}

#[test]
fn nine_partitions_of_athens_byzantium_and_cyrene_and_then_ephesus() {
    let nodes: Vec<Place> = (1..=4).map(|n| place(n, 0)).collect();
    let mut partitions = located(&[(nodes[0], 3), (nodes[1], 3), (nodes[2], 3)]);
    let moves = rebalance(&partitions, &[], &equal(&nodes));
    assert_eq!(leaving(&partitions, &moves, &nodes), [0, 1, 1, 0]);
    assert!(moves.iter().all(|m| m.to == nodes[3]));
    carry_out(&mut partitions, &moves);
    assert_eq!(rebalance(&partitions, &[], &equal(&nodes)), []);
}

#[test]
fn a_node_without_weight_is_emptied() {
    let nodes: Vec<Place> = (1..=3).map(|n| place(n, 0)).collect();
    let mut partitions = located(&[(nodes[0], 5), (nodes[1], 5), (nodes[2], 5)]);
    let mut shares = equal(&nodes);
    shares[1].weight = 0;
    let moves = rebalance(&partitions, &[], &shares);
    assert_eq!(leaving(&partitions, &moves, &nodes), [0, 5, 0]);
    carry_out(&mut partitions, &moves);
    assert_eq!(count(&partitions, nodes[1]), 0);
    for share in &mut shares {
        share.weight = 0;
    }
    assert_eq!(
        rebalance(&partitions, &[], &shares),
        [],
        "nobody to take them"
    );
}

#[test]
fn weights_count_and_what_can_stay_on_its_node_does() {
    let places = [place(1, 0), place(1, 1), place(2, 0)];
    let partitions = located(&[(places[0], 12)]);
    let mut shares = equal(&places);
    shares[2].weight = 2;
    let moves = rebalance(&partitions, &[], &shares);
    let to = |at| moves.iter().filter(|m| m.to == at).count();
    assert_eq!((to(places[1]), to(places[2])), (3, 6));
    // One shard of node 1 has too much, the other and node 2 too little.
    let partitions = located(&[(places[0], 6), (places[1], 2), (places[2], 2)]);
    let moves = rebalance(&partitions, &[], &equal(&places));
    let within = moves.iter().filter(|m| m.to == places[1]).count();
    assert_eq!((moves.len(), within), (2, 1));
}

#[test]
fn what_is_under_way_counts_where_it_goes_and_stays() {
    let nodes = [place(1, 0), place(2, 0)];
    let mut partitions = located(&[(nodes[0], 8)]);
    for located in &mut partitions[..4] {
        (located.place, located.is_fixed) = (nodes[1], true);
    }
    assert_eq!(rebalance(&partitions, &[], &equal(&nodes)), []);
    for located in &mut partitions[4..7] {
        (located.place, located.is_fixed) = (nodes[1], true);
    }
    assert_eq!(rebalance(&partitions, &[], &equal(&nodes)), []);
}

/// The least number of moves to any distribution in which each count is its fair share rounded down
/// or up: the best choice for the first places and so many rounded up, place after place.
fn fewest(counts: &[u64], weights: &[u64]) -> u64 {
    let (all, sum) = (counts.iter().sum::<u64>(), weights.iter().sum::<u64>());
    let floors: Vec<u64> = weights.iter().map(|w| all * w / sum).collect();
    let rest = (all - floors.iter().sum::<u64>()) as usize;
    let mut best = vec![None; rest + 1];
    best[0] = Some(0u64);
    for ((have, weight), floor) in counts.iter().zip(weights).zip(&floors) {
        let mut next = vec![None; rest + 1];
        for (ups, moves) in best.iter().enumerate() {
            let Some(moves) = moves else { continue };
            for up in 0..=usize::from(all * weight % sum != 0) {
                if ups + up > rest {
                    continue;
                }
                let total = moves + have.saturating_sub(floor + up as u64);
                let known = &mut next[ups + up];
                *known = Some(known.map_or(total, |known: u64| known.min(total)));
            }
        }
        best = next;
    }
    best[rest].expect("the rest is less than the places that can round up")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_plan_is_fair_and_the_shortest(
        nodes in prop::collection::vec((0u32..5, prop::collection::vec(0usize..40, 1..4)), 1..7),
    ) {
        let mut counts = Vec::new();
        let mut shares = Vec::new();
        for (node, (weight, shards)) in nodes.iter().enumerate() {
            for (shard, owned) in shards.iter().enumerate() {
                let place = place(node as u8 + 1, shard as u16);
                counts.push((place, *owned));
                shares.push(Share { place, weight: *weight });
            }
        }
        let sum: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
        prop_assume!(sum > 0);
        let mut partitions = located(&counts);
        let moves = rebalance(&partitions, &[], &shares);
        let (mut backwards, mut reversed) = (partitions.clone(), shares.clone());
        backwards.reverse();
        reversed.reverse();
        prop_assert_eq!(&rebalance(&backwards, &[], &reversed), &moves);

        let all = partitions.len() as u64;
        for Move { partition, to } in &moves {
            let from = partitions[usize::from(partition.0)].place;
            let weight_of = |at| shares.iter().find(|s| s.place == at).map(|s| u64::from(s.weight));
            let owned = |at| count(&partitions, at) * sum;
            prop_assert!(Some(owned(from)) > weight_of(from).map(|w| w * all), "{from:?} has no more than its share");
            prop_assert!(Some(owned(*to)) < weight_of(*to).map(|w| w * all), "{to:?} has its share");
        }
        let had: Vec<u64> = counts.iter().map(|(_, owned)| *owned as u64).collect();
        let weights: Vec<u64> = shares.iter().map(|share| u64::from(share.weight)).collect();
        prop_assert_eq!(moves.len() as u64, fewest(&had, &weights));

        carry_out(&mut partitions, &moves);
        for share in &shares {
            let owned = count(&partitions, share.place);
            let fair = all * u64::from(share.weight);
            prop_assert!((owned * sum).abs_diff(fair) < sum, "{owned} at {share:?} of {all}");
        }
        prop_assert_eq!(rebalance(&partitions, &[], &shares), []);
    }

    #[test]
    fn what_is_fixed_never_moves_and_nothing_gets_worse(
        counts in prop::collection::vec((0usize..12, 0usize..12), 2..6),
    ) {
        let places: Vec<Place> = (0..counts.len()).map(|n| place(n as u8 + 1, 0)).collect();
        let of: Vec<_> = places.iter().zip(&counts).map(|(at, (a, b))| (*at, a + b)).collect();
        let mut partitions = located(&of);
        for (at, (fixed, _)) in places.iter().zip(&counts) {
            let owned = partitions.iter_mut().filter(|l| l.place == *at);
            owned.take(*fixed).for_each(|l| l.is_fixed = true);
        }
        let most = |partitions: &[Located]| places.iter().map(|at| count(partitions, *at)).max();
        let before = most(&partitions);
        let moves = rebalance(&partitions, &[], &equal(&places));
        prop_assert!(moves.iter().all(|m| !partitions[usize::from(m.partition.0)].is_fixed));
        carry_out(&mut partitions, &moves);
        prop_assert!(most(&partitions) <= before);
    }
}
