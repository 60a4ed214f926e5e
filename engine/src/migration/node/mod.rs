//! How a node takes part in migrations, without I/O: from the table to orders for its shards, and from
//! what these report to the layout and to what the coordinator is to decide.
//!
//! ```text
//! table --------\                  /---> orders, layout, routes
//! reports -------> NodeMigrations::turn ---<----> dials, refusals
//! streams ------/                  \---> steps, progress
//! ```
//!
//! The table alone decides. Whatever is said to a shard or the coordinator follows from the newest table,
//! from the layout and from what shards have reported, so that tables may be skipped, and each turn goes on
//! from where the last one has left off.
//!
//! What must not happen, and what prevents it:
//!
//! - A copy is begun beside what is left of an earlier one: streams wait for [`Report::Forgotten`].
//! - A source that has started again serves writes that its target has not seen, and commits: what an
//!   earlier start has begun is aborted, and commits name the start.
//! - A copy is served although its partition has moved on, seen by this node or not: every newer table is held
//!   against all copies, and those that are void are given up, whatever became of migrations of theirs.
//! - A copy is written to before the layout names it, or goes while it does: what rests on a layout waits
//!   until that is durable, and nothing else does.

mod sources;
mod targets;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ephesus_coordinator::link::PeerStream;
use ephesus_coordinator::migration::{Progress, Step};
use ephesus_coordinator::view::View;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId, ShardId};

use self::sources::{NodeBatch, NodeSource};
use self::targets::PendingStream;
use crate::migration::{Order, Report};
use crate::node::data_dir::{Layout, NO_COPY};
use crate::node::peers::{Dial, Offer, PeerEvent};
use crate::planted::{Bug, Planted};
use crate::shard::stats::Counter;

/// How long a migration waits for what the other end will know soon, or has to forget first, ms: a newer
/// table, a copy that goes, a node that just starts.
const PATIENCE_MS: u64 = 5_000;

/// Before what could not be done is tried again, ms.
const AGAIN_MS: u64 = 250;

/// Bytes per second of what the table calls 1 MB/s.
const MB: u64 = 1_000_000;

/// Something that has happened.
#[derive(Debug)]
pub enum Event {
    /// There is a newer table.
    Table(Arc<View>),
    /// A shard has said so.
    Report(Report),
    /// A connection to a target is there, or why it is not.
    Dialled {
        /// What it was dialled for.
        batch: MigrationId,
        /// The connection; OPEN was said.
        result: Result<PeerStream, String>,
    },
    /// A source has opened a connection.
    Offered(Offer),
    /// The layout of this number, or a later one, is durable.
    Written(u64),
}

impl From<PeerEvent> for Event {
    fn from(event: PeerEvent) -> Event {
        match event {
            PeerEvent::Dialled { batch, result } => Event::Dialled { batch, result },
            PeerEvent::Offered(offer) => Event::Offered(offer),
        }
    }
}

/// What is to be done, in this order.
#[derive(Debug, Default)]
pub struct Effects {
    /// What the coordinator is to decide, all of it, if it is something else than before.
    pub steps: Option<BTreeMap<MigrationId, Step>>,
    /// Copies that begin empty and are served from now on.
    pub begun: Vec<(PartitionId, ShardId, Epoch)>,
    /// For shards.
    pub orders: Vec<(ShardId, Order)>,
    /// Whether shards need new routes: the table or the copies are others.
    pub routes: bool,
    /// The layout has changed and is to be written; [`Event::Written`] with this number once it is durable.
    pub layout: Option<u64>,
    /// Whether other copies are served than before.
    pub hosted: bool,
    /// Connections to open.
    pub dials: Vec<Dial>,
    /// Connections that are refused, and why.
    pub refusals: Vec<(Offer, String)>,
    /// How far the migrations are that this node is the source of, all of them, if that is news.
    pub progress: Option<BTreeMap<MigrationId, Progress>>,
}

/// What rests on a layout that is not durable yet.
#[derive(Debug, Default)]
struct Resting {
    number: u64,
    is_changed: bool,
    begun: Vec<(PartitionId, ShardId, Epoch)>,
    orders: Vec<(ShardId, Order)>,
    is_hosted_changed: bool,
}

