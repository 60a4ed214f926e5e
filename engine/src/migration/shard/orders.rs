//! What the node wants done.

use std::time::Instant;

use ephesus_wire::record;
use ephesus_wire::stream::Open;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};

use super::link::Link;
use super::mail::{End, Mail};
use super::source::{Fate, Source};
use super::target::Target;
use super::{Cx, ShardMigrations};
use crate::migration::{Batch, Order, Report, StagingState, Way};
use crate::shard::core::Core;

impl ShardMigrations {
    /// Carries an order out, or begins to.
    pub fn order(&mut self, core: &mut Core, order: Order, now: Instant) {
        self.is_touched = true;
        match order {
            Order::Send { batch, to, way } => self.send(core, &batch, (to, way), now),
            Order::Receive { batch, way } => self.receive(core, &batch, way, now),
            Order::Drop { partition, epoch } => self.drop_copy(core, (partition, epoch), now),
            Order::Committed {
                migration,
                partition,
                epoch,
            } => self.committed(core, (migration, partition, epoch), now),
            Order::Aborted {
                migration,
                partition,
                epoch,
            } => self.aborted(core, (migration, partition, epoch), now),
            Order::Settle { partition, epoch } => {
                let copy = core.keyspace.served(partition);
                if copy.is_some_and(|copy| copy.epoch == epoch) {
                    core.keyspace.settle(partition);
                }
            }
            Order::Forget { partition, epoch } => self.leaving.push((partition, epoch)),
            Order::Limit(bytes_per_s) => self.limit.set(bytes_per_s, now),
        }
    }

    fn send(&mut self, core: &mut Core, batch: &Batch, (to, way): (NodeId, Way), now: Instant) {
        self.with(core, now, |sources, _, cx| {
            if sources.iter().any(|source| source.batch == batch.id()) {
                return;
            }
            let is_served = |open: &Open| {
                let served = cx.core.keyspace.served(open.partition);
                served.is_some_and(|copy| copy.epoch.next() == open.epoch)
            };
            let mut moves = batch.moves().iter();
            let unserved = moves.find(|(_, open)| !is_served(open));
            match (
                Link::new(batch.id(), End::Source, way, cx.sockets, now),
                unserved,
            ) {
                (Ok(link), None) => sources.push(Source::new(batch, to, link, cx.now)),
                (Ok(link), Some((_, open))) => {
                    let reason = format!("partition {} is not served here", open.partition);
                    Source::new(batch, to, link, cx.now).fail(cx, &reason);
                }
                (Err(error), _) => cx.reports.tell(Report::RolledBack {
                    batch: batch.id(),
                    reason: format!("the stream's socket: {error}"),
                }),
            }
        });
    }

    fn receive(&mut self, core: &mut Core, batch: &Batch, way: Way, now: Instant) {
        self.with(core, now, |_, targets, cx| {
            if targets.iter().any(|target| target.batch == batch.id()) {
                return;
            }
            let link = Link::new(batch.id(), End::Target, way, cx.sockets, now);
            let mut refusal = link
                .as_ref()
                .err()
                .map(|e| format!("the stream's socket: {e}"));
            let mut target = link.map(|link| Target::new(batch, link, now)).ok();
            for (migration, open) in batch.moves() {
                let (migration, partition, epoch) = (*migration, open.partition, open.epoch);
                let source = record::Source {
                    migration,
                    node: open.source,
                    shard: open.source_shard,
                };
                if let (None, Some(target)) = (&refusal, &mut target) {
                    match cx.core.keyspace.begin_incoming(partition, epoch, source) {
                        Ok(_) => {
                            target.add(migration, partition, epoch);
                            continue;
                        }
                        Err(error) => refusal = Some(error.to_string()),
                    }
                }
                cx.reports.tell(Report::Wiped {
                    migration,
                    partition,
                    epoch,
                    reason: refusal.clone().unwrap_or_default(),
                });
            }
            match (target, refusal) {
                (Some(mut target), None) => {
                    target.accept(cx);
                    targets.push(target);
                }
                (Some(mut target), Some(reason)) => {
                    target.end(cx, Mail::Refused(reason.clone()), &reason);
                }
                (None, _) => {}
            }
        });
    }

