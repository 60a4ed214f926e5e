//! Load generation and side-by-side comparison of servers that speak the Redis protocol.
//!
//! Entry points: [`run::execute`] drives one server or cluster and reports latency from the intended send time;
//! [`sweep::SweepArgs`] does it over and over with one quantity varied; [`compare::execute`] sets servers side by side,
//! with goals, intervals and everything needed to repeat the run; [`cluster::execute`] starts coordinators and nodes and
//! prints how fast a cluster changes and what it costs; [`migrate::execute`] moves half of a node's data to another one,
//! as Valkey does beside it; [`disk::DiskArgs`] and [`micro::MicroArgs`] measure the machine, and parts of a node beside
//! it. All of them share one runner, and what each finds is a [`record::Record`].

#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock; the ban keeps the product's own decisions deterministic"
)]

pub mod cluster;
pub mod compare;
pub mod load;
pub mod micro;
pub mod migrate;

pub mod run;
mod runner;
pub mod sweep;

mod prefill;
mod process;
mod redis_benchmark;
mod resp;
mod server;

mod affinity;
pub mod disk;
mod environment;
pub mod error;
mod fresh_memory;
pub mod interrupt;
pub mod locate;
mod loopback;
pub mod measure;
mod named;
mod operator;
pub mod page;
pub mod plot;
pub mod procfs;
pub mod record;
pub mod results;
pub mod stats;
mod target;

pub use error::{BenchError, Result};
