//! What a node and its shards tell each other about migrations.
//!
//! The node follows the table, writes the layout, opens links and proposes; a shard holds commands and
//! moves data. Both channels keep their order. No order waits for an answer, and every one may come for
//! a migration that a shard does not know any more, or know already: it is then without effect.
//!
//! ```text
//! node                          source shard                    target shard
//!  (Copying in the table)
//!  layout names staging copy ->                                  Receive: created, ACCEPTED
//!  Send ---------------------->  walks, captures, DATA ------->  imports, WINDOW
//!                               holds, FINAL ---------------->   prepares durably, PREPARED
//!  proposes Commit <----------  Confirmed
//!  (Committed in the table)
//!  Drop ---------------------->  drops it
//!  Committed, at its node ----------------------------------->  activates
//!  new routes ---------------->  held commands lead elsewhere
//!  layout <-------------------  Dropped, durably                 Activated, durably
//!  Forget, Settle ------------>  removes its images              the log may forget
//!           <-----------------  Forgotten
//! ```

use ephesus_coordinator::link::PeerStream;
use ephesus_wire::stream::Contents;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId, ShardId};

use crate::migration::Batch;

/// Where a stream goes.
#[derive(Debug)]
pub enum Way {
    /// A link to a node: the handshake is done and OPEN said, frame 0 of that direction; non-blocking, and nothing
    /// else was read from it.
    Node(PeerStream),
    /// A shard of this node: messages go through its inbox, nothing is encoded but records.
    Shard(ShardId),
}

/// What the node has a shard do.
#[derive(Debug)]
pub enum Order {
    /// As the source: begin to move copies that are served here.
    Send {
        /// What moves; epochs are the new copies'.
        batch: Batch,
        /// The node that they go to.
        to: NodeId,
        /// Where the stream goes.
        way: Way,
    },
    /// As the target: begin staging copies, which the layout names durably, and fill them.
    Receive {
        /// What comes.
        batch: Batch,
        /// Where the stream comes from.
        way: Way,
    },
    /// The table says that the partition has moved on since this copy was made: it is not served any more, and
    /// given up. What was sent of it is over.
    Drop {
        /// Its partition.
        partition: PartitionId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The table says that the move is done: the target serves its copy.
    Committed {
        /// The migration.
        migration: MigrationId,
        /// What it moved.
        partition: PartitionId,
        /// Of the new copy.
        epoch: Epoch,
    },
    /// The table says that the move is off. The source serves as before, the target wipes its copy. A batch that is not
    /// confirmed ends with it.
    Aborted {
        /// The migration.
        migration: MigrationId,
        /// What it should have moved.
        partition: PartitionId,
        /// Of the copy that will not be.
        epoch: Epoch,
    },
    /// The layout says durably that this copy is served: the log may forget how it came to be.
    Settle {
        /// Its partition.
        partition: PartitionId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The layout does not name this copy any more, which was given up or wiped: remove its images, then
    /// the copy.
    Forget {
        /// Its partition.
        partition: PartitionId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// Bytes per second that all streams of this shard together send at most; 0: no limit.
    Limit(u64),
}

impl Order {
    /// The failpoint before it is given.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Order::Send { .. } => "order-send",
            Order::Receive { .. } => "order-receive",
            Order::Drop { .. } => "order-drop",
            Order::Committed { .. } => "order-committed",
            Order::Aborted { .. } => "order-aborted",
            Order::Settle { .. } => "order-settle",
            Order::Forget { .. } => "order-forget",
            Order::Limit(_) => "order-limit",
        }
    }
}

/// What a shard has to tell its node.
#[derive(Debug)]
pub enum Report {
    /// Of a source: how far it is; a few times a second, and when it confirms.
    Progress {
        /// The migration.
        migration: MigrationId,
        /// Keys behind the walk.
        keys: u64,
        /// Bytes of records sent.
        bytes: u64,
        /// How long commands have been held, us; 0: not yet.
        hold_us: u64,
    },
    /// Of a source: the target has prepared all of a batch. From now on only the table decides.
    Confirmed {
        /// The batch.
        batch: MigrationId,
        /// What the target holds of each.
        contents: Vec<(MigrationId, Contents)>,
    },
    /// Of a source: it serves all of a batch as before. Never after [`Report::Confirmed`].
    RolledBack {
        /// The batch.
        batch: MigrationId,
        /// For people.
        reason: String,
    },
    /// Of a source: it has confirmed, and holds commands for longer than they should wait: propose to
    /// abort. It goes on waiting for the decision.
    Overdue {
        /// The batch.
        batch: MigrationId,
    },
    /// Of a target: its stream has ended before the copy was prepared, and the copy is wiped, durably.
    Wiped {
        /// The migration.
        migration: MigrationId,
        /// What was to be moved.
        partition: PartitionId,
        /// Of the staging copy.
        epoch: Epoch,
        /// For people; empty when the source has said so.
        reason: String,
    },
    /// Of a target: the copy is served, durably.
    Activated {
        /// Its partition.
        partition: PartitionId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// Of a source: its copy is given up, durably; the layout need not name it.
    Dropped {
        /// Its partition.
        partition: PartitionId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// Nothing is left of this copy: another one of the partition may come to this shard.
    Forgotten {
        /// Its partition.
        partition: PartitionId,
        /// Its epoch.
        epoch: Epoch,
    },
}
