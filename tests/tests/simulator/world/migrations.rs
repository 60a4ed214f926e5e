//! The nodes of a world carry migrations out, over streams between them.

use std::collections::BTreeMap;

use ephesus_coordinator::migration::{Confirmation, Decision, Migration, Phase, Progress, Step};
use ephesus_coordinator::view::View;
use ephesus_engine::migration::{Stage, TargetError};
use ephesus_engine::planted::Bug;
use ephesus_wire::{Epoch, MigrationId, PartitionId, record};

use super::World;
use crate::migration::{Copy, Message, Mistake, Moment, SOURCE, Source, Staging, TARGET};
use crate::store::Store;

/// A source that holds gives up alone before it has said commit, ms.
const HOLD_MS_MAX: u64 = 500;

/// A source that has said commit, and does not learn what became of it, says abort, ms.
const DEADLINE_MS: u64 = 1_500;

/// The same of a source that resumes by [mistake](Mistake::Resumes).
const RESUME_MS: u64 = 100;

/// A source dials so often, about as long as a real target waits for the table that it lacks: updates that
/// overtake each other are dropped, and sent again only after a heartbeat.
const DIALS_MAX: u32 = 60;

impl World {
    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The mistakes that are the engine's own.
    fn engine_bug(&self) -> Option<Bug> {
        match self.mistake? {
            Mistake::LateCapture => Some(Bug::LateCapture),
            Mistake::StagingSurvives => Some(Bug::StagingSurvives),
            Mistake::PreparedWiped => Some(Bug::PreparedWiped),
            _ => None,
        }
    }

    fn deadline_ms(&self) -> u64 {
        if self.makes(Mistake::Resumes) {
            return RESUME_MS;
        }
        DEADLINE_MS
    }

    /// A node goes on with the migrations it is the source of.
    pub(super) fn migrate(&mut self, node: usize) -> Result<(), String> {
        let process = &self.nodes[node];
        let Some(view) = process.running.as_ref().and_then(|agent| agent.view()) else {
            return Ok(());
        };
        if process.paused_until > self.now {
            return Ok(());
        }
        let (view, me) = (view.clone(), process.disk.id);
        let active = &view.migrations.active;
        let over: Vec<MigrationId> = process.sources.keys().copied().collect();
        for id in over.into_iter().filter(|id| !active.contains_key(id)) {
            self.nodes[node].sources.remove(&id);
            self.break_streams_of(node, id);
        }
        for (id, migration) in active.iter().filter(|(_, m)| m.source.node == me) {
            self.reach(*id, Moment::Planned);
            let state = self.nodes[node].sources.get(id).copied();
            if let Some(next) = self.next_source(node, *id, migration, state)? {
                self.nodes[node].sources.insert(*id, next);
            }
        }
        self.end_moves(node);
        self.say_steps(node);
        Ok(())
    }

    /// Nothing is captured any more for migrations that are over or given up.
    fn end_moves(&mut self, node: usize) {
        let process = &mut self.nodes[node];
        for copy in process.disk.copies.values_mut() {
            let id = copy.store.moves_by();
            let moves = id.and_then(|id| process.sources.get(&id));
            if id.is_some() && !moves.is_some_and(Source::moves) {
                copy.store.end_move();
            }
        }
    }

    fn next_source(
        &mut self,
        node: usize,
        id: MigrationId,
        migration: &Migration,
        state: Option<Source>,
    ) -> Result<Option<Source>, String> {
        Ok(match (state, &migration.phase) {
            (None, Phase::Planned) => self.rng.one_in(3).then(|| {
                self.reach(id, Moment::Begun);
                Source::Beginning
            }),
            // An earlier start has begun it.
            (None, _) => Some(Source::GivingUp),
            (Some(Source::Beginning), Phase::Copying) => {
                self.reach(id, Moment::Dialled);
                Some(self.dial_target(node, id, migration, 1))
            }
            (
                Some(Source::Dialling {
                    stream: 0,
                    attempts,
                }),
                _,
            ) if attempts < DIALS_MAX => Some(self.dial_target(node, id, migration, attempts + 1)),
            (Some(Source::Dialling { stream: 0, .. }), _) => Some(Source::GivingUp),
            (Some(Source::Walking { stream }), _) => {
                Some(self.walk(node, id, migration.partition, stream)?)
            }
            (Some(Source::Held { since, .. }), _) if self.now - since > HOLD_MS_MAX => {
                self.break_streams_of(node, id);
                Some(Source::GivingUp)
            }
            (Some(Source::Committing { since, .. }), _)
                if self.now - since > self.deadline_ms() =>
            {
                Some(match self.makes(Mistake::Resumes) {
                    true => Source::GivingUp,
                    false => Source::Overdue,
                })
            }
            (state, _) => state,
        })
    }

