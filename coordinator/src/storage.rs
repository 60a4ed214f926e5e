//! The raft log on disk: entries, hard state and snapshots as records of one [`ephesus_wal`] log.
//!
//! ```text
//! record      tag (1 byte), then a protobuf message of raft-rs
//! 1 entry     Entry       an entry of another term at its index drops it and everything behind it
//! 2 state     HardState   replaces the one before
//! 3 snapshot  Snapshot    replaces every entry up to its index
//! ```
//!
//! Everything is also kept in memory: the log of a coordinator is short, because the state machine
//! is snapshotted when it grows.
//!
//! 1. What [`RaftLog::persist`] was called with is on the device when it returns.
//! 2. An entry that is there already, with the same index and term, is never dropped by reading it
//!    again: after a snapshot the remaining entries are written once more, and a crash in the middle
//!    must not cost those that had been durable before.

use ephesus_wal::{Disk, Log, LogOptions, WalError};
use ephesus_wire::Lsn;
use protobuf::Message as _;
use raft::prelude::{Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage};

use crate::planted::{Bug, Planted};

const TAG_ENTRY: u8 = 1;
const TAG_HARD_STATE: u8 = 2;
const TAG_SNAPSHOT: u8 = 3;

/// Why the raft log cannot be read or written; the member has to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// See there.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// Replace the member: remove it and add it again with an empty directory.
    #[error("the raft log is damaged: {0}")]
    Damaged(#[from] RecordError),
    /// A bug: entries have to follow each other.
    #[error("entry {index} does not follow entry {last}")]
    Gap {
        /// The entry.
        index: u64,
        /// The last one before.
        last: u64,
    },
}

/// Why a record of the log makes no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Run a release that knows it.
    #[error("record {lsn} has the unknown tag {tag}")]
    Tag {
        /// Where it is.
        lsn: Lsn,
        /// Its tag.
        tag: u8,
    },
    /// An empty record.
    #[error("record {lsn} is empty")]
    Empty {
        /// Where it is.
        lsn: Lsn,
    },
    /// Not the message that the tag promises.
    #[error("record {lsn}: {source}")]
    Encoding {
        /// Where it is.
        lsn: Lsn,
        /// What the decoder says.
        source: protobuf::ProtobufError,
    },
    /// An entry is missing before this one.
    #[error("record {lsn} holds entry {index}, which does not follow entry {last}")]
    Gap {
        /// Where it is.
        lsn: Lsn,
        /// The entry.
        index: u64,
        /// The last one before.
        last: u64,
    },
}

/// What has to be on the device before raft's messages leave.
#[derive(Clone, Debug, Default)]
pub struct Persist {
    /// A snapshot of the leader that replaces the log.
    pub snapshot: Option<Snapshot>,
    /// New entries, in order.
    pub entries: Vec<Entry>,
    /// Term, vote and commit index.
    pub hard_state: Option<HardState>,
}

/// The raft log of one member.
pub struct RaftLog<D: Disk> {
    log: Log<D>,
    kept: Kept,
    pub(crate) planted: Planted,
}

/// What the log holds, in memory.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kept {
    hard_state: HardState,
    snapshot: Snapshot,
    /// Those behind the snapshot, without gaps.
    entries: Vec<Entry>,
}

impl<D: Disk> RaftLog<D> {
    /// Recovers the log, or begins one.
    ///
    /// # Errors
    /// [`StorageError`]: the member must not take part.
    pub async fn open(
        disk: D,
        options: &LogOptions,
        wall_clock_ms: u64,
    ) -> Result<RaftLog<D>, StorageError> {
        let mut kept = Kept::default();
        let mut damage = None;
        // A segment goes as a whole: the oldest one may begin with entries that a snapshot behind
        // them has replaced, and whose predecessors are gone.
        let mut gap = None;
        let mut visit = |lsn, record: &[u8]| {
            let replayed = match kept.replay(lsn, record) {
                Err(error @ RecordError::Gap { .. }) => {
                    gap.get_or_insert(error);
                    Ok(())
                }
                other => other,
            };
            if record.first() == Some(&TAG_SNAPSHOT) {
                gap = None;
            }
            replayed.map_err(|error| {
                let text = error.to_string();
                damage = Some(error);
                text.into()
            })
        };
        let opened = Log::open(disk, options, Lsn::ZERO, wall_clock_ms, &mut visit).await;
        if let Some(error) = damage.or(gap) {
            return Err(error.into());
        }
        let (log, _) = opened?;
        Ok(RaftLog {
            log,
            kept,
            planted: Planted::default(),
        })
    }

