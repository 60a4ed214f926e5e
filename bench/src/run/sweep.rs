use std::time::Duration;

use crate::error::Result;
use crate::interrupt;
use crate::load::{Phase, Plan, Sizes, Span};
use crate::named::Named;
use crate::plot::{Axis, Kind, Plot, Series};
use crate::record::Case;

use super::{RunArgs, begin, case, drive};

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Over {
    /// offered load, in shares of the peak, up to where latency breaks
    Rate,
    /// operations that are sent together
    Pipeline,
    /// bytes of a value
    ValueBytes,
    /// connections
    Connections,
}

/// `ephesus-bench sweep`: the same load over and over, with one quantity varied.
#[derive(Clone, Debug, clap::Args)]
pub struct SweepArgs {
    /// What is varied
    #[arg(long, value_enum, default_value = "rate")]
    pub over: Over,
    /// Its values; of a rate, percent of the peak [default: as fit]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub values: Vec<u64>,
    /// The load.
    #[command(flatten)]
    pub run: RunArgs,
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
        }
    }

    fn set(self, plan: &mut Plan, value: u64, peak_per_s: f64) {
        match self {
            Over::Rate => plan.rate = ((peak_per_s * value as f64 / 100.0) as u64).max(1),
            Over::Pipeline => plan.pipeline = value as u32,
            Over::ValueBytes => plan.workload.sizes = Sizes::Fixed(value as usize),
            Over::Connections => plan.connections = value as usize,
        }
    }
}

impl SweepArgs {
    /// Drives the server once for each value, prints the tables and writes the files that were asked for.
    ///
    /// # Errors
    /// As [`super::execute`].
    pub fn execute(&self) -> Result<()> {
        let (mut record, plan) = begin("sweep", &self.run)?;
        let span = Span {
            duration: self.run.duration.or(Some(STEP)),
            ..self.run.span()
        };
        let mut found = Case {
            name: self.over.name(),
            title: format!("throughput and latency over {}", self.over.title()),
            ..case(&self.run, &plan)
        };
        let done = self.steps(&plan, span, &record.servers[0].name, &mut found);
        found.plots.push(plot(&found));
        record.put(found);
        self.run.outputs.publish(record, done)
    }

    fn steps(&self, base: &Plan, span: Span, server: &str, found: &mut Case) -> Result<()> {
        let mut peak_per_s = 0.0;
        if self.over == Over::Rate {
            let closed = Plan {
                rate: 0,
                ..base.clone()
            };
            let (outcome, done) = drive(&closed, span)?;
            done?;
            peak_per_s = outcome.per_s(Phase::Before);
            found
                .notes
                .push(format!("the peak of a closed loop is {peak_per_s:.0}/s"));
        }
        let values = match &*self.values {
            [] => self.over.values(),
            values => values,
        };
        for &value in values {
            let mut plan = base.clone();
            self.over.set(&mut plan, value, peak_per_s);
            let (outcome, done) = drive(&plan, span)?;
            let label = format!("{} {value}", self.over.name());
            let per_s = outcome.per_s(Phase::Before);
            eprintln!(
                "   {label}: {per_s:.0}/s, p99 {:.0} us",
                outcome.all(Phase::Before).us(0.99)
            );
            found.runs.push(outcome.run(server, &label, plan.rate));
            if per_s < plan.rate as f64 * ACHIEVED_MIN && !interrupt::requested() {
                found.notes.push(format!(
                    "at {label} it no longer keeps up: the knee is passed"
                ));
                break;
            }
            done?;
        }
        Ok(())
    }
}

fn plot(case: &Case) -> Plot {
    let line = |name: &str, q: f64| {
        let points = case.runs.iter().map(|run| [run.per_s(), run.all().us(q)]);
        Series::new(name, points)
    };
    Plot::new(
        "Latency against throughput",
        Kind::Curve,
        [Axis::linear("throughput", "/s"), Axis::log("latency", "us")],
        vec![line("p50", 0.5), line("p99", 0.99), line("p99.9", 0.999)],
    )
}
