//! Atomic sections: the effects of several commands become one record, or none of them happens.
//!
//! Within a section a write changes its table at once, joins the operations of the one record that is appended at the end, and
//! leaves here what was in the table before. What is taken back is taken back in reverse order, also from what moves:
//! to a stream it is one more write.
//!
//! *Invariant:* nothing else happens to the keyspace within a section: it begins and ends in one turn.

use ephesus_wire::limits::{BUFFER_KEPT_BYTES, RECORD_BYTES_MAX};
use ephesus_wire::record::{OpsEnd, RECORD_HEADER_BYTES};
use ephesus_wire::{Lsn, PartitionId};

use super::{Key, Keyspace, Partition, Reply};
use crate::command::error::ClientError;
use crate::table::{Table, TakenEntry};

/// Changes whose room is kept from section to section.
const CHANGES_KEPT: usize = 4096;

/// The section that is under way, if there is one.
#[derive(Default)]
pub(super) struct Atomic {
    /// Events that are not of this section.
    events_before: usize,
    is_open: bool,
    /// What its operations may take.
    effects_bytes_max: usize,
    /// Where the sections within it have begun, and what those around them may take.
    within: Vec<(Savepoint, usize)>,
    changes: Vec<Change>,
    /// The keys of changes that have left no entry which names them, one after the other.
    keys: Vec<u8>,
}

/// A moment within a section.
#[derive(Clone, Copy, Debug, Default)]
pub struct Savepoint {
    changes: usize,
    ops: OpsEnd,
    events: usize,
}

/// One change of one table.
struct Change {
    partition: PartitionId,
    hash: u64,
    before: Before,
    /// A client has asked for it; else the key had expired.
    is_write: bool,
}

/// What was there before; lengths are those of keys in [`Atomic::keys`].
enum Before {
    Absent(usize),
    Entry(TakenEntry),
    Expiry(usize, u64),
    Table(Box<Table>),
}

impl Atomic {
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    fn changed(&mut self, key: &Key<'_>, before: Before) {
        if !matches!(before, Before::Entry(_)) {
            self.keys.extend_from_slice(key.bytes);
        }
        self.changes.push(Change {
            partition: key.partition,
            hash: key.hash,
            before,
            is_write: true,
        });
    }

    /// The newest change was the removal of an expired key.
    pub(super) fn has_expired(&mut self) {
        if let Some(change) = self.changes.last_mut() {
            change.is_write = false;
        }
    }
}

impl Keyspace {
    /// Begins a section whose effects may take so many bytes in the log, or as many as one record can. If one is under way it
    /// is a part of that: committed, its effects are those of the section around it.
    pub fn begin_atomic(&mut self, effects_bytes_max: usize) {
        if self.atomic.is_open {
            let around = (self.savepoint(), self.atomic.effects_bytes_max);
            self.atomic.within.push(around);
            let bytes_max = self.ops.encoded_len().saturating_add(effects_bytes_max);
            self.atomic.effects_bytes_max = bytes_max.min(around.1);
            return;
        }
        debug_assert!(self.ops.is_empty(), "a command logs what it has collected");
        self.atomic.is_open = true;
        self.atomic.events_before = self.noted_events();
        self.atomic.effects_bytes_max = effects_bytes_max.min(self.effects_bytes_max());
    }

