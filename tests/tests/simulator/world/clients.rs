//! Clients of a world's nodes: they write, delete and read, and remember what was acknowledged.

use ephesus_coordinator::state::MemberStatus;
use ephesus_wire::PartitionId;

use super::World;
use crate::migration::{KEYS, Mistake, Write};

impl World {
    pub(super) fn any_write(&mut self) -> Option<Write> {
        let key = self.rng.below(KEYS) as u8;
        let value = (!self.rng.one_in(4)).then(|| self.checks.next_value());
        Some(Write { key, value })
    }

    /// Whether a node executes commands of a partition at this moment.
    pub(super) fn serves(&self, node: usize, partition: PartitionId) -> bool {
        let process = &self.nodes[node];
        let Some(agent) = &process.running else {
            return false;
        };
        let Some(view) = agent.view().filter(|_| {
            agent.holds_lease(process.clock.at(self.now))
                && agent.status() == Some(MemberStatus::Live)
        }) else {
            return false;
        };
        let entry = view.table.entry(partition);
        let is_own = entry.is_some_and(|entry| {
            let copy = process.disk.copies.get(&partition);
            let is_there = copy.is_some_and(|copy| copy.epoch == entry.epoch);
            is_there && entry.primary().is_some_and(|p| p.node == process.disk.id)
        });
        is_own && !process.held(view).contains(&partition)
    }

    /// Whether a command of the partition waits at this node.
    fn holds(&self, node: usize, partition: PartitionId) -> bool {
        let process = &self.nodes[node];
        let view = process.running.as_ref().and_then(|agent| agent.view());
        view.is_some_and(|view| process.held(view).contains(&partition))
    }

    /// Executes the commands that have arrived before, and takes new ones.
    pub(super) fn serve_clients(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].paused_until > self.now {
            return Ok(());
        }
        let checks = !self.nodes_forget_to_check();
        for (partition, write) in std::mem::take(&mut self.nodes[node].commands) {
            let is_there = self.nodes[node].disk.copies.contains_key(&partition);
            if self.serves(node, partition) {
                self.read(node, partition)?;
                self.execute(node, partition, write)?;
            } else if !checks && is_there {
                self.execute(node, partition, write)?;
            } else if self.holds(node, partition) {
                self.nodes[node].commands.push((partition, write));
            }
        }
        for partition in (0..self.shape.options.partitions).map(PartitionId) {
            if self.serves(node, partition) && self.rng.one_in(4) {
                self.read(node, partition)?;
                if let Some(write) = self.any_write() {
                    self.nodes[node].commands.push((partition, write));
                }
            }
        }
        Ok(())
    }

    fn nodes_forget_to_check(&self) -> bool {
        self.mistake == Some(Mistake::NoCheckAtExecution)
    }

    /// Executes and acknowledges a write.
    pub(super) fn execute(
        &mut self,
        node: usize,
        partition: PartitionId,
        write: Write,
    ) -> Result<(), String> {
        let Some(copy) = self.nodes[node].disk.copies.get_mut(&partition) else {
            return Ok(());
        };
        copy.store.write(write);
        let epoch = copy.epoch;
        self.send_walked(node, partition);
        self.checks.written(node, partition, epoch, write)
    }

    /// Every partition is served by its owner, and read.
    pub(crate) fn read_everything(&self) -> Result<(), String> {
        for partition in (0..self.shape.options.partitions).map(PartitionId) {
            let mut nodes = 0..self.nodes.len();
            let owner = nodes.find(|node| self.serves(*node, partition));
            let owner = owner.ok_or(format!("nobody serves partition {partition}"))?;
            self.read(owner, partition)?;
            let copy = &self.nodes[owner].disk.copies[&partition];
            if !copy.store.is_whole() {
                return Err(format!("node {owner} has not all of partition {partition}"));
            }
        }
        Ok(())
    }

    /// A client reads all keys of a partition.
    fn read(&self, node: usize, partition: PartitionId) -> Result<(), String> {
        let copy = self.nodes[node].disk.copies.get(&partition);
        copy.map_or(Ok(()), |copy| self.checks.read(node, partition, copy))
    }
}
