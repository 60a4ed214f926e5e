use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::disk;
use crate::error::{BenchError, Result};
use crate::fresh_memory::Provided;
use crate::interrupt;
use crate::load::{Indexes, Ledger, Mix, Op, Outcome as Found, Phase, Plan, Running, Sizes, Span};
use crate::prefill;
use crate::procfs::{self, CpuMark};

use super::Bench;
use super::pair::{Ends, Pair, Said, Stage};
use super::shape::Shape;

/// Of writers to each server.
pub(super) const CONNECTIONS: usize = 50;
/// Writes that are sent together.
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
/// Writes before anything is counted.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long a source may take to drop what it gave away.
const DROP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// What a move was like.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Keys that moved, and bytes of these keys and their values.
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) course: Course,
    pub(super) said: Said,
    /// Of source and target, if they run here.
    pub(super) ends: Option<[End; 2]>,
    /// What writers saw.
    pub(super) writers: Option<Found>,
}

/// How a move went.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Why it has failed; then nothing but what clients saw is known.
    pub(super) failure: Option<String>,
    /// From the last look at which nothing was copied to the end.
    pub(super) copying: Duration,
    /// From the order to the end.
    pub(super) whole: Duration,
    /// Seconds since the order, and what had arrived by then in a unit of the pair's own.
    pub(super) arrived: Vec<[f64; 2]>,
}

/// What a move cost one of the two.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// CPU time during the move, forks included.
    pub(super) cpu: Duration,
    /// The most memory above what it had before.
    pub(super) growth_bytes: u64,
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
    values.workload.sizes = Sizes::Fixed(shape.value_bytes);
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
    writers.enter(Phase::Before, bench.load_time())?;
    let mut costs = Costs::begin(&ends, shape)?;
    costs.provide()?;
    writers.enter(Phase::During, Duration::ZERO)?;
    let began = Instant::now();
    pair.order()?;
    let course = follow(pair, began, &mut || {
        writers.check()?;
        costs.provide()
    })?;
    let costs = costs.end()?;
    writers.enter(Phase::After, bench.load_time())?;
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
            return Err(BenchError::flag("--keys", "leaves nothing to write"));
        }
        let is_quick = bench.flags.quick;
        if !is_quick && disk::await_calm(bench.root.path(), CALM, CALM_WITHIN)?.is_none() {
            eprintln!("   the disk has not been calm within {CALM_WITHIN:?}");
        }
        let mut plan = Plan::new(source);
        plan.rate = rate;
        plan.connections = CONNECTIONS;
        plan.pipeline = PIPELINE;
        plan.workload.mix = Mix::of(&[(Op::Write, 1)]);
        plan.workload.keys = Indexes::These(keys.into());
        plan.workload.sizes = Sizes::Fixed(shape.value_bytes);
        let mut writers = Writers(Some(Running::start(plan, Span::OPEN)?));
        writers.wait(WARM_UP)?;
        Ok(writers)
    }

    /// What is due from now on belongs to this phase, which lasts so long at least.
    fn enter(&mut self, phase: Phase, duration: Duration) -> Result<()> {
        if let Some(load) = &mut self.0 {
            load.enter(phase);
            self.wait(duration)?;
        }
        Ok(())
    }

    fn wait(&mut self, duration: Duration) -> Result<()> {
        interrupt::wait_until(duration, POLL, || self.check().map(|()| false)).map(drop)
    }

    /// Fails when writes have ended by themselves.
    fn check(&mut self) -> Result<()> {
        match self.0.as_mut().is_some_and(Running::look) {
            false => Ok(()),
            true => Err(BenchError::failed("writes", "they have ended early")),
        }
    }

    /// What they saw.
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

/// What a move costs the two servers, if they run here.
struct Costs {
    /// Of each, with its resident memory before the move.
    marks: Vec<(CpuMark, u64)>,
    /// Given to servers that nobody else uses as they need it. Loading has taken what was touched before they began.
    memory: Option<Provided>,
}

impl Costs {
    fn begin(ends: &Ends, shape: Shape) -> Result<Self> {
        let is_alone = ends.pids.is_some() && shape.writes.is_none();
        let memory = is_alone.then(|| Provided::new(shape.memory_bytes() / 2));
        let mark = |&pid| {
            procfs::reset_peak(pid)?;
            let [resident_bytes, _] = procfs::resident_bytes(pid)?;
            Ok((CpuMark::of(pid)?, resident_bytes))
        };
        let marks = ends.pids.iter().flatten().map(mark);
        Ok(Costs {
            marks: marks.collect::<Result<_>>()?,
            memory,
        })
    }

    fn provide(&mut self) -> Result<()> {
        if let Some(memory) = &mut self.memory {
            let grown = self.marks.iter().map(|(mark, before)| {
                let [resident, _] = procfs::resident_bytes(mark.pid)?;
                Ok(resident.saturating_sub(*before))
            });
            memory.give_back_for(grown.sum::<Result<u64>>()? as usize);
        }
        Ok(())
    }

    /// Of the move, which is over; forks that copied data have ended before it.
    fn end(self) -> Result<Vec<End>> {
        let end = |(mark, before): (CpuMark, u64)| {
            let [_, peak] = procfs::resident_bytes(mark.pid)?;
            Ok(End {
                cpu: mark.elapsed()?,
                growth_bytes: peak.saturating_sub(before),
            })
        };
        self.marks.into_iter().map(end).collect()
    }
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