    /// Whether a section is under way.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        self.atomic.is_open
    }

    /// Whether the section has written anything.
    #[must_use]
    pub fn atomic_has_written(&self) -> bool {
        let begun = self.atomic.within.last();
        let begun = begun.map_or(OpsEnd::default(), |(begun, _)| begun.ops);
        self.atomic.is_open && self.ops.end() != begun
    }

    /// Why the section cannot be committed any more, if that is so: look after each of its commands.
    #[must_use]
    pub fn atomic_overflow(&self) -> Option<ClientError> {
        let bytes_max = self.atomic.effects_bytes_max;
        let is_over = self.ops.encoded_len() > bytes_max;
        is_over.then_some(ClientError::CommandTooLarge(bytes_max))
    }

    /// Ends the section: appends its record, for which `reply` waits.
    ///
    /// # Errors
    /// [`Keyspace::atomic_overflow`]: nothing of it has happened.
    pub fn commit_atomic(&mut self, reply: &mut Reply<'_>) -> Result<(), ClientError> {
        if let Some(error) = self.atomic_overflow() {
            self.roll_back_atomic();
            return Err(error);
        }
        if let Some((_, bytes_max)) = self.atomic.within.pop() {
            self.atomic.effects_bytes_max = bytes_max;
            return Ok(());
        }
        let (mut changes, mut keys) = self.end_atomic();
        if !self.ops.is_empty() {
            let lsn = self.log.append(self.ops.finish());
            self.ops.clear();
            let is_flush = |change: &Change| matches!(change.before, Before::Table(_));
            if changes.iter().any(is_flush) {
                self.watched.all_removed();
            }
            for change in changes.drain(..) {
                self.commit_change(change, lsn);
            }
            reply.wait_for(lsn);
        }
        changes.clear();
        changes.shrink_to(CHANGES_KEPT);
        keys.clear();
        keys.shrink_to(BUFFER_KEPT_BYTES);
        (self.atomic.changes, self.atomic.keys) = (changes, keys);
        Ok(())
    }

    fn commit_change(&mut self, change: Change, lsn: Lsn) {
        if let Some(partition) = self.partition_mut(change.partition) {
            partition.written(lsn);
        }
        match change.before {
            Before::Table(table) => {
                self.discarded.push(*table);
                self.last_writes.set_all(lsn);
            }
            _ if change.is_write => self.note_write(change.hash, lsn),
            _ => self.note_lsn(change.hash, lsn),
        }
    }

    /// Ends the section as if it had never begun.
    pub fn roll_back_atomic(&mut self) {
        if let Some((begun, bytes_max)) = self.atomic.within.pop() {
            self.atomic.effects_bytes_max = bytes_max;
            return self.roll_back_to(begun);
        }
        self.roll_back_to(Savepoint::default());
        self.end_atomic();
    }

    /// This moment of the section.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            changes: self.atomic.changes.len(),
            ops: self.ops.end(),
            events: self.noted_events(),
        }
    }

    /// Takes back what has happened in the section since then; it goes on.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) {
        let (mut changes, mut keys) = self.end_atomic();
        let taken_back = changes.drain(savepoint.changes.min(changes.len())..);
        for change in taken_back.rev() {
            self.take_back(change, &mut keys);
        }
        let mut ops = std::mem::take(&mut self.ops);
        for (meta, _) in ops.since(savepoint.ops) {
            if let Some(partition) = self.partition_mut(meta.partition)
                && meta.seq <= partition.seq()
            {
                partition.take_back_seq(meta.seq - 1);
            }
        }
        ops.cut(savepoint.ops);
        self.forget_events(savepoint.events.max(self.atomic.events_before));
        self.ops = ops;
        (self.atomic.changes, self.atomic.keys) = (changes, keys);
        self.atomic.is_open = true;
    }

    /// From now on what happens is of no section; answers what this one has left here.
    fn end_atomic(&mut self) -> (Vec<Change>, Vec<u8>) {
        assert!(self.atomic.is_open, "a section is under way");
        self.atomic.is_open = false;
        let Atomic { changes, keys, .. } = &mut self.atomic;
        (std::mem::take(changes), std::mem::take(keys))
    }

    /// Takes back the newest change that was not taken back yet.
    fn take_back(&mut self, change: Change, keys: &mut Vec<u8>) {
        let Change {
            partition,
            hash,
            before,
            ..
        } = change;
        let key = |bytes| Key {
            bytes,
            hash,
            partition,
        };
        let mut last = |len: usize| keys.split_off(keys.len() - len);
        match before {
            Before::Absent(len) => self.remove(&key(&last(len))),
            Before::Entry(taken) => {
                let entry = taken.entry();
                self.insert(&key(entry.key), entry.value, entry.expire_at_ms);
            }
            Before::Expiry(len, at_ms) => self.change_expiry(&key(&last(len)), at_ms),
            Before::Table(table) => {
                self.others.touch(partition);
                self.keys += table.len() as u64;
                self.note_expiry(table.expires_from_ms());
                if let Some(copy) = self.partition_mut(partition) {
                    debug_assert!(copy.table.is_empty(), "what was set since is gone");
                    if let Some(outgoing) = &mut copy.outgoing {
                        outgoing.unflushed();
                    }
                    copy.table = *table;
                }
            }
        }
    }

    /// What the operations of one record may take.
    pub(super) fn effects_bytes_max(&self) -> usize {
        self.log.max_record_bytes().min(RECORD_BYTES_MAX) - RECORD_HEADER_BYTES
    }

    #[inline(never)]
    pub(super) fn put_in_section(&mut self, key: &Key<'_>, value: &[u8], expire_at_ms: u64) {
        let meta = self.home(key).next_meta();
        self.ops.put(meta, key.bytes, value, expire_at_ms);
        self.insert_in_section(key, value, expire_at_ms);
    }

    #[inline(never)]
    pub(super) fn insert_in_section(&mut self, key: &Key<'_>, value: &[u8], expire_at_ms: u64) {
        self.touch_database(key);
        let Partition {
            table, outgoing, ..
        } = self.home(key);
        if let Some(outgoing) = outgoing {
            outgoing.put(table, key.hash, key.bytes, value, expire_at_ms);
        }
        let before = match table.exchange(key.hash, key.bytes, value, expire_at_ms) {
            Some(taken) => Before::Entry(taken),
            None => {
                self.keys += 1;
                Before::Absent(key.bytes.len())
            }
        };
        self.note_expiry(expire_at_ms);
        self.atomic.changed(key, before);
    }

    #[inline(never)]
    pub(super) fn remove_in_section(&mut self, key: &Key<'_>) {
        self.touch_database(key);
        let Partition {
            table, outgoing, ..
        } = self.home(key);
        if let Some(outgoing) = outgoing {
            outgoing.delete(table, key.hash, key.bytes);
        }
        if let Some(taken) = table.take(key.hash, key.bytes) {
            self.keys -= 1;
            self.atomic.changed(key, Before::Entry(taken));
        }
    }

    #[inline(never)]
    pub(super) fn set_expiry_in_section(&mut self, key: &Key<'_>, expire_at_ms: u64) {
        let home = self.home(key);
        let meta = home.next_meta();
        let old = home.table.get(key.hash, key.bytes);
        let before = old.map(|old| Before::Expiry(key.bytes.len(), old.expire_at_ms));
        self.ops.set_expiry(meta, key.bytes, expire_at_ms);
        self.change_expiry(key, expire_at_ms);
        if let Some(before) = before {
            self.atomic.changed(key, before);
        }
    }

    /// [`Keyspace::flush`] of one partition, whose record is appended with others.
    pub(super) fn flush_in_section(&mut self, id: PartitionId) {
        let Some(partition) = self.partition_mut(id).filter(|p| !p.table.is_empty()) else {
            return;
        };
        let meta = partition.next_meta();
        if let Some(outgoing) = &mut partition.outgoing {
            outgoing.flushed();
        }
        let table = std::mem::take(&mut partition.table);
        self.keys -= table.len() as u64;
        self.ops.flush(meta);
        self.atomic.changes.push(Change {
            partition: id,
            hash: 0,
            before: Before::Table(Box::new(table)),
            is_write: true,
        });
    }
}