    /// Whether this member has never taken part in anything.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.kept == Kept::default()
    }

    /// Term, vote and commit index.
    #[must_use]
    pub fn hard_state(&self) -> &HardState {
        &self.kept.hard_state
    }

    /// The last snapshot.
    #[must_use]
    pub fn latest_snapshot(&self) -> &Snapshot {
        &self.kept.snapshot
    }

    /// Notes a commit index that need not be durable: it is learned again if it is lost.
    pub fn note_commit(&mut self, hard_state: HardState) {
        self.kept.hard_state = hard_state;
    }

    /// Entries behind the snapshot.
    #[must_use]
    pub fn entries_kept(&self) -> usize {
        self.kept.entries.len()
    }

    /// Segments of the log that are needed; each is read when it is opened, and each opening begins another.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.log.segments().count()
    }

    /// Makes what raft asks for durable.
    ///
    /// # Errors
    /// [`StorageError::Gap`] before anything was written; after any other error nothing more is
    /// promised: end the process.
    pub async fn persist(
        &mut self,
        persist: &Persist,
        wall_clock_ms: u64,
    ) -> Result<(), StorageError> {
        self.kept.check_order(persist)?;
        if self.planted.has(Bug::NoPersist) {
            return self.kept.take(persist);
        }
        if let Some(snapshot) = &persist.snapshot {
            append(&mut self.log, TAG_SNAPSHOT, snapshot)?;
        }
        for entry in &persist.entries {
            append(&mut self.log, TAG_ENTRY, entry)?;
        }
        let hard_state = persist.hard_state.as_ref();
        if let Some(hard_state) = hard_state.filter(|_| !self.planted.has(Bug::ForgottenVote)) {
            append(&mut self.log, TAG_HARD_STATE, hard_state)?;
        }
        self.log.commit(wall_clock_ms).await?;
        self.kept.take(persist)
    }

    /// Replaces the entries up to the snapshot's index by the snapshot, and gives their space back.
    ///
    /// # Errors
    /// As [`RaftLog::persist`].
    pub async fn compact(
        &mut self,
        snapshot: Snapshot,
        wall_clock_ms: u64,
    ) -> Result<(), StorageError> {
        let begin = append(&mut self.log, TAG_SNAPSHOT, &snapshot)?;
        self.kept.restore(snapshot);
        for entry in &self.kept.entries {
            append(&mut self.log, TAG_ENTRY, entry)?;
        }
        append(&mut self.log, TAG_HARD_STATE, &self.kept.hard_state)?;
        self.log.commit(wall_clock_ms).await?;
        self.log.truncate_before(begin).await?;
        Ok(())
    }

    /// Marks everything durable for recovery: when idle, and before closing.
    ///
    /// # Errors
    /// As [`RaftLog::persist`].
    pub async fn mark(&mut self, wall_clock_ms: u64) -> Result<(), StorageError> {
        Ok(self.log.mark(wall_clock_ms).await?)
    }
}

/// Appends one record; it is durable with the next commit.
#[expect(
    clippy::expect_used,
    reason = "raft's messages have no required fields, and a vector takes all bytes"
)]
fn append<D: Disk>(
    log: &mut Log<D>,
    tag: u8,
    message: &impl protobuf::Message,
) -> Result<Lsn, WalError> {
    let mut record = vec![tag];
    message
        .write_to_vec(&mut record)
        .expect("a message of raft");
    log.append(&record)
}

impl Kept {
    fn replay(&mut self, lsn: Lsn, record: &[u8]) -> Result<(), RecordError> {
        let Some((&tag, body)) = record.split_first() else {
            return Err(RecordError::Empty { lsn });
        };
        let encoding = |source| RecordError::Encoding { lsn, source };
        match tag {
            TAG_ENTRY => {
                let entry = Entry::parse_from_bytes(body).map_err(encoding)?;
                let index = entry.index;
                self.append(entry)
                    .map_err(|last| RecordError::Gap { lsn, index, last })
            }
            TAG_HARD_STATE => {
                self.hard_state = HardState::parse_from_bytes(body).map_err(encoding)?;
                Ok(())
            }
            TAG_SNAPSHOT => {
                self.restore(Snapshot::parse_from_bytes(body).map_err(encoding)?);
                Ok(())
            }
            tag => Err(RecordError::Tag { lsn, tag }),
        }
    }

