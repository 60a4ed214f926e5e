use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::disk;
use crate::error::{BenchError, Result};
use crate::fresh_memory::Provided;
use crate::interrupt;
use crate::load::{Indexes, Mix, Op, Outcome as Found, Phase, Plan, Running, Sizes, Span, Values};
use crate::prefill;
use crate::procfs::{self, Pid};
use crate::resp::{Connection, Value, unexpected};
use crate::server::CpuMark;
use ephesus_wire::rng::Rng;

use super::case::{Case, Writes};
use super::pair::{Pair, Said, Stage};
use super::settings::Settings;

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
const DROP_POLL: Duration = Duration::from_millis(20);
/// Moved keys that are read back.
const READ_BACK: u64 = 1000;

/// What a move was like.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Why it has failed; then nothing but what clients saw is known.
    pub(super) failure: Option<String>,
    /// Keys that moved.
    pub(super) keys: u64,
    /// Bytes of these keys and their values.
    pub(super) bytes: u64,
    /// From the last look at which nothing was copied to the end.
    pub(super) copying: Duration,
    /// From the order to the end.
    pub(super) whole: Duration,
    pub(super) said: Said,
    /// Of source and target, if they run here.
    pub(super) ends: Option<[End; 2]>,
    /// What writers saw.
    pub(super) writers: Option<Found>,
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
pub(super) fn run(pair: &mut dyn Pair, case: Case, settings: &Settings) -> Result<Outcome> {
    let owned = (0..).filter(|&index| pair.ends().owned.has_key(index));
    let indexes: Vec<u32> = owned.take(case.keys as usize).map(|i| i as u32).collect();
    let (moving, staying): (Vec<u32>, Vec<u32>) = indexes
        .iter()
        .partition(|&&index| pair.ends().moving.has_key(u64::from(index)));
    let before = pair.keys()?;
    let all: Arc<[u32]> = indexes.as_slice().into();
    let to_set = Indexes::These(Arc::clone(&all));
    prefill::fill(pair.ends().source, to_set, case.value_bytes, 0)?;
    pair.settle()?;
    let loaded = pair.keys()?;
    let set = loaded[0] - before[0];
    if !settings.is_existing() && set != case.keys {
        return Err(BenchError::keys("the source", set, case.keys));
    }
    if case.writes != Writes::None {
        calm_down(settings)?;
    }
    let mut load = match case.writes {
        Writes::None => None,
        Writes::PerSecond(rate) => Some(start_load(pair, case, moving.clone(), rate)?),
        Writes::Unlimited => Some(start_load(pair, case, staying, 0)?),
    };
    if let Some(load) = &mut load {
        wait(load, WARM_UP)?;
        load.enter(Phase::Before);
        wait(load, settings.load_time)?;
    }
    // Loading has taken what was touched before the servers began.
    let mut memory = match case.writes {
        Writes::None => Some(Provided::new(case.memory_bytes() / 2)),
        Writes::PerSecond(_) | Writes::Unlimited => None,
    };
    // None for servers that run elsewhere.
    let pids = pair.ends().pids.iter().flatten();
    let marks = pids.map(|pid| Mark::of(*pid)).collect::<Result<Vec<_>>>()?;
    let mut provide = || {
        match &mut memory {
            Some(memory) if !marks.is_empty() => memory.give_back_for(grown_bytes(&marks)?),
            _ => memory = None,
        }
        Ok(())
    };
    provide()?;
    if let Some(load) = &mut load {
        load.enter(Phase::During);
    }
    let timing = follow(pair, load.as_mut(), &mut provide)?;
    drop(memory);
    let mut ends = marks.iter().map(Mark::end).collect::<Result<Vec<_>>>()?;
    if let Some(load) = &mut load {
        load.enter(Phase::After);
        wait(load, settings.load_time)?;
    }
    let writers = load.map(|load| {
        load.end();
        load.finish(|_| {}).complete()
    });
    let writers = writers.transpose()?;
    let keys = moving.len() as u64;
    if timing.failure.is_none() && !settings.is_existing() {
        await_dropped(pair, [case.keys - keys, keys])?;
        if case.writes == Writes::None {
            read_back(pair, case, &moving)?;
        }
    }
    for (mark, end) in marks.iter().zip(&mut ends) {
        end.cpu += mark.cpu.apart()?[1];
    }
    let said = pair.said()?;
    give_back(pair, all)?;
    Ok(Outcome {
        failure: timing.failure,
        keys,
        bytes: keys * case.entry_bytes(),
        copying: timing.copying,
        whole: timing.whole,
        said,
        ends: ends.try_into().ok(),
        writers,
    })
}

