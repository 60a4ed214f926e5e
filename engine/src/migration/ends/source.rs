//! The source's end: walks the table and captures the writes behind the walk, in one ordered stream.
//!
//! ```text
//! FROM        TO          [by]
//! -           Walking     [new]         the snapshot point: nothing is behind the cursor yet
//! Walking     Walking     [slice]       entries join the stream and are behind the cursor
//! Walking     CatchingUp  [slice]       the cursor has passed the last entry
//! Walking     CatchingUp  [flushed]     nothing is left to be walked
//! CatchingUp  Walking     [unflushed]   the keys are back: the walk begins anew
//! CatchingUp  Final       [try_finish]  the backlog is small and the shard holds commands
//! any         -           [dropped]     the stream broke, was cancelled, or has done its work
//! ```
//!
//! *Invariant:* what the target has after the records so far is what the table holds behind the cursor.
//! A write behind the cursor therefore joins the stream in the turn in which it is executed, before any
//! later slice; one ahead of it does not, because the walk will meet its result. `count` and `digest`
//! are of the part behind the cursor.
//!
//! What is lost when the stream breaks: in every state nothing but the work, since the source keeps its
//! table and log until the coordinator has committed the move. Writes that the source has acknowledged
//! and the target has not are in the source's log. From `Final` on the shard must neither execute a
//! command of this partition nor drop this state before it knows that the move did not happen.

use ephesus_wire::block::{BLOCK_BODY_BYTES_MAX, BlockBuilder, entry_len};
use ephesus_wire::digest::Digest;
use ephesus_wire::limits::STREAM_DATA_BYTES;
use ephesus_wire::record::{self, Record, RecordMeta};
use ephesus_wire::stream::{Contents, FIRST_SEQ, Final};
use ephesus_wire::{Epoch, MigrationId, PartitionId};

use super::outbox::{OpenGoes, Outbox, Records};
use crate::planted::{Bug, Planted};
use crate::table::{EntryRef, Table, behind};

/// Key and value bytes after which one step of the walk ends early: 32 large values are no step.
const STEP_BYTES: usize = 256 * 1024;

/// High bits of a hash by which a step that ends early is cut: keys that differ in them are visited in
/// order.
const GROUP_BITS: u32 = 16;

/// Why a migration cannot go on; the source's copy is as good as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The target's fault: end the connection.
    #[error("the target acknowledged record {seq}, which was not sent yet")]
    Unsent { seq: u64 },
    /// The target has something else: abort the migration and report this.
    #[error("the target holds {found:?}, the source sent {sent:?}")]
    Differs { found: Contents, sent: Contents },
    /// A bug of the source: abort the migration and report this.
    #[error("{sent} keys were sent of {found}")]
    Miscounted { sent: u64, found: u64 },
}

/// How far the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Part of the table is still to be walked.
    Walking,
    /// Every entry is in the stream, and every write joins it.
    CatchingUp,
    /// The last record is in the stream: there may be no more writes.
    Final,
}

/// The next message of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Outbound {
    /// A DATA message.
    Data(Records),
    /// The last message.
    Final(Final),
}

/// The source's state of one migration.
pub struct Outgoing {
    pub migration: MigrationId,
    stage: Stage,
    /// Lowest hash that the walk has not passed.
    cursor: u64,
    builder: BlockBuilder,
    count: u64,
    digest: Digest,
    outbox: Outbox,
    /// What FINAL says, and whether it was taken already.
    last: Option<Final>,
    last_is_taken: bool,
    slices: u64,
    planted: Planted,
}

impl Outgoing {
    /// Begins to move `partition`, which becomes a copy of `epoch` at the target.
    pub(crate) fn new(
        migration: MigrationId,
        partition: PartitionId,
        epoch: Epoch,
        planted: Planted,
    ) -> Outgoing {
        let meta = RecordMeta {
            partition,
            epoch,
            seq: FIRST_SEQ - 1,
        };
        Outgoing {
            migration,
            stage: Stage::Walking,
            cursor: 0,
            builder: BlockBuilder::new(),
            count: 0,
            digest: Digest::EMPTY,
            outbox: Outbox::new(meta),
            last: None,
            last_is_taken: false,
            slices: 0,
            planted,
        }
    }

    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Lowest hash that the walk has not passed; `None` once it has passed all.
    #[cfg(test)]
    pub(crate) fn cursor(&self) -> Option<u64> {
        (self.stage == Stage::Walking).then_some(self.cursor)
    }

