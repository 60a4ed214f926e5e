//! The data of one shard: its partitions' tables and the log that makes every change durable.
//!
//! A write changes the table and appends one record with all of the command's effects; a read
//! notes the last write it depends on. Both leave the LSN to wait for in [`Reply::gate`], so that a
//! client never sees what a crash could take back. Nothing here performs I/O.

pub mod atomic;
mod bitfield;
mod bitop;
pub mod copies;
pub mod databases;
pub(crate) mod dump;
pub mod events;
mod execute;
mod expiry;
pub mod hot;
mod incoming;
pub mod large_replies;
mod last_writes;
mod lcs;
mod lifetimes;
pub mod load;
mod long_double;
mod object;
mod outgoing;
pub mod partition;
mod ranges;
pub mod replay;
mod strings;
mod tracked;
mod walk;
mod watched;

pub use expiry::Sweep;
pub use incoming::{AfterBreak, StagingError};
pub use outgoing::OutgoingError;
pub use partition::Partition;
pub use tracked::{Invalid, InvalidKey, TrackedLimits};
pub use walk::{Drawn, IsPart, ScanCursor, Walk, WalkFilter};

use ephesus_wal::LogWriter;
use ephesus_wire::limits::ONE_REPLY_BYTES_MAX;
use ephesus_wire::record::{self, OpsBuilder};
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::slot::{Partitioning, slot_of};
use ephesus_wire::{Epoch, Lsn, PartitionId, Slot};

use crate::command::parse::Located;
use crate::planted::{Bug, Planted};
use crate::table::{EntryRef, KeyHasher, Prefetch, Put, Table};
use atomic::Atomic;
use databases::Counted;
use events::{Change, Events};
use hot::HotKeys;
use hot::tracking::Tracking;
use large_replies::ReplyRoom;
use last_writes::LastWrites;
use lifetimes::Lifetimes;
use load::Uses;
use tracked::Tracked;
use watched::Watched;

/// Bytes of a value that are gone over in the time that a byte of input takes.
const VALUE_BYTES_PER_INPUT_BYTE: usize = 16;

/// Expired keys that reads of one turn have removed; the sweep finds the others.
const LAPSED_MAX: usize = 256;

/// A key with everything that is derived from it.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
    pub partition: PartitionId,
}

/// Where a command writes its reply, and what that reply has to wait for.
pub struct Reply<'a> {
    pub out: &'a mut Vec<u8>,
    pub protocol: Protocol,
    /// The reply may be sent once the log has committed this LSN.
    pub gate: Lsn,
}

impl Reply<'_> {
    fn wait_for(&mut self, lsn: Lsn) {
        self.gate = self.gate.max(lsn);
    }
}

/// What the keyspace has counted since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyspaceCounters {
    pub hits: u64,
    pub misses: u64,
    pub expired: u64,
    /// Key and value bytes of all writes.
    pub user_bytes: u64,
    /// Copies that began or ceased to be served, or were wiped.
    pub role_changes: u64,
    /// Bytes of records that streams have brought.
    pub imported_bytes: u64,
}

impl KeyspaceCounters {
    /// Sets to 0 what CONFIG RESETSTAT does.
    pub fn reset(&mut self) {
        (self.hits, self.misses, self.expired) = (0, 0, 0);
    }
}

/// The partitions of one shard.
pub struct Keyspace {
    partitioning: Partitioning,
    /// By partition id; `None` where this shard has no copy.
    partitions: Vec<Option<Box<Partition>>>,
    /// Ids of the partitions that are served, ascending.
    owned: Vec<PartitionId>,
    /// Ids of the partitions that are here and not served, ascending: being filled, or given up.
    unserved: Vec<PartitionId>,
    /// Keys in the tables that are served.
    keys: u64,
    hasher: KeyHasher,
    pub log: LogWriter,
    last_writes: LastWrites,
    ops: OpsBuilder,
    atomic: Atomic,
    watched: Watched,
    tracked: Tracked,
    /// Changes of keys are noted for somebody.
    is_observed: bool,
    /// The node's time in the current turn, Unix milliseconds; never runs backwards.
    now_ms: u64,
    pub counters: KeyspaceCounters,
    lifetimes: Lifetimes,
    /// Longest reply of one command.
    pub reply_bytes_max: usize,
    /// Room for large ones.
    pub room: ReplyRoom,
    /// How many databases clients may select.
    pub databases: u16,
    /// How many keys other databases than 0 have.
    others: Counted,
    /// Tables that a flush took away and that still have to be freed, in slices.
    discarded: Vec<Table>,
    /// Expired keys that a read came across; removed at the end of the turn.
    lapsed: Vec<(PartitionId, Vec<u8>)>,
    /// No key that is served expires earlier, Unix ms, but for what a round of the sweep has passed.
    expires_from_ms: u64,
    /// The round of the sweep that is under way.
    sweep: Option<Sweep>,
    /// What has happened to keys, if somebody wants to know.
    events: Option<Box<Events>>,
    /// What commands have done beside reading their input, in bytes of input that take as long.
    work: usize,
    uses: Uses,
    pub hot: HotKeys,
    /// What HOTKEYS looks at.
    pub tracking: Option<Box<Tracking>>,
    pub(crate) planted: Planted,
}