    fn dial_target(
        &mut self,
        node: usize,
        id: MigrationId,
        migration: &Migration,
        attempts: u32,
    ) -> Source {
        let target = migration.target.node;
        let found = self
            .nodes
            .iter()
            .position(|process| process.disk.id == target);
        let stream = match found {
            // Between shards of one node nothing travels, and all else is the same.
            Some(target) => self.open_stream(id, node, target),
            None => 0,
        };
        if stream > 0 {
            let partition = migration.partition;
            self.send_stream(stream, TARGET, Message::Open { partition });
        }
        Source::Dialling { stream, attempts }
    }

    /// Sends some more of the table; holds after the last of it.
    fn walk(
        &mut self,
        node: usize,
        id: MigrationId,
        partition: PartitionId,
        stream: u64,
    ) -> Result<Source, String> {
        let steps = 1 + self.rng.below(3);
        let catches_up = self.rng.one_in(2);
        let copies = &mut self.nodes[node].disk.copies;
        let Some(copy) = copies.get_mut(&partition) else {
            return Ok(Source::GivingUp);
        };
        match copy.store.stage() {
            Some(Stage::Walking) => {
                copy.store.walk(steps);
                self.reach(id, Moment::HalfWalked);
            }
            Some(Stage::CatchingUp) if !catches_up => {
                let finished = copy.store.finish();
                if finished.map_err(|error| format!("migration {id}: {error}"))? {
                    self.send_moved(node, partition, stream);
                    self.reach(id, Moment::Held);
                    let since = self.now;
                    return Ok(Source::Held { stream, since });
                }
            }
            Some(_) => {}
            None => return Ok(Source::GivingUp),
        }
        self.send_moved(node, partition, stream);
        Ok(Source::Walking { stream })
    }

    /// Sends what a copy that moves wants sent.
    fn send_moved(&mut self, node: usize, partition: PartitionId, stream: u64) {
        let copy = self.nodes[node].disk.copies.get_mut(&partition);
        for message in copy.map_or_else(Vec::new, |copy| copy.store.messages()) {
            self.send_stream(stream, TARGET, message);
        }
    }

    /// A write was executed: it joins the stream if the walk has passed it.
    pub(super) fn send_walked(&mut self, node: usize, partition: PartitionId) {
        let process = &self.nodes[node];
        let copy = process.disk.copies.get(&partition);
        let id = copy.and_then(|copy| copy.store.moves_by());
        if let Some(Source::Walking { stream }) = id.and_then(|id| process.sources.get(&id)) {
            self.send_moved(node, partition, *stream);
        }
    }

    /// The agent learns what a node wants to have decided.
    fn say_steps(&mut self, node: usize) {
        let now = self.now;
        let process = &mut self.nodes[node];
        let sources = process.sources.iter();
        let steps = sources.filter_map(|(id, source)| Some((*id, source.step()?)));
        let steps: BTreeMap<MigrationId, Step> = steps.collect();
        let progress = process.sources.keys().map(|id| {
            let progress = Progress {
                keys: now,
                ..Progress::default()
            };
            (*id, progress)
        });
        let progress = progress.collect();
        if let Some(agent) = &mut process.running {
            agent.set_migration_steps(steps);
            agent.set_migration_progress(progress);
        }
    }

    /// A message has arrived at the source.
    pub(super) fn source_told(
        &mut self,
        node: usize,
        id: MigrationId,
        stream: u64,
        message: &Message,
    ) -> Result<(), String> {
        let state = self.nodes[node].sources.get(&id).copied();
        let next = match (state, message) {
            (Some(Source::Dialling { stream: own, .. }), Message::Opened) if own == stream => {
                self.begin_walk(node, id, stream)?
            }
            (
                Some(Source::Walking { stream: own } | Source::Held { stream: own, .. }),
                Message::Ack(seq),
            ) if own == stream => {
                if let Some(partition) = self.partition_of(node, id)
                    && let Some(copy) = self.nodes[node].disk.copies.get_mut(&partition)
                {
                    let acknowledged = copy.store.acknowledged(*seq);
                    acknowledged.map_err(|error| format!("migration {id}: {error}"))?;
                    self.send_moved(node, partition, stream);
                }
                return Ok(());
            }
            (Some(Source::Held { stream: own, .. }), Message::Prepared(found)) if own == stream => {
                let Some(partition) = self.partition_of(node, id) else {
                    // It is over, as this node's table says.
                    return Ok(());
                };
                if let Some(copy) = self.nodes[node].disk.copies.get_mut(&partition) {
                    let confirmed = copy.store.confirm(*found);
                    confirmed.map_err(|error| format!("migration {id}: {error}"))?;
                }
                if self.makes(Mistake::EarlyDelete) {
                    self.nodes[node].disk.copies.remove(&partition);
                }
                self.reach(id, Moment::Confirmed);
                Source::Committing {
                    since: self.now,
                    confirmation: Confirmation {
                        count: found.count,
                        digest: found.digest,
                    },
                }
            }
            _ => return Ok(()),
        };
        self.nodes[node].sources.insert(id, next);
        self.say_steps(node);
        self.node_turn(node, Vec::new())
    }

