//! Running Debian's `redis-benchmark` and reading its CSV.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{BenchError, During, Result};
use crate::load::{Op, Plan};
use crate::process::Process;
use crate::procfs::{Pid, cpu_time_of_children};
use crate::{affinity, interrupt};

#[cfg(test)]
mod tests;

const TIMEOUT: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_millis(5);
const NAME: &str = "redis-benchmark";

#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Share of a core that the client used.
    pub client_busy: f64,
}

/// The flags by which it does what a plan of reads or writes of one size says.
fn flags(plan: &Plan) -> Vec<String> {
    let workload = &plan.workload;
    let (address, test) = (plan.target.address, workload.mix.has(Op::Read));
    let line = format!(
        "-h {} -p {} -t {} -c {} -P {} -n {} -r {} -d {} --csv",
        address.ip(),
        address.port(),
        if test { "get" } else { "set" },
        plan.pace.connections,
        plan.pace.pipeline,
        plan.pace.count.unwrap_or(1),
        workload.keys.count(),
        workload.sizes
    );
    line.split(' ').map(str::to_owned).collect()
}

pub fn run(program: &Path, plan: &Plan) -> Result<Found> {
    let dir = tempfile::tempdir().during(NAME)?;
    let output = dir.path().join("output");
    let (flags, cpus, own) = (flags(plan), affinity::allowed()?, Pid(std::process::id()));
    let (began, cpu_before) = (Instant::now(), cpu_time_of_children(own)?);
    let mut process = Process::start(NAME, program, &flags, dir.path(), output.clone(), &cpus)?;
    let mut status = None;
    interrupt::wait_for((NAME, "done"), TIMEOUT, POLL, || {
        status = process.ended()?;
        Ok(status.is_some())
    })?;
    let (wall, cpu) = (began.elapsed(), cpu_time_of_children(own)? - cpu_before);
    let text = fs::read_to_string(output).during(NAME)?;
    if !status.is_some_and(|status| status.success()) {
        return Err(BenchError::unexpected("redis-benchmark has failed", &text));
    }
    let [per_s, p50_ms, p99_ms] = parse_csv(&text)?;
    Ok(Found {
        per_s,
        p50_ms,
        p99_ms,
        client_busy: cpu.as_secs_f64() / wall.as_secs_f64(),
    })
}

/// Rate and latencies of the one data row of `--csv` output; columns are found by their names.
fn parse_csv(text: &str) -> Result<[f64; 3]> {
    let wrong = || BenchError::unexpected("redis-benchmark's CSV", text);
    let mut lines = text.lines().filter(|line| line.starts_with('"'));
    let mut split = || -> Result<Vec<&str>> {
        let line = lines.next().ok_or_else(wrong)?.trim();
        Ok(line.trim_matches('"').split("\",\"").collect())
    };
    let (header, row) = (split()?, split()?);
    let number = |name: &str| {
        let at = header.iter().position(|column| *column == name);
        let cell = at.and_then(|at| row.get(at)).ok_or_else(wrong)?;
        cell.parse().map_err(|_| wrong())
    };
    let [rate, p50, p99] = ["rps", "p50_latency_ms", "p99_latency_ms"].map(number);
    Ok([rate?, p50?, p99?])
}
