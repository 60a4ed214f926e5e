//! Leader, followers, nodes and the virtual clock.

use std::collections::VecDeque;
use std::path::Path;

use ephesus_coordinator::command::RaftId;
use ephesus_coordinator::coordinator::{Action, Coordinator, Event, SessionId};
use ephesus_coordinator::protocol::{Answer, Request, VERSIONS, encode_raft};
use ephesus_coordinator::report::{Query, Report};
use ephesus_coordinator::state::MemberStatus;
use ephesus_wal::StdDisk;
use ephesus_wire::table::PartitionStatus;
use futures_lite::future::block_on;

use ephesus_bench::error::Result;
use ephesus_bench::interrupt;

use super::leader::{self, COORDINATORS, Leader, Letter};
use super::nodes::Nodes;
use super::{Size, wrong};

/// What is said takes so long, ms; all that is said in this time the leader hears at once.
const STEP_MS: u64 = 5;

/// Nothing takes longer than this, virtual ms.
const PATIENCE_MS: u64 = 600_000;

const OPERATOR: SessionId = SessionId(u64::MAX);

pub(super) struct World {
    now_ms: u64,
    pub(super) leader: Leader,
    followers: Vec<Coordinator<StdDisk>>,
    nodes: Nodes,
    /// What is on its way to the leader.
    said: VecDeque<(SessionId, Vec<u8>)>,
    asked: u64,
    reports: Vec<(u64, Report)>,
}

impl World {
    /// Coordinators that have founded a cluster, and nodes that nobody has heard of.
    pub(super) fn found(size: Size, dir: &Path) -> Result<World> {
        let followers = (2..=COORDINATORS).map(|id| leader::start(id, size, dir));
        let mut world = World {
            now_ms: 0,
            leader: Leader::start(size, dir)?,
            followers: followers.collect::<Result<_>>()?,
            nodes: Nodes::new(size),
            said: VecDeque::new(),
            asked: 0,
            reports: Vec::new(),
        };
        for id in 2..=COORDINATORS {
            world.leader.introduce(RaftId(id));
            let others = (1..=COORDINATORS).filter(|other| *other != id);
            for other in others {
                let event = Event::Introduced(RaftId(other), VERSIONS);
                world.follow(id, Some(event))?;
            }
        }
        world.until("a cluster", |world| {
            world.leader.is_settled() && world.leader.state().cluster().is_some()
        })?;
        world.leader.take_turns();
        Ok(world)
    }

    /// Every node registers, all at the same moment.
    pub(super) fn start_all(&mut self) {
        for (session, request) in self.nodes.registrations() {
            self.say(session, &request);
        }
    }

    /// So many nodes are gone from now on; their names.
    pub(super) fn fail(&mut self, count: usize) -> Vec<String> {
        let killed = self.nodes.kill(count).into_iter();
        let name = |(session, name)| {
            self.leader.close(session);
            name
        };
        killed.map(name).collect()
    }

    /// Has the cluster balanced; how many moves were planned.
    pub(super) fn rebalance(&mut self) -> Result<usize> {
        match self.ask(Query::Rebalance { dry_run: false })? {
            Report::Planned(moves) if moves.iter().all(|row| row.migration.is_some()) => {
                Ok(moves.len())
            }
            other => Err(wrong("rebalance", format!("{other:?}"))),
        }
    }

    /// Asks every question of operators once.
    pub(super) fn ask_everything(&mut self) -> Result<()> {
        let queries = [
            Query::Status,
            Query::Nodes,
            Query::Partitions,
            Query::Coordinators,
            Query::Migrations,
            Query::Rebalance { dry_run: true },
        ];
        queries
            .into_iter()
            .try_for_each(|query| self.ask(query).map(drop))
    }

    /// Gives a failed node up, with its data.
    pub(super) fn remove(&mut self, name: &str) -> Result<()> {
        let query = Query::RemoveNode {
            node: name.to_owned(),
            lose_data: true,
        };
        match self.ask(query)? {
            Report::NodeRemoved { .. } => Ok(()),
            other => Err(wrong("node remove", format!("{other:?}"))),
        }
    }

