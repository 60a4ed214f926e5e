//! Batches that this node sends.
//!
//! ```text
//! FROM                  TO          [by]
//! -                     Beginning   the plan, if its turn has come, the copies are here and not too many others go; says Begin
//! -                     Failed      it is copying, by an earlier start of this node
//! Beginning             Beginning   without those that have lost their turn
//! Beginning             Opening     the table shows that all are copying, and few streams are there
//! Opening               Opening     the target was not there, or is not ready
//! Opening               Sending     the stream is open: Order::Send
//! Opening               Failed      for too long
//! Sending               Confirmed   Report::Confirmed; says Commit
//! Sending               Failed      Report::RolledBack; says Abort
//! Confirmed             Revoked     Report::Overdue; says Abort, and whichever is first in the log wins
//! Beginning, Opening    Failed      the table has aborted one; says Abort for the others
//! Sending, Confirmed    Revoked     the same
//! any                   (over)      the table decides: Order::Drop or Order::Aborted
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ephesus_coordinator::link::PeerStream;
use ephesus_coordinator::migration::{Confirmation, Decision, Migration, Phase, Progress, Step};
use ephesus_coordinator::placement::Place;
use ephesus_coordinator::state::MemberStatus;
use ephesus_wire::stream::{Contents, Open};
use ephesus_wire::table::PartitionStatus;
use ephesus_wire::{Epoch, MigrationId, PartitionId, ShardId};

use super::{AGAIN_MS, Effects, MB, NodeMigrations, PATIENCE_MS};
use crate::migration::batch::{BATCH_BYTES_MAX, BATCH_MIGRATIONS_MAX};
use crate::migration::{Batch, Order, Way};
use crate::node::data_dir::Layout;
use crate::node::peers::Dial;
use crate::planted::Bug;
use crate::shard::stats::Counter;

/// Migrations of one shard that have streams: while one batch copies the next one's stream is opened.
const STREAMING_MAX: usize = 2 * BATCH_MIGRATIONS_MAX;

/// Migrations of one shard that are begun and not decided: while two batches have streams the coordinator
/// decides about a third one.
const BEGUN_MAX: usize = 3 * BATCH_MIGRATIONS_MAX;

/// Attempts of a migration with others; those that follow are batches of their own, so that what ends one partition's
/// migration each time does not end others' for good.
const TOGETHER_MAX: u32 = 2;

/// How long it is said how far a migration was that has ended, ms.
const SENT_MS: u64 = 3 * ephesus_coordinator::agent::PROGRESS_MS;

/// Why a migration is given up that an earlier start has begun.
const RESTARTED: &str = "the source has restarted";

/// What a coordinator is told when a decision does not come.
const OVERDUE: &str = "it was not decided in time";

/// A batch that this node sends.
#[derive(Debug)]
pub(super) struct NodeBatch {
    shard: ShardId,
    target: Place,
    state: State,
}

/// A copy that this node sends.
#[derive(Debug)]
pub(super) struct NodeSource {
    pub(super) batch: MigrationId,
    partition: PartitionId,
    /// Of the copy that goes.
    epoch: Epoch,
    pub(super) progress: Progress,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Beginning,
    Opening {
        /// When it is tried next; none: a dial is under way.
        next_ms: Option<u64>,
        until_ms: u64,
        /// What has stood in the way.
        reason: String,
    },
    Sending,
    Confirmed(Vec<(MigrationId, Confirmation)>),
    /// It is to be aborted, and the shard may hold it.
    Revoked(String),
    /// It is to be aborted, and the shard does not know of it.
    Failed(String),
}

/// What begins in one turn.
#[derive(Default)]
struct Beginning {
    /// How many more may begin at a shard.
    rooms: BTreeMap<ShardId, usize>,
    /// From a shard to another one: the last batch that may take others, how many it has and how many bytes.
    last: BTreeMap<(ShardId, Place), (MigrationId, usize, u64)>,
}

