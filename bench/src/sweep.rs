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
use crate::plot::{Axis, Kind, Plot, Series};
use crate::record::{Case, Outputs};
use crate::runner::{Bed, Contestant, LoadArgs, ServerArgs, Session, how, rounds, session};
use crate::server::Durability;

/// What is varied.
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

/// `ephesus-bench sweep`: the same load over and over, with one quantity varied.
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
    /// How servers are reached or started.
    #[command(flatten)]
    #[serde(flatten)]
    pub servers: ServerArgs,
    /// What they get.
    #[command(flatten)]
    #[serde(flatten)]
    pub load: LoadArgs,
    /// What is written
    #[command(flatten)]
    #[serde(skip)]
    pub outputs: Outputs,
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
            Over::Rate => plan.rate = ((peak_per_s * value as f64 / 100.0) as u64).max(1),
            Over::Pipeline => plan.pipeline = value as u32,
            Over::ValueBytes => plan.workload.sizes = Sizes::Fixed(value as usize),
            Over::Connections => plan.connections = value as usize,
            Over::Shards => {}
        }
    }
}

impl SweepArgs {
    /// Drives every server once for each value, prints the tables and writes the files that were asked for.
    ///
    /// # Errors
    /// As [`crate::run::execute`].
    pub fn execute(&self) -> Result<()> {
        let root = self.servers.root(&self.contestants, "sweep-")?;
        let outputs = (&self.outputs, root.as_ref(), false);
        session("sweep", outputs, self, |session| {
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
            return self.on_bed(session, self.servers.shards, values, case);
        }
        if let Some(one) = self.contestants.iter().find(|one| !one.scales()) {
            let problem = format!("{} is not started with so many as are wanted", one.name);
            return Err(BenchError::flag("--over shards", problem));
        }
        values.iter().try_for_each(|value| {
            let shards = u16::try_from(*value).unwrap_or(u16::MAX);
            match self.on_bed(session, shards, slice::from_ref(value), case) {
                Err(why @ BenchError::TooFewCpus { .. }) => {
                    let row = format!("rate, shards {value}");
                    case.unmeasured((&row, more("op/s")), &self.contestants, &why);
                    Ok(())
                }
                done => done,
            }
        })
    }

    /// Measures these values with the same servers.
    fn on_bed(
        &self,
        session: &mut Session<'_>,
        shards: u16,
        values: &[u64],
        case: &mut Case,
    ) -> Result<()> {
        let contestants = (&self.servers, &*self.contestants);
        let cpus = ([shards; 2], Durability::EverySecond);
        let bed = Bed::start(session, contestants, cpus, |one| self.load.prepare(one))?;
        case.how = how(&bed.all[0].plan);
        let span = Span {
            duration: self.load.duration.or(Some(STEP)),
            ..self.load.span()
        };
        // Those that have not passed their knees.
        let mut peaks = BTreeMap::new();
        for driven in &bed.all {
            let mut peak_per_s = 0.0;
            if self.over == Over::Rate {
                let closed = Plan {
                    rate: 0,
                    ..driven.plan.clone()
                };
                let mut loaded = bed.load(driven, case, (&closed, span, ""))?;
                loaded.outcome.judge()?;
                peak_per_s = loaded.outcome.per_s(Phase::Before);
                let name = &driven.name;
                case.note(format!(
                    "the peak of {name} in a closed loop is {peak_per_s:.0}/s"
                ));
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
            if per_s < plan.rate as f64 * ACHIEVED_MIN && !interrupt::requested() {
                peaks.remove(&driven.name);
                let name = &driven.name;
                case.note(format!(
                    "at {label} {name} no longer keeps up: the knee is passed"
                ));
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
