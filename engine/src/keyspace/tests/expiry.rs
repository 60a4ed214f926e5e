//! The sweep: what is due goes, and what is not costs nothing.

use super::tape::{Taped, execute, execute_valid};
use crate::keyspace::LAPSED_MAX;
use crate::table::NEVER_MS;

const START_MS: u64 = 1_700_000_000_000;
const DAY_MS: u64 = 86_400_000;
const KEYS: u64 = 5_000;

fn set(taped: &mut Taped, key: &str, px: u64) {
    let px = px.to_string();
    execute_valid(&mut taped.keyspace, &["SET", key, "v", "PX", &px]);
}

/// Slices of a round.
fn round(taped: &mut Taped) -> u64 {
    let mut slices = 1;
    while !taped.keyspace.sweep_slice() {
        slices += 1;
    }
    slices
}

fn filled() -> Taped {
    let mut taped = Taped::new(8, START_MS);
    for n in 0..KEYS {
        set(&mut taped, &format!("k{n}"), DAY_MS + n);
    }
    round(&mut taped);
    taped
}

#[test]
fn a_round_costs_what_is_due() {
    let mut taped = filled();
    assert!(!taped.keyspace.may_have_expired(), "nothing is due");
    taped.keyspace.set_now(START_MS + DAY_MS / 2);
    assert!(!taped.keyspace.may_have_expired(), "nothing is due");
    set(&mut taped, "soon", 10);
    taped.keyspace.set_now(START_MS + DAY_MS / 2 + 2_000);
    assert!(taped.keyspace.may_have_expired());
    let slices = round(&mut taped);
    assert!(slices <= 3, "{slices} slices for one key");
    assert_eq!(taped.keyspace.len(), KEYS);
    assert!(!taped.keyspace.may_have_expired(), "nothing is due again");
    let next_ms = taped.keyspace.expires_from_ms();
    assert!((START_MS + DAY_MS - 1_000..=START_MS + DAY_MS).contains(&next_ms));
    // All at once, in as many slices as that takes.
    taped.keyspace.set_now(START_MS + DAY_MS + KEYS);
    round(&mut taped);
    assert!(taped.keyspace.is_empty());
    assert_eq!(taped.keyspace.expires_from_ms(), NEVER_MS);
    taped.assert_replays();
}

#[test]
fn a_deadline_that_is_put_off_or_lifted_costs_one_look() {
    let mut taped = filled();
    for n in 0..KEYS {
        set(&mut taped, &format!("k{n}"), 2 * DAY_MS);
    }
    taped.keyspace.set_now(START_MS + DAY_MS + KEYS);
    round(&mut taped);
    assert_eq!(taped.keyspace.len(), KEYS);
    let next_ms = taped.keyspace.expires_from_ms();
    assert!(next_ms > START_MS + 2 * DAY_MS - 1_000, "{next_ms}");
    for n in 0..KEYS {
        execute_valid(&mut taped.keyspace, &["PERSIST", &format!("k{n}")]);
    }
    taped.keyspace.set_now(START_MS + 3 * DAY_MS);
    round(&mut taped);
    assert_eq!(taped.keyspace.expires_from_ms(), NEVER_MS);
    assert_eq!(taped.keyspace.len(), KEYS);
}

#[test]
fn what_comes_while_a_round_goes_on_is_not_forgotten() {
    let mut taped = filled();
    taped.keyspace.set_now(START_MS + 2 * DAY_MS);
    let mut n = 0;
    while !taped.keyspace.sweep_slice() {
        // Behind the round, and in front of it.
        set(&mut taped, &format!("new{n}"), 100);
        n += 1;
    }
    assert!(n > 8);
    taped.keyspace.set_now(START_MS + 2 * DAY_MS + 2_000);
    round(&mut taped);
    assert!(taped.keyspace.is_empty());
    taped.assert_replays();
}

#[test]
fn reads_of_expired_keys_hold_a_few_of_them() {
    let mut taped = Taped::new(8, START_MS);
    for n in 0..2 * LAPSED_MAX {
        set(&mut taped, &format!("k{n}"), 10);
    }
    taped.keyspace.set_now(START_MS + 20);
    for n in 0..20 * LAPSED_MAX {
        let key = format!("k{}", n % (2 * LAPSED_MAX));
        assert_eq!(execute(&mut taped.keyspace, &["GET", &key]), b"$-1\r\n");
    }
    assert_eq!(taped.keyspace.lapsed.len(), LAPSED_MAX);
    taped.keyspace.remove_lapsed(true);
    assert_eq!(taped.keyspace.len(), LAPSED_MAX as u64);
    round(&mut taped);
    assert!(taped.keyspace.is_empty());
    taped.assert_replays();
}
