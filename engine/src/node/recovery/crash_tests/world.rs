//! A node: what survives its lives, how it comes back, and what it owes its clients.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ephesus_wal::{Durability, FaultDisk, LogId, LogOptions};
use ephesus_wire::{Partitioning, ShardId, slot_of};

use super::super::by_shards::first_layout;
use super::super::{Progress, RecoveredShard, Recovery, RecoveryError};
use super::history::{History, Keys};
use super::home::SimHome;
use super::shard::{Client, End, SimShard};
use super::store::{self, SimStore};
use super::workload;
use crate::image::collect_garbage;
use crate::image::fault::FaultStore;
use crate::image::{ImageStore, ROOM, ReadError, StoreError};
use crate::keyspace::tests::tape::contents;
use crate::keyspace::{Keyspace, Partition};
use crate::node::data_dir::{DataDirError, Layout};
use crate::planted::{Bug, Planted};
use crate::shard::Checkpointer;
use crate::table::KeyHasher;
use ephesus_wal::WalError;
use ephesus_wire::rng::Rng;

mod bit_flips;
mod migrations;

pub(super) use bit_flips::Flips;
use migrations::{Coordinator, Moving};

const KEYS: u64 = 130;
const SEGMENT_BYTES: u64 = 24 << 10;

/// What each operation of a store takes, where there is little room.
const CRAMPED_COST: u64 = 32 << 10;

/// How a life ends; enumerated is the first one's end, after so many operations of its first disk or
/// store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Random,
    Disk(u64),
    Store(u64),
    /// Nothing fails, and every log ends with a mark.
    None,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) crashes: u64,
    pub(super) images: u64,
    pub(super) relayouts: u64,
    pub(super) refused: u64,
    /// Starts that found no room for what they had to write.
    pub(super) cramped: u64,
    /// Moves that were committed, and that were aborted.
    pub(super) moved: u64,
    pub(super) aborted: u64,
    pub(super) digest: u64,
}

pub(super) struct World {
    rng: Rng,
    home: SimHome,
    stores: Vec<FaultStore>,
    /// The stores as they were at an earlier crash.
    old_stores: Vec<FaultStore>,
    partitioning: Partitioning,
    hasher: KeyHasher,
    options: LogOptions,
    histories: Vec<History>,
    /// Decides about moves, if partitions move.
    coordinator: Option<Coordinator>,
    moving: Option<Moving>,
    /// Of a copy that is prepared and committed, but not served yet.
    waiting: Option<History>,
    clock: u64,
    planted: Planted,
    /// Everything that clients were promised has to survive a power loss.
    expects_power_loss: bool,
    unique: u64,
    pub(super) outcome: Outcome,
    pub(super) digest: crc32fast::Hasher,
}

impl World {
    pub(super) fn new(seed: u64, bug: Option<Bug>) -> World {
        let partitions = 2 + (seed % 3) as u16;
        let partitioning = Partitioning::new(partitions).expect("a valid number");
        let mut layout = first_layout(partitions, 1 + (seed / 2 % 2) as u16);
        for (number, log) in layout.logs.iter_mut().enumerate() {
            *log = [number as u8 + 100; 16];
        }
        let options = LogOptions {
            durability: if seed % 4 == 3 {
                Durability::Relaxed
            } else {
                Durability::Strict
            },
            segment_bytes: SEGMENT_BYTES,
            group_bytes_max: 8 << 10,
            in_flight_group_bytes: 1 << (seed % 14),
            in_flight_max: 1 + (seed % 4) as usize,
            mapped_groups: [0, 2, 4][(seed / 4 % 3) as usize],
            mapped_group_bytes: 4096 << (seed / 12 % 2),
            spare_segments: 1,
            ..LogOptions::new(LogId::default())
        };
        let all = (0..KEYS).map(workload::key).collect();
        World {
            rng: Rng::new(seed),
            home: SimHome::new(seed, layout),
            stores: store::empty(1 + (seed % 2) as u16),
            old_stores: store::empty(1 + (seed % 2) as u16),
            partitioning,
            hasher: KeyHasher::with_seeds([1, 2, 3, seed]),
            options,
            histories: vec![History::new(Keys::new(), all)],
            coordinator: None,
            moving: None,
            waiting: None,
            clock: 1_000_000,
            planted: Planted::new(bug),
            expects_power_loss: true,
            unique: 0,
            outcome: Outcome::default(),
            digest: crc32fast::Hasher::new(),
        }
    }

