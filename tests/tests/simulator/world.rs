//! Coordinators, nodes and an operator on one virtual clock; everything follows from the seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ephesus_coordinator::agent::AgentEvent;
use ephesus_coordinator::command::ClusterOptions;
use ephesus_coordinator::coordinator::{Balance, Event, PlanResult, SessionId, TICK_MS};
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::planted::Bug;
use ephesus_coordinator::protocol::PROTOCOL_VERSION;
use ephesus_coordinator::report::{Query, Report};
use ephesus_coordinator::state::{CAPACITY_DEFAULT, MOVES_MAX, MemberStatus};
use ephesus_engine::node::data_dir::Layout;
use ephesus_engine::node::simulated::Happened;
use ephesus_engine::planted::Bug as EngineBug;
use ephesus_engine::shard::simulated::Sent;
use ephesus_wire::rng::Rng;
use ephesus_wire::table::PartitionStatus;
use ephesus_wire::{MigrationId, NodeId, PartitionId};

use crate::checks::Checks;
use crate::clients::Clients;
use crate::clock::Clock;
use crate::network::{End, Network};
use crate::process::{CoordinatorProcess, NodeDisk, NodeProcess, Session, Wire};

mod clients;
mod coordinators;
mod kills;
mod nodes;
mod operator;
mod threads;
mod wires;

pub(crate) use kills::{Harm, Kill, Party};
pub(crate) use operator::OPERATE_MS;

/// A node has a turn at least so often, ms.
const BEAT_MS_MAX: u64 = 40;

/// Sizes of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) coordinators: u64,
    pub(crate) nodes: usize,
    pub(crate) options: ClusterOptions,
    /// Whether every node has one shard; otherwise one to four.
    pub(crate) is_plain: bool,
    /// Whether the leader balances by itself.
    pub(crate) auto_rebalance: Option<Balance>,
    /// How much moves at a time.
    pub(crate) moves_max: u32,
    /// The newest protocol that everybody speaks at first.
    pub(crate) speaks: u16,
}

impl Shape {
    pub(crate) fn any(coordinators: u64, seed: u64) -> Shape {
        let mut rng = Rng::new(seed ^ 0x5ca1_ab1e);
        let nodes = 3 + rng.below(3) as usize;
        Shape {
            coordinators,
            nodes,
            options: ClusterOptions {
                partitions: [9, 16, 24][rng.below(3) as usize],
                min_nodes: 1 + rng.below(3) as u16,
                policy: [Policy::Contiguous, Policy::RoundRobin][rng.below(2) as usize],
                heartbeat_timeout_ms: 2_000,
            },
            is_plain: false,
            auto_rebalance: (seed % 4 == 1).then_some(Balance::Count),
            moves_max: [MOVES_MAX, 1, 3][(seed % 3) as usize],
            // Everybody is upgraded by its next restart.
            speaks: if seed % 8 == 5 { 1 } else { PROTOCOL_VERSION },
        }
    }
}

