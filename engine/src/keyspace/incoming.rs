//! Staging copies: filled by a stream, wiped when it breaks, served once the coordinator says so.

use ephesus_wire::record::{Record, Source};
use ephesus_wire::stream::{Contents, Final};
use ephesus_wire::{Epoch, Lsn, MigrationId, PartitionId};

use super::partition::Role;
use super::{Keyspace, Partition, insert_sorted, remove_sorted};
use crate::migration::ends::target::Staging;
use crate::migration::{Incoming, StagingState, TargetError};
use crate::planted::Bug;

/// Why a staging copy cannot begin: refuse the stream with this text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StagingError {
    /// The copy was given up and is not forgotten yet, or the coordinator is mistaken: try again later.
    #[error("a copy of partition {partition} with epoch {here} is here")]
    Occupied { partition: PartitionId, here: Epoch },
    /// Another migration's copy is here: it goes with its stream or by the coordinator's word.
    #[error("migration {migration} is filling a copy of partition {partition}")]
    Busy {
        partition: PartitionId,
        migration: MigrationId,
    },
    /// The coordinator is mistaken.
    #[error("there is no partition {partition}")]
    NoPartition { partition: PartitionId },
}

/// What a break of a stream has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterBreak {
    /// There was no staging copy, or an empty one.
    Nothing,
    /// The copy was not prepared: it is empty now, by the record at this LSN.
    Wiped(Lsn),
    /// The copy is prepared: it waits for the coordinator's word.
    Kept(Contents),
}

impl Keyspace {
    /// Begins a staging copy that migration `source` fills; ACCEPTED may be sent at once.
    ///
    /// # Errors
    /// [`StagingError`]: nothing has changed.
    #[expect(clippy::expect_used, reason = "the copy was just put there")]
    pub fn begin_incoming(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        source: Source,
    ) -> Result<Lsn, StagingError> {
        let Some(place) = self.partitions.get_mut(usize::from(partition.0)) else {
            return Err(StagingError::NoPartition { partition });
        };
        match place.as_deref() {
            None => {
                let copy = Partition::new(partition, epoch);
                *place = Some(Box::new(copy));
                insert_sorted(&mut self.unserved, partition);
            }
            Some(copy) => match copy.incoming() {
                Some(incoming) if incoming.state() != StagingState::Wiped => {
                    let migration = incoming.source().migration;
                    return Err(StagingError::Busy {
                        partition,
                        migration,
                    });
                }
                Some(_) if copy.epoch == epoch => {}
                _ => {
                    let here = copy.epoch;
                    return Err(StagingError::Occupied { partition, here });
                }
            },
        }
        let incoming = Incoming::new(source, StagingState::Receiving);
        let mut to = self.staging(partition).expect("just looked at");
        to.copy.restart();
        let lsn = to.append(&Record::Created { source });
        to.copy.set_role(Role::Staging(Box::new(incoming)));
        Ok(lsn)
    }

    /// The stream that fills a staging copy.
    pub fn incoming_mut(&mut self, partition: PartitionId) -> Option<&mut Incoming> {
        self.partition_mut(partition)?.incoming_mut()
    }

    /// So many keys are to come to a staging copy, about: a good guess saves it from growing on the way.
    pub fn expect_keys(&mut self, partition: PartitionId, keys: u64) {
        // A copy that takes no records needs no room.
        let _ = self.with_incoming(partition, |incoming, to| {
            incoming.expect_keys(to, keys);
            Ok(())
        });
    }

    /// Takes records of a DATA message's `payload` from byte `from` on, while `more`, which is asked after
    /// every record; answers where to go on, at the end the payload's length.
    ///
    /// # Errors
    /// [`TargetError`]: end the stream and call [`Keyspace::stream_broken`].
    pub fn import(
        &mut self,
        partition: PartitionId,
        payload: &[u8],
        from: usize,
        more: impl FnMut() -> bool,
    ) -> Result<usize, TargetError> {
        let taken = self.with_incoming(partition, |incoming, to| {
            incoming.import(to, payload, from, more)
        })?;
        self.counters.imported_bytes += (taken - from) as u64;
        let copy = self.partition(partition);
        let highest = copy.and_then(|copy| copy.table.other_databases().next_back());
        match highest {
            Some((database, _)) if u16::from(database.0) >= self.databases => {
                Err(TargetError::Database {
                    database,
                    databases: self.databases,
                })
            }
            _ => Ok(taken),
        }
    }

    /// Compares a staging copy with what FINAL says, and logs that it is complete; once that is durable
    /// ([`Incoming::confirmed`]) PREPARED may be sent.
    ///
    /// # Errors
    /// [`TargetError`]: end the stream and call [`Keyspace::stream_broken`].
    pub fn prepare(&mut self, partition: PartitionId, last: &Final) -> Result<Lsn, TargetError> {
        let now_ms = self.now_ms;
        self.with_incoming(partition, |incoming, to| incoming.prepare(to, last, now_ms))
    }