    fn first_index(&self) -> u64 {
        self.snapshot.get_metadata().index + 1
    }

    fn last_index(&self) -> u64 {
        self.snapshot.get_metadata().index + self.entries.len() as u64
    }

    /// The term of an entry that is there, or of the snapshot's last one.
    fn term(&self, index: u64) -> Option<u64> {
        let snapshot = self.snapshot.get_metadata();
        if index == snapshot.index {
            return Some(snapshot.term);
        }
        let place = index.checked_sub(self.first_index())?;
        self.entries.get(place as usize).map(|entry| entry.term)
    }

    /// Checks that no entry would be missing before one of `persist`.
    fn check_order(&self, persist: &Persist) -> Result<(), StorageError> {
        let restored = persist.snapshot.as_ref().map(Snapshot::get_metadata);
        let mut last = match restored {
            Some(to) if self.term(to.index) != Some(to.term) => to.index,
            _ => self.last_index(),
        };
        for entry in &persist.entries {
            if entry.index > last + 1 {
                let index = entry.index;
                return Err(StorageError::Gap { index, last });
            }
            last = entry.index;
        }
        Ok(())
    }

    /// Takes over what is durable now; its order was checked.
    fn take(&mut self, persist: &Persist) -> Result<(), StorageError> {
        if let Some(snapshot) = &persist.snapshot {
            self.restore(snapshot.clone());
        }
        for entry in &persist.entries {
            let index = entry.index;
            let appended = self.append(entry.clone());
            appended.map_err(|last| StorageError::Gap { index, last })?;
        }
        if let Some(hard_state) = &persist.hard_state {
            self.hard_state = hard_state.clone();
        }
        Ok(())
    }

    /// Adds an entry; the error is the last index when it does not follow.
    fn append(&mut self, entry: Entry) -> Result<(), u64> {
        let (first, last) = (self.first_index(), self.last_index());
        if entry.index > last + 1 {
            return Err(last);
        }
        // Entries that a snapshot has replaced may be read again behind it.
        if entry.index < first || self.term(entry.index) == Some(entry.term) {
            return Ok(());
        }
        self.entries.truncate((entry.index - first) as usize);
        self.entries.push(entry);
        Ok(())
    }

    fn restore(&mut self, snapshot: Snapshot) {
        let (index, term) = (snapshot.get_metadata().index, snapshot.get_metadata().term);
        if index < self.first_index() - 1 {
            return;
        }
        if self.term(index) == Some(term) {
            let replaced = (index + 1 - self.first_index()) as usize;
            self.entries.drain(..replaced);
        } else {
            self.entries.clear();
        }
        if self.hard_state.commit < index {
            self.hard_state.commit = index;
        }
        if self.hard_state.term < term {
            self.hard_state.term = term;
        }
        self.snapshot = snapshot;
    }
}

impl<D: Disk> Storage for RaftLog<D> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let conf_state = self.kept.snapshot.get_metadata().get_conf_state().clone();
        Ok(RaftState::new(self.kept.hard_state.clone(), conf_state))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let first = self.kept.first_index();
        if low < first {
            return Err(raft::Error::Store(raft::StorageError::Compacted));
        }
        let range = (low - first) as usize..(high - first) as usize;
        let found = self.kept.entries.get(range);
        let mut found = found
            .ok_or(raft::Error::Store(raft::StorageError::Unavailable))?
            .to_vec();
        raft::util::limit_size(&mut found, max_size.into());
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = if index < self.kept.first_index() {
            raft::StorageError::Compacted
        } else {
            raft::StorageError::Unavailable
        };
        self.kept.term(index).ok_or(raft::Error::Store(missing))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.kept.first_index())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.kept.last_index())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        if self.kept.snapshot.get_metadata().index < request_index {
            let later = raft::StorageError::SnapshotTemporarilyUnavailable;
            return Err(raft::Error::Store(later));
        }
        Ok(self.kept.snapshot.clone())
    }
}

#[cfg(test)]
mod tests;
