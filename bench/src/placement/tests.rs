use super::*;

fn value(measures: &Measures, name: &str) -> f64 {
    let found = measures.iter().find(|(known, _, _)| *known == name);
    found.map(|(_, _, value)| *value).expect("it is measured")
}

#[test]
fn what_is_sticky_moves_the_least_of_a_join_and_of_a_leave() {
    for (scenario, moved) in [(Scenario::Join, 10.0), (Scenario::Leave, 100.0 / 9.0)] {
        let change = Change::new(scenario, (9, 0), (2, 1800));
        let sticky = change.measure(&Policy::Sticky);
        assert!((value(&sticky, "moved") - moved).abs() < 0.1, "{sticky:?}");
        assert!((value(&sticky, "moved / least") - 1.0).abs() < 0.01);
        assert!(value(&sticky, "max / mean") < 1.02);
        let ends = ["most that a node sends", "most that a node receives"];
        let [sent, received] = ends.map(|name| value(&sticky, name));
        let [one, many] = match scenario {
            Scenario::Join => [received, sent],
            _ => [sent, received],
        };
        assert!(
            (one - moved).abs() < 0.1 && many < moved / 4.0,
            "{one}, {many}"
        );
    }
}

#[test]
fn racks_are_seen_and_weights_are_what_nodes_are_compared_by() {
    let racks = Change::new(Scenario::Racks, (9, 0), (1, 1800));
    let together = "neighbours in one rack";
    assert_eq!(value(&racks.measure(&Policy::RoundRobin), together), 0.0);
    assert!(value(&racks.measure(&Policy::Contiguous), together) > 90.0);
    let weights = Change::new(Scenario::Weights, (9, 0), (1, 1800));
    assert!(value(&weights.measure(&Policy::Sticky), "max / mean") < 1.05);
}

#[test]
fn keys_without_partitions_move_as_their_papers_say() {
    let mut found = BTreeMap::new();
    keys::measure((9, 0), true, &mut found);
    let moved = |name: &str| value(&found[name], "moved by a join");
    assert!(moved("hash mod N") > 85.0);
    assert!(moved("ring of 256") < 15.0);
    assert!((moved("jump") - 10.0).abs() < 2.0);
    assert!((moved("partitions") - 10.0).abs() < 0.1);
}
