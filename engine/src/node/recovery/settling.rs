//! What the table makes of the copies that a start has found, before anything is opened.
//!
//! ```text
//! named    by records    by the table                        then
//! staging  activated     (committed)                         served
//! staging  prepared      committed, or not decided           stays: its shard waits for the word
//! staging  prepared      aborted                             void
//! staging  less          any: its stream is over             void
//! served   any           arrived since at a higher epoch     void
//! served   activated     this node's                         stays
//! served   less          begun empty at this epoch           empty: the records are of an aborted migration
//! served   any           another node's, at no higher epoch  refused: the table is older
//! nothing  (void)        this node's, by a migration         refused: what the migration has brought is lost
//! ```
//!
//! What begins empty at a start is only what the table gives to this node without a migration.
//!
//! What is void is not named any more, which is made durable before its images go and before the logs are
//! opened. Its records stay in the log until that is cut, and are passed over.

use ephesus_coordinator::migration::Decision;
use ephesus_wire::{Epoch, MigrationId, PartitionId, ShardId};

use super::RecoveryError;
use super::layout::Plan;
use crate::keyspace::Partition;
use crate::node::data_dir::{Layout, NO_COPY, StagingPlace};
use crate::planted::{Bug, Planted};

impl Plan {
    /// Takes void copies out of those that were `replayed`, by shard; answers the layout without them.
    ///
    /// # Errors
    /// [`RecoveryError::Succession`], [`RecoveryError::NotActivated`] and [`RecoveryError::NotHere`].
    #[expect(
        clippy::expect_used,
        reason = "every copy that a layout names was replayed: it has no two of a partition on one shard"
    )]
    pub(super) fn settle(
        &self,
        found: &Layout,
        replayed: &mut [&mut Vec<Partition>],
        planted: Planted,
    ) -> Result<Layout, RecoveryError> {
        let mut layout = found.clone();
        for staging in found.staging() {
            let StagingPlace {
                partition,
                shard,
                epoch,
                source,
            } = *staging;
            let copy = copy_of(replayed, shard, partition, epoch);
            let copy = copy.expect("every copy that the layout names was replayed");
            let decision = self
                .migrations
                .decision_for_target(source.migration, partition);
            if copy.is_serving() {
                layout.promote(partition, epoch);
                copy.settled();
            } else if !copy.is_prepared() || decision == Decision::Aborted {
                let migration = source.migration;
                tracing::info!(%partition, %epoch, %migration, "removing a staging copy");
                layout.remove_staging(partition, epoch);
            }
        }
        let served: Vec<_> = layout.copies().collect();
        for (partition, shard, epoch) in served {
            if self.migrations.is_void(partition, epoch) && !planted.has(Bug::VoidKept) {
                tracing::info!(%partition, %epoch, "removing a copy that has moved elsewhere");
                layout.remove_copy(partition, epoch);
                continue;
            }
            let (_, planned) = self.planned(partition);
            let copy = copy_of(replayed, shard, partition, epoch);
            let copy = copy.expect("every copy that the layout names was replayed");
            let is_elsewhere = !planted.has(Bug::VoidKept)
                && planned == NO_COPY
                && self.migrations.arrivals.contains_key(&partition);
            if is_elsewhere || (copy.is_empty_remnant() && copy.incoming().is_none()) {
                return Err(RecoveryError::Succession {
                    partition,
                    epoch,
                    planned,
                });
            }
            if !copy.is_serving() {
                if !self.begins_empty(partition, epoch) {
                    return Err(RecoveryError::NotActivated { partition, epoch });
                }
                *copy = Partition::new(partition, epoch);
            }
        }
        if !planted.has(Bug::EmptyArrival) {
            self.check_arrived(&layout)?;
        }
        for (shard, copies) in (0..).map(ShardId).zip(replayed) {
            copies.retain(|copy| is_named(&layout, shard, copy));
        }
        Ok(layout)
    }

    /// Whether the table says that the copy of this epoch has begun empty, whatever a migration has left under it.
    fn begins_empty(&self, partition: PartitionId, epoch: Epoch) -> bool {
        let arrival = self.migrations.arrivals.get(&partition);
        arrival.is_some_and(|a| (a.migration, a.epoch) == (MigrationId(0), epoch))
    }

    /// Checks that every copy is in `layout`, without void ones, that a migration has brought to this node: it
    /// is nowhere else.
    fn check_arrived(&self, layout: &Layout) -> Result<(), RecoveryError> {
        for (partition, &(_, epoch)) in (0..).map(PartitionId).zip(&self.copies) {
            let arrival = self.migrations.arrivals.get(&partition);
            let migration = arrival.map_or(MigrationId(0), |arrival| arrival.migration);
            let is_here =
                layout.served(partition).is_some() || layout.staging_of(partition).is_some();
            if epoch != NO_COPY && migration != MigrationId(0) && !is_here {
                return Err(RecoveryError::NotHere {
                    partition,
                    epoch,
                    migration,
                });
            }
        }
        Ok(())
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "a layout is consistent, and each of its logs was replayed"
)]
fn copy_of<'a>(
    replayed: &'a mut [&mut Vec<Partition>],
    shard: ShardId,
    partition: PartitionId,
    epoch: Epoch,
) -> Option<&'a mut Partition> {
    let mut copies = replayed[usize::from(shard.0)].iter_mut();
    copies.find(|copy| (copy.id, copy.epoch) == (partition, epoch))
}

fn is_named(layout: &Layout, shard: ShardId, copy: &Partition) -> bool {
    let staging = layout.staging_of(copy.id).map(|s| (s.shard, s.epoch));
    [layout.served(copy.id), staging].contains(&Some((shard, copy.epoch)))
}

#[cfg(test)]
mod tests;