    fn recover(&mut self, shards: u16) -> Result<Recovered, RecoveryError> {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.register(shards);
        }
        let mut stores = std::mem::take(&mut self.stores);
        if self.outcome.crashes % 4 == 1 {
            for store in &mut stores {
                let room = ROOM + self.unique % 64 * CRAMPED_COST;
                store.room.store(room, Ordering::Relaxed);
                store.cost = CRAMPED_COST;
            }
        }
        let mut recovered = self.recover_from(shards, &mut stores);
        if let Err(
            RecoveryError::Store(StoreError::NoRoom { .. })
            | RecoveryError::Image(ReadError::Store(StoreError::NoRoom { .. })),
        ) = recovered
        {
            // Somebody makes room, and starts it again.
            self.outcome.cramped += 1;
            stores = stores.iter().map(|store| store.crash(0)).collect();
            recovered = self.recover_from(shards, &mut stores);
        }
        for store in &mut stores {
            store.room.store(u64::MAX, Ordering::Relaxed);
            store.cost = 0;
        }
        self.stores = stores;
        recovered
    }

    fn recover_from(
        &self,
        shards: u16,
        stores: &mut [FaultStore],
    ) -> Result<Recovered, RecoveryError> {
        remove_garbage(stores)?;
        let layout = self.home.layout();
        let Some(coordinator) = &self.coordinator else {
            return self.recovery().run(layout, shards, stores);
        };
        let recovery = self.recovery();
        let replayed = recovery.replay_with(&Progress::default(), &layout, stores)?;
        recovery.open(layout, &coordinator.plan(), replayed, stores)
    }

    fn recovery(&self) -> Recovery<'_, SimHome> {
        let (home, hasher, options) = (&self.home, &self.hasher, self.options.clone());
        let mut recovery = Recovery::new(home, self.partitioning, hasher, options, self.clock);
        recovery.planted = self.planted;
        recovery
    }

    /// Opens the node, with failures on the way, until it serves.
    pub(super) fn reopen(&mut self) -> Result<Recovered, String> {
        for attempt in 0.. {
            let before = self.home.layout().shards();
            let mut shards = before;
            if self.rng.one_in(3) {
                shards = 1 + self.rng.below(3) as u16;
            }
            let right = self.maybe_swap_stores();
            if right.is_none() && attempt < 3 && self.rng.one_in(2) {
                self.fail_recovery();
            }
            match self.recover(shards) {
                Ok(recovered) => {
                    self.heal();
                    if right.is_some() {
                        // Generations are given out again from here: no way back to others.
                        self.old_stores = snapshot(&self.stores);
                    }
                    self.outcome.relayouts += u64::from(before != shards);
                    self.check(&recovered)?;
                    return Ok(recovered);
                }
                Err(error) if is_power_loss(&error) && right.is_none() && attempt < 3 => {
                    // What a killed process had written is not promised to outlive the machine.
                    let power = self.rng.one_in(2) && self.expects_power_loss;
                    self.power_loss(power);
                }
                Err(error) => match right {
                    Some(right) => {
                        let is_missed = matches!(
                            error,
                            RecoveryError::LostImage { .. } | RecoveryError::ForeignImage { .. }
                        );
                        if !is_missed {
                            return Err(format!("a lost image is refused with: {error}"));
                        }
                        self.outcome.refused += 1;
                        self.power_loss(false);
                        self.stores = right;
                    }
                    None => return Err(format!("cannot be recovered: {error}")),
                },
            }
        }
        unreachable!("the last attempts have no failures")
    }

    /// Sometimes replaces a store by an older state of it, as sled may after damage of its own;
    /// returns the right ones.
    fn maybe_swap_stores(&mut self) -> Option<Vec<FaultStore>> {
        if !self.rng.one_in(6) {
            return None;
        }
        let at = self.rng.below(self.stores.len() as u64) as usize;
        let right = snapshot(&self.stores);
        self.stores[at] = if self.rng.one_in(2) {
            FaultStore::new(self.stores[at].db())
        } else {
            self.old_stores[at].crash(0)
        };
        Some(right)
    }

    fn fail_recovery(&mut self) {
        match self.rng.below(4) {
            0 => self.home.fail_after(Some(self.rng.below(3))),
            1 => {
                let at = self.rng.below(self.stores.len() as u64) as usize;
                self.stores[at].fail_at(1 + self.rng.below(40));
            }
            _ => {
                for disk in self.home.logs() {
                    disk.fail_after(self.rng.below(60));
                }
            }
        }
    }

    /// Ends injected failures that have not happened; writes of a killed process land now at last.
    fn heal(&mut self) {
        self.home.fail_after(None);
        for disk in self.home.logs() {
            disk.land();
            disk.fail_after(u64::MAX / 2);
        }
        for store in &mut self.stores {
            store.fail_at(u64::MAX / 2);
        }
    }

    /// Ends the process, or with `power` the machine; stores lose what is not synced either way.
    fn power_loss(&mut self, power: bool) {
        self.outcome.crashes += 1;
        self.home.fail_after(None);
        for disk in self.home.logs() {
            if power {
                disk.crash();
            } else {
                disk.kill();
                if self.rng.one_in(2) {
                    disk.land();
                }
            }
        }
        let seed = self.rng.below(u64::from(u32::MAX));
        self.stores = self.stores.iter().map(|store| store.crash(seed)).collect();
    }

    /// Compares what was recovered with every history, and begins new ones.
    fn check(&mut self, (layout, shards): &Recovered) -> Result<(), String> {
        self.check_places(shards)?;
        let counts = |partition: &&Partition| partition.is_serving() || self.is_awaited(partition);
        let found = shards.iter().flat_map(|shard| &shard.partitions);
        let found = contents(found.filter(counts));
        for history in &self.histories {
            history.check(&found, self.clock)?;
        }
        for (key, (value, _)) in &found {
            self.digest.update(key);
            self.digest.update(value);
        }
        let history = |of: Option<ShardId>| {
            let here = |key: &Vec<u8>| self.shard_of(layout, key) == of;
            let domain: BTreeSet<_> = (0..KEYS).map(workload::key).filter(here).collect();
            let base = found.iter().filter(|(key, _)| domain.contains(*key));
            let base = base.map(|(k, v)| (k.clone(), v.clone())).collect();
            History::new(base, domain)
        };
        let shards = (0..layout.shards()).map(ShardId);
        let histories = shards.map(|shard| history(Some(shard))).collect();
        let waiting = history(None);
        self.histories = histories;
        self.waiting = (!waiting.domain().is_empty()).then_some(waiting);
        Ok(())
    }

    /// The shard that serves a key.
    fn shard_of(&self, layout: &Layout, key: &[u8]) -> Option<ShardId> {
        let partition = self.partitioning.partition_of(slot_of(key));
        layout.served(partition).map(|(shard, _)| shard)
    }

    /// One life: recovery, work, and the end of the process or of the machine.
    pub(super) fn live(&mut self, fault: Fault) -> Result<(), String> {
        let (layout, recovered) = self.reopen()?;
        let stores: Vec<_> = std::mem::take(&mut self.stores)
            .into_iter()
            .map(|store| SimStore::new(store, recovered.len()))
            .map(|store| Rc::new(RefCell::new(store)))
            .collect();
        let histories = std::mem::take(&mut self.histories);
        let mut shards: Vec<SimShard> = recovered
            .into_iter()
            .zip(histories)
            .enumerate()
            .map(|(number, (recovered, history))| {
                self.start(number, &layout, recovered, history, &stores)
            })
            .collect();
        self.resume_moves();
        self.set_fault(fault, &shards, &stores);
        let mut violation = None;
        for _ in 0..300 + self.rng.below(700) {
            self.clock += self.rng.below(3);
            if self.coordinator.is_some() && self.rng.one_in(6) {
                self.step_move(&mut shards);
            }
            let at = self.rng.below(shards.len() as u64) as usize;
            match shards[at].step(&stores, self.clock, &mut self.rng, &mut self.unique) {
                Ok(()) => {}
                Err(End::Failed) => break,
                Err(End::Violation(text)) => {
                    violation = Some(text);
                    break;
                }
            }
        }
        if matches!(fault, Fault::None) {
            for shard in &mut shards {
                match shard.settle(&mut self.rng) {
                    Ok(()) => {}
                    Err(End::Failed) => violation = Some("failed without a fault".to_owned()),
                    Err(End::Violation(text)) => violation = Some(text),
                }
            }
        }
        if let Some(violation) = violation {
            return Err(violation);
        }
        let power = !self.rng.one_in(3);
        for mut shard in shards {
            shard.deliver();
            let log = &shard.keyspace.log;
            let reads_survive_power = log.options().durability == Durability::Strict;
            let reads = !power || reads_survive_power;
            self.expects_power_loss = power || reads_survive_power;
            let promised = if reads {
                log.committed()
            } else {
                log.durable()
            };
            shard.history.end(promised, reads);
            self.outcome.images += shard.checkpointer.written;
            self.histories.push(shard.history);
        }
        self.histories.extend(self.waiting.take());
        self.end_moves();
        let fate = self.rng.below(u64::from(u32::MAX));
        self.stores = stores
            .iter()
            .map(|store| store.borrow().store.crash(fate))
            .collect();
        if self.rng.one_in(3) {
            self.old_stores = snapshot(&self.stores);
        }
        self.power_loss(power);
        Ok(())
    }

    fn start(
        &self,
        number: usize,
        layout: &Layout,
        recovered: RecoveredShard<FaultDisk>,
        history: History,
        stores: &[Rc<RefCell<SimStore>>],
    ) -> SimShard {
        let RecoveredShard {
            partitions,
            writer,
            segment,
            mapped: _,
            files,
            wall_clock_ms,
        } = recovered;
        let log = layout.log(ShardId(number as u16));
        let hasher = self.hasher.clone();
        let mut keyspace =
            Keyspace::new(self.partitioning, partitions, hasher, writer, wall_clock_ms);
        keyspace.planted = self.planted;
        let links = stores
            .iter()
            .map(|store| SimStore::link(store, number))
            .collect();
        let mut checkpointer = Checkpointer::new(links, log, 2 * SEGMENT_BYTES);
        checkpointer.planted = self.planted;
        checkpointer.slice = Duration::ZERO;
        checkpointer.no_room_pause = Duration::ZERO;
        let mut clients: Vec<Client> = (0..3).map(|_| Client::default()).collect();
        for client in &mut clients {
            client.outbox.planted = self.planted;
        }
        SimShard {
            keyspace,
            checkpointer,
            disk: self.home.log(log),
            log_files: files,
            files: BTreeMap::from([(segment.info.id, Rc::new(segment.file))]),
            writing: Vec::new(),
            retired: VecDeque::new(),
            shelved: Vec::new(),
            clients,
            keys: history.domain().iter().cloned().collect(),
            is_moving: false,
            history,
            turn: 0,
            start: now(),
        }
    }

    fn set_fault(&mut self, fault: Fault, shards: &[SimShard], stores: &[Rc<RefCell<SimStore>>]) {
        match fault {
            Fault::None => {}
            Fault::Disk(operations) => shards[0].disk.fail_after(operations),
            Fault::Store(operations) => stores[0].borrow_mut().store.fail_at(operations + 1),
            Fault::Random => {
                let shard = &shards[self.rng.below(shards.len() as u64) as usize];
                let store = &stores[self.rng.below(stores.len() as u64) as usize];
                match self.rng.below(6) {
                    0 => {}
                    1 => shard.disk.fail_write(self.rng.below(90)),
                    2 => shard.disk.fail_sync(self.rng.below(8)),
                    3 => shard.disk.fail_after(self.rng.below(200)),
                    _ => store.borrow_mut().store.fail_at(1 + self.rng.below(60)),
                }
            }
        }
    }
}

