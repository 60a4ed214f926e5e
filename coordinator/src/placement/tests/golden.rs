use super::bed::{Bed, node};
use super::*;

const THREE: [&str; 3] = ["athens", "byzantium", "cyrene"];

#[test]
fn nine_partitions_on_athens_byzantium_cyrene_and_ephesus_joins() {
    let nine = || Bed::new(9).named(&THREE);
    let contiguous = nine().placed(&Contiguous);
    assert_eq!(contiguous.owners(), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
    let mut cluster = nine().placed(&RoundRobin);
    assert_eq!(cluster.owners(), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    cluster = cluster.named(&["ephesus"]);
    let moves = cluster.carry_out(&Sticky);
    assert_eq!(moves.len(), 2);
    assert!(moves.iter().all(|one| one.to.node == node("ephesus")));
    let mut loads = cluster.loads();
    assert_eq!(loads.pop(), Some(2));
    loads.sort_unstable();
    assert_eq!(loads, [2, 2, 3]);
    assert_eq!(cluster.carry_out(&Sticky), []);
    // Kafka's other ways move more.
    let ranges = contiguous.named(&["ephesus"]).carry_out(&Contiguous);
    let turns = nine().placed(&RoundRobin).named(&["ephesus"]);
    let turns = turns.clone().carry_out(&RoundRobin);
    assert!(ranges.len() > 2 && turns.len() > 2);
}

#[test]
fn thirty_on_three_and_delphi_joins() {
    for policy in [Policy::Sticky, Policy::CooperativeSticky] {
        let mut cluster = Bed::new(30).named(&THREE).placed(&policy);
        assert_eq!(cluster.loads(), [10, 10, 10]);
        cluster = cluster.named(&["delphi"]);
        let moves = cluster.carry_out(&policy);
        assert_eq!(moves.len(), 7);
        assert!(moves.iter().all(|one| one.to.node == node("delphi")));
        assert_eq!(cluster.loads(), [8, 8, 7, 7]);
    }
}

#[test]
fn thirty_on_three_in_steps_of_three() {
    let mut cluster = Bed::new(30).named(&THREE).placed(&CooperativeSticky);
    cluster = cluster.named(&["delphi"]);
    let mut steps = Vec::new();
    loop {
        let plan = CooperativeSticky.plan(&Request {
            moves_max: 3,
            ..cluster.request()
        });
        let moves = plan.moves(&cluster.current);
        cluster.current = bed::located(&plan);
        assert!(plan.owners.iter().all(Option::is_some));
        steps.push((moves.len(), plan.later));
        if plan.later == 0 {
            break;
        }
    }
    assert_eq!(steps, [(3, 4), (3, 1), (1, 0)]);
    assert_eq!(cluster.loads(), [8, 8, 7, 7]);
}

#[test]
fn twelve_on_one_two_and_three() {
    let mut cluster = Bed::new(12).named(&["athens"]).placed(&Sticky);
    assert_eq!(cluster.loads(), [12]);
    cluster = cluster.named(&["byzantium"]);
    assert_eq!(cluster.carry_out(&Sticky).len(), 6);
    assert_eq!(cluster.loads(), [6, 6]);
    cluster = cluster.named(&["cyrene"]);
    assert_eq!(cluster.carry_out(&Sticky).len(), 4);
    assert_eq!(cluster.loads(), [4, 4, 4]);
}

/// Which points of a ring change hands, and from whom.
fn moved(before: &ring::Sorted, after: &ring::Sorted) -> Vec<(u64, usize)> {
    let points = (0..=300).chain([u64::MAX]);
    let owners = points.map(|point| (point, before.owner(point), after.owner(point)));
    let moved = owners.filter(|(_, from, to)| from != to);
    moved
        .map(|(point, from, _)| (point, from.unwrap()))
        .collect()
}

const ATHENS: usize = 0;
const BYZANTIUM: usize = 1;
const CYRENE: usize = 2;
const DELPHI: usize = 3;

#[test]
fn keys_on_a_ring_of_three_and_a_fourth_token() {
    let three = [(10, ATHENS), (40, BYZANTIUM), (70, CYRENE)];
    let ring = ring::Sorted::new(three);
    let owners = |ring: &ring::Sorted| [15, 55, 80].map(|key| ring.owner(key).unwrap());
    assert_eq!(owners(&ring), [BYZANTIUM, CYRENE, ATHENS]);
    let with = ring::Sorted::new(three.into_iter().chain([(25, DELPHI)]));
    assert_eq!(owners(&with), [DELPHI, CYRENE, ATHENS]);
    let taken = (11..=25).map(|point| (point, BYZANTIUM));
    assert_eq!(moved(&ring, &with), taken.collect::<Vec<_>>());
}

#[test]
fn delphi_at_40_takes_from_athens_what_is_behind_cyrene() {
    let three = [(10, ATHENS), (20, BYZANTIUM), (30, CYRENE)];
    let ring = ring::Sorted::new(three);
    let with = ring::Sorted::new(three.into_iter().chain([(40, DELPHI)]));
    let taken = (31..=40).map(|point| (point, ATHENS));
    assert_eq!(moved(&ring, &with), taken.collect::<Vec<_>>());
    assert_eq!(with.owner(41), Some(ATHENS));
}

#[test]
fn delphi_at_40_50_and_200_takes_three_ranges_of_two() {
    // Athens has (130, 10], and byzantium (30, 60].
    let before = [(10, ATHENS), (30, CYRENE), (60, BYZANTIUM), (130, CYRENE)];
    let ring = ring::Sorted::new(before);
    let joined = [(40, DELPHI), (50, DELPHI), (200, DELPHI)];
    let with = ring::Sorted::new(before.into_iter().chain(joined));
    let of_byzantium = (31..=50).map(|point| (point, BYZANTIUM));
    let of_athens = (131..=200).map(|point| (point, ATHENS));
    let taken: Vec<_> = of_byzantium.chain(of_athens).collect();
    assert_eq!(moved(&ring, &with), taken);
    assert!(
        taken
            .iter()
            .all(|(point, _)| with.owner(*point) == Some(DELPHI))
    );
}

#[test]
fn a_ring_without_tokens_has_no_owners() {
    assert_eq!(ring::Sorted::default().owner(7), None);
}
