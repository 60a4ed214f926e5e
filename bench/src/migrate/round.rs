use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ephesus_wire::limits::SLOTS;
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::load::{Indexes, Ledger, Mix, Op, Outcome as Found, Phase, Plan, Running, Sizes, Span};
use crate::procfs::{self, CpuMark, Pid};
use crate::record::ServerRecord;
use crate::resp::Connection;
use crate::server::Durability;
use crate::{disk, fresh_memory, interrupt, prefill};

use super::{Bench, Shape};

pub(super) const CONNECTIONS: usize = 50;
pub(super) const PIPELINE: u32 = 16;
/// Between two looks at a move, at least.
const LOOK: Duration = Duration::from_millis(2);
/// Who looks sleeps for so many times as long as its look took: answering costs servers as much, on the
/// CPUs that move the data.
const SLEEP_PER_LOOK: u32 = 20;
/// And looks no more often than so many times in the time a move has taken so far, which is how precisely that
/// is known: nobody looks before a move, with which latencies are compared.
const LOOKS_PER_TIME: u32 = 200;
/// A move that takes longer does not converge.
const MOVE_TIMEOUT: Duration = Duration::from_secs(180);
/// Before latencies are measured the disk has answered in time for so long, or it is waited for so long.
const CALM: Duration = Duration::from_secs(7);
const CALM_WITHIN: Duration = Duration::from_secs(90);
const WARM_UP: Duration = Duration::from_secs(1);
/// How long a source may take to drop what it gave away.
const DROP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Outcome {
    /// Keys that moved, and bytes of these keys and their values.
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) course: Course,
    pub(super) said: Said,
    /// Of source and target, if they run here.
    pub(super) ends: Option<[End; 2]>,
    pub(super) writers: Option<Found>,
}

#[derive(Debug, Default)]
pub(super) struct Course {
    /// Why it has failed; then nothing but what clients saw is known.
    pub(super) failure: Option<String>,
    /// From the last look at which nothing was copied to the end.
    pub(super) copying: Duration,
    pub(super) whole: Duration,
    /// Seconds since the order, and what had arrived by then in a unit of the pair's own.
    pub(super) arrived: Vec<[f64; 2]>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// CPU time during the move, forks included.
    pub(super) cpu: Duration,
    /// The most memory above what it had before.
    pub(super) growth_bytes: u64,
}

/// Who moves data, and how durable it is meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Contestant {
    /// Ephesus: what the target has confirmed is on its disk.
    Ephesus,
    /// Valkey in memory alone.
    Valkey,
    /// Valkey with an AOF that is synced once a second.
    ValkeyEverysec,
    /// Valkey with an AOF that is synced before replies.
    ValkeyAlways,
}

impl Contestant {
    /// Its AOF, if it is a Valkey with one.
    pub(super) fn aof(self) -> Option<Durability> {
        match self {
            Contestant::Ephesus | Contestant::Valkey => None,
            Contestant::ValkeyEverysec => Some(Durability::EverySecond),
            Contestant::ValkeyAlways => Some(Durability::Always),
        }
    }
}

/// How far a move is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Copying,
    /// The target owns everything that was to move.
    Done,
    /// It has ended otherwise, and why.
    Failed(String),
}

/// What the servers themselves say of a move that has ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// When writes were held, in seconds since the order, and for how long, ms: a pair for each part of the move.
    pub(super) holds: Vec<[f64; 2]>,
    pub(super) retries: u64,
    pub(super) forked_bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) entries: [SocketAddr; 2],
    /// Their processes; none: they run elsewhere.
    pub(super) pids: Option<[Pid; 2]>,
    /// By slot whether it is going to move; none: the source does not have it.
    pub(super) slots: Vec<Option<bool>>,
}

impl Ends {
    pub(super) fn new(entries: [SocketAddr; 2], pids: Option<[Pid; 2]>) -> Self {
        let slots = vec![None; usize::from(SLOTS)];
        Ends {
            entries,
            pids,
            slots,
        }
    }

    /// The source has these slots, the ends of the range included, of those that there are.
    pub(super) fn add(&mut self, first: u16, last: u16, moves: bool) {
        let slots = self.slots.get_mut(usize::from(first)..=usize::from(last));
        slots.unwrap_or_default().fill(Some(moves));
    }
}

