//! Members on simulated disks and a network that delays, drops, repeats and reorders.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wal::{FaultDisk, LogId, LogOptions};
use ephesus_wire::NodeId;
use futures_lite::future::{block_on, poll_once};

use super::*;
use crate::command::{Addresses, ClusterId, ClusterOptions, Registration};
use crate::placement::Policy;
use crate::planted::Bug;
use ephesus_wire::rng::Rng;

mod conversations;

/// Ticks of the rough part of a run, and of the calm one behind it.
const ROUGH_TICKS: u64 = 300;
const CALM_TICKS: u64 = 150;

/// Longest time a message is under way, ticks.
const DELAY_MAX: u64 = 4;

struct World {
    rng: Rng,
    members: Vec<Option<Member<FaultDisk>>>,
    disks: Vec<FaultDisk>,
    /// When it arrives, and the message.
    network: Vec<(u64, Message)>,
    /// Pairs that cannot reach each other, in this direction.
    cut: BTreeSet<(u64, u64)>,
    now: u64,
    lives: u64,
    bug: Option<Bug>,
    /// By term.
    leaders: BTreeMap<u64, u64>,
    /// By applied index.
    states: BTreeMap<u64, Vec<u8>>,
    proposals: BTreeMap<Ticket, Registration>,
    /// Newest acknowledged incarnation by node.
    acked: BTreeMap<NodeId, u64>,
    tickets: u64,
    trace: u64,
}

fn voters(count: u64) -> Vec<RaftId> {
    (1..=count).map(RaftId).collect()
}

fn options(id: u64) -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        group_bytes_max: 16 << 10,
        ..LogOptions::new(LogId([id as u8; 16]))
    }
}

impl World {
    fn new(count: u64, seed: u64, bug: Option<Bug>) -> Result<World, String> {
        let mut world = World {
            rng: Rng::new(seed),
            members: Vec::new(),
            disks: (1..=count).map(|id| FaultDisk::new(seed ^ id)).collect(),
            network: Vec::new(),
            cut: BTreeSet::new(),
            now: 0,
            lives: 0,
            bug,
            leaders: BTreeMap::new(),
            states: BTreeMap::new(),
            proposals: BTreeMap::new(),
            acked: BTreeMap::new(),
            tickets: 0,
            trace: 0,
        };
        for id in 1..=count {
            world.members.push(None);
            let disk = world.disks[id as usize - 1].clone();
            let mut log = block_on(RaftLog::open(disk, &options(id), 0)).map_err(text)?;
            block_on(log.persist(&founding(&voters(count)), 0)).map_err(text)?;
            drop(log);
            world.start(id)?;
        }
        Ok(world)
    }

    fn start(&mut self, id: u64) -> Result<(), String> {
        let disk = self.disks[id as usize - 1].clone();
        let log = block_on(RaftLog::open(disk, &options(id), self.now)).map_err(text)?;
        self.lives += 1;
        let ticks = ELECTION_TICKS + self.rng.below(ELECTION_TICKS as u64) as usize;
        let mut member = Member::new(RaftId(id), log, Some(ticks), self.lives).map_err(text)?;
        if let Some(bug) = self.bug {
            member.plant(Planted::new(bug));
        }
        self.members[id as usize - 1] = Some(member);
        Ok(())
    }

    fn crash(&mut self, id: u64) {
        self.members[id as usize - 1] = None;
        self.disks[id as usize - 1].crash();
    }

    /// One turn of a member; with `polls` the power goes after so many steps of its disk.
    fn turn(&mut self, id: u64, inputs: Vec<Input>, polls: Option<u64>) -> Result<(), String> {
        let now = self.now;
        let Some(member) = &mut self.members[id as usize - 1] else {
            return Ok(());
        };
        let mut sent = Vec::new();
        let send = |_: &State, message| sent.push(message);
        let done = match polls {
            None => Some(block_on(member.turn(inputs, now, send))),
            Some(polls) => {
                let mut turn = Box::pin(member.turn(inputs, now, send));
                let mut done = None;
                for _ in 0..=polls {
                    done = block_on(poll_once(&mut turn));
                    if done.is_some() {
                        break;
                    }
                }
                done
            }
        };
        self.sent(sent);
        let Some(output) = done.transpose().map_err(text)? else {
            self.crash(id);
            return Ok(());
        };
        for (ticket, outcome) in output.outcomes {
            let Some(registration) = self.proposals.remove(&ticket) else {
                return Err(format!("outcome {outcome:?} of an unknown proposal"));
            };
            if matches!(outcome, Outcome::Applied(Ok(_))) && registration.incarnation > 0 {
                let newest = self.acked.entry(registration.node).or_default();
                *newest = registration.incarnation.max(*newest);
            }
        }
        self.check(id)
    }

