use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;

use crate::error::{BenchError, Result};
use crate::record::{Latencies, Run};

use super::schedule::Phase;
use super::workload::Op;

#[derive(Debug, Default)]
pub(super) struct Tally {
    latencies: [[Option<Box<Latencies>>; Op::COUNT]; Phase::COUNT],
    /// How late batches left, behind the warm-up.
    pub(super) send_delay: Option<Box<Latencies>>,
    pub(super) sent: u64,
    pub(super) misses: u64,
    pub(super) redirects: u64,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) example: Option<String>,
    /// On the CPU, without what executors have spun.
    pub(super) cpu: Duration,
    /// When the last answer came.
    pub(super) answered_ns: u64,
}

impl Tally {
    pub(super) fn done(&mut self, phase: Phase, op: Op, ns: u64) {
        let of = &mut self.latencies[phase as usize][op as usize];
        of.get_or_insert_default().record_ns(ns);
    }

    pub(super) fn failed(&mut self, why: &str, count: u64, example: &str) {
        if count > 0 {
            *self.errors.entry(why.to_owned()).or_default() += count;
            self.example.get_or_insert_with(|| example.to_owned());
        }
    }

    pub(super) fn add(&mut self, other: Tally) {
        let mine = self.latencies.iter_mut().flatten();
        for (mine, other) in mine.zip(other.latencies.into_iter().flatten()) {
            merge(mine, other);
        }
        merge(&mut self.send_delay, other.send_delay);
        self.sent += other.sent;
        self.misses += other.misses;
        self.redirects += other.redirects;
        self.cpu += other.cpu;
        self.answered_ns = self.answered_ns.max(other.answered_ns);
        for (why, count) in other.errors {
            *self.errors.entry(why).or_default() += count;
        }
        self.example = self.example.take().or(other.example);
    }

    pub(super) fn phase(&self, phase: Phase) -> impl Iterator<Item = (Op, &Latencies)> {
        let of = Op::value_variants()
            .iter()
            .zip(&self.latencies[phase as usize]);
        of.filter_map(|(op, latencies)| Some((*op, &**latencies.as_ref()?)))
    }

    pub(super) fn measured(&self) -> impl Iterator<Item = (Op, &Latencies)> {
        let phases = [Phase::Before, Phase::During, Phase::After];
        phases.into_iter().flat_map(|phase| self.phase(phase))
    }
}

fn merge(mine: &mut Option<Box<Latencies>>, other: Option<Box<Latencies>>) {
    match (mine, other) {
        (Some(mine), Some(other)) => mine.add(&other),
        (mine @ None, other) => *mine = other,
        (Some(_), None) => {}
    }
}

#[derive(Debug)]
pub struct Outcome {
    /// All phases behind the warm-up as a record has them, but for names and what was asked for.
    pub run: Run,
    pub sent: u64,
    pub redirects: u64,
    pub client_cpu: Duration,
    pub(super) sum: Tally,
    pub(super) phase_s: [f64; Phase::COUNT],
    pub(super) failure: Option<BenchError>,
}

impl Outcome {
    /// The outcome of a run in which nothing may go wrong.
    pub fn flawless(mut self) -> Result<Self> {
        self.judge()?;
        Ok(self)
    }

    /// The outcome of a run that has come to its end.
    pub fn complete(mut self) -> Result<Self> {
        self.failure.take().map_or(Ok(self), Err)
    }

    /// The outcome of a run in which the server may fall behind what was offered, and nothing else may go wrong.
    pub fn answered(self) -> Result<Self> {
        const BEHIND: [&str; 3] = ["OVERLOADED", "UNANSWERED", "UNSENT"];
        let outcome = self.complete()?;
        let mut errors = outcome.run.errors.keys();
        match errors.all(|why| BEHIND.contains(&&**why)) {
            true => Ok(outcome),
            false => outcome.flawless(),
        }
    }

    /// Whether nothing went wrong; takes out why it was cut short, and leaves all that was seen.
    pub fn judge(&mut self) -> Result<()> {
        let complaint = |text| BenchError::failed("load", text);
        let failure = self.failure.take();
        let failure = failure.or_else(|| self.complaint().map(complaint));
        failure.map_or(Ok(()), Err)
    }

    pub fn complaint(&self) -> Option<String> {
        let count: u64 = self.run.errors.values().sum();
        let example = self.sum.example.as_ref()?;
        let failed = format!("{count} operations have failed");
        Some(format!("{failed}, such as: {example}"))
    }

    /// CPU time, of the servers or of the client, for each operation that was sent, us.
    pub fn us_per_op(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.sent.max(1) as f64
    }

    pub(crate) fn all(&self, phase: Phase) -> Latencies {
        self.sum.phase(phase).map(|(_, one)| one).sum()
    }

    pub(crate) fn per_s(&self, phase: Phase) -> f64 {
        self.all(phase).count() as f64 / self.seconds_of(phase).max(1e-9)
    }

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
