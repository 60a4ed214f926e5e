//! The one load generator: a thread, epoll, latency counted from when a command was due.
//!
//! At a fixed rate a batch of `pipeline` commands is due every `pipeline / rate` seconds whether or
//! not earlier ones were answered, so a stalled server is charged for everything that should have
//! been sent meanwhile (no coordinated omission). Rate 0 closes the loop: every connection has one
//! batch in flight, which finds the peak. A patient generator is a client of a cluster: it learns from
//! `-MOVED` where each slot is, and latency counts until a command is done, however often it was sent elsewhere.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::error::{BenchError, Result};

pub use arguments::LoadArgs;
pub(crate) use generator::{Command, Generator, Kind, Traffic};
pub use generator::{Found, PhaseReport};
pub(crate) use phases::{Phase, Timetable};

use ephesus_wire::rng::Rng;
use generator::{Apart, Turn};

mod arguments;
mod generator;
mod phases;
mod schedule;
mod socket;
#[cfg(test)]
mod tests;

/// Most commands in one batch.
pub const PIPELINE_MAX: u32 = 64;
/// Longest latency told apart.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// How long after the end unanswered commands are waited for.
const DRAIN: Duration = Duration::from_secs(10);

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// GET only.
    Get,
    /// SET only.
    Set,
    /// GET and SET, mixed at random.
    Mixed,
    /// The same, each on connections of its own: no GET waits for its turn behind a SET.
    Apart,
}

/// One run of the generator.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct LoadConfig {
    /// Where the server listens
    #[arg(long, default_value = "127.0.0.1:7379")]
    pub address: SocketAddr,
    /// Commands per second; 0 sends as fast as replies arrive
    #[arg(long, default_value_t = 10_000)]
    pub rate: u64,
    /// Connections
    #[arg(long, default_value_t = 50)]
    pub connections: usize,
    /// Commands per batch
    #[arg(long, default_value_t = 1)]
    pub pipeline: u32,
    /// What to send
    #[arg(long = "op", value_enum, default_value = "get")]
    pub operation: Operation,
    /// Share of GETs with --op mixed, in percent
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub get_percent: u32,
    /// Keys drawn from
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Measured seconds
    #[arg(long = "seconds", default_value = "10", value_parser = arguments::seconds)]
    pub duration: Duration,
    /// Seconds before them that are not counted
    #[arg(long, default_value = "1", value_parser = arguments::seconds)]
    pub warmup: Duration,
}

/// Latency of one kind of command.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Commands counted.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// Commands per second asked for; 0 for a closed loop.
    pub offered_per_s: f64,
    /// Commands answered per second of measured time.
    pub achieved_per_s: f64,
    /// What went on, warm-up included.
    #[serde(flatten)]
    pub found: Found,
    /// The measured time.
    #[serde(flatten)]
    pub measured: PhaseReport,
}

/// Drives a server and reports; the calling thread does all the work.
///
/// # Errors
/// When a connection breaks, a reply is an error, or a signal interrupts.
pub fn run(config: &LoadConfig) -> Result<LoadReport> {
    let generator = generator(config)?;
    let found = generator.run(&Timetable::of(config.warmup, config.duration))?;
    let measured = found.phase(Phase::Before);
    Ok(LoadReport {
        offered_per_s: config.rate as f64,
        achieved_per_s: measured.all.count as f64 / config.duration.as_secs_f64(),
        found,
        measured,
    })
}

fn generator(
    config: &LoadConfig,
) -> Result<Generator<impl FnMut(&mut Rng, Turn) -> Option<Command>>> {
    let bad = |flag, problem: &str| Err(BenchError::flag(flag, problem));
    if !(1..=PIPELINE_MAX).contains(&config.pipeline) {
        return bad("--pipeline", &format!("must be 1 to {PIPELINE_MAX}"));
    }
    if config.connections == 0 || config.keys == 0 {
        return bad("--connections, --keys", "must be at least 1");
    }
    let is_apart = config.operation == Operation::Apart;
    if is_apart && config.connections < 2 {
        return bad("--connections", "must be at least 2 for both kinds");
    }
    // Connections for SETs alone: their share of all, at least one of each kind.
    let setters = config.connections * (100 - config.get_percent as usize) / 100;
    let apart = is_apart.then(|| Apart {
        connections: setters.clamp(1, config.connections - 1),
        others_percent: config.get_percent,
    });
    let traffic = Traffic {
        address: config.address,
        rate: config.rate,
        connections: config.connections,
        pipeline: config.pipeline,
        value_bytes: config.value_bytes,
        apart,
        spins: true,
        is_patient: false,
    };
    let (keys, operation, get_percent) =
        (config.keys, config.operation, u64::from(config.get_percent));
    Generator::open(traffic, move |random, turn| {
        let key = random.below(keys);
        let is_get = match operation {
            Operation::Get => true,
            Operation::Set => false,
            Operation::Mixed => random.below(100) < get_percent,
            Operation::Apart => apart.is_some_and(|apart| turn.lane >= apart.connections),
        };
        Some(Command {
            kind: if is_get { Kind::Get } else { Kind::Set },
            key,
            generation: turn.due_ns,
        })
    })
}

/// For latencies in nanoseconds.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_max(LATENCY_NS_MAX, 3)
        .map_err(|error| BenchError::parse("histogram bounds", &error.to_string()))
}

/// What a histogram of nanoseconds says.
pub(crate) fn latency(histogram: &Histogram<u64>) -> Latency {
    let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    Latency {
        count: histogram.len(),
        mean_us: histogram.mean() / 1e3,
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: histogram.max() as f64 / 1e3,
    }
}
