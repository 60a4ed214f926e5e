//! Running Debian's `redis-benchmark` and reading its CSV.

use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{Op, Plan};

#[cfg(test)]
mod tests;

/// No run takes longer.
const TIMEOUT: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_millis(5);

/// What it has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Requests per second.
    pub per_s: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// 99th percentile of latency.
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
        plan.connections,
        plan.pipeline,
        plan.count.unwrap_or(1),
        workload.keys.count(),
        workload.sizes
    );
    line.split(' ').map(str::to_owned).collect()
}

/// Runs it once; the client inherits the calling thread's CPUs.
pub fn run(program: &Path, plan: &Plan) -> Result<Found> {
    let what = || program.display().to_string();
    let failed = || BenchError::io(what());
    // Who is read by nobody while it runs must not wait for a reader.
    let mut output = tempfile::tempfile().map_err(failed())?;
    let clone = || output.try_clone().map_err(failed());
    let (stdout, stderr) = (clone()?, clone()?);
    let (started, cpu_before) = (Instant::now(), children_cpu());
    let mut child = Command::new(program)
        .args(flags(plan))
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .map_err(failed())?;
    let is_success = wait(&mut child)?;
    let (wall, cpu) = (started.elapsed(), children_cpu() - cpu_before);
    let mut text = String::new();
    output.rewind().map_err(failed())?;
    output.read_to_string(&mut text).map_err(failed())?;
    if !is_success {
        return Err(BenchError::reply(
            format!("{} failed", what()),
            text.as_bytes(),
        ));
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
    let wrong = || BenchError::parse("redis-benchmark CSV", text);
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
    Ok([
        number("rps")?,
        number("p50_latency_ms")?,
        number("p99_latency_ms")?,
    ])
}

/// Waits for its end; whether it has succeeded.
fn wait(child: &mut Child) -> Result<bool> {
    let mut status = None;
    let ended = interrupt::wait_until(TIMEOUT, POLL, || {
        let found = child.try_wait();
        status = found.map_err(BenchError::io("waiting for redis-benchmark"))?;
        Ok(status.is_some())
    });
    if !matches!(ended, Ok(true)) {
        // They fail only when it has ended.
        let _ = child.kill();
        let _ = child.wait();
    }
    ended.map(|_| status.is_some_and(|status| status.success()))
}

/// CPU time of all children that have ended.
fn children_cpu() -> Duration {
    let duration =
        |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    // SAFETY: a zeroed rusage is valid, and the pointer is to a live one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}
