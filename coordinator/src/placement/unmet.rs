//! What plans could not do.

/// What a plan could not do, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unmet {
    /// Start a node, or give one a weight.
    #[error("no shard has any weight: nothing can be placed")]
    NoPlaces,
    /// Add a node.
    #[error("there is one node: nothing can be spread over others")]
    OneNode,
    /// They are drained.
    #[error("{places} shards have a weight of 0 and get nothing")]
    Weightless {
        /// Shards.
        places: usize,
    },
    /// Plan again when these moves are over and these nodes are back.
    #[error(
        "{partitions} partitions stay where they are: they are moving, or their node takes no part now"
    )]
    Kept {
        /// Partitions.
        partitions: usize,
    },
    /// They move when these nodes are back.
    #[error("{partitions} partitions wait for nodes that are away")]
    Away {
        /// Partitions.
        partitions: usize,
    },
    /// The number of partitions never changes: fewer shards would do.
    #[error("{places} shards own nothing: there are fewer partitions than shards")]
    Idle {
        /// Shards that own nothing.
        places: usize,
    },
    /// Add nodes in other racks.
    #[error(
        "rack {rack} owns {partitions} of {of} partitions: neighbours cannot all be in different racks"
    )]
    Rack {
        /// Its name.
        rack: String,
        /// Partitions that it owns.
        partitions: u64,
        /// Partitions that there are.
        of: u64,
    },
    /// Ask for fewer.
    #[error(
        "{tokens} tokens would be too many: each shard has one for every {divisor} that were asked for"
    )]
    Tokens {
        /// Tokens asked for.
        tokens: u64,
        /// Of how many there is one.
        divisor: u64,
    },
    /// Ask again a little later.
    #[error("the load of {partitions} partitions is not known yet: they stay")]
    LoadUnknown {
        /// Partitions.
        partitions: usize,
    },
    /// Look which of its keys are hot.
    #[error(
        "partition {partition} alone takes {percent}% of a CPU, more than a shard's share: no move cures that. `ephesus hot --keys` names its keys: have clients cache them, or split them"
    )]
    Hot {
        /// The partition.
        partition: u16,
        /// What it takes of a CPU.
        percent: u64,
    },
    /// No partition is of the right size.
    #[error(
        "{places} shards stay more than a fifth away from their share: no partition of theirs fits elsewhere"
    )]
    Uneven {
        /// Shards.
        places: usize,
    },
}
