//! Properties that papers state, measured.

use super::bed::Bed;
use super::*;

const PARTITIONS: u16 = 4096;

/// Nodes of one shard with the UUIDs of a seed.
fn equal(nodes: u64, seed: u64) -> Bed {
    let id = |number: u64| {
        let [high, low] = murmur3::x64_128(&number.to_le_bytes(), seed as u32);
        NodeId(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
    };
    let all = Bed::new(PARTITIONS);
    (0..nodes).fold(all, |bed, number| bed.with(id(number), (1, 100)))
}

/// What each has of its fair share.
fn shares(bed: &Bed) -> Vec<f64> {
    let fair = f64::from(bed.partitions) / bed.places.len() as f64;
    bed.loads().iter().map(|load| *load as f64 / fair).collect()
}

fn most(bed: &Bed) -> f64 {
    shares(bed).into_iter().fold(0.0, f64::max)
}

fn mean(of: impl Fn(u64) -> f64, seeds: u64) -> f64 {
    (0..seeds).map(of).sum::<f64>() / seeds as f64
}

fn moved(moves: &[Move]) -> f64 {
    moves.len() as f64 / f64::from(PARTITIONS)
}

fn node_between(bed: &Bed, at: usize) -> NodeId {
    let mut nodes: Vec<NodeId> = bed.places.iter().map(|spec| spec.place.node).collect();
    nodes.sort_unstable();
    nodes[at]
}

/// What moves when the node that is the n-th by UUID is drained.
fn leaves(bed: &Bed, policy: &impl Planner, at: usize) -> f64 {
    let (mut bed, id) = (bed.clone(), node_between(bed, at));
    let drained = bed.places.iter_mut().filter(|spec| spec.place.node == id);
    drained.for_each(|spec| spec.weight = 0);
    moved(&bed.carry_out(policy))
}

#[test]
fn a_ring_is_off_by_one_over_the_root_of_its_virtual_nodes() {
    for vnodes in [1_u16, 4, 16, 64] {
        let variance = |seed| {
            let ring = Ring {
                vnodes,
                seed: seed as u32,
                ..Ring::default()
            };
            let shares = shares(&equal(10, seed).placed(&ring));
            shares
                .iter()
                .map(|share| (share - 1.0).powi(2))
                .sum::<f64>()
                / 10.0
        };
        let found = mean(variance, 30).sqrt();
        let stated = (0.9 / f64::from(vnodes)).sqrt();
        assert!(
            (0.75..1.25).contains(&(found / stated)),
            "{vnodes}: {found}, {stated}"
        );
    }
}

#[test]
fn a_ring_without_virtual_nodes_has_one_with_a_harmonic_number_of_shares() {
    let ring = Ring {
        vnodes: 1,
        ..Ring::default()
    };
    let found = mean(|seed| most(&equal(64, seed).placed(&ring)), 40);
    let stated: f64 = (1..=64).map(|n| 1.0 / f64::from(n)).sum();
    assert!(
        (0.85..1.15).contains(&(found / stated)),
        "{found}, {stated}"
    );
}

#[test]
fn jump_moves_a_share_to_who_is_appended_and_much_when_one_in_the_middle_leaves() {
    let jump = Jump::default();
    for nodes in [3, 9, 49] {
        let mut bed = equal(nodes, 1).placed(&jump);
        bed = bed.with(NodeId([0xff; 16]), (1, 100));
        let found = moved(&bed.carry_out(&jump));
        assert!((found - 1.0 / (nodes + 1) as f64).abs() < 0.02, "{found}");
    }
    let bed = equal(10, 1).placed(&jump);
    let (last, middle) = (leaves(&bed, &jump, 9), leaves(&bed, &jump, 5));
    assert!((last - 0.1).abs() < 0.02, "{last}");
    assert!((0.35..0.65).contains(&middle), "{middle}");
}

#[test]
fn weights_count_where_chance_says() {
    let policies = ["ring:vnodes=256", "rendezvous", "jump"];
    for policy in policies.map(|text| text.parse::<Policy>().unwrap()) {
        let mut bed = equal(20, 2);
        for (spec, number) in bed.places.iter_mut().zip(0..) {
            spec.weight = 50 + number % 4 * 50;
        }
        let loads = bed.clone().placed(&policy).loads();
        for weight in [50, 100, 150, 200] {
            let of_weight = bed.places.iter().zip(&loads);
            let of_weight = of_weight.filter(|(spec, _)| spec.weight == weight);
            let has: usize = of_weight.map(|(_, load)| load).sum();
            let fair = f64::from(PARTITIONS) * f64::from(weight) / 500.0;
            // Five of them are off by three standard deviations at most.
            let off = (has as f64 / fair - 1.0).abs();
            assert!(off < 0.15, "{policy}, {weight}: {has} of {fair}");
        }
    }
}

#[test]
fn maglev_and_bounded_loads_move_little_more_than_a_share() {
    for (policy, most) in [
        ("maglev", 1.3),
        ("bounded-ring", 1.7),
        ("bounded-ring:epsilon=0.05", 2.5),
    ] {
        let policy: Policy = policy.parse().unwrap();
        let left = |seed| {
            leaves(
                &equal(10, seed).placed(&policy),
                &policy,
                seed as usize % 10,
            )
        };
        let found = mean(left, 20) / 0.1;
        assert!((0.7..most).contains(&found), "{policy}: {found}");
    }
}

#[test]
fn tokens_that_even_out_stay_even_as_nodes_join() {
    let ring: Policy = "ring:tokens=even".parse().unwrap();
    let all = equal(40, 3);
    let mut bed = Bed::new(PARTITIONS);
    for (number, spec) in all.places.iter().enumerate() {
        bed.places.push(*spec);
        bed.carry_out(&ring);
        assert!(most(&bed) < 1.1, "{number}: {}", most(&bed));
    }
    // Who leaves gives to the tokens behind, as in Cassandra: nothing else moves, and less is even.
    for place in all.places.iter().take(20) {
        bed = bed.clone();
        let of_place = bed.places.iter_mut().filter(|one| one.place == place.place);
        of_place.for_each(|spec| spec.weight = 0);
        bed.carry_out(&ring);
        bed = bed.without(place.place.node);
    }
    assert!((1.05..1.6).contains(&most(&bed)), "{}", most(&bed));
}
