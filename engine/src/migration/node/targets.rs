//! Copies that this node receives.
//!
//! ```text
//! FROM       TO                [by]
//! -          waiting           a source has opened a stream
//! waiting    refused           it is over, is something else, or was waited for long enough
//! waiting    staging           the table shows it, and nothing is left of another copy: Order::Receive
//! staging    (forgetting)      Report::Wiped; says Abort, unless the source knows
//! staging    (served)          the table says so: Order::Committed, then Report::Activated
//! staging    (forgetting)      the table says no: Order::Aborted, then Report::Wiped
//! ```
//!
//! The layout keeps staging copies, so that a start of the node goes on from there.

use ephesus_coordinator::migration::{Decision, Phase};
use ephesus_wire::record::Source;
use ephesus_wire::stream::Open;
use ephesus_wire::{MigrationId, NodeId};

use super::{Effects, NodeMigrations};
use crate::migration::{Batch, Order, Way};
use crate::node::data_dir::{Layout, StagingPlace};
use crate::node::peers::Offer;

/// A stream that is not accepted yet.
#[derive(Debug)]
pub(super) struct PendingStream {
    pub(super) offer: Offer,
    /// When it is refused.
    pub(super) until_ms: u64,
}

/// Why a stream is not accepted.
enum No {
    /// It never will be.
    Ever(String),
    /// It may be soon.
    Yet(String),
}

impl NodeMigrations {
    /// Accepts and refuses streams.
    pub(super) fn receive(&mut self, layout: &mut Layout, effects: &mut Effects) {
        for PendingStream { offer, until_ms } in std::mem::take(&mut self.offers) {
            let mut moves = offer.batch.moves().iter();
            let check = moves.try_for_each(|(id, open)| self.check(*id, open, offer.from, layout));
            let reason = match check {
                Ok(()) => {
                    let Offer { batch, stream, .. } = offer;
                    // Nothing is in their way.
                    let _ = self.stage(&batch, Way::Node(stream), layout, effects);
                    continue;
                }
                Err(No::Yet(_)) if self.now_ms < until_ms => {
                    self.offers.push(PendingStream { offer, until_ms });
                    continue;
                }
                Err(No::Ever(reason) | No::Yet(reason)) => reason,
            };
            effects.refusals.push((offer, reason));
        }
    }

    /// Whether the table has this stream come here, and nothing is in its way.
    fn check(&self, id: MigrationId, open: &Open, from: NodeId, layout: &Layout) -> Result<(), No> {
        let ever = |reason: &str| Err(No::Ever(reason.to_owned()));
        let yet = |reason: &str| Err(No::Yet(reason.to_owned()));
        let migrations = &self.view.migrations;
        let Some(migration) = migrations.active.get(&id) else {
            return if id <= migrations.last {
                ever("the migration is over")
            } else {
                yet("the target does not know of the migration")
            };
        };
        let (source, target) = (migration.source, migration.target);
        let is_it = (target.node, target.shard) == (self.me, open.target_shard)
            && (source.node, source.shard) == (open.source, open.source_shard)
            && source.node == from
            && (migration.partition, migration.epoch.next()) == (open.partition, open.epoch);
        match migration.phase {
            _ if !is_it => ever("the migration is another one"),
            Phase::Copying => match self.hindrance(open, layout) {
                Some(reason) => Err(No::Yet(reason)),
                None => Ok(()),
            },
            _ => yet("the target does not know that the migration has begun"),
        }
    }

    /// What keeps a staging copy from being begun.
    fn hindrance(&self, open: &Open, layout: &Layout) -> Option<String> {
        let (partition, shard) = (open.partition, open.target_shard);
        if self.has_remnant(partition) {
            let reason = "an earlier copy is not forgotten yet: try again";
            return Some(reason.to_owned());
        }
        if shard.0 >= layout.shards() {
            return Some(format!("there is no shard {shard}"));
        }
        let occupied = layout.in_the_way(partition, shard, open.epoch);
        occupied.map(|occupied| occupied.to_string())
    }

    /// Begins the staging copies of a batch, unless something else of their partitions is in their way.
    pub(super) fn stage(
        &mut self,
        batch: &Batch,
        way: Way,
        layout: &mut Layout,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let mut moves = batch.moves().iter();
        if let Some(reason) = moves.find_map(|(_, open)| self.hindrance(open, layout)) {
            return Err(reason);
        }
        for (migration, open) in batch.moves() {
            let place = StagingPlace {
                partition: open.partition,
                shard: open.target_shard,
                epoch: open.epoch,
                source: Source {
                    migration: *migration,
                    node: open.source,
                    shard: open.source_shard,
                },
            };
            let added = layout.add_staging(place);
            debug_assert!(added.is_ok(), "nothing was in its way: {added:?}");
            self.unsaid.insert(*migration);
        }
        (self.next.is_changed, effects.routes) = (true, true);
        let shard = batch.first().target_shard;
        let batch = batch.clone();
        self.next
            .orders
            .push((shard, Order::Receive { batch, way }));
        Ok(())
    }

    /// Tells shards what the table has decided, each once.
    pub(super) fn end_received(&mut self, layout: &Layout, effects: &mut Effects) {
        for staging in layout.staging() {
            let (migration, partition) = (staging.source.migration, staging.partition);
            if self.unsaid.contains(&migration) {
                continue;
            }
            let epoch = staging.epoch;
            let migrations = &self.view.migrations;
            let order = match migrations.decision_for_target(migration, partition) {
                Decision::Open => continue,
                Decision::Committed => Order::Committed {
                    migration,
                    partition,
                    epoch,
                },
                Decision::Aborted => Order::Aborted {
                    migration,
                    partition,
                    epoch,
                },
            };
            if self.told.insert(migration) {
                effects.orders.push((staging.shard, order));
            }
        }
    }
}
