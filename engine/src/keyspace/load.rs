//! What commands use of the partitions here, counted as they are executed.
//!
//! A command is counted at the partition of its key; one that names several keys, or a script, once at each of them.
//! Time is what was read of the clock anyway ([`Timing`](crate::shard::timing)): what lies between two readings is
//! divided evenly among what was counted in between. [`Keyspace::take_load`] scales it to the CPU time that the shard
//! has taken, so that partitions also bear what is done for their commands elsewhere: receiving, parsing, the log,
//! sending.

use std::time::Duration;

use ephesus_coordinator::load::Amount;
use ephesus_wire::resp::reply;
use ephesus_wire::{PartitionId, Slot, database, slot_of};

use super::Keyspace;
use super::hot::HotKey;
use crate::command::parse::ArgList;
use crate::command::slot_stats::SlotRow;
use crate::command::spec::{Cmd, Spec};

/// What was counted of one partition since it was published.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    ops: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// Time of its commands, ns.
    nanos: u64,
    /// Commands since the clock was read.
    untimed: u64,
}

/// What was counted of one slot since that is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotUsed {
    bytes_in: u64,
    bytes_out: u64,
    /// Time of its commands, ns.
    nanos: u64,
    /// Commands since the clock was read.
    untimed: u64,
}

/// What was counted of the slots of one partition, from its first on.
pub(super) type SlotsUsed = Option<Box<[SlotUsed]>>;

/// What was counted of a whole shard.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Partitions with commands since the clock was read.
    touched: Vec<PartitionId>,
    /// The same for slots, if use is counted by slot.
    counts_slots: bool,
    touched_slots: Vec<Slot>,
    /// Their commands, and those that have used no partition.
    untimed: u64,
    /// Partitions that were used since that was published.
    used: Vec<PartitionId>,
    /// Counted at partitions at all.
    counted: u64,
    /// Time of all commands since it was published, ns.
    nanos: u64,
}

impl Keyspace {
    /// A command was executed here, whose request, with keys as they are stored, and reply are so long; `slot` is its
    /// first key's.
    #[inline]
    pub fn note_use<A: ArgList + ?Sized>(
        &mut self,
        spec: &Spec,
        args: &A,
        slot: Slot,
        (bytes_in, bytes_out): (usize, usize),
    ) {
        if !spec.may_have_many_keys() {
            let key = args.arg(spec.first_key_at());
            let bytes_in = bytes_in.saturating_sub(prefix_bytes(key));
            if self.hot.is_due() {
                self.count_hot(spec, key);
            }
            if self.tracking.is_some() {
                self.look_at_use(slot, key, (bytes_in + bytes_out) as u64);
            }
            return self.note_use_of(slot, bytes_in as u64, bytes_out as u64);
        }
        self.note_use_of_many(spec, args, (bytes_in, bytes_out));
    }

    /// A command of several keys has its length divided among them.
    fn note_use_of_many<A: ArgList + ?Sized>(
        &mut self,
        spec: &Spec,
        args: &A,
        (bytes_in, bytes_out): (usize, usize),
    ) {
        let count = spec.keys_of(args).count().max(1) as u64;
        let prefixes = spec
            .keys_of(args)
            .map(|index| prefix_bytes(args.arg(index)));
        let bytes_in = bytes_in.saturating_sub(prefixes.sum());
        let (bytes_in, bytes_out) = (bytes_in as u64, bytes_out as u64);
        let (mut more_in, mut more_out) = (bytes_in % count, bytes_out % count);
        for index in spec.keys_of(args) {
            let key = args.arg(index);
            if self.hot.is_due() {
                self.count_hot(spec, key);
            }
            let bytes_in = bytes_in / count + std::mem::take(&mut more_in);
            let bytes_out = bytes_out / count + std::mem::take(&mut more_out);
            if self.tracking.is_some() {
                self.look_at_use(slot_of(key), key, bytes_in + bytes_out);
            }
            self.note_use_of(slot_of(key), bytes_in, bytes_out);
        }
    }

    /// Counts the use of a key, unless the command only looks at what the server knows of it.
    #[cold]
    fn count_hot(&mut self, spec: &Spec, key: &[u8]) {
        match spec.cmd {
            Cmd::ObjectEncoding
            | Cmd::ObjectFreq
            | Cmd::ObjectIdletime
            | Cmd::ObjectRefcount
            | Cmd::MemoryUsage => self.hot.wait(),
            _ => self.hot.count(self.hasher.hash(key), key),
        }
    }

