use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, mem, thread};

use glommio::{LocalExecutorBuilder, Placement};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::set_current_timer_slack;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::record::{Latencies, Run, Second};

use super::client::{Client, Usage, lock};
use super::keys::Counters;
use super::phases::{Phase, Timetable};
use super::tally::Tally;
use super::{Plan, Span};

/// Clients use a ring of their own, so those of the executor are as small as may be.
const IO_BYTES: usize = 64 * 1024;
const RING_DEPTH: usize = 128;
const SECOND_NS: u64 = 1_000_000_000;
/// Between two looks whether executors have ended.
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
    thread: Option<JoinHandle<()>>,
    tally: Arc<Mutex<Tally>>,
    ended: Receiver<Result<Usage>>,
}

/// What clients have seen.
#[derive(Debug)]
pub struct Outcome {
    sum: Tally,
    seconds: Vec<Second>,
    /// How long each phase was.
    phase_s: [f64; Phase::COUNT],
    unanswered: u64,
    /// Share of their CPUs that the executors used.
    pub client_busy: f64,
    /// CPU time of the executors.
    pub client_cpu: Duration,
    failure: Option<BenchError>,
}

impl Running {
    /// Starts executors, each with its share of the connections; returns when all are connected and begin.
    pub(crate) fn start(plan: Plan, span: Span) -> Result<Self> {
        plan.check()?;
        allow_descriptors();
        let plan = Arc::new(plan);
        let counters = Arc::new(Counters::default());
        let count = plan.executors();
        let started = (0..count).map(|number| Starting::spawn(&plan, (number, count), &counters));
        let started = started.collect::<Result<Vec<_>>>()?;
        let connected = started.iter().map(Starting::connected);
        connected.collect::<Result<Vec<()>>>()?;
        let times = Arc::new(Timetable::of(span.warmup, span.duration));
        let begin = |starting: Starting| {
            // An executor that has ended says so itself.
            let _ = starting.gate.send(Arc::clone(&times));
            starting.executor
        };
        Ok(Running {
            executors: started.into_iter().map(begin).collect(),
            sum: Tally::default(),
            seconds: Vec::new(),
            collected_ns: times.begin_ns(Phase::Before),
            times,
        })
    }

    /// What is due from now on belongs to this phase.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.times.enter(phase);
        if phase == Phase::Before {
            self.collected_ns = self.times.now_ns();
        }
    }

    /// Nothing is due from now on.
    pub(crate) fn end(&self) {
        self.times.end();
    }

    /// Collects what was seen in a second that is over; whether all executors have ended.
    pub(crate) fn look(&mut self) -> bool {
        if self.times.now_ns() >= self.collected_ns.saturating_add(SECOND_NS) {
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
            let mut all = Latencies::default();
            let counted = [Phase::Before, Phase::During, Phase::After];
            for (_, latencies) in counted.iter().flat_map(|phase| new.phase(*phase)) {
                all.add(latencies);
            }
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
        while !self.look() {
            if interrupt::requested() {
                self.end();
            }
            for second in &self.seconds[told..] {
                each_second(second);
            }
            told = self.seconds.len();
            let next_ns = self.collected_ns.saturating_add(SECOND_NS);
            let until = Duration::from_nanos(next_ns.saturating_sub(self.times.now_ns()));
            thread::sleep(until.min(LOOK));
        }
        for second in &self.seconds[told..] {
            each_second(second);
        }
        // What was sent in time may be answered later: then that is when it was over. And it may have failed before.
        let mut over_ns = match self.times.end_ns() {
            u64::MAX => 0,
            end_ns => end_ns.min(self.times.now_ns()),
        };
        let wall_s = self.times.now_ns() as f64 / 1e9 * self.executors.len() as f64;
        let (mut client_cpu, mut unanswered, mut failure) = (Duration::ZERO, 0, None);
        for executor in &mut self.executors {
            match executor.join() {
                Ok(usage) => {
                    client_cpu += usage.cpu;
                    unanswered += usage.unanswered;
                    over_ns = over_ns.max(usage.answered_ns);
                }
                Err(error) => failure = Some(error),
            }
        }
        // The rest of the last second is no second.
        let is_short = self.seconds.is_empty();
        let until_ns = if is_short { self.times.now_ns() } else { 0 };
        self.collect(until_ns);
        if interrupt::requested() {
            failure = Some(BenchError::Interrupted);
        }
        let phase_s = Phase::ALL.map(|phase| self.times.seconds(phase, over_ns));
        Outcome {
            sum: mem::take(&mut self.sum),
            seconds: mem::take(&mut self.seconds),
            phase_s,
            unanswered,
            client_busy: client_cpu.as_secs_f64() / wall_s,
            client_cpu,
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
    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<Usage> {
        let panicked = || BenchError::failed("load", "its executor has panicked");
        let ended = self.ended.recv().unwrap_or_else(|_| Err(panicked()));
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| panicked())?;
        }
        ended
    }
}

