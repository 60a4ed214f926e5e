//! Parts of a node by themselves, as libraries, each beside the physical limit that it runs into.
//!
//! Limits and parts are measured in turn in every round, on one CPU, so that what else the machine does hits both.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::affinity;
use crate::disk;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::locate;
use crate::loopback;
use crate::measure::{Measures, Verdict, more};
use crate::record::{Case, EPHESUS, Outputs, Record, Row};
use crate::stats;

use durable::{Images, StrictLog};
use memory::{Bytes, Chase, Gates, Keys};

mod durable;
mod memory;

const ROUNDS: u32 = 5;
const LIMIT: &str = "limit";

/// `ephesus-bench micro`: parts of a node beside the physical limits of this machine.
#[derive(Clone, Debug, clap::Args)]
pub struct MicroArgs {
    /// Seconds of all measurements together, about
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Little data: checks the tool, measures nothing
    #[arg(long)]
    quick: bool,
    /// Directory for data, on a real disk (default: a temporary one below target)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where results go.
    #[command(flatten)]
    outputs: Outputs,
}

/// What limits there are.
struct Limits {
    copied_bytes_per_s: f64,
    random_reads_per_s: f64,
    loopback_bytes_per_s: f64,
    syncs_per_s: f64,
    /// Of writes that are as large as a group of the log, and of those of 1 MiB.
    groups_bytes_per_s: f64,
    sequential_bytes_per_s: f64,
}

impl MicroArgs {
    /// Measures and prints.
    ///
    /// # Errors
    /// When the directory cannot be written, a part misbehaves, or a signal interrupts.
    pub fn execute(&self) -> Result<()> {
        self.outputs.prepare()?;
        let root = locate::data_root(self.dir.as_deref(), "micro-")?;
        let settings = serde_json::json!({ "seconds": self.seconds });
        let mut record = Record::new("micro", root.path(), &settings)?;
        record.is_quick = self.quick;
        let mut measures = Measures::default();
        let done = self.fill(root.path(), &mut measures);
        let ratio = |of: &[f64]| ("limit".to_owned(), stats::estimate(of));
        let rows = measures.0.iter().map(|measure| {
            let ratios = measure.ratios_to(EPHESUS, |one| one == LIMIT);
            Row::new(measure, Verdict::NoGoal, [ratio(&ratios)])
        });
        record.put(Case {
            name: "parts".to_owned(),
            title: "parts of a node beside physical limits".to_owned(),
            how: format!(
                "One CPU; keys of {} B and values of {} B; medians of {ROUNDS} rounds. Limits: memory that is copied, \
                 reads of memory that depend on each other, one loopback TCP connection, 4 KiB O_DSYNC writes, and \
                 O_DSYNC writes one by one of 256 KiB (log) and 1 MiB (image).",
                memory::KEY_BYTES,
                memory::VALUE_BYTES
            ),
            rows: rows.collect(),
            ..Case::default()
        });
        self.outputs.publish(record, done)
    }

    fn fill(&self, dir: &Path, measures: &mut Measures<&'static str>) -> Result<()> {
        let cpus = affinity::allowed()?;
        let pin = |cpus: &[usize]| {
            affinity::confine_current(&affinity::mask(cpus))
                .map_err(BenchError::io("sched_setaffinity"))
        };
        pin(&cpus[..1])?;
        let keys = Keys::new(if self.quick { 10_000 } else { 1_000_000 });
        let chase = Chase::new(if self.quick { 1 << 18 } else { 1 << 25 });
        let (mut table, mut bytes) = (keys.table(), Bytes::new());
        let mut gates = Gates::default();
        let mut log = StrictLog::open(&dir.join("log"))?;
        let mut images = Images::open(&dir.join("images"), self.quick)?;
        // 16 measurements in each round.
        let time = Duration::from_secs(self.seconds) / ROUNDS / 16;
        for _ in 0..ROUNDS {
            let limits = Limits {
                copied_bytes_per_s: rate(time, || Ok(bytes.copy()))?,
                random_reads_per_s: rate(time, || Ok(chase.run()))?,
                loopback_bytes_per_s: loopback::mb_per_s(cpus[0], cpus[cpus.len() - 1], time)?
                    * 1e6,
                ..Limits::of_disk(dir, time)?
            };
            let mut both = |name: &str, unit, scale: f64, ours: f64, limit: f64| {
                measures.record(name, more(unit), EPHESUS, ours / scale);
                measures.record(name, more(unit), LIMIT, limit / scale);
            };
            let (mb, million) = (1e6, 1e6);
            let tcp = limits.loopback_bytes_per_s;
            both(
                "requests decoded, of TCP",
                "MB/s",
                mb,
                rate(time, || bytes.decode_requests())?,
                tcp,
            );
            both(
                "replies encoded, of TCP",
                "MB/s",
                mb,
                rate(time, || Ok(bytes.encode_replies()))?,
                tcp,
            );
            let copied = limits.copied_bytes_per_s;
            let key_bytes = memory::KEY_BYTES as f64;
            both(
                "keys routed, of memory",
                "million/s",
                million,
                rate(time, || Ok(keys.route()))?,
                copied / key_bytes,
            );
            let reads = limits.random_reads_per_s;
            both(
                "table, get, of random reads",
                "million/s",
                million,
                rate(time, || keys.get(&table))?,
                reads,
            );
            both(
                "table, put, of random reads",
                "million/s",
                million,
                rate(time, || Ok(keys.put(&mut table)))?,
                reads,
            );
            both(
                "gates, of random reads",
                "million/s",
                million,
                rate(time, || Ok(gates.pass()))?,
                reads,
            );
            both(
                "blocks encoded, of memory",
                "MB/s",
                mb,
                rate(time, || Ok(bytes.encode_blocks()))?,
                copied,
            );
            both(
                "blocks decoded, of memory",
                "MB/s",
                mb,
                rate(time, || bytes.decode_blocks())?,
                copied,
            );
            both(
                "commits of one record, of syncs",
                "per s",
                1.0,
                rate(time, || log.commit_one())?,
                limits.syncs_per_s,
            );
            both(
                "log, of disk",
                "MB/s",
                mb,
                rate(time, || log.commit_many())?,
                limits.groups_bytes_per_s,
            );
            both(
                "image, of disk",
                "MB/s",
                mb,
                rate(time, || images.write())?,
                limits.sequential_bytes_per_s,
            );
        }
        pin(&cpus)
    }
}

impl Limits {
    /// Those of the disk, and zeroes.
    fn of_disk(dir: &Path, time: Duration) -> Result<Self> {
        let sizes = [(4 << 10, 1), (256 << 10, 1), (1 << 20, 1)];
        let [syncs, groups, sequential] = disk::durable(dir, sizes, time)?;
        Ok(Limits {
            copied_bytes_per_s: 0.0,
            random_reads_per_s: 0.0,
            loopback_bytes_per_s: 0.0,
            syncs_per_s: syncs.mb_per_s * 1e6 / 4096.0,
            groups_bytes_per_s: groups.mb_per_s * 1e6,
            sequential_bytes_per_s: sequential.mb_per_s * 1e6,
        })
    }
}

/// How much of something is done per second, over at least so long.
fn rate(time: Duration, mut work: impl FnMut() -> Result<usize>) -> Result<f64> {
    let (began, mut done) = (Instant::now(), 0);
    loop {
        interrupt::check()?;
        done += work()?;
        let elapsed = began.elapsed();
        if elapsed >= time {
            return Ok(done as f64 / elapsed.as_secs_f64());
        }
    }
}
