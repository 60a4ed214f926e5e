use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::error::{During, Result};
use crate::locate;
use crate::measure::more;
use crate::record::{Axis, Case, Kind, Latencies, Outputs, Plot, Run, Series};
use crate::runner::session;
use crate::stats::number;

use super::refuse_memory;
use super::scratch::{BLOCK_BYTES, Driven, GROUP_BYTES, Scratch};

#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct DiskArgs {
    /// Directory on the disk, which gets a file of 64 MiB meanwhile
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Seconds of all measurements together
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    #[serde(skip)]
    outputs: Outputs,
}

const KIB: [usize; 5] = [4, 16, 64, 256, 1024];
const IN_FLIGHT: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Shares of the time: for each way to make 4 KiB durable, and for each size and number in flight.
const LATENCY_SHARE: f64 = 0.125;
const CELL_SHARE: f64 = (1.0 - 2.0 * LATENCY_SHARE) / (KIB.len() * IN_FLIGHT.len()) as f64;
/// Clients of the example, whose records fill a group of 16 KiB at most.
const CLIENTS: f64 = 50.0;

const DSYNC: &str = "O_DSYNC write";
const FDATASYNC: &str = "write + fdatasync";

#[derive(Default)]
struct Found {
    is_direct: bool,
    latencies: BTreeMap<String, Latencies>,
    cells: Vec<(usize, usize, Driven)>,
}

impl DiskArgs {
    pub fn execute(&self) -> Result<()> {
        let dir = std::path::absolute(&self.dir).during("DIR")?;
        refuse_memory("DIR", &dir)?;
        let dir = locate::dir_in(&dir, "ephesus-disk-")?;
        let mut found = Found::default();
        let outputs = (&self.outputs, Some(&dir), false);
        session("disk", outputs, self, |session| {
            let done = found.fill(dir.path(), Duration::from_secs(self.seconds));
            session.put(found.for_strict())?;
            session.put(found.sequential())?;
            done
        })
    }
}

impl Found {
    fn fill(&mut self, dir: &Path, all: Duration) -> Result<()> {
        let scratch = Scratch::new(dir)?;
        self.is_direct = scratch.is_direct;
        let (small, share) = ((BLOCK_BYTES, 1), all.mul_f64(LATENCY_SHARE));
        let mut keep = |way: &str, driven: Driven| {
            self.latencies.insert(way.to_owned(), driven.latencies);
        };
        keep(DSYNC, scratch.write(small, share)?);
        keep(FDATASYNC, scratch.write_and_sync(small, share)?);
        for kib in KIB {
            for in_flight in IN_FLIGHT {
                let driven = scratch.write((kib << 10, in_flight), all.mul_f64(CELL_SHARE))?;
                self.cells.push((kib, in_flight, driven));
            }
        }
        Ok(())
    }

    fn cell(&self, kib: usize, in_flight: usize) -> Option<&Driven> {
        let mut cells = self.cells.iter();
        let found = cells.find(|(size, many, _)| (*size, *many) == (kib, in_flight));
        found.map(|(_, _, driven)| driven)
    }

    /// Latency of the smallest group, and what follows from it.
    fn for_strict(&self) -> Case {
        let path = match self.is_direct {
            true => "O_DIRECT",
            false => "through the page cache",
        };
        let run = |(way, latencies): (&String, &Latencies)| Run {
            server: way.clone(),
            elapsed_s: latencies.mean_us() * latencies.count() as f64 / 1e6,
            operations: BTreeMap::from([("4 KiB".to_owned(), latencies.clone())]),
            ..Run::default()
        };
        let mut case = Case {
            name: "strict".to_owned(),
            title: "what the disk allows --durability strict".to_owned(),
            how: format!("4 KiB, {path}, one at a time, into a file that is filled with zeroes."),
            runs: self.latencies.iter().map(run).collect(),
            ..Case::default()
        };
        let group = self.cell(16, 1).map(|cell| cell.latencies.us(0.5));
        let most = (self.cells.iter())
            .map(|(_, _, driven)| driven.mb_per_s)
            .reduce(f64::max);
        if let (Some(sync), Some(group), Some(most)) = (self.latencies.get(DSYNC), group, most) {
            let (one, grouped) = (1e6 / sync.us(0.5), CLIENTS * 1e6 / group);
            for (name, unit, value) in [
                ("commits, one connection", "per s", one),
                ("commits, 50 connections in groups", "per s", grouped),
                ("log", "MB/s", most),
            ] {
                case.sample(name, more(unit), "at most", value);
            }
            case.judge("at most", "", str::to_owned);
            case.how += &format!(
                " A reply under strict waits for one durable write. One connection that waits for each reply commits at \
                 most {} times per s, and one in a hundred commits takes over {} us. What arrives while a group is \
                 written is the next group: {CLIENTS} such connections, whose records fit into 16 KiB, share a write of {} us, \
                 so they commit up to {} times per s together. Many connections, or large values, are bounded by \
                 bytes: the logs of all shards write {} MB/s at most.",
                number(one),
                number(sync.us(0.99)),
                number(group),
                number(grouped),
                number(most)
            );
        }
        case
    }

    fn sequential(&self) -> Case {
        let mut case = Case {
            name: "sequential".to_owned(),
            title: "durable sequential writes by size and number in flight".to_owned(),
            how: "O_DSYNC, one writer per write in flight.".to_owned(),
            ..Case::default()
        };
        for kib in KIB {
            for (_, in_flight, driven) in self.cells.iter().filter(|cell| cell.0 == kib) {
                // Columns are in the order of their names.
                let column = format!("{in_flight:>2} in flight");
                let name = format!("{kib} KiB");
                case.sample(name, more("MB/s"), column, driven.mb_per_s);
            }
        }
        case.judge("", "", |_| String::new());
        let plot = |title: &str, y, value: fn(&Driven) -> f64| {
            let of = |kib: usize| {
                let cells = self.cells.iter().filter(move |cell| cell.0 == kib);
                let points = cells.map(|(_, many, driven)| [*many as f64, value(driven)]);
                Series::new(format!("{kib} KiB"), points)
            };
            let axes = [Axis::log("writes in flight", ""), y];
            Plot::new(title, Kind::Curve, axes, KIB.map(of).to_vec())
        };
        let p99 = "99th percentile until durable";
        case.plots = vec![
            plot("Rate", Axis::log("MB/s", ""), |driven| driven.mb_per_s),
            plot(p99, Axis::log("", "us"), |driven| driven.latencies.us(0.99)),
        ];
        case
    }
}

const _: () = assert!(KIB[KIB.len() - 1] << 10 == GROUP_BYTES);
