//! One partition's copy on this shard: its table and where its log and image stand.

use ephesus_wire::record::RecordMeta;
use ephesus_wire::{Epoch, Lsn, PartitionId};

use crate::image::Generation;
use crate::table::Table;

/// The copy of (partition, epoch) that this shard serves.
pub struct Partition {
    pub id: PartitionId,
    pub epoch: Epoch,
    pub table: Table,
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
            seq: 0,
            unimaged: None,
            superseded: None,
            imaging: false,
            imaged_seq: 0,
            imaging_seq: 0,
            generation: Generation(0),
        }
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
