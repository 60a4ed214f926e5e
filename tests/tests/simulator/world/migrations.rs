//! The nodes of a world carry migrations out, over streams between them.

use std::collections::BTreeMap;

use ephesus_coordinator::migration::{Decision, Migration, Phase, Progress, Step};
use ephesus_coordinator::view::View;
use ephesus_wire::{MigrationId, PartitionId};

use super::World;
use crate::migration::{
    Copy, Message, Mistake, Moment, SOURCE, Source, Staging, TARGET, Write, confirmation,
};

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
            if let Some(next) = self.next_source(node, *id, migration, state) {
                self.nodes[node].sources.insert(*id, next);
            }
        }
        self.say_steps(node);
        Ok(())
    }

    fn next_source(
        &mut self,
        node: usize,
        id: MigrationId,
        migration: &Migration,
        state: Option<Source>,
    ) -> Option<Source> {
        match (state, &migration.phase) {
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
            (
                Some(Source::Walking {
                    stream,
                    cursor,
                    captures: _,
                }),
                _,
            ) => Some(self.walk(node, id, migration.partition, stream, cursor)),
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
        }
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
        cursor: Option<u8>,
    ) -> Source {
        let Some(copy) = self.nodes[node].disk.copies.get(&partition).cloned() else {
            return Source::GivingUp;
        };
        let count = 1 + self.rng.below(3) as usize;
        let ahead = copy
            .keys
            .iter()
            .filter(|(key, _)| cursor.is_none_or(|at| **key > at));
        let next: Vec<(u8, u64)> = ahead.take(count).map(|(k, v)| (*k, *v)).collect();
        for (key, value) in &next {
            let value = Some(*value);
            self.send_stream(stream, TARGET, Message::Entry(Write { key: *key, value }));
        }
        if let Some((last, _)) = next.last() {
            if *last >= 4 {
                self.reach(id, Moment::HalfWalked);
            }
            return Source::Walking {
                stream,
                cursor: Some(*last),
                captures: true,
            };
        }
        if self.rng.one_in(2) {
            // It catches up for a while: everything is behind the cursor.
            return Source::Walking {
                stream,
                cursor: Some(u8::MAX),
                captures: true,
            };
        }
        let last = confirmation(&copy.keys);
        self.send_stream(stream, TARGET, Message::Final(last));
        self.reach(id, Moment::Held);
        Source::Held {
            stream,
            since: self.now,
        }
    }

    /// A write was executed: it joins the streams of which it is behind the cursor.
    pub(super) fn capture(&mut self, node: usize, partition: PartitionId, write: Write) {
        let process = &self.nodes[node];
        let Some(view) = process.running.as_ref().and_then(|agent| agent.view()) else {
            return;
        };
        let active = &view.migrations.active;
        let sources = process.sources.iter();
        let behind = sources.filter_map(|(id, source)| match source {
            Source::Walking {
                stream,
                cursor,
                captures: true,
            } if cursor.is_some_and(|at| write.key <= at)
                && active.get(id).is_some_and(|m| m.partition == partition) =>
            {
                Some(*stream)
            }
            _ => None,
        });
        let behind: Vec<u64> = behind.collect();
        for stream in behind {
            self.send_stream(stream, TARGET, Message::Entry(write));
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
            (Some(Source::Held { stream: own, .. }), Message::Prepared(found)) if own == stream => {
                let Some(partition) = self.partition_of(node, id) else {
                    // It is over, as this node's table says.
                    return Ok(());
                };
                let copy = self.nodes[node].disk.copies.get(&partition);
                let held = copy.map(|copy| confirmation(&copy.keys));
                if held != Some(*found) {
                    return Err(format!(
                        "migration {id}: the target has confirmed {found:?}, the source has {held:?}"
                    ));
                }
                if self.makes(Mistake::EarlyDelete) {
                    self.nodes[node].disk.copies.remove(&partition);
                }
                self.reach(id, Moment::Confirmed);
                Source::Committing {
                    since: self.now,
                    confirmation: *found,
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
        let captures = !self.makes(Mistake::LateCapture);
        let walking = self.walk(node, id, partition, stream, None);
        let Source::Walking { stream, cursor, .. } = walking else {
            return Ok(walking);
        };
        let walking = Source::Walking {
            stream,
            cursor,
            captures,
        };
        self.nodes[node].sources.insert(id, walking);
        if let Some(write) = self.any_write().filter(|_| self.serves(node, partition)) {
            self.execute(node, partition, write)?;
        }
        Ok(Source::Walking {
            stream,
            cursor,
            captures: true,
        })
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
        let process = &mut self.nodes[node];
        match message {
            Message::Open { partition } => {
                let view = process.running.as_ref().and_then(|agent| agent.view());
                let active = view.and_then(|view| view.migrations.active.get(&id));
                let is_own =
                    |m: &Migration| m.target.node == process.disk.id && m.phase == Phase::Copying;
                let staging = &mut process.disk.staging;
                let mut others = staging
                    .values()
                    .filter(|other| other.partition == *partition);
                let left = others.find(|other| survives && !other.is_prepared).cloned();
                let is_taken = staging.values().any(|s| s.partition == *partition);
                if !active.is_some_and(is_own) || (is_taken && left.is_none()) {
                    self.break_stream(stream);
                    return Ok(());
                }
                let begun = Staging {
                    partition: *partition,
                    keys: left.map(|left| left.keys).unwrap_or_default(),
                    is_prepared: false,
                };
                staging.retain(|_, other| other.partition != *partition);
                staging.insert(id, begun);
                self.reach(id, Moment::Staged);
                self.send_stream(stream, SOURCE, Message::Opened);
            }
            Message::Entry(write) => {
                let staging = process.disk.staging.get_mut(&id);
                let Some(staging) = staging.filter(|staging| !staging.is_prepared) else {
                    self.break_stream(stream);
                    return Ok(());
                };
                write.execute(&mut staging.keys);
                self.reach(id, Moment::Filled);
            }
            Message::Final(last) => {
                let staging = process.disk.staging.get_mut(&id);
                let Some(staging) = staging.filter(|staging| !staging.is_prepared) else {
                    self.break_stream(stream);
                    return Ok(());
                };
                let found = confirmation(&staging.keys);
                if found != *last {
                    return Err(format!(
                        "migration {id}: the target has {found:?}, the source has sent {last:?}"
                    ));
                }
                staging.is_prepared = true;
                self.reach(id, Moment::Prepared);
                self.send_stream(stream, SOURCE, Message::Prepared(found));
            }
            Message::Opened | Message::Prepared(_) => {}
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
        let (survives, wipes) = (
            self.makes(Mistake::StagingSurvives),
            self.makes(Mistake::PreparedWiped),
        );
        self.nodes[node].disk.staging.retain(|other, staging| {
            *other != id
                || if staging.is_prepared {
                    !wipes
                } else {
                    survives
                }
        });
    }

    /// Wipes what a start of a node must not keep.
    pub(super) fn wipe_at_start(&mut self, node: usize) {
        let (survives, wipes) = (
            self.makes(Mistake::StagingSurvives),
            self.makes(Mistake::PreparedWiped),
        );
        let staging = &mut self.nodes[node].disk.staging;
        staging.retain(|_, staging| {
            if staging.is_prepared {
                !wipes
            } else {
                survives
            }
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
        for (index, entry) in view.table.entries.iter().enumerate() {
            let partition = PartitionId(index as u16);
            let arrival = view.migrations.arrivals.get(&partition);
            let disk = &mut self.nodes[node].disk;
            if entry
                .primary()
                .is_none_or(|primary| primary.node != disk.id)
            {
                if disk.copies.remove(&partition).is_some()
                    && let Some(arrival) = arrival.filter(|arrival| arrival.migration.0 > 0)
                {
                    self.reach(arrival.migration, Moment::GivenUp);
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
                keys: BTreeMap::new(),
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
        for (id, staging) in staging {
            let partition = staging.partition;
            let disk = &mut self.nodes[node].disk;
            match view.migrations.decision(id, partition) {
                Decision::Open => drop(disk.staging.insert(id, staging)),
                Decision::Committed if staging.is_prepared => {
                    let copy = Copy {
                        epoch: view.migrations.arrivals[&partition].epoch,
                        keys: staging.keys,
                    };
                    disk.copies.insert(partition, copy);
                    self.reach(id, Moment::Activated);
                }
                _ if survives && !staging.is_prepared => {
                    disk.staging.insert(id, staging);
                }
                _ => {}
            }
        }
    }
}
