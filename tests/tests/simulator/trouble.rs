//! What goes wrong in the rough part of a run, and how a run ends.

use ephesus_coordinator::command::RaftId;
use ephesus_coordinator::coordinator::{AUTO_REBALANCE_AFTER_MS, Event};
use ephesus_coordinator::report::Query;

use crate::network::End;
use crate::process::CoordinatorProcess;
use crate::world::{OPERATE_MS, What, World};

/// How long the rough part of a run takes, and what follows it may take, ms.
const ROUGH_MS: u64 = 14_000;
const HEAL_MS_MAX: u64 = 12_000;
const FAILOVER_MS: u64 = 3_000;

/// Between two troubles, ms.
const TROUBLE_MS: (u64, u64) = (100, 1_200);

impl World {
    /// A whole run: rough, then calm until everything is as it should be, then a leader dies.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        self.is_rough = true;
        self.network.is_rough = true;
        self.after(TROUBLE_MS.1, What::Trouble);
        self.after(OPERATE_MS, What::Operate);
        self.run_until(ROUGH_MS)?;
        self.calm();
        self.heal()?;
        self.lose_leader(true)?;
        self.heal()?;
        let unleased_ms = self.unleased_ms;
        let lives = self.lives();
        self.lose_leader(false)?;
        // A disk that was to fail may only do so now.
        if self.unleased_ms > 0 && self.lives() == lives {
            let ms = self.unleased_ms;
            return Err(format!(
                "the leader's process ended, and a lease ran out for {ms} ms"
            ));
        }
        self.unleased_ms = unleased_ms;
        self.heal()?;
        self.read_everything()?;
        self.checks.promises()
    }

    fn calm(&mut self) {
        self.is_rough = false;
        self.network.is_rough = false;
        self.network.mend_all();
        for process in self.coordinators.values_mut() {
            process.paused_until = 0;
        }
        let ids: Vec<u64> = self.coordinators.keys().copied().collect();
        for id in ids {
            self.after(0, What::ResumeCoordinator(id));
            self.after(0, What::StartCoordinator(id));
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].paused_until = 0;
            self.after(0, What::ResumeNode(node));
            self.after(0, What::StartNode(node));
        }
    }

    pub(crate) fn heal(&mut self) -> Result<(), String> {
        let mut within_ms = HEAL_MS_MAX;
        if self.changes_policy {
            within_ms += AUTO_REBALANCE_AFTER_MS;
        }
        let end = self.now + within_ms;
        loop {
            self.run_until(self.now + 100)?;
            match self.healed() {
                Ok(()) => return Ok(()),
                Err(error) if self.now >= end => {
                    return Err(format!("{within_ms} ms after the last trouble: {error}"));
                }
                Err(_) => {}
            }
        }
    }

    fn lives(&self) -> Vec<u64> {
        let processes = self.coordinators.values();
        processes.map(|process| process.life).collect()
    }

    /// The leader dies while everything else is well, its machine too with `power`: no node may be
    /// failed.
    fn lose_leader(&mut self, power: bool) -> Result<(), String> {
        let leader = self.leader().ok_or("nobody leads")?;
        let failures = self.checks.failures;
        self.unleased_ms = 0;
        self.stop_coordinator(leader, power);
        self.run_until(self.now + FAILOVER_MS)?;
        if self.checks.failures != failures {
            return Err("a leader died, and with it a node was failed".into());
        }
        self.after(0, What::StartCoordinator(leader));
        Ok(())
    }

    pub(crate) fn trouble(&mut self) -> Result<(), String> {
        if !self.is_rough {
            return Ok(());
        }
        let (least, most) = TROUBLE_MS;
        let next = least + self.rng.below(most - least);
        self.after(next, What::Trouble);
        if self.now < self.quiet_until {
            return Ok(());
        }
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        let coordinator = self.any_coordinator();
        let leader = self.leader().unwrap_or(coordinator);
        match self.rng.below(18) {
            0 | 1 => self.crash_coordinator(coordinator),
            2 => self.crash_coordinator(leader),
            3 => self.fail_disk(coordinator),
            4 => self.pause_coordinator(coordinator),
            5 => self.pause_coordinator(leader),
            6 | 7 => self.crash_node(node),
            8 => self.pause_node(node),
            9 => self.isolate_node(node),
            10 | 11 => self.cut_some(),
            12 => self.usurp(leader, node),
            // Without any reason.
            13 => self.lose_links(leader),
            14 => self.step_aside(leader),
            15 | 16 => self.cut_nodes(node),
            _ => self.replace(coordinator),
        }
        Ok(())
    }

    pub(crate) fn any_coordinator(&mut self) -> u64 {
        let place = self.rng.below(self.coordinators.len() as u64) as usize;
        let ids: Vec<u64> = self.coordinators.keys().copied().collect();
        ids[place]
    }

    fn crash_coordinator(&mut self, id: u64) {
        let power = self.rng.one_in(2);
        self.stop_coordinator(id, power);
        let later = 100 + self.rng.below(3_000);
        self.after(later, What::StartCoordinator(id));
    }

    /// A write or sync of its disk fails soon, which ends the process.
    fn fail_disk(&mut self, id: u64) {
        let nth = self.rng.below(20);
        let is_sync = self.rng.one_in(2);
        if let Some(process) = self.coordinators.get(&id)
            && process.running.is_some()
        {
            if is_sync {
                process.disk.fail_sync(nth);
            } else {
                process.disk.fail_write(nth);
            }
        }
    }

    fn step_aside(&mut self, id: u64) {
        self.after(0, What::ToCoordinator(End::Operator, id, Event::StepAside));
    }

    fn pause_coordinator(&mut self, id: u64) {
        let pause = 200 + self.rng.below(5_000);
        self.pause_coordinator_for(id, pause);
    }

    pub(crate) fn pause_coordinator_for(&mut self, id: u64, pause: u64) {
        let until = self.now + pause;
        if let Some(process) = self.coordinators.get_mut(&id) {
            process.paused_until = until;
        }
        self.after(pause, What::ResumeCoordinator(id));
    }

    fn crash_node(&mut self, node: usize) {
        self.stop_node(node);
        if self.rng.one_in(4) {
            self.empty_node(node);
        } else if self.rng.one_in(3) {
            self.nodes[node].disk.shards = 1 + self.rng.below(4) as u16;
        }
        let later = 100 + self.rng.below(4_000);
        self.after(later, What::StartNode(node));
    }

    fn pause_node(&mut self, node: usize) {
        let pause = 200 + self.rng.below(6_000);
        self.pause_node_for(node, pause);
    }

    pub(crate) fn pause_node_for(&mut self, node: usize, pause: u64) {
        let until = self.now + pause;
        self.nodes[node].paused_until = until;
        self.after(pause, What::ResumeNode(node));
    }

    fn isolate_node(&mut self, node: usize) {
        let ids: Vec<u64> = self.coordinators.keys().copied().collect();
        let (there, back) = (self.rng.one_in(2), self.rng.one_in(2));
        let trouble = self.number();
        for id in ids {
            if there || !back {
                self.network
                    .cut(trouble, End::Node(node), End::Coordinator(id));
            }
            if back || !there {
                self.network
                    .cut(trouble, End::Coordinator(id), End::Node(node));
            }
        }
        self.mend_later(trouble, 6_000);
    }

    /// Nothing more arrives from one node at another, or in neither direction.
    fn cut_nodes(&mut self, node: usize) {
        let other = self.rng.below(self.nodes.len() as u64) as usize;
        let trouble = self.number();
        self.network.cut(trouble, End::Node(node), End::Node(other));
        if self.rng.one_in(2) {
            self.network.cut(trouble, End::Node(other), End::Node(node));
        }
        self.mend_later(trouble, 3_000);
    }

    fn mend_later(&mut self, trouble: u64, most: u64) {
        let later = 500 + self.rng.below(most);
        self.after(later, What::Mend(trouble));
    }

    fn cut_some(&mut self) {
        let trouble = self.number();
        for _ in 0..1 + self.rng.below(5) {
            let from = End::Coordinator(self.any_coordinator());
            let to = if self.rng.one_in(3) {
                End::Node(self.rng.below(self.nodes.len() as u64) as usize)
            } else {
                End::Coordinator(self.any_coordinator())
            };
            self.network.cut(trouble, from, to);
            if self.rng.one_in(2) {
                self.network.cut(trouble, to, from);
            }
        }
        self.mend_later(trouble, 3_000);
    }

    /// The leader stands still while another takes over, and one node, which is given up meanwhile,
    /// can only reach the old one. Everything else is well.
    fn usurp(&mut self, leader: u64, node: usize) {
        self.network.mend_all();
        let trouble = self.number();
        let ids: Vec<u64> = self.coordinators.keys().copied().collect();
        for id in ids.into_iter().filter(|id| *id != leader) {
            let (other, old, node) = (
                End::Coordinator(id),
                End::Coordinator(leader),
                End::Node(node),
            );
            for (from, to) in [(node, other), (other, node), (other, old), (old, other)] {
                self.network.cut(trouble, from, to);
            }
            self.after(1, What::StartCoordinator(id));
            if let Some(process) = self.coordinators.get_mut(&id) {
                process.paused_until = 0;
            }
            self.after(1, What::ResumeCoordinator(id));
        }
        self.doomed = Some(self.nodes[node].disk.id);
        let pause = 3_800 + self.rng.below(1_500);
        self.pause_coordinator_for(leader, pause);
        self.quiet_until = self.now + pause + 500;
        self.after(pause + 1_500, What::Mend(trouble));
    }

    /// A coordinator's machine is lost for ever, and another takes its place.
    fn replace(&mut self, id: u64) {
        // One that was added and does not vote yet counts as lost, too: a second one would be a lost majority.
        let is_whole = self.coordinators.len() as u64 == self.shape.coordinators;
        let votes = |(id, process): (&u64, &CoordinatorProcess)| {
            let state = process.running.as_ref().map(|running| running.state());
            state.is_some_and(|state| {
                let id = RaftId(*id);
                state.coordinators().contains_key(&id) && !state.learners().contains(&id)
            })
        };
        let is_whole = is_whole && self.coordinators.iter().all(votes);
        // Nodes that are cut off meanwhile have to find one of those they know.
        let is_last = self.replacements + 1 == self.shape.coordinators;
        if self.replacement.is_some() || !is_whole || is_last {
            return;
        }
        self.replacements += 1;
        self.stop_coordinator(id, true);
        self.coordinators.remove(&id);
        self.replacement = Some(Query::RemoveCoordinator { id: RaftId(id) });
    }
}
