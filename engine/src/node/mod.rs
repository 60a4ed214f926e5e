//! A node: one process with one data directory, from its start to its stop.

mod cgroup;
pub mod check;
mod embedded;
mod environment;
mod executor;
mod joining;
mod layout_writer;
mod moves;
mod peers;
mod ports;
pub mod process;
mod rates;
pub mod recovery;
pub mod reserve;
pub mod routes;
mod running;
pub(crate) mod segment_threads;
pub mod shared;
#[cfg(feature = "planted")]
#[expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test's equipment"
)]
pub mod simulated;
pub mod slot_moves;
pub mod stamp;
mod start;
pub mod time;

pub use environment::Environment;
pub use routes::Routes;
pub use shared::{NodeShared, Settings};
pub use start::{Node, ServeOptions, StartError};

#[expect(
    clippy::disallowed_methods,
    reason = "start-up and shutdown report how long they took"
)]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