impl Beginning {
    /// The batch that a migration of so many `bytes` begins in; none as long as there is no room for a whole one beside
    /// the `begun` ones: what is begun one by one is decided one by one.
    fn join(
        &mut self,
        (shard, target): (ShardId, Place),
        (id, bytes): (MigrationId, u64),
        begun: impl Fn() -> usize,
    ) -> Option<MigrationId> {
        if let Some((batch, size, sum)) = self.last.get_mut(&(shard, target))
            && *size < BATCH_MIGRATIONS_MAX
            && sum.saturating_add(bytes) <= BATCH_BYTES_MAX
        {
            (*size, *sum) = (*size + 1, *sum + bytes);
            return Some(*batch);
        }
        let room = self.rooms.entry(shard);
        let room = room.or_insert_with(|| BEGUN_MAX.saturating_sub(begun()));
        *room = room.checked_sub(BATCH_MIGRATIONS_MAX)?;
        if bytes <= BATCH_BYTES_MAX {
            self.last.insert((shard, target), (id, 1, bytes));
        }
        Some(id)
    }
}

impl NodeBatch {
    /// What the coordinator is to decide about a migration of it; about all, when it is the first one.
    pub(super) fn step(&self, id: MigrationId) -> Option<Step> {
        match &self.state {
            State::Beginning => Some(Step::Begin),
            State::Opening { .. } | State::Sending => None,
            State::Confirmed(all) => {
                let is_first = all.first().is_some_and(|(first, _)| *first == id);
                is_first.then(|| Step::Commit(all.clone()))
            }
            State::Revoked(reason) | State::Failed(reason) => Some(Step::Abort(reason.clone())),
        }
    }

    /// Whether the stream is not open yet.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening { .. })
    }

    /// Whether the shard knows of it.
    fn is_known(&self) -> bool {
        matches!(
            self.state,
            State::Sending | State::Confirmed(_) | State::Revoked(_)
        )
    }
}

impl NodeMigrations {
    pub(super) fn confirmed(&mut self, batch: MigrationId, contents: Vec<(MigrationId, Contents)>) {
        if let Some(found) = self.batches.get_mut(&batch)
            && found.state == State::Sending
        {
            let confirmation = |contents: Contents| Confirmation {
                count: contents.count,
                digest: contents.digest,
            };
            let all = contents
                .into_iter()
                .map(|(id, contents)| (id, confirmation(contents)));
            found.state = State::Confirmed(all.collect());
        }
    }

    pub(super) fn rolled_back(&mut self, batch: MigrationId, reason: String) {
        if let Some(found) = self.batches.get_mut(&batch)
            && found.state == State::Sending
        {
            for source in self.sending.values_mut().filter(|s| s.batch == batch) {
                source.progress.last_error.clone_from(&reason);
            }
            found.state = State::Failed(reason);
            self.is_progress_new = true;
        }
    }

    pub(super) fn overdue(&mut self, batch: MigrationId) {
        if let Some(found) = self.batches.get_mut(&batch)
            && matches!(found.state, State::Confirmed(_))
        {
            found.state = State::Revoked(OVERDUE.to_owned());
        }
    }

    /// What became of a dial.
    pub(super) fn dialled(
        &mut self,
        id: MigrationId,
        result: Result<PeerStream, String>,
        effects: &mut Effects,
    ) {
        let moves = self.batch(id);
        let Some(found) = self.batches.get_mut(&id) else {
            // The target learns of it from the coordinator, or from the end of the connection.
            return;
        };
        let State::Opening {
            next_ms, reason, ..
        } = &mut found.state
        else {
            return;
        };
        match (result, moves) {
            (Ok(stream), Some(batch)) => {
                found.state = State::Sending;
                let (to, way) = (found.target.node, Way::Node(stream));
                let send = Order::Send { batch, to, way };
                effects.orders.push((found.shard, send));
            }
            (Ok(_), None) => {}
            (Err(text), _) => {
                *reason = text;
                *next_ms = Some(self.now_ms + AGAIN_MS);
            }
        }
    }

