use ephesus_wire::{NodeId, PartitionId, ShardId};
use proptest::prelude::*;

use super::*;
use crate::coordinator::PLAN_PATIENCE_MS;

fn place(node: u8) -> Place {
    Place {
        node: NodeId([node; 16]),
        shard: ShardId(0),
    }
}

fn spec(node: u8, weight: u32) -> Spec<'static> {
    Spec {
        place: place(node),
        weight,
        rack: None,
    }
}

fn nodes(count: u8) -> Vec<Spec<'static>> {
    (1..=count).map(|node| spec(node, 100)).collect()
}

/// Partitions in order: node, per cent of a CPU, MiB.
fn partitions(all: &[(u8, f32, u64)]) -> Vec<Loaded> {
    let partition = |(id, &(node, percent, mib)): (u16, &(u8, f32, u64))| Loaded {
        located: Located {
            partition: PartitionId(id),
            place: place(node),
            is_fixed: false,
        },
        cpu: Some(percent / 100.0),
        bytes: mib << 20,
    };
    (0..).zip(all).map(partition).collect()
}

fn carried_out(plan: &LoadPlan, partitions: &[Loaded]) -> Vec<Loaded> {
    let mut after = partitions.to_vec();
    for one in &plan.moves {
        let moved = after.get_mut(usize::from(one.partition.0)).unwrap();
        moved.located.place = one.to;
    }
    after
}

/// By node, per cent of a CPU.
fn loads(partitions: &[Loaded], nodes: u8) -> Vec<f32> {
    let of = |node| {
        let own = partitions
            .iter()
            .filter(move |one| one.located.place == place(node));
        own.filter_map(|one| one.cpu).sum::<f32>() * 100.0
    };
    (1..=nodes).map(of).collect()
}

fn ids(plan: &LoadPlan) -> Vec<u16> {
    plan.moves.iter().map(|one| one.partition.0).collect()
}

#[test]
fn nothing_moves_while_all_are_near_their_share() {
    let near = partitions(&[(1, 11.0, 1), (1, 12.0, 1), (2, 10.0, 1), (2, 9.0, 1)]);
    assert_eq!(by_load(&nodes(2), &near), LoadPlan::default());
    let idle = partitions(&[(1, 0.0, 1), (1, 0.0, 1)]);
    assert_eq!(by_load(&nodes(2), &idle), LoadPlan::default());
    assert_eq!(by_load(&[], &near), LoadPlan::default());
}

#[test]
fn of_what_is_as_hot_the_smallest_moves() {
    let hot = [
        (1, 10.0, 900),
        (1, 10.0, 3),
        (1, 10.0, 700),
        (1, 10.0, 800),
        (2, 20.0, 1),
    ];
    let plan = by_load(&nodes(2), &partitions(&hot));
    assert_eq!(ids(&plan), [1]);
    assert_eq!(plan.unmet, []);
    assert_eq!(plan.moves[0].to, place(2));
}

#[test]
fn a_new_node_gets_its_share_by_weight() {
    let many: Vec<_> = (0..40).map(|id| (1 + id % 2, 2.0, 8)).collect();
    let many = partitions(&many);
    let places = [spec(1, 100), spec(2, 100), spec(3, 200)];
    let plan = by_load(&places, &many);
    let after = loads(&carried_out(&plan, &many), 3);
    // The fair shares are 20, 20 and 40.
    assert!(
        after[0] <= 22.0 && after[1] <= 22.0 && after[2] >= 36.0,
        "{after:?}"
    );
}

#[test]
fn what_is_more_than_a_share_keeps_its_shard_for_itself() {
    let hot = [
        (1, 50.0, 1),
        (1, 8.0, 1),
        (1, 6.0, 1),
        (2, 10.0, 1),
        (3, 10.0, 1),
        (2, 4.0, 1),
    ];
    let hot = partitions(&hot);
    let plan = by_load(&nodes(3), &hot);
    let after = carried_out(&plan, &hot);
    assert_eq!(after[0].located.place, place(1));
    assert_eq!(loads(&after, 3)[0].round() as u64, 50);
    assert!(matches!(
        plan.unmet[0],
        Unmet::Hot {
            partition: 0,
            percent: 49..=50
        }
    ));
    assert_eq!(by_load(&nodes(3), &after).moves, []);
}

#[test]
fn two_that_are_more_than_a_share_are_parted() {
    let hot = [
        (1, 50.0, 1),
        (1, 45.0, 1),
        (2, 5.0, 1),
        (3, 3.0, 1),
        (4, 5.0, 1),
        (3, 1.0, 1),
    ];
    let hot = partitions(&hot);
    let plan = by_load(&nodes(4), &hot);
    let after = carried_out(&plan, &hot);
    assert_eq!(after[0].located.place, place(1));
    assert_ne!(after[1].located.place, place(1));
    let place_of_second = after[1].located.place;
    let beside = after[2..]
        .iter()
        .filter(|one| one.located.place == place_of_second);
    assert_eq!(beside.count(), 0, "{after:?}");
    assert_eq!(by_load(&nodes(4), &after).moves, []);
}

