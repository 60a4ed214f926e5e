//! Copies that this node sends.
//!
//! ```text
//! FROM                  TO          [by]
//! -                     Beginning   the plan, if the copy is here and not too many others go; says Begin
//! -                     Failed      it is copying, by an earlier start of this node
//! Beginning             Opening     the table shows that it is copying, and few streams are there
//! Opening               Opening     the target was not there, or is not ready
//! Opening               Sending     the stream is open: Order::Send
//! Opening               Failed      for too long
//! Sending               Confirmed   Report::Confirmed; says Commit
//! Sending               Failed      Report::RolledBack; says Abort
//! Confirmed             Overdue     Report::Overdue; says Abort, and whichever is first in the log wins
//! any                   (over)      the table decides: Order::Drop or Order::Aborted
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::sync::Arc;

use ephesus_coordinator::migration::{Confirmation, Decision, Migration, Phase, Progress, Step};
use ephesus_coordinator::placement::Place;
use ephesus_coordinator::state::MemberStatus;
use ephesus_wire::stream::{Held, Open};
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId, ShardId};

use super::{AGAIN_MS, Effects, MB, NodeMigrations, PATIENCE_MS};
use crate::migration::{Line, Order, Way};
use crate::node::data_dir::Layout;
use crate::node::peers::Dial;
use crate::planted::Bug;

/// Migrations of one shard to one node that are begun, and decided if possible, together: what a step
/// costs the coordinator, layouts and routes is the same for all of them.
const GROUP: usize = 16;

/// Streams of one shard at a time: while one group copies the next one's streams are opened.
const STREAMS_MAX: usize = 2 * GROUP;

/// Migrations of one shard that are begun and not decided: while two groups have streams the coordinator
/// decides about a third one.
const BEGUN_MAX: usize = 3 * GROUP;

/// How long it is said how far a migration was that has ended, ms.
const SENT_MS: u64 = 3 * ephesus_coordinator::agent::PROGRESS_MS;

/// Why a migration is given up that an earlier start has begun.
const RESTARTED: &str = "the source has restarted";

/// What a coordinator is told when a decision does not come.
const OVERDUE: &str = "it was not decided in time";

/// A copy that this node sends.
#[derive(Debug)]
pub(super) struct NodeSource {
    partition: PartitionId,
    /// Of the copy that goes.
    epoch: Epoch,
    shard: ShardId,
    target: Place,
    group: u64,
    state: State,
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
    Confirmed(Confirmation),
    Overdue,
    Failed(String),
}

/// The groups that begin in one turn.
#[derive(Default)]
struct Groups {
    /// How many more may begin at a shard.
    rooms: BTreeMap<ShardId, usize>,
    /// Of a shard, to a node: the last one's number, which is that of its first migration, and size.
    last: BTreeMap<(ShardId, NodeId), (u64, usize)>,
}

impl Groups {
    /// How many more may begin at a shard, of which so many are `begun`.
    fn room(&mut self, shard: ShardId, begun: impl Fn() -> usize) -> &mut usize {
        self.rooms.entry(shard).or_insert_with(|| {
            let room = BEGUN_MAX.saturating_sub(begun());
            room / GROUP * GROUP
        })
    }

    /// The group that a migration begins in; none as long as there is no room for a whole one beside the
    /// `begun` ones: what is begun one by one is decided one by one.
    fn join(
        &mut self,
        shard: ShardId,
        target: NodeId,
        id: MigrationId,
        begun: impl Fn() -> usize,
    ) -> Option<u64> {
        let room = self.room(shard, begun);
        *room = room.checked_sub(1)?;
        let (number, size) = self.last.entry((shard, target)).or_insert((id.0, 0));
        if *size == GROUP {
            (*number, *size) = (id.0, 0);
        }
        *size += 1;
        Some(*number)
    }
}

impl NodeSource {
    /// What the coordinator is to decide.
    pub(super) fn step(&self) -> Option<Step> {
        match &self.state {
            State::Beginning => Some(Step::Begin),
            State::Opening { .. } | State::Sending => None,
            State::Confirmed(confirmation) => Some(Step::Commit(*confirmation)),
            State::Overdue => Some(Step::Abort(OVERDUE.to_owned())),
            State::Failed(reason) => Some(Step::Abort(reason.clone())),
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
            State::Sending | State::Confirmed(_) | State::Overdue
        )
    }
}