    /// The stream of a staging copy is over: wipes the copy unless it is prepared.
    #[expect(clippy::expect_used, reason = "the copy was just looked at")]
    pub fn stream_broken(&mut self, partition: PartitionId) -> AfterBreak {
        let Some(incoming) = self.incoming_mut(partition) else {
            return AfterBreak::Nothing;
        };
        match incoming.state() {
            StagingState::Wiped => AfterBreak::Nothing,
            StagingState::Prepared(..) if self.planted.has(Bug::PreparedWiped) => {
                let wiped = self.wipe(partition);
                wiped.map_or(AfterBreak::Nothing, AfterBreak::Wiped)
            }
            StagingState::Prepared(contents, _) => AfterBreak::Kept(contents),
            StagingState::Receiving | StagingState::Broken => {
                if self.planted.has(Bug::StagingSurvives) {
                    let incoming = self.incoming_mut(partition).expect("just looked at");
                    incoming.set_state(StagingState::Wiped);
                    return AfterBreak::Nothing;
                }
                let wiped = self.wipe(partition);
                wiped.map_or(AfterBreak::Nothing, AfterBreak::Wiped)
            }
        }
    }

    /// Empties a staging copy, a prepared one only by the coordinator's word; its table's memory goes with
    /// [`Keyspace::free_slice`]. `None` when there is nothing to wipe.
    ///
    /// The copy may be begun anew under the same epoch, or removed by [`Keyspace::forget`] once its images
    /// are.
    pub fn wipe(&mut self, partition: PartitionId) -> Option<Lsn> {
        let state = self.incoming_mut(partition)?.state();
        if state == StagingState::Wiped {
            return None;
        }
        let mut to = self.staging(partition)?;
        let lsn = to.append(&Record::StagingWiped);
        to.discarded.push(std::mem::take(&mut to.copy.table));
        to.copy.emptied();
        let source = to.copy.incoming()?.source();
        let wiped = Incoming::new(source, StagingState::Wiped);
        to.copy.set_role(Role::Staging(Box::new(wiped)));
        self.counters.role_changes += 1;
        Some(lsn)
    }

    /// Begins to serve a prepared copy, by the coordinator's word; `None` when there is none.
    ///
    /// Call [`Keyspace::settle`] once the layout says that the copy is served. A source that does not wait for
    /// PREPARED may have it decided before the copy is durable: replies wait for the log all the same.
    pub fn activate(&mut self, partition: PartitionId) -> Option<Lsn> {
        let StagingState::Prepared(..) = self.incoming_mut(partition)?.state() else {
            return None;
        };
        let mut to = self.staging(partition)?;
        let start_seq = to.copy.seq() + 2;
        let lsn = to.append(&Record::Activated { start_seq });
        to.copy.keep_from(lsn);
        to.copy.set_role(Role::Serving);
        let keys = to.copy.table.len() as u64;
        self.keys += keys;
        self.others.touch(partition);
        self.counters.role_changes += 1;
        remove_sorted(&mut self.unserved, partition);
        insert_sorted(&mut self.owned, partition);
        self.sweep_anew();
        Some(lsn)
    }

    /// The layout says durably that a copy is served: the log may forget how it came to be.
    pub fn settle(&mut self, partition: PartitionId) {
        if let Some(copy) = self.partition_mut(partition).filter(|p| p.is_serving()) {
            copy.settled();
        }
    }

    /// Logs once more that a copy is prepared, so that the log can let go of what is before; for copies
    /// that wait long for the coordinator's word. `None` when it is not prepared.
    pub fn restate(&mut self, partition: PartitionId) -> Option<Lsn> {
        let StagingState::Prepared(contents, _) = self.incoming_mut(partition)?.state() else {
            return None;
        };
        let log =
            |incoming: &mut Incoming, to: &mut Staging<'_>| Ok(incoming.log_prepared(to, contents));
        self.with_incoming(partition, log).ok()
    }

    fn staging(&mut self, partition: PartitionId) -> Option<Staging<'_>> {
        Some(Staging {
            copy: self
                .partitions
                .get_mut(usize::from(partition.0))?
                .as_deref_mut()?,
            log: &mut self.log,
            hasher: &self.hasher,
            discarded: &mut self.discarded,
        })
    }

    /// Calls `f` with a copy's stream, taken out of it meanwhile.
    fn with_incoming<T>(
        &mut self,
        partition: PartitionId,
        f: impl FnOnce(&mut Incoming, &mut Staging<'_>) -> Result<T, TargetError>,
    ) -> Result<T, TargetError> {
        let mut to = self.staging(partition).ok_or(TargetError::NotReceiving)?;
        let mut incoming = match to.copy.set_role(Role::Leaving) {
            Role::Staging(incoming) => incoming,
            other => {
                to.copy.set_role(other);
                return Err(TargetError::NotReceiving);
            }
        };
        let result = f(&mut incoming, &mut to);
        to.copy.set_role(Role::Staging(incoming));
        result
    }
}
