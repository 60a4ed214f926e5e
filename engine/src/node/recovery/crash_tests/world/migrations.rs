//! Partitions that move between the shards of a node, with a coordinator that decides and never forgets.
//!
//! Each call takes one step of one move, so that a life may end between any two. While a partition moves no
//! command is about it: what the source does with those that come meanwhile is tested elsewhere.

use ephesus_coordinator::migration::{
    Arrival, Decision, Migration, MigrationTable, Phase, Purpose,
};
use ephesus_coordinator::placement;
use ephesus_wal::FaultDisk;
use ephesus_wire::record::{Record, RecordMeta, Source};
use ephesus_wire::stream::{FIRST_SEQ, Final};
use ephesus_wire::{Epoch, Lsn, MigrationId, NodeId, PartitionId};

use super::super::super::layout::Plan;
use super::*;
use crate::node::data_dir::{Place, StagingPlace};
use crate::node::recovery::Home;

const NODE: NodeId = NodeId([7; 16]);

/// What the replicated log says.
pub(super) struct Coordinator {
    shards: u16,
    owners: Vec<Place>,
    migrations: MigrationTable,
    /// The target of the active migration has confirmed.
    is_confirmed: bool,
}

/// A move, of which the node knows as long as it lives.
pub(super) struct Moving {
    partition: PartitionId,
    /// Of the new copy.
    epoch: Epoch,
    /// `None`: nothing is left of the old copy.
    from: Option<(usize, Epoch)>,
    to: usize,
    content: Keys,
    /// What the target's clients write to again once the copy is served.
    paused: Vec<Vec<u8>>,
    state: State,
}

enum State {
    /// The layout names the copy; the source has to be durable up to here before the target prepares.
    Named(MigrationId, Lsn),
    Filling(Lsn, Vec<Vec<u8>>),
    Preparing(Lsn),
    Confirmed,
    /// The LSNs of the activation and of the end of the old copy; `None` once that was noted in the layout.
    Committed {
        activated: Step,
        given_up: Step,
    },
    Aborted(Step),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    ToDo,
    Logged(Lsn),
    /// The layout says so; images are being removed, if it is about a copy that leaves.
    Noted,
    Over,
}

impl Coordinator {
    pub(super) fn new(layout: &Layout) -> Coordinator {
        let begun = |(partition, _, epoch)| {
            let migration = MigrationId(0);
            (partition, Arrival { migration, epoch })
        };
        let migrations = MigrationTable {
            arrivals: layout.copies().map(begun).collect(),
            ..MigrationTable::default()
        };
        Coordinator {
            shards: layout.shards(),
            owners: layout.partitions.clone(),
            migrations,
            is_confirmed: false,
        }
    }

    /// The node starts with so many shards.
    pub(super) fn register(&mut self, shards: u16) {
        if shards == self.shards {
            return;
        }
        self.abort();
        self.shards = shards;
        let count = self.owners.len();
        for (index, owner) in self.owners.iter_mut().enumerate() {
            let shard = ShardId((index * usize::from(shards) / count) as u16);
            *owner = (shard, owner.1.next());
        }
    }

    pub(super) fn plan(&self) -> Plan {
        let plan = Plan {
            shards: self.shards,
            copies: self.owners.clone(),
            migrations: MigrationTable::default(),
        };
        plan.with(self.migrations.clone())
    }

    fn begin(&mut self, partition: PartitionId, target: ShardId) -> MigrationId {
        let (shard, epoch) = self.owners[usize::from(partition.0)];
        let node = NODE;
        let migration = Migration {
            partition,
            epoch,
            source: placement::Place { node, shard },
            target: placement::Place {
                node,
                shard: target,
            },
            phase: Phase::Copying,
            attempt: 1,
            purpose: Purpose::Move,
        };
        let id = MigrationId(self.migrations.last.0 + 1);
        self.migrations.last = id;
        self.migrations.active.insert(id, migration);
        self.is_confirmed = false;
        id
    }

    fn abort(&mut self) {
        self.migrations.active.clear();
    }

    fn commit(&mut self) {
        let (migration, moved) = self.migrations.active.pop_first().expect("one is active");
        let epoch = moved.epoch.next();
        self.owners[usize::from(moved.partition.0)] = (moved.target.shard, epoch);
        let arrival = Arrival { migration, epoch };
        self.migrations.arrivals.insert(moved.partition, arrival);
    }