impl NodeMigrations {
    pub(super) fn confirmed(&mut self, migration: MigrationId, held: Held) {
        if let Some(source) = self.sending.get_mut(&migration)
            && source.state == State::Sending
        {
            source.state = State::Confirmed(Confirmation {
                count: held.count,
                digest: held.digest,
            });
        }
    }

    pub(super) fn gave_up(&mut self, migration: MigrationId, reason: String) {
        if let Some(source) = self.sending.get_mut(&migration)
            && source.state == State::Sending
        {
            source.progress.last_error.clone_from(&reason);
            source.state = State::Failed(reason);
            self.is_progress_new = true;
        }
    }

    pub(super) fn overdue(&mut self, migration: MigrationId) {
        if let Some(source) = self.sending.get_mut(&migration)
            && matches!(source.state, State::Confirmed(_))
        {
            source.state = State::Overdue;
        }
    }

    /// What became of a dial.
    pub(super) fn dialled(
        &mut self,
        migrations: &[MigrationId],
        result: Result<TcpStream, String>,
        effects: &mut Effects,
    ) {
        let line = result.map(Line::new);
        for &migration in migrations {
            let Some(source) = self.sending.get_mut(&migration) else {
                // The target learns of it from the coordinator, or from the end of the connection.
                continue;
            };
            let State::Opening {
                next_ms, reason, ..
            } = &mut source.state
            else {
                continue;
            };
            match &line {
                Ok(line) => {
                    source.state = State::Sending;
                    let open = open(self.me, source);
                    let way = Way::Node(line.clone());
                    let send = Order::Send {
                        migration,
                        group: source.group,
                        open,
                        to: source.target.node,
                        way,
                    };
                    effects.orders.push((source.shard, send));
                }
                Err(text) => {
                    reason.clone_from(text);
                    *next_ms = Some(self.now_ms + AGAIN_MS);
                }
            }
        }
    }