/// Two servers of one cluster, one of which gives data to the other.
pub(super) trait Pair {
    fn ends(&self) -> &Ends;
    /// Waits until both have done what is left to do after writes.
    fn settle(&self) -> Result<()>;
    fn order(&mut self) -> Result<()>;
    /// How far it is so many seconds after the order, and a number that grows from 0 in proportion to what has arrived.
    fn look(&mut self, at_s: f64) -> Result<(Stage, u64)>;
    fn said(&mut self) -> Result<Said>;
    /// Begins to bring back what has arrived; false: nobody needs that, since the servers end with the round.
    fn order_back(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn described(&self) -> Vec<ServerRecord>;

    fn keys(&self) -> Result<[u64; 2]> {
        let [source, target] = self.ends().entries;
        let count = |address| Connection::open(address)?.integer(&["DBSIZE"]);
        Ok([count(source)?, count(target)?])
    }
}

/// Loads the source, moves half of it, and checks that all is where it belongs.
pub(super) fn run(pair: &mut dyn Pair, shape: Shape, bench: &Bench) -> Result<Outcome> {
    let ends = pair.ends().clone();
    let ([source, target], is_ours) = (ends.entries, ends.pids.is_some());
    let moves = |index: &u32| ends.slots[prefill::slot_of_key(u64::from(*index))];
    let owned = (0..u32::MAX).filter(|index| moves(index).is_some());
    let all: Vec<u32> = owned.take(shape.keys as usize).collect();
    let (moving, staying): (Vec<u32>, _) = all.iter().partition(|i| moves(i) == Some(true));
    let keys = moving.len() as u64;
    let mut values = Plan::new(source);
    values.workload.sizes = Sizes::fixed(shape.value_bytes);
    let keys_max = all.last().map_or(0, |last| u64::from(*last) + 1);
    values.workload.ledger = Some(Arc::new(Ledger::new(0, keys_max)));
    let all = Indexes::These(all.into());
    prefill::each(values.clone(), Op::Write, all.clone())?;
    pair.settle()?;
    if is_ours {
        await_keys(pair, [shape.keys, 0])?;
    }
    let written = match shape.writes {
        Some(0) => staying,
        _ => moving.clone(),
    };
    let mut writers = Writers::start(source, shape, written, bench)?;
    writers.enter(Phase::Before, shape.load_time())?;
    if is_ours && shape.writes.is_none() {
        // Loading has taken what was touched before the servers began.
        fresh_memory::touch(shape.memory_bytes() / 2);
    }
    let marks = ends.pids.iter().flatten().copied().map(mark);
    let marks = marks.collect::<Result<Vec<_>>>()?;
    writers.enter(Phase::During, Duration::ZERO)?;
    let began = Instant::now();
    pair.order()?;
    let course = follow(pair, began, &mut || writers.look())?;
    let costs = marks.into_iter().map(cost).collect::<Result<Vec<End>>>()?;
    writers.enter(Phase::After, shape.load_time())?;
    let writers = writers.end()?;
    if is_ours && course.failure.is_none() {
        await_keys(pair, [shape.keys - keys, keys])?;
        if writers.is_none() {
            values.target = target.into();
            prefill::each(values, Op::Read, Indexes::These(moving.into()))?;
        }
    }
    let said = pair.said()?;
    if pair.order_back()? {
        // A cluster that runs is left as it was: the partitions where they were, and none of the keys.
        if let Some(why) = follow(pair, Instant::now(), &mut || Ok(()))?.failure {
            return Err(BenchError::failed("the move back", why));
        }
        prefill::each(Plan::new(source), Op::Delete, all)?;
    }
    Ok(Outcome {
        keys,
        bytes: keys * shape.entry_bytes(),
        course,
        said,
        ends: costs.try_into().ok(),
        writers,
    })
}

/// Clients that write, if there are any, on the CPUs of the servers, as there are no others.
struct Writers(Option<Running>);

impl Writers {
    fn start(source: SocketAddr, shape: Shape, keys: Vec<u32>, bench: &Bench) -> Result<Self> {
        let Some(rate) = shape.writes else {
            return Ok(Writers(None));
        };
        if keys.is_empty() {
            return Err(BenchError::failed("--keys", "leaves nothing to write"));
        }
        if !shape.is_quick && !disk::await_calm(bench.root.path(), CALM, CALM_WITHIN)? {
            eprintln!("   the disk has not been calm within {CALM_WITHIN:?}");
        }
        let mut plan = Plan::new(source);
        plan.pace.rate = rate;
        plan.pace.connections = CONNECTIONS;
        plan.pace.pipeline = PIPELINE;
        plan.workload.mix = Mix::of(&[(Op::Write, 1)]);
        plan.workload.keys = Indexes::These(keys.into());
        plan.workload.sizes = Sizes::fixed(shape.value_bytes);
        let mut writers = Writers(Some(Running::start(plan, Span::OPEN)?));
        writers.enter(Phase::WarmUp, WARM_UP)?;
        Ok(writers)
    }

