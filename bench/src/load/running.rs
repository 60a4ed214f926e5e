use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{mem, thread};

use glommio::{LocalExecutorBuilder, Placement};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::set_current_timer_slack;

use crate::error::{BenchError, During, Result};
use crate::interrupt;
use crate::record::{Latencies, Run, Second};

use super::client::{Client, lock};
use super::keys::Counters;
use super::outcome::{Outcome, Tally};
use super::schedule::{Phase, Timetable};
use super::{Plan, Span};

/// Clients use a ring of their own, so those of the executor are as small as may be.
const IO_BYTES: usize = 64 * 1024;
const RING_DEPTH: usize = 128;
const SECOND_NS: u64 = 1_000_000_000;
const LOOK: Duration = Duration::from_millis(20);

/// A load that runs until it ends or is dropped.
pub(crate) struct Running {
    executors: Vec<Executor>,
    times: Arc<Timetable>,
    sum: Tally,
    seconds: Vec<Second>,
    /// When what is not collected yet began.
    collected_ns: u64,
}

struct Executor {
    thread: Option<JoinHandle<Result<()>>>,
    tally: Arc<Mutex<Tally>>,
}

impl Running {
    pub(crate) fn start(plan: Plan, span: Span) -> Result<Self> {
        plan.check()?;
        allow_descriptors();
        let (plan, counters) = (Arc::new(plan), Arc::default());
        let times = Arc::new(Timetable::of(span.warmup, span.duration));
        let (ready, are_ready) = mpsc::channel();
        let count = plan.executors();
        let spawn = |number| Executor::spawn(&plan, (number, count), (&times, &counters), &ready);
        let executors = (0..count).map(spawn).collect::<Result<Vec<_>>>();
        drop(ready);
        let begins = are_ready.iter().count() == count;
        times.open(begins);
        let mut running = Running {
            executors: executors?,
            sum: Tally::default(),
            seconds: Vec::new(),
            collected_ns: times.begin_ns(Phase::Before),
            times,
        };
        if !begins {
            running.executors.iter_mut().try_for_each(Executor::join)?;
        }
        Ok(running)
    }

    pub(crate) fn enter(&mut self, phase: Phase) {
        self.times.enter(phase);
        if phase == Phase::Before {
            self.collected_ns = self.times.now_ns();
        }
    }

    pub(crate) fn end(&self) {
        self.times.end();
    }

    /// Collects what was seen in seconds that are over; whether all executors have ended.
    pub(crate) fn look(&mut self) -> bool {
        let over_ns = self.times.now_ns().min(self.times.end_ns());
        while self.collected_ns.saturating_add(SECOND_NS) <= over_ns {
            self.collect(self.collected_ns + SECOND_NS);
        }
        self.executors.iter().all(Executor::is_over)
    }

    /// Adds up what was seen, and notes what it was like until then if that was measured.
    fn collect(&mut self, until_ns: u64) {
        let mut new = Tally::default();
        for executor in &self.executors {
            let tally = mem::take(&mut *lock(&executor.tally));
            new.add(tally);
        }
        let begin_ns = self.times.begin_ns(Phase::Before);
        if self.collected_ns < until_ns.min(self.times.end_ns()) {
            let all: Latencies = new.measured().map(|(_, latencies)| latencies).sum();
            let at_s = (self.collected_ns - begin_ns) as f64 / 1e9;
            let errors = new.errors.values().sum();
            self.seconds.push(Second::new(at_s, &all, errors));
            self.collected_ns = until_ns;
        }
        self.sum.add(new);
    }

    /// Waits until all is over: at the end that was set, when all was sent, or when a signal asks to stop.
    pub(crate) fn finish(mut self, mut each_second: impl FnMut(&Second)) -> Outcome {
        let mut told = self.seconds.len();
        loop {
            let is_over = self.look();
            self.seconds[told..].iter().for_each(&mut each_second);
            told = self.seconds.len();
            if is_over {
                break;
            }
            if interrupt::requested() {
                self.end();
            }
            let next_ns = self.collected_ns.saturating_add(SECOND_NS);
            let until = Duration::from_nanos(next_ns.saturating_sub(self.times.now_ns()));
            thread::sleep(until.min(LOOK));
        }
        self.conclude()
    }

