//! One partition's copy on this shard: its table and where its log and image stand.

use ephesus_wire::record::RecordMeta;
use ephesus_wire::{Epoch, Lsn, PartitionId};

use super::load::{SlotsUsed, Used};
use crate::image::Generation;
use crate::migration::{Incoming, Outgoing, StagingState};
use crate::prefetch;
use crate::table::{Prefetch, Table};

/// What a copy is here for.
pub enum Role {
    /// Clients read and write it.
    Serving,
    /// A stream fills it; it is not served yet.
    Staging(Box<Incoming>),
    /// It was given up; it stays until nothing refers to it.
    Leaving,
}

/// The copy of (partition, epoch) that this shard has.
pub struct Partition {
    pub id: PartitionId,
    pub epoch: Epoch,
    pub table: Table,
    /// What commands have used of it.
    pub(super) used: Used,
    /// The same by slot, once that is counted.
    pub(super) slots_used: SlotsUsed,
    /// The stream that moves this copy elsewhere.
    pub(super) outgoing: Option<Box<Outgoing>>,
    role: Role,
    /// First LSN that tells the copy's role, if recovery needs the log for that.
    kept_from: Option<Lsn>,
    /// Sequence of the last record.
    seq: u64,
    /// First LSN that is in neither the current image nor the one being written.
    unimaged: Option<Lsn>,
    /// First LSN that the current image does not cover, while the next one is being written.
    superseded: Option<Lsn>,
    imaging: bool,
    /// Sequence that the current image covers, and the one being written.
    imaged_seq: u64,
    imaging_seq: u64,
    /// Generation of the current image; 0 when there is none.
    pub generation: Generation,
}

impl Partition {
    /// A new, empty copy.
    #[must_use]
    pub fn new(id: PartitionId, epoch: Epoch) -> Partition {
        Partition {
            id,
            epoch,
            table: Table::new(),
            used: Used::default(),
            slots_used: None,
            outgoing: None,
            role: Role::Serving,
            kept_from: None,
            seq: 0,
            unimaged: None,
            superseded: None,
            imaging: false,
            imaged_seq: 0,
            imaging_seq: 0,
            generation: Generation(0),
        }
    }

    #[must_use]
    pub fn is_serving(&self) -> bool {
        matches!(self.role, Role::Serving)
    }

    /// The stream that fills this copy, if it is a staging one.
    #[must_use]
    pub fn incoming(&self) -> Option<&Incoming> {
        match &self.role {
            Role::Staging(incoming) => Some(incoming),
            _ => None,
        }
    }

    /// [`Partition::incoming`], to change it.
    pub fn incoming_mut(&mut self) -> Option<&mut Incoming> {
        match &mut self.role {
            Role::Staging(incoming) => Some(incoming),
            _ => None,
        }
    }

