//! Newtypes for every identifier that crosses a module boundary.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// One of the 16384 hash slots of the Redis Cluster protocol.
    Slot(u16)
);
id!(
    /// The unit of ownership, persistence and movement: a contiguous range of slots.
    PartitionId(u16)
);
id!(
    /// An executor thread of a node, counted from 0.
    ShardId(u16)
);
id!(
    /// Version of one partition's ownership; every change of node or shard is a new epoch.
    Epoch(u64)
);
id!(
    /// Dense record counter of one shard's log; the first record is 1, 0 means "before all".
    Lsn(u64)
);

impl Lsn {
    /// Before the first record of any log.
    pub const ZERO: Lsn = Lsn(0);

    /// The LSN of the record that follows this one.
    #[must_use]
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }
}

impl Epoch {
    /// The epoch that follows this one; the last one, which only a wrong table has, is its own.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

id!(
    /// One attempt to move one partition; a retry has a new one, 0 is none.
    MigrationId(u64)
);

/// The persistent UUID of a node, written and read as 32 hex digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

/// The text is not a node id: give 32 hex digits, with or without the four dashes of a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a node id: expected 32 hex digits")]
pub struct NodeIdError;

impl FromStr for NodeId {
    type Err = NodeIdError;

    #[expect(clippy::indexing_slicing, reason = "the dashes are within 36 bytes")]
    fn from_str(text: &str) -> Result<Self, NodeIdError> {
        let text = text.as_bytes();
        let dashed = text.len() == 36 && [8, 13, 18, 23].iter().all(|&at| text[at] == b'-');
        if text.len() != 32 && !dashed {
            return Err(NodeIdError);
        }
        let mut digits = text
            .iter()
            .enumerate()
            .filter(|(at, _)| !(dashed && matches!(at, 8 | 13 | 18 | 23)))
            .map(|(_, &digit)| (digit as char).to_digit(16).ok_or(NodeIdError));
        let mut id = [0; 16];
        for byte in &mut id {
            let high = digits.next().ok_or(NodeIdError)??;
            let low = digits.next().ok_or(NodeIdError)??;
            *byte = (high << 4 | low) as u8;
        }
        Ok(NodeId(id))
    }
}

#[cfg(test)]
mod tests;