    /// The keys that are used the most of those that are served here, when so much time has passed.
    pub fn hottest(&mut self, passed: Duration, most: usize) -> Vec<HotKey> {
        let (partitions, partitioning) = (&self.partitions, self.partitioning);
        self.hot.keep(|slot| {
            let copy = partitions.get(usize::from(partitioning.partition_of(slot).0));
            copy.is_some_and(|copy| copy.as_ref().is_some_and(|copy| copy.is_serving()))
        });
        self.hot.pass(passed);
        self.hot.hottest(most)
    }

    /// Has HOTKEYS look at the use of a key.
    #[cold]
    fn look_at_use(&mut self, slot: Slot, key: &[u8], bytes: u64) {
        if let Some(tracking) = &mut self.tracking {
            tracking.note((slot, key, bytes), || self.hasher.hash(key));
        }
    }

    #[inline]
    fn note_use_of(&mut self, slot: Slot, bytes_in: u64, bytes_out: u64) {
        let partition = self.partitioning.partition_of(slot);
        let place = self.partitions.get_mut(usize::from(partition.0));
        let Some(copy) = place.and_then(Option::as_deref_mut) else {
            return;
        };
        let used = &mut copy.used;
        if used.untimed == 0 {
            self.uses.touched.push(partition);
        }
        if used.ops == 0 {
            self.uses.used.push(partition);
        }
        used.ops += 1;
        used.bytes_in += bytes_in;
        used.bytes_out += bytes_out;
        used.untimed += 1;
        self.uses.untimed += 1;
        self.uses.counted += 1;
        if self.uses.counts_slots {
            self.note_use_of_slot(slot, bytes_in, bytes_out);
        }
    }

    fn note_use_of_slot(&mut self, slot: Slot, bytes_in: u64, bytes_out: u64) {
        let Some(used) = self.slot_used(slot) else {
            return;
        };
        let is_first = used.untimed == 0;
        used.bytes_in += bytes_in;
        used.bytes_out += bytes_out;
        used.untimed += 1;
        if is_first {
            self.uses.touched_slots.push(slot);
        }
    }

    /// What is counted of a slot that is here.
    fn slot_used(&mut self, slot: Slot) -> Option<&mut SlotUsed> {
        let partition = self.partitioning.partition_of(slot);
        let copy = self
            .partitions
            .get_mut(usize::from(partition.0))?
            .as_deref_mut()?;
        let slots = self.partitioning.slots_of(partition);
        let place = usize::from(slot.0.checked_sub(*slots.start())?);
        let counted = copy
            .slots_used
            .get_or_insert_with(|| vec![SlotUsed::default(); slots.count()].into());
        counted.get_mut(place)
    }

    /// Counts use by slot from now on, or not any more; what was counted stays.
    pub fn count_slots(&mut self, counts: bool) {
        self.uses.counts_slots = counts;
    }

    /// Forgets what was counted by slot.
    pub fn forget_slots(&mut self) {
        self.uses.touched_slots.clear();
        let copies = self.partitions.iter_mut().flatten();
        copies.for_each(|copy| copy.slots_used = None);
    }

    /// Whether use is counted by slot.
    #[must_use]
    pub fn counts_slots(&self) -> bool {
        self.uses.counts_slots
    }

    /// What was counted of the slots that are served here from `first` on, of which there are so many keys each.
    pub(super) fn slot_rows(&self, first: u16, keys: &[u32]) -> Vec<SlotRow> {
        let mut rows = Vec::new();
        for (slot, keys) in (first..).zip(keys) {
            let partition = self.partitioning.partition_of(Slot(slot));
            let Some(copy) = self.served(partition) else {
                continue;
            };
            let place = usize::from(slot - self.partitioning.slots_of(partition).start());
            let used = copy.slots_used.as_ref().and_then(|slots| slots.get(place));
            let used = used.copied().unwrap_or_default();
            rows.push(SlotRow {
                slot,
                keys: u64::from(*keys),
                cpu_usec: used.nanos / 1000,
                bytes_in: used.bytes_in,
                bytes_out: used.bytes_out,
            });
        }
        rows
    }

    /// How often partitions were used so far.
    #[inline]
    #[must_use]
    pub fn uses(&self) -> u64 {
        self.uses.counted
    }

    /// A command was executed that has used no partition here: it has its part of the time.
    #[inline]
    pub fn note_other(&mut self) {
        self.uses.untimed += 1;
    }

    /// Whether anything was counted since the clock was read.
    #[inline]
    #[must_use]
    pub fn is_untimed(&self) -> bool {
        self.uses.untimed > 0
    }

