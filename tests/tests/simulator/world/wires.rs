//! Connections between nodes: in order, and broken at both ends when anything is lost.

use ephesus_engine::node::simulated::{End as WireEnd, Happened};
use ephesus_engine::shard::simulated::Sent;
use ephesus_wire::NodeId;

use super::{What, World};
use crate::network::End;
use crate::process::Wire;

/// One message in so many breaks its connection, while things go wrong.
const BREAKS: u64 = 200;

/// How long a dial takes to fail when nothing answers, ms.
const UNANSWERED_MS: u64 = 1_000;

/// What is to be opened, and for what.
pub(super) type Dial = ephesus_engine::node::simulated::Dial;

impl World {
    /// A node opens a connection to another one.
    pub(super) fn dial_node(&mut self, node: usize, id: NodeId, dial: Dial) {
        let life = self.nodes[node].life;
        let batch = dial.batch.id();
        let mut nodes = self.nodes.iter();
        let found = nodes.position(|process| process.disk.id == dial.target);
        let delay = self.network.delay_ms(&mut self.rng);
        let target = found.filter(|target| {
            let is_cut = |from, to| self.network.is_cut(End::Node(from), End::Node(to));
            !is_cut(node, *target) && !is_cut(*target, node)
        });
        let Some(target) = target else {
            let happened = Happened::Dialled(batch, Err("nothing answers".to_owned()));
            self.after(UNANSWERED_MS, What::Happened(node, life, happened));
            return;
        };
        let process = &self.nodes[target];
        if process.process.is_none() || process.paused_until > self.now {
            let happened = Happened::Dialled(batch, Err("refused".to_owned()));
            self.after(2 * delay, What::Happened(node, life, happened));
            return;
        }
        let target_life = process.life;
        let number = self.number();
        let wire = Wire {
            ends: [(node, life), (target, target_life)],
            arrives: [0, 0],
            is_broken: false,
        };
        self.wires.insert(number, wire);
        let dialled = Happened::Dialled(batch, Ok(number));
        let offered = Happened::Offered(dial.batch, id, number);
        self.after(2 * delay, What::Happened(node, life, dialled));
        let later = 3 * delay;
        self.after(later, What::Happened(target, target_life, offered));
    }

    /// Sends what a node's threads have said to other nodes.
    pub(super) fn carry_sent(&mut self, node: usize) {
        let process = &mut self.nodes[node].process;
        let sent = process.as_mut().map(|process| process.take_sent());
        for (end, sent) in sent.into_iter().flatten() {
            self.send(end, sent);
        }
    }

    /// An end of a connection says something.
    fn send(&mut self, (number, is_dialler): WireEnd, sent: Sent) {
        let delay = self.network.delay_ms(&mut self.rng);
        let breaks = self.is_rough && self.rng.one_in(BREAKS);
        let now = self.now;
        let to = usize::from(is_dialler);
        let Some(wire) = self.wires.get_mut(&number).filter(|wire| !wire.is_broken) else {
            return;
        };
        if breaks {
            self.break_wire(number);
            return;
        }
        let at = (now + delay).max(wire.arrives[to]);
        wire.arrives[to] = at;
        self.after(at - now, What::Arrives(number, to, sent));
    }

    /// Something arrives at an end of a connection.
    pub(super) fn arrives(&mut self, number: u64, to: usize, sent: Sent) {
        let Some(wire) = self.wires.get(&number) else {
            return;
        };
        let (node, life) = wire.ends[to];
        let (from, _) = wire.ends[1 - to];
        let is_broken = wire.is_broken;
        let state = &mut self.nodes[node];
        let is_there = state.life == life && state.process.is_some();
        let is_cut = self.network.is_cut(End::Node(from), End::Node(node));
        if !is_broken && (!is_there || is_cut) {
            self.break_wire(number);
            return;
        }
        if is_broken && matches!(sent, Sent::Bytes(_)) {
            return;
        }
        if let Some(process) = state.process.as_mut().filter(|_| is_there) {
            process.arrive((number, to == 0), sent);
            for shard in 0..process.shards() {
                let later = self.rng.below(2);
                self.wake_shard(node, shard, later);
            }
        }
    }

    /// Both ends learn of it, the ones that are still there.
    fn break_wire(&mut self, number: u64) {
        let Some(wire) = self.wires.get_mut(&number).filter(|wire| !wire.is_broken) else {
            return;
        };
        wire.is_broken = true;
        for to in [0, 1] {
            let delay = self.network.delay_ms(&mut self.rng);
            self.after(delay, What::Arrives(number, to, Sent::End));
        }
    }

    /// The process at an end has died.
    pub(super) fn lose_wires(&mut self, node: usize) {
        let lost = self.wires.iter();
        let lost = lost.filter(|(_, wire)| wire.ends.iter().any(|(end, _)| *end == node));
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        for number in lost {
            self.break_wire(number);
        }
    }
}
