//! What clients know: which values they may read, by what was acknowledged, and what they wait for.
//!
//! One write of a key is under way at a time. A write whose fate nobody has told has happened or not when its
//! connection ends with its process; when only the connection ends it may still happen within a while.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ephesus_engine::net::ConnToken;
use ephesus_wire::{PartitionId, Partitioning, slot_of};

/// Keys of every partition that clients use.
pub(crate) const KEYS: u64 = 8;

/// Keys that are never written again: a walk asks whether to go on after about 32 entries.
pub(crate) const OTHERS: u16 = 150;

/// For so long a write may still happen whose connection was closed, ms.
const MAY_HAPPEN_MS: u64 = 5_000;

/// A value that is never written twice; none: the key is deleted.
pub(crate) type Value = Option<u64>;

/// Which key of which partition.
pub(crate) type Name = (PartitionId, u8);

/// What a client wants to have done.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Write(Name, Value, u64),
    /// What it may find.
    Read(Name, BTreeSet<Value>, u64),
}

#[derive(Debug)]
struct Known {
    possible: BTreeSet<Value>,
    writing: Option<Value>,
    /// How often a write has begun or ended.
    changes: u64,
    /// How often it has begun empty.
    resets: u64,
    /// Until when a write may still happen that nobody waits for, ms.
    unsettled_until: u64,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            possible: BTreeSet::from([None]),
            writing: None,
            changes: 0,
            resets: 0,
            unsettled_until: 0,
        }
    }
}

/// A command that is not answered.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) op: Op,
    /// Whether its node held a lease when its shard came to it, if it has.
    pub(crate) had_lease: Option<bool>,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) token: ConnToken,
    pub(crate) waiting: VecDeque<Asked>,
    pub(crate) unread: Vec<u8>,
}

/// All clients of a world.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    known: BTreeMap<Name, Known>,
    /// By node, shard and whether it is an entry connection.
    pub(crate) conns: BTreeMap<(usize, usize, bool), Conn>,
    values: u64,
    /// How many commands were answered with data.
    pub(crate) served: u64,
}

impl Clients {
    /// A write of a key, if none is under way.
    pub(crate) fn begin_write(&mut self, name: Name, deletes: bool, now: u64) -> Option<Op> {
        let known = self.known.entry(name).or_default();
        if known.writing.is_some() || known.unsettled_until > now {
            return None;
        }
        self.values += 1;
        let value = (!deletes).then_some(self.values);
        known.writing = Some(value);
        known.changes += 1;
        let resets = known.resets;
        self.may_be_read(name, value);
        Some(Op::Write(name, value, resets))
    }

    pub(crate) fn begin_read(&mut self, name: Name) -> Op {
        let known = self.known.entry(name).or_default();
        let mut allowed = known.possible.clone();
        allowed.extend(known.writing);
        Op::Read(name, allowed, known.changes)
    }

    /// Reads that are under way may find this value as well.
    fn may_be_read(&mut self, name: Name, value: Value) {
        let waiting = self.conns.values_mut().flat_map(|conn| &mut conn.waiting);
        for op in waiting.map(|asked| &mut asked.op) {
            if let Op::Read(of, allowed, _) = op
                && *of == name
            {
                allowed.insert(value);
            }
        }
    }

    /// A write is over: acknowledged, or refused. One to a copy that is lost by now tells nothing.
    pub(crate) fn wrote(&mut self, name: Name, value: Value, resets: u64, is_done: bool) {
        let known = self.known.entry(name).or_default();
        (known.writing, known.changes) = (None, known.changes + 1);
        if is_done && known.resets == resets {
            known.possible = BTreeSet::from([value]);
        } else if is_done {
            known.possible.insert(value);
        }
    }