    /// The clock was read: what was counted since it was read before has taken so long.
    #[inline]
    pub fn note_time(&mut self, nanos: u64) {
        let each = nanos / self.uses.untimed.max(1);
        self.uses.untimed = 0;
        self.uses.nanos += nanos;
        if let Some(tracking) = &mut self.tracking {
            tracking.note_time(each);
        }
        for id in self.uses.touched.drain(..) {
            let place = self.partitions.get_mut(usize::from(id.0));
            if let Some(copy) = place.and_then(Option::as_deref_mut) {
                copy.used.nanos += each * copy.used.untimed;
                copy.used.untimed = 0;
            }
        }
        for slot in std::mem::take(&mut self.uses.touched_slots) {
            if let Some(used) = self.slot_used(slot) {
                used.nanos += each * used.untimed;
                used.untimed = 0;
            }
        }
    }

    /// Takes what each partition has used since this was called last, while the shard has taken so much CPU time for
    /// commands and all that belongs to them.
    pub fn take_load(&mut self, cpu: Duration, mut take: impl FnMut(PartitionId, Amount)) {
        let all = std::mem::take(&mut self.uses.nanos).max(1);
        let cpu_ns = cpu.as_nanos() as f64;
        for id in self.uses.used.drain(..) {
            let place = self.partitions.get_mut(usize::from(id.0));
            let Some(copy) = place.and_then(Option::as_deref_mut) else {
                continue;
            };
            if copy.used.ops == 0 {
                continue;
            }
            let Used {
                ops,
                bytes_in,
                bytes_out,
                nanos,
                untimed,
            } = copy.used;
            copy.used = Used {
                untimed,
                ..Used::default()
            };
            let amount = Amount {
                ops,
                bytes_in,
                bytes_out,
                cpu_ns: (cpu_ns * nanos as f64 / all as f64) as u64,
            };
            take(id, amount);
        }
    }
}

/// By how much a key as it is stored makes a request longer than as clients name it.
#[inline]
fn prefix_bytes(stored: &[u8]) -> usize {
    match database::split(stored) {
        (_, key) if key.len() == stored.len() => 0,
        (_, key) => reply::command_len(&[stored]) - reply::command_len(&[key]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::spec::lookup_full;
    use crate::keyspace::tests::tape::Taped;

    #[test]
    fn keys_of_partitions_that_have_left_are_not_hot_here() {
        let mut keyspace = Taped::new(2, 1).keyspace;
        let get = lookup_full(b"get").expect("a command");
        let second = Duration::from_secs(1);
        let hottest = |keyspace: &mut Keyspace| {
            for key in [&b"a"[..], b"b"] {
                for _ in 0..10_000 {
                    keyspace.note_use(get, &[&b"get"[..], key][..], slot_of(key), (20, 5));
                }
            }
            let hottest = keyspace.hottest(second, 9).into_iter();
            let mut names: Vec<_> = hottest.map(|hot| (hot.key.name, hot.share)).collect();
            names.sort_by(|a, b| a.0.cmp(&b.0));
            names
        };
        let both = hottest(&mut keyspace);
        assert!(both.len() == 2 && both.iter().all(|(_, share)| *share > 0.4));
        let left = keyspace.partitioning.partition_of(slot_of(b"a"));
        keyspace.drop_copy(left).expect("served");
        let hottest = keyspace.hottest(second, 9);
        assert!(hottest.len() == 1 && *hottest[0].key.name == *b"b" && hottest[0].share > 0.99);
    }

    #[test]
    fn time_between_two_readings_is_divided_among_what_was_executed() {
        let mut keyspace = Taped::new(64, 1).keyspace;
        let get = lookup_full(b"get").expect("a command");
        let mget = lookup_full(b"mget").expect("a command");
        let (a, b) = (slot_of(b"a"), slot_of(b"b"));
        for _ in 0..3 {
            keyspace.note_use(get, &[&b"get"[..], b"a"][..], a, (20, 5));
        }
        keyspace.note_use(get, &[&b"get"[..], b"b"][..], b, (20, 7));
        keyspace.note_other();
        keyspace.note_time(1_000);
        keyspace.note_use(mget, &[&b"mget"[..], b"a", b"b", b"b"][..], a, (31, 10));
        keyspace.note_time(600);
        assert_eq!(keyspace.uses(), 7);
        let mut taken = Vec::new();
        keyspace.take_load(Duration::from_nanos(3_200), |id, amount| {
            taken.push((id, amount));
        });
        let of = |slot, ops, bytes_in, bytes_out, cpu_ns| {
            let amount = Amount {
                ops,
                bytes_in,
                bytes_out,
                cpu_ns,
            };
            (keyspace.partitioning.partition_of(slot), amount)
        };
        let mut expected = [of(a, 4, 71, 19, 1_600), of(b, 3, 40, 13, 1_200)];
        expected.sort_by_key(|(id, _)| *id);
        taken.sort_by_key(|(id, _)| *id);
        assert_eq!(taken, expected);
        keyspace.take_load(Duration::from_secs(1), |id, _| panic!("{id} is idle"));
    }
}
