use super::*;

fn report() -> PlacementReport {
    let row = |node: &str, shard, partitions, share_ppm| PlacementRow {
        node: node.to_owned(),
        shard,
        rack: "east".to_owned(),
        partitions,
        share_ppm,
        fair_ppm: 500_000,
    };
    PlacementReport {
        policy: "ring".to_owned(),
        current: "contiguous".to_owned(),
        followed_by: "sticky".to_owned(),
        state: PlacementState::Follows,
        moves_max: 32,
        under_way: 1,
        waiting: 2,
        partitions: 9,
        imbalance_permille: 1_111,
        nodes: vec![
            row("athens", None, 5, 555_555),
            row("cyrene", None, 4, 444_444),
        ],
        racks: vec![row("east", None, 9, 1_000_000)],
        shards: vec![
            row("athens", Some(0), 5, 555_555),
            row("cyrene", Some(0), 4, 444_444),
        ],
        moves: 4,
        bytes: 200 << 20,
        bytes_per_s: Some(10_000_000),
        seconds: Some(21),
        rebalance_moves: 0,
        unmet: vec!["there is one node: nothing can be spread over others".to_owned()],
        plan: Vec::new(),
    }
}

#[test]
fn a_policy_is_shown_with_what_it_would_move() {
    let text = placement(&report());
    for line in [
        "policy",
        "in force",
        "1 under way, 2 waiting, 32 at a time",
        "111.1% of its fair share",
        "4 of 9 partitions move, 200.0 MiB, about 21",
        "by sticky: 0 moves",
        "there is one node",
        "athens/0",
        "55.6%",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn the_cost_of_a_change_says_what_is_not_known() {
    let unknown = PlacementReport {
        bytes_per_s: None,
        seconds: None,
        ..report()
    };
    assert!(cost(&unknown).starts_with(
        "ring instead of contiguous: 4 of 9 partitions move, 200.0 MiB, how fast is not known"
    ));
    let empty = PlacementReport {
        bytes: 0,
        ..unknown
    };
    assert!(!cost(&empty).contains("how fast"));
    let nothing = PlacementReport { moves: 0, ..empty };
    assert!(cost(&nothing).contains("nothing has to move"));
    let waits = PlacementReport {
        current: "ring".to_owned(),
        state: PlacementState::Changes,
        under_way: 0,
        waiting: 0,
        ..nothing
    };
    assert!(placement(&waits).contains("nothing can move now"));
}
