//! An open-loop load generator: one thread, epoll, latency counted from the intended send time.
//!
//! At a fixed rate a batch of `pipeline` commands is due every `pipeline / rate` seconds whether or
//! not earlier ones were answered, so a stalled server is charged for everything that should have
//! been sent meanwhile (no coordinated omission). Rate 0 closes the loop: every connection has one
//! batch in flight, which finds the peak.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::prefill::{self, Values};
use crate::resp;
use ephesus_wire::rng::Rng;

pub use arguments::LoadArgs;
pub use schedule::Schedule;

mod arguments;
mod connection;
pub(crate) mod epoll;
mod schedule;
pub(crate) mod socket;
#[cfg(test)]
mod tests;

use connection::{Batch, Connection};
use epoll::Epoll;

/// Most commands in one batch: their kinds are kept as bits.
pub const PIPELINE_MAX: u32 = 64;
/// Longest latency told apart.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Closer than this to the next send the generator spins instead of sleeping.
const SPIN_NS: u64 = 50_000;
const SLEEP_NS_MAX: u64 = 50_000_000;
/// Batches started before replies are looked at again.
const SENDS_PER_TURN: usize = 16;
/// Unanswered batches of one connection at which the server counts as overloaded.
const BACKLOG_BATCHES_MAX: usize = 20_000;
/// How long after the end unanswered commands are waited for.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);
const SEED: u64 = 0x4c4f_4144;

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// GET only.
    Get,
    /// SET only.
    Set,
    /// GET and SET, mixed at random.
    Mixed,
    /// The same, each on connections of its own: no GET waits for its turn behind a SET.
    Apart,
}

/// One run of the generator.
#[derive(Clone, Debug, Serialize)]
pub struct LoadConfig {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Commands per second; 0 closes the loop.
    pub rate: u64,
    /// Connections.
    pub connections: usize,
    /// Commands per batch.
    pub pipeline: u32,
    /// What to send.
    pub operation: Operation,
    /// Share of GETs when mixed, in percent.
    pub get_percent: u32,
    /// Keys are drawn uniformly from `0..keys`.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Measured time.
    pub duration: Duration,
    /// Time before it that is driven but not counted.
    pub warmup: Duration,
}

/// Latency of one kind of command.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Commands counted.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// Commands per second asked for; 0 for a closed loop.
    pub offered_per_s: f64,
    /// Commands answered per second of measured time.
    pub achieved_per_s: f64,
    /// Commands sent, warm-up included.
    pub sent: u64,
    /// Commands never answered.
    pub unanswered: u64,
    /// GETs that missed.
    pub misses: u64,
    /// The server fell so far behind that sending was stopped.
    pub overloaded: bool,
    /// Share of the time the generator had work in hand.
    pub client_busy: f64,
    /// 99th percentile of how late batches left the generator.
    pub send_delay_p99_us: f64,
    /// All commands.
    pub all: Latency,
    /// GETs.
    pub get: Latency,
    /// SETs.
    pub set: Latency,
}

/// Drives a server and reports; the calling thread does all the work.
///
/// # Errors
/// When a connection breaks, a reply is an error, or a signal interrupts.
pub fn run(config: &LoadConfig) -> Result<LoadReport> {
    if config.pipeline == 0 || config.pipeline > PIPELINE_MAX {
        let problem = format!("must be 1 to {PIPELINE_MAX}");
        return Err(BenchError::Flag {
            flag: "--pipeline",
            problem,
        });
    }
    if config.connections == 0 || config.keys == 0 {
        let problem = "must be at least 1".to_owned();
        return Err(BenchError::Flag {
            flag: "--connections, --keys",
            problem,
        });
    }
    if config.operation == Operation::Apart && config.connections < 2 {
        let problem = "must be at least 2 for both kinds".to_owned();
        return Err(BenchError::Flag {
            flag: "--connections",
            problem,
        });
    }
    Generator::new(config)?.run()
}

