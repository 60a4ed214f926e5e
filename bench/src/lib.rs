//! Load generation and side-by-side comparison of servers that speak the Redis protocol.
//!
//! Each subcommand has its arguments, which `execute` it: [`run`] drives one server or cluster and reports latency from
//! the intended send time; [`sweep`] does it over and over with one quantity varied; [`compare`] sets servers side by side,
//! with goals, intervals and everything needed to repeat the run; [`cluster`] starts coordinators and nodes and
//! prints how fast a cluster changes and what it costs; [`migrate`] moves half of a node's data to another one,
//! as Valkey does beside it; [`placement`] compares policies on paper; [`disk`] and [`micro`] measure the machine, and parts of a node
//! beside it. All of them share one runner, and what each finds is a [`record::Record`].

#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock; the ban keeps the product's own decisions deterministic"
)]

pub mod cluster;
pub mod compare;
pub mod micro;
pub mod migrate;
pub mod placement;
pub mod run;
pub mod sweep;

pub mod load;
mod prefill;
mod runner;

mod operator;
mod process;
mod redis_benchmark;
mod resp;
mod server;
mod target;

mod affinity;
pub mod disk;
mod environment;
pub mod error;
mod fresh_memory;
pub mod heap;
pub mod interrupt;
pub mod locate;
mod loopback;
pub mod procfs;

pub mod measure;
mod named;
pub mod page;
pub mod record;
pub mod results;
pub mod stats;

pub use error::{BenchError, Result};
