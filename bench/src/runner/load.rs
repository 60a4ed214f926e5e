//! What a load is made of, and driving it.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{
    Distribution, Ledger, Mix, Op, Outcome, Pace, Plan, Running, STAMP_BYTES, Sizes, Span,
};
use crate::named::Named;
use crate::record::{Case, Event, Second};
use crate::stats::number;

use super::Driven;
use super::preset::{self, Preset};
use super::watch::{self, Watch};

#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct LoadArgs {
    /// Measured seconds [default: 10, or until --count is reached]
    #[arg(long, value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Seconds before the measured ones [default: 1, or 0 with --count]
    #[arg(long, value_parser = seconds)]
    pub warmup: Option<Duration>,
    #[command(flatten)]
    #[serde(flatten)]
    pub pace: Pace,
    /// A known workload, which other flags change
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// Shares of read, write, ttl, delete, rmw, insert and count [default: read=50,write=50]
    #[arg(long)]
    #[serde(serialize_with = "shown")]
    pub mix: Option<Mix>,
    /// Keys, named key:000000000000 and on
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=999_999_999_999))]
    pub keys: u64,
    /// Which keys are taken how often [default: uniform]
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,
    /// Bytes of a value: N, FROM-TO, or @FILE with lines of a size and its weight [default: 100]
    #[arg(long)]
    #[serde(serialize_with = "shown")]
    pub value_bytes: Option<Sizes>,
    /// Seconds that keys with a time to live have [default: 60]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub ttl: Option<u64>,
    /// Load all keys first, as is always done in servers that are started
    #[arg(long)]
    pub fill: bool,
    /// Values carry key and version, and a read that finds a wrong or an old one is an error
    #[arg(long)]
    pub verify: bool,
}

const VERIFIED_KEYS_MAX: u64 = 100_000_000;
const SECONDS_MAX: f64 = 1e6;
const DURATION: Duration = Duration::from_secs(10);
const WARMUP: Duration = Duration::from_secs(1);

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("must be 0 to {SECONDS_MAX}")),
    }
}

fn shown<S: Serializer>(value: &Option<impl ToString>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = value.as_ref().map(ToString::to_string);
    text.serialize(serializer)
}

impl LoadArgs {
    pub fn plan(&self, reaching: Plan) -> Result<Plan> {
        let mut workload = preset::workload(self.preset, self.keys);
        if let Some(mix) = &self.mix {
            workload.mix = mix.clone();
        }
        if let Some(sizes) = &self.value_bytes {
            workload.sizes = sizes.clone();
        }
        workload.distribution = self.distribution.unwrap_or(workload.distribution);
        workload.ttl_s = self.ttl.unwrap_or(workload.ttl_s);
        if self.verify {
            workload.ledger = Some(self.ledger(&workload.mix, &workload.sizes)?);
        }
        let mut pace = self.pace.clone();
        if pace.cpus.is_empty() {
            pace.cpus.clone_from(&reaching.pace.cpus);
        }
        Ok(Plan {
            pace,
            workload,
            ..reaching
        })
    }

    /// Loads the keys of a server that is to have them.
    pub fn fill(&self, driven: &Driven) -> Result<()> {
        match self.fill || !driven.servers.is_empty() {
            true => driven.fill(),
            false => Ok(()),
        }
    }

    fn ledger(&self, mix: &Mix, sizes: &Sizes) -> Result<Arc<Ledger>> {
        let refused = |problem: &str| Err(BenchError::failed("--verify", problem));
        if mix.has(Op::Count) {
            return refused("counters have no versions");
        }
        if sizes.bounds()[0] < STAMP_BYTES {
            return refused(&format!("values need at least {STAMP_BYTES} bytes"));
        }
        if self.keys > VERIFIED_KEYS_MAX {
            return refused(&format!("at most {VERIFIED_KEYS_MAX} keys"));
        }
        let room = self.keys * if mix.has(Op::Insert) { 2 } else { 1 };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let ms = now.unwrap_or(Duration::ZERO).as_millis() as u32;
        let run_number = ms.wrapping_mul(1 << 10) ^ std::process::id();
        Ok(Arc::new(Ledger::new(run_number, room)))
    }

    pub fn span(&self) -> Span {
        let default = |time| self.pace.count.is_none().then_some(time);
        Span {
            warmup: self.warmup.or(default(WARMUP)).unwrap_or_default(),
            duration: self.duration.or(default(DURATION)),
        }
    }

    pub fn case(&self) -> Case {
        match self.preset {
            Some(preset) => Case::new(preset),
            None => Case {
                name: "run".to_owned(),
                title: "a load".to_owned(),
                ..Case::default()
            },
        }
    }
}

pub fn how(plan: &Plan) -> String {
    let workload = &plan.workload;
    let pace = match plan.pace.rate {
        0 => "closed loop".to_owned(),
        rate => format!("open loop, {rate} operations/s, latency from when each was due"),
    };
    let count = plan.pace.count.map(|count| format!(", {count} operations"));
    let count = count.unwrap_or_default();
    format!(
        "{pace}, {} connections, pipeline {}{count}; {}, {} keys {}, values of {} bytes",
        plan.pace.connections,
        plan.pace.pipeline,
        workload.mix,
        workload.keys.count(),
        workload.distribution.name(),
        workload.sizes
    )
}

/// Drives a server with a live line on a terminal; what was seen, and what the server did besides.
pub fn drive(plan: &Plan, span: Span) -> Result<(Outcome, Vec<Event>)> {
    let (mut watch, began) = (Watch::default(), Instant::now());
    let look = || {
        let at_s = began.elapsed().as_secs_f64() - span.warmup.as_secs_f64();
        watch.look(&plan.target, at_s);
        Ok(())
    };
    let is_live = io::stderr().is_terminal();
    let outcome = interrupt::beside(watch::LOOK, look, || {
        let running = Running::start(plan.clone(), span)?;
        Ok(running.finish(|second| {
            if is_live {
                tell(second);
            }
        }))
    })?;
    if is_live {
        eprintln!();
    }
    let mut events = watch.events();
    events.retain_mut(|event| {
        event.at_s = event.at_s.max(0.0);
        event.until_s.is_none_or(|until_s| until_s > 0.0)
    });
    Ok((outcome, events))
}

fn tell(second: &Second) {
    let line = format!(
        "{:>5.0} s  {:>9}/s  p50 {:>8} us  p99 {:>8} us  p99.9 {:>8} us  errors {}",
        second.at_s + 1.0,
        second.done,
        number(second.p50_us),
        number(second.p99_us),
        number(second.p999_us),
        second.errors
    );
    // A terminal that is gone does not end the run.
    let _ = write!(io::stderr(), "\r\x1b[2K{line}");
}