pub(super) type Recovered = (Layout, Vec<RecoveredShard<FaultDisk>>);

#[expect(
    clippy::disallowed_methods,
    reason = "any instant does: it only has to stay the same"
)]
fn now() -> Instant {
    Instant::now()
}

/// What opening a store does before anything is read.
fn remove_garbage(stores: &mut [FaultStore]) -> Result<(), RecoveryError> {
    for store in stores {
        for partition in store.partitions() {
            collect_garbage(store, partition)?;
        }
    }
    Ok(())
}

/// Copies of stores that have nothing unsynced.
fn snapshot(stores: &[FaultStore]) -> Vec<FaultStore> {
    stores.iter().map(|store| store.crash(0)).collect()
}

fn is_power_loss(error: &RecoveryError) -> bool {
    let is_store = |error: &StoreError| {
        matches!(
            error,
            StoreError::Operation { .. } | StoreError::Sync { .. }
        )
    };
    match error {
        RecoveryError::DataDir(DataDirError::Io(_)) => true,
        RecoveryError::Log { source, .. } => {
            matches!(source, WalError::Io { .. } | WalError::Unsynced { .. })
        }
        RecoveryError::Store(error) | RecoveryError::Image(ReadError::Store(error)) => {
            is_store(error)
        }
        _ => false,
    }
}