    /// Whether every partition is served and every node that is there knows it.
    pub(super) fn is_online(&self) -> bool {
        let state = self.leader.state();
        let mut entries = state.table().entries.iter();
        let mut members = state.members().values();
        entries.all(|entry| entry.status == PartitionStatus::Online)
            && members.all(|member| member.status != MemberStatus::Starting)
            && self.nodes.have(state.table().version)
    }

    /// Whether nothing moves any more.
    pub(super) fn is_still(&self) -> bool {
        let state = self.leader.state();
        state.migrations().active.is_empty() && state.retries().is_empty() && self.is_online()
    }

    /// Members that have failed.
    pub(super) fn failed(&self) -> usize {
        let members = self.leader.state().members().values();
        members
            .filter(|member| member.status == MemberStatus::Failed)
            .count()
    }

    /// Lets time pass until something is so.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) -> Result<()> {
        let began_ms = self.now_ms;
        while !is_so(self) {
            interrupt::check()?;
            if self.now_ms - began_ms > PATIENCE_MS {
                return Err(wrong(what, "it is not so after 600 s of virtual time"));
            }
            self.step()?;
        }
        Ok(())
    }

    fn ask(&mut self, query: Query) -> Result<Report> {
        self.asked += 1;
        let id = self.asked;
        self.say(OPERATOR, &Request::Operator { id, query });
        self.until("an answer to an operator", |world| {
            world.reports.iter().any(|(answered, _)| *answered == id)
        })?;
        let report = self.reports.pop();
        report.map_or_else(|| Err(wrong("an answer", "there is none")), |(_, r)| Ok(r))
    }

    fn say(&mut self, session: SessionId, request: &Request) {
        if let Ok(bytes) = request.encode() {
            self.said.push_back((session, bytes));
        }
    }

    fn step(&mut self) -> Result<()> {
        self.now_ms += STEP_MS;
        for (session, request) in self.nodes.speak(self.now_ms) {
            self.say(session, &request);
        }
        for id in 2..=COORDINATORS {
            if self.follower(id).next_turn_ms() <= self.now_ms {
                self.follow(id, None)?;
            }
        }
        loop {
            while let Some((session, bytes)) = self.said.front() {
                if !self.leader.hear(*session, bytes)? {
                    break;
                }
                self.said.pop_front();
            }
            if !self.leader.is_due(self.now_ms) {
                return Ok(());
            }
            self.leader.turn(self.now_ms)?;
            self.deliver()?;
        }
    }

    /// Brings what the leader has sent to where it goes.
    fn deliver(&mut self) -> Result<()> {
        let sent = &self.leader.sent;
        for frame in &sent.frames {
            if frame.to == [OPERATOR] {
                if let Ok(Answer::Operator { id, report }) = Answer::decode(&frame.bytes) {
                    self.reports.push((id, *report));
                }
            } else {
                self.nodes.take(&frame.to, &frame.bytes, self.now_ms)?;
            }
        }
        let letters = sent.letters.clone();
        self.post(1, letters)
    }

    fn post(&mut self, from: u64, letters: Vec<Letter>) -> Result<()> {
        for (to, letter) in letters {
            if to.0 == 1 {
                self.leader.hear_coordinator(&letter)?;
            } else if to.0 != from {
                self.follow(to.0, Some(leader::heard(&letter)?))?;
            }
        }
        Ok(())
    }

    fn follower(&mut self, id: u64) -> &mut Coordinator<StdDisk> {
        &mut self.followers[id as usize - 2]
    }

    /// A turn of a follower, and of all that it leads to.
    fn follow(&mut self, id: u64, event: Option<Event>) -> Result<()> {
        let now_ms = self.now_ms;
        let mut letters = Vec::new();
        let post = |action| {
            if let Action::Raft { to, message, .. } = action
                && let Ok(letter) = encode_raft(&message)
            {
                letters.push((to, letter));
            }
        };
        let turn = self.follower(id).turn(event, now_ms, 0, post);
        block_on(turn).map_err(|e| wrong("a follower", e))?;
        self.post(id, letters)
    }
}
