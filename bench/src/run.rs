//! Throughput and latency of a server or a cluster that runs already.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{Ledger, Op, Outcome, Plan, Running, STAMP_BYTES, Span, Workload};
use crate::named::Named;
use crate::prefill;
use crate::record::{Case, Event, Record, Run, Second, ServerRecord};
use crate::resp;
use crate::stats::number;
use crate::target::Target;

pub use arguments::RunArgs;
pub use preset::Preset;
pub(crate) use preset::Workloads;
pub use sweep::SweepArgs;
use watch::Watch;

mod arguments;
mod preset;
mod sweep;
mod watch;

/// Most keys whose versions are remembered.
const VERIFIED_KEYS_MAX: u64 = 100_000_000;
const NAME: &str = "run";

/// Drives the server, prints the tables and writes the files that were asked for.
///
/// # Errors
/// When the server is not there, an operation fails, a signal interrupts, or a file cannot be written.
pub fn execute(arguments: &RunArgs) -> Result<()> {
    let (mut record, plan) = begin(NAME, arguments)?;
    let (outcome, events, done) = watched(&plan, arguments.span())?;
    let run = Run {
        events,
        ..outcome.run(&record.servers[0].name, "", plan.rate)
    };
    record.put(Case {
        notes: notes(&outcome, &plan),
        runs: vec![run],
        ..case(arguments, &plan)
    });
    arguments.outputs.publish(record, done)
}

/// Finds the server and loads its keys, if that was asked for.
fn begin(tool: &str, arguments: &RunArgs) -> Result<(Record, Plan)> {
    arguments.outputs.prepare()?;
    let target = arguments.target.resolve()?;
    let server = describe(&target)?;
    let plan = plan(arguments, target)?;
    let mut record = Record::new(tool, &std::env::temp_dir(), arguments)?;
    record.add_server(server);
    if arguments.fill {
        eprintln!("loading {} keys", plan.workload.keys.count());
        let op = match plan.workload.mix.has(Op::Ttl) {
            true => Op::Ttl,
            false => Op::Write,
        };
        prefill::each(plan.clone(), op, plan.workload.keys.clone())?;
    }
    Ok((record, plan))
}

/// One load, and what the server did besides.
fn watched(plan: &Plan, span: Span) -> Result<(Outcome, Vec<Event>, Result<()>)> {
    let (mut watch, began) = (Watch::default(), Instant::now());
    let look = || {
        let at_s = began.elapsed().as_secs_f64() - span.warmup.as_secs_f64();
        watch.look(&plan.target, at_s);
        Ok(())
    };
    let (outcome, done) = interrupt::beside(watch::LOOK, look, || drive(plan, span))?;
    let mut events = watch.events();
    events.retain_mut(|event| {
        event.at_s = event.at_s.max(0.0);
        event.until_s.is_none_or(|until_s| until_s > 0.0)
    });
    Ok((outcome, events, done))
}

/// One load with its live line; what was seen, and what has gone wrong.
fn drive(plan: &Plan, span: Span) -> Result<(Outcome, Result<()>)> {
    let running = Running::start(plan.clone(), span)?;
    let is_live = io::stderr().is_terminal();
    let mut outcome = running.finish(|second| {
        if is_live {
            tell(second);
        }
    });
    if is_live {
        eprintln!();
    }
    let done = outcome.judge();
    Ok((outcome, done))
}

fn case(arguments: &RunArgs, plan: &Plan) -> Case {
    let (name, title) = match arguments.preset {
        Some(preset) => (preset.name(), preset.title()),
        None => (NAME.to_owned(), "a load".to_owned()),
    };
    Case {
        name,
        title,
        how: how(plan),
        ..Case::default()
    }
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

fn describe(target: &Target) -> Result<ServerRecord> {
    let mut connection = target.connect(target.address)?;
    let info = connection.text(&["INFO", "server"])?;
    let products = ["ephesus", "valkey", "redis"];
    let version = |product: &&str| resp::info_field(&info, &format!("{product}_version"));
    let found = products
        .iter()
        .find_map(|product| Some((*product, version(product)?)));
    let (product, version) = found.unwrap_or(("server", "unknown"));
    Ok(ServerRecord {
        name: product.to_owned(),
        version: version.to_owned(),
        command_line: format!("at {}", target.address),
        configuration: Vec::new(),
    })
}

fn plan(arguments: &RunArgs, target: Target) -> Result<Plan> {
    let shape = arguments.shape();
    let keys = arguments.keys;
    let ledger = arguments.verify.then(|| {
        let refused = |problem: &str| Err(BenchError::flag("--verify", problem));
        if shape.mix.has(Op::Count) {
            return refused("counters have no versions");
        }
        if shape.sizes.bounds()[0] < STAMP_BYTES {
            return refused(&format!("values need at least {STAMP_BYTES} bytes"));
        }
        if keys > VERIFIED_KEYS_MAX {
            return refused(&format!("at most {VERIFIED_KEYS_MAX} keys"));
        }
        let room = if shape.mix.has(Op::Insert) {
            2 * keys
        } else {
            keys
        };
        Ok(Arc::new(Ledger::new(run_number(), room)))
    });
    Ok(Plan {
        is_cluster: arguments.cluster,
        rate: arguments.rate,
        connections: arguments.connections,
        pipeline: arguments.pipeline,
        threads: arguments.threads,
        cpus: arguments.cpus.clone(),
        count: arguments.count,
        workload: Workload {
            ledger: ledger.transpose()?,
            ..shape.workload(keys)
        },
        ..Plan::new(target)
    })
}

/// Differs from one run to another.
fn run_number() -> u32 {
    use std::time::{SystemTime, UNIX_EPOCH};
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or(Duration::ZERO);
    (now.as_millis() as u32).wrapping_mul(1 << 10) ^ std::process::id()
}

fn how(plan: &Plan) -> String {
    let Plan {
        workload, pipeline, ..
    } = plan;
    let pace = match plan.rate {
        0 => "closed loop".to_owned(),
        rate => format!("open loop, {rate} operations/s, latency from when each was due"),
    };
    format!(
        "{pace}, {} connections, pipeline {pipeline}; {}, {} keys {}, values of {} bytes",
        plan.connections,
        workload.mix,
        workload.keys.count(),
        workload.distribution.name(),
        workload.sizes
    )
}

fn notes(outcome: &Outcome, plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if outcome.misses() > 0 {
        notes.push(format!(
            "{} reads found nothing; --fill loads the keys first",
            outcome.misses()
        ));
    }
    if outcome.redirects() > 0 {
        notes.push(format!(
            "{} operations were redirected",
            outcome.redirects()
        ));
    }
    let cpu_us = outcome.us_per_op(outcome.client_cpu);
    notes.push(format!(
        "the generator used {cpu_us:.2} us of CPU per operation"
    ));
    if plan.workload.ledger.is_some() && outcome.complaint().is_none() {
        notes.push("every value read was of its key, and none older than it had to be".to_owned());
    }
    notes
}