struct Generator<'a> {
    config: &'a LoadConfig,
    epoll: Epoll,
    connections: Vec<Connection>,
    schedule: Schedule,
    random: Rng,
    values: Values,
    started: Instant,
    warm_ns: u64,
    end_ns: u64,
    /// Connections that send SETs only, the first ones.
    setters: usize,
    /// Whose turn is next: among all connections, or among the setters and the others.
    next: [usize; 2],
    get: Histogram<u64>,
    set: Histogram<u64>,
    send_delay: Histogram<u64>,
    sent: u64,
    misses: u64,
    busy_ns: u64,
    overloaded: bool,
}

impl<'a> Generator<'a> {
    fn new(config: &'a LoadConfig) -> Result<Self> {
        let epoll = Epoll::new()?;
        let mut connections = Vec::with_capacity(config.connections);
        for index in 0..config.connections {
            connections.push(Connection::open(config.address, &epoll, index)?);
        }
        let warm_ns = config.warmup.as_nanos() as u64;
        Ok(Generator {
            config,
            epoll,
            connections,
            schedule: Schedule::new(config.rate, config.pipeline),
            random: Rng::new(SEED),
            values: Values::new(config.value_bytes),
            started: Instant::now(),
            warm_ns,
            end_ns: warm_ns + config.duration.as_nanos() as u64,
            setters: setters(config),
            next: [0; 2],
            get: histogram()?,
            set: histogram()?,
            send_delay: histogram()?,
            sent: 0,
            misses: 0,
            busy_ns: 0,
            overloaded: false,
        })
    }