    fn conclude(mut self) -> Outcome {
        let now_ns = self.times.now_ns();
        let mut failure = None;
        for executor in &mut self.executors {
            failure = executor.join().err().or(failure);
        }
        if interrupt::requested() {
            failure = Some(BenchError::Interrupted);
        }
        // The rest of the last second is no second.
        let is_short = self.seconds.is_empty();
        self.collect(if is_short { self.times.now_ns() } else { 0 });
        let mut sum = mem::take(&mut self.sum);
        // What was sent in time may be answered later: then that is when it was over. And it may have failed before.
        let over_ns = match self.times.end_ns() {
            u64::MAX => sum.answered_ns,
            end_ns => end_ns.min(now_ns).max(sum.answered_ns),
        };
        let phase_s = Phase::ALL.map(|phase| self.times.seconds(phase, over_ns));
        let wall_s = now_ns as f64 / 1e9 * self.executors.len() as f64;
        let mut operations = BTreeMap::<String, Latencies>::new();
        for (op, latencies) in sum.measured() {
            operations.entry(op.to_string()).or_default().add(latencies);
        }
        let delay = sum.send_delay.as_ref();
        let run = Run {
            elapsed_s: phase_s[Phase::Before as usize..].iter().sum(),
            operations,
            seconds: mem::take(&mut self.seconds),
            misses: sum.misses,
            unanswered: sum.errors.get("UNANSWERED").copied().unwrap_or(0),
            client_busy: sum.cpu.as_secs_f64() / wall_s,
            send_delay_p99_us: delay.map_or(0.0, |delay| delay.us(0.99)),
            errors: mem::take(&mut sum.errors),
            ..Run::default()
        };
        Outcome {
            run,
            sent: sum.sent,
            redirects: sum.redirects,
            client_cpu: sum.cpu,
            sum,
            phase_s,
            failure,
        }
    }
}

/// As many as this process may have: for connections, and glommio keeps one of every executor that has ended.
fn allow_descriptors() {
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    // With less than that whoever opens too many is told.
    let _ = setrlimit(Resource::Nofile, limits);
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        for executor in &mut self.executors {
            // It was an error that dropped this, which is told already.
            let _ = executor.join();
        }
    }
}

impl Executor {
    /// Connects, says when it is ready, and begins when all others are.
    fn spawn(
        plan: &Arc<Plan>,
        of: (usize, usize),
        (times, counters): (&Arc<Timetable>, &Arc<Counters>),
        ready: &Sender<()>,
    ) -> Result<Self> {
        let cpu = plan.pace.cpus.get(of.0).copied();
        let builder = LocalExecutorBuilder::new(cpu.map_or(Placement::Unbound, Placement::Fixed))
            .io_memory(IO_BYTES)
            .ring_depth(RING_DEPTH);
        let tally = Arc::<Mutex<Tally>>::default();
        let (plan, own, ready) = (Arc::clone(plan), Arc::clone(&tally), ready.clone());
        let (times, counters) = (Arc::clone(times), Arc::clone(counters));
        let run = move || {
            builder.make().during("glommio")?.run(async {
                // Sleeps are as long as they say.
                let _ = set_current_timer_slack(NonZeroU64::new(1));
                let client = Client::open(plan, of, (Arc::clone(&times), counters), own)?;
                let _ = ready.send(());
                drop(ready);
                if times.begins() { client.run() } else { Ok(()) }
            })
        };
        let thread = thread::Builder::new().name(format!("load-{}", of.0));
        Ok(Executor {
            thread: Some(thread.spawn(run).during("starting a thread")?),
            tally,
        })
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<()> {
        let panicked = |_| Err(BenchError::failed("load", "its executor has panicked"));
        let thread = self.thread.take().map(JoinHandle::join);
        thread.map_or(Ok(()), |ended| ended.unwrap_or_else(panicked))
    }
}
