use super::*;

fn pair_with_one_acknowledged_and_one_pending() -> (Unit, u64, u64) {
    let mut unit = Unit::new(1);
    assert_eq!(unit.kind, Kind::Pair);
    let mut rng = Rng::new(7);
    let mut set = |unit: &mut Unit| {
        loop {
            let (request, _) = unit.next_request(&mut rng);
            if request[0] == b"MSET" {
                return unit.writes;
            }
            unit.acknowledge();
        }
    };
    let first = set(&mut unit);
    while unit.history.len() > 1 {
        unit.acknowledge();
    }
    let second = set(&mut unit);
    while unit.history.len() > 2 {
        unit.acknowledge();
    }
    (unit, first, second)
}

#[test]
fn the_acknowledged_and_the_pending_state_are_both_accepted() {
    let (unit, first, second) = pair_with_one_acknowledged_and_one_pending();
    for write in [first, second] {
        let value = value_of(1, write);
        unit.clone().settle(&[Some(value.clone()), Some(value)]);
    }
}

#[test]
#[should_panic(expected = "acknowledged")]
fn half_an_mset_is_caught() {
    let (mut unit, first, second) = pair_with_one_acknowledged_and_one_pending();
    unit.settle(&[Some(value_of(1, first)), Some(value_of(1, second))]);
}

#[test]
#[should_panic(expected = "acknowledged")]
fn a_lost_acknowledged_write_is_caught() {
    let (mut unit, ..) = pair_with_one_acknowledged_and_one_pending();
    unit.settle(&[None, None]);
}

#[test]
#[should_panic(expected = "acknowledged")]
fn taking_back_what_somebody_read_is_caught() {
    let (mut unit, first, second) = pair_with_one_acknowledged_and_one_pending();
    unit.observed(second);
    let value = value_of(1, first);
    unit.settle(&[Some(value.clone()), Some(value)]);
}

#[test]
#[should_panic(expected = "nobody wrote")]
fn a_changed_byte_is_caught() {
    let (mut unit, first, _) = pair_with_one_acknowledged_and_one_pending();
    let mut value = value_of(1, first);
    *value.last_mut().expect("a value") ^= 1;
    unit.settle(&[Some(value.clone()), Some(value)]);
}
