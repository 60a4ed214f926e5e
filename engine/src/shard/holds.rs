//! Partitions whose commands wait for a move to be decided.

use ephesus_wire::PartitionId;

use super::core::Core;

/// The partitions that are held.
#[derive(Debug, Default)]
pub(super) struct Holds {
    held: Vec<PartitionId>,
}

impl Core {
    /// From now on commands with a key in the partition are held instead of executed.
    pub(super) fn hold(&mut self, partition: PartitionId) {
        if !self.is_held(partition) {
            self.holds.held.push(partition);
        }
    }

    /// Executes what was held, here.
    pub(super) fn resume(&mut self, partition: PartitionId) {
        self.holds.held.retain(|held| *held != partition);
    }

    /// What was held follows the next routes.
    pub(super) fn reroute(&mut self, partition: PartitionId) {
        self.resume(partition);
    }

    #[must_use]
    pub(super) fn is_held(&self, partition: PartitionId) -> bool {
        self.holds.held.contains(&partition)
    }
}
