//! The threads of a node's process, each in its own time: the main one and its shards. What they do is the engine's own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ephesus_coordinator::migration::Step;
use ephesus_engine::node::simulated::{Happened, Outcome, Process, Refused, Start};
use ephesus_wire::{Epoch, PartitionId};

use super::{What, World};
use crate::clients::other;
use crate::moment::Moment;
use crate::process::Phase;

/// A thread that has something to do runs within so many ms.
const SOON_MS: u64 = 2;

/// One turn of a main thread in so many comes late, by up to so many ms: tables are missed.
const LATE: u64 = 40;
const LATE_MS_MAX: u64 = 900;

/// One write of a log in so many takes long, up to so many ms.
const SLOW: u64 = 150;
const SLOW_MS_MAX: u64 = 250;

/// A process is stopped within one turn of a shard in so many, for so many ms.
const STOPS: u64 = 6_000;
const STOPS_MS: (u64, u64) = (300, 4_000);

/// A shard and a main thread look around at least so often, ms.
const IDLE_MS: u64 = 100;

/// What ends of streams say when one has something else than the other.
const DIFFERENCES: [&str; 4] = [" was sent", "source sent", "sent already", "keys were sent"];

/// Wall clock at the beginning, ms.
const WALL_MS: u64 = 1_700_000_000_000;

impl World {
    /// What a node's clock shows in ms since the beginning of the simulation, with an offset of its own.
    pub(super) fn local_ms(&self, node: usize) -> u64 {
        self.nodes[node].clock.at(self.now)
    }

    fn holds_lease(&self, node: usize) -> bool {
        let until = &self.nodes[node].lease_until;
        until.load(Ordering::Acquire) > self.local_ms(node)
    }

    /// Starts what serves, once the table knows of this start.
    pub(super) fn start_process(&mut self, node: usize) -> Result<(), String> {
        let process = &self.nodes[node];
        let Some(agent) = process.running.as_ref().filter(|_| process.is_recovered) else {
            return Ok(());
        };
        if process.process.is_some() {
            return Ok(());
        }
        let (id, incarnation, shards) = (
            process.disk.id,
            process.disk.incarnation,
            process.disk.shards,
        );
        let known = agent.view().filter(|view| {
            let member = view.members.get(&id);
            member.is_some_and(|m| (m.incarnation, m.shards) == (incarnation, shards))
        });
        let Some(view) = known.cloned() else {
            return Ok(());
        };
        let start = Start {
            node: id,
            shards,
            port: 7_379,
            view: Arc::clone(&view),
            lease: process.lease(),
            base: self.base,
            wall_ms: WALL_MS + self.now,
            bug: self.mistake,
        };
        let (started, mut begun) = match Process::start(&process.disk.dir, start) {
            Ok(started) => started,
            Err(Refused::Undecided) => {
                // As the operator is told to.
                self.stop_node(node);
                let disk = &mut self.nodes[node].disk;
                disk.shards = disk.dir.shards();
                self.after(300, What::StartNode(node));
                return Ok(());
            }
            Err(Refused::Other(reason)) if self.nodes[node].may_be_refused => {
                self.nodes[node].refused = Some(reason);
                self.stop_node(node);
                return Ok(());
            }
            Err(Refused::Other(reason)) => {
                return Err(format!("node {node} does not start: {reason}"));
            }
        };
        // A process that died when its layout was durable has begun them, and told nobody.
        for (partition, copy) in started.copies() {
            let arrival = view.migrations.arrivals.get(&partition);
            let is_unseen = arrival.is_some_and(|arrival| {
                arrival.migration.0 == 0 && self.checks.is_unseen(partition, arrival.epoch)
            });
            if is_unseen && begun.iter().all(|(of, _)| *of != partition) {
                begun.push((partition, copy.epoch));
            }
        }
        let process = &mut self.nodes[node];
        process.shard_at = vec![None; started.shards()];
        process.phases = vec![Phase::Begin; started.shards()];
        let copies = started.copies().map(|(id, copy)| (id, copy.epoch));
        process.to_fill = copies
            .filter(|(partition, _)| self.checks.unfilled.contains(partition))
            .collect();
        process.process = Some(started);
        process.newest = Some(view);
        self.begun(node, &begun)?;
        self.note_executing(node)?;
        let process = &mut self.nodes[node];
        if let (Some(agent), Some(started)) = (&mut process.running, &process.process) {
            agent.set_hosted(started.hosted());
            agent.started();
        }
        self.wake_main(node);
        for shard in 0..self.nodes[node].phases.len() {
            self.wake_shard(node, shard, 0);
        }
        self.node_turn(node, Vec::new())
    }

