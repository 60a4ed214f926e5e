//! What `run`, `sweep`, `compare`, `cluster` and `migrate` share: contestants in rounds, fairly, and a record of it.
//!
//! In a round every contestant is driven once, in an order that rotates, and ratios are formed within the round, so that
//! drift of the machine hits both sides of a pair. Contestants that are not driven are waited for until idle, and what
//! they still use is counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use crate::error::{BenchError, During, Result};
use crate::load::{Outcome, Phase, Plan, Span};
use crate::measure::{CLIENT_BUSY, CPU_PER_OP, Goal, less, more};
use crate::procfs::CpuMark;
use crate::record::{Case, Event, Outputs, Record, Run, ServerRecord};
use crate::server::Durability;
use crate::{affinity, disk, interrupt, locate, resp};

use contestant::Setup;
pub use contestant::{Contestant, Driven, ServerArgs, join};
pub use load::{LoadArgs, drive, how};

mod contestant;
mod load;
mod preset;
#[cfg(test)]
mod tests;
mod watch;

/// How long background work of an earlier turn is waited for.
const QUIET_TIMEOUT: Duration = Duration::from_secs(120);
/// How long once a server has shown that it never becomes idle.
const RESTLESS_TIMEOUT: Duration = Duration::from_secs(1);
/// A peer's AOF above this is rewritten between turns, outside every measurement.
const AOF_BYTES_MAX: u64 = 2 << 30;
/// Share of a core that idle servers may use before the turn is marked.
const IDLE_BUSY_MAX: f64 = 0.03;

/// What subcommands share that put a load on servers.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct BenchArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub servers: ServerArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    #[serde(skip)]
    pub outputs: Outputs,
}

/// What subcommands share that start what they measure in their own way.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct SiteArgs {
    /// Little data and few rounds: checks the tool, measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Directory for data, on a real disk [default: a temporary one below target]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    #[serde(skip)]
    pub outputs: Outputs,
}

/// What a subcommand has found so far, and where it goes.
#[derive(Debug)]
pub struct Session<'a> {
    pub record: Record,
    outputs: &'a Outputs,
    dir: Option<&'a TempDir>,
}

impl Session<'_> {
    /// Adds a case and writes the files that were asked for.
    pub fn put(&mut self, case: Case) -> Result<()> {
        self.record.put(case);
        self.outputs.save(&self.record)
    }
}

