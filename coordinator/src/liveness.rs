//! Which nodes are there, as the leader sees it, and how long they may serve.
//!
//! 1. A node is failed when it was silent for the whole timeout while this member led.
//! 2. A lease is at most half the timeout, counts from when the node *sent* its heartbeat, and is
//!    granted only after a read-index round that began after the heartbeat had arrived: whoever
//!    leads next was then elected after the heartbeat, and grants a full timeout of its own.
//! 3. From the proposal that fails a node until its outcome is known the node gets no lease.
//! 4. A heartbeat counts, and its lease begins, when the shard that is furthest behind had begun its last turn: a
//!    node one of whose shards stands still has no lease after half the timeout, and is silent.
//! 5. A node loses what it owns without its own doing only while it counts as failed, and then it has to register
//!    again. It gets no lease before its shards act on the table of that moment; of a new leader, on the table that
//!    the lead began with.
//! 6. A new start of a node gets no lease before any of an earlier start has run out, unless that is known to be gone.
//!
//! So a node's last lease has run out before anybody may decide that it has failed, as long as no
//! clock runs twice as fast as another. The clock stands still while the leader itself does: what it
//! could not hear is no silence.

use std::collections::BTreeMap;

use ephesus_wire::NodeId;

use crate::member::Ticket;
use crate::planted::{Bug, Planted};
use crate::protocol::Heartbeat;
use crate::report::Figures;
use crate::state::{HEARTBEAT_TIMEOUT_MS, HEARTBEAT_TIMEOUT_MS_MAX, MemberStatus, State};

/// Between two heartbeats of a node, ms.
pub const HEARTBEAT_MS: u64 = 200;

/// A round that takes longer is given up, and another begun, ms.
pub const ROUND_MS_MAX: u64 = 500;

/// The longest step the leader's clock takes at once, ms; what is beyond was spent standing still.
pub(crate) const STEP_MS_MAX: u64 = 100;

/// A heartbeat that waits for a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingHeartbeat<S> {
    /// Where the answer goes.
    pub(crate) session: S,
    /// What was heard.
    pub(crate) heartbeat: Heartbeat,
}

/// What is known of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    /// When, by the leader's clock; the beginning of its lead if not since.
    at_ms: u64,
    /// The proposal that fails it.
    failing: Option<Ticket>,
    /// Whether a heartbeat has arrived since this member leads.
    is_heard: bool,
    pub(crate) figures: Figures,
    pub(crate) table_version: u64,
    /// The start that has registered last; 0: none since this member leads.
    incarnation: u64,
    /// By then no earlier start has a lease.
    fence_ms: u64,
    /// What its shards have to act on at least.
    required_version: u64,
}

/// What one leader knows in one term; `S` names sessions.
#[derive(Debug)]
pub(crate) struct Liveness<S> {
    /// Time awake.
    clock_ms: u64,
    passed_ms: Option<u64>,
    nodes: BTreeMap<NodeId, Heard>,
    /// Whom the proposals under way fail.
    failing: BTreeMap<Ticket, NodeId>,
    waiting: Vec<PendingHeartbeat<S>>,
    round: Option<(Ticket, u64, Vec<PendingHeartbeat<S>>)>,
    pub(crate) planted: Planted,
}

impl<S> Liveness<S> {
    pub(crate) fn new() -> Liveness<S> {
        Liveness {
            clock_ms: u64::from(HEARTBEAT_TIMEOUT_MS_MAX),
            passed_ms: None,
            nodes: BTreeMap::new(),
            failing: BTreeMap::new(),
            waiting: Vec::new(),
            round: None,
            planted: Planted::default(),
        }
    }

    /// Moves the leader's clock on to a moment of the caller's.
    pub(crate) fn pass(&mut self, now_ms: u64) {
        let step = now_ms.saturating_sub(self.passed_ms.unwrap_or(now_ms));
        self.clock_ms += step.min(STEP_MS_MAX);
        self.passed_ms = Some(now_ms);
    }

    /// This member leads from now on: every node has the full timeout.
    pub(crate) fn lead(&mut self) {
        self.nodes.clear();
        self.failing.clear();
        self.waiting.clear();
        self.round = None;
    }

    /// When any lease that may have been granted up to now has run out, with as much as any clock may be wrong.
    fn fence_ms(&self, state: &State) -> u64 {
        self.clock_ms + timeout_ms(state)
    }

    /// Of a node that is not known yet the lead has just begun, or it registers.
    fn node(&mut self, node: NodeId, state: &State) -> &mut Heard {
        let at_ms = if self.planted.has(Bug::HastyLeader) {
            0
        } else {
            self.clock_ms
        };
        let fence_ms = self.fence_ms(state);
        self.nodes.entry(node).or_insert(Heard {
            at_ms,
            fence_ms,
            required_version: state.table().version,
            ..Heard::default()
        })
    }

