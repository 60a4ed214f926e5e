//! What the node wants done.

use std::time::Instant;

use ephesus_wire::record;
use ephesus_wire::stream::Open;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};

use super::link::Link;
use super::mail::{End, Mail};
use super::source::Source;
use super::target::Target;
use super::{Cx, ShardMigrations};
use crate::migration::{Order, Report, StagingState, Way};
use crate::shard::core::Core;

impl ShardMigrations {
    /// Carries an order out, or begins to.
    pub fn order(&mut self, core: &mut Core, order: Order, now: Instant) {
        self.is_touched = true;
        match order {
            Order::Send {
                migration,
                group,
                open,
                to,
                way,
            } => self.send(core, (migration, group, open), (to, way), now),
            Order::Receive {
                migration,
                open,
                way,
            } => self.receive(core, (migration, open, way), now),
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

    fn send(
        &mut self,
        core: &mut Core,
        (migration, group, open): (MigrationId, u64, Open),
        (to, way): (NodeId, Way),
        now: Instant,
    ) {
        self.with(core, now, |sources, _, cx| {
            if sources.iter().any(|source| source.migration == migration) {
                return;
            }
            let served = cx.core.keyspace.served(open.partition);
            let is_served = served.is_some_and(|copy| copy.epoch.next() == open.epoch);
            match Link::new(migration, End::Source, way, cx.sockets, now) {
                Ok(link) => {
                    let mut source = Source::new((migration, group), open, to, link);
                    if is_served {
                        sources.push(source);
                    } else {
                        let partition = open.partition;
                        source.fail(cx, &format!("partition {partition} is not served here"));
                    }
                }
                Err(error) => cx.reports.tell(Report::RolledBack {
                    migration,
                    reason: format!("the stream's socket: {error}"),
                }),
            }
        });
    }

    fn receive(&mut self, core: &mut Core, order: (MigrationId, Open, Way), now: Instant) {
        let (migration, open, way) = order;
        let partition = open.partition;
        self.with(core, now, |_, targets, cx| {
            if targets.iter().any(|target| target.migration == migration) {
                return;
            }
            let refused = |reason: String| Report::Wiped {
                migration,
                partition,
                epoch: open.epoch,
                reason,
            };
            let mut link = match Link::new(migration, End::Target, way, cx.sockets, now) {
                Ok(link) => link,
                Err(error) => {
                    cx.reports
                        .tell(refused(format!("the stream's socket: {error}")));
                    return;
                }
            };
            let source = record::Source {
                migration,
                node: open.source,
                shard: open.source_shard,
            };
            let keyspace = &mut cx.core.keyspace;
            match keyspace.begin_incoming(partition, open.epoch, source) {
                Ok(_) => targets.push(Target::new(migration, open, link, cx)),
                Err(error) => {
                    let reason = error.to_string();
                    let farewell = Mail::Refused(reason.clone());
                    link.close(Some(farewell), cx.sockets, &cx.core.node, now);
                    cx.reports.tell(refused(reason));
                }
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
            for mut source in sources.extract_if(.., |s| s.partition() == partition) {
                source.committed(cx);
            }
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
            for mut target in targets.extract_if(.., |target| target.migration == migration) {
                target.close(cx, "");
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
            let reason = "the move was aborted";
            for mut source in sources.extract_if(.., |source| source.migration == migration) {
                source.roll_back(cx, reason);
            }
            for mut target in targets.extract_if(.., |target| target.migration == migration) {
                target.close(cx, reason);
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