    /// Nobody will tell what has become of a write; `may_happen` says that it may still be executed.
    pub(crate) fn unknown(&mut self, name: Name, value: Value, may_happen: bool, now: u64) {
        let known = self.known.entry(name).or_default();
        (known.writing, known.changes) = (None, known.changes + 1);
        known.possible.insert(value);
        if may_happen {
            known.unsettled_until = now + MAY_HAPPEN_MS;
        }
    }

    /// A read has found a value.
    pub(crate) fn read(
        &mut self,
        (name, allowed, changes): (Name, &BTreeSet<Value>, u64),
        found: Value,
        now: u64,
    ) -> Result<(), String> {
        if !allowed.contains(&found) {
            let what = match found {
                Some(_) if *allowed == BTreeSet::from([None]) => "a delete is resurrected",
                _ => "an acknowledged write is lost",
            };
            return Err(format!(
                "{what}: {name:?}: {found:?} instead of {allowed:?}"
            ));
        }
        let known = self.known.entry(name).or_default();
        if known.changes == changes && known.writing.is_none() && known.unsettled_until <= now {
            known.possible = BTreeSet::from([found]);
        }
        Ok(())
    }

    /// A partition begins empty.
    pub(crate) fn emptied(&mut self, partition: PartitionId) {
        let names: Vec<Name> = (0..KEYS as u8).map(|key| (partition, key)).collect();
        for name in names {
            let known = self.known.entry(name).or_default();
            known.possible = BTreeSet::from([None]);
            known.changes += 1;
            known.resets += 1;
            self.may_be_read(name, None);
        }
    }

    /// Whether a copy has what was acknowledged, and all that nobody writes.
    pub(crate) fn check(
        &self,
        partitions: u16,
        partition: PartitionId,
        contents: &BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<(), String> {
        let mut count = usize::from(OTHERS);
        for key in 0..KEYS as u8 {
            let found = contents.get(&key_name(partitions, (partition, key)));
            count += usize::from(found.is_some());
            let found = found.map(|value| number(value));
            let known = self.known.get(&(partition, key));
            let is_possible = match known {
                Some(known) => known.possible.contains(&found) || known.writing == Some(found),
                None => found.is_none(),
            };
            if !is_possible {
                return Err(format!(
                    "an acknowledged write is lost: partition {partition}, key {key}: {found:?} instead of {known:?}"
                ));
            }
        }
        let is_whole = (0..OTHERS).all(|n| {
            let name = other(partitions, partition, n);
            contents.get(&name) == Some(&name)
        });
        if !is_whole || contents.len() != count {
            return Err(format!("not all of partition {partition} is there"));
        }
        Ok(())
    }
}

pub(crate) fn number(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("a number");
    text.parse().expect("a number")
}

/// Something in braces that leads a key to a partition.
fn tag(partitions: u16, partition: PartitionId) -> String {
    let partitioning = Partitioning::new(partitions).expect("a valid number");
    let tags = (0..).map(|n: u32| format!("{{{n}}}"));
    let mut fitting =
        tags.filter(|tag| partitioning.partition_of(slot_of(tag.as_bytes())) == partition);
    fitting.next().expect("there are many")
}

thread_local! {
    static TAGS: std::cell::RefCell<BTreeMap<(u16, PartitionId), String>> = const { std::cell::RefCell::new(BTreeMap::new()) };
}

fn known_tag(partitions: u16, partition: PartitionId) -> String {
    TAGS.with_borrow_mut(|tags| {
        let known = tags.entry((partitions, partition));
        known.or_insert_with(|| tag(partitions, partition)).clone()
    })
}

pub(crate) fn key_name(partitions: u16, (partition, key): Name) -> Vec<u8> {
    format!("{}key{key}", known_tag(partitions, partition)).into_bytes()
}

/// A key that is only written when its partition begins.
pub(crate) fn other(partitions: u16, partition: PartitionId, n: u16) -> Vec<u8> {
    let tag = known_tag(partitions, partition);
    format!("{tag}another one, which is longer: {n}").into_bytes()
}