    /// What is due from now on belongs to this phase, which lasts so long at least.
    fn enter(&mut self, phase: Phase, duration: Duration) -> Result<()> {
        if let Some(load) = &mut self.0 {
            load.enter(phase);
            interrupt::wait_until(duration, POLL, || self.look().map(|()| false))?;
        }
        Ok(())
    }

    /// Keeps what was seen in each second; fails when writes have ended by themselves.
    fn look(&mut self) -> Result<()> {
        match self.0.as_mut().is_some_and(Running::look) {
            false => Ok(()),
            true => Err(BenchError::failed("writes", "they have ended early")),
        }
    }

    fn end(self) -> Result<Option<Found>> {
        let ended = self.0.map(|load| {
            load.end();
            load.finish(|_| {}).complete()
        });
        ended.transpose()
    }
}

/// Looks at a move that was ordered then until it has ended; calls `meanwhile` at each look.
fn follow(
    pair: &mut dyn Pair,
    began: Instant,
    meanwhile: &mut dyn FnMut() -> Result<()>,
) -> Result<Course> {
    let mut idle_until = began;
    let mut course = Course::default();
    loop {
        interrupt::check()?;
        meanwhile()?;
        let looked = Instant::now();
        let at_s = (looked - began).as_secs_f64();
        let (stage, arrived) = pair.look(at_s)?;
        if stage == Stage::Waiting {
            idle_until = looked;
        }
        course.copying = idle_until.elapsed();
        course.whole = began.elapsed();
        course.arrived.push([at_s, arrived as f64]);
        course.failure = match stage {
            Stage::Done => return Ok(course),
            Stage::Failed(why) => Some(why),
            Stage::Waiting | Stage::Copying => (course.whole > MOVE_TIMEOUT)
                .then(|| format!("not done after {} s", MOVE_TIMEOUT.as_secs())),
        };
        if course.failure.is_some() {
            return Ok(course);
        }
        let pause = LOOK.max(SLEEP_PER_LOOK * looked.elapsed());
        thread::sleep(pause.max(course.whole / LOOKS_PER_TIME));
    }
}

/// What a server has used, and its resident memory, by now.
fn mark(pid: Pid) -> Result<(CpuMark, u64)> {
    procfs::reset_peak(pid)?;
    let [resident_bytes, _] = procfs::resident_bytes(pid)?;
    Ok((CpuMark::of(pid)?, resident_bytes))
}

/// What it has used since; forks that copied data have ended before the end of a move.
fn cost((mark, before): (CpuMark, u64)) -> Result<End> {
    let [_, peak] = procfs::resident_bytes(mark.pid)?;
    Ok(End {
        cpu: mark.elapsed()?,
        growth_bytes: peak.saturating_sub(before),
    })
}

/// Waits until source and target have exactly the keys that are theirs.
fn await_keys(pair: &dyn Pair, expected: [u64; 2]) -> Result<()> {
    let mut found = [0; 2];
    let is_so = interrupt::wait_until(DROP_TIMEOUT, POLL, || {
        found = pair.keys()?;
        Ok(found == expected)
    })?;
    let wrong = usize::from(found[0] == expected[0]);
    let end = ["the source", "the target"][wrong];
    match is_so {
        true => Ok(()),
        false => Err(BenchError::keys(end, found[wrong], expected[wrong])),
    }
}
