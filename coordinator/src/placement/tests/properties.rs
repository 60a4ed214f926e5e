use std::collections::BTreeSet;

use super::bed::{Bed, located, policies};
use super::*;

const RACKS: [&str; 4] = ["a", "b", "c", "d"];

fn nodes() -> impl Strategy<Value = Vec<Spec<'static>>> {
    let id = any::<u64>().prop_map(|id| NodeId((u128::from(id) << 3).to_be_bytes()));
    let one = (id, 1_u16..5, 0_u32..300, 0_usize..6);
    prop::collection::vec(one, 0..9).prop_map(|nodes| {
        let mut places = Vec::new();
        for (node, shards, weight, rack) in nodes {
            places.extend((0..shards).map(|shard| Spec {
                place: Place {
                    node,
                    shard: ShardId(shard),
                },
                weight,
                rack: RACKS.get(rack).copied(),
            }));
        }
        places
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(policies())
}

/// A fair share, rounded down and up.
fn share(partitions: u16, weight: u32, weights: u64) -> (u64, u64) {
    let fair = u64::from(partitions) * u64::from(weight);
    (fair / weights, fair.div_ceil(weights))
}

/// How many a place has at least and at most; none: chance says.
fn bounds(policy: Policy, partitions: u16, weight: u32, weights: u64) -> Option<(u64, u64)> {
    let fair = u64::from(partitions) * u64::from(weight);
    match policy {
        Policy::Ring(_) | Policy::Rendezvous(_) | Policy::Jump(_) => None,
        Policy::BoundedRing(ring) => {
            let most = fair * (1000 + u64::from(ring.epsilon_permille));
            Some((0, most.div_ceil(weights * 1000)))
        }
        _ => Some(share(partitions, weight, weights)),
    }
}

fn is_even(policy: Policy) -> bool {
    matches!(
        policy,
        Policy::Ring(Ring {
            tokens: ring::Tokens::Even,
            ..
        })
    )
}

fn loads(plan: &Plan) -> BTreeMap<Place, u64> {
    let mut loads = BTreeMap::new();
    for owner in plan.owners.iter().flatten() {
        *loads.entry(*owner).or_default() += 1;
    }
    loads
}

fn weight_of(places: &[Spec<'_>]) -> u64 {
    places.iter().map(|spec| u64::from(spec.weight)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn plans_are_total_balanced_as_stated_and_the_same_in_any_order(
        policy in policy(), places in nodes(), partitions in 0_u16..700, order in any::<u64>(),
    ) {
        let bed = Bed { places, partitions, ..Bed::default() };
        let plan = bed.plan(&policy);
        prop_assert_eq!(plan.owners.len(), usize::from(partitions));
        let weights = weight_of(&bed.places);
        if weights == 0 {
            prop_assert!(plan.unmet.contains(&Unmet::NoPlaces));
            prop_assert!(plan.owners.iter().all(Option::is_none));
            return Ok(());
        }
        prop_assert!(plan.owners.iter().all(Option::is_some));
        let loads = loads(&plan);
        for spec in &bed.places {
            let has = loads.get(&spec.place).copied().unwrap_or(0);
            prop_assert!(has == 0 || spec.weight > 0);
            if let Some((least, most)) = bounds(policy, partitions, spec.weight, weights) {
                prop_assert!((least..=most).contains(&has), "{policy}: {has}, {least} to {most}");
            }
        }
        let mut shuffled = Bed { current: located(&plan), ..bed.clone() };
        let again = shuffled.plan(&policy);
        let mut random = ephesus_wire::rng::Rng::new(order);
        shuffled.places.sort_by_cached_key(|_| random.draw());
        shuffled.current.sort_by_cached_key(|_| random.draw());
        prop_assert_eq!(shuffled.plan(&policy), again.clone());
        prop_assert_eq!(again.owners, plan.owners, "nothing moves where nothing has changed");
    }

    #[test]
    fn who_joins_takes_and_who_leaves_gives_and_nothing_else_moves(
        places in nodes(), partitions in 1_u16..700, weight in 1_u32..300,
        policy in prop::sample::select(vec![
            "ring", "ring:tokens=even", "ring:vnodes=1", "rendezvous",
        ]),
    ) {
        let policy: Policy = policy.parse().unwrap();
        prop_assume!(weight_of(&places) > 0);
        let id = NodeId([0x7f; 16]);
        let bed = Bed { places, partitions, ..Bed::default() }.placed(&policy);
        let had: BTreeSet<Place> = bed.current.iter().map(|one| one.place).collect();
        let mut joined = bed.clone().with(id, (2, weight));
        let moves = joined.carry_out(&policy);
        // Who had nothing at all is about to join as well.
        let joins = |place: &Place| place.node == id || is_even(policy) && !had.contains(place);
        prop_assert!(moves.iter().all(|one| joins(&one.to)), "{policy}");
        let before: Vec<Located> = joined.current.clone();
        let moves = joined.without(id).carry_out(&policy);
        let has = |one: &&Move| before[usize::from(one.partition.0)].place.node == id;
        prop_assert_eq!(moves.iter().filter(has).count(), 0, "its owner takes no part: it stays");
        let had: BTreeSet<Place> = before.iter().map(|one| one.place).collect();
        let joins = |one: &Move| is_even(policy) && !had.contains(&one.to);
        prop_assert!(moves.iter().all(joins), "{policy}");
    }

    #[test]
    fn who_is_drained_gives_all(
        places in nodes(), partitions in 1_u16..700, weight in 1_u32..300, policy in policy(),
    ) {
        prop_assume!(weight_of(&places) > 0);
        let id = NodeId([0x7f; 16]);
        let mut bed = Bed { places, partitions, ..Bed::default() };
        bed = bed.with(id, (2, weight)).placed(&policy);
        let owned: BTreeSet<PartitionId> = bed.current.iter()
            .filter(|one| one.place.node == id).map(|one| one.partition).collect();
        let had: BTreeSet<Place> = bed.current.iter().map(|one| one.place).collect();
        let drained = bed.places.iter_mut().filter(|spec| spec.place.node == id);
        drained.for_each(|spec| spec.weight = 0);
        let moves = bed.carry_out(&policy);
        prop_assert!(bed.current.iter().all(|one| one.place.node != id));
        let is_exact = matches!(policy, Policy::Ring(_) | Policy::Rendezvous(_));
        let may_move = |one: &Move| owned.contains(&one.partition)
            || is_even(policy) && !had.contains(&one.to);
        prop_assert!(!is_exact || moves.iter().all(may_move), "{policy}");
    }

    #[test]
    fn a_place_that_is_appended_is_all_that_jump_moves_to(
        places in nodes(), partitions in 1_u16..700, weight in 1_u32..300,
    ) {
        prop_assume!(weight_of(&places) > 0);
        let jump = Jump::default();
        let id = NodeId([0xff; 16]);
        let mut bed = Bed { places, partitions, ..Bed::default() }.placed(&jump);
        bed = bed.with(id, (1, weight));
        prop_assert!(bed.carry_out(&jump).iter().all(|one| one.to.node == id));
    }

    #[test]
    fn what_is_under_way_or_away_stays(
        policy in policy(), places in nodes(), partitions in 1_u16..300, seed in any::<u64>(),
    ) {
        let mut bed = Bed { places, partitions, ..Bed::default() };
        let away = Place { node: NodeId([0xee; 16]), shard: ShardId(1) };
        let mut random = ephesus_wire::rng::Rng::new(seed);
        for partition in 0..partitions {
            let place = match random.below(4) {
                0 => away,
                1 => continue,
                _ if bed.places.is_empty() => continue,
                _ => random.pick(&bed.places).place,
            };
            bed.current.push(Located {
                partition: PartitionId(partition),
                place,
                is_fixed: random.one_in(5),
            });
        }
        let plan = bed.plan(&policy);
        let stays: Vec<&Located> = bed.current.iter()
            .filter(|one| one.is_fixed || one.place == away).collect();
        for one in &stays {
            prop_assert_eq!(plan.owners[usize::from(one.partition.0)], Some(one.place));
        }
        let said = Unmet::Kept { partitions: stays.len() };
        prop_assert_eq!(plan.unmet.contains(&said), !stays.is_empty());
        if weight_of(&bed.places) > 0 {
            prop_assert!(plan.owners.iter().all(Option::is_some), "{policy}");
        }
    }

    #[test]
    fn steps_come_to_what_is_sticky_with_no_move_more(
        before in nodes(), after in nodes(), partitions in 1_u16..300, moves_max in 1_usize..50,
    ) {
        prop_assume!(weight_of(&before) > 0 && weight_of(&after) > 0);
        let mut bed = Bed { places: before.clone(), partitions, ..Bed::default() }.placed(&RoundRobin);
        let known: BTreeSet<Place> = after.iter().map(|spec| spec.place).collect();
        bed.places = after;
        let gone = before.into_iter().filter(|spec| !known.contains(&spec.place));
        bed.places.extend(gone.map(|spec| Spec { weight: 0, ..spec }));
        let goal = bed.plan(&Sticky);
        let mut left = goal.moves(&bed.current).len();
        while left > 0 {
            let request = Request { moves_max, ..bed.request() };
            let plan = CooperativeSticky.plan(&request);
            let moves = plan.moves(&bed.current).len();
            prop_assert_eq!(moves, left.min(moves_max));
            left -= moves;
            prop_assert_eq!(plan.later, left);
            bed.current = located(&plan);
        }
        let plan = CooperativeSticky.plan(&bed.request());
        prop_assert_eq!(plan.moves(&bed.current), []);
        // Others may have what is beyond a whole share.
        let (has, weights) = (loads(&plan), weight_of(&bed.places));
        for spec in &bed.places {
            let (least, most) = share(partitions, spec.weight, weights);
            let has = has.get(&spec.place).copied().unwrap_or(0);
            prop_assert!((least..=most).contains(&has));
        }
    }

    #[test]
    fn what_is_sticky_moves_no_more_than_fair_shares_need(
        places in nodes(), partitions in 1_u16..700, seed in any::<u64>(),
    ) {
        prop_assume!(weight_of(&places) > 0);
        let mut bed = Bed { places, partitions, ..Bed::default() };
        bed.places.sort_by_key(|spec| (spec.place, spec.weight));
        bed.places.dedup_by_key(|spec| spec.place);
        let mut random = ephesus_wire::rng::Rng::new(seed);
        bed.current = (0..partitions).map(|partition| Located {
            partition: PartitionId(partition),
            place: random.pick(&bed.places).place,
            is_fixed: false,
        }).collect();
        let (had, weights) = (bed.loads(), weight_of(&bed.places));
        let (mut over, mut under) = (0, 0);
        for (spec, had) in bed.places.iter().zip(had) {
            let (least, most) = share(partitions, spec.weight, weights);
            over += (had as u64).saturating_sub(most);
            under += least.saturating_sub(had as u64);
        }
        prop_assert_eq!(bed.carry_out(&Sticky).len() as u64, over.max(under));
    }

    #[test]
    fn neighbours_that_take_turns_are_in_different_racks_if_they_can_be(
        mut places in nodes(), partitions in 1_u16..300,
    ) {
        for (index, spec) in places.iter_mut().enumerate() {
            spec.rack = spec.rack.or_else(|| RACKS.get(index % 2).copied());
        }
        // A node is in one rack.
        let rack_of: BTreeMap<NodeId, &str> = places.iter()
            .filter_map(|spec| Some((spec.place.node, spec.rack?))).collect();
        places.iter_mut().for_each(|spec| spec.rack = rack_of.get(&spec.place.node).copied());
        prop_assume!(weight_of(&places) > 0);
        let bed = Bed { places, partitions, ..Bed::default() };
        let plan = bed.plan(&RoundRobin);
        let racks: Vec<&str> = plan.owners.iter().flatten().map(|one| rack_of[&one.node]).collect();
        let together = racks.windows(2).filter(|two| two[0] == two[1]).count();
        let most = RACKS.iter().map(|rack| racks.iter().filter(|one| *one == rack).count()).max();
        let most = most.unwrap_or(0);
        let others = racks.len() - most;
        // So many of the heaviest rack have nobody between them.
        prop_assert_eq!(together, most.saturating_sub(others + 1), "{:?}", racks);
        let is_said = plan.unmet.iter().any(|one| matches!(one, Unmet::Rack { .. }));
        prop_assert_eq!(is_said, together > 0);
    }
}