#[test]
fn one_shard_and_one_hot_partition_have_no_remedy() {
    let alone = partitions(&[(1, 90.0, 1)]);
    assert_eq!(by_load(&nodes(1), &alone), LoadPlan::default());
    let plan = by_load(&nodes(2), &alone);
    assert_eq!(plan.moves, []);
    assert!(matches!(plan.unmet[0], Unmet::Hot { partition: 0, .. }));
}

#[test]
fn what_is_under_way_stays_and_drained_nodes_get_nothing() {
    let mut hot = partitions(&[(1, 20.0, 1), (1, 20.0, 1), (1, 20.0, 9), (2, 1.0, 1)]);
    hot[0].located.is_fixed = true;
    let plan = by_load(&[spec(1, 100), spec(2, 100), spec(3, 0)], &hot);
    assert_eq!(ids(&plan), [1]);
    assert_eq!(plan.moves[0].to, place(2));
}

#[test]
fn shards_of_which_not_all_is_known_are_left_alone() {
    let mut hot = partitions(&[
        (1, 20.0, 1),
        (1, 20.0, 1),
        (2, 1.0, 1),
        (3, 0.0, 1),
        (3, 1.0, 1),
    ]);
    hot[3].cpu = None;
    let plan = by_load(&nodes(3), &hot);
    assert_eq!(plan.unmet, [Unmet::LoadUnknown { partitions: 1 }]);
    assert_eq!(plan.moves.len(), 1);
    assert_eq!(plan.moves[0].to, place(2));
    hot[0].cpu = None;
    assert_eq!(by_load(&nodes(3), &hot).moves, []);
}

#[test]
fn a_small_shard_without_room_keeps_nobody_from_moving() {
    let mut all = vec![(1, 20.0, 1); 6];
    all.extend([(2, 20.0, 1), (2, 20.0, 1), (1, 10.0, 1)]);
    let all = partitions(&all);
    let places = [spec(1, 100), spec(2, 100), spec(3, 10)];
    let plan = by_load(&places, &all);
    let after = loads(&carried_out(&plan, &all), 3);
    assert!(after[0] <= 95.0 && after[1] >= 75.0, "{after:?}");
    // What is too much for a small share is not for a large one.
    let small = partitions(&[
        (3, 30.0, 1),
        (1, 40.0, 1),
        (2, 40.0, 1),
        (1, 5.0, 1),
        (2, 5.0, 1),
    ]);
    let plan = by_load(&places, &small);
    assert!(
        !plan
            .unmet
            .iter()
            .any(|one| matches!(one, Unmet::Hot { partition: 0, .. }))
    );
}

#[test]
fn nothing_moves_that_only_changes_who_is_off() {
    // The shares are 100: 105 and 89 with partitions of 20 would become 85 and 109.
    let mut all = vec![(1, 20.0, 1); 4];
    all.extend([
        (1, 25.0, 1),
        (2, 20.0, 1),
        (2, 20.0, 1),
        (2, 20.0, 1),
        (2, 29.0, 1),
    ]);
    all.extend([(3, 60.0, 1), (3, 66.0, 1)]);
    let all = partitions(&all);
    let plan = by_load(&nodes(3), &all);
    assert!(
        !plan
            .moves
            .iter()
            .any(|one| one.to == place(2) && one.partition.0 < 4),
        "{plan:?}"
    );
}

#[test]
fn an_idle_cluster_has_no_hot_partition() {
    let idle = partitions(&[(1, 0.5, 1), (2, 0.01, 1), (3, 0.01, 1)]);
    assert_eq!(by_load(&nodes(3), &idle).unmet, []);
}

/// A zipfian load: the n-th hottest partition takes 1 / n^0.9 of the hottest.
#[test]
fn a_zipfian_load_is_within_the_tolerance_of_the_mean() {
    let hottest = 10.0;
    let all: Vec<_> = (0..256u16)
        .map(|id| {
            // Neighbours are on one node, and so the hottest are.
            let cpu = hottest / f32::from(id + 1).powf(0.9);
            ((id / 64) as u8 + 1, cpu, 64)
        })
        .collect();
    let all = partitions(&all);
    let before = loads(&all, 4);
    let mean = before.iter().sum::<f32>() / 4.0;
    assert!(
        before[0] > 1.5 * mean && hottest < mean / 2.0 * 1.2,
        "{before:?}"
    );
    let plan = by_load(&nodes(4), &all);
    let after = loads(&carried_out(&plan, &all), 4);
    let most = after.iter().copied().fold(0.0, f32::max);
    assert!(most <= 1.2 * mean, "{after:?}");
    assert_eq!(plan.unmet, []);
    assert!(plan.moves.len() < 40, "{} moves", plan.moves.len());
}