    /// Ends what the table has decided. Copies that are void now are [dropped](NodeMigrations::drop_void) with all
    /// others, those of aborted migrations are served as before, and the rest of their batches is to be aborted.
    pub(super) fn end_sent(&mut self, effects: &mut Effects) {
        let migrations = &self.view.migrations;
        let decision =
            |id: MigrationId, source: &NodeSource| match self.planted.has(Bug::HeldIsStronger) {
                true => migrations.decision_for_target(id, source.partition),
                false => migrations.decision_for_source(id, source.partition, source.epoch),
            };
        let sending = self.sending.iter();
        let over = sending.filter_map(|(id, source)| match decision(*id, source) {
            Decision::Open => None,
            decided => (!self.unsaid.contains(id)).then_some((*id, decided)),
        });
        let over: Vec<(MigrationId, Decision)> = over.collect();
        for &(migration, decided) in &over {
            let Some(source) = self.sending.remove(&migration) else {
                continue;
            };
            let until_ms = self.now_ms + SENT_MS;
            self.sent.insert(migration, (source.progress, until_ms));
            self.is_progress_new = true;
            let Some(batch) = self.batches.get_mut(&source.batch) else {
                continue;
            };
            let shard = batch.shard;
            let reason = format!("migration {migration} of its batch is over");
            let is_known = batch.is_known();
            match batch.state {
                State::Revoked(_) | State::Failed(_) => {}
                _ if is_known => batch.state = State::Revoked(reason),
                _ => batch.state = State::Failed(reason),
            }
            if decided == Decision::Aborted {
                if is_known {
                    let aborted = Order::Aborted {
                        migration,
                        partition: source.partition,
                        epoch: source.epoch.next(),
                    };
                    effects.orders.push((shard, aborted));
                }
            } else if self.planted.has(Bug::HeldIsStronger) {
                self.drop_copy(shard, source.partition, source.epoch, effects);
            }
        }
        if !over.is_empty() {
            let left: BTreeSet<MigrationId> = self.sending.values().map(|s| s.batch).collect();
            self.batches.retain(|id, _| left.contains(id));
        }
    }

    /// Goes on with what this node sends.
    pub(super) fn send(&mut self, layout: &mut Layout, effects: &mut Effects) {
        let (view, me) = (Arc::clone(&self.view), self.me);
        self.leave_out();
        let active = view.migrations.active.iter();
        let mut beginning = Beginning::default();
        for (id, migration) in active.filter(|(_, m)| m.source.node == me) {
            if !self.sending.contains_key(id) {
                self.begin(*id, migration, layout, &mut beginning);
            }
        }
        let batches: Vec<MigrationId> = self.batches.keys().copied().collect();
        for id in batches {
            self.open(id, layout, effects);
        }
    }

    /// Leaves those that wait for their turn again out of batches that begin: they would keep the others waiting.
    fn leave_out(&mut self) {
        let active = &self.view.migrations.active;
        let waits = |id: &MigrationId| {
            let migration = active.get(id);
            migration.is_some_and(|migration| migration.phase == Phase::Waiting)
        };
        let waiting = self.sending.iter().filter(|(id, _)| waits(id));
        let shrinking: BTreeSet<MigrationId> = waiting.map(|(_, source)| source.batch).collect();
        for id in shrinking {
            let Some(batch) = self.batches.remove(&id) else {
                continue;
            };
            if batch.state != State::Beginning {
                self.batches.insert(id, batch);
                continue;
            }
            self.sending
                .retain(|migration, source| source.batch != id || !waits(migration));
            let mut left = self.sending.iter_mut().filter(|(_, s)| s.batch == id);
            // It has the name of its first one.
            if let Some((first, source)) = left.next() {
                let first = *first;
                source.batch = first;
                left.for_each(|(_, source)| source.batch = first);
                self.batches.insert(first, batch);
            }
        }
    }

    /// How many migrations of a shard are begun, or only those that have streams or are about to.
    fn count(&self, shard: ShardId, only_streaming: bool) -> usize {
        let is_counted = |source: &&NodeSource| {
            let batch = self.batches.get(&source.batch);
            batch.is_some_and(|batch| {
                let is_streaming = matches!(batch.state, State::Opening { .. } | State::Sending);
                batch.shard == shard && (is_streaming || !only_streaming)
            })
        };
        self.sending.values().filter(is_counted).count()
    }

    /// What OPEN says of each migration of a batch.
    fn batch(&self, id: MigrationId) -> Option<Batch> {
        let batch = self.batches.get(&id)?;
        let moves = self.sending.iter().filter(|(_, s)| s.batch == id);
        let moves = moves.map(|(migration, source)| {
            let open = Open {
                partition: source.partition,
                epoch: source.epoch.next(),
                source: self.me,
                source_shard: batch.shard,
                target_shard: batch.target.shard,
            };
            (*migration, open)
        });
        Batch::new(moves.collect())
    }