    /// A start of a node has registered.
    pub(crate) fn registered(&mut self, node: NodeId, incarnation: u64, state: &State) {
        let (clock_ms, fence_ms) = (self.clock_ms, self.fence_ms(state));
        let heard = self.node(node, state);
        heard.at_ms = clock_ms;
        heard.required_version = state.table().version;
        if heard.incarnation != incarnation {
            (heard.incarnation, heard.fence_ms) = (incarnation, fence_ms);
        }
    }

    /// A heartbeat of a member's current start has arrived; it is answered after the next round.
    pub(crate) fn heard(&mut self, session: S, heartbeat: Heartbeat, state: &State) {
        let clock_ms = self.clock_ms;
        let heard = self.node(heartbeat.node, state);
        heard.is_heard = true;
        let alive_ms = clock_ms.saturating_sub(heartbeat.idle_ms.into());
        heard.at_ms = heard.at_ms.max(alive_ms);
        heard.figures = heartbeat.figures;
        heard.table_version = heartbeat.table_version;
        self.waiting.push(PendingHeartbeat { session, heartbeat });
    }

    /// Nodes that have been silent for the timeout, with the start that was.
    pub(crate) fn overdue(&mut self, state: &State) -> Vec<(NodeId, u64)> {
        let mut overdue = Vec::new();
        let timeout_ms = timeout_ms(state);
        for (node, member) in state.members() {
            let clock_ms = self.clock_ms;
            let heard = self.node(*node, state);
            let is_late = clock_ms - heard.at_ms >= timeout_ms;
            if is_late && heard.failing.is_none() && member.status != MemberStatus::Failed {
                overdue.push((*node, member.incarnation));
            }
        }
        // All members are among them, and mostly nobody else.
        if self.nodes.len() > state.members().len() {
            self.nodes.retain(|node, heard| {
                state.members().contains_key(node) || heard.failing.is_some()
            });
        }
        overdue
    }

    /// A proposal that fails a node is under way.
    pub(crate) fn failing(&mut self, node: NodeId, ticket: Ticket) {
        if let Some(heard) = self.nodes.get_mut(&node) {
            heard.failing = Some(ticket);
            self.failing.insert(ticket, node);
        }
    }

    /// The outcome of such a proposal is known.
    pub(crate) fn decided(&mut self, ticket: Ticket) {
        let node = self.failing.remove(&ticket);
        if let Some(heard) = node.and_then(|node| self.nodes.get_mut(&node)) {
            heard.failing.take_if(|failing| *failing == ticket);
        }
    }

    /// The heartbeats that the next round is for, if one is due; it is under way from now on.
    pub(crate) fn begin_round(&mut self, ticket: Ticket) -> bool {
        let is_stuck = |began: u64| self.clock_ms - began >= ROUND_MS_MAX;
        if self
            .round
            .as_ref()
            .is_some_and(|(_, began, _)| !is_stuck(*began))
        {
            return false;
        }
        // A round that is given up granted nothing; its heartbeats may wait for another.
        if let Some((_, _, given_up)) = self.round.take() {
            self.waiting.splice(..0, given_up);
        }
        if self.waiting.is_empty() {
            return false;
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.round = Some((ticket, self.clock_ms, waiting));
        true
    }

    /// The heartbeats of a round that has ended; none if it is not the current one.
    pub(crate) fn end_round(&mut self, ticket: Ticket) -> Vec<PendingHeartbeat<S>> {
        match self.round.take_if(|(current, _, _)| *current == ticket) {
            Some((_, _, waiting)) => waiting,
            None => Vec::new(),
        }
    }

    /// The lease that answers a heartbeat after its round, ms; 0 for one that gets none.
    pub(crate) fn lease_ms(&self, heartbeat: &Heartbeat, state: &State) -> u32 {
        let is_up = state.members().get(&heartbeat.node).is_some_and(|member| {
            member.incarnation == heartbeat.incarnation && member.status != MemberStatus::Failed
        });
        let heard = self.nodes.get(&heartbeat.node);
        let is_entitled = heard.is_some_and(|heard| {
            let knows_table = heartbeat.acted_version >= heard.required_version;
            let is_only_start = heartbeat.is_sole || self.clock_ms >= heard.fence_ms;
            heard.failing.is_none() && knows_table && is_only_start
        });
        if !is_up || !is_entitled {
            return 0;
        }
        let lease_ms = if self.planted.has(Bug::LongLease) {
            timeout_ms(state) * 2
        } else {
            timeout_ms(state) / 2
        };
        let lease_ms = lease_ms.saturating_sub(heartbeat.idle_ms.into());
        u32::try_from(lease_ms).unwrap_or(u32::MAX)
    }

    /// What is known of a node, and for how long nothing was heard of it, ms.
    pub(crate) fn heard_of(&self, node: NodeId) -> Option<(Heard, u64)> {
        let heard = self.nodes.get(&node).filter(|heard| heard.is_heard)?;
        Some((*heard, self.clock_ms - heard.at_ms))
    }
}

fn timeout_ms(state: &State) -> u64 {
    let options = state.options();
    options
        .map_or(HEARTBEAT_TIMEOUT_MS, |options| options.heartbeat_timeout_ms)
        .into()
}

#[cfg(test)]
mod tests;
