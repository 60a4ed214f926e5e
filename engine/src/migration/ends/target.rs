//! The target's end: a staging copy that is filled by a stream and not served.
//!
//! ```text
//! FROM        TO          [by]                    logged         lost when the stream breaks
//! -           Receiving   [begin_incoming]        Created        what was received
//! Receiving   Receiving   [import]                as received    what was received
//! Receiving   Broken      [import, prepare]       -              what was received: to be wiped
//! Receiving   Prepared    [prepare]               Prepared       nothing
//! Receiving,
//!   Broken    Wiped       [stream_broken]         StagingWiped   nothing is left
//! any         Wiped       [wipe]                  StagingWiped   the coordinator aborted the move
//! Wiped       Receiving   [begin_incoming]        Created        what was received
//! Prepared    (served)    [activate]              Activated      -
//! ```
//!
//! After a crash replay finds the same states; `Receiving` is then `Broken`, since its stream is gone.
//! *Invariant:* a prepared copy is wiped only when the table says aborted, never by a break or a restart; one that is not
//! prepared is wiped by either.
//!
//! Nothing here expires: the source logs and sends the removal of what has expired.

use std::collections::VecDeque;

use ephesus_wal::LogWriter;
use ephesus_wire::block::{self, Assembler};
use ephesus_wire::digest::Digest;
use ephesus_wire::record::{Prepared, Record, RecordMeta, Source};
use ephesus_wire::stream::{Contents, Final, Records};
use ephesus_wire::{Database, Lsn, WireError};

use crate::keyspace::Partition;
use crate::table::{KeyHasher, Prefetch, Put, Table};

/// How far the time of a source may be ahead of this node's, ms: its keys live so much longer here.
pub const CLOCK_AHEAD_MS_MAX: u64 = 60 * 60 * 1000;

/// How far it may be behind, ms: its keys expire so much earlier here, and are gone.
pub const CLOCK_BEHIND_MS_MAX: u64 = 60 * 1000;

/// Keys that room is made for before they are here: a table of more grows on the way.
const EXPECTED_KEYS_MAX: u64 = 1 << 24;

/// After so many bytes of records an import asks whether to go on: asking means to look at the clock.
const ASK_BYTES: usize = 16 << 10;

/// Why a staging copy cannot be filled by its stream: end the stream with this text, then wipe the copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// There is no staging copy of this partition, or it is not being filled.
    #[error("the copy takes no records")]
    NotReceiving,
    /// The stream has something that no source sends.
    #[error("record {seq} of the stream: {source}")]
    Record { seq: u64, source: WireError },
    /// A record is missing, doubled or of another copy.
    #[error("the stream has {found:?} after record {last} of {expected:?}")]
    Order {
        found: RecordMeta,
        expected: RecordMeta,
        last: u64,
    },
    /// The log of this node takes only smaller records: give both nodes the same `--wal-budget`.
    #[error("a record of {bytes} bytes; this node's log takes at most {max}")]
    TooLarge { bytes: usize, max: usize },
    /// Clients could neither read nor remove them here: give this node as many databases as the source has.
    #[error("there are keys of database {database}, and this node has --databases {databases}")]
    Database { database: Database, databases: u16 },
    /// A bug of the source.
    #[error("record {seq} of the stream brings a key that was sent already")]
    Doubled { seq: u64 },
    /// Something was lost or changed on the way, or is a bug: report this.
    #[error("{found:?} up to record {seq} is here, {expected:?} up to record {last_seq} was sent")]
    Differs {
        found: Contents,
        seq: u64,
        expected: Contents,
        last_seq: u64,
    },
    /// One of the two nodes has a wrong clock, and keys would expire too late: set it right, `--reset-clock`.
    #[error("the source's time is {ahead_ms} ms ahead of this node's (docs/time.md)")]
    ClockAhead { ahead_ms: u64 },
    /// The same, and keys would expire too early.
    #[error("the source's time is {behind_ms} ms behind this node's (docs/time.md)")]
    ClockBehind { behind_ms: u64 },
}

/// Where a staging copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagingState {
    /// Its stream fills it.
    Receiving,
    /// Its stream is lost or has brought something wrong: it has to be wiped.
    Broken,
    /// It is empty and waits for another stream, or to be forgotten.
    Wiped,
    /// It holds everything, once the log is durable up to this LSN.
    Prepared(Contents, Lsn),
}

/// The target's state of one migration.
pub struct Incoming {
    source: Source,
    state: StagingState,
    assembler: Assembler,
    count: u64,
    digest: Digest,
    /// Keys that are to come to each part of the table, about; 0 if nobody knows.
    keys_per_part: usize,
    /// Sequences of records, and where the log has them; not acknowledged yet.
    unacknowledged: VecDeque<(Lsn, u64)>,
}

impl Incoming {
    pub(crate) fn new(source: Source, state: StagingState) -> Incoming {
        Incoming {
            source,
            state,
            assembler: Assembler::new(),
            count: 0,
            digest: Digest::EMPTY,
            keys_per_part: 0,
            unacknowledged: VecDeque::new(),
        }
    }

