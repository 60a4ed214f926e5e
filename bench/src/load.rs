//! The one load generator: an executor per client CPU, latency counted from when an operation was due.
//!
//! At a fixed rate a batch of `pipeline` operations is due every `pipeline / rate` seconds whether or
//! not earlier ones were answered, so a stalled server is charged for everything that should have
//! been sent meanwhile (no coordinated omission). Rate 0 closes the loop: every connection has one
//! batch in flight, which finds the peak. It is a client of a cluster, too: it learns from
//! `-MOVED` where each slot is, and latency counts until an operation is done, however often it was sent elsewhere.

use std::time::Duration;

use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::target::Target;

pub use keys::{Distribution, Indexes};
pub(crate) use ledger::{Ledger, STAMP_BYTES};
pub use outcome::Outcome;
pub(crate) use running::Running;
pub(crate) use schedule::Phase;
pub use workload::{Mix, Op, Sizes, Values, Workload};

mod client;
mod keys;
mod ledger;
mod link;
mod outcome;
mod routes;
mod running;
mod schedule;
mod source;
#[cfg(test)]
mod tests;
mod workload;

/// Most commands in one batch.
pub const PIPELINE_MAX: u32 = 1024;
/// How long after the end unanswered commands are waited for.
const DRAIN: Duration = Duration::from_secs(10);
const CONNECTIONS: usize = 50;
const UNANSWERED_MAX: usize = 1_000_000;

#[derive(Clone, Debug)]
pub struct Plan {
    /// The server, or one of a cluster.
    pub target: Target,
    /// It is a cluster: who has which slot is asked at first and after every redirect.
    pub is_cluster: bool,
    pub pace: Pace,
    /// Unanswered operations of an executor at which the servers count as overloaded, and nothing more is sent.
    pub unanswered_max: usize,
    pub workload: Workload,
}

/// How many operations are sent when.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Pace {
    /// Operations, of which --warmup's are not counted
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Operations per second, sent whether or not earlier ones are answered; 0: each connection sends when it is answered
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=100_000_000))]
    pub rate: u64,
    /// Connections (to each server of a cluster)
    #[arg(long, default_value_t = 50, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub connections: usize,
    /// Operations that are sent together, to whichever servers of a cluster own their keys
    #[arg(long, default_value_t = 1)]
    pub pipeline: u32,
    /// CPUs for a thread each, which share the connections, and for nothing else: at a --rate they spin, to be on time
    /// [default: beside servers that are started as many as these have, else one thread on any CPU]
    #[arg(long, value_delimiter = ',')]
    pub cpus: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub warmup: Duration,
    /// What is counted; none: until it is ended, or all is sent.
    pub duration: Option<Duration>,
}

impl Span {
    /// Phases are entered when somebody says so, and it ends then.
    pub(crate) const OPEN: Span = Span {
        warmup: Duration::from_nanos(u64::MAX),
        duration: None,
    };
}

impl Plan {
    /// Reads of one key in a closed loop on one thread.
    pub fn new(target: impl Into<Target>) -> Self {
        Plan {
            target: target.into(),
            is_cluster: false,
            pace: Pace {
                count: None,
                rate: 0,
                connections: CONNECTIONS,
                pipeline: 1,
                cpus: Vec::new(),
            },
            unanswered_max: UNANSWERED_MAX,
            workload: Workload {
                mix: Mix::of(&[(Op::Read, 1)]),
                keys: Indexes::Below(1),
                distribution: Distribution::Uniform,
                sizes: Sizes::fixed(1),
                ttl_s: 1,
                ledger: None,
            },
        }
    }

    /// An executor needs a connection at least.
    fn executors(&self) -> usize {
        self.pace.cpus.len().clamp(1, self.pace.connections)
    }

    fn check(&self) -> Result<()> {
        if !(1..=PIPELINE_MAX).contains(&self.pace.pipeline) {
            let problem = format!("must be 1 to {PIPELINE_MAX}");
            return Err(BenchError::failed("--pipeline", problem));
        }
        if self.pace.connections == 0 || self.workload.keys.count() == 0 {
            return Err(BenchError::failed(
                "--connections, --keys",
                "must be at least 1",
            ));
        }
        Ok(())
    }
}

pub fn run(plan: &Plan, span: Span) -> Result<Outcome> {
    Ok(Running::start(plan.clone(), span)?.finish(|_| {}))
}
