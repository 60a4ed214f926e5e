use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::disk;
use crate::error::{BenchError, Result};
use crate::fresh_memory::Provided;
use crate::interrupt;
use crate::load::{Indexes, Ledger, Mix, Op, Outcome as Found, Phase, Plan, Running, Sizes, Span};
use crate::prefill;
use crate::procfs::{self, CpuMark, Pid};

use super::Bench;
use super::case::Case;
use super::pair::{Pair, Said, Stage};

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
    /// CPU time during the move; of its forks all they used, which is known once they are gone.
    pub(super) cpu: Duration,
    /// The most memory above what it had before.
    pub(super) growth_bytes: u64,
}

/// Loads the source, moves half of it, and checks that all is where it belongs.
pub(super) fn run(pair: &mut dyn Pair, case: Case, bench: &Bench) -> Result<Outcome> {
    let ends = pair.ends().clone();
    let [source, target] = ends.entries;
    let moves = |index: &u32| ends.slots[prefill::slot_of_key(u64::from(*index))];
    let owned = (0..).filter(|index| moves(index).is_some());
    let all: Vec<u32> = owned.take(case.keys as usize).collect();
    let (moving, staying): (Vec<u32>, _) = all.iter().partition(|i| moves(i) == Some(true));
    let mut values = Plan::new(source);
    values.workload.sizes = Sizes::Fixed(case.value_bytes);
    let keys_max = all.last().map_or(0, |last| u64::from(*last) + 1);
    values.workload.ledger = Some(Arc::new(Ledger::new(0, keys_max)));
    let all = Indexes::These(all.into());
    prefill::each(values.clone(), Op::Write, all.clone())?;
    pair.settle()?;
    let (is_ours, keys) = (ends.pids.is_some(), moving.len() as u64);
    if is_ours {
        await_keys(pair, [case.keys, 0])?;
    }
    let written = match case.writes {
        Some(0) => staying,
        _ => moving.clone(),
    };
    let mut load = None;
    if let Some(rate) = case.writes {
        calm_down(bench)?;
        let mut new = start_load(pair, case, written, rate)?;
        wait(&mut new, WARM_UP)?;
        new.enter(Phase::Before);
        wait(&mut new, bench.load_time())?;
        load = Some(new);
    }
    // Loading has taken what was touched before the servers began.
    let is_alone = is_ours && case.writes.is_none();
    let mut memory = is_alone.then(|| Provided::new(case.memory_bytes() / 2));
    let marks = ends.pids.iter().flatten().map(|pid| Mark::of(*pid));
    let marks = marks.collect::<Result<Vec<_>>>()?;
    let mut provide = || {
        if let Some(memory) = &mut memory {
            let grown = marks.iter().map(Mark::grown_bytes).sum::<Result<u64>>()?;
            memory.give_back_for(grown as usize);
        }
        Ok(())
    };
    provide()?;
    if let Some(load) = &mut load {
        load.enter(Phase::During);
    }
    let began = Instant::now();
    pair.order()?;
    let course = follow(pair, began, load.as_mut(), &mut provide)?;
    drop(memory);
    let mut costs = marks.iter().map(Mark::end).collect::<Result<Vec<_>>>()?;
    let writers = load.map(|mut load| {
        load.enter(Phase::After);
        wait(&mut load, bench.load_time())?;
        load.end();
        load.finish(|_| {}).complete()
    });
    let writers = writers.transpose()?;
    if is_ours && course.failure.is_none() {
        await_keys(pair, [case.keys - keys, keys])?;
        if case.writes.is_none() {
            values.target = target.into();
            prefill::each(values, Op::Read, Indexes::These(moving.into()))?;
        }
    }
    for (mark, end) in marks.iter().zip(&mut costs) {
        end.cpu += mark.cpu.apart()?[1];
    }
    let said = pair.said()?;
    if pair.order_back()? {
        // A cluster that runs is left as it was: the partitions where they were, and none of the keys.
        let course = follow(pair, Instant::now(), None, &mut || Ok(()))?;
        if let Some(why) = course.failure {
            return Err(BenchError::failed("the move back", why));
        }
        prefill::remove(source, all)?;
    }
    Ok(Outcome {
        keys,
        bytes: keys * case.entry_bytes(),
        course,
        said,
        ends: costs.try_into().ok(),
        writers,
    })
}