/// A node's part in all migrations.
#[derive(Debug)]
pub struct NodeMigrations {
    me: NodeId,
    view: Arc<View>,
    now_ms: u64,
    /// What this node sends, and the copies of that.
    batches: BTreeMap<MigrationId, NodeBatch>,
    sending: BTreeMap<MigrationId, NodeSource>,
    /// How far those were that have ended, and until when that is said, ms.
    sent: BTreeMap<MigrationId, (Progress, u64)>,
    /// Streams that are not accepted yet.
    offers: Vec<PendingStream>,
    /// Copies that could not be received, and why, while the table does not show it.
    failed: BTreeMap<MigrationId, String>,
    /// Migrations to this node whose end the target shard was told.
    told: BTreeSet<MigrationId>,
    /// What rests on layouts that are being written, in their order, and on the one that this turn makes.
    resting: VecDeque<Resting>,
    next: Resting,
    written: u64,
    /// Copies that begin, and migrations within this node or to it, of which their shards do not know yet.
    unnamed: BTreeSet<PartitionId>,
    unsaid: BTreeSet<MigrationId>,
    /// Copies that go or have gone, and their shards: not forgotten yet.
    remnants: BTreeMap<(PartitionId, Epoch), ShardId>,
    /// What shards were told to send at most, bytes per second.
    limits: BTreeMap<ShardId, u64>,
    /// Of each partition of this node, as its shard has published them.
    partition_bytes: Arc<[Counter]>,
    /// What was said last.
    steps: BTreeMap<MigrationId, Step>,
    is_progress_new: bool,
    planted: Planted,
}

impl NodeMigrations {
    /// Of a node that starts with this table.
    #[must_use]
    pub fn new(me: NodeId, view: Arc<View>, partition_bytes: Arc<[Counter]>) -> NodeMigrations {
        NodeMigrations {
            me,
            view,
            now_ms: 0,
            batches: BTreeMap::new(),
            sending: BTreeMap::new(),
            sent: BTreeMap::new(),
            offers: Vec::new(),
            failed: BTreeMap::new(),
            told: BTreeSet::new(),
            resting: VecDeque::new(),
            next: Resting::default(),
            written: 0,
            unnamed: BTreeSet::new(),
            unsaid: BTreeSet::new(),
            remnants: BTreeMap::new(),
            limits: BTreeMap::new(),
            partition_bytes,
            steps: BTreeMap::new(),
            is_progress_new: false,
            planted: Planted::default(),
        }
    }

    /// Takes what has happened, changes the layout accordingly, and answers what to do. `now_ms` is any
    /// clock that does not go back.
    pub fn turn(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        layout: &mut Layout,
        now_ms: u64,
    ) -> Effects {
        self.now_ms = now_ms;
        let mut effects = Effects::default();
        let mut is_newer = false;
        // Something is out of the way of copies that are to begin or to go.
        let mut is_freed = false;
        for event in events {
            match event {
                Event::Table(view) => (self.view, is_newer) = (view, true),
                Event::Report(report) => {
                    is_freed |= matches!(report, Report::Forgotten { .. });
                    self.reported(report, layout, &mut effects);
                }
                Event::Dialled { batch, result } => self.dialled(batch, result, &mut effects),
                Event::Offered(offer) => self.offers.push(PendingStream {
                    offer,
                    until_ms: now_ms + PATIENCE_MS,
                }),
                Event::Written(number) => {
                    is_freed = true;
                    self.release(number, &mut effects);
                }
            }
        }
        self.end_sent(&mut effects);
        if is_newer || is_freed || self.next.is_changed {
            self.drop_void(layout, &mut effects);
        }
        self.end_received(layout, &mut effects);
        self.send(layout, &mut effects);
        self.receive(layout, &mut effects);
        if is_newer || is_freed || self.next.is_changed {
            self.adopt(layout);
        }
        effects.routes |= is_newer;
        self.limit(&mut effects);
        self.say(&mut effects);
        self.rest(&mut effects);
        effects
    }