    /// Copies have begun empty.
    fn begun(&mut self, node: usize, begun: &[(PartitionId, Epoch)]) -> Result<(), String> {
        for &(partition, epoch) in begun {
            let view = self.nodes[node].newest.clone();
            let arrivals = view.as_ref().map(|view| &view.migrations.arrivals);
            let arrival = arrivals.and_then(|arrivals| arrivals.get(&partition));
            if let Some(arrival) = arrival.filter(|arrival| arrival.migration.0 > 0) {
                return Err(format!(
                    "node {node} begins partition {partition} empty, which {arrival:?} has brought"
                ));
            }
            if !self.checks.emptied(node, partition, epoch)? {
                continue;
            }
            self.clients.emptied(partition);
            self.checks.unfilled.insert(partition);
            self.nodes[node].to_fill.push((partition, epoch));
        }
        Ok(())
    }

    /// Something is there for a node's main thread.
    pub(super) fn happened(&mut self, node: usize, life: u64, happened: Happened) {
        let process = &mut self.nodes[node];
        if process.life == life && process.process.is_some() {
            process.happened.push(happened);
            self.wake_main(node);
        }
    }

    pub(super) fn wake_main(&mut self, node: usize) {
        let mut later = self.rng.below(SOON_MS + 1);
        if self.is_rough && self.rng.one_in(LATE) {
            later = self.rng.below(LATE_MS_MAX);
        }
        self.wake_main_after(node, later);
    }

    fn wake_main_after(&mut self, node: usize, later: u64) {
        let at = self.now + later;
        let process = &mut self.nodes[node];
        if process.process.is_some() && process.main_at.is_none() {
            process.main_at = Some(at);
            let life = process.life;
            self.after(later, What::Main(node, life));
        }
    }

    pub(super) fn wake_shard(&mut self, node: usize, shard: usize, later: u64) {
        let at = self.now + later;
        let process = &mut self.nodes[node];
        let is_later = process.shard_at[shard].is_some_and(|due| due <= at);
        if process.process.is_some() && !is_later {
            process.shard_at[shard] = Some(at);
            let life = process.life;
            self.after(later, What::Shard(node, shard, life));
        }
    }

    /// Shards that have something to do run soon.
    pub(super) fn wake_shards(&mut self, node: usize) {
        let count = self.nodes[node].phases.len();
        for shard in 0..count {
            let process = self.nodes[node].process.as_ref();
            if process.is_some_and(|process| process.has_work(shard)) {
                let later = self.rng.below(SOON_MS + 1);
                self.wake_shard(node, shard, later);
            }
        }
    }

    /// A turn of a main thread.
    pub(super) fn main_turn(&mut self, node: usize) -> Result<(), String> {
        let now = self.now;
        let local = self.local_ms(node);
        let state = &mut self.nodes[node];
        state.main_at = None;
        if state.paused_until > now {
            let later = state.paused_until - now;
            self.wake_main_after(node, later);
            return Ok(());
        }
        let happened = std::mem::take(&mut state.happened);
        let newest = state.running.as_ref().and_then(|agent| agent.view());
        let newest = newest.cloned().filter(|newest| {
            let is_first = std::mem::replace(&mut state.is_first_table, false);
            let known = state.newest.as_ref().map(|view| view.version());
            is_first || known != Some(newest.version())
        });
        if let Some(newest) = &newest {
            state.newest = Some(Arc::clone(newest));
        }
        let Some(process) = &mut state.process else {
            return Ok(());
        };
        let outcome = process.turn(happened, newest, local);
        let is_waiting = process.is_waiting();
        self.note_outcome(node, &outcome);
        self.begun(node, &outcome.begun)?;
        self.carry_out(node, outcome)?;
        self.carry_sent(node);
        self.wake_shards(node);
        if is_waiting {
            self.wake_main_after(node, IDLE_MS);
        }
        self.node_turn(node, Vec::new())
    }