    /// The migration and where it comes from.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    #[must_use]
    pub fn state(&self) -> StagingState {
        self.state
    }

    pub(crate) fn set_state(&mut self, state: StagingState) {
        self.state = state;
    }

    /// What has arrived so far, or was prepared.
    #[must_use]
    pub fn contents(&self) -> Contents {
        match self.state {
            StagingState::Prepared(contents, _) => contents,
            _ => Contents {
                count: self.count,
                digest: self.digest.to_words(),
            },
        }
    }

    /// Whether an entry has arrived in part: an image that began now would lack what the log behind it
    /// cannot complete.
    #[must_use]
    pub fn is_mid_entry(&self) -> bool {
        !self.assembler.is_complete()
    }

    /// The last sequence that may be acknowledged, if there is a new one, when the log has everything up
    /// to `lsn` as safely as the node promises.
    pub fn acknowledge(&mut self, lsn: Lsn) -> Option<u64> {
        let mut seq = None;
        while let Some(&(at, last)) = self.unacknowledged.front()
            && at <= lsn
        {
            self.unacknowledged.pop_front();
            seq = Some(last);
        }
        seq
    }

    /// What may be confirmed to the source when the log is durable up to `durable`.
    #[must_use]
    pub fn confirmed(&self, durable: Lsn) -> Option<Contents> {
        match self.state {
            StagingState::Prepared(contents, lsn) if lsn <= durable => Some(contents),
            _ => None,
        }
    }

    /// So many keys are to come, about, to a copy that has none yet.
    pub(crate) fn expect_keys(&mut self, to: &mut Staging<'_>, keys: u64) {
        if self.state == StagingState::Receiving && to.copy.table.is_empty() {
            let keys = keys.min(EXPECTED_KEYS_MAX) as usize;
            (to.copy.table, self.keys_per_part) = Table::divided_for(keys);
        }
    }

    /// Takes records of a DATA message's `payload` from byte `from` on, while `more`, which is asked after
    /// every 16 KiB; answers where to go on.
    ///
    /// # Errors
    /// [`TargetError`]: the copy is broken. Nothing was logged that replay refuses.
    pub(crate) fn import(
        &mut self,
        to: &mut Staging<'_>,
        payload: &[u8],
        from: usize,
        mut more: impl FnMut() -> bool,
    ) -> Result<usize, TargetError> {
        if self.state != StagingState::Receiving {
            return Err(TargetError::NotReceiving);
        }
        self.state = StagingState::Broken;
        let mut at = from;
        let mut lsn = None;
        let mut unasked = 0;
        let mut records = Records::new(payload.get(from..).unwrap_or_default());
        let mut next = records.next();
        loop {
            let Some(record) = next else {
                at = payload.len();
                break;
            };
            let seq = to.copy.seq() + 1;
            let (meta, record, bytes) =
                record.map_err(|source| TargetError::Record { seq, source })?;
            next = records.next();
            if let Some(Ok((_, Record::Block(block), _))) = next {
                hint(&to.copy.table, to.hasher, block);
            }
            self.record(to, meta, &record, bytes.len())?;
            let appended = to.log.append(bytes);
            to.copy.set_seq(seq);
            to.copy.written(appended);
            lsn = Some(appended);
            at += bytes.len();
            unasked += bytes.len();
            if unasked >= ASK_BYTES {
                unasked = 0;
                if !more() {
                    break;
                }
            }
        }
        if let Some(lsn) = lsn {
            self.unacknowledged.push_back((lsn, to.copy.seq()));
        }
        self.state = StagingState::Receiving;
        Ok(at)
    }

    /// Checks and applies one record, before it is logged: what is wrong must not be found in a log.
    fn record(
        &mut self,
        to: &mut Staging<'_>,
        meta: RecordMeta,
        record: &Record<'_>,
        len: usize,
    ) -> Result<(), TargetError> {
        let last = to.copy.seq();
        let expected = RecordMeta {
            partition: to.copy.id,
            epoch: to.copy.epoch,
            seq: last + 1,
        };
        if meta != expected {
            return Err(TargetError::Order {
                found: meta,
                expected,
                last,
            });
        }
        let max = to.log.max_record_bytes();
        if len > max {
            return Err(TargetError::TooLarge { bytes: len, max });
        }
        if self.is_mid_entry() && !matches!(record, Record::Block(_)) {
            let source = WireError::Malformed("the rest of an entry is missing");
            return Err(TargetError::Record {
                seq: meta.seq,
                source,
            });
        }
        let table = &mut to.copy.table;
        match *record {
            Record::Block(block) => self.block(table, to.hasher, meta.seq, block)?,
            Record::Put {
                key,
                value,
                expire_at_ms,
            } => {
                let hash = to.hasher.hash(key);
                match table.get(hash, key) {
                    Some(old) => self.digest.sub(key, old.value, old.expire_at_ms),
                    None => self.count += 1,
                }
                self.digest.add(key, value, expire_at_ms);
                table.put_expected(hash, key, value, expire_at_ms, self.keys_per_part);
            }
            Record::Delete { key } => {
                let hash = to.hasher.hash(key);
                if let Some(old) = table.get(hash, key) {
                    self.count -= 1;
                    self.digest.sub(key, old.value, old.expire_at_ms);
                    table.remove(hash, key);
                }
            }
            Record::SetExpiry { key, expire_at_ms } => {
                let hash = to.hasher.hash(key);
                if let Some(old) = table.get(hash, key) {
                    self.digest.sub(key, old.value, old.expire_at_ms);
                    self.digest.add(key, old.value, expire_at_ms);
                    table.set_expiry(hash, key, expire_at_ms);
                }
            }
            Record::Flush => {
                to.discarded.push(std::mem::take(table));
                self.count = 0;
                self.digest = Digest::EMPTY;
            }
            _ => {
                let source = WireError::Malformed("not a record that a stream carries");
                return Err(TargetError::Record {
                    seq: meta.seq,
                    source,
                });
            }
        }
        Ok(())
    }