/// Something that happens at a moment.
#[derive(Debug)]
pub(crate) enum What {
    /// The timer of a coordinator's life.
    Tick(u64, u64),
    /// The timer of a node's life.
    Beat(usize, u64),
    ToCoordinator(End, u64, Event),
    /// For a coordinator's life.
    Planned(u64, u64, Box<PlanResult>),
    /// A node asks for a connection.
    Dial(SessionId),
    /// An event on a connection, from the coordinator's side.
    ToNode(SessionId, AgentEvent),
    /// The answer to an operator.
    ToOperator(u64, Report),
    /// A turn of a node's main thread, and of one of its shards.
    Main(usize, u64),
    Shard(usize, usize, u64),
    /// For the main thread.
    Happened(usize, u64, Happened),
    /// A layout is durable.
    LayoutWritten(usize, u64, u64, Box<Layout>),
    /// Something arrives at an end of a connection between nodes.
    Arrives(u64, usize, Sent),
    /// Clients ask nodes.
    Ask,
    Kill(MigrationId, Kill),
    Recovered(usize, u64),
    StartCoordinator(u64),
    StartNode(usize),
    ResumeCoordinator(u64),
    ResumeNode(usize),
    Trouble,
    Operate,
    Mend(u64),
}

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    pub(crate) shape: Shape,
    pub(crate) bug: Option<Bug>,
    /// What nodes do wrong.
    pub(crate) mistake: Option<EngineBug>,
    /// When it began.
    pub(crate) base: Instant,
    pub(crate) clients: Clients,
    /// Somebody who is to die at a moment of a migration; none once that has happened.
    pub(crate) kill: Option<Kill>,
    /// Whether somebody has died so.
    pub(crate) is_struck: bool,
    queue: BTreeMap<(u64, u64), What>,
    events: u64,
    pub(crate) network: Network,
    pub(crate) coordinators: BTreeMap<u64, CoordinatorProcess>,
    pub(crate) nodes: Vec<NodeProcess>,
    sessions: BTreeMap<SessionId, Session>,
    wires: BTreeMap<u64, Wire>,
    /// Sessions, node UUIDs, lives.
    numbers: u64,
    /// By session of the operator.
    asked: BTreeMap<u64, Query>,
    /// Answers that a test waits for.
    pub(crate) reports: Vec<Report>,
    pub(crate) checks: Checks,
    /// Whether anything goes wrong.
    pub(crate) is_rough: bool,
    /// What is done about a coordinator whose disk is lost.
    pub(crate) replacement: Option<Query>,
    pub(crate) replacements: u64,
    /// Whether another policy of placement was asked for: what of that was in vain is planned again later.
    pub(crate) changes_policy: bool,
    /// A node that is given up as soon as it has failed.
    pub(crate) doomed: Option<NodeId>,
    /// No more trouble before this moment.
    pub(crate) quiet_until: u64,
    /// The longest time that a node was without a lease since this was cleared, ms.
    pub(crate) unleased_ms: u64,
}

#[expect(clippy::disallowed_methods, reason = "any instant does")]
fn beginning() -> Instant {
    Instant::now()
}

impl World {
    pub(crate) fn new(seed: u64, shape: Shape, bug: Option<Bug>) -> Result<World, String> {
        let mut world = World {
            seed,
            rng: Rng::new(seed),
            now: 1,
            shape,
            bug,
            mistake: None,
            base: beginning(),
            clients: Clients::default(),
            is_struck: false,
            kill: None,
            queue: BTreeMap::new(),
            events: 0,
            network: Network::default(),
            coordinators: BTreeMap::new(),
            nodes: Vec::new(),
            sessions: BTreeMap::new(),
            wires: BTreeMap::new(),
            numbers: 0,
            asked: BTreeMap::new(),
            reports: Vec::new(),
            checks: Checks::default(),
            is_rough: false,
            replacement: None,
            replacements: 0,
            changes_policy: false,
            doomed: None,
            quiet_until: 0,
            unleased_ms: 0,
        };
        world.found()?;
        for index in 0..shape.nodes {
            let clock = Clock::any(&mut world.rng);
            let name = ["athens", "byzantium", "cyrene", "delphi", "ephyra"][index];
            let shards = world.shards();
            let disk = NodeDisk::empty(index as u64 + 1, shape.options.partitions, shards);
            world.nodes.push(NodeProcess {
                name: name.to_owned(),
                clock,
                running: None,
                life: 0,
                capacity: CAPACITY_DEFAULT,
                speaks: shape.speaks,
                paused_until: 0,
                inbox: Vec::new(),
                disk,
                process: None,
                is_recovered: false,
                newest: None,
                is_first_table: true,
                happened: Vec::new(),
                main_at: None,
                shard_at: Vec::new(),
                phases: Vec::new(),
                layout_at: 0,
                lease_until: Arc::default(),
                lease_clock: Arc::default(),
                executing: BTreeMap::new(),
                to_fill: Vec::new(),
                filling: Vec::new(),
                may_be_refused: false,
                refused: None,
            });
            let later = if shape.is_plain {
                index as u64 * 50
            } else {
                world.rng.below(1_500)
            };
            world.after(later, What::StartNode(index));
        }
        world.after(1, What::Ask);
        Ok(world)
    }