    fn run(mut self) -> Result<LoadReport> {
        self.started = Instant::now();
        if self.schedule.is_closed() {
            for index in 0..self.connections.len() {
                self.send(index, 0, 0)?;
            }
        }
        let mut events = Epoll::events();
        let drain_ns = self.end_ns + DRAIN.as_nanos() as u64;
        loop {
            let turn = self.now_ns();
            let mut worked = self.send_due(turn)?;
            let sending = turn < self.end_ns && !self.overloaded;
            if !sending && (turn > drain_ns || self.connections.iter().all(Connection::is_idle)) {
                break;
            }
            let mut before_wait = turn;
            if worked {
                before_wait = self.now_ns();
                self.busy_ns += before_wait - turn;
            }
            let ready = self.wait(&mut events, before_wait)?;
            if ready > 0 {
                let woken = self.now_ns();
                for event in &events[..ready] {
                    let (flags, index) = (event.events, event.u64 as usize);
                    self.serve(index, flags)?;
                }
                self.busy_ns += self.now_ns() - woken;
                worked = true;
            }
            if !worked {
                interrupt::check()?;
                std::hint::spin_loop();
            }
        }
        interrupt::check()?;
        self.report()
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn send_due(&mut self, now_ns: u64) -> Result<bool> {
        if now_ns >= self.end_ns || self.overloaded {
            return Ok(false);
        }
        let mut worked = false;
        for _ in 0..SENDS_PER_TURN {
            let Some(due_ns) = self.schedule.take_due(now_ns) else {
                break;
            };
            let index = self.next_connection();
            if due_ns >= self.warm_ns {
                self.send_delay.saturating_record(now_ns - due_ns);
            }
            self.send(index, due_ns, now_ns)?;
            worked = true;
        }
        Ok(worked)
    }

    /// The connection that the next batch goes over.
    fn next_connection(&mut self) -> usize {
        let is_get =
            self.setters > 0 && self.random.below(100) < u64::from(self.config.get_percent);
        let (first, count) = match (self.setters, is_get) {
            (0, _) => (0, self.connections.len()),
            (setters, false) => (0, setters),
            (setters, true) => (setters, self.connections.len() - setters),
        };
        let next = &mut self.next[usize::from(is_get)];
        let index = first + *next;
        *next = (*next + 1) % count;
        index
    }

    fn send(&mut self, index: usize, intended_ns: u64, now_ns: u64) -> Result<()> {
        debug_assert!(intended_ns <= now_ns);
        let connection = &mut self.connections[index];
        let mut gets: u64 = 0;
        for bit in 0..self.config.pipeline {
            let key_index = self.random.below(self.config.keys);
            let key = prefill::key(key_index);
            let is_get = match self.config.operation {
                Operation::Get => true,
                Operation::Set => false,
                Operation::Mixed => self.random.below(100) < u64::from(self.config.get_percent),
                Operation::Apart => index >= self.setters,
            };
            if is_get {
                gets |= 1 << bit;
                resp::encode(connection.out(), &[b"GET", &key]);
            } else {
                let value = self.values.get(key_index, intended_ns);
                resp::encode(connection.out(), &[b"SET", &key, value]);
            }
        }
        self.sent += u64::from(self.config.pipeline);
        connection.expect(Batch {
            intended_ns,
            left: self.config.pipeline,
            gets,
        });
        self.overloaded |= connection.backlog() > BACKLOG_BATCHES_MAX;
        connection.flush(&self.epoll)
    }

    fn serve(&mut self, index: usize, flags: u32) -> Result<()> {
        if flags & libc::EPOLLOUT as u32 != 0 {
            self.connections[index].flush(&self.epoll)?;
        }
        if flags & !(libc::EPOLLOUT as u32) == 0 {
            return Ok(());
        }
        let found = self.connections[index].receive()?;
        let now_ns = self.now_ns();
        self.misses += found.nulls as u64;
        let mut complete = found.complete;
        let mut finished = 0;
        while complete > 0 {
            let Some(batch) = self.connections[index].front() else {
                return Err(BenchError::reply("more replies than commands", b""));
            };
            let taken = complete.min(batch.left as usize) as u32;
            let gets = batch.take(taken, self.config.pipeline);
            let intended_ns = batch.intended_ns;
            let done = batch.left == 0;
            complete -= taken as usize;
            if intended_ns >= self.warm_ns && intended_ns < self.end_ns {
                let latency = now_ns - intended_ns;
                for (kind, count) in [(&mut self.get, gets), (&mut self.set, taken - gets)] {
                    // Recording nothing would still raise the maximum.
                    if count > 0 {
                        kind.saturating_record_n(latency, u64::from(count));
                    }
                }
            }
            if done {
                self.connections[index].finish_front();
                finished += 1;
            }
        }
        if self.schedule.is_closed() && now_ns < self.end_ns {
            for _ in 0..finished {
                self.send(index, now_ns, now_ns)?;
            }
        }
        Ok(())
    }

    fn wait(&self, events: &mut [epoll::Ready], now_ns: u64) -> Result<usize> {
        let idle_ns = if self.schedule.is_closed() || now_ns >= self.end_ns {
            SLEEP_NS_MAX
        } else {
            let until = self.schedule.next_due_ns().saturating_sub(now_ns);
            until.saturating_sub(SPIN_NS).min(SLEEP_NS_MAX)
        };
        self.epoll.wait(events, idle_ns)
    }

    fn report(self) -> Result<LoadReport> {
        let wall_ns = self.now_ns().max(1);
        let unanswered = self.connections.iter().map(Connection::unanswered).sum();
        let mut all = self.get.clone();
        all.add(&self.set)
            .map_err(|_| BenchError::parse("histograms", "different bounds"))?;
        Ok(LoadReport {
            offered_per_s: self.config.rate as f64,
            achieved_per_s: all.len() as f64 / self.config.duration.as_secs_f64(),
            sent: self.sent,
            unanswered,
            misses: self.misses,
            overloaded: self.overloaded,
            client_busy: self.busy_ns as f64 / wall_ns as f64,
            send_delay_p99_us: self.send_delay.value_at_quantile(0.99) as f64 / 1e3,
            all: latency(&all),
            get: latency(&self.get),
            set: latency(&self.set),
        })
    }
}

/// Connections for SETs alone: their share of all, at least one of each kind.
fn setters(config: &LoadConfig) -> usize {
    if config.operation != Operation::Apart {
        return 0;
    }
    let share = config.connections * (100 - config.get_percent as usize) / 100;
    share.clamp(1, config.connections - 1)
}

/// For latencies in nanoseconds.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_max(LATENCY_NS_MAX, 3)
        .map_err(|error| BenchError::parse("histogram bounds", &error.to_string()))
}

/// What a histogram of nanoseconds says.
pub(crate) fn latency(histogram: &Histogram<u64>) -> Latency {
    let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    Latency {
        count: histogram.len(),
        mean_us: histogram.mean() / 1e3,
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: histogram.max() as f64 / 1e3,
    }
}
