use ephesus_wire::{Lsn, ShardId};

use super::*;
use crate::keyspace::tests::tape::{Taped, execute_valid};
use crate::net::ConnToken;

fn client(index: u32) -> Client {
    let generation = 1;
    (ShardId(0), ConnToken { index, generation })
}

fn keyspace() -> Keyspace {
    Taped::new(4, 4).keyspace
}

/// What is invalid: keys with how many clients have them, sorted, and whether all is.
fn taken(keyspace: &mut Keyspace) -> (Vec<(String, usize)>, bool) {
    let Some(mut invalid) = keyspace.take_invalid() else {
        return (Vec::new(), false);
    };
    let mut keys = Vec::new();
    while let Some(key) = invalid.next_key() {
        let name = String::from_utf8_lossy(&key.name).into_owned();
        keys.push((name, key.clients.len()));
    }
    assert_eq!(invalid.held_bytes() - broadcast_bytes(&invalid), 0);
    keys.sort();
    (keys, invalid.all)
}

fn broadcast_bytes(invalid: &Invalid) -> usize {
    let names = invalid.broadcast.keys();
    names.map(|name| KEY_BYTES + name.len()).sum()
}

fn keys(names: &[(&str, usize)]) -> (Vec<(String, usize)>, bool) {
    let names = names.iter();
    (
        names.map(|(name, n)| ((*name).to_owned(), *n)).collect(),
        false,
    )
}

#[test]
fn a_key_is_told_of_once_and_by_every_kind_of_change() {
    let mut keyspace = keyspace();
    for (change, is_told) in [
        ("SET a 1", true),
        ("APPEND a x", true),
        ("EXPIRE a 100", true),
        ("PEXPIREAT a 1", true),
        ("PERSIST a", false),
        ("GETEX a EX 5", true),
        ("MSET a 1 b 2", true),
        ("RENAME a b", true),
        ("GET a", false),
        ("DEL a", true),
        ("COPY b a REPLACE", true),
        ("MOVE a 1", true),
        ("SETNX b 1", false),
        ("RESTORE a 0 x", false),
    ] {
        for n in [1, 2] {
            keyspace.track(client(n), b"a");
            keyspace.track(client(n), b"a");
        }
        assert_eq!(keyspace.tracked(), (1, 2), "{change}");
        let words: Vec<&str> = change.split(' ').collect();
        if words[0] == "RESTORE" {
            let _ = crate::keyspace::tests::tape::execute(&mut keyspace, &words);
        } else {
            execute_valid(&mut keyspace, &words);
        }
        let expected: &[(&str, usize)] = if is_told { &[("a", 2)] } else { &[] };
        assert_eq!(taken(&mut keyspace), keys(expected), "{change}");
        execute_valid(&mut keyspace, &["SET", "a", "9"]);
        taken(&mut keyspace);
    }
    assert_eq!(keyspace.tracked(), (0, 0));
    assert_eq!(keyspace.tracked_bytes(), 0);
}

#[test]
fn databases_are_one() {
    let mut keyspace = keyspace();
    keyspace.track(client(1), b"a");
    let stored = ephesus_wire::Database(3).stored(b"a").into_owned();
    let key = keyspace.key(&stored);
    keyspace.tracked.changed(&keyspace.hasher, &key, None);
    assert_eq!(taken(&mut keyspace), keys(&[("a", 1)]));
}

#[test]
fn what_is_taken_back_may_be_told_of_and_nothing_is_lost() {
    let mut keyspace = keyspace();
    execute_valid(&mut keyspace, &["SET", "a", "1"]);
    keyspace.track(client(1), b"a");
    keyspace.track(client(1), b"b");
    keyspace.begin_atomic(usize::MAX);
    execute_valid(&mut keyspace, &["SET", "a", "2"]);
    keyspace.roll_back_atomic();
    assert_eq!(taken(&mut keyspace), keys(&[("a", 1)]));
    assert_eq!(keyspace.tracked(), (1, 1));
}