    /// What a process speaks whose life before this one has this number; 0: it had none.
    pub(crate) fn speaks_now(&self, life: u64) -> u16 {
        match life {
            0 => self.shape.speaks,
            _ => PROTOCOL_VERSION,
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn after(&mut self, ms: u64, what: What) {
        self.events += 1;
        self.queue.insert((self.now + ms, self.events), what);
    }

    /// Runs until a moment, or something that must not be.
    pub(crate) fn run_until(&mut self, end: u64) -> Result<(), String> {
        while let Some(entry) = self.queue.first_entry() {
            let (at, order) = *entry.key();
            if at > end {
                break;
            }
            let what = entry.remove();
            self.now = self.now.max(at);
            self.checks.mix(at ^ (order << 32));
            self.happen(what)
                .map_err(|error| format!("at {at} ms: {error}"))?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    fn happen(&mut self, what: What) -> Result<(), String> {
        match what {
            What::Tick(id, life) => {
                let is_current = self
                    .coordinators
                    .get(&id)
                    .is_some_and(|process| process.life == life && process.running.is_some());
                if is_current {
                    self.coordinator_turn(id, Vec::new())?;
                    let next = self.coordinators.get(&id).and_then(|process| {
                        let coordinator = process.running.as_ref()?;
                        Some(process.clock.when(coordinator.next_turn_ms()))
                    });
                    // A process that stands still is asked again after a tick.
                    let wait = next.unwrap_or(0).saturating_sub(self.now);
                    let wait = if wait == 0 { TICK_MS } else { wait };
                    self.after(wait, What::Tick(id, life));
                }
                Ok(())
            }
            What::Beat(node, life) => {
                let process = &self.nodes[node];
                if process.life == life && process.running.is_some() {
                    self.node_turn(node, Vec::new())?;
                    let process = &self.nodes[node];
                    let next = process
                        .running
                        .as_ref()
                        .map_or(0, |agent| agent.next_turn_ms());
                    let wait = process.clock.when(next).saturating_sub(self.now);
                    self.after(wait.clamp(1, BEAT_MS_MAX), What::Beat(node, life));
                }
                Ok(())
            }
            What::ToCoordinator(from, id, event) => {
                if self.network.is_cut(from, End::Coordinator(id)) {
                    return Ok(());
                }
                let mut events = self.introduce(from, id);
                events.push(event);
                self.coordinator_turn(id, events)
            }
            What::Planned(id, life, result) => {
                let process = self.coordinators.get(&id);
                match process.is_some_and(|process| process.life == life) {
                    true => self.coordinator_turn(id, vec![Event::Planned(result)]),
                    false => Ok(()),
                }
            }
            What::Dial(session) => {
                self.dial(session);
                Ok(())
            }
            What::ToNode(session, event) => {
                let Some(session) = self.sessions.get(&session).copied() else {
                    return Ok(());
                };
                let (from, to) = (
                    End::Coordinator(session.coordinator),
                    End::Node(session.node),
                );
                let process = &self.nodes[session.node];
                if self.network.is_cut(from, to) || process.life != session.node_life {
                    return Ok(());
                }
                self.node_turn(session.node, vec![event])
            }
            What::Main(node, life) => match self.nodes[node].life == life {
                true => self.main_turn(node),
                false => Ok(()),
            },
            What::Shard(node, shard, life) => {
                let process = &self.nodes[node];
                match process.life == life && process.process.is_some() {
                    true => self.shard_turn(node, shard),
                    false => Ok(()),
                }
            }
            What::Happened(node, life, happened) => {
                self.happened(node, life, happened);
                Ok(())
            }
            What::LayoutWritten(node, life, number, layout) => {
                self.layout_written(node, life, number, &layout);
                Ok(())
            }
            What::Arrives(wire, to, sent) => {
                self.arrives(wire, to, sent);
                Ok(())
            }
            What::Ask => {
                self.ask_nodes();
                Ok(())
            }
            What::Kill(migration, kill) => {
                self.strike(migration, kill);
                Ok(())
            }
            What::ToOperator(session, report) => {
                self.operator_told(session, report);
                Ok(())
            }
            What::Recovered(node, life) => {
                let process = &mut self.nodes[node];
                if process.life == life && process.running.is_some() {
                    process.is_recovered = true;
                    self.start_process(node)?;
                }
                Ok(())
            }
            What::StartCoordinator(id) => self.start_coordinator(id),
            What::StartNode(node) => {
                self.start_node(node);
                Ok(())
            }
            What::ResumeCoordinator(id) => {
                let now = self.now;
                let Some(process) = self.coordinators.get_mut(&id) else {
                    return Ok(());
                };
                if process.paused_until > now {
                    return Ok(());
                }
                let mut inbox = std::mem::take(&mut process.inbox);
                self.shuffle(&mut inbox);
                self.coordinator_turn(id, inbox)
            }
            What::ResumeNode(node) => {
                if self.nodes[node].paused_until > self.now {
                    return Ok(());
                }
                let mut inbox = std::mem::take(&mut self.nodes[node].inbox);
                self.shuffle(&mut inbox);
                self.node_turn(node, inbox)
            }
            What::Trouble => self.trouble(),
            What::Operate => {
                self.operate();
                Ok(())
            }
            What::Mend(trouble) => {
                self.network.mend(trouble);
                Ok(())
            }
        }
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.rng.below(at as u64 + 1) as usize);
        }
    }

    /// The coordinator that leads the newest term.
    pub(crate) fn leader(&self) -> Option<u64> {
        let running = self.coordinators.iter();
        let leaders = running.filter_map(|(id, process)| {
            let member = process.running.as_ref()?.member();
            member.is_settled().then_some((member.term(), *id))
        });
        leaders.max().map(|(_, id)| id)
    }

    /// What is not as it should be when nothing goes wrong any more.
    pub(crate) fn healed(&self) -> Result<(), String> {
        let Some(latest) = self.checks.latest() else {
            return Err("there is no cluster".into());
        };
        if self.leader().is_none() {
            return Err("nobody leads".into());
        }
        let states = self.coordinators.values().filter_map(|process| {
            let running = process.running.as_ref();
            running.map(|coordinator| coordinator.state())
        });
        let learners = states.flat_map(|state| state.learners());
        if let Some(id) = learners.max() {
            return Err(format!("coordinator {id} does not vote yet"));
        }
        if let Some(query) = &self.replacement {
            return Err(format!("not done: {query:?}"));
        }
        for (id, process) in &self.coordinators {
            let state = process.running.as_ref().map(|c| c.state());
            let version = state.map(|state| state.table().version);
            if version != Some(latest.version()) {
                return Err(format!("coordinator {id} has version {version:?}"));
            }
        }
        for process in &self.nodes {
            let (name, id) = (&process.name, &process.disk.id);
            let agent = process
                .running
                .as_ref()
                .ok_or(format!("{name} does not run"))?;
            if !agent.holds_lease(process.clock.at(self.now)) {
                return Err(format!("{name} has no lease"));
            }
            if agent.status() != Some(MemberStatus::Live) {
                return Err(format!("{name} is {:?}", agent.status()));
            }
            if agent.view().map(|view| view.version()) != Some(latest.version()) {
                return Err(format!("{name} has an old table"));
            }
            let member = latest.members.get(id).map(|member| member.status);
            if member != Some(MemberStatus::Live) {
                return Err(format!("{name} is a member that is {member:?}"));
            }
        }
        if latest.members.len() != self.nodes.len() {
            return Err(format!("{} members", latest.members.len()));
        }
        if let Some((id, migration)) = latest.migrations.active.first_key_value() {
            return Err(format!("migration {id} is under way: {migration:?}"));
        }
        let leader = self
            .leader()
            .and_then(|id| self.coordinators[&id].running.as_ref());
        if let Some((id, retry)) = leader.and_then(|c| c.state().retries().first_key_value()) {
            return Err(format!("migration {id} is to be tried again: {retry:?}"));
        }
        for process in &self.nodes {
            if let Some((partition, id)) = process.disk.dir.staging().first() {
                let name = &process.name;
                return Err(format!(
                    "{name} holds partition {partition} for migration {id}"
                ));
            }
        }
        for partition in (0..self.shape.options.partitions).map(PartitionId) {
            let is_served = |process: &NodeProcess| process.executing.contains_key(&partition);
            if !self.nodes.iter().any(is_served) {
                return Err(format!("nobody serves partition {partition}"));
            }
        }
        let mut entries = latest.table.entries.iter();
        if let Some(place) = entries.position(|entry| entry.status != PartitionStatus::Online) {
            return Err(format!(
                "partition {place}: {:?}",
                latest.table.entries[place]
            ));
        }
        Ok(())
    }
}