    fn sent(&mut self, messages: Vec<Message>) {
        for message in messages {
            let copies = match self.rng.below(20) {
                0 | 1 => 0,
                2 => 2,
                _ => 1,
            };
            for _ in 0..copies {
                let at = self.now + 1 + self.rng.below(DELAY_MAX);
                self.network.push((at, message.clone()));
            }
        }
    }

    fn check(&mut self, id: u64) -> Result<(), String> {
        let Some(member) = &self.members[id as usize - 1] else {
            return Ok(());
        };
        if member.is_leader() {
            let leader = *self.leaders.entry(member.term()).or_insert(id);
            if leader != id {
                return Err(format!(
                    "{leader} and {id} both lead term {}",
                    member.term()
                ));
            }
        }
        let state = member.state().to_snapshot();
        let known = self
            .states
            .entry(member.applied())
            .or_insert_with(|| state.clone());
        if *known != state {
            return Err(format!("two states at index {}", member.applied()));
        }
        let mix = state.iter().fold(self.trace, |h, b| {
            (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
        });
        self.trace = mix ^ self.now ^ (id << 32) ^ (member.term() << 40);
        Ok(())
    }

    fn tick(&mut self, rough: bool) -> Result<(), String> {
        self.now += 1;
        let count = self.members.len() as u64;
        if rough {
            self.disturb(count)?;
        }
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.network)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.network = later;
        let mut inbox: BTreeMap<u64, Vec<Input>> = BTreeMap::new();
        for (_, message) in due {
            if !self.cut.contains(&(message.from, message.to)) {
                let input = Input::Message(Box::new(message));
                let to = match &input {
                    Input::Message(message) => message.to,
                    _ => unreachable!(),
                };
                inbox.entry(to).or_default().push(input);
            }
        }
        for id in 1..=count {
            let mut inputs = inbox.remove(&id).unwrap_or_default();
            // In any order.
            for at in (1..inputs.len()).rev() {
                inputs.swap(at, self.rng.below(at as u64 + 1) as usize);
            }
            inputs.push(Input::Tick);
            if self.members[id as usize - 1].is_some() && self.rng.one_in(3) {
                inputs.push(self.proposal());
            }
            let polls = (rough && self.rng.one_in(200)).then(|| self.rng.below(12));
            self.turn(id, inputs, polls)?;
        }
        Ok(())
    }

    fn disturb(&mut self, count: u64) -> Result<(), String> {
        if self.rng.one_in(40) {
            let id = 1 + self.rng.below(count);
            self.crash(id);
        }
        if self.rng.one_in(10) {
            let id = 1 + self.rng.below(count);
            if self.members[id as usize - 1].is_none() {
                self.start(id)?;
            }
        }
        if self.rng.one_in(25) {
            self.cut.clear();
            for _ in 0..self.rng.below(4) {
                let pair = (1 + self.rng.below(count), 1 + self.rng.below(count));
                self.cut.insert(pair);
                if self.rng.one_in(2) {
                    self.cut.insert((pair.1, pair.0));
                }
            }
        }
        Ok(())
    }

    fn proposal(&mut self) -> Input {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let n = self.rng.below(4) as u8;
        let registration = Registration {
            node: NodeId([n; 16]),
            cluster: None,
            name: format!("node-{n}"),
            incarnation: self.now,
            addresses: Addresses {
                entry: "127.0.0.1:1".into(),
                tls_port: None,
                peer: "127.0.0.1:2".into(),
                rack: String::new(),
            },
            shards: 1 + self.rng.below(4) as u16,
            capacity: crate::state::CAPACITY_DEFAULT,
            speaks: crate::protocol::VERSIONS,
        };
        let command = if self.tickets.is_multiple_of(8) {
            let options = ClusterOptions {
                partitions: 16,
                min_nodes: 2,
                policy: Policy::RoundRobin,
                heartbeat_timeout_ms: 2_000,
            };
            let cluster = ClusterId([1; 16]);
            // Its outcome says nothing about a node.
            self.proposals.insert(
                ticket,
                Registration {
                    incarnation: 0,
                    ..registration
                },
            );
            let coordinators = (1..=self.members.len() as u64)
                .map(|id| (RaftId(id), format!("127.0.0.1:{id}")))
                .collect();
            Command::Bootstrap {
                cluster,
                options,
                coordinators,
            }
        } else {
            self.proposals.insert(ticket, registration.clone());
            Command::Register(registration)
        };
        Input::Propose(ticket, command)
    }

