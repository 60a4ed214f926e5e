//! What plans say of what they could not do.

use super::bed::{Bed, node, policies};
use super::*;

fn said(bed: &Bed, policy: &Policy) -> Vec<String> {
    let plan = bed.plan(policy);
    plan.unmet.iter().map(ToString::to_string).collect()
}

#[test]
fn every_policy_says_what_it_could_not_do() {
    let one = node("athens");
    for policy in policies() {
        let none = "no shard has any weight: nothing can be placed";
        assert_eq!(said(&Bed::new(9), &policy), [none]);
        let weightless = Bed::new(9).with(one, (2, 0));
        let zero = "2 shards have a weight of 0 and get nothing";
        assert_eq!(said(&weightless, &policy), [none, zero]);
        let alone = "there is one node: nothing can be spread over others";
        let single = Bed::new(9).with(one, (1, 100));
        assert_eq!(said(&single, &policy), [alone]);
        let many = Bed::new(3).named(&["athens", "byzantium", "cyrene", "delphi", "ephesus"]);
        let plan = many.plan(&policy);
        let owners: std::collections::BTreeSet<_> = plan.owners.into_iter().flatten().collect();
        let places = 5 - owners.len();
        assert_eq!(plan.unmet, [Unmet::Idle { places }], "{policy}");
        assert!(places >= 2);
        assert_eq!(
            plan.unmet[0].to_string(),
            format!("{places} shards own nothing: there are fewer partitions than shards")
        );
        let full = Bed::new(9).named(&["athens", "byzantium", "cyrene"]);
        assert!(said(&full, &policy).is_empty(), "{policy}");
        assert_eq!(Bed::new(0).named(&["athens"]).plan(&policy).owners, []);
    }
}

#[test]
fn racks_that_cannot_be_met_are_named_with_what_they_own() {
    let mut bed = Bed::new(12).named(&["athens", "byzantium", "cyrene", "delphi"]);
    for (spec, rack) in bed.places.iter_mut().zip(["a", "a", "a", "b"]) {
        spec.rack = Some(rack);
    }
    let told = "rack a owns 9 of 12 partitions: neighbours cannot all be in different racks";
    assert_eq!(said(&bed, &Policy::RoundRobin), [told]);
    // Others look at no rack, and a rack without a name is none.
    assert_eq!(said(&bed, &Policy::Sticky), [""; 0]);
    bed.places.iter_mut().for_each(|spec| spec.rack = None);
    assert_eq!(said(&bed, &Policy::RoundRobin), [""; 0]);
}
