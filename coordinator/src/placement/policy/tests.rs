use super::*;

#[test]
fn names_and_parameters_are_read_as_they_are_written() {
    for policy in Policy::all() {
        assert_eq!(policy.to_string(), policy.name());
        assert_eq!(policy.name().parse(), Ok(policy));
        assert!(POLICIES.contains(policy.name()));
    }
    for text in [
        "ring:vnodes=256",
        "ring:tokens=even",
        "ring:vnodes=1,tokens=even,seed=4294967295",
        "rendezvous:seed=1",
        "jump:seed=1",
        "maglev:seed=1",
        "bounded-ring:epsilon=0.05",
        "bounded-ring:vnodes=1024,epsilon=10,seed=3",
    ] {
        let policy: Policy = text.parse().unwrap();
        assert_eq!(policy.to_string(), text);
    }
}

#[test]
fn what_is_no_policy_is_told_all_that_are() {
    let refused = |text: &str| text.parse::<Policy>().unwrap_err().to_string();
    for text in ["", "rings", "Ring", "ring vnodes=1", ":", "sticky "] {
        let said = refused(text);
        assert!(
            said.starts_with(&format!("{text:?} is no policy")),
            "{said}"
        );
        assert!(said.ends_with(POLICIES));
    }
    for (text, parameter) in [
        ("ring:", ""),
        ("ring:epsilon=1", "epsilon"),
        ("ring:vnodes=1,", ""),
        ("ring:vnodes=1,vnodes=1", "vnodes=1"),
        ("sticky:seed=1", "seed"),
        ("jump:vnodes=1", "vnodes"),
    ] {
        let said = refused(text);
        assert!(
            said.contains(&format!("takes no {parameter:?} here")),
            "{said}"
        );
        assert!(said.ends_with(POLICIES));
    }
    let vnodes = "vnodes of ring is a number from 1 to 1024";
    for value in ["", "0", "1025", "-1", "65536", "x", "1.5"] {
        assert_eq!(refused(&format!("ring:vnodes={value}")), vnodes);
    }
    let epsilon = "epsilon of bounded-ring is a number from 0.01 to 10, by thousandths";
    for value in ["", "0", "-1", "nan", "inf", "10.001", "1e9", "0.009"] {
        assert_eq!(refused(&format!("bounded-ring:epsilon={value}")), epsilon);
    }
    assert_eq!(
        refused("ring:tokens=odd"),
        "tokens of ring is hashed or even"
    );
    let seed = "seed of jump is a number from 0 to 4294967295";
    for value in ["", "-1", "4294967296"] {
        assert_eq!(refused(&format!("jump:seed={value}")), seed);
    }
}

#[test]
fn logs_of_the_first_two_policies_are_read_and_unknown_ones_are_errors() {
    let read = |bytes: &[u8]| postcard::from_bytes::<Policy>(bytes);
    assert_eq!(read(&[0]), Ok(Policy::Contiguous));
    assert_eq!(read(&[1]), Ok(Policy::RoundRobin));
    for policy in Policy::all() {
        let bytes = postcard::to_allocvec(&policy).unwrap();
        assert_eq!(read(&bytes), Ok(policy));
    }
    assert!(read(&[9]).is_err() && read(&[0xff; 5]).is_err() && read(&[]).is_err());
}

#[test]
fn parameters_that_nobody_could_have_told_are_refused_and_do_no_harm() {
    let ring = Policy::Ring(Ring {
        vnodes: 0,
        ..Ring::default()
    });
    let bounded = Policy::BoundedRing(BoundedRing {
        vnodes: u16::MAX,
        epsilon_permille: 0,
        seed: 0,
    });
    for policy in [ring, bounded] {
        assert!(policy.check().is_err());
        let node = ephesus_wire::NodeId([1; 16]);
        let shard = ephesus_wire::ShardId(0);
        let place = crate::placement::Place { node, shard };
        let plan = crate::placement::plan(5, &[place], policy);
        assert_eq!(plan, Ok(vec![0; 5]));
    }
}