    fn carry_out(&mut self, node: usize, outcome: Outcome) -> Result<(), String> {
        let differs = |reason: &&String| DIFFERENCES.iter().any(|part| reason.contains(part));
        if let Some(reason) = outcome.reasons.iter().find(differs) {
            return Err(format!(
                "the ends of a stream differ: node {node}: {reason}"
            ));
        }
        let state = &mut self.nodes[node];
        let (life, id) = (state.life, state.disk.id);
        if let Some(agent) = &mut state.running {
            if let Some(steps) = outcome.steps {
                agent.set_migration_steps(steps);
            }
            if let Some(progress) = outcome.progress {
                agent.set_migration_progress(progress);
            }
            if let Some(hosted) = outcome.hosted {
                agent.set_hosted(hosted);
            }
        }
        if let Some((number, layout)) = outcome.layout {
            let most = if self.rng.one_in(10) { 60 } else { 4 };
            let delay = 1 + self.rng.below(most);
            // Later ones are durable later.
            let at = (self.now + delay).max(self.nodes[node].layout_at);
            self.nodes[node].layout_at = at;
            let what = What::LayoutWritten(node, life, number, Box::new(layout));
            self.after(at - self.now, what);
        }
        for dial in outcome.dials {
            self.dial_node(node, id, dial);
        }
        Ok(())
    }

    /// A layout is durable.
    pub(super) fn layout_written(
        &mut self,
        node: usize,
        life: u64,
        number: u64,
        layout: &ephesus_engine::node::data_dir::Layout,
    ) {
        let state = &self.nodes[node];
        if state.life == life && state.process.is_some() {
            state.disk.dir.written(layout);
            self.happened(node, life, Happened::Written(number));
        }
    }

