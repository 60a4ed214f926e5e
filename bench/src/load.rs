//! The one load generator: an executor per client CPU, latency counted from when an operation was due.
//!
//! At a fixed rate a batch of `pipeline` operations is due every `pipeline / rate` seconds whether or
//! not earlier ones were answered, so a stalled server is charged for everything that should have
//! been sent meanwhile (no coordinated omission). Rate 0 closes the loop: every connection has one
//! batch in flight, which finds the peak. It is a client of a cluster, too: it learns from
//! `-MOVED` where each slot is, and latency counts until an operation is done, however often it was sent elsewhere.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::target::Target;

pub use keys::{Distribution, Indexes};
pub(crate) use ledger::{Ledger, STAMP_BYTES};
pub use mix::{Mix, Op};
pub use outcome::Outcome;
pub(crate) use phases::Phase;
pub(crate) use running::Running;
pub use values::{Sizes, Values};

mod client;
mod keys;
mod ledger;
mod link;
mod mix;
mod outcome;
mod phases;
mod replies;
mod routes;
mod running;
mod schedule;
mod source;
mod tally;
#[cfg(test)]
mod tests;
mod values;
mod zipf;

/// Most commands in one batch.
pub const PIPELINE_MAX: u32 = 1024;
/// How long after the end unanswered commands are waited for.
const DRAIN: Duration = Duration::from_secs(10);
const CONNECTIONS: usize = 50;
const UNANSWERED_MAX: usize = 1_000_000;

/// What to send, to whom and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server, or one of a cluster.
    pub target: Target,
    /// It is a cluster: who has which slot is asked at first and after every redirect.
    pub is_cluster: bool,
    /// Operations per second; 0 closes the loop.
    pub rate: u64,
    /// To each server, over all executors.
    pub connections: usize,
    /// Operations that are due together.
    pub pipeline: u32,
    /// Executors, if they have no CPUs.
    pub threads: usize,
    /// CPUs for an executor each, for nothing else: executors spin where sleep would be late.
    pub cpus: Vec<usize>,
    /// Operations to send; none: until the time is over.
    pub count: Option<u64>,
    /// Unanswered operations of an executor at which the servers count as overloaded, and nothing more is sent.
    pub unanswered_max: usize,
    /// What they do.
    pub workload: Workload,
}

/// What operations do.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Shares of the kinds.
    pub mix: Mix,
    /// The keys.
    pub keys: Indexes,
    /// Which of them are taken how often.
    pub distribution: Distribution,
    /// How long values are.
    pub sizes: Sizes,
    /// Time to live of what has one, seconds.
    pub ttl_s: u64,
    /// Values carry their key and version, and reads are judged.
    pub(crate) ledger: Option<Arc<Ledger>>,
}

/// When a load is counted, and when it ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Is not counted.
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
            rate: 0,
            connections: CONNECTIONS,
            pipeline: 1,
            threads: 1,
            cpus: Vec::new(),
            count: None,
            unanswered_max: UNANSWERED_MAX,
            workload: Workload {
                mix: Mix::of(&[(Op::Read, 1)]),
                keys: Indexes::Below(1),
                distribution: Distribution::Uniform,
                sizes: Sizes::Fixed(1),
                ttl_s: 1,
                ledger: None,
            },
        }
    }

    /// An executor needs a connection at least.
    fn executors(&self) -> usize {
        let wanted = match self.cpus.len() {
            0 => self.threads,
            cpus => cpus,
        };
        wanted.clamp(1, self.connections)
    }

    fn check(&self) -> Result<()> {
        let bad = |flag, problem: &str| Err(BenchError::flag(flag, problem));
        if !(1..=PIPELINE_MAX).contains(&self.pipeline) {
            return bad("--pipeline", &format!("must be 1 to {PIPELINE_MAX}"));
        }
        if self.connections == 0 || self.workload.keys.count() == 0 {
            return bad("--connections, --keys", "must be at least 1");
        }
        Ok(())
    }
}

/// Drives a server to the end.
///
/// # Errors
/// When it cannot begin; what goes wrong then is in the outcome.
pub fn run(plan: &Plan, span: Span) -> Result<Outcome> {
    Ok(Running::start(plan.clone(), span)?.finish(|_| {}))
}
