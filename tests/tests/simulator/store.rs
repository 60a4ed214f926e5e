//! What a node stores of one copy: the engine's own keyspace with its ends of a migration, over a log whose writes are
//! durable at once and are replayed by the next start. Each copy has a keyspace of its own, as if it were on a shard
//! of its own.

use ephesus_engine::command::lookup;
use ephesus_engine::keyspace::replay::{Rebuild, Replay};
use ephesus_engine::keyspace::{AfterBreak, Keyspace, Partition, Reply};
use ephesus_engine::migration::{Credit, Outbound, SourceError, Stage, TargetError};
use ephesus_engine::planted::Bug;
use ephesus_engine::table::KeyHasher;
use ephesus_wal::tape::{Records, take_down};
use ephesus_wal::{FaultDisk, LogId, LogOptions, LogWriter, open_writer, recover};
use ephesus_wire::record::Source;
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::stream::{Final, Held};
use ephesus_wire::{Epoch, Lsn, MigrationId, PartitionId, Partitioning, slot_of};
use futures_lite::future::block_on;

use crate::migration::{KEYS, Message, Write};

/// The only partition of a keyspace.
const PARTITION: PartitionId = PartitionId(0);

/// Keys that are never written again: a walk asks whether to go on after about 32 entries.
const OTHERS: u16 = 150;

/// So little that walks wait for acknowledgements.
const CREDIT: Credit = Credit {
    in_flight_bytes: 3_000,
    queued_bytes: 3_000,
};

pub(crate) struct Store {
    keyspace: Keyspace,
    hasher: KeyHasher,
    /// What the log has.
    records: Records,
    /// What the layout says: the copy's epoch, and whom it comes from if it is not served.
    epoch: Epoch,
    source: Option<Source>,
    bug: Option<Bug>,
}

impl Store {
    fn new(epoch: Epoch, bug: Option<Bug>) -> Store {
        let hasher = KeyHasher::with_seeds([1, 2, 3, 4]);
        let mut store = Store {
            keyspace: keyspace(Vec::new(), &hasher, Lsn::ZERO),
            hasher,
            records: Vec::new(),
            epoch,
            source: None,
            bug,
        };
        store.plant();
        store
    }

    fn plant(&mut self) {
        if let Some(bug) = self.bug {
            self.keyspace.plant(bug);
        }
    }

    /// A copy that is served, with nothing that a client has written.
    pub(crate) fn served(epoch: Epoch, bug: Option<Bug>) -> Store {
        let mut store = Store::new(epoch, bug);
        store.keyspace.adopt(PARTITION, epoch);
        for number in 0..OTHERS {
            let name = other(number);
            store.execute(&[b"SET", &name, &name]);
        }
        store.commit();
        store
    }

    /// A copy that a migration fills.
    pub(crate) fn staging(epoch: Epoch, source: Source, bug: Option<Bug>) -> Result<Store, String> {
        let mut store = Store::new(epoch, bug);
        store.begin_filling(epoch, source)?;
        Ok(store)
    }

    /// Begins to fill what an earlier migration has left.
    pub(crate) fn begin_filling(&mut self, epoch: Epoch, source: Source) -> Result<(), String> {
        let begun = self.keyspace.begin_incoming(PARTITION, epoch, source);
        begun.map_err(|error| error.to_string())?;
        (self.epoch, self.source) = (epoch, Some(source));
        self.commit();
        Ok(())
    }

    /// A client's write.
    pub(crate) fn write(&mut self, write: Write) {
        let name = name(write.key);
        match write.value {
            Some(value) => self.execute(&[b"SET", &name, value.to_string().as_bytes()]),
            None => self.execute(&[b"DEL", &name]),
        }
        self.commit();
    }

    fn execute(&mut self, args: &[&[u8]]) {
        let spec = lookup(args[0]).expect("a command");
        let mut out = Vec::new();
        let mut reply = Reply {
            out: &mut out,
            protocol: Protocol::Resp2,
            gate: Lsn::ZERO,
        };
        let slot = slot_of(args[1]);
        let executed = self.keyspace.execute(spec, args, slot, &mut reply);
        executed.expect("a valid command");
    }

    fn copy(&self) -> Option<&Partition> {
        self.keyspace.partition(PARTITION)
    }

    fn find(&self, key: &[u8]) -> Option<&[u8]> {
        let found = self.copy()?.table.get(self.hasher.hash(key), key)?;
        Some(found.value)
    }

    /// What a client reads.
    pub(crate) fn get(&self, key: u8) -> Option<u64> {
        let value = self.find(&name(key))?;
        let text = std::str::from_utf8(value).expect("a number");
        Some(text.parse().expect("a number"))
    }

    /// Whether all that nobody writes is there, and nothing but what clients may have written.
    pub(crate) fn is_whole(&self) -> bool {
        let others = (0..OTHERS).filter(|number| {
            let name = other(*number);
            self.find(&name) == Some(&name)
        });
        let written = (0..KEYS as u8).filter(|key| self.get(*key).is_some());
        let found = self.copy().map_or(0, |copy| copy.table.len());
        others.count() == usize::from(OTHERS) && found == usize::from(OTHERS) + written.count()
    }

    /// The migration that it moves away by.
    pub(crate) fn moves_by(&self) -> Option<MigrationId> {
        Some(self.copy()?.outgoing()?.migration)
    }

    pub(crate) fn stage(&self) -> Option<Stage> {
        Some(self.copy()?.outgoing()?.stage())
    }

    pub(crate) fn begin_move(&mut self, id: MigrationId, epoch: Epoch) -> Result<(), String> {
        let begun = self.keyspace.begin_outgoing(PARTITION, id, epoch, CREDIT);
        begun.map_err(|error| error.to_string())
    }

