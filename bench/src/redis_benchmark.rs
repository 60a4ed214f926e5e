//! Running Debian's `redis-benchmark` and reading its CSV.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::named::Named;

#[cfg(test)]
mod tests;

/// Which of its tests to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// `-t set`.
    Set,
    /// `-t get`.
    Get,
}

/// One run's shape.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shape {
    /// SET or GET.
    pub test: Test,
    /// `-c`.
    pub clients: u32,
    /// `-P`.
    pub pipeline: u32,
    /// `-n`.
    pub requests: u64,
    /// `-r`.
    pub keys: u64,
    /// `-d`.
    pub value_bytes: usize,
}

impl Shape {
    /// The flags this shape is.
    pub fn flags(&self) -> Vec<String> {
        let line = format!(
            "-t {} -c {} -P {} -n {} -r {} -d {} --csv",
            self.test.name(),
            self.clients,
            self.pipeline,
            self.requests,
            self.keys,
            self.value_bytes
        );
        line.split(' ').map(str::to_owned).collect()
    }
}

/// What redis-benchmark printed for one test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CsvRow {
    /// Name of the test.
    pub test: String,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// 99th percentile of latency.
    pub p99_ms: f64,
    /// Longest latency.
    pub max_ms: f64,
}

/// One finished run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its printed numbers.
    pub row: CsvRow,
    /// From start to exit.
    pub wall_s: f64,
    /// CPU time of the client.
    pub client_cpu_s: f64,
}

impl Outcome {
    /// Share of its core the client used.
    pub fn client_busy(&self) -> f64 {
        self.client_cpu_s / self.wall_s
    }
}

/// A `redis-benchmark` program.
#[derive(Clone, Debug)]
pub struct RedisBenchmark(pub PathBuf);

impl RedisBenchmark {
    /// Runs once; the client inherits the calling thread's CPUs. `output` is a scratch file.
    ///
    /// # Errors
    /// When it cannot be started, fails, or prints something unknown.
    pub fn run(&self, address: SocketAddr, shape: &Shape, output: &Path) -> Result<Outcome> {
        let what = self.0.display().to_string();
        let file = File::create(output).map_err(BenchError::io(output.display().to_string()))?;
        let errors = file.try_clone().map_err(BenchError::io(&what))?;
        let started = Instant::now();
        let mut child = Command::new(&self.0)
            .args([
                "-h",
                &address.ip().to_string(),
                "-p",
                &address.port().to_string(),
            ])
            .args(shape.flags())
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(BenchError::io(&what))?;
        let (status, client_cpu) = wait_with_cpu(&mut child)?;
        let wall_s = started.elapsed().as_secs_f64();
        let text = std::fs::read_to_string(output).map_err(BenchError::io(&what))?;
        if status != 0 {
            return Err(BenchError::reply(format!("{what} failed"), text.as_bytes()));
        }
        Ok(Outcome {
            row: parse_csv(&text)?,
            wall_s,
            client_cpu_s: client_cpu.as_secs_f64(),
        })
    }
}

/// Reads the one data row of `--csv` output; columns are found by their names.
///
/// # Errors
/// When a column or the row is missing, or a number is none.
pub fn parse_csv(text: &str) -> Result<CsvRow> {
    let wrong = || BenchError::parse("redis-benchmark CSV", text);
    let mut lines = text.lines().filter(|line| line.starts_with('"'));
    let split = |line: &str| -> Vec<String> {
        line.trim()
            .trim_matches('"')
            .split("\",\"")
            .map(str::to_owned)
            .collect()
    };
    let header = split(lines.next().ok_or_else(wrong)?);
    let row = split(lines.next().ok_or_else(wrong)?);
    let column = |name: &str| {
        let index = header
            .iter()
            .position(|column| column == name)
            .ok_or_else(wrong)?;
        row.get(index).ok_or_else(wrong)
    };
    let number = |name: &str| column(name)?.parse::<f64>().map_err(|_| wrong());
    Ok(CsvRow {
        test: column("test")?.clone(),
        requests_per_s: number("rps")?,
        p50_ms: number("p50_latency_ms")?,
        p99_ms: number("p99_latency_ms")?,
        max_ms: number("max_latency_ms")?,
    })
}

fn wait_with_cpu(child: &mut Child) -> Result<(libc::c_int, Duration)> {
    loop {
        let mut status = 0;
        // SAFETY: a zeroed rusage is valid; both pointers are to live values.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (
                libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage),
                usage,
            )
        };
        if pid > 0 {
            return Ok((status, duration(usage.ru_utime) + duration(usage.ru_stime)));
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(BenchError::io("waiting for redis-benchmark")(error));
        }
        if interrupt::requested() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(BenchError::Interrupted);
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}
