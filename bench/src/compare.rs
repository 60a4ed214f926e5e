//! Servers side by side, on the same CPUs in turn: Redis, Valkey and Ephesus, which are started, or some that run.

use std::iter;
use std::time::Duration;

use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::load::{Indexes, Mix, Op, Sizes};
use crate::measure::more;
use crate::named::Named;
use crate::record::{Case, EPHESUS, Outputs};
use crate::runner::{Bed, Contestant, LoadArgs, ServerArgs, Session, session};
use crate::server::Durability;

mod images;
mod loads;
mod stores;
#[cfg(test)]
mod tests;

/// One comparison, with what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// SET, pipeline 16, AOF everysec against relaxed
    SetP16Everysec,
    /// SET, pipeline 16, AOF always against strict
    SetP16Always,
    /// GET, pipeline 16
    GetP16,
    /// GET, no pipeline
    GetP1,
    /// SET, no pipeline, AOF always against strict
    SetP1Always,
    /// SET, one connection, AOF always against strict
    SetC1Always,
    /// SET, pipeline 16, on --shards cores (at least two): a server for each in a cluster of Valkey, a shard in Ephesus
    SetP16Cores,
    /// GET, pipeline 16, on as many cores
    GetP16Cores,
    /// latency at 60% of Redis's peak while images are written (Redis: AOF rewrite)
    LatencyImagesP1,
    /// latency at 60% of Redis's peak, pipeline 16, while images are written
    LatencyImagesP16,
    /// resident memory and disk use per key, ten times --keys
    Memory,
    /// restart with ten times --keys on one core, exec to first GET
    #[value(name = "restart-1-core")]
    #[serde(rename = "restart-1-core")]
    RestartOneCore,
    /// restart with ten times --keys on two cores, exec to first GET
    #[value(name = "restart-2-cores")]
    #[serde(rename = "restart-2-cores")]
    RestartTwoCores,
    /// log bytes per SET and write amplification, 1 / 50 / 800 in flight
    LogBytes,
}

/// A load generator besides our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// Redis's own
    RedisBenchmark,
}

/// `ephesus-bench compare`: servers side by side on the same CPUs in turn.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct CompareArgs {
    /// Servers: redis, valkey, ephesus or valkey-cluster, with =PROGRAM or not, or ADDR:PORT of one that runs; the first
    /// Ephesus is compared with the best of the others, and with other builds of Ephesus
    #[arg(value_name = "SERVER", default_values = ["redis", "valkey", "ephesus"])]
    pub contestants: Vec<Contestant>,
    /// Cases to run, comma-separated, with --keys, --value-bytes and --duration; a --preset or --mix is a load of one's own
    /// instead [default: all]
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Question::all(), hide_default_value = true, conflicts_with_all = ["preset", "mix"])]
    pub cases: Vec<Question>,
    /// Another load generator that measures the cases about rate, too, beside this one
    #[arg(long, value_enum)]
    pub driver: Option<Driver>,
    /// Interleaved rounds; a third of them for cases that vary little [default with --quick: 2]
    #[arg(long, default_value_t = 10, default_value_if("quick", "true", "2"), value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Few rounds, a tenth of keys, operations and seconds: checks the tool, measures nothing
    #[arg(long)]
    pub quick: bool,
    /// How servers are reached or started.
    #[command(flatten)]
    #[serde(flatten)]
    pub servers: ServerArgs,
    /// What they get.
    #[command(flatten)]
    #[serde(flatten)]
    pub load: LoadArgs,
    /// Where results go.
    #[command(flatten)]
    #[serde(skip)]
    pub outputs: Outputs,
}

const BEST_PEER: &str = "best peer";
const SHRINK: u64 = 10;

/// What the cases share.
struct Compare<'a> {
    arguments: &'a CompareArgs,
    sizes: Sizes,
}

/// Runs the cases asked for, prints the table and writes the JSON.
///
/// # Errors
/// When a server misbehaves, escapes its cores or loses keys, or the machine lacks what is needed.
pub fn execute(arguments: &CompareArgs) -> Result<()> {
    let mut shorter = arguments.clone();
    let load = &mut shorter.load;
    let full = load.span().duration.unwrap_or(Duration::from_secs(10));
    if arguments.quick {
        load.keys = load.keys.div_ceil(SHRINK);
        load.count = load.count.map(|count| count.div_ceil(SHRINK));
        load.duration = load.count.is_none().then_some(full / SHRINK as u32);
    }
    let compare = Compare {
        sizes: load.value_bytes.clone().unwrap_or(Sizes::Fixed(100)),
        arguments: &shorter,
    };
    let root = (arguments.servers).root(&arguments.contestants, "compare-")?;
    let outputs = (&arguments.outputs, root.as_ref(), arguments.quick);
    session("compare", outputs, &shorter, |session| {
        compare.answer_all(session)
    })
}