/// An executor that connects.
struct Starting {
    executor: Executor,
    connected: Receiver<Result<()>>,
    gate: Sender<Arc<Timetable>>,
}

impl Starting {
    fn spawn(plan: &Arc<Plan>, of: (usize, usize), counters: &Arc<Counters>) -> Result<Self> {
        let cpu = plan.cpus.get(of.0).copied();
        let builder = LocalExecutorBuilder::new(cpu.map_or(Placement::Unbound, Placement::Fixed))
            .io_memory(IO_BYTES)
            .ring_depth(RING_DEPTH);
        let (tell_connected, connected) = mpsc::channel();
        let (tell_ended, ended) = mpsc::channel();
        let (gate, begin) = mpsc::channel::<Arc<Timetable>>();
        let tally = Arc::<Mutex<Tally>>::default();
        let (plan, counters, own) = (Arc::clone(plan), Arc::clone(counters), Arc::clone(&tally));
        let run = move || {
            let wrong = |error| BenchError::failed("glommio", format!("{error}"));
            let executor = match builder.make().map_err(wrong) {
                Ok(executor) => executor,
                Err(error) => return drop(tell_connected.send(Err(error))),
            };
            executor.run(async {
                // Sleeps are as long as they say.
                let _ = set_current_timer_slack(NonZeroU64::new(1));
                let client = match Client::open(plan, of, counters, own) {
                    Ok(client) => client,
                    Err(error) => return drop(tell_connected.send(Err(error))),
                };
                let _ = tell_connected.send(Ok(()));
                if let Ok(times) = begin.recv() {
                    let _ = tell_ended.send(client.run(&times));
                }
            });
        };
        let thread = thread::Builder::new().name(format!("load-{}", of.0));
        let thread = thread
            .spawn(run)
            .map_err(BenchError::io("starting a thread"))?;
        Ok(Starting {
            executor: Executor {
                thread: Some(thread),
                tally,
                ended,
            },
            connected,
            gate,
        })
    }

    fn connected(&self) -> Result<()> {
        let ended = |_| Err(BenchError::io("an executor")(io::ErrorKind::Other.into()));
        self.connected.recv().unwrap_or_else(ended)
    }
}

impl Outcome {
    /// The outcome of a run in which nothing may go wrong.
    ///
    /// # Errors
    /// When something did: the run was cut short, an operation has failed or was not answered.
    pub fn flawless(mut self) -> Result<Self> {
        self.judge()?;
        Ok(self)
    }

    /// The outcome of a run that has come to its end.
    ///
    /// # Errors
    /// When a server could no longer be reached, or a signal has asked to stop.
    pub fn complete(mut self) -> Result<Self> {
        match self.failure.take() {
            None => Ok(self),
            Some(error) => Err(error),
        }
    }