    /// A shard's turn, or what is left of one within which the process was stopped.
    pub(super) fn shard_turn(&mut self, node: usize, shard: usize) -> Result<(), String> {
        let now = self.now;
        let state = &mut self.nodes[node];
        if state.shard_at[shard] != Some(now) {
            return Ok(());
        }
        state.shard_at[shard] = None;
        if state.paused_until > now {
            let later = state.paused_until - now + self.rng.below(3);
            self.wake_shard(node, shard, later);
            return Ok(());
        }
        loop {
            self.set_clock(node);
            let state = &mut self.nodes[node];
            let Some(process) = &mut state.process else {
                return Ok(());
            };
            let phase = state.phases[shard];
            state.phases[shard] = phase.next();
            match phase {
                Phase::Begin => process.begin(shard, now, WALL_MS + now),
                Phase::Execute => {
                    process.execute(shard);
                    let holds_lease = self.holds_lease(node);
                    self.come_to(node, shard, holds_lease);
                    self.fill(node, shard);
                }
                Phase::Finish => {
                    self.finish_turn(node, shard)?;
                    break;
                }
            }
            if self.is_rough && self.rng.one_in(STOPS) {
                let (least, most) = STOPS_MS;
                let pause = least + self.rng.below(most - least);
                self.pause_node_for(node, pause);
                self.wake_shard(node, shard, pause);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes what nobody else writes into copies that have begun empty.
    fn fill(&mut self, node: usize, shard: usize) {
        let partitions = self.shape.options.partitions;
        let state = &mut self.nodes[node];
        let Some(process) = &mut state.process else {
            return;
        };
        if state.to_fill.is_empty() {
            return;
        }
        let copies: Vec<_> = process.shard(shard).copies().collect();
        let is_here = |&mut (partition, epoch): &mut (PartitionId, Epoch)| {
            let mut copies = copies.iter();
            copies.any(|(id, copy)| (*id, copy.epoch) == (partition, epoch) && copy.executes)
        };
        for (partition, _) in state.to_fill.extract_if(.., is_here) {
            let keys = (0..crate::clients::OTHERS).map(|n| other(partitions, partition, n));
            let last = process.shard(shard).fill(keys);
            state.filling.push((shard, partition, last));
        }
    }

    fn finish_turn(&mut self, node: usize, shard: usize) -> Result<(), String> {
        let (is_rough, now) = (self.is_rough, self.now);
        let (state, rng) = (&mut self.nodes[node], &mut self.rng);
        let Some(process) = &mut state.process else {
            return Ok(());
        };
        let delay_ms = || match is_rough && rng.one_in(SLOW) {
            true => rng.below(SLOW_MS_MAX),
            false => 1 + rng.below(2),
        };
        let answers = process.finish(shard, delay_ms);
        let committed = process.shard(shard).committed();
        let is_filled =
            |(on, _, last): &mut (usize, PartitionId, u64)| *on == shard && *last <= committed;
        for (_, partition, _) in state.filling.extract_if(.., is_filled) {
            self.checks.unfilled.remove(&partition);
        }
        let has_reports = process.has_reports();
        let next = process.next_turn_ms(shard);
        for answered in answers {
            self.answered(node, shard, answered)?;
        }
        self.forget_turn(node, shard);
        self.note_executing(node)?;
        self.note_moments(node);
        self.carry_sent(node);
        if has_reports {
            self.wake_main(node);
        }
        self.wake_shards(node);
        let next = next.map_or(IDLE_MS, |at| at.saturating_sub(now).clamp(1, IDLE_MS));
        self.wake_shard(node, shard, next);
        Ok(())
    }

    /// Lets what the process serves by look at the time.
    pub(super) fn set_clock(&mut self, node: usize) {
        let local = self.local_ms(node);
        let state = &self.nodes[node];
        state.lease_clock.store(local, Ordering::Release);
    }

    /// Notes what a node would execute, and that nobody else does.
    pub(super) fn note_executing(&mut self, node: usize) -> Result<(), String> {
        let state = &mut self.nodes[node];
        let Some(process) = &state.process else {
            return Ok(());
        };
        let left = process.copies().find(|(_, copy)| copy.left_keys > 0);
        if let Some((partition, copy)) = left {
            let keys = copy.left_keys;
            return Err(format!(
                "node {node} keeps {keys} keys of partition {partition} whose stream is over"
            ));
        }
        let copies = process.copies().filter(|(_, copy)| copy.executes);
        state.executing = copies.map(|(id, copy)| (id, copy.epoch)).collect();
        self.one_owner(node)
    }

    /// No other node executes what this one does.
    pub(super) fn one_owner(&self, node: usize) -> Result<(), String> {
        let executing = |node: usize| {
            let state = &self.nodes[node];
            let executing =
                (self.holds_lease(node) && state.process.is_some()).then_some(&state.executing);
            executing.into_iter().flatten()
        };
        for (&partition, epoch) in executing(node) {
            let mut others = (0..self.nodes.len()).filter(|other| *other != node);
            let other = others.find(|other| executing(*other).any(|(id, _)| *id == partition));
            if let Some(other) = other {
                return Err(format!(
                    "partition {partition} is served by nodes {node}, with epoch {epoch}, and {other}"
                ));
            }
        }
        Ok(())
    }

    fn note_outcome(&mut self, node: usize, outcome: &Outcome) {
        let view = self.nodes[node].newest.clone();
        let me = self.nodes[node].disk.id;
        if self.kill.is_none() {
            return;
        }
        let active = view.iter().flat_map(|view| &view.migrations.active);
        let planned: Vec<_> = active
            .filter(|(_, migration)| migration.source.node == me)
            .map(|(id, _)| *id)
            .collect();
        for id in planned {
            self.reach(id, Moment::Planned);
        }
        for (id, step) in outcome.steps.iter().flatten() {
            match step {
                Step::Begin => self.reach(*id, Moment::Begun),
                Step::Commit(_) => self.reach(*id, Moment::Confirmed),
                Step::Abort(_) => {}
            }
        }
        for dial in &outcome.dials {
            for (id, _) in dial.batch.moves() {
                self.reach(*id, Moment::Dialled);
            }
        }
        let arrival = |partition: &PartitionId| {
            let arrivals = view.as_ref().map(|view| &view.migrations.arrivals);
            arrivals.and_then(|arrivals| Some(arrivals.get(partition)?.migration))
        };
        for (partition, _) in &outcome.given_up {
            if let Some(id) = arrival(partition) {
                self.reach(id, Moment::GivenUp);
            }
        }
        for (partition, _) in &outcome.activated {
            if let Some(id) = arrival(partition) {
                self.reach(id, Moment::Activated);
            }
        }
    }

    fn note_moments(&mut self, node: usize) {
        if self.kill.is_none() {
            return;
        }
        let process = self.nodes[node].process.as_ref();
        let copies: Vec<_> = process.iter().flat_map(|p| p.copies()).collect();
        for (_, copy) in copies {
            if let Some((id, _)) = copy.outgoing {
                self.reach(id, Moment::HalfWalked);
                if copy.is_held {
                    self.reach(id, Moment::Held);
                }
            }
            if let Some((id, seq, is_prepared)) = copy.incoming {
                self.reach(id, Moment::Staged);
                if seq > 1 {
                    self.reach(id, Moment::Filled);
                }
                if is_prepared {
                    self.reach(id, Moment::Prepared);
                }
            }
        }
    }
}
