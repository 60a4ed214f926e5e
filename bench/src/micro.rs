//! Parts of a node by themselves, as libraries, each beside the physical limit that it runs into.
//!
//! Limits and parts are measured in turn in every round, on one CPU, so that what else the machine does hits both.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::affinity;
use crate::disk::Scratch;
use crate::error::{BenchError, During, Result};
use crate::interrupt;
use crate::locate;
use crate::loopback;
use crate::measure::more;
use crate::prefill::KEY_BYTES;
use crate::record::{Case, EPHESUS};
use crate::runner::{SiteArgs, session};
use serde::Serialize;

mod durable;
mod memory;

const ROUNDS: u32 = 5;
const LIMIT: &str = "limit";
const VALUE_BYTES: usize = 100;

#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct MicroArgs {
    /// Seconds of all measurements together, about
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    #[serde(flatten)]
    site: SiteArgs,
}

/// Does some of it, and answers how much.
type Work = Box<dyn FnMut() -> Result<usize>>;

/// What a part runs into, in the order in which it is measured.
#[derive(Clone, Copy)]
enum Limit {
    /// Bytes that are copied.
    Memory,
    /// Reads of which each says where the next one is.
    Reads,
    /// Bytes of one connection over loopback.
    Tcp,
    /// 4 KiB O_DSYNC writes.
    Syncs,
    /// Bytes of such writes with the size of a group of the log, and of 1 MiB.
    Groups,
    Sequential,
}

/// A part, in what unit it is told, and so many of which its limit has for each of its own.
struct Part(&'static str, &'static str, f64, Limit, Work);

impl MicroArgs {
    pub fn execute(&self) -> Result<()> {
        let root = locate::data_root(self.site.dir.as_deref(), "micro-")?;
        let how = format!(
            "One CPU; keys of {KEY_BYTES} B and values of {VALUE_BYTES} B; medians of {ROUNDS} rounds. Limits: \
             memory that is copied, reads of memory that depend on each other, one loopback TCP connection, 4 KiB \
             O_DSYNC writes, and such writes one by one of 256 KiB (log) and 1 MiB (image). A part is above its \
             limit where its data stays in the CPU's caches, or where its reads overlap."
        );
        let mut case = Case {
            name: "parts".to_owned(),
            title: "parts of a node beside physical limits".to_owned(),
            how,
            ..Case::default()
        };
        let outputs = (&self.site.outputs, Some(&root), self.site.quick);
        session("micro", outputs, self, |session| {
            let done = self.measure(root.path(), &mut case);
            case.judge(EPHESUS, LIMIT, str::to_owned);
            session.put(case)?;
            done
        })
    }

    fn measure(&self, dir: &Path, case: &mut Case) -> Result<()> {
        let cpus = affinity::allowed()?;
        affinity::confine_current(&cpus[..1]).during("running on one CPU")?;
        let mut parts = parts(dir, self.site.quick)?;
        let mut copy = memory::copy();
        let mut chase = memory::chase(if self.site.quick { 1 << 18 } else { 1 << 25 });
        let scratch = Scratch::new(dir)?;
        let writes =
            |bytes: usize, time| Ok::<_, BenchError>(scratch.write((bytes, 1), time)?.per_s);
        // So many measurements in each round.
        let count = parts.len() + 6;
        let time = Duration::from_secs(self.seconds) / ROUNDS / count as u32;
        for _ in 0..ROUNDS {
            let limits = [
                rate(time, &mut copy)?,
                rate(time, &mut chase)?,
                loopback::mb_per_s(cpus[0], cpus[cpus.len() - 1], time)? * 1e6,
                writes(4 << 10, time)?,
                writes(256 << 10, time)? * f64::from(256 << 10),
                writes(1 << 20, time)? * f64::from(1 << 20),
            ];
            for Part(name, unit, each, limit, work) in &mut parts {
                let limit = limits[*limit as usize] / *each;
                let scale = if *unit == "per s" { 1.0 } else { 1e6 };
                let ours = rate(time, work)?;
                case.sample(*name, more(unit), EPHESUS, ours / scale);
                case.sample(*name, more(unit), LIMIT, limit / scale);
            }
        }
        affinity::confine_current(&cpus).during("running on all CPUs")
    }
}

fn parts(dir: &Path, is_quick: bool) -> Result<Vec<Part>> {
    use Limit::*;
    let (keys, blocks) = match is_quick {
        true => (10_000, 256),
        false => (1_000_000, 16_384),
    };
    let (route, get, put) = memory::table(keys);
    let (one, many) = durable::log(&dir.join("log"))?;
    let image = durable::image(&dir.join("images"), blocks)?;
    let (decode, encode) = (memory::decode_requests(), memory::encode_replies());
    let (pack, unpack) = (memory::encode_blocks(), memory::decode_blocks());
    let (gates, each_key) = (memory::gates(), KEY_BYTES as f64);
    let (mb, million) = ("MB/s", "million/s");
    Ok(vec![
        Part("requests decoded, of TCP", mb, 1.0, Tcp, decode),
        Part("replies encoded, of TCP", mb, 1.0, Tcp, encode),
        Part("keys routed, of memory", million, each_key, Memory, route),
        Part("table, get, of random reads", million, 1.0, Reads, get),
        Part("table, put, of random reads", million, 1.0, Reads, put),
        Part("gates, of random reads", million, 1.0, Reads, gates),
        Part("blocks encoded, of memory", mb, 1.0, Memory, pack),
        Part("blocks decoded, of memory", mb, 1.0, Memory, unpack),
        Part("commits of one record, of syncs", "per s", 1.0, Syncs, one),
        Part("log, of disk", mb, 1.0, Groups, many),
        Part("image, of disk", mb, 1.0, Sequential, image),
    ])
}

/// How much of something is done per second, over at least so long.
fn rate(time: Duration, work: &mut Work) -> Result<f64> {
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
