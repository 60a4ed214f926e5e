//! Throughput against latency of one or more servers, as offered load or another quantity rises.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{Phase, Plan, Sizes, Span};
use crate::measure::more;
use crate::named::Named;
use crate::record::{Axis, Case, Kind, Plot, Series};
use crate::runner::{BenchArgs, Contestant, Session, how, rounds};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// offered load, in shares of each server's peak, up to where its latency breaks
    Rate,
    /// operations that are sent together
    Pipeline,
    /// bytes of a value
    ValueBytes,
    /// connections
    Connections,
    /// shards of an Ephesus and servers of a Valkey cluster, which are started anew
    Shards,
}

#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct SweepArgs {
    /// Servers as in run; in turn at each value
    #[arg(value_name = "ADDR:PORT", required = true)]
    pub contestants: Vec<Contestant>,
    /// What is varied
    #[arg(long, value_enum, default_value = "rate")]
    pub over: Over,
    /// Its values; of a rate, percent of the peak [default: as fit]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub values: Vec<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub with: BenchArgs,
}

/// Less of what is offered than this is answered: the knee is passed.
const ACHIEVED_MIN: f64 = 0.98;
const STEP: Duration = Duration::from_secs(5);

impl Over {
    fn values(self) -> &'static [u64] {
        match self {
            Over::Rate => &[10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 95, 100],
            Over::Pipeline => &[1, 2, 4, 8, 16, 32, 64],
            Over::ValueBytes => &[16, 64, 256, 1024, 4096, 16_384],
            Over::Connections => &[1, 2, 5, 10, 20, 50, 100, 200],
            Over::Shards => &[1, 2, 4, 8, 16, 32],
        }
    }

    fn set(self, plan: &mut Plan, value: u64, peak_per_s: f64) {
        match self {
            Over::Rate => plan.pace.rate = ((peak_per_s * value as f64 / 100.0) as u64).max(1),
            Over::Pipeline => plan.pace.pipeline = value as u32,
            Over::ValueBytes => plan.workload.sizes = Sizes::fixed(value as usize),
            Over::Connections => plan.pace.connections = value as usize,
            Over::Shards => {}
        }
    }
}

impl SweepArgs {
    pub fn execute(&self) -> Result<()> {
        let settings = ("sweep", false);
        self.with
            .session(settings, &self.contestants, self, |session| {
                let mut case = Case {
                    name: self.over.name(),
                    title: format!("throughput and latency over {}", self.over.title()),
                    ..Case::default()
                };
                let done = self.sweep(session, &mut case);
                case.plots.push(plot(&case));
                session.put(case)?;
                done
            })
    }

    fn sweep(&self, session: &mut Session<'_>, case: &mut Case) -> Result<()> {
        let values = match &*self.values {
            [] => self.over.values(),
            values => values,
        };
        if self.over != Over::Shards {
            return self.on_bed(session, self.with.servers.shards, values, case);
        }
        if let Some(one) = self.contestants.iter().find(|one| !one.scales()) {
            let problem = format!("{} is not started with so many as are wanted", one.name);
            return Err(BenchError::failed("--over shards", problem));
        }
        values.iter().try_for_each(|value| {
            let shards = u16::try_from(*value).unwrap_or(u16::MAX);
            match self.on_bed(session, shards, slice::from_ref(value), case) {
                Err(why @ BenchError::TooFewCpus(_)) => {
                    let row = format!("rate, shards {value}");
                    case.unmeasured((&row, more("op/s")), &self.contestants, &why);
                    Ok(())
                }
                done => done,
            }
        })
    }

    fn on_bed(
        &self,
        session: &mut Session<'_>,
        shards: u16,
        values: &[u64],
        case: &mut Case,
    ) -> Result<()> {
        let load = &self.with.load;
        let bed = self.with.bed(session, &self.contestants, shards)?;
        case.how = how(&bed.all[0].plan);
        let span = Span {
            duration: load.duration.or(Some(STEP)),
            ..load.span()
        };
        // Those that have not passed their knees.
        let mut peaks = BTreeMap::new();
        for driven in &bed.all {
            let mut peak_per_s = 0.0;
            if self.over == Over::Rate {
                let mut closed = driven.plan.clone();
                closed.pace.rate = 0;
                let mut loaded = bed.load(driven, case, (&closed, span, ""))?;
                loaded.outcome.judge()?;
                peak_per_s = loaded.outcome.per_s(Phase::Before);
                let peak = format!("in a closed loop is {peak_per_s:.0}/s");
                case.note(format!("the peak of {} {peak}", driven.name));
            }
            peaks.insert(driven.name.clone(), peak_per_s);
        }
        rounds(values.len() as u32, &bed.all, |round, driven| {
            let value = values[round as usize];
            let label = format!("{} {value}", self.over.name());
            let Some(&peak_per_s) = peaks.get(&driven.name) else {
                return Ok(());
            };
            let mut plan = driven.plan.clone();
            self.over.set(&mut plan, value, peak_per_s);
            let mut loaded = bed.load(driven, case, (&plan, span, &label))?;
            let per_s = loaded.outcome.per_s(Phase::Before);
            loaded.tell();
            case.runs.push(loaded.run);
            if per_s < plan.pace.rate as f64 * ACHIEVED_MIN && !interrupt::requested() {
                peaks.remove(&driven.name);
                let passed = "no longer keeps up: the knee is passed";
                case.note(format!("at {label} {} {passed}", driven.name));
                return Ok(());
            }
            loaded.outcome.judge()
        })
    }
}

/// Of one server three curves, of several their 99th percentiles.
fn plot(case: &Case) -> Plot {
    let mut names: Vec<&str> = case.runs.iter().map(|run| &*run.server).collect();
    names.sort_unstable();
    names.dedup();
    let line = |label: String, server: &str, q: f64| {
        let runs = case.runs.iter().filter(|run| run.server == server);
        Series::new(label, runs.map(|run| [run.per_s(), run.all().us(q)]))
    };
    let series = match *names {
        [one] => [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)]
            .map(|(name, q)| line(name.to_owned(), one, q))
            .to_vec(),
        _ => names
            .iter()
            .map(|one| line(format!("{one}, p99"), one, 0.99))
            .collect(),
    };
    let axes = [Axis::linear("throughput", "/s"), Axis::log("latency", "us")];
    Plot::new("Latency against throughput", Kind::Curve, axes, series)
}