#[test]
fn a_read_of_what_has_expired_tells_those_who_have_it() {
    let mut keyspace = keyspace();
    execute_valid(&mut keyspace, &["SET", "a", "1", "PX", "10"]);
    keyspace.track(client(1), b"a");
    keyspace.set_now(keyspace.now_ms() + 20);
    execute_valid(&mut keyspace, &["GET", "a"]);
    // Who reads now has nothing, and that it is removed is no news.
    keyspace.track(client(2), b"a");
    keyspace.remove_lapsed(true);
    assert_eq!(taken(&mut keyspace), keys(&[("a", 1)]));
    execute_valid(&mut keyspace, &["SET", "a", "1", "PX", "10"]);
    assert_eq!(taken(&mut keyspace), keys(&[("a", 1)]));
    keyspace.track(client(1), b"a");
    keyspace.set_now(keyspace.now_ms() + 20);
    while !keyspace.sweep_slice() {}
    assert_eq!(taken(&mut keyspace), keys(&[("a", 1)]));
}

#[test]
fn a_flush_empties_the_table() {
    let mut keyspace = keyspace();
    let all = (Vec::new(), true);
    for n in 0..1000 {
        keyspace.track(client(n % 3), n.to_string().as_bytes());
    }
    let mut out = Vec::new();
    let mut reply = crate::keyspace::Reply {
        out: &mut out,
        protocol: ephesus_wire::resp::reply::Protocol::Resp2,
        gate: Lsn::ZERO,
    };
    keyspace.flush(&mut reply);
    assert_eq!(taken(&mut keyspace), all);
    assert_eq!(keyspace.tracked(), (0, 0));
    while keyspace.free_slice(100) {}
    assert!(keyspace.tracked.discarded.is_empty());
}

/// Memory of what is discarded.
fn discarded_bytes(keyspace: &Keyspace) -> usize {
    let Discarded { tables, invalid } = &keyspace.tracked.discarded;
    let tables = tables.iter().map(|keys| keys.bytes);
    tables.chain(invalid.iter().map(Invalid::held_bytes)).sum()
}

#[test]
fn no_more_is_discarded_than_a_table_and_what_is_invalid_may_have() {
    const TABLE: usize = 1 << 20;
    const INVALID: usize = 256 << 10;
    const LONG: usize = 10_000;
    // Short names, long ones, and some of both: a few long ones discard what takes many short ones to free.
    for (shorts, longs) in [(1, 0), (0, 1), (2_000, 100)] {
        let mut keyspace = keyspace();
        keyspace.set_tracked_limits(TrackedLimits {
            bytes: TABLE,
            invalid_bytes: INVALID,
            ..TrackedLimits::default()
        });
        let (mut most, mut times) = (0, 0);
        for n in 0..100_000 / (1 + 9 * usize::from(longs > 0)) {
            let len = match n % (shorts + longs) < shorts {
                true => 6,
                false => LONG,
            };
            // One client after the other reads it, as far as the key stays.
            for other in 0..n % 3 {
                let other = u32::try_from(other).expect("small");
                keyspace.track(client(other), format!("{n:0len$}").as_bytes());
            }
            let bytes = discarded_bytes(&keyspace);
            times += usize::from(bytes > most);
            most = most.max(bytes);
        }
        assert!(times > 0, "nothing was discarded");
        let room = TABLE + INVALID + LONG + KEY_BYTES;
        assert!(most < room + room / 8, "{most} bytes");
        while keyspace.free_slice(100) {}
        assert!(keyspace.tracked.discarded.is_empty());
    }
}

#[test]
fn changes_free_what_was_not_told() {
    const WAITING: usize = 256 << 10;
    let mut keyspace = keyspace();
    let shared = crate::node::prefixes::SharedPrefixes::default();
    shared.change(ShardId(0), [&b""[..]], []);
    keyspace.set_prefixes(shared.newest());
    let (mut waiting, mut most) = (Vec::new(), 0);
    let mut waiting_bytes = 0;
    for turn in 0..400 {
        for n in 0..100 {
            execute_valid(&mut keyspace, &["SET", &format!("{turn}:{n}"), "v"]);
        }
        let invalid = keyspace.take_invalid().expect("of this turn");
        waiting_bytes += invalid.held_bytes();
        waiting.push(invalid);
        if waiting_bytes > WAITING {
            for invalid in waiting.drain(..) {
                keyspace.discard_invalid(invalid);
            }
            waiting_bytes = 0;
        }
        most = most.max(discarded_bytes(&keyspace));
    }
    assert!((WAITING..WAITING + WAITING / 4).contains(&most), "{most}");
}

