//! The coordinator: decides which shard of which node owns which partition.

pub mod placement;