impl Keyspace {
    /// The keyspace of `partitions`, which are recovered or new; all of what was recovered is durable.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "the copies are of these partitions, which recovery has checked"
    )]
    pub fn new(
        partitioning: Partitioning,
        partitions: Vec<Partition>,
        hasher: KeyHasher,
        log: LogWriter,
        now_ms: u64,
    ) -> Keyspace {
        let mut slots: Vec<Option<Box<Partition>>> = Vec::new();
        slots.resize_with(usize::from(partitioning.count()), || None);
        let served = partitions.iter().filter(|p| p.is_serving());
        let keys = served.map(|p| p.table.len() as u64).sum();
        let ids = |is_serving| {
            let these = partitions.iter().filter(|p| p.is_serving() == is_serving);
            let mut ids: Vec<PartitionId> = these.map(|p| p.id).collect();
            ids.sort_unstable();
            ids
        };
        let (owned, unserved) = (ids(true), ids(false));
        for partition in partitions {
            let place = usize::from(partition.id.0);
            slots[place] = Some(Box::new(partition));
        }
        let seed = hasher.hash(b"hot keys");
        Keyspace {
            partitioning,
            partitions: slots,
            owned,
            unserved,
            keys,
            hasher,
            log,
            last_writes: LastWrites::new(),
            ops: OpsBuilder::new(),
            atomic: Atomic::default(),
            watched: Watched::default(),
            tracked: Tracked::default(),
            is_observed: false,
            now_ms,
            counters: KeyspaceCounters::default(),
            lifetimes: Lifetimes::default(),
            reply_bytes_max: ONE_REPLY_BYTES_MAX,
            room: ReplyRoom::default(),
            databases: databases::DEFAULT,
            others: Counted::new(partitioning.count()),
            discarded: Vec::new(),
            lapsed: Vec::new(),
            expires_from_ms: 0,
            sweep: None,
            events: None,
            work: 0,
            uses: Uses::default(),
            hot: HotKeys::new(seed),
            tracking: None,
            planted: Planted::default(),
        }
    }

    /// Plants a bug that tests have to catch.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: Bug) {
        self.planted = Planted::new(Some(bug));
    }

    /// Sets the time for what follows; an earlier one than before is ignored.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// What was done since this was last asked beside reading input, as bytes of input that take as long.
    #[inline]
    #[must_use]
    pub fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.work)
    }

    /// What [`Keyspace::take_work`] would take.
    #[must_use]
    pub fn work(&self) -> usize {
        self.work
    }

    /// A command has done something else that takes as long as so many bytes of input.
    pub fn add_work(&mut self, bytes: usize) {
        self.work += bytes;
    }

    /// A command has gone over so many bytes of values.
    fn note_work(&mut self, bytes: usize) {
        self.work += bytes / VALUE_BYTES_PER_INPUT_BYTE;
    }

    /// A command has filled so many cells of a table.
    fn note_cells(&mut self, cells: usize) {
        self.work += cells;
    }

    /// Derives partition and hash of a key.
    #[inline]
    #[must_use]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        self.key_at(bytes, self.locate(bytes))
    }

    /// [`Keyspace::key`] when the slot is known already.
    #[inline]
    #[must_use]
    pub fn key_in<'a>(&self, bytes: &'a [u8], slot: Slot) -> Key<'a> {
        let hash = self.hasher.hash(bytes);
        self.key_at(bytes, Located { slot, hash })
    }

    /// [`Keyspace::key`] of a key that was located already.
    #[inline]
    #[must_use]
    pub fn key_at<'a>(&self, bytes: &'a [u8], located: Located) -> Key<'a> {
        Key {
            bytes,
            hash: located.hash,
            partition: self.partitioning.partition_of(located.slot),
        }
    }

    /// Whether this shard serves the partition.
    #[inline]
    #[must_use]
    pub fn owns(&self, partition: PartitionId) -> bool {
        self.served(partition).is_some()
    }

    /// Ids of the partitions that are served, ascending.
    #[must_use]
    pub fn owned(&self) -> &[PartitionId] {
        &self.owned
    }

    /// Ids of the partitions that are here and not served, ascending.
    #[must_use]
    pub fn unserved(&self) -> &[PartitionId] {
        &self.unserved
    }

    /// Begins to serve a copy that is new and empty.
    #[expect(
        clippy::indexing_slicing,
        reason = "copies are begun that the layout has taken"
    )]
    pub fn adopt(&mut self, id: PartitionId, epoch: Epoch) {
        let place = &mut self.partitions[usize::from(id.0)];
        assert!(place.is_none(), "one copy of a partition at a time");
        *place = Some(Box::new(Partition::new(id, epoch)));
        insert_sorted(&mut self.owned, id);
        self.sweep_anew();
    }

    /// The copy of a partition, served or not.
    #[must_use]
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(usize::from(id.0))?.as_deref()
    }

    pub fn partition_mut(&mut self, id: PartitionId) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::from(id.0))?.as_deref_mut()
    }

    /// All copies, served or not: what memory, log and images are about.
    pub fn partitions(&self) -> impl Iterator<Item = &Partition> {
        let all = self.owned.iter().chain(&self.unserved);
        all.filter_map(|&id| self.partition(id))
    }

    /// The copy of a partition if clients may see it.
    #[must_use]
    pub fn served(&self, id: PartitionId) -> Option<&Partition> {
        self.partition(id).filter(|p| p.is_serving())
    }

    /// The copies that clients see.
    pub fn all_served(&self) -> impl Iterator<Item = &Partition> {
        self.owned.iter().filter_map(|&id| self.partition(id))
    }

    /// Keys that are served, expired ones that were not removed yet included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.keys
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slot and hash of a key.
    #[inline]
    #[must_use]
    pub fn locate(&self, key: &[u8]) -> Located {
        Located {
            slot: slot_of(key),
            hash: self.hasher.hash(key),
        }
    }

    /// Asks the CPU to load what a command on a key will look at, step by step as [`Table::prefetch`].
    #[inline]
    pub fn prefetch(&self, key: Located, step: Prefetch) {
        if step == Prefetch::Table && !self.log.publishes_all() {
            self.last_writes.prefetch(key.hash);
        }
        if let Some(partition) = self.partition(self.partitioning.partition_of(key.slot)) {
            partition.prefetch(key.hash, step);
        }
    }

    /// The partition of a key that the caller has routed here.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        clippy::expect_used,
        reason = "a command executes only on the shard that owns its keys"
    )]
    fn home(&mut self, key: &Key<'_>) -> &mut Partition {
        self.partitions[usize::from(key.partition.0)]
            .as_deref_mut()
            .expect("a command executes only on the shard that owns its keys")
    }

    /// What a reply has to wait for that depends on what is or is not under a key.
    #[inline]
    fn last_write(&self, key: &Key<'_>) -> Lsn {
        self.last_writes.get(key.hash, self.log.committed())
    }

    /// The entry of a key, removing it first if it has expired.
    ///
    /// The reply waits for the last write of the key, also when it is absent.
    #[inline]
    fn look_up(&mut self, key: &Key<'_>, reply: &mut Reply<'_>) -> Option<EntryRef<'_>> {
        reply.wait_for(self.last_write(key));
        let now_ms = self.now_ms;
        let expire_at_ms = self.home(key).table.get(key.hash, key.bytes)?.expire_at_ms;
        if expire_at_ms != 0 && expire_at_ms <= now_ms {
            self.expire(key);
            return None;
        }
        self.home(key).table.get(key.hash, key.bytes)
    }

    /// [`Keyspace::look_up`] for a read: counts hit or miss.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        clippy::expect_used,
        reason = "a command executes only on the shard that owns its keys"
    )]
    fn read(&mut self, key: &Key<'_>, reply: &mut Reply<'_>) -> Option<EntryRef<'_>> {
        let now_ms = self.now_ms;
        // Behind a log that is committed to its end nothing has to wait: one look less per read.
        if self.log.committed() < self.log.appended() {
            reply.wait_for(self.last_write(key));
        }
        let home = self.partitions[usize::from(key.partition.0)]
            .as_deref()
            .expect("a command executes only on the shard that owns its keys");
        match home.table.get(key.hash, key.bytes) {
            Some(entry) if entry.expire_at_ms == 0 || entry.expire_at_ms > now_ms => {
                self.counters.hits += 1;
                Some(entry)
            }
            found => {
                self.counters.misses += 1;
                if let Some(events) = &mut self.events {
                    events.missed(key.bytes);
                }
                if found.is_some() {
                    if self.lapsed.len() < LAPSED_MAX {
                        self.lapsed.push((key.partition, key.bytes.to_vec()));
                    }
                    // Who has read it before; others find nothing from now on.
                    if self.is_observed {
                        self.tracked.changed(&self.hasher, key, None);
                    }
                }
                None
            }
        }
    }

    /// Removes the expired keys that reads have come across, unless the log has no `room`: the sweep finds them later.
    pub fn remove_lapsed(&mut self, room: bool) {
        debug_assert!(!self.atomic.is_open(), "a section ends within its turn");
        self.tracked.is_silent = true;
        for (partition, bytes) in std::mem::take(&mut self.lapsed) {
            if !room || !self.may_expire(partition) {
                continue;
            }
            let key = Key {
                bytes: &bytes,
                hash: self.hasher.hash(&bytes),
                partition,
            };
            let entry = self.home(&key).table.get(key.hash, key.bytes);
            let expire_at_ms = entry.map_or(0, |entry| entry.expire_at_ms);
            if expire_at_ms != 0 && expire_at_ms <= self.now_ms {
                self.expire(&key);
            }
        }
        self.tracked.is_silent = false;
    }

    /// Logs and applies the removal of an expired key.
    fn expire(&mut self, key: &Key<'_>) {
        self.log_delete(key);
        self.expire_unlogged(key);
    }

    /// Removes an expired key, also from what moves. A replay brings it back, and nobody sees it: time does not go back.
    fn expire_unlogged(&mut self, key: &Key<'_>) {
        if self.is_observed {
            self.note_change(key, Change::Expired);
        }
        self.remove_entry(key);
        if self.atomic.is_open() {
            self.atomic.has_expired();
        }
        self.counters.expired += 1;
    }

    #[inline]
    #[expect(
        clippy::indexing_slicing,
        clippy::expect_used,
        reason = "a command executes only on the shard that owns its keys"
    )]
    fn put(&mut self, key: &Key<'_>, value: &[u8], expire_at_ms: u64, reply: &mut Reply<'_>) {
        if self.is_observed {
            self.note_put(key, expire_at_ms);
        }
        self.counters.user_bytes += (key.bytes.len() + value.len()) as u64;
        if self.atomic.is_open() {
            return self.put_in_section(key, value, expire_at_ms);
        }
        self.touch_database(key);
        let partition = self.partitions[usize::from(key.partition.0)]
            .as_deref_mut()
            .expect("a command executes only on the shard that owns its keys");
        let meta = partition.next_meta();
        let lsn = self
            .log
            .append_with(record::put_len(key.bytes, value), |buf| {
                record::write_put(buf, meta, key.bytes, value, expire_at_ms);
            });
        partition.written(lsn);
        if let Some(outgoing) = &mut partition.outgoing {
            outgoing.put(&partition.table, key.hash, key.bytes, value, expire_at_ms);
        }
        let put = partition
            .table
            .put(key.hash, key.bytes, value, expire_at_ms);
        self.keys += u64::from(put == Put::Inserted);
        self.note_expiry(expire_at_ms);
        self.note_write(key.hash, lsn);
        reply.wait_for(lsn);
    }

    /// Notes the last write of a key, for replies that will depend on it and for those who watch it.
    #[inline]
    fn note_write(&mut self, hash: u64, lsn: Lsn) {
        if !self.watched.is_empty() {
            self.watched.key_changed(hash);
        }
        self.note_lsn(hash, lsn);
    }

    /// Notes the last record about a key.
    #[inline]
    fn note_lsn(&mut self, hash: u64, lsn: Lsn) {
        if self.log.publishes_all() {
            self.last_writes.set_all(lsn);
        } else {
            self.last_writes.set(hash, lsn);
        }
    }

    fn delete(&mut self, key: &Key<'_>, reply: &mut Reply<'_>) {
        let lsn = self.delete_one(key);
        reply.wait_for(lsn);
    }

    /// Removes a key that has not expired.
    fn delete_one(&mut self, key: &Key<'_>) -> Lsn {
        if self.is_observed {
            self.note_change(key, Change::Removed);
        }
        self.delete_without_event(key)
    }

    /// The same as a part of a flush, of which nobody is told key by key.
    fn delete_without_event(&mut self, key: &Key<'_>) -> Lsn {
        let lsn = self.log_delete(key);
        self.remove_entry(key);
        if !self.watched.is_empty() && !self.atomic.is_open() {
            self.watched.key_changed(key.hash);
        }
        lsn
    }

    /// Sets a key whose record is logged with others.
    fn insert(&mut self, key: &Key<'_>, value: &[u8], expire_at_ms: u64) {
        if self.is_observed {
            self.note_put(key, expire_at_ms);
        }
        if self.atomic.is_open() {
            return self.insert_in_section(key, value, expire_at_ms);
        }
        self.touch_database(key);
        let Partition {
            table, outgoing, ..
        } = self.home(key);
        if let Some(outgoing) = outgoing {
            outgoing.put(table, key.hash, key.bytes, value, expire_at_ms);
        }
        let put = table.put(key.hash, key.bytes, value, expire_at_ms);
        self.keys += u64::from(put == Put::Inserted);
        self.note_expiry(expire_at_ms);
    }

    /// Removes a key whose removal is logged.
    fn remove(&mut self, key: &Key<'_>) {
        if self.is_observed {
            self.note_change(key, Change::Removed);
        }
        self.remove_entry(key);
    }

    fn remove_entry(&mut self, key: &Key<'_>) {
        if self.atomic.is_open() {
            return self.remove_in_section(key);
        }
        self.touch_database(key);
        let Partition {
            table, outgoing, ..
        } = self.home(key);
        if let Some(outgoing) = outgoing {
            outgoing.delete(table, key.hash, key.bytes);
        }
        let removed = table.remove(key.hash, key.bytes);
        self.keys -= u64::from(removed);
    }

    /// Answers the record's LSN; in a section its end has one.
    fn log_delete(&mut self, key: &Key<'_>) -> Lsn {
        self.counters.user_bytes += key.bytes.len() as u64;
        let meta = self.home(key).next_meta();
        if self.atomic.is_open() {
            self.ops.delete(meta, key.bytes);
            return Lsn::ZERO;
        }
        let lsn = self.log.append_with(record::delete_len(key.bytes), |buf| {
            record::write_delete(buf, meta, key.bytes);
        });
        self.home(key).written(lsn);
        self.note_lsn(key.hash, lsn);
        lsn
    }

    fn set_expiry(&mut self, key: &Key<'_>, expire_at_ms: u64, reply: &mut Reply<'_>) {
        if self.is_observed {
            let expires = expire_at_ms != 0;
            self.note_change(key, Change::Expiry { expires });
        }
        self.counters.user_bytes += key.bytes.len() as u64;
        if self.atomic.is_open() {
            return self.set_expiry_in_section(key, expire_at_ms);
        }
        let meta = self.home(key).next_meta();
        let lsn = self
            .log
            .append_with(record::set_expiry_len(key.bytes), |buf| {
                record::write_set_expiry(buf, meta, key.bytes, expire_at_ms);
            });
        self.home(key).written(lsn);
        self.change_expiry(key, expire_at_ms);
        self.note_write(key.hash, lsn);
        reply.wait_for(lsn);
    }

    /// Changes when a key expires, which is logged already.
    fn change_expiry(&mut self, key: &Key<'_>, expire_at_ms: u64) {
        self.touch_database(key);
        let Partition {
            table, outgoing, ..
        } = self.home(key);
        if let Some(outgoing) = outgoing {
            outgoing.set_expiry(table, key.hash, key.bytes, expire_at_ms);
        }
        table.set_expiry(key.hash, key.bytes, expire_at_ms);
        self.note_expiry(expire_at_ms);
    }

    /// Appends the collected operations as one record; in a section they wait for its end.
    fn log_ops(&mut self, touched: &[Key<'_>], reply: &mut Reply<'_>) {
        let user_bytes = touched.iter().map(|key| key.bytes.len() as u64);
        self.counters.user_bytes += user_bytes.sum::<u64>();
        if self.atomic.is_open() {
            return;
        }
        let lsn = self.log.append(self.ops.finish());
        self.ops.clear();
        for key in touched {
            self.home(key).written(lsn);
            self.note_write(key.hash, lsn);
        }
        reply.wait_for(lsn);
    }

    /// Removes all keys that are served, atomically; their memory is given back by [`Keyspace::free_slice`].
    pub fn flush(&mut self, reply: &mut Reply<'_>) {
        self.invalidate_all();
        let owned = std::mem::take(&mut self.owned);
        owned.iter().for_each(|&id| self.others.touch(id));
        if self.atomic.is_open() {
            owned.iter().for_each(|&id| self.flush_in_section(id));
            self.owned = owned;
            return reply.wait_for(self.log.appended());
        }
        for &id in &owned {
            let place = self.partitions.get_mut(usize::from(id.0));
            if let Some(partition) = place.and_then(Option::as_deref_mut)
                && !partition.table.is_empty()
            {
                let meta = partition.next_meta();
                self.ops.flush(meta);
                if let Some(outgoing) = &mut partition.outgoing {
                    outgoing.flushed();
                }
                self.discarded.push(std::mem::take(&mut partition.table));
            }
        }
        if self.planted.has(Bug::FlushNotLogged) {
            self.ops.clear();
        }
        if !self.ops.is_empty() {
            let lsn = self.log.append(self.ops.finish());
            self.ops.clear();
            for &id in &owned {
                if let Some(partition) = self.partition_mut(id) {
                    partition.written(lsn);
                }
            }
            self.last_writes.set_all(lsn);
            self.watched.all_removed();
            self.keys = 0;
            reply.wait_for(lsn);
        } else {
            reply.wait_for(self.log.appended());
        }
        self.owned = owned;
    }

    /// Frees up to `budget` entries of flushed tables, and of what was tracked; false when nothing is left to free.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        let has_tracked = self.free_tracked_slice(budget);
        if let Some(table) = self.discarded.last_mut()
            && table.clear_slice(budget)
        {
            self.discarded.pop();
        }
        has_tracked || !self.discarded.is_empty()
    }

    /// Bytes the allocator handed out for tables, flushed ones that are not freed yet included.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.partitions()
            .map(|p| p.table.memory_bytes())
            .sum::<u64>()
            + self.discarded.iter().map(Table::memory_bytes).sum::<u64>()
    }

    /// The first LSN that the image of some partition does not cover, among those that `may` be imaged
    /// and of which no image is being written.
    #[must_use]
    pub fn oldest_idle_pin(&self, may: impl Fn(PartitionId) -> bool) -> Option<(Lsn, PartitionId)> {
        let idle = self.partitions().filter(|p| p.may_be_imaged() && may(p.id));
        idle.filter_map(|p| Some((p.pin()?, p.id))).min()
    }

    /// The first LSN that recovery needs for some partition: the log keeps it.
    #[must_use]
    pub fn oldest_pin(&self) -> Option<(Lsn, PartitionId)> {
        let pins = |p: &Partition| Some((p.pin().into_iter().chain(p.kept_from()).min()?, p.id));
        self.partitions().filter_map(pins).min()
    }
}

fn insert_sorted(ids: &mut Vec<PartitionId>, id: PartitionId) {
    let at = ids.partition_point(|&other| other < id);
    ids.insert(at, id);
}

fn remove_sorted(ids: &mut Vec<PartitionId>, id: PartitionId) {
    if let Ok(at) = ids.binary_search(&id) {
        ids.remove(at);
    }
}

#[cfg(test)]
pub(crate) mod tests;
