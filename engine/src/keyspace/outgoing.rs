//! Copies that move elsewhere, and those that are given up afterwards.

use ephesus_wire::record::Record;
use ephesus_wire::{Epoch, Lsn, MigrationId, PartitionId};

use super::partition::Role;
use super::{Keyspace, Partition, insert_sorted, remove_sorted};
use crate::migration::{Outgoing, SourceError};

/// Why a copy cannot begin to move: refuse the migration with this text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutgoingError {
    /// The coordinator's table is newer or older than what is here.
    #[error("partition {0} is not served here")]
    NotServed(PartitionId),
    /// One move of a copy at a time.
    #[error("partition {partition} is moving already, by migration {migration}")]
    Moving {
        partition: PartitionId,
        migration: MigrationId,
    },
    /// A new copy has a higher epoch than the one it is made from.
    #[error("partition {partition} has epoch {here}, its copy cannot have {epoch}")]
    Epoch {
        partition: PartitionId,
        here: Epoch,
        epoch: Epoch,
    },
}

impl Keyspace {
    /// Begins to move a copy: from now on writes behind the walk are captured.
    ///
    /// # Errors
    /// [`OutgoingError`]: nothing has changed.
    pub fn begin_outgoing(
        &mut self,
        partition: PartitionId,
        migration: MigrationId,
        epoch: Epoch,
    ) -> Result<(), OutgoingError> {
        let planted = self.planted;
        let copy = self.partition_mut(partition).filter(|p| p.is_serving());
        let copy = copy.ok_or(OutgoingError::NotServed(partition))?;
        if let Some(outgoing) = &copy.outgoing {
            let migration = outgoing.migration;
            return Err(OutgoingError::Moving {
                partition,
                migration,
            });
        }
        if epoch <= copy.epoch {
            let here = copy.epoch;
            return Err(OutgoingError::Epoch {
                partition,
                here,
                epoch,
            });
        }
        let outgoing = Outgoing::new(migration, partition, epoch, planted);
        copy.outgoing = Some(Box::new(outgoing));
        Ok(())
    }

    /// The stream that moves a copy elsewhere.
    pub fn outgoing_mut(&mut self, partition: PartitionId) -> Option<&mut Outgoing> {
        self.partition_mut(partition)?.outgoing.as_deref_mut()
    }

    /// Walks on in a copy that moves, while `more`, which is asked after about 32 entries each.
    pub fn outgoing_slice(&mut self, partition: PartitionId, more: impl FnMut() -> bool) {
        if let Some(copy) = self.partition_mut(partition)
            && let Some(outgoing) = &mut copy.outgoing
        {
            outgoing.slice(&copy.table, more);
        }
    }

    /// Ends a copy's stream if all of it was walked and no more than `backlog_bytes_max` are to be
    /// acknowledged; FINAL is then the last message of [`Outgoing::next_message`]. False when it is not time yet,
    /// or nothing moves.
    ///
    /// What has expired is removed before, all of it: call [`Keyspace::remove_expired_slice`] until little is left.
    /// Hold the partition's commands, FLUSHALL included, before the call. If it answers true, go on holding
    /// them until the move is decided, or until [`Keyspace::end_outgoing`] has given it up.
    ///
    /// # Errors
    /// [`SourceError`]: abort the migration.
    pub fn try_finish(
        &mut self,
        partition: PartitionId,
        backlog_bytes_max: usize,
    ) -> Result<bool, SourceError> {
        let clock_ms = self.now_ms;
        let outgoing = self.partition(partition).and_then(Partition::outgoing);
        if outgoing.is_some_and(|outgoing| outgoing.may_finish(backlog_bytes_max)) {
            // What has expired here must not be back where the clock is behind.
            self.remove_all_expired(partition);
        }
        let Some(copy) = self.partition_mut(partition) else {
            return Ok(false);
        };
        let is_finished = match &mut copy.outgoing {
            Some(outgoing) => outgoing.try_finish(&copy.table, backlog_bytes_max, clock_ms)?,
            None => false,
        };
        if is_finished {
            // Nothing more is read here until the move is decided, and then others may write at once.
            self.tracked.partition_left(partition);
        }
        Ok(is_finished)
    }

    /// Ends the move of a copy, which is served as before; what was captured is gone.
    pub fn end_outgoing(&mut self, partition: PartitionId) {
        if let Some(copy) = self.partition_mut(partition) {
            copy.outgoing = None;
        }
    }

    /// Gives a copy up that belongs to another shard or node now: logs that, and empties its table, whose
    /// memory [`Keyspace::free_slice`] gives back. `None` when it is not served here.
    ///
    /// Once the record is durable and the layout does not name the copy any more, remove its images and
    /// [`Keyspace::forget`] it.
    pub fn drop_copy(&mut self, partition: PartitionId) -> Option<Lsn> {
        let place = self.partitions.get_mut(usize::from(partition.0));
        let copy = place.and_then(Option::as_deref_mut);
        let copy = copy.filter(|p| p.is_serving())?;
        let meta = copy.next_meta();
        let record = Record::Dropped;
        let lsn = self.log.append_with(record.encoded_len(), |buf| {
            record.encode_into(meta, buf);
        });
        self.counters.role_changes += 1;
        self.watched.partition_left(partition);
        self.tracked.partition_left(partition);
        self.keys -= copy.table.len() as u64;
        self.others.touch(partition);
        self.discarded.push(std::mem::take(&mut copy.table));
        copy.outgoing = None;
        copy.emptied();
        copy.keep_from(lsn);
        copy.set_role(Role::Leaving);
        remove_sorted(&mut self.owned, partition);
        insert_sorted(&mut self.unserved, partition);
        self.sweep_anew();
        Some(lsn)
    }

    /// Removes what is left of a copy that was given up or wiped; false while an image of it is being
    /// written, or when it is neither.
    pub fn forget(&mut self, partition: PartitionId) -> bool {
        let Some(place) = self.partitions.get_mut(usize::from(partition.0)) else {
            return false;
        };
        let may_go = place
            .as_deref()
            .is_some_and(|p| p.is_empty_remnant() && !p.is_imaging());
        if may_go {
            *place = None;
            remove_sorted(&mut self.unserved, partition);
        }
        may_go
    }
}