    /// The copy of this epoch is void; commands that are held for it follow once the new routes are here.
    fn drop_copy(&mut self, core: &mut Core, copy: (PartitionId, Epoch), now: Instant) {
        let (partition, epoch) = copy;
        self.with(core, now, |sources, _, cx| {
            let copy = cx.core.keyspace.partition(partition);
            if copy.is_none_or(|copy| copy.epoch != epoch || copy.incoming().is_some()) {
                return;
            }
            sources.retain_mut(|source| source.committed(cx, partition) == Fate::GoesOn);
            let keyspace = &mut cx.core.keyspace;
            let given_up = keyspace.drop_copy(partition);
            let lsn = given_up.unwrap_or(keyspace.log.appended());
            cx.core.reroute(partition);
            let report = Report::Dropped { partition, epoch };
            cx.reports.once_durable(lsn, report);
        });
    }

    /// The copy of this epoch is served from now on.
    fn committed(
        &mut self,
        core: &mut Core,
        order: (MigrationId, PartitionId, Epoch),
        now: Instant,
    ) {
        let (migration, partition, epoch) = order;
        self.with(core, now, |_, targets, cx| {
            for mut target in targets.extract_if(.., |target| target.has(migration)) {
                target.end(cx, Mail::End(String::new()), "");
            }
            let copy = cx.core.keyspace.partition(partition);
            let Some(copy) = copy.filter(|copy| copy.epoch == epoch) else {
                return;
            };
            if copy.incoming().is_some() {
                activate(cx, partition, epoch);
            } else if copy.is_serving() {
                let appended = cx.core.keyspace.log.appended();
                let report = Report::Activated { partition, epoch };
                cx.reports.once_durable(appended, report);
            }
        });
    }

    /// The copy of this epoch will not be; the one it is made from is served as before.
    fn aborted(&mut self, core: &mut Core, order: (MigrationId, PartitionId, Epoch), now: Instant) {
        let (migration, partition, epoch) = order;
        self.with(core, now, |sources, targets, cx| {
            sources.retain_mut(|source| source.aborted(cx, migration) == Fate::GoesOn);
            for mut target in targets.extract_if(.., |target| target.has(migration)) {
                let reason = "the move was aborted";
                target.end(cx, Mail::End(reason.to_owned()), reason);
            }
            let keyspace = &mut cx.core.keyspace;
            let copy = keyspace.partition(partition);
            let incoming = copy.filter(|copy| copy.epoch == epoch);
            let incoming = incoming.and_then(|copy| copy.incoming());
            if incoming.is_none_or(|incoming| incoming.source().migration != migration) {
                return;
            }
            let wiped = keyspace.wipe(partition);
            let lsn = wiped.unwrap_or(keyspace.log.appended());
            cx.reports.once_durable(
                lsn,
                Report::Wiped {
                    migration,
                    partition,
                    epoch,
                    reason: String::new(),
                },
            );
        });
    }
}

/// Serves a prepared copy.
fn activate(cx: &mut Cx<'_>, partition: PartitionId, epoch: Epoch) {
    let keyspace = &mut cx.core.keyspace;
    let state = keyspace.incoming_mut(partition).map(|i| i.state());
    match (state, keyspace.activate(partition)) {
        (_, Some(lsn)) => {
            let report = Report::Activated { partition, epoch };
            cx.reports.once_durable(lsn, report);
        }
        (state, None) => {
            debug_assert!(!matches!(state, Some(StagingState::Prepared(..))));
            tracing::error!(%partition, %epoch, ?state, "committed, and not prepared here");
        }
    }
}