    /// Whether something is to be done when time has passed.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.offers.is_empty()
            || !self.sent.is_empty()
            || self.batches.values().any(NodeBatch::is_opening)
    }

    fn reported(&mut self, report: Report, layout: &mut Layout, effects: &mut Effects) {
        match report {
            Report::Progress {
                migration,
                keys,
                bytes,
                hold_us,
            } => {
                if let Some(source) = self.sending.get_mut(&migration) {
                    (source.progress.keys, source.progress.bytes) = (keys, bytes);
                    source.progress.hold_us = hold_us;
                } else if let Some((progress, _)) = self.sent.get_mut(&migration) {
                    // How long commands were held is known only at the end.
                    (progress.keys, progress.bytes) = (keys, bytes);
                    progress.hold_us = hold_us;
                } else {
                    return;
                }
                self.is_progress_new = true;
            }
            Report::Confirmed { batch, contents } => self.confirmed(batch, contents),
            Report::RolledBack { batch, reason } => self.rolled_back(batch, reason),
            Report::Overdue { batch } => self.overdue(batch),
            Report::Wiped {
                migration,
                partition,
                epoch,
                reason,
            } => {
                // A copy of a later migration may have the same epoch, and a copy's end may be told twice.
                let staging = layout.staging_of(partition);
                let is_it = staging.is_some_and(|staging| staging.source.migration == migration);
                if is_it && let Some(wiped) = layout.remove_staging(partition, epoch) {
                    (self.next.is_changed, effects.routes) = (true, true);
                    self.forget(wiped.shard, partition, epoch);
                    self.told.remove(&migration);
                    if !reason.is_empty() {
                        self.failed.insert(migration, reason);
                    }
                }
            }
            Report::Activated { partition, epoch } => {
                let staging = layout.staging_of(partition).copied();
                if layout.promote(partition, epoch)
                    && let Some(staging) = staging
                {
                    effects.routes = true;
                    let settle = Order::Settle { partition, epoch };
                    self.next.orders.push((staging.shard, settle));
                    (self.next.is_changed, self.next.is_hosted_changed) = (true, true);
                    self.told.remove(&staging.source.migration);
                }
            }
            Report::Dropped { partition, epoch } => {
                // On a node to which it moved itself, the new copy may have taken its place already.
                if layout.remove_copy(partition, epoch) {
                    (self.next.is_changed, self.next.is_hosted_changed) = (true, true);
                }
                if let Some(&shard) = self.remnants.get(&(partition, epoch)) {
                    self.forget(shard, partition, epoch);
                }
            }
            Report::Forgotten { partition, epoch } => {
                self.remnants.remove(&(partition, epoch));
            }
        }
    }

    /// Has shards give up the copies whose partitions have moved on. Those that are not with their shards yet are
    /// given up once they are.
    ///
    /// Only what the table knows to be older than an arrival goes. A copy that the table gives to somebody else
    /// without one, as a table would that is older than this directory, is kept, and [`Routes`] do not lead to it.
    ///
    /// [`Routes`]: crate::node::Routes
    fn drop_void(&mut self, layout: &Layout, effects: &mut Effects) {
        for (partition, shard, epoch) in layout.copies() {
            let is_due = self.view.migrations.is_void(partition, epoch)
                && !self.unnamed.contains(&partition)
                && !self.remnants.contains_key(&(partition, epoch))
                && !self.planted.has(Bug::HeldIsStronger);
            if is_due {
                self.drop_copy(shard, partition, epoch, effects);
            }
        }
    }

    fn drop_copy(
        &mut self,
        shard: ShardId,
        partition: PartitionId,
        epoch: Epoch,
        effects: &mut Effects,
    ) {
        self.remnants.insert((partition, epoch), shard);
        let give_up = Order::Drop { partition, epoch };
        effects.orders.push((shard, give_up));
    }

    /// Plants a bug, for tests that have to find it.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: Bug) {
        self.planted = Planted::new(Some(bug));
    }

    /// Begins the copies that the table gives to this node; those that come with a migration are not empty.
    fn adopt(&mut self, layout: &mut Layout) {
        let view = &self.view;
        let arrivals = &view.migrations.arrivals;
        let partitions = (0..).map(PartitionId).zip(&view.table.entries);
        let places = partitions.map(|(partition, entry)| match entry.primary() {
            // Most copies are here already, and this is asked for every table.
            _ if layout.served(partition).is_some() => (ShardId(0), NO_COPY),
            Some(primary)
                if primary.node == self.me
                    && primary.shard.0 < layout.shards()
                    && arrivals.get(&partition).is_none_or(|a| a.migration.0 == 0)
                    && !self.has_remnant(partition) =>
            {
                (primary.shard, entry.epoch)
            }
            _ => (ShardId(0), NO_COPY),
        });
        let begun = layout.add_copies(&places.collect::<Vec<_>>());
        if !begun.is_empty() {
            self.unnamed.extend(begun.iter().map(|(id, ..)| *id));
            self.next.begun = begun;
            (self.next.is_changed, self.next.is_hosted_changed) = (true, true);
        }
    }

    /// Has what this turn has led to wait for its layout, if it is another one, and for those that are being
    /// written: a copy that one of them replaces is not forgotten before.
    fn rest(&mut self, effects: &mut Effects) {
        let mut next = std::mem::take(&mut self.next);
        if next.is_changed {
            self.written += 1;
            next.number = self.written;
            effects.layout = Some(next.number);
            self.resting.push_back(next);
        } else if let Some(last) = self.resting.back_mut() {
            last.orders.extend(next.orders);
        } else {
            effects.orders.extend(next.orders);
        }
    }

    /// The layout of this number is durable, and those before.
    fn release(&mut self, number: u64, effects: &mut Effects) {
        while self.resting.front().is_some_and(|r| r.number <= number)
            && let Some(resting) = self.resting.pop_front()
        {
            for (partition, ..) in &resting.begun {
                self.unnamed.remove(partition);
                effects.routes = true;
            }
            for (_, order) in &resting.orders {
                if let Order::Receive { batch, .. } = order {
                    for (migration, _) in batch.moves() {
                        self.unsaid.remove(migration);
                    }
                }
            }
            effects.begun.extend(resting.begun);
            effects.orders.extend(resting.orders);
            effects.hosted |= resting.is_hosted_changed;
        }
    }

    /// Whether the copy is with its shard, which is not so before the layout names it durably.
    #[must_use]
    pub fn is_begun(&self, partition: PartitionId) -> bool {
        !self.unnamed.contains(&partition)
    }

    /// Has a shard remove what is left of a copy that the layout does not name any more.
    fn forget(&mut self, shard: ShardId, partition: PartitionId, epoch: Epoch) {
        self.remnants.insert((partition, epoch), shard);
        let forget = Order::Forget { partition, epoch };
        self.next.orders.push((shard, forget));
    }

    /// Whether something is left of a copy of this partition that goes or has gone.
    fn has_remnant(&self, partition: PartitionId) -> bool {
        let first = (partition, Epoch(0));
        let mut of = self.remnants.range(first..);
        of.next().is_some_and(|((found, _), _)| *found == partition)
    }

    /// Tells the coordinator what is new.
    fn say(&mut self, effects: &mut Effects) {
        let active = &self.view.migrations.active;
        let last = self.view.migrations.last;
        self.failed
            .retain(|id, _| *id > last || active.contains_key(id));
        let failed = self.failed.iter();
        let failed = failed.map(|(id, reason)| (*id, Step::Abort(reason.clone())));
        let mut steps: BTreeMap<MigrationId, Step> = failed.collect();
        let sending = self.sending.iter();
        steps.extend(sending.filter_map(|(id, source)| {
            let batch = self.batches.get(&source.batch)?;
            Some((*id, batch.step(*id)?))
        }));
        if steps != self.steps {
            self.steps.clone_from(&steps);
            effects.steps = Some(steps);
        }
        let sent = self.sent.len();
        self.sent.retain(|_, (_, until_ms)| self.now_ms < *until_ms);
        if self.is_progress_new || self.sent.len() != sent {
            self.is_progress_new = false;
            let sending = self.sending.iter();
            let sending = sending.map(|(id, source)| (*id, source.progress.clone()));
            let sent = self.sent.iter();
            let sent = sent.map(|(id, (progress, _))| (*id, progress.clone()));
            effects.progress = Some(sending.chain(sent).collect());
        }
    }
}

#[cfg(test)]
mod tests;