    fn run(mut self) -> Result<World, String> {
        for _ in 0..ROUGH_TICKS {
            self.tick(true)?;
        }
        self.cut.clear();
        for id in 1..=self.members.len() as u64 {
            if self.members[id as usize - 1].is_none() {
                self.start(id)?;
            }
        }
        for _ in 0..CALM_TICKS {
            self.tick(false)?;
        }
        let members: Vec<_> = self.members.iter().flatten().collect();
        let leaders = members.iter().filter(|member| member.is_leader()).count();
        if leaders != 1 {
            return Err(format!("{leaders} leaders after everything was mended"));
        }
        let least = members.iter().map(|m| m.applied()).min().unwrap_or(0);
        let most = members.iter().map(|m| m.applied()).max().unwrap_or(0);
        if most - least > 40 {
            return Err(format!("a member stands at {least}, another at {most}"));
        }
        for (node, acked) in &self.acked {
            for member in &members {
                let found = member.state().members().get(node).map(|m| m.incarnation);
                if found.is_none_or(|found| found < *acked) && *acked + 60 < self.now {
                    return Err(format!(
                        "{node}: {acked} was acknowledged, {found:?} is there"
                    ));
                }
            }
        }
        if self.acked.values().all(|newest| *newest < ROUGH_TICKS) {
            return Err("nothing was decided after everything was mended".into());
        }
        Ok(self)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn run(count: u64, seed: u64, bug: Option<Bug>) -> Result<World, String> {
    World::new(count, seed, bug)?.run()
}

fn seeds(range: std::ops::Range<u64>) -> Vec<u64> {
    match std::env::var("EPHESUS_SEED") {
        Ok(seed) => vec![seed.parse().expect("EPHESUS_SEED is a number")],
        Err(_) => range.collect(),
    }
}

#[test]
fn three_members_agree_and_lose_nothing() {
    for seed in seeds(0..240) {
        run(3, seed, None).unwrap_or_else(|e| panic!("EPHESUS_SEED={seed}: {e}"));
    }
}

#[test]
fn five_members_agree_and_lose_nothing() {
    for seed in seeds(0..80) {
        run(5, seed, None).unwrap_or_else(|e| panic!("EPHESUS_SEED={seed}: {e}"));
    }
}

#[test]
fn a_seed_determines_a_run() {
    let trace = |seed| run(3, seed, None).map(|world| world.trace);
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

/// How many of so many runs show the bug.
fn caught(bug: Bug, runs: u64) -> usize {
    // raft itself may notice, with a panic.
    let run = |seed| std::panic::catch_unwind(|| run(3, seed, Some(bug)));
    (0..runs)
        .filter(|&seed| !matches!(run(seed), Ok(Ok(_))))
        .count()
}

#[test]
fn a_member_that_writes_nothing_down_is_caught() {
    let caught = caught(Bug::NoPersist, 40);
    assert!(
        caught >= 10,
        "the planted bug showed in {caught} of 40 runs"
    );
}

#[test]
fn a_member_that_answers_before_it_has_written_is_caught() {
    let caught = caught(Bug::AnswerBeforeSync, 240);
    assert!(
        caught >= 1,
        "the planted bug showed in {caught} of 240 runs"
    );
}

#[test]
fn one_member_decides_alone_and_answers_reads() {
    let mut world = World::new(1, 1, None).expect("starts");
    for _ in 0..60 {
        world.tick(false).expect("runs");
    }
    let member = world.members[0].as_mut().expect("runs");
    assert!(member.is_leader());
    assert_eq!(member.voters(), [RaftId(1)]);
    assert!(member.state().cluster().is_some());
    let inputs = [Input::Read(Ticket(u64::MAX))];
    let output = block_on(member.turn(inputs, 0, |_, _| {})).expect("runs");
    assert_eq!(output.reads, [(Ticket(u64::MAX), true)]);
}

#[test]
fn starts_do_not_make_the_log_longer() {
    let mut world = World::new(1, 6, None).expect("starts");
    for _ in 0..20 {
        for _ in 0..50 {
            world.tick(false).expect("runs");
        }
        let member = world.members[0].as_ref().expect("it runs");
        let segments = member.node.store().segments();
        assert!(segments <= SEGMENTS_MAX, "{segments} segments");
        world.crash(1);
        world.start(1).expect("recovers");
    }
}

#[test]
fn a_member_that_does_not_lead_names_the_leader() {
    let mut world = World::new(3, 5, None).expect("starts");
    for _ in 0..100 {
        world.tick(false).expect("runs");
    }
    let leader = world.members.iter().flatten().find(|m| m.is_leader());
    let leader = leader.expect("one leads").id();
    let follower = world.members.iter_mut().flatten().find(|m| !m.is_leader());
    let follower = follower.expect("two follow");
    let command = Command::Started {
        node: NodeId([9; 16]),
        incarnation: 1,
    };
    let inputs = [
        Input::Propose(Ticket(u64::MAX), command),
        Input::Read(Ticket(0)),
    ];
    let output = block_on(follower.turn(inputs, 0, |_, _| {})).expect("runs");
    let outcome = Outcome::NotLeader(Some(leader));
    assert_eq!(output.outcomes, [(Ticket(u64::MAX), outcome)]);
    assert_eq!(output.reads, [(Ticket(0), false)]);
}