    /// Walks so many steps of about 32 entries.
    pub(crate) fn walk(&mut self, steps: u64) {
        let mut left = steps;
        self.keyspace.outgoing_slice(PARTITION, || {
            left -= 1;
            left > 0
        });
    }

    /// What may be sent now.
    pub(crate) fn messages(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        if let Some(outgoing) = self.keyspace.outgoing_mut(PARTITION) {
            while let Some(message) = outgoing.next_message(false) {
                messages.push(match message {
                    Outbound::Data(records) => Message::Data(records.bytes.to_vec()),
                    Outbound::Final(last) => Message::Final(last),
                });
            }
        }
        messages
    }

    pub(crate) fn acknowledged(&mut self, seq: u64) -> Result<(), SourceError> {
        let outgoing = self.keyspace.outgoing_mut(PARTITION);
        outgoing.map_or(Ok(()), |outgoing| outgoing.acknowledged(seq))
    }

    /// Ends the stream if all of it was walked: there may be no more writes.
    pub(crate) fn finish(&mut self) -> Result<bool, SourceError> {
        self.keyspace.try_finish(PARTITION, usize::MAX)
    }

    /// The target says that it holds this durably.
    pub(crate) fn confirm(&mut self, found: Held) -> Result<(), SourceError> {
        let outgoing = self.keyspace.outgoing_mut(PARTITION);
        outgoing.map_or(Ok(()), |outgoing| outgoing.prepared(found))
    }

    /// It does not move any more.
    pub(crate) fn end_move(&mut self) {
        self.keyspace.end_outgoing(PARTITION);
    }

    /// It belongs to another node now.
    pub(crate) fn give_up(mut self) {
        self.keyspace.give_up(PARTITION);
        self.commit();
    }

    pub(crate) fn import(&mut self, records: &[u8]) -> Result<(), TargetError> {
        let taken = self.keyspace.import(PARTITION, records, 0, || true)?;
        assert_eq!(taken, records.len(), "nothing ends it early");
        self.commit();
        Ok(())
    }

    /// What the source may be told that the log has, if that is news.
    pub(crate) fn acknowledgement(&mut self) -> Option<u64> {
        let durable = self.keyspace.log.durable();
        self.keyspace.incoming_mut(PARTITION)?.acknowledge(durable)
    }

    pub(crate) fn prepare(&mut self, last: &Final) -> Result<Option<Held>, TargetError> {
        self.keyspace.prepare(PARTITION, last)?;
        self.commit();
        let durable = self.keyspace.log.durable();
        let incoming = self.keyspace.incoming_mut(PARTITION);
        Ok(incoming.and_then(|incoming| incoming.confirmed(durable)))
    }

    pub(crate) fn is_prepared(&self) -> bool {
        self.copy().is_some_and(Partition::is_prepared)
    }

    /// Its stream is over; whether anything is to be kept.
    pub(crate) fn stream_broken(&mut self) -> bool {
        let after = self.keyspace.stream_broken(PARTITION);
        self.commit();
        let is_empty = self.copy().is_none_or(|copy| copy.table.is_empty());
        matches!(after, AfterBreak::Kept(_)) || !is_empty
    }

    /// By the coordinator's word; an unprepared one was wiped before.
    pub(crate) fn wipe(&mut self) {
        self.keyspace.wipe(PARTITION);
        self.commit();
    }

    /// Begins to serve it, by the coordinator's word.
    pub(crate) fn activate(&mut self) -> bool {
        let is_served = self.keyspace.activate(PARTITION).is_some();
        self.commit();
        self.source = None;
        is_served
    }

    /// The process has ended, and another one replays the log.
    pub(crate) fn restart(&mut self) {
        let rebuild = match self.source {
            Some(source) => Rebuild::staging(PARTITION, self.epoch, source),
            None => Rebuild::new(PARTITION, self.epoch),
        };
        let mut replay = Replay::new(self.hasher.clone(), 1, vec![rebuild]).skipping_others();
        for (lsn, record) in &self.records {
            replay.record(*lsn, record).expect("a good record");
        }
        let copies = replay.finish().expect("dense sequences");
        let last = self.records.last().map_or(Lsn::ZERO, |(lsn, _)| *lsn);
        self.keyspace = keyspace(copies, &self.hasher, last);
        self.plant();
    }

    /// Everything that the log wants written is durable.
    fn commit(&mut self) {
        take_down(&mut self.keyspace.log, &mut self.records);
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store(epoch {}, {:?})", self.epoch, self.source)
    }
}

fn name(key: u8) -> Vec<u8> {
    format!("key{key}").into_bytes()
}

fn other(number: u16) -> Vec<u8> {
    format!("another one, which is longer: {number}").into_bytes()
}

fn keyspace(copies: Vec<Partition>, hasher: &KeyHasher, last: Lsn) -> Keyspace {
    let partitioning = Partitioning::new(1).expect("a valid number");
    Keyspace::new(
        partitioning,
        copies,
        hasher.clone(),
        log(last),
        1_700_000_000_000,
    )
}

/// A log that goes on behind `last`.
fn log(last: Lsn) -> LogWriter {
    let options = LogOptions {
        segment_bytes: 64 << 10,
        group_bytes_max: 32 << 10,
        ..LogOptions::new(LogId([9; 16]))
    };
    let disk = FaultDisk::new(1);
    let opened = block_on(async {
        let recovered = recover(&disk, &options, Lsn::ZERO, &mut |_, _| Ok(())).await?;
        open_writer(&disk, &options, &recovered, last, 0).await
    });
    opened.expect("a disk without faults").writer
}