#[test]
fn beyond_the_bound_others_are_forgotten_and_told_of() {
    for limits in [
        TrackedLimits {
            keys: 10,
            ..TrackedLimits::default()
        },
        TrackedLimits {
            bytes: 10 * (KEY_BYTES + 4),
            ..TrackedLimits::default()
        },
    ] {
        let mut keyspace = keyspace();
        keyspace.set_tracked_limits(limits);
        let mut told = Vec::new();
        for n in 0..100 {
            keyspace.track(client(1), format!("{n:04}").as_bytes());
            let (keys, all) = taken(&mut keyspace);
            assert!(!all);
            let newest = (format!("{n:04}"), 1);
            assert!(!keys.contains(&newest), "the newest stays");
            told.extend(keys);
            assert!(keyspace.tracked().0 <= 10);
        }
        assert_eq!(told.len() + keyspace.tracked().0, 100);
        told.sort();
        told.dedup();
        assert_eq!(told.len(), 90, "each once");
    }
}

#[test]
fn one_key_that_is_too_large_is_alone() {
    let mut keyspace = keyspace();
    keyspace.set_tracked_limits(TrackedLimits {
        keys: 10,
        bytes: 1000,
        ..TrackedLimits::default()
    });
    keyspace.track(client(1), b"a");
    keyspace.track(client(1), &[b'x'; 2000]);
    assert_eq!(taken(&mut keyspace), keys(&[("a", 1)]));
    keyspace.track(client(1), b"b");
    assert_eq!(keyspace.tracked(), (1, 1));
    assert_eq!(taken(&mut keyspace).0.len(), 1);
}

#[test]
fn clients_that_leave_free_their_part() {
    let mut keyspace = keyspace();
    for n in 0..1000_u32 {
        let name = n.to_string();
        keyspace.track(client(1), name.as_bytes());
        if n % 2 == 0 {
            keyspace.track(client(2), name.as_bytes());
        }
        if n % 4 == 0 {
            keyspace.track(client(3), name.as_bytes());
        }
    }
    assert_eq!(keyspace.tracked(), (1000, 1750));
    keyspace.untrack(client(9));
    assert!(!keyspace.free_slice(100));
    keyspace.untrack(client(1));
    keyspace.track(client(4), b"new");
    let mut slices = 0;
    while keyspace.free_slice(100) {
        slices += 1;
    }
    assert!(slices >= 9, "{slices}");
    assert_eq!(keyspace.tracked(), (501, 751));
    keyspace.untrack(client(2));
    keyspace.untrack(client(3));
    while keyspace.free_slice(100) {}
    assert_eq!(keyspace.tracked(), (1, 1));
    keyspace.untrack(client(4));
    while keyspace.free_slice(100) {}
    assert_eq!((keyspace.tracked(), keyspace.tracked_bytes()), ((0, 0), 0));
    assert_eq!(taken(&mut keyspace).0, []);
    assert!(keyspace.tracked.clients.is_empty());
}

#[test]
fn too_much_that_is_invalid_is_told_as_all() {
    let mut keyspace = keyspace();
    let long = |n: usize| format!("{n:060000}");
    let invalid_bytes = 1 << 20;
    keyspace.set_tracked_limits(TrackedLimits {
        invalid_bytes,
        ..TrackedLimits::default()
    });
    let count = invalid_bytes / 60_000 + 10;
    for n in 0..count {
        keyspace.track(client(1), long(n).as_bytes());
    }
    for n in 0..count {
        execute_valid(&mut keyspace, &["SET", &long(n), "v"]);
    }
    let (keys, all) = taken(&mut keyspace);
    assert!(all && keys.len() < 20, "{}", keys.len());
}