    fn partition_of(&self, node: usize, id: MigrationId) -> Option<PartitionId> {
        let view = self.nodes[node].running.as_ref()?.view()?;
        Some(view.migrations.active.get(&id)?.partition)
    }

    /// The turn in which the walk begins: its first entry is sent, and a write may follow in it.
    fn begin_walk(&mut self, node: usize, id: MigrationId, stream: u64) -> Result<Source, String> {
        let Some(partition) = self.partition_of(node, id) else {
            return Ok(Source::GivingUp);
        };
        let epoch = self.epoch_of(node, id);
        let copy = self.nodes[node].disk.copies.get_mut(&partition);
        let begun = copy
            .zip(epoch)
            .map(|(copy, epoch)| copy.store.begin_move(id, epoch));
        match begun {
            None => return Ok(Source::GivingUp),
            Some(begun) => begun.map_err(|error| format!("migration {id}: {error}"))?,
        }
        let walking = self.walk(node, id, partition, stream)?;
        self.nodes[node].sources.insert(id, walking);
        if let Some(write) = self.any_write().filter(|_| self.serves(node, partition)) {
            self.execute(node, partition, write)?;
        }
        Ok(walking)
    }

    /// The epoch of the copy that a migration makes.
    fn epoch_of(&self, node: usize, id: MigrationId) -> Option<Epoch> {
        let view = self.nodes[node].running.as_ref()?.view()?;
        Some(Epoch(view.migrations.active.get(&id)?.epoch.0 + 1))
    }

    /// A message has arrived at the target.
    pub(super) fn target_told(
        &mut self,
        node: usize,
        id: MigrationId,
        stream: u64,
        message: &Message,
    ) -> Result<(), String> {
        let survives = self.makes(Mistake::StagingSurvives);
        let bug = self.engine_bug();
        let process = &mut self.nodes[node];
        match message {
            Message::Open { partition } => {
                let view = process.running.as_ref().and_then(|agent| agent.view());
                let active = view.and_then(|view| view.migrations.active.get(&id));
                let is_own =
                    |m: &Migration| m.target.node == process.disk.id && m.phase == Phase::Copying;
                let source = active.map(|migration| record::Source {
                    migration: id,
                    node: migration.source.node,
                    shard: migration.source.shard,
                });
                let epoch = active.map(|migration| Epoch(migration.epoch.0 + 1));
                let is_own = active.is_some_and(is_own);
                let staging = &mut process.disk.staging;
                let mut others = staging.iter();
                let other = others.find(|(_, other)| other.partition == *partition);
                let left = other.map(|(other, staging)| (*other, staging.store.is_prepared()));
                let (Some(source), Some(epoch)) = (source.filter(|_| is_own), epoch) else {
                    self.break_stream(stream);
                    return Ok(());
                };
                let begun = match left {
                    None => Store::staging(epoch, source, bug),
                    Some((other, false)) if survives => {
                        let mut left = staging.remove(&other).expect("just found").store;
                        left.begin_filling(epoch, source).map(|()| left)
                    }
                    Some(_) => Err("it is taken".to_owned()),
                };
                let Ok(store) = begun else {
                    self.break_stream(stream);
                    return Ok(());
                };
                let partition = *partition;
                staging.insert(id, Staging { partition, store });
                self.reach(id, Moment::Staged);
                self.send_stream(stream, SOURCE, Message::Opened);
            }
            Message::Data(records) => {
                let Some(staging) = process.disk.staging.get_mut(&id) else {
                    self.break_stream(stream);
                    return Ok(());
                };
                match staging.store.import(records) {
                    Ok(()) => {}
                    Err(TargetError::NotReceiving) => {
                        self.break_stream(stream);
                        return Ok(());
                    }
                    Err(error) => return Err(format!("migration {id}: the target has {error}")),
                }
                let acknowledgement = staging.store.acknowledgement();
                self.reach(id, Moment::Filled);
                if let Some(seq) = acknowledgement {
                    self.send_stream(stream, SOURCE, Message::Ack(seq));
                }
            }
            Message::Final(last) => {
                let Some(staging) = process.disk.staging.get_mut(&id) else {
                    self.break_stream(stream);
                    return Ok(());
                };
                let held = match staging.store.prepare(last) {
                    Ok(held) => held.ok_or("a copy is durable, and not confirmed")?,
                    Err(TargetError::NotReceiving) => {
                        self.break_stream(stream);
                        return Ok(());
                    }
                    Err(error) => return Err(format!("migration {id}: the target has {error}")),
                };
                self.reach(id, Moment::Prepared);
                self.send_stream(stream, SOURCE, Message::Prepared(held));
            }
            Message::Opened | Message::Ack(_) | Message::Prepared(_) => {}
        }
        Ok(())
    }

