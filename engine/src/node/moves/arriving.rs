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
use ephesus_wire::MigrationId;
use ephesus_wire::record::Source;
use ephesus_wire::stream::Open;

use super::super::peers::Offer;
use super::super::stamp::{Layout, StagingPlace};
use super::{Effects, Moves};
use crate::migration::{Order, Way};

/// A stream that is not accepted yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) offer: Offer,
    /// When it is refused.
    pub(super) until_ms: u64,
}

/// Why a stream is not accepted.
enum No {
    /// It never will be.
    Ever(&'static str),
    /// It may be soon.
    Yet(&'static str),
}

impl Moves {
    /// Accepts and refuses streams.
    pub(super) fn receive(&mut self, layout: &mut Layout, effects: &mut Effects) {
        for Waiting { offer, until_ms } in std::mem::take(&mut self.offers) {
            let refusal = match self.check(&offer) {
                Ok(()) => {
                    let Offer {
                        migration,
                        open,
                        from,
                        stream,
                    } = offer;
                    let way = Way::Node(stream);
                    match self.stage(migration, open, way, layout, effects) {
                        Ok(()) => continue,
                        Err((Way::Node(stream), reason)) => {
                            let offer = Offer {
                                migration,
                                open,
                                from,
                                stream,
                            };
                            (offer, reason)
                        }
                        Err((Way::Shard(_), _)) => continue,
                    }
                }
                Err(No::Yet(reason)) => (offer, reason.to_owned()),
                Err(No::Ever(reason)) => {
                    effects.refusals.push((offer, reason.to_owned()));
                    continue;
                }
            };
            let (offer, reason) = refusal;
            if self.now_ms < until_ms {
                self.offers.push(Waiting { offer, until_ms });
            } else {
                effects.refusals.push((offer, reason));
            }
        }
    }

    /// Whether the table has this stream come here.
    fn check(&self, offer: &Offer) -> Result<(), No> {
        let migrations = &self.view.migrations;
        let id = offer.migration;
        let Some(migration) = migrations.active.get(&id) else {
            return Err(if id <= migrations.last {
                No::Ever("the migration is over")
            } else {
                No::Yet("the target does not know of the migration")
            });
        };
        let (source, target, open) = (migration.source, migration.target, &offer.open);
        let is_it = (target.node, target.shard) == (self.me, open.target_shard)
            && (source.node, source.shard) == (open.source, open.source_shard)
            && source.node == offer.from
            && (migration.partition, migration.epoch.next()) == (open.partition, open.epoch);
        match migration.phase {
            _ if !is_it => Err(No::Ever("the migration is another one")),
            Phase::Copying => Ok(()),
            _ => Err(No::Yet(
                "the target does not know that the migration has begun",
            )),
        }
    }

    /// Begins a staging copy, unless something else of the partition is in its way.
    pub(super) fn stage(
        &mut self,
        migration: MigrationId,
        open: Open,
        way: Way,
        layout: &mut Layout,
        effects: &mut Effects,
    ) -> Result<(), (Way, String)> {
        let (partition, shard) = (open.partition, open.target_shard);
        if self.has_remnant(partition) {
            let reason = "an earlier copy is not forgotten yet: try again";
            return Err((way, reason.to_owned()));
        }
        if shard.0 >= layout.shards() {
            return Err((way, format!("there is no shard {shard}")));
        }
        let place = StagingPlace {
            partition,
            shard,
            epoch: open.epoch,
            source: Source {
                migration,
                node: open.source,
                shard: open.source_shard,
            },
        };
        if let Err(occupied) = layout.add_staging(place) {
            return Err((way, occupied.to_string()));
        }
        (self.next.is_changed, effects.routes) = (true, true);
        self.unsaid.insert(migration);
        let receive = Order::Receive {
            migration,
            open,
            way,
        };
        self.next.orders.push((shard, receive));
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
            let order = match self.decision(migration, partition) {
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