    /// The outcome of a run in which the server may fall behind what was offered, and nothing else may go wrong.
    ///
    /// # Errors
    /// As [`Outcome::flawless`].
    pub fn answered(self) -> Result<Self> {
        const BEHIND: [&str; 3] = ["OVERLOADED", "UNANSWERED", "UNSENT"];
        let outcome = self.complete()?;
        match outcome.errors().keys().all(|why| BEHIND.contains(&&**why)) {
            true => Ok(outcome),
            false => outcome.flawless(),
        }
    }

    /// Whether nothing went wrong; takes out why it was cut short, and leaves all that was seen.
    ///
    /// # Errors
    /// As [`Outcome::flawless`].
    pub fn judge(&mut self) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        match self.complaint() {
            None => Ok(()),
            Some(text) => Err(BenchError::failed("load", text)),
        }
    }

    /// CPU time, of the servers or of the client, for each operation that was sent, us.
    pub fn us_per_op(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.sum.sent.max(1) as f64
    }

    /// What has gone wrong, in one line.
    pub fn complaint(&self) -> Option<String> {
        let count: u64 = self.sum.errors.values().sum();
        let example = self.sum.example.as_ref().filter(|_| count > 0)?;
        Some(format!(
            "{count} operations have failed, such as: {example}"
        ))
    }

    /// Latencies of all operations in a phase.
    pub(crate) fn all(&self, phase: Phase) -> Latencies {
        let mut all = Latencies::default();
        self.sum.phase(phase).for_each(|(_, of)| all.add(of));
        all
    }

    /// Latencies of one operation, behind the warm-up.
    #[cfg(test)]
    pub(crate) fn of(&self, op: super::Op) -> Latencies {
        let mut all = self.sum.phase(Phase::Before);
        let found = all.find(|(one, _)| *one == op);
        found.map(|(_, of)| of.clone()).unwrap_or_default()
    }

    /// Operations done per second of a phase.
    pub(crate) fn per_s(&self, phase: Phase) -> f64 {
        self.all(phase).count() as f64 / self.phase_s[phase as usize].max(1e-9)
    }

    /// How long a phase was.
    pub(crate) fn seconds_of(&self, phase: Phase) -> f64 {
        self.phase_s[phase as usize]
    }

    /// Operations sent, warm-up included.
    pub fn sent(&self) -> u64 {
        self.sum.sent
    }

    /// Reads of keys that were not there.
    pub fn misses(&self) -> u64 {
        self.sum.misses
    }

    /// Operations that were sent elsewhere.
    pub fn redirects(&self) -> u64 {
        self.sum.redirects
    }

    /// Operations that failed, by why.
    pub fn errors(&self) -> &BTreeMap<String, u64> {
        &self.sum.errors
    }

    /// 99th percentile of how late batches left.
    pub fn send_delay_p99_us(&self) -> f64 {
        let delay = self.sum.send_delay.as_ref();
        delay.map_or(0.0, |delay| delay.us(0.99))
    }

    /// For a record: all that was measured; `rate` is what was asked for, 0 for a closed loop.
    pub fn run(&self, server: &str, label: &str, rate: u64) -> Run {
        let mut operations = BTreeMap::<String, Latencies>::new();
        for phase in [Phase::Before, Phase::During, Phase::After] {
            for (op, latencies) in self.sum.phase(phase) {
                operations.entry(op.to_string()).or_default().add(latencies);
            }
        }
        Run {
            server: server.to_owned(),
            label: label.to_owned(),
            offered_per_s: (rate > 0).then_some(rate as f64),
            elapsed_s: self.phase_s[1..].iter().sum(),
            operations,
            seconds: self.seconds.clone(),
            events: Vec::new(),
            errors: self.sum.errors.clone(),
            misses: self.sum.misses,
            unanswered: self.unanswered,
            client_busy: self.client_busy,
            send_delay_p99_us: self.send_delay_p99_us(),
        }
    }
}