/// Waits until the machine does not keep the disk from answering, or says that it does.
fn calm_down(bench: &Bench) -> Result<()> {
    if bench.is_quick() {
        return Ok(());
    }
    match disk::await_calm(bench.root(), CALM, CALM_WITHIN)? {
        Some(waited) => eprintln!("   the disk is calm after {:.0} s", waited.as_secs_f64()),
        None => eprintln!("   the disk has not been calm within {CALM_WITHIN:?}"),
    }
    Ok(())
}

/// On the CPUs of the servers, as there are no others.
fn start_load(pair: &dyn Pair, case: Case, keys: Vec<u32>, rate: u64) -> Result<Running> {
    if keys.is_empty() {
        return Err(BenchError::flag("--keys", "leaves nothing to write"));
    }
    let mut plan = Plan::new(pair.ends().entries[0]);
    plan.rate = rate;
    plan.connections = CONNECTIONS;
    plan.pipeline = PIPELINE;
    plan.workload.mix = Mix::of(&[(Op::Write, 1)]);
    plan.workload.keys = Indexes::These(keys.into());
    plan.workload.sizes = Sizes::Fixed(case.value_bytes);
    Running::start(plan, Span::OPEN)
}

/// Fails when writes have ended by themselves.
fn check(load: &mut Running) -> Result<()> {
    match load.look() {
        false => Ok(()),
        true => Err(BenchError::failed("writes", "they have ended early")),
    }
}

/// Lets writes go on for so long.
fn wait(load: &mut Running, duration: Duration) -> Result<()> {
    let look = || check(load).map(|()| false);
    interrupt::wait_until(duration, POLL, look).map(drop)
}

/// Looks at a move that was just ordered until it has ended; calls `meanwhile` at each look.
fn follow(
    pair: &mut dyn Pair,
    began: Instant,
    mut load: Option<&mut Running>,
    meanwhile: &mut dyn FnMut() -> Result<()>,
) -> Result<Course> {
    let mut idle_until = began;
    let mut course = Course::default();
    loop {
        interrupt::check()?;
        if let Some(load) = &mut load {
            check(load)?;
        }
        meanwhile()?;
        let looked = Instant::now();
        let (stage, arrived) = pair.look()?;
        if stage == Stage::Waiting {
            idle_until = looked;
        }
        course.copying = idle_until.elapsed();
        course.whole = began.elapsed();
        let at_s = course.whole.as_secs_f64();
        course.arrived.push([at_s, arrived as f64]);
        match stage {
            Stage::Done => return Ok(course),
            Stage::Failed(why) => course.failure = Some(why),
            Stage::Waiting | Stage::Copying if course.whole > MOVE_TIMEOUT => {
                let why = format!("not done after {} s", MOVE_TIMEOUT.as_secs());
                course.failure = Some(why);
            }
            Stage::Waiting | Stage::Copying => {}
        }
        if course.failure.is_some() {
            return Ok(course);
        }
        let pause = LOOK.max(SLEEP_PER_LOOK * looked.elapsed());
        thread::sleep(pause.max(course.whole / LOOKS_PER_TIME));
    }
}

/// Counters of one end before a move.
struct Mark {
    pid: Pid,
    cpu: CpuMark,
    resident_bytes: u64,
}

impl Mark {
    fn of(pid: Pid) -> Result<Self> {
        procfs::reset_peak(pid)?;
        Ok(Mark {
            pid,
            cpu: CpuMark::of(pid)?,
            resident_bytes: procfs::resident_bytes(pid)?,
        })
    }

    /// Memory that it has taken since.
    fn grown_bytes(&self) -> Result<u64> {
        let resident = procfs::resident_bytes(self.pid)?;
        Ok(resident.saturating_sub(self.resident_bytes))
    }

    /// What it has cost so far, without forks.
    fn end(&self) -> Result<End> {
        let peak = procfs::peak_resident_bytes(self.pid)?;
        Ok(End {
            cpu: self.cpu.apart()?[0],
            growth_bytes: peak.saturating_sub(self.resident_bytes),
        })
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