    fn is_active(&self) -> bool {
        !self.migrations.active.is_empty()
    }
}

impl World {
    /// A world in which partitions move.
    pub(in super::super) fn moving(seed: u64, bug: Option<Bug>) -> World {
        let mut world = World::new(seed, bug);
        world.coordinator = Some(Coordinator::new(&world.home.layout()));
        world
    }

    /// Whether a recovered copy will be served as soon as its shard runs.
    pub(super) fn is_awaited(&self, copy: &Partition) -> bool {
        let Some((coordinator, incoming)) = self.coordinator.as_ref().zip(copy.incoming()) else {
            return false;
        };
        let migration = incoming.source().migration;
        let decision = coordinator
            .migrations
            .decision_for_target(migration, copy.id);
        copy.is_prepared() && decision == Decision::Committed
    }

    /// Whether every partition is where the coordinator has it, once.
    pub(super) fn check_places(&self, shards: &[RecoveredShard<FaultDisk>]) -> Result<(), String> {
        let Some(coordinator) = &self.coordinator else {
            return Ok(());
        };
        let mut found = vec![Vec::new(); coordinator.owners.len()];
        for (shard, recovered) in (0..).map(ShardId).zip(shards) {
            for copy in &recovered.partitions {
                if copy.is_serving() || self.is_awaited(copy) {
                    found[usize::from(copy.id.0)].push((shard, copy.epoch));
                } else if !copy.is_prepared() {
                    return Err(format!("a remnant of partition {} is left", copy.id));
                }
            }
        }
        for (partition, (found, owner)) in found.iter().zip(&coordinator.owners).enumerate() {
            if found[..] != [*owner] {
                return Err(format!(
                    "partition {partition} is at {found:?} instead of {owner:?}"
                ));
            }
        }
        Ok(())
    }