    /// Ends what the table has decided. Copies that are void now are [given up](NodeMigrations::drop_void) with all
    /// others, those of aborted migrations are served as before.
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
        for (migration, decided) in over {
            let Some(source) = self.sending.remove(&migration) else {
                continue;
            };
            if decided == Decision::Aborted && source.is_known() {
                let aborted = Order::Aborted {
                    migration,
                    partition: source.partition,
                    epoch: source.epoch.next(),
                };
                effects.orders.push((source.shard, aborted));
            }
            if decided == Decision::Committed && self.planted.has(Bug::HeldIsStronger) {
                self.drop_copy(source.shard, source.partition, source.epoch, effects);
            }
            let until_ms = self.now_ms + SENT_MS;
            self.sent.insert(migration, (source.progress, until_ms));
            self.is_progress_new = true;
        }
    }

    /// Goes on with what this node sends.
    pub(super) fn send(&mut self, layout: &mut Layout, effects: &mut Effects) {
        let (view, me) = (Arc::clone(&self.view), self.me);
        let active = view.migrations.active.iter();
        let mut groups = Groups::default();
        for (id, migration) in active.filter(|(_, m)| m.source.node == me) {
            match self.sending.get(id).map(|source| &source.state) {
                None => self.begin(*id, migration, layout, &mut groups),
                Some(State::Beginning)
                    if migration.phase == Phase::Copying
                        && self.streams(migration.source.shard) < STREAMS_MAX =>
                {
                    let opening = State::Opening {
                        next_ms: Some(self.now_ms),
                        until_ms: self.now_ms + PATIENCE_MS,
                        reason: String::new(),
                    };
                    self.set_state(*id, opening);
                }
                Some(_) => {}
            }
            self.open(*id, layout, effects);
        }
    }

    /// How many streams a shard has, or is about to have.
    fn streams(&self, shard: ShardId) -> usize {
        let of_shard = self.sending.values().filter(|l| l.shard == shard);
        of_shard
            .filter(|l| matches!(l.state, State::Opening { .. } | State::Sending))
            .count()
    }

    fn begin(
        &mut self,
        id: MigrationId,
        migration: &Migration,
        layout: &Layout,
        groups: &mut Groups,
    ) {
        let shard = migration.source.shard;
        let target = self.view.members.get(&migration.target.node);
        // One that recovers lets nobody in, and the attempt would be used up.
        let is_target_live = target.is_some_and(|member| member.status == MemberStatus::Live);
        let (state, group) = match migration.phase {
            Phase::Planned if !is_target_live => return,
            Phase::Planned => {
                let sending = &self.sending;
                let begun = || sending.values().filter(|l| l.shard == shard).count();
                // Asked first: there may be hundreds that wait for room.
                if *groups.room(shard, begun) == 0
                    || layout.served(migration.partition) != Some((shard, migration.epoch))
                {
                    return;
                }
                let Some(group) = groups.join(shard, migration.target.node, id, begun) else {
                    return;
                };
                (State::Beginning, group)
            }
            _ => (State::Failed(RESTARTED.to_owned()), id.0),
        };
        let source = NodeSource {
            partition: migration.partition,
            epoch: migration.epoch,
            shard,
            target: migration.target,
            group,
            state,
            progress: Progress::default(),
        };
        self.sending.insert(id, source);
    }

    fn set_state(&mut self, id: MigrationId, state: State) {
        if let Some(source) = self.sending.get_mut(&id) {
            source.state = state;
        }
    }

    /// Opens a stream if it is time to.
    fn open(&mut self, id: MigrationId, layout: &mut Layout, effects: &mut Effects) {
        let Some(source) = self.sending.get(&id) else {
            return;
        };
        let State::Opening {
            next_ms: Some(next_ms),
            until_ms,
            reason,
        } = &source.state
        else {
            return;
        };
        let until_ms = *until_ms;
        if self.now_ms >= until_ms && !reason.is_empty() {
            let failed = State::Failed(reason.clone());
            self.set_state(id, failed);
            return;
        }
        if self.now_ms < *next_ms {
            return;
        }
        let (open, target, shard) = (open(self.me, source), source.target, source.shard);
        let group = source.group;
        if target.node == self.me {
            // The source waits for the target's first message, so it has to know of the move before.
            let at = self.next.orders.len();
            let way = Way::Shard(shard);
            let state = match self.stage(id, open, way, layout, effects) {
                Ok(()) => {
                    let send = Order::Send {
                        migration: id,
                        group,
                        open,
                        to: target.node,
                        way: Way::Shard(target.shard),
                    };
                    self.next.orders.insert(at, (shard, send));
                    State::Sending
                }
                Err(reason) => State::Opening {
                    next_ms: Some(self.now_ms + AGAIN_MS),
                    until_ms,
                    reason,
                },
            };
            self.set_state(id, state);
            return;
        }
        let Some(member) = self.view.members.get(&target.node) else {
            return;
        };
        let goes_along = |dial: &&mut Dial| {
            let is_with = |first: &Open| (first.source_shard, first.target_shard);
            let first = dial.opens.first();
            dial.target == target.node
                && first.is_some_and(|(_, first)| is_with(first) == (shard, target.shard))
                && dial.opens.len() < GROUP
        };
        match effects.dials.iter_mut().find(goes_along) {
            Some(dial) => dial.opens.push((id, open)),
            None => effects.dials.push(Dial {
                opens: vec![(id, open)],
                target: target.node,
                address: member.addresses.peer.clone(),
            }),
        }
        if let Some(source) = self.sending.get_mut(&id)
            && let State::Opening { next_ms, .. } = &mut source.state
        {
            *next_ms = None;
        }
    }

    /// Divides what the node may send among the shards that send.
    pub(super) fn limit(&mut self, effects: &mut Effects) {
        let sending = self.sending.values();
        let sending = sending.filter(|source| source.state == State::Sending);
        let shards: BTreeSet<ShardId> = sending.map(|source| source.shard).collect();
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

/// What OPEN says.
fn open(me: NodeId, source: &NodeSource) -> Open {
    Open {
        partition: source.partition,
        epoch: source.epoch.next(),
        source: me,
        source_shard: source.shard,
        target_shard: source.target.shard,
    }
}