/// Leaves a cluster that runs as it was: the partitions where they were, and none of the keys.
fn give_back(pair: &mut dyn Pair, indexes: Arc<[u32]>) -> Result<()> {
    let home = pair.ends().source;
    if !pair.turn_back()? {
        return Ok(());
    }
    if let Some(why) = follow(pair, None, &mut || Ok(()))?.failure {
        return Err(BenchError::failed("the move back", why));
    }
    prefill::remove(home, Indexes::These(indexes))
}

/// Waits until the machine does not keep the disk from answering, or says that it does.
fn calm_down(settings: &Settings) -> Result<()> {
    let at_most = if settings.is_quick {
        Duration::ZERO
    } else {
        CALM_WITHIN
    };
    match disk::await_calm(settings.root(), CALM, at_most)? {
        Some(waited) => eprintln!("   the disk is calm after {:.0} s", waited.as_secs_f64()),
        None if settings.is_quick => {}
        None => eprintln!("   the disk has not been calm within {CALM_WITHIN:?}"),
    }
    Ok(())
}

/// On the CPUs of the servers, as there are no others.
fn start_load(pair: &dyn Pair, case: Case, keys: Vec<u32>, rate: u64) -> Result<Running> {
    if keys.is_empty() {
        return Err(BenchError::flag("--keys", "leaves nothing to write"));
    }
    let mut plan = Plan::new(pair.ends().source);
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
    interrupt::wait_until(duration, DROP_POLL.min(duration), || {
        check(load).map(|()| false)
    })
    .map(drop)
}

struct Timing {
    failure: Option<String>,
    copying: Duration,
    whole: Duration,
}

/// Orders the move and looks until it has ended; calls `meanwhile` at each look.
fn follow(
    pair: &mut dyn Pair,
    mut load: Option<&mut Running>,
    meanwhile: &mut dyn FnMut() -> Result<()>,
) -> Result<Timing> {
    let began = Instant::now();
    let mut idle_until = began;
    let mut is_copying = false;
    pair.order()?;
    loop {
        interrupt::check()?;
        if let Some(load) = &mut load {
            check(load)?;
        }
        meanwhile()?;
        let looked = Instant::now();
        let stage = pair.look()?;
        let is_done = stage == Stage::Done;
        is_copying |= stage == Stage::Copying;
        if !is_copying && stage == Stage::Waiting {
            idle_until = looked;
        }
        let is_late = began.elapsed() > MOVE_TIMEOUT;
        let failure = match stage {
            Stage::Failed(why) => Some(why),
            Stage::Waiting | Stage::Copying if is_late => {
                Some(format!("not done after {} s", MOVE_TIMEOUT.as_secs()))
            }
            _ => None,
        };
        if failure.is_some() || is_done {
            return Ok(Timing {
                failure,
                copying: idle_until.elapsed(),
                whole: began.elapsed(),
            });
        }
        let pause = LOOK.max(SLEEP_PER_LOOK * looked.elapsed());
        thread::sleep(pause.max(began.elapsed() / LOOKS_PER_TIME));
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

    /// What it has cost so far, without forks.
    fn end(&self) -> Result<End> {
        let peak = procfs::peak_resident_bytes(self.pid)?;
        Ok(End {
            cpu: self.cpu.apart()?[0],
            growth_bytes: peak.saturating_sub(self.resident_bytes),
        })
    }
}

/// Memory that both have taken since.
fn grown_bytes(marks: &[Mark]) -> Result<usize> {
    let grown = marks.iter().map(|mark| {
        let resident = procfs::resident_bytes(mark.pid)?;
        Ok(resident.saturating_sub(mark.resident_bytes) as usize)
    });
    grown.sum()
}

/// Waits until both have exactly the keys that are theirs.
fn await_dropped(pair: &dyn Pair, expected: [u64; 2]) -> Result<()> {
    let mut found = [0; 2];
    let is_dropped = interrupt::wait_until(DROP_TIMEOUT, DROP_POLL, || {
        found = pair.keys()?;
        Ok(found == expected)
    })?;
    let wrong = usize::from(found[0] == expected[0]);
    let server = ["the source", "the target"][wrong];
    match is_dropped {
        true => Ok(()),
        false => Err(BenchError::keys(server, found[wrong], expected[wrong])),
    }
}

/// Reads some of what moved from the target.
fn read_back(pair: &dyn Pair, case: Case, moved: &[u32]) -> Result<()> {
    if moved.is_empty() {
        return Ok(());
    }
    let mut connection = Connection::open(pair.ends().target)?;
    let mut random = Rng::new(case.keys);
    let values = Values::new(Sizes::Fixed(case.value_bytes));
    for _ in 0..READ_BACK {
        let index = u64::from(moved[random.below(moved.len() as u64) as usize]);
        let key = prefill::key(index);
        let key = String::from_utf8_lossy(&key);
        let get = ["GET", &key];
        let reply = connection.call(&get)?;
        if reply != Value::Bulk(values.get(index, 0).to_vec()) {
            return Err(unexpected(&get, &reply));
        }
    }
    Ok(())
}
