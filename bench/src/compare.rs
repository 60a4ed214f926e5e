//! Servers side by side, on the same CPUs in turn: Redis, Valkey and Ephesus, which are started, or some that run.

use std::time::Duration;
use std::{iter, mem};

use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::load::{Indexes, Mix, Op, Sizes};
use crate::measure::more;
use crate::named::Named;
use crate::record::{Case, EPHESUS};
use crate::runner::{Bed, BenchArgs, Contestant, Session};
use crate::server::Durability;

mod loads;
mod stores;
#[cfg(test)]
mod tests;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// Redis's own
    RedisBenchmark,
}

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
    #[command(flatten)]
    #[serde(flatten)]
    pub with: BenchArgs,
}

const BEST_PEER: &str = "best peer";
const SHRINK: u64 = 10;

impl CompareArgs {
    pub fn execute(&self) -> Result<()> {
        let mut shorter = self.clone();
        let load = &mut shorter.with.load;
        let full = load.span().duration.unwrap_or(Duration::from_secs(10));
        if self.quick {
            load.keys = load.keys.div_ceil(SHRINK);
            load.pace.count = load.pace.count.map(|count| count.div_ceil(SHRINK));
            load.duration = load.pace.count.is_none().then_some(full / SHRINK as u32);
        }
        let settings = ("compare", self.quick);
        self.with
            .session(settings, &self.contestants, &shorter, |session| {
                shorter.answer_all(session)
            })
    }

    fn answer_all(&self, session: &mut Session<'_>) -> Result<()> {
        let load = &self.with.load;
        let mut answer = Answer {
            arguments: self,
            contestants: self.contestants.clone(),
            case: load.case(),
            session,
        };
        if load.preset.is_some() || load.mix.is_some() {
            let done = answer.custom();
            return answer.keep(done);
        }
        self.cases.iter().try_for_each(|&question| {
            answer.case = Case::new(question);
            answer.contestants.clone_from(&self.contestants);
            eprintln!("== {}: {}", answer.case.name, answer.case.title);
            let done = match question {
                Question::LatencyImagesP1 => answer.while_imaging(1),
                Question::LatencyImagesP16 => answer.while_imaging(16),
                Question::Memory => answer.memory_per_key(),
                Question::RestartOneCore => answer.restart(1),
                Question::RestartTwoCores => answer.restart(2),
                Question::LogBytes => answer.amplification(),
                _ => answer.rate(question),
            };
            answer.keep(done)
        })
    }

    /// What is compared on more than one core; what takes one alone is compared there.
    fn on_cores(&self) -> Vec<Contestant> {
        let cluster = Contestant::from("valkey-cluster");
        let given = self.contestants.iter();
        let others = given.filter(|one| one.scales() && **one != cluster);
        iter::once(&cluster).chain(others).cloned().collect()
    }

    fn sizes(&self) -> Sizes {
        let given = self.with.load.value_bytes.clone();
        given.unwrap_or(Sizes::fixed(100))
    }

    fn operations(&self, full: u64) -> u64 {
        full / if self.quick { SHRINK } else { 1 }
    }

    fn large_keys(&self) -> u64 {
        self.with.load.keys * 10
    }

    fn long_rounds(&self) -> u32 {
        self.rounds.div_ceil(3)
    }
}

/// A case that is being measured.
struct Answer<'a, 's> {
    arguments: &'a CompareArgs,
    session: &'a mut Session<'s>,
    contestants: Vec<Contestant>,
    case: Case,
}

impl Answer<'_, '_> {
    /// Keeps what a case has found, however it ended; what the machine has too few CPUs for is unmeasured.
    fn keep(&mut self, mut done: Result<()>) -> Result<()> {
        let mut case = mem::take(&mut self.case);
        if let Err(why @ BenchError::TooFewCpus(_)) = &done {
            case.unmeasured(("all", more("")), &self.contestants, why);
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
        self.session.put(case)?;
        done
    }

    /// Leaves those that are started here, which alone can be looked into.
    fn keep_own(&mut self) {
        let is_own = Contestant::is_started;
        for other in self.contestants.iter().filter(|one| !is_own(one)) {
            let why = "unmeasured: it was not started here";
            self.case.note(format!("{}: {why}", other.name));
        }
        self.contestants.retain(is_own);
    }

    /// Starts these, each with so many CPUs, and loads so many keys.
    fn bed(
        &mut self,
        contestants: &[Contestant],
        (cpus, durability, keys): ([u16; 2], Durability, u64),
    ) -> Result<Bed> {
        let with = &self.arguments.with;
        let (servers, how) = ((&with.servers, contestants), (cpus, durability));
        Bed::start(self.session, servers, how, |driven| {
            let workload = &mut driven.plan.workload;
            workload.mix = Mix::of(&[(Op::Write, 1)]);
            workload.keys = Indexes::Below(keys);
            workload.sizes = self.arguments.sizes();
            with.load.fill(driven)
        })
    }
}
