//! A node: one process with one data directory, from its start to its stop.

mod cgroup;
pub mod check;
pub mod copying;
pub mod data_dir;
mod embedded;
mod environment;
mod error;
pub mod exchange;
mod executor;
pub mod freed_memory;
pub mod hotkeys;
mod joining;
mod layout_writer;
pub mod live;
pub mod load;
mod options;
pub(crate) mod peers;
mod ports;
pub mod prefixes;
pub mod process;
mod rates;
pub mod recovery;
pub mod reserve;
pub mod routes;
mod running;
pub(crate) mod segment_threads;
mod shard_thread;
pub mod shared;
#[cfg(feature = "planted")]
#[expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test's equipment"
)]
pub mod simulated;
pub mod slow;
mod start;
pub mod time;

pub use environment::Environment;
pub use error::StartError;
pub use options::ServeOptions;
pub use routes::Routes;
pub use running::Node;
pub use shared::{NodeShared, Settings};

#[expect(
    clippy::disallowed_methods,
    reason = "start-up and shutdown report how long they took"
)]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
