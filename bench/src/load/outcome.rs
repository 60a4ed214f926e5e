use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::record::{Latencies, Run};

use super::phases::Phase;
use super::tally::Tally;

/// What clients have seen.
#[derive(Debug)]
pub struct Outcome {
    /// All phases behind the warm-up as a record has them, but for names and what was asked for.
    pub run: Run,
    /// Operations sent, warm-up included.
    pub sent: u64,
    /// Operations that were sent elsewhere.
    pub redirects: u64,
    /// CPU time of the executors.
    pub client_cpu: Duration,
    /// Phase by phase.
    pub(super) sum: Tally,
    /// How long each phase was.
    pub(super) phase_s: [f64; Phase::COUNT],
    /// Why it was cut short.
    pub(super) failure: Option<BenchError>,
}

impl Outcome {
    /// The outcome of a run in which nothing may go wrong.
    ///
    /// # Errors
    /// When something did: the run was cut short, an operation has failed or was not answered.
    pub fn flawless(mut self) -> Result<Self> {
        self.judge()?;
        Ok(self)
    }

    /// The outcome of a run that has come to its end.
    ///
    /// # Errors
    /// When a server could no longer be reached, or a signal has asked to stop.
    pub fn complete(mut self) -> Result<Self> {
        self.failure.take().map_or(Ok(self), Err)
    }

    /// The outcome of a run in which the server may fall behind what was offered, and nothing else may go wrong.
    ///
    /// # Errors
    /// As [`Outcome::flawless`].
    pub fn answered(self) -> Result<Self> {
        const BEHIND: [&str; 3] = ["OVERLOADED", "UNANSWERED", "UNSENT"];
        let outcome = self.complete()?;
        match outcome
            .run
            .errors
            .keys()
            .all(|why| BEHIND.contains(&&**why))
        {
            true => Ok(outcome),
            false => outcome.flawless(),
        }
    }

    /// Whether nothing went wrong; takes out why it was cut short, and leaves all that was seen.
    ///
    /// # Errors
    /// As [`Outcome::flawless`].
    pub fn judge(&mut self) -> Result<()> {
        let complaint = |text| BenchError::failed("load", text);
        let failure = self.failure.take();
        let failure = failure.or_else(|| self.complaint().map(complaint));
        failure.map_or(Ok(()), Err)
    }

    /// What has gone wrong, in one line.
    pub fn complaint(&self) -> Option<String> {
        let count: u64 = self.run.errors.values().sum();
        let example = self.sum.example.as_ref()?;
        Some(format!(
            "{count} operations have failed, such as: {example}"
        ))
    }

    /// CPU time, of the servers or of the client, for each operation that was sent, us.
    pub fn us_per_op(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.sent.max(1) as f64
    }

    /// Latencies of all operations in a phase.
    pub(crate) fn all(&self, phase: Phase) -> Latencies {
        self.sum.phase(phase).map(|(_, one)| one).sum()
    }

    /// Operations done per second of a phase.
    pub(crate) fn per_s(&self, phase: Phase) -> f64 {
        self.all(phase).count() as f64 / self.seconds_of(phase).max(1e-9)
    }

    /// How long a phase was.
    pub(crate) fn seconds_of(&self, phase: Phase) -> f64 {
        self.phase_s[phase as usize]
    }

    /// For a record; `rate` is what was asked for, 0 for a closed loop.
    pub fn run(&self, server: &str, label: &str, rate: u64) -> Run {
        Run {
            server: server.to_owned(),
            label: label.to_owned(),
            offered_per_s: (rate > 0).then_some(rate as f64),
            ..self.run.clone()
        }
    }
}