    /// Whether the copy is a staging one that survives until the coordinator decides.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        let state = self.incoming().map(Incoming::state);
        matches!(state, Some(StagingState::Prepared(..)))
    }

    /// The stream that moves this copy elsewhere, if there is one.
    #[must_use]
    pub fn outgoing(&self) -> Option<&Outgoing> {
        self.outgoing.as_deref()
    }

    /// Changes what the copy is here for, and answers what it was.
    pub(crate) fn set_role(&mut self, role: Role) -> Role {
        std::mem::replace(&mut self.role, role)
    }

    /// Whether the copy was given up or wiped.
    #[must_use]
    pub fn is_empty_remnant(&self) -> bool {
        match &self.role {
            Role::Serving => false,
            Role::Staging(incoming) => incoming.state() == StagingState::Wiped,
            Role::Leaving => true,
        }
    }

    /// Whether an image of the copy can begin and would be of use.
    #[must_use]
    pub fn may_be_imaged(&self) -> bool {
        let is_mid_entry = self.incoming().is_some_and(Incoming::is_mid_entry);
        !self.imaging && !self.is_empty_remnant() && !is_mid_entry
    }

    /// The first LSN that tells the copy's role, if recovery needs the log for that: no image holds it.
    #[must_use]
    pub fn kept_from(&self) -> Option<Lsn> {
        self.kept_from
    }

    /// Recovery needs the record at `lsn` to know the copy's role, and none before it.
    pub(crate) fn keep_from(&mut self, lsn: Lsn) {
        self.kept_from = Some(lsn);
    }

    /// The copy's role is noted elsewhere, durably: recovery does not need the log for it.
    pub(crate) fn settled(&mut self) {
        self.kept_from = None;
    }

    /// The copy is empty, and nothing that was logged of it before is needed any more.
    pub(crate) fn emptied(&mut self) {
        self.unimaged = None;
        self.superseded = None;
        self.kept_from = None;
    }

    /// The copy begins its history anew.
    pub(crate) fn restart(&mut self) {
        self.emptied();
        self.seq = 0;
        self.imaged_seq = 0;
        self.imaging_seq = 0;
    }

    /// Sequence of the last record.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Continues the sequence after `seq`, as recovery found it.
    pub fn set_seq(&mut self, seq: u64) {
        assert!(seq >= self.seq, "a partition's sequence only grows");
        self.seq = seq;
    }

    /// Goes back to `seq`: what was to follow it is in no log.
    pub(super) fn take_back_seq(&mut self, seq: u64) {
        assert!(seq <= self.seq && seq >= self.imaged_seq.max(self.imaging_seq));
        self.seq = seq;
    }

    /// Changes that the current image does not cover.
    #[must_use]
    pub fn changes_since_image(&self) -> u64 {
        self.seq - self.imaged_seq
    }

    /// Recovery has loaded an image that covers the sequence up to `seq`.
    pub fn image_loaded(&mut self, generation: Generation, seq: u64) {
        self.generation = generation;
        self.imaged_seq = seq;
        self.set_seq(seq);
    }

    /// [`Table::prefetch`], of what else a command looks at as well.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64, step: Prefetch) {
        match step {
            Prefetch::Table => prefetch::whole(self),
            _ => self.table.prefetch(hash, step),
        }
    }

    /// The meta of the next record.
    #[inline]
    pub fn next_meta(&mut self) -> RecordMeta {
        self.seq += 1;
        RecordMeta {
            partition: self.id,
            epoch: self.epoch,
            seq: self.seq,
        }
    }

    /// Notes that the record at `lsn` changed this copy.
    #[inline]
    pub fn written(&mut self, lsn: Lsn) {
        if self.unimaged.is_none() {
            self.unimaged = Some(lsn);
        }
    }

    /// The first LSN that recovery would need from the log.
    #[must_use]
    pub fn pin(&self) -> Option<Lsn> {
        if self.imaging {
            self.superseded.or(self.unimaged)
        } else {
            self.unimaged
        }
    }

    /// Whether an image is being written.
    #[must_use]
    pub fn is_imaging(&self) -> bool {
        self.imaging
    }

    /// Begins an image that covers everything written so far.
    pub fn image_begins(&mut self) {
        assert!(!self.imaging, "one image of a copy at a time");
        self.imaging = true;
        self.imaging_seq = self.seq;
        self.superseded = self.unimaged.take();
    }

    /// The image that was being written was given up: the one before still counts.
    pub fn image_given_up(&mut self) {
        assert!(self.imaging, "an image was being written");
        self.imaging = false;
        self.unimaged = self.superseded.take().or(self.unimaged);
    }

    /// The image that was being written is the current one now.
    pub fn image_switched(&mut self, generation: Generation) {
        assert!(
            self.imaging && generation > self.generation,
            "generations only grow"
        );
        self.imaging = false;
        self.superseded = None;
        self.imaged_seq = self.imaging_seq;
        self.generation = generation;
    }
}
