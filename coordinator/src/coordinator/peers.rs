//! The other coordinators: who they are, where they are reached, what they speak, and who of them is there.

use std::collections::BTreeMap;

use ephesus_wal::Disk;
use ephesus_wire::handshake::Versions;
use raft::eraftpb::MessageType;
use raft::prelude::Message;

use super::{Action, Coordinator, PRESENT_MS, Pending};
use crate::command::{Command, CoordinatorChange, RaftId};
use crate::member::Input;
use crate::protocol::Coordinators;
use crate::state::{COORDINATORS_MAX, State};

impl<D: Disk> Coordinator<D> {
    /// All coordinators, as far as this one knows.
    pub fn ids(&self) -> impl Iterator<Item = RaftId> + '_ {
        let (state, decided) = (self.state(), self.state().coordinators().keys());
        let told = self.peers.keys().copied();
        let told = told.filter(|id| is_undecided(state, *id));
        decided.copied().chain(told)
    }

    /// Whether there is a coordinator of this number: as decided, or as this one was told at its start.
    pub(super) fn knows(&self, id: RaftId) -> bool {
        self.address(id).is_some()
    }

    /// Where another coordinator is reached.
    #[must_use]
    pub fn address(&self, id: RaftId) -> Option<&str> {
        address_of(self.state(), &self.peers, id)
    }

    /// What to tell who campaigns while others hear a leader. That one may have been added since the campaigner was
    /// there, which hears nobody whom it does not know, and learns of it by the log from the leader alone.
    pub(super) fn tell_who_leads(&self, message: &Message) -> Option<Action> {
        let campaigns = matches!(
            message.get_msg_type(),
            MessageType::MsgRequestPreVote | MessageType::MsgRequestVote
        );
        let to = RaftId(message.from);
        let leader = self.member.leader().filter(|leader| *leader != to);
        if !campaigns || leader.is_none() {
            return None;
        }
        Some(Action::Coordinators {
            to,
            address: self.address(to)?.to_owned(),
            coordinators: Coordinators(self.state().coordinators().clone()),
        })
    }

    /// Takes in what another coordinator has said of those that were added since, as if it had been told at its start.
    pub(super) fn learn_of(&mut self, told: BTreeMap<RaftId, String>) {
        let state = self.member.state();
        for (id, address) in told {
            self.peers.entry(id).or_insert(address);
        }
        self.peers.retain(|id, _| is_undecided(state, *id));
        while self.peers.len() > COORDINATORS_MAX {
            self.peers.pop_first();
        }
    }

    /// Hands the lead over to one of those who were heard of just now, if there is any.
    pub(super) fn step_aside(&self) -> Input {
        let others = self.heard_ms.keys().copied();
        let own = self.member.id();
        let present = others.filter(|id| *id != own && self.is_present(*id));
        Input::StepAside(present.collect())
    }

    /// Whether another coordinator was heard of just now.
    pub(super) fn is_present(&self, id: RaftId) -> bool {
        let heard_ms = self.heard_ms.get(&id);
        heard_ms.is_some_and(|ms| self.now_ms.saturating_sub(*ms) <= PRESENT_MS)
    }

    pub(super) fn leader_hint(&self) -> Option<(RaftId, String)> {
        let leader = self.member.leader().filter(|id| *id != self.member.id())?;
        Some((leader, self.address(leader)?.to_owned()))
    }

    /// Lets coordinators vote that have the log by now, and are there.
    pub(super) fn promote_learners(&mut self, inputs: &mut Vec<Input>) {
        let state = self.member.state();
        let is_under_way = |(_, pending): &(u64, Pending)| matches!(pending, Pending::Promote);
        if state.learners().is_empty() || self.pending.values().any(is_under_way) {
            return;
        }
        let is_ready = |id: &&RaftId| {
            let change = CoordinatorChange::Promote { id: **id };
            self.is_present(**id)
                && self.member.is_caught_up(**id)
                && state.check_known_change(&change).is_ok()
        };
        if let Some(id) = state.learners().iter().find(is_ready).copied() {
            let ticket = self.ticket(Some(Pending::Promote));
            inputs.push(Input::Change(ticket, CoordinatorChange::Promote { id }));
        }
    }

    /// Has it decided what coordinators speak, where that is not known or another.
    pub(super) fn note_what_is_spoken(&mut self, inputs: &mut Vec<Input>) {
        let state = self.member.state();
        let (peers, own) = (&self.peers, self.member.id());
        let is_known = |id: &RaftId| *id == own || address_of(state, peers, *id).is_some();
        self.speak.retain(|id, _| is_known(id));
        self.heard_ms.retain(|id, _| is_known(id));
        self.refused.retain(|id, _| is_known(id));
        let said = self.speak.iter().map(|(id, speaks)| (*id, *speaks));
        let is_news = |(id, speaks): &(RaftId, Versions)| {
            let is_coordinator = state.coordinators().contains_key(id);
            is_coordinator && state.coordinator_speaks_now(*id) != Some(*speaks)
        };
        let news: Vec<_> = said.filter(is_news).collect();
        for (id, speaks) in news {
            let mut pending = self.pending.values();
            if pending.any(|(_, pending)| matches!(pending, Pending::Speaks(of) if *of == id)) {
                continue;
            }
            let ticket = self.ticket(Some(Pending::Speaks(id)));
            inputs.push(Input::Propose(
                ticket,
                Command::CoordinatorSpeaks { id, speaks },
            ));
        }
    }

    /// The voters and where they are reached; none if an address is missing.
    pub(super) fn founders(&self) -> Option<BTreeMap<RaftId, String>> {
        let voters = self.member.voters().into_iter();
        voters
            .map(|id| Some((id, self.peers.get(&id)?.clone())))
            .collect()
    }
}

/// Whether what this coordinator was told at its start of another one still counts. Of numbers that were given out
/// the state knows who is left: a removed or given up coordinator is none, whatever the options go on to say.
fn is_undecided(state: &State, id: RaftId) -> bool {
    state.cluster().is_none() || id >= state.next_coordinator()
}

/// Where a coordinator is reached: as decided, or as this one was told at its start.
pub(super) fn address_of<'a>(
    state: &'a State,
    peers: &'a BTreeMap<RaftId, String>,
    id: RaftId,
) -> Option<&'a str> {
    let told = || peers.get(&id).filter(|_| is_undecided(state, id));
    let decided = state.coordinators().get(&id);
    decided.or_else(told).map(String::as_str)
}
