use std::collections::BTreeMap;

use clap::ValueEnum;

use crate::record::Latencies;

use super::mix::Op;
use super::phases::Phase;

/// What was seen in a while.
#[derive(Debug, Default)]
pub(super) struct Tally {
    latencies: [[Option<Box<Latencies>>; Op::COUNT]; Phase::COUNT],
    /// How late batches left, behind the warm-up.
    pub(super) send_delay: Option<Box<Latencies>>,
    pub(super) sent: u64,
    pub(super) misses: u64,
    pub(super) redirects: u64,
    pub(super) errors: BTreeMap<String, u64>,
    /// One of the errors, as it was told.
    pub(super) example: Option<String>,
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
        for (why, count) in other.errors {
            *self.errors.entry(why).or_default() += count;
        }
        self.example = self.example.take().or(other.example);
    }

    /// Latencies of a phase by operation.
    pub(super) fn phase(&self, phase: Phase) -> impl Iterator<Item = (Op, &Latencies)> {
        let of = Op::value_variants()
            .iter()
            .zip(&self.latencies[phase as usize]);
        of.filter_map(|(op, latencies)| Some((*op, &**latencies.as_ref()?)))
    }

    /// Those of all phases behind the warm-up.
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