proptest! {
    #[test]
    fn plans_help_and_come_to_rest(
        all in prop::collection::vec((1u8..6, 0.0f32..10.0, 0u64..100), 1..80),
        weights in prop::collection::vec(0u32..300, 5),
        seed: u64,
    ) {
        let all = partitions(&all);
        let places: Vec<Spec<'_>> = (1u8..).zip(&weights).map(|(node, weight)| spec(node, *weight)).collect();
        let plan = by_load(&places, &all);
        let mut others = (places.clone(), all.clone());
        others.0.reverse();
        others.1.rotate_left((seed % all.len() as u64) as usize);
        prop_assert_eq!(&by_load(&others.0, &others.1), &plan);
        let mut moved = ids(&plan);
        moved.sort_unstable();
        moved.dedup();
        prop_assert_eq!(moved.len(), plan.moves.len());
        for one in &plan.moves {
            let weight = places.iter().find(|spec| spec.place == one.to).map(|spec| spec.weight);
            prop_assert!(weight > Some(0));
            prop_assert_ne!(all[usize::from(one.partition.0)].located.place, one.to);
        }
        // Planned again and again with the same load it ends.
        let mut now = carried_out(&plan, &all);
        for _ in 0..20 {
            let next = by_load(&places, &now);
            if next.moves.is_empty() {
                return Ok(());
            }
            now = carried_out(&next, &now);
        }
        prop_assert!(false, "it goes on moving: {:?}", by_load(&places, &now));
    }

    #[test]
    fn small_partitions_are_shared_out_to_within_the_tolerance(
        cpu in prop::collection::vec(0.5f32..1.0, 60..120),
        nodes_count in 2u8..5,
        bytes in prop::collection::vec(0u64..1000, 120),
    ) {
        let all: Vec<_> = cpu.iter().zip(&bytes).map(|(cpu, mib)| (1, *cpu, *mib)).collect();
        let all = partitions(&all);
        let plan = by_load(&nodes(nodes_count), &all);
        let after = loads(&carried_out(&plan, &all), nodes_count);
        let mean = after.iter().sum::<f32>() / f32::from(nodes_count);
        for load in &after {
            prop_assert!((load - mean).abs() <= 0.2 * mean, "{after:?}");
        }
        prop_assert_eq!(plan.unmet, []);
    }
}

#[test]
fn what_is_not_worth_its_bytes_is_not_moved_and_is_named() {
    let mut all = vec![(1, 119.5, 1), (1, 2.0, 1)];
    all.extend((2..=5).map(|node| (node, 94.6, 1)));
    let plan = by_load(&nodes(5), &partitions(&all));
    assert_eq!(
        (&plan.moves[..], &plan.unmet[..]),
        (&[][..], &[Unmet::Uneven { places: 1 }][..])
    );
}

#[test]
fn what_no_shard_can_do_is_no_reason_to_panic() {
    let places = [spec(1, 1), spec(2, 10_000)];
    for cpu in [1e37, f32::INFINITY] {
        let all = partitions(&[(1, cpu, 1), (1, cpu, 1), (2, 1.0, u64::MAX >> 20)]);
        let _ = by_load(&places, &all);
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how long a plan takes is what is tested"
)]
fn thousands_of_nodes_are_planned_for_within_the_time_that_a_plan_has() {
    let places = (0..4_000u16).flat_map(|node| (0..16).map(move |shard| (node, shard)));
    let places = places.map(|(node, shard)| {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&node.to_be_bytes());
        Place {
            node: NodeId(id),
            shard: ShardId(shard),
        }
    });
    let places: Vec<Place> = places.collect();
    let specs = places.iter().zip(0..).map(|(place, n)| Spec {
        place: *place,
        weight: 1 + n % 100,
        rack: None,
    });
    let specs: Vec<Spec<'_>> = specs.collect();
    let all = (0..16384).zip(places.iter().take(16).cycle());
    let all = all.map(|(id, place)| Loaded {
        located: Located {
            partition: PartitionId(id),
            place: *place,
            is_fixed: false,
        },
        cpu: Some(0.5 / f32::from(id + 1)),
        bytes: 1 << 20,
    });
    let all: Vec<Loaded> = all.collect();
    let began = std::time::Instant::now();
    let plan = by_load(&specs, &all);
    let took_ms = began.elapsed().as_millis();
    assert!(plan.moves.len() > 16_000, "{}", plan.moves.len());
    assert!(took_ms < u128::from(PLAN_PATIENCE_MS), "{took_ms} ms");
}