    /// An end learns that a stream is gone.
    pub(super) fn stream_lost(&mut self, node: usize, id: MigrationId, stream: u64) {
        let state = self.nodes[node].sources.get(&id).copied();
        if let Some(state) = state.filter(|state| state.needs(stream)) {
            let next = match state {
                Source::Dialling { attempts, .. } => Source::Dialling {
                    stream: 0,
                    attempts,
                },
                _ => Source::GivingUp,
            };
            self.nodes[node].sources.insert(id, next);
            self.say_steps(node);
            return;
        }
        if self
            .streams
            .values()
            .any(|s| s.migration == id && !s.is_broken && s.ends[TARGET].0 == node)
        {
            return;
        }
        let staging = &mut self.nodes[node].disk.staging;
        staging.retain(|other, staging| *other != id || staging.store.stream_broken());
    }

    /// A start replays the logs, and wipes what it must not keep.
    pub(super) fn recover_copies(&mut self, node: usize) {
        let disk = &mut self.nodes[node].disk;
        for copy in disk.copies.values_mut() {
            copy.store.restart();
        }
        disk.staging.retain(|_, staging| {
            staging.store.restart();
            staging.store.stream_broken()
        });
    }

    /// A node takes over what the table gives to it, and gives up what it does not.
    pub(super) fn host(&mut self, node: usize) -> Result<(), String> {
        let process = &self.nodes[node];
        let Some(view) = process
            .running
            .as_ref()
            .and_then(|agent| agent.view())
            .cloned()
        else {
            return Ok(());
        };
        self.settle(node, &view);
        let bug = self.engine_bug();
        for (index, entry) in view.table.entries.iter().enumerate() {
            let partition = PartitionId(index as u16);
            let arrival = view.migrations.arrivals.get(&partition);
            let disk = &mut self.nodes[node].disk;
            if entry
                .primary()
                .is_none_or(|primary| primary.node != disk.id)
            {
                if let Some(copy) = disk.copies.remove(&partition) {
                    copy.store.give_up();
                    if let Some(arrival) = arrival.filter(|arrival| arrival.migration.0 > 0) {
                        self.reach(arrival.migration, Moment::GivenUp);
                    }
                }
                continue;
            }
            let copy = disk.copies.get_mut(&partition);
            if let Some(copy) = copy.filter(|c| view.migrations.is_current(partition, c.epoch)) {
                copy.epoch = entry.epoch;
                continue;
            }
            if let Some(arrival) = arrival.filter(|arrival| arrival.migration.0 > 0) {
                return Err(format!(
                    "node {node} has nothing of partition {partition}, which {arrival:?} has brought"
                ));
            }
            let copy = Copy {
                epoch: entry.epoch,
                store: Store::served(entry.epoch, bug),
            };
            disk.copies.insert(partition, copy);
            self.checks.emptied(node, partition, entry.epoch)?;
        }
        let process = &mut self.nodes[node];
        let epochs = process.disk.copies.iter().map(|(p, copy)| (*p, copy.epoch));
        let epochs = epochs.collect();
        if let Some(agent) = &mut process.running {
            agent.set_hosted(epochs);
        }
        Ok(())
    }

    /// Prepared copies of committed migrations are served; those of aborted ones are wiped.
    fn settle(&mut self, node: usize, view: &View) {
        let staging = std::mem::take(&mut self.nodes[node].disk.staging);
        let survives = self.makes(Mistake::StagingSurvives);
        for (id, mut staging) in staging {
            let partition = staging.partition;
            let is_prepared = staging.store.is_prepared();
            let disk = &mut self.nodes[node].disk;
            match view.migrations.decision_for_target(id, partition) {
                Decision::Open => drop(disk.staging.insert(id, staging)),
                Decision::Committed if staging.store.activate() => {
                    let copy = Copy {
                        epoch: view.migrations.arrivals[&partition].epoch,
                        store: staging.store,
                    };
                    disk.copies.insert(partition, copy);
                    self.reach(id, Moment::Activated);
                }
                _ if survives && !is_prepared => {
                    disk.staging.insert(id, staging);
                }
                _ => staging.store.wipe(),
            }
        }
    }
}
