//! SCAN and images while one partition grows from a thousand keys to a million and keys are
//! deleted, overwritten and brought back meanwhile, against a model.
//!
//! What a walk owes, whatever goes on: every key that is there throughout comes exactly once, with
//! one of the values it had meanwhile, and nothing comes that was not there meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ephesus_wal::LogId;
use ephesus_wire::block::Assembler;
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::resp::value::{Value, decode};
use ephesus_wire::{Database, Epoch, Lsn, PartitionId};

use super::keep::Keep;
use super::tape::{Taped, execute_valid};
use crate::command::parse::Scan;
use crate::keyspace::replay::Rebuild;
use crate::keyspace::{Keyspace, Partition, Reply, ScanCursor};
use crate::shard::Checkpointer;

const FIRST_KEYS: u64 = 1_000;
const LAST_KEYS: u64 = 1_000_000;
const NOW_MS: u64 = 1;

/// What a key holds: its value follows from the number of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    write: u64,
    expire_at_ms: u64,
}

/// A keyspace that grows, and what it should hold.
struct Growing {
    taped: Taped,
    now: BTreeMap<u64, Held>,
    /// What keys held before each change since [`Growing::watch`]; `None` when they were absent.
    former: BTreeMap<u64, Vec<Option<Held>>>,
    /// Keys with higher numbers were never there.
    last_key: u64,
    writes: u64,
    rng: u64,
}

fn number(n: u64) -> Vec<u8> {
    n.to_string().into_bytes()
}

fn parse(text: &[u8]) -> u64 {
    let text = std::str::from_utf8(text).expect("text");
    text.parse().expect("a number")
}

/// The value of the `write`th write, of 10 to 60 bytes; a few are longer than a block.
fn value(write: u64) -> Vec<u8> {
    let mut value = format!("{write:010}").into_bytes();
    let len = if write.is_multiple_of(5_003) {
        9_000
    } else {
        10 + write % 50
    };
    value.resize(len as usize, b'.');
    value
}

impl Growing {
    fn new(partitions: u16) -> Growing {
        let mut growing = Growing {
            taped: Taped::new(partitions, NOW_MS),
            now: BTreeMap::new(),
            former: BTreeMap::new(),
            last_key: 0,
            writes: 0,
            rng: 1,
        };
        for _ in 0..FIRST_KEYS {
            growing.add();
        }
        growing.taped.commit();
        growing
    }

    fn len(&self) -> u64 {
        self.taped.keyspace.len()
    }

    fn below(&mut self, below: u64) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        (self.rng >> 11) % below
    }

    fn execute(&mut self, args: &[&[u8]]) {
        execute_valid(&mut self.taped.keyspace, args);
    }

    /// A walk begins: forgets what keys held before.
    fn watch(&mut self) {
        self.former.clear();
    }

    fn change(&mut self, n: u64, to: Option<Held>) {
        let before = match to {
            Some(held) => self.now.insert(n, held),
            None => self.now.remove(&n),
        };
        self.former.entry(n).or_default().push(before);
    }

    fn set(&mut self, n: u64) {
        self.writes += 1;
        let write = self.writes;
        self.execute(&[b"SET", &number(n), &value(write)]);
        let held = Held {
            write,
            expire_at_ms: 0,
        };
        self.change(n, Some(held));
    }

    fn add(&mut self) {
        self.last_key += 1;
        self.set(self.last_key);
    }

    /// A write to any key that is or was there: an overwrite, a delete or a new expiry.
    fn disturb(&mut self) {
        let n = 1 + self.below(self.last_key);
        let key = number(n);
        match (self.now.get(&n).copied(), self.below(4)) {
            (Some(_), 0 | 1) => {
                self.execute(&[b"DEL", &key]);
                self.change(n, None);
            }
            (Some(held), 2) => {
                let ms = 1 + self.below(1_000_000);
                self.execute(&[b"PEXPIRE", &key, &number(ms)]);
                let expire_at_ms = NOW_MS + ms;
                self.change(
                    n,
                    Some(Held {
                        expire_at_ms,
                        ..held
                    }),
                );
            }
            _ => self.set(n),
        }
    }

    /// So many new keys, and a disturbance for every three of them.
    fn grow(&mut self, keys: u64) {
        for n in 0..keys {
            self.add();
            if n % 3 == 0 {
                self.disturb();
            }
        }
    }

    fn was_there_throughout(&self, n: u64) -> bool {
        let gone = |former: &Vec<Option<Held>>| former.contains(&None);
        self.now.contains_key(&n) && !self.former.get(&n).is_some_and(gone)
    }

    /// Whether the key has held this at any time since [`Growing::watch`].
    fn has_held(&self, n: u64, value_of: &[u8], expire_at_ms: u64) -> bool {
        let is_it =
            |held: &Held| held.expire_at_ms == expire_at_ms && value(held.write) == value_of;
        let former = self.former.get(&n).into_iter().flatten().flatten();
        self.now.get(&n).into_iter().chain(former).any(is_it)
    }

    /// Checks that `found`, sorted, has every key that was there throughout, and none twice.
    fn assert_walked(&self, found: &[u64]) {
        assert!(found.is_sorted_by(|a, b| a < b), "no key comes twice");
        let stayed = self.now.keys().filter(|n| self.was_there_throughout(**n));
        let mut stayed = stayed.peekable();
        assert!(stayed.peek().is_some());
        for n in stayed {
            assert!(found.binary_search(n).is_ok(), "key {n} is missed");
        }
    }

    /// Checks that these partitions hold what the model does, and nothing else.
    fn assert_is(&self, partitions: &[&Partition]) {
        let mut keys = 0;
        for partition in partitions {
            let mut cursor = 0;
            loop {
                cursor = partition.table.scan(cursor, &mut |_, entry| {
                    let held = self.now.get(&parse(entry.key)).expect("a key of the model");
                    assert_eq!(entry.expire_at_ms, held.expire_at_ms);
                    assert!(entry.value == value(held.write));
                    keys += 1;
                });
                if cursor == 0 {
                    break;
                }
            }
        }
        assert_eq!(keys, self.now.len());
    }

    /// One SCAN call: the next cursor, and the keys as the numbers they are.
    fn scan(&mut self, cursor: u64, seen: &mut Vec<u64>) -> u64 {
        let partitions = self.taped.partitioning.count();
        let at = ScanCursor::decode(cursor, partitions).expect("a cursor it gave out");
        let scan = Scan {
            cursor,
            pattern: None,
            count: 50,
            type_name: None,
        };
        let next = |_: &Keyspace, after: PartitionId| {
            (after.0 + 1 < partitions).then_some(PartitionId(after.0 + 1))
        };
        let mut out = Vec::new();
        let mut reply = Reply {
            out: &mut out,
            protocol: Protocol::Resp2,
            gate: Lsn::ZERO,
        };
        let keyspace = &mut self.taped.keyspace;
        keyspace.scan((Database::ZERO, at), &scan, &next, &mut reply);
        assert_eq!(reply.gate, keyspace.log.appended());
        let (reply, _) = decode(&out).expect("well-formed").expect("complete");
        let Value::Array(parts) = reply else {
            panic!("not an array")
        };
        let digits = |value: &Value| parse(value.as_bytes().expect("a string"));
        let Value::Array(keys) = &parts[1] else {
            panic!("not an array")
        };
        seen.extend(keys.iter().map(digits));
        digits(&parts[0])
    }

    /// A whole SCAN with `growth` new keys after each call, until there are `last` keys.
    fn assert_scans(&mut self, growth: u64, last: u64) {
        assert_eq!(self.len(), FIRST_KEYS);
        self.watch();
        let (mut cursor, mut seen) = (0, Vec::new());
        let mut grew = false;
        loop {
            let before = seen.len();
            cursor = self.scan(cursor, &mut seen);
            let new = &seen[before..];
            assert!(new.iter().all(|n| self.now.contains_key(n)), "keys of now");
            if cursor == 0 {
                break;
            }
            if self.len() < last {
                self.grow(growth);
            } else {
                grew = true;
                (0..4).for_each(|_| self.disturb());
            }
            self.taped.commit();
            self.taped.records.clear();
        }
        assert!(grew, "only {} keys", self.len());
        seen.sort_unstable();
        self.assert_walked(&seen);
        let partitions: Vec<_> = self.taped.keyspace.partitions().collect();
        self.assert_is(&partitions);
    }
}