impl Compare<'_> {
    fn answer_all(&self, session: &mut Session<'_>) -> Result<()> {
        let load = &self.arguments.load;
        let given = &*self.arguments.contestants;
        if load.preset.is_some() || load.mix.is_some() {
            return self.keep(session, load.case(), given, |session, case| {
                self.custom(session, case)
            });
        }
        self.arguments.cases.iter().try_for_each(|&question| {
            let case = Case::new(question, "");
            eprintln!("== {}: {}", case.name, case.title);
            let contestants = match question {
                Question::SetP16Cores | Question::GetP16Cores => self.on_cores(),
                _ => given.to_vec(),
            };
            self.keep(session, case, &contestants, |session, case| {
                self.answer(question, session, (&contestants, case))
            })
        })
    }

    /// What is compared on more than one core; what takes one alone is compared there.
    fn on_cores(&self) -> Vec<Contestant> {
        let cluster = Contestant::from("valkey-cluster");
        let given = self.arguments.contestants.iter();
        let others = given.filter(|one| one.scales() && **one != cluster);
        iter::once(&cluster).chain(others).cloned().collect()
    }

    /// Keeps what a case has found, however it ends; what the machine has too few CPUs for is unmeasured.
    fn keep(
        &self,
        session: &mut Session<'_>,
        mut case: Case,
        contestants: &[Contestant],
        find: impl FnOnce(&mut Session<'_>, &mut Case) -> Result<()>,
    ) -> Result<()> {
        let mut done = find(session, &mut case);
        if let Err(why @ BenchError::TooFewCpus { .. }) = &done {
            case.unmeasured(("all", more("")), contestants, why);
            done = Ok(());
        }
        let rows = case.rows.iter();
        let mut names: Vec<String> = rows.flat_map(|row| row.samples.keys().cloned()).collect();
        names.sort();
        let is_ephesus = |name: &str| name.starts_with(EPHESUS);
        let subject = names.iter().find(|name| is_ephesus(name)).or(names.last());
        case.judge(subject.map_or(EPHESUS, String::as_str), BEST_PEER, |peer| {
            if is_ephesus(peer) { peer } else { BEST_PEER }.to_owned()
        });
        session.put(case)?;
        done
    }

    fn answer(
        &self,
        question: Question,
        session: &mut Session<'_>,
        (contestants, case): (&[Contestant], &mut Case),
    ) -> Result<()> {
        match question {
            Question::SetP16Everysec
            | Question::SetP16Always
            | Question::GetP16
            | Question::GetP1
            | Question::SetP1Always
            | Question::SetC1Always
            | Question::SetP16Cores
            | Question::GetP16Cores => self.rate(question, session, (contestants, case)),
            Question::LatencyImagesP1 => self.while_imaging(1, session, case),
            Question::LatencyImagesP16 => self.while_imaging(16, session, case),
            Question::Memory => self.memory_per_key(session, case),
            Question::RestartOneCore => self.restart(1, session, case),
            Question::RestartTwoCores => self.restart(2, session, case),
            Question::LogBytes => self.amplification(session, case),
        }
    }

    /// Those that are started here, which alone can be looked into.
    fn own(&self, case: &mut Case) -> Vec<Contestant> {
        let all = self.arguments.contestants.iter();
        let (own, others): (Vec<_>, Vec<_>) = all.cloned().partition(Contestant::is_started);
        for other in others {
            let name = &other.name;
            case.note(format!("{name}: unmeasured: it was not started here"));
        }
        own
    }

    /// Starts contestants and loads so many keys.
    fn bed(
        &self,
        session: &mut Session<'_>,
        contestants: &[Contestant],
        (cpus, durability, keys): ([u16; 2], Durability, u64),
    ) -> Result<Bed> {
        let contestants = (&self.arguments.servers, contestants);
        Bed::start(session, contestants, (cpus, durability), |driven| {
            let workload = &mut driven.plan.workload;
            workload.mix = Mix::of(&[(Op::Write, 1)]);
            workload.keys = Indexes::Below(keys);
            workload.sizes = self.sizes.clone();
            self.arguments.load.fill(driven)
        })
    }

    /// So many operations, or fewer with `--quick`.
    fn operations(&self, full: u64) -> u64 {
        full / if self.arguments.quick { SHRINK } else { 1 }
    }

    fn large_keys(&self) -> u64 {
        self.arguments.load.keys * 10
    }

    fn long_rounds(&self) -> u32 {
        self.arguments.rounds.div_ceil(3)
    }
}