    fn begin(
        &mut self,
        id: MigrationId,
        migration: &Migration,
        layout: &Layout,
        beginning: &mut Beginning,
    ) {
        let (shard, partition) = (migration.source.shard, migration.partition);
        let (state, batch) = match migration.phase {
            Phase::Waiting => return,
            Phase::Planned => {
                let view = &self.view;
                let target = view.members.get(&migration.target.node);
                // One that recovers lets nobody in, and the attempt would be used up.
                let is_target_live = target.is_some_and(|m| m.status == MemberStatus::Live);
                let entry = view.table.entry(partition);
                if !is_target_live
                    || entry.is_none_or(|entry| entry.status != PartitionStatus::Online)
                    || layout.served(partition) != Some((shard, migration.epoch))
                {
                    return;
                }
                let bytes = self.partition_bytes.get(usize::from(partition.0));
                let bytes = match migration.attempt <= TOGETHER_MAX {
                    true => bytes.map_or(u64::MAX, Counter::get),
                    false => u64::MAX,
                };
                let places = (shard, migration.target);
                let begun = || self.count(shard, false);
                let Some(batch) = beginning.join(places, (id, bytes), begun) else {
                    return;
                };
                (State::Beginning, batch)
            }
            _ => (State::Failed(RESTARTED.to_owned()), id),
        };
        let source = NodeSource {
            batch,
            partition,
            epoch: migration.epoch,
            progress: Progress::default(),
        };
        self.sending.insert(id, source);
        self.batches.entry(batch).or_insert(NodeBatch {
            shard,
            target: migration.target,
            state,
        });
    }

    /// Opens a stream if it is time to.
    fn open(&mut self, id: MigrationId, layout: &mut Layout, effects: &mut Effects) {
        let Some(NodeBatch {
            shard,
            target,
            state,
        }) = self.batches.get(&id)
        else {
            return;
        };
        let (shard, target, now_ms) = (*shard, *target, self.now_ms);
        let until_ms = match state {
            State::Beginning => now_ms + PATIENCE_MS,
            State::Opening {
                next_ms: Some(next_ms),
                until_ms,
                reason,
            } => {
                if now_ms >= *until_ms && !reason.is_empty() {
                    let failed = State::Failed(reason.clone());
                    self.set_state(id, failed);
                    return;
                }
                if now_ms < *next_ms {
                    return;
                }
                *until_ms
            }
            _ => return,
        };
        let is_beginning = *state == State::Beginning;
        let Some(batch) = self.batch(id) else { return };
        if is_beginning && !self.may_open(shard, &batch) {
            return;
        }
        let opening = |next_ms, reason| State::Opening {
            next_ms,
            until_ms,
            reason,
        };
        let next = match self.view.members.get(&target.node) {
            _ if target.node == self.me => {
                // The source waits for the target's first message, so it has to know of the batch before.
                let at = self.next.orders.len();
                match self.stage(&batch, Way::Shard(shard), layout, effects) {
                    Ok(()) => {
                        let (to, way) = (target.node, Way::Shard(target.shard));
                        let send = Order::Send { batch, to, way };
                        self.next.orders.insert(at, (shard, send));
                        State::Sending
                    }
                    Err(reason) => opening(Some(now_ms + AGAIN_MS), reason),
                }
            }
            Some(member) => {
                effects.dials.push(Dial {
                    batch,
                    target: target.node,
                    address: member.addresses.peer.clone(),
                });
                opening(None, String::new())
            }
            None => opening(Some(now_ms + AGAIN_MS), String::new()),
        };
        self.set_state(id, next);
    }

    /// Whether all of a batch have begun, and there are not too many streams.
    fn may_open(&self, shard: ShardId, batch: &Batch) -> bool {
        let active = &self.view.migrations.active;
        let is_copying = |id| {
            let migration = active.get(id);
            migration.is_some_and(|migration| migration.phase == Phase::Copying)
        };
        let moves = batch.moves();
        self.count(shard, true) + moves.len() <= STREAMING_MAX
            && moves.iter().all(|(id, _)| is_copying(id))
    }

    fn set_state(&mut self, id: MigrationId, state: State) {
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.state = state;
        }
    }

    /// Divides what the node may send among the shards that send.
    pub(super) fn limit(&mut self, effects: &mut Effects) {
        let sending = self.batches.values();
        let sending = sending.filter(|batch| batch.state == State::Sending);
        let shards: BTreeSet<ShardId> = sending.map(|batch| batch.shard).collect();
        let limit = u64::from(self.view.migrations.limit_mb_s) * MB;
        for shard in &shards {
            // 0 is none.
            let share = limit.div_ceil(shards.len() as u64);
            let told = self.limits.entry(*shard).or_default();
            if *told != share {
                *told = share;
                effects.orders.insert(0, (*shard, Order::Limit(share)));
            }
        }
    }
}
