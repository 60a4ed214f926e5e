//! Load: what shards and partitions do, as nodes measure it, and as the leader knows it.
//!
//! ```text
//! shards count -> Board (of the node): windows -> LoadReport (in every heartbeat) -> Loads (of the leader)
//! ```
//!
//! One rule for all windows: an amount counts less the longer it is ago, by a factor of e per window
//! ([`Windows`]). That takes the same few numbers for each window, whatever its length, and nothing has to be done
//! for what is idle.

mod board;
mod codes;
pub mod hot;
mod loads;
pub mod report;
mod told;
mod windows;

pub use board::{Board, Counted};
pub use hot::{HotKey, HotKeys, KeyName};
pub use loads::{ClusterLoad, Loads, PartitionLoad};
pub use told::{LOAD_BYTES_MAX, LoadReport, Told};
pub use windows::{Amount, Rates, WINDOWS_S, Windows};

#[cfg(test)]
mod tests;
