//! The harness of the whole-system tests: real `ephesus` processes, a raw RESP client, a real
//! `redis-server` to compare with, and the ledger that knows what a crash may not take back.
//!
//! Nothing here shares code with the engine, so that a bug cannot hide by being on both sides.
#![expect(
    clippy::disallowed_methods,
    reason = "the harness measures real processes: it needs the real clock and real threads"
)]

pub mod attack;
pub mod bystander;
pub mod certificates;
pub mod coordinator;
pub mod coverage;
pub mod disk;
pub mod failpoint;
pub mod garbage;
pub mod images;
pub mod ledger;
pub mod load;
pub mod mount;
pub mod namespaces;
pub mod needs;
pub mod network;
pub mod node;
pub mod oracle;
pub mod paths;
pub mod ports;
pub mod process;
pub mod resp;
pub mod roaming;
pub mod scale;
pub mod seed;
pub mod segments;
pub mod slots;
pub mod stock;
pub mod terminal;
pub mod uneven;
pub mod whole;
pub mod wiretap;
pub mod writer_pool;

pub use certificates::Certificates;
pub use coordinator::{Coordinator, Core};
pub use ephesus_wire::rng::Rng;
pub use failpoint::Failpoints;
pub use node::{Node, Options};
pub use resp::{Client, Reply};
pub use seed::{seed_of_run, seed_or};
pub use whole::TestCluster;