/// Does the work of a subcommand, with data in `dir` if there is any, and publishes what was found however it ends.
pub fn session(
    tool: &str,
    (outputs, dir, is_quick): (&Outputs, Option<&TempDir>, bool),
    settings: &impl Serialize,
    work: impl FnOnce(&mut Session<'_>) -> Result<()>,
) -> Result<()> {
    outputs.prepare()?;
    let on = dir.map_or(std::env::temp_dir(), |dir| dir.path().to_owned());
    let mut record = Record::new(tool, &on, settings)?;
    record.is_quick = is_quick;
    let mut session = Session {
        record,
        outputs,
        dir,
    };
    let done = work(&mut session);
    outputs.publish(session.record, done)
}

impl BenchArgs {
    /// The session of a subcommand with these servers.
    pub fn session(
        &self,
        (tool, is_quick): (&str, bool),
        contestants: &[Contestant],
        settings: &impl Serialize,
        work: impl FnOnce(&mut Session<'_>) -> Result<()>,
    ) -> Result<()> {
        let is_started = contestants.iter().any(Contestant::is_started);
        let root = || locate::data_root(self.servers.dir.as_deref(), &format!("{tool}-"));
        let root = is_started.then(root).transpose()?;
        let outputs = (&self.outputs, root.as_ref(), is_quick);
        session(tool, outputs, settings, work)
    }

    /// Starts or reaches servers that sync once a second, and gives them this load.
    pub fn bed(
        &self,
        session: &mut Session<'_>,
        contestants: &[Contestant],
        shards: u16,
    ) -> Result<Bed> {
        let how = ([shards; 2], Durability::EverySecond);
        Bed::start(session, (&self.servers, contestants), how, |driven| {
            driven.plan = self.load.plan(driven.plan.clone())?;
            self.load.fill(driven)
        })
    }
}

/// Does something with every contestant in every round, in an order that rotates.
pub fn rounds<T>(count: u32, all: &[T], mut each: impl FnMut(u32, &T) -> Result<()>) -> Result<()> {
    for round in 0..count {
        let (later, first) = all.split_at(round as usize % all.len().max(1));
        for one in first.iter().chain(later) {
            interrupt::check()?;
            each(round, one)?;
        }
    }
    Ok(())
}

#[derive(Debug)]
pub struct Bed {
    pub all: Vec<Driven>,
    pub setup: Setup,
    dir: Option<TempDir>,
    /// CPUs of this process; while servers are driven that were started here those of clients alone are used.
    allowed: Vec<usize>,
    quiet_timeout: Cell<Duration>,
    /// What clients had written to each Ephesus when it was last left alone.
    settled_bytes: RefCell<BTreeMap<u32, u64>>,
}

impl Bed {
    /// Starts or reaches each contestant in turn, and loads it by what `prepare` does; what is started has so many CPUs,
    /// and the load generator has so many.
    pub fn start(
        session: &mut Session<'_>,
        (arguments, contestants): (&ServerArgs, &[Contestant]),
        (cpus, durability): ([u16; 2], Durability),
        prepare: impl Fn(&mut Driven) -> Result<()>,
    ) -> Result<Self> {
        let setup = Setup::of(contestants, cpus, durability)?;
        let dir = session.dir.map(|dir| locate::dir_in(dir.path(), "bed-"));
        let dir = dir.transpose()?;
        let path = dir.as_ref().map_or(Path::new(""), TempDir::path);
        let mut all: Vec<Driven> = Vec::new();
        for one in contestants {
            let mut driven = arguments.start(one, &setup, path)?;
            let described = driven.describe()?;
            // One that runs has the name of its product, if nobody else has it.
            let is_free = all.iter().all(|other| other.name != described.name);
            if is_free {
                driven.name.clone_from(&described.name);
            }
            let name = driven.name.clone();
            session
                .record
                .add_server(ServerRecord { name, ..described });
            prepare(&mut driven)?;
            driven.wait_quiet(QUIET_TIMEOUT)?;
            all.push(driven);
        }
        let allowed = affinity::allowed()?;
        if !setup.client_cpus.is_empty() {
            affinity::confine_current(&setup.client_cpus).during("confining the client")?;
        }
        Ok(Bed {
            all,
            setup,
            dir,
            allowed,
            quiet_timeout: Cell::new(QUIET_TIMEOUT),
            settled_bytes: RefCell::default(),
        })
    }

    /// Where those that were started here have their data.
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// Waits until all are idle, runs something on one, checks that it stayed on its CPUs and that the others stayed idle.
    pub fn turn<T>(
        &self,
        driven: &Driven,
        case: &mut Case,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<(T, ServerCpu)> {
        interrupt::check()?;
        self.settle(case)?;
        let others = self.all.iter().filter(|other| other.name != driven.name);
        let idle = others.map(Driven::cpu_marks).collect::<Result<Vec<_>>>()?;
        let marks = driven.cpu_marks()?;
        let started = Instant::now();
        let value = run()?;
        let wall = started.elapsed();
        let used = |marks: &[CpuMark]| -> Result<Duration> {
            marks.iter().map(|mark| mark.elapsed()).sum()
        };
        let during = used(&marks)?;
        let idle_busy = used(&idle.concat())?.as_secs_f64() / wall.as_secs_f64();
        driven.verify_confined()?;
        if idle_busy > IDLE_BUSY_MAX {
            let (percent, name) = (idle_busy * 100.0, &driven.name);
            case.note(format!(
                "idle servers used {percent:.0}% of a core while {name} was driven"
            ));
        }
        let after = driven.cpu_marks()?;
        driven.wait_quiet(self.quiet_timeout.get())?;
        let cpu = match marks.is_empty() {
            true => None,
            false => Some([during, used(&after)?]),
        };
        Ok((value, cpu))
    }

    /// Waits until all are idle, with nothing left to do that they begin by themselves.
    fn settle(&self, case: &mut Case) -> Result<()> {
        for driven in &self.all {
            for server in &driven.servers {
                let info = server.info("persistence")?;
                let number = |name| resp::info_number(&info, name).unwrap_or(0);
                // Ephesus images what was written once clients pause: not while another is driven.
                let written = number("wal_user_bytes");
                let before = self
                    .settled_bytes
                    .borrow_mut()
                    .insert(server.pid().0, written);
                let is_new = self.all.len() > 1 && before.unwrap_or(0) != written;
                if is_new || number("aof_current_size") > AOF_BYTES_MAX {
                    server.settle()?;
                }
            }
            if !driven.wait_quiet(self.quiet_timeout.get())? {
                self.quiet_timeout.set(RESTLESS_TIMEOUT);
                case.note(format!("{} did not become idle before a run", driven.name));
            }
        }
        let dir = self.dir.as_ref();
        dir.map_or(Ok(()), |dir| disk::settle(dir.path()))
    }

    /// One load in a turn of its own; what goes wrong in it is in its outcome.
    pub fn load(
        &self,
        driven: &Driven,
        case: &mut Case,
        (plan, span, label): (&Plan, Span, &str),
    ) -> Result<Loaded> {
        self.load_by(driven, case, (plan, label), || drive(plan, span))
    }

    pub fn load_by(
        &self,
        driven: &Driven,
        case: &mut Case,
        (plan, label): (&Plan, &str),
        run: impl FnOnce() -> Result<(Outcome, Vec<Event>)>,
    ) -> Result<Loaded> {
        let ((outcome, events), cpu) = self.turn(driven, case, run)?;
        let run = outcome.run(&driven.name, label, plan.pace.rate);
        let run = Run { events, ..run };
        Ok(Loaded { outcome, run, cpu })
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // They were allowed before.
        let _ = affinity::confine_current(&self.allowed);
    }
}

/// CPU time of a server during a run and afterwards until it was idle, if it was started here.
pub type ServerCpu = Option<[Duration; 2]>;

#[derive(Debug)]
pub struct Loaded {
    pub outcome: Outcome,
    pub run: Run,
    pub cpu: ServerCpu,
}

/// What figures of a load are to reach: the latter of 99th and 99.9th percentiles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Goals {
    pub rate: Option<Goal>,
    pub cpu: Option<Goal>,
    pub latency: Option<Goal>,
}

impl Loaded {
    /// Says what it came to, while others are still to come.
    pub fn tell(&self) {
        let rate = self.outcome.per_s(Phase::Before);
        let p99_us = self.outcome.all(Phase::Before).us(0.99);
        let (name, busy) = (self.run.name(), self.outcome.run.client_busy * 100.0);
        eprintln!("   {name}: {rate:.0} op/s, p99 {p99_us:.0} us, client {busy:.0}% busy");
    }

    /// The same, if nothing went wrong and every read has found something: no server is fast at finding nothing.
    pub fn flawless(mut self) -> Result<Self> {
        self.outcome.judge()?;
        let (misses, sent) = (self.outcome.run.misses, self.outcome.sent);
        match misses {
            0 => Ok(self),
            _ => Err(BenchError::keys(&self.run.server, sent - misses, sent)),
        }
    }

    /// Adds its figures to a case, and the run itself if it is the first of its server.
    pub fn record(self, case: &mut Case, goals: Goals) {
        self.tell();
        let (outcome, server) = (&self.outcome, &*self.run.server);
        let all = outcome.all(Phase::Before);
        let mut sample = |name, scale, value| case.sample(name, scale, server, value);
        let per_op = |cpu| outcome.us_per_op(cpu);
        let rate = more("op/s").to(goals.rate);
        sample("rate", rate, outcome.per_s(Phase::Before));
        if let Some([during, after]) = self.cpu {
            sample(CPU_PER_OP, less("us").to(goals.cpu), per_op(during));
            sample("CPU per op after the run", less("us"), per_op(after));
        }
        sample("p50", less("ms"), all.us(0.5) / 1e3);
        for (name, q) in [("p99", 0.99), ("p99.9", 0.999)] {
            sample(name, less("ms").to(goals.latency), all.us(q) / 1e3);
        }
        sample("client CPU per op", less("us"), per_op(outcome.client_cpu));
        sample(CLIENT_BUSY, less("share"), outcome.run.client_busy);
        if case.runs.iter().all(|run| run.server != self.run.server) {
            case.runs.push(self.run);
        }
    }
}