    /// What the target holds once it has everything so far.
    #[must_use]
    pub fn contents(&self) -> Contents {
        Contents {
            count: self.count,
            digest: self.digest.to_words(),
        }
    }

    /// Bytes of records since the beginning.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.outbox.bytes()
    }

    /// Bytes of records that wait to be sent. Captured writes are taken whatever it is: give the migration up when it grows
    /// beyond what memory allows.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.outbox.unsent_bytes()
    }

    /// Bytes of records that the target has not acknowledged, sent or not.
    #[must_use]
    pub fn backlog_bytes(&self) -> usize {
        self.outbox.backlog_bytes()
    }

    /// Of those, bytes that are sent.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.outbox.in_flight_bytes()
    }

    /// Whether a slice of the walk would get on.
    #[must_use]
    pub fn may_walk(&self) -> bool {
        self.stage == Stage::Walking && !self.outbox.is_full()
    }

    /// Walks on while `more`, which is asked after about 32 entries each, and while few enough bytes wait
    /// to be sent.
    pub(crate) fn slice(&mut self, table: &Table, mut more: impl FnMut() -> bool) {
        self.slices += 1;
        let walks = self.stage == Stage::Walking;
        while self.stage == Stage::Walking && !self.outbox.is_full() {
            self.step(table);
            if !more() {
                break;
            }
        }
        // Captured writes must not overtake entries that wait for their block to be full.
        let outbox = &mut self.outbox;
        self.builder
            .finish(|block| outbox.append(&Record::Block(block)));
        self.outbox.walked();
        if walks && self.stage != Stage::Walking {
            // The last of the walk does not wait for writes to come.
            self.outbox.seal();
        }
    }

    fn step(&mut self, table: &Table) {
        let group = |hash: u64| hash >> (u64::BITS - GROUP_BITS);
        let (mut bytes, mut last) = (0, 0);
        let mut cut = None;
        let next = table.scan_values(self.cursor, &mut |hash, entry| {
            if cut.is_none() && bytes > STEP_BYTES && group(hash) != group(last) {
                cut = Some(group(hash) << (u64::BITS - GROUP_BITS));
            }
            if cut.is_none() {
                self.entry(&entry);
                bytes += entry.key.len() + entry.value.len();
                last = hash;
            }
        });
        self.cursor = cut.unwrap_or(next);
        if self.cursor == 0 {
            self.stage = Stage::CatchingUp;
        }
    }

    /// Adds an entry that the walk has met. One that needs fragments and fits a message goes as a record
    /// of its own, which is checked and copied once less at both ends.
    fn entry(&mut self, entry: &EntryRef<'_>) {
        let (key, value, expire_at_ms) = (entry.key, entry.value, entry.expire_at_ms);
        self.count += 1;
        self.digest.add(key, value, expire_at_ms);
        let is_fragmented = entry_len(key, value) > BLOCK_BODY_BYTES_MAX;
        if is_fragmented && record::put_len(key, value) <= STREAM_DATA_BYTES {
            self.outbox.append(&Record::Put {
                key,
                value,
                expire_at_ms,
            });
            return;
        }
        let outbox = &mut self.outbox;
        self.builder.push(key, value, expire_at_ms, |block| {
            outbox.append(&Record::Block(block));
        });
    }

    /// The next message that may be sent now: without room no captured writes, but all that was walked. With `gathers`,
    /// captured writes behind the walk wait for a message of them to be full.
    pub fn next_message(&mut self, gathers: bool, has_room: bool) -> Option<Outbound> {
        let open = match self.stage {
            Stage::Walking => OpenGoes::WhenIdle,
            Stage::CatchingUp if gathers => OpenGoes::WhenFull,
            Stage::CatchingUp | Stage::Final => OpenGoes::Now,
        };
        // The end of a stream is short, and commands wait for it.
        let has_room = has_room || self.stage == Stage::Final;
        if let Some(records) = self.outbox.take(open, has_room) {
            return Some(Outbound::Data(records));
        }
        if self.last_is_taken || !self.outbox.is_empty() {
            return None;
        }
        let last = self.last?;
        self.last_is_taken = true;
        Some(Outbound::Final(last))
    }

    /// The target's log has everything up to `seq`.
    ///
    /// # Errors
    /// [`SourceError::Unsent`].
    pub fn acknowledged(&mut self, seq: u64) -> Result<(), SourceError> {
        if self.outbox.acknowledged(seq) {
            Ok(())
        } else {
            Err(SourceError::Unsent { seq })
        }
    }

    /// Whether the walk is complete and the backlog is at most `backlog_bytes_max`, but the stream has not ended.
    #[must_use]
    pub(crate) fn may_finish(&self, backlog_bytes_max: usize) -> bool {
        self.stage == Stage::CatchingUp && self.backlog_bytes() <= backlog_bytes_max
    }

    /// Ends the stream if the walk is complete and the backlog is at most `backlog_bytes_max`; the
    /// caller holds the partition's commands from before this call until the move is decided.
    ///
    /// # Errors
    /// [`SourceError::Miscounted`].
    pub(crate) fn try_finish(
        &mut self,
        table: &Table,
        backlog_bytes_max: usize,
        clock_ms: u64,
    ) -> Result<bool, SourceError> {
        if self.stage == Stage::Final {
            return Ok(true);
        }
        if !self.may_finish(backlog_bytes_max) {
            return Ok(false);
        }
        let (sent, found) = (self.count, table.len() as u64);
        if sent != found {
            return Err(SourceError::Miscounted { sent, found });
        }
        self.stage = Stage::Final;
        self.outbox.close();
        self.last = Some(Final {
            contents: self.contents(),
            clock_ms,
            last_seq: self.outbox.last_seq(),
        });
        Ok(true)
    }

    /// Checks what the target says it holds against what FINAL said.
    ///
    /// # Errors
    /// [`SourceError::Differs`], also when FINAL was not sent.
    pub fn prepared(&self, found: Contents) -> Result<(), SourceError> {
        let is_sent = self.last_is_taken && self.stage == Stage::Final;
        let sent = self.contents();
        if is_sent && found == sent {
            Ok(())
        } else {
            Err(SourceError::Differs { found, sent })
        }
    }

    fn is_behind(&self, hash: u64) -> bool {
        if self.planted.has(Bug::LateCapture) && self.slices < 2 {
            return false;
        }
        self.stage != Stage::Walking || behind(self.cursor, hash)
    }

    /// A key is about to get this value; `table` has the old one.
    #[inline(never)]
    pub(crate) fn put(
        &mut self,
        table: &Table,
        hash: u64,
        key: &[u8],
        value: &[u8],
        expire_at_ms: u64,
    ) {
        if !self.is_behind(hash) {
            return;
        }
        match table.get(hash, key) {
            Some(old) if !self.planted.has(Bug::OverwrittenInDigest) => {
                self.digest.sub(key, old.value, old.expire_at_ms);
            }
            Some(_) => {}
            None => self.count += 1,
        }
        self.digest.add(key, value, expire_at_ms);
        self.outbox.append(&Record::Put {
            key,
            value,
            expire_at_ms,
        });
    }

    /// A key is about to be removed from `table`.
    #[inline(never)]
    pub(crate) fn delete(&mut self, table: &Table, hash: u64, key: &[u8]) {
        if !self.is_behind(hash) {
            return;
        }
        if let Some(old) = table.get(hash, key) {
            self.count -= 1;
            self.digest.sub(key, old.value, old.expire_at_ms);
            if !self.planted.has(Bug::DeleteNotCaptured) {
                self.outbox.append(&Record::Delete { key });
            }
        }
    }

    /// A key in `table` is about to get this expiry.
    #[inline(never)]
    pub(crate) fn set_expiry(&mut self, table: &Table, hash: u64, key: &[u8], expire_at_ms: u64) {
        if !self.is_behind(hash) {
            return;
        }
        if let Some(old) = table.get(hash, key) {
            self.digest.sub(key, old.value, old.expire_at_ms);
            self.digest.add(key, old.value, expire_at_ms);
            self.outbox.append(&Record::SetExpiry { key, expire_at_ms });
        }
    }

    /// The table is about to become empty: nothing is left to walk.
    pub(crate) fn flushed(&mut self) {
        self.outbox.append(&Record::Flush);
        self.count = 0;
        self.digest = Digest::EMPTY;
        self.stage = Stage::CatchingUp;
    }

    /// The table, which was empty, is about to be what it was before [`Outgoing::flushed`]: all of it is to be walked.
    pub(crate) fn unflushed(&mut self) {
        debug_assert!(self.count == 0, "keys that were set since are gone");
        self.cursor = 0;
        self.stage = Stage::Walking;
    }
}