#[test]
fn scan_keeps_its_promise_while_one_partition_grows_from_a_thousand_keys_to_a_million() {
    // A call returns some 64 keys, so the walk is about half done when the growth ends.
    Growing::new(1).assert_scans(800, LAST_KEYS);
}

#[test]
fn scan_keeps_its_promise_across_partitions_that_grow() {
    Growing::new(5).assert_scans(800, 60_000);
}

#[test]
fn an_image_walked_during_growth_to_a_million_keys_and_the_log_are_the_model() {
    let mut growing = Growing::new(1);
    let store = Keep::default();
    let mut checkpointer = Checkpointer::new(vec![&store], LogId([9; 16]), 1);
    checkpointer.slice = Duration::ZERO;
    let start = now();
    let mut blocks_when_grown = None;
    while store.manifest.borrow().is_none() {
        let taken = checkpointer.take_replies(&mut growing.taped.keyspace, start);
        taken.expect("a store without faults");
        let was_active = checkpointer.is_active();
        let slice = checkpointer.slice(&mut growing.taped.keyspace, start);
        slice.expect("a store without faults");
        if !was_active {
            assert!(checkpointer.is_active() && growing.len() == FIRST_KEYS);
            growing.watch();
        }
        // Some 32 keys are walked in a slice.
        if growing.len() < LAST_KEYS {
            growing.grow(320);
        } else {
            blocks_when_grown.get_or_insert(store.blocks.borrow().len());
            (0..3).for_each(|_| growing.disturb());
        }
        growing.taped.commit();
    }
    let blocks = store.blocks.take();
    assert!(blocks_when_grown.is_some_and(|grown| grown < blocks.len()));

    let manifest = store.manifest.take().expect("switched");
    let (mut walked, mut assembler) = (Vec::new(), Assembler::new());
    for block in &blocks {
        let fed = assembler.feed(block, |entry| {
            let n = parse(entry.key);
            assert!(growing.has_held(n, entry.value, entry.expire_at_ms));
            walked.push(n);
        });
        fed.expect("a good block");
    }
    assert_eq!(walked.len() as u64, manifest.count);
    walked.sort_unstable();
    growing.assert_walked(&walked);

    let mut rebuild = Rebuild::new(PartitionId(0), Epoch(1));
    rebuild.reserve(manifest.count);
    for block in &blocks {
        let added = rebuild.block(block, &growing.taped.hasher);
        added.expect("a good block");
    }
    let complete = rebuild.image_complete(&manifest);
    complete.expect("what the manifest says");
    let rebuilt = growing.taped.replay(vec![rebuild], manifest.lsn_start);
    let grown = growing.taped.keyspace.partition(PartitionId(0));
    let grown = grown.expect("here");
    assert_eq!(rebuilt[0].seq(), grown.seq());
    growing.assert_is(&[grown]);
    growing.assert_is(&[&rebuilt[0]]);
}

#[expect(
    clippy::disallowed_methods,
    reason = "any instant does: it only has to stay the same"
)]
fn now() -> Instant {
    Instant::now()
}