    /// The node serves again: the stream of a move is gone, and what was decided has to be carried out.
    pub(super) fn resume_moves(&mut self) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        coordinator.abort();
        let layout = self.home.layout();
        let content = self.waiting.as_ref().map(|waiting| waiting.now.clone());
        self.moving = layout.staging().first().map(|staging| {
            let migration = staging.source.migration;
            let decision = coordinator
                .migrations
                .decision_for_target(migration, staging.partition);
            let served = layout.served(staging.partition);
            let state = match decision {
                Decision::Committed => State::Committed {
                    activated: Step::ToDo,
                    given_up: Step::Over,
                },
                _ => State::Aborted(Step::ToDo),
            };
            Moving {
                partition: staging.partition,
                epoch: staging.epoch,
                from: served.map(|(shard, epoch)| (usize::from(shard.0), epoch)),
                to: usize::from(staging.shard.0),
                content: content.unwrap_or_default(),
                paused: Vec::new(),
                state,
            }
        });
    }

    /// The node has ended: the coordinator may decide meanwhile.
    pub(super) fn end_moves(&mut self) {
        self.moving = None;
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        if !coordinator.is_active() {
            return;
        }
        match self.rng.below(3) {
            0 => coordinator.abort(),
            1 if coordinator.is_confirmed => {
                coordinator.commit();
                self.outcome.moved += 1;
            }
            _ => {}
        }
    }

    fn keys_of(&self, partition: PartitionId) -> BTreeSet<Vec<u8>> {
        let of = |key: &Vec<u8>| self.partitioning.partition_of(slot_of(key)) == partition;
        (0..KEYS).map(workload::key).filter(of).collect()
    }

    fn note<T>(&mut self, change: impl FnOnce(&mut Layout) -> T) {
        let mut layout = self.home.layout();
        change(&mut layout);
        let written = self.home.write_layout(&layout);
        written.expect("nothing fails while the node lives");
    }

    /// One step of the move, or the begin of one.
    pub(super) fn step_move(&mut self, shards: &mut [SimShard]) {
        let Some(mut moving) = self.moving.take() else {
            self.moving = self.begin_move(shards);
            return;
        };
        for shard in moving.from.iter().map(|(from, _)| *from).chain([moving.to]) {
            shards[shard].is_moving = true;
        }
        if self.go_on(&mut moving, shards) {
            self.moving = Some(moving);
        } else {
            shards.iter_mut().for_each(|shard| shard.is_moving = false);
        }
    }

    fn begin_move(&mut self, shards: &mut [SimShard]) -> Option<Moving> {
        let layout = self.home.layout();
        let at = self.rng.below(layout.partitions.len() as u64) as u16;
        let to = self.rng.below(shards.len() as u64) as usize;
        let partition = PartitionId(at);
        let (shard, epoch) = layout.served(partition)?;
        let from = usize::from(shard.0);
        if from == to {
            return None;
        }
        let target = ShardId(to as u16);
        let migration = self.coordinator.as_mut()?.begin(partition, target);
        let keys = self.keys_of(partition);
        let source = &mut shards[from];
        source.keys.retain(|key| !keys.contains(key));
        let copy = source.keyspace.partition(partition).expect("it is served");
        let moving = Moving {
            partition,
            epoch: epoch.next(),
            from: Some((from, epoch)),
            to,
            content: contents([copy].into_iter()),
            paused: Vec::new(),
            state: State::Named(migration, source.keyspace.log.appended()),
        };
        for shard in [from, to] {
            shards[shard].is_moving = true;
        }
        if !self.planted.has(Bug::NamedLate) {
            let shard = target;
            let epoch = moving.epoch;
            let place = StagingPlace {
                partition,
                shard,
                epoch,
                source: source_of(migration, from),
            };
            self.note(|layout| layout.add_staging(place).expect("nothing is in its way"));
        }
        Some(moving)
    }

    /// False when the move is over.
    fn go_on(&mut self, moving: &mut Moving, shards: &mut [SimShard]) -> bool {
        let Moving {
            partition,
            epoch,
            from,
            to,
            ..
        } = *moving;
        let durable = |shards: &[SimShard], shard: usize| shards[shard].keyspace.log.durable();
        let from_durable = from.map_or(Lsn::ZERO, |(from, _)| durable(shards, from));
        let target = &mut shards[to];
        let to_durable = target.keyspace.log.durable();
        let breaks = self.rng.one_in(24);
        match &mut moving.state {
            State::Named(migration, held) => {
                let source = source_of(*migration, from.map_or(0, |(from, _)| from));
                let began = target.keyspace.begin_incoming(partition, epoch, source);
                began.expect("nothing is here");
                let records = records(&moving.content, partition, epoch);
                moving.state = State::Filling(*held, records);
            }
            State::Filling(..) | State::Preparing(_) if breaks => {
                self.coordinator.as_mut().expect("it moves").abort();
                moving.state = State::Aborted(Step::ToDo);
            }
            State::Filling(held, records) if records.is_empty() => {
                if from_durable >= *held {
                    let incoming = target.keyspace.incoming_mut(partition).expect("staging");
                    let last = Final {
                        contents: incoming.contents(),
                        clock_ms: self.clock,
                        last_seq: FIRST_SEQ + moving.content.len() as u64 - 1,
                    };
                    let prepared = target.keyspace.prepare(partition, &last);
                    moving.state = State::Preparing(prepared.expect("it is complete"));
                }
            }
            State::Filling(_, records) => {
                let some = records.len().min(9);
                let payload: Vec<u8> = records.drain(..some).flatten().collect();
                let taken = target.keyspace.import(partition, &payload, 0, || true);
                taken.expect("good records");
            }
            State::Preparing(prepared) => {
                if to_durable >= *prepared || self.planted.has(Bug::ConfirmedEarly) {
                    self.coordinator.as_mut().expect("it moves").is_confirmed = true;
                    moving.state = State::Confirmed;
                }
            }
            State::Confirmed => {
                let coordinator = self.coordinator.as_mut().expect("it moves");
                match self.rng.below(5) {
                    0 => {
                        coordinator.abort();
                        moving.state = State::Aborted(Step::ToDo);
                    }
                    1..=3 => {
                        coordinator.commit();
                        self.outcome.moved += 1;
                        moving.state = State::Committed {
                            activated: Step::ToDo,
                            given_up: Step::ToDo,
                        };
                    }
                    _ => {}
                }
            }
            State::Committed { .. } if self.rng.one_in(2) => self.give_up(moving, shards),
            State::Committed { .. } => self.activate(moving, shards),
            State::Aborted(_) => self.wipe(moving, shards),
        }
        match moving.state {
            State::Committed {
                activated,
                given_up,
            } => (activated, given_up) != (Step::Over, Step::Over),
            State::Aborted(wiped) => wiped != Step::Over,
            _ => true,
        }
    }

    fn give_up(&mut self, moving: &mut Moving, shards: &mut [SimShard]) {
        let partition = moving.partition;
        let State::Committed { given_up, .. } = &mut moving.state else {
            return;
        };
        let Some((from, epoch)) = moving.from else {
            return;
        };
        let source = &mut shards[from];
        *given_up = match *given_up {
            Step::ToDo => match source.keyspace.drop_copy(partition) {
                Some(lsn) => Step::Logged(lsn),
                None => Step::Over,
            },
            Step::Logged(lsn) if source.keyspace.log.durable() >= lsn => {
                source.checkpointer.remove_copy(partition, epoch);
                if !self.planted.has(Bug::RemovedEarly) {
                    self.note(|layout| layout.remove_copy(partition, epoch));
                }
                Step::Noted
            }
            Step::Noted if is_removed(source, partition, epoch) => {
                self.note(|layout| layout.remove_copy(partition, epoch));
                Step::Over
            }
            other => other,
        };
    }

    fn activate(&mut self, moving: &mut Moving, shards: &mut [SimShard]) {
        let (partition, epoch) = (moving.partition, moving.epoch);
        let State::Committed { activated, .. } = &mut moving.state else {
            return;
        };
        let early = self.planted.has(Bug::PromotedEarly);
        let target = &mut shards[moving.to];
        let durable = target.keyspace.log.durable();
        let prepared = target.keyspace.partition(partition).expect("prepared");
        *activated = match *activated {
            // Too early if it was confirmed too early.
            Step::ToDo if prepared.kept_from().is_none_or(|lsn| lsn <= durable) => {
                let lsn = target.keyspace.activate(partition).expect("prepared");
                if early {
                    self.note(|layout| layout.promote(partition, epoch));
                }
                moving.paused = std::mem::take(&mut target.keys);
                Step::Logged(lsn)
            }
            Step::Logged(lsn) if durable >= lsn => {
                self.note(|layout| layout.promote(partition, epoch));
                target.keyspace.settle(partition);
                let keys = self.keys_of(partition);
                target.history.adopt(keys.clone(), &moving.content, lsn);
                target.keys = std::mem::take(&mut moving.paused);
                target.keys.extend(keys.iter().cloned());
                match moving.from {
                    Some((from, _)) => shards[from].history.release(&keys),
                    None => self.waiting = None,
                }
                Step::Over
            }
            other => other,
        };
    }

    fn wipe(&mut self, moving: &mut Moving, shards: &mut [SimShard]) {
        let (partition, epoch) = (moving.partition, moving.epoch);
        let State::Aborted(wiped) = &mut moving.state else {
            return;
        };
        let target = &mut shards[moving.to];
        *wiped = match *wiped {
            Step::ToDo => Step::Logged(target.keyspace.wipe(partition).unwrap_or(Lsn::ZERO)),
            Step::Logged(lsn) if target.keyspace.log.durable() >= lsn => {
                self.note(|layout| layout.remove_staging(partition, epoch));
                target.checkpointer.remove_copy(partition, epoch);
                Step::Noted
            }
            Step::Noted if is_removed(target, partition, epoch) => {
                self.outcome.aborted += 1;
                if let Some((from, _)) = moving.from {
                    let keys = shards[from].history.domain().iter().cloned();
                    shards[from].keys = keys.collect();
                }
                Step::Over
            }
            other => other,
        };
    }
}

fn source_of(migration: MigrationId, from: usize) -> Source {
    Source {
        migration,
        node: NODE,
        shard: ShardId(from as u16),
    }
}

fn is_removed(shard: &mut SimShard, partition: PartitionId, epoch: Epoch) -> bool {
    let removed = shard.checkpointer.take_removed();
    removed.contains(&(partition, epoch))
}

/// The records of a stream that brings `content`.
fn records(content: &Keys, partition: PartitionId, epoch: Epoch) -> Vec<Vec<u8>> {
    let records = (FIRST_SEQ..).zip(content);
    let encoded = records.map(|(seq, (key, (value, expire_at_ms)))| {
        let put = Record::Put {
            key,
            value,
            expire_at_ms: *expire_at_ms,
        };
        put.to_vec(RecordMeta {
            partition,
            epoch,
            seq,
        })
    });
    encoded.collect()
}