    /// Adds a block's entries, none of which is here: the walk meets every key once, and what was
    /// captured is behind it.
    fn block(
        &mut self,
        table: &mut Table,
        hasher: &KeyHasher,
        seq: u64,
        block: &[u8],
    ) -> Result<(), TargetError> {
        let Incoming {
            assembler,
            count,
            digest,
            keys_per_part,
            ..
        } = self;
        let mut is_doubled = false;
        let fed = assembler.feed(block, |entry| {
            let hash = hasher.hash(entry.key);
            let (key, value) = (entry.key, entry.value);
            let put = table.put_expected(hash, key, value, entry.expire_at_ms, *keys_per_part);
            is_doubled |= put == Put::Replaced;
            *count += 1;
            digest.add(entry.key, entry.value, entry.expire_at_ms);
        });
        fed.map_err(|source| TargetError::Record { seq, source })?;
        if is_doubled {
            return Err(TargetError::Doubled { seq });
        }
        Ok(())
    }

    /// Compares what is here with what FINAL says, and logs that it is complete.
    ///
    /// # Errors
    /// [`TargetError`]: the copy is broken.
    pub(crate) fn prepare(
        &mut self,
        to: &mut Staging<'_>,
        last: &Final,
        now_ms: u64,
    ) -> Result<Lsn, TargetError> {
        if self.state != StagingState::Receiving {
            return Err(TargetError::NotReceiving);
        }
        self.state = StagingState::Broken;
        let (found, seq) = (self.contents(), to.copy.seq());
        if found != last.contents || seq != last.last_seq || self.is_mid_entry() {
            return Err(TargetError::Differs {
                found,
                seq,
                expected: last.contents,
                last_seq: last.last_seq,
            });
        }
        let ahead_ms = last.clock_ms.saturating_sub(now_ms);
        if ahead_ms > CLOCK_AHEAD_MS_MAX {
            return Err(TargetError::ClockAhead { ahead_ms });
        }
        let behind_ms = now_ms.saturating_sub(last.clock_ms);
        if behind_ms > CLOCK_BEHIND_MS_MAX {
            return Err(TargetError::ClockBehind { behind_ms });
        }
        if to.copy.table.is_empty() {
            // It was divided for keys that are gone.
            to.copy.table = Table::new();
        }
        let lsn = self.log_prepared(to, found);
        self.state = StagingState::Prepared(found, lsn);
        Ok(lsn)
    }

    /// Logs that the copy is complete.
    pub(crate) fn log_prepared(&self, to: &mut Staging<'_>, contents: Contents) -> Lsn {
        let lsn = to.append(&Record::Prepared(Prepared {
            migration: self.source.migration,
            count: contents.count,
            digest: contents.digest,
        }));
        to.copy.keep_from(lsn);
        lsn
    }
}

/// Has the CPU load where the entries of the next block go to: their places depend on hashes.
fn hint(table: &Table, hasher: &KeyHasher, block: &[u8]) {
    for entry in block::peek(block) {
        table.prefetch(hasher.hash(entry.key), Prefetch::Slots);
    }
}

/// What a staging copy's records go to.
pub(crate) struct Staging<'a> {
    pub(crate) copy: &'a mut Partition,
    pub(crate) log: &'a mut LogWriter,
    pub(crate) hasher: &'a KeyHasher,
    /// Tables to be freed in slices.
    pub(crate) discarded: &'a mut Vec<Table>,
}

impl Staging<'_> {
    /// Logs a record of the copy's own.
    pub(crate) fn append(&mut self, record: &Record<'_>) -> Lsn {
        let meta = self.copy.next_meta();
        let lsn = self.log.append_with(record.encoded_len(), |buf| {
            record.encode_into(meta, buf);
        });
        self.copy.written(lsn);
        lsn
    }
}
