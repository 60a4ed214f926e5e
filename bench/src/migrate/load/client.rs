use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::epoll::{Epoll, Ready};
use crate::load::socket::Socket;
use crate::load::{self, DRAIN, Schedule};
use crate::prefill::{self, Values};
use crate::resp;
use ephesus_wire::rng::Rng;

use super::super::slots::{SLOTS, slot_of_key};
use super::replies::{Replies, Written};
use super::{LoadConfig, Phase, PhaseReport, Shared};

const READ_BYTES: usize = 64 * 1024;
const SEED: u64 = 0x4d4f_5645;
/// Batches begun before replies are looked at again.
const SENDS_PER_TURN: usize = 16;
const SLEEP_NS_MAX: u64 = 10_000_000;
/// Unanswered writes at which the servers count as overloaded, and nothing more is sent.
const UNANSWERED_MAX: usize = 1_000_000;
/// Times that one write is sent elsewhere before it counts as refused.
const MOVES_MAX: u8 = 8;
const CLOSED: &str = "connection closed";
const CIRCLES: &str = "MOVED in circles";
const UNANSWERED: &str = "unanswered";

/// What clients have seen.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Found {
    /// By [`Phase`], warm-up included.
    pub(in super::super) phases: Vec<PhaseReport>,
    /// Writes that were sent elsewhere.
    pub(in super::super) redirects: u64,
    /// Writes that were refused or never answered, by why.
    pub(in super::super) errors: BTreeMap<String, u64>,
    /// The servers fell so far behind that sending was stopped.
    pub(in super::super) overloaded: bool,
}

/// A write that is not answered.
#[derive(Clone, Copy, Debug)]
struct Sent {
    due_ns: u64,
    key: u32,
    phase: Phase,
    moves: u8,
}

/// One connection.
#[derive(Debug)]
struct Lane {
    socket: Socket,
    replies: Replies,
    unanswered: VecDeque<Sent>,
}

/// A client of a cluster.
pub(super) struct Client {
    config: LoadConfig,
    shared: Arc<Shared>,
    epoll: Epoll,
    /// Servers it knows; each has `connections` lanes, in the same order.
    servers: Vec<SocketAddr>,
    lanes: Vec<Lane>,
    /// Number of the server that has a slot.
    owner: Vec<u8>,
    schedule: Schedule,
    random: Rng,
    values: Values,
    began: Instant,
    next_lane: usize,
    unanswered: usize,
    latencies: Vec<Histogram<u64>>,
    phase: Phase,
    phase_began_ns: u64,
    phase_ns: [u64; Phase::ALL.len()],
    found: Found,
}

impl Client {
    pub(super) fn open(config: LoadConfig, shared: Arc<Shared>) -> Result<Self> {
        if config.keys.is_empty() || config.connections == 0 || config.pipeline == 0 {
            return Err(BenchError::Flag {
                flag: "--keys, --load-connections, --load-pipeline",
                problem: "leave nothing to write".to_owned(),
            });
        }
        let histograms = Phase::ALL.iter().map(|_| load::histogram());
        let mut client = Client {
            epoll: Epoll::new()?,
            servers: Vec::new(),
            lanes: Vec::new(),
            owner: vec![0; SLOTS],
            schedule: Schedule::new(config.rate, config.pipeline),
            random: Rng::new(SEED),
            values: Values::new(config.value_bytes),
            began: Instant::now(),
            next_lane: 0,
            unanswered: 0,
            latencies: histograms.collect::<Result<_>>()?,
            phase: Phase::WarmUp,
            phase_began_ns: 0,
            phase_ns: [0; Phase::ALL.len()],
            found: Found::default(),
            shared,
            config,
        };
        client.server(client.config.address)?;
        Ok(client)
    }

    /// The number of a server, which is connected to if it is new.
    fn server(&mut self, address: SocketAddr) -> Result<u8> {
        if let Some(known) = self.servers.iter().position(|server| *server == address) {
            return Ok(known as u8);
        }
        if self.servers.len() > usize::from(u8::MAX) {
            let problem = "more servers than this client can tell apart";
            return Err(BenchError::cluster(address.to_string(), problem));
        }
        for _ in 0..self.config.connections {
            let lane = self.lane(address, self.lanes.len())?;
            self.lanes.push(lane);
        }
        self.servers.push(address);
        Ok((self.servers.len() - 1) as u8)
    }

    fn lane(&self, address: SocketAddr, token: usize) -> Result<Lane> {
        Ok(Lane {
            socket: Socket::open(address, &self.epoll, token)?,
            replies: Replies::default(),
            unanswered: VecDeque::new(),
        })
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub(super) fn run(mut self) -> Result<Found> {
        self.began = Instant::now();
        let mut events = Epoll::events();
        let mut chunk = vec![0; READ_BYTES];
        if self.schedule.is_closed() {
            for lane in 0..self.config.connections {
                self.send_batch(lane, 0)?;
            }
        }
        let mut stopped_ns = None;
        loop {
            interrupt::check()?;
            let now_ns = self.now_ns();
            self.follow_phase(now_ns);
            if stopped_ns.is_none() && self.shared.stop.load(Ordering::Relaxed) {
                stopped_ns = Some(now_ns);
            }
            let is_late = |at: u64| now_ns - at > DRAIN.as_nanos() as u64;
            if stopped_ns.is_some_and(|at| self.unanswered == 0 || is_late(at)) {
                break;
            }
            let sends = stopped_ns.is_none() && !self.found.overloaded;
            let has_sent = sends && self.send_due(now_ns)?;
            let idle_ns = match sends {
                true if has_sent => 0,
                true => self.idle_ns(),
                false => SLEEP_NS_MAX,
            };
            let ready = self.epoll.wait(&mut events, idle_ns)?;
            for event in &events[..ready] {
                self.serve(event, &mut chunk, stopped_ns.is_none())?;
            }
        }
        self.follow_phase(self.now_ns());
        Ok(self.report())
    }

    /// Without spinning: the servers' CPUs are this thread's, too.
    fn idle_ns(&self) -> u64 {
        let until = self.schedule.next_due_ns().saturating_sub(self.now_ns());
        until.min(SLEEP_NS_MAX)
    }

    fn follow_phase(&mut self, now_ns: u64) {
        self.phase_ns[self.phase as usize] += now_ns - self.phase_began_ns;
        self.phase_began_ns = now_ns;
        let told = usize::from(self.shared.phase.load(Ordering::Relaxed));
        self.phase = Phase::ALL[told];
    }

    fn send_due(&mut self, now_ns: u64) -> Result<bool> {
        let mut has_sent = false;
        for _ in 0..SENDS_PER_TURN {
            let Some(due_ns) = self.schedule.take_due(now_ns) else {
                break;
            };
            let lane = self.next_lane;
            self.next_lane = (lane + 1) % self.config.connections;
            self.send_batch(lane, due_ns)?;
            has_sent = true;
        }
        Ok(has_sent)
    }

    /// Writes that are due together, on the same lane of each server that has some of them.
    fn send_batch(&mut self, lane: usize, due_ns: u64) -> Result<()> {
        for _ in 0..self.config.pipeline {
            let drawn = self.random.below(self.config.keys.len() as u64);
            let sent = Sent {
                due_ns,
                key: self.config.keys[drawn as usize],
                phase: self.phase,
                moves: 0,
            };
            self.append(sent, lane);
        }
        for server in 0..self.servers.len() {
            self.flush(server * self.config.connections + lane)?;
        }
        self.found.overloaded |= self.unanswered > UNANSWERED_MAX;
        Ok(())
    }

    /// Appends a write to what goes to the owner of its slot; the lane that is to be flushed.
    fn append(&mut self, sent: Sent, lane: usize) -> usize {
        let server = self.owner[slot_of_key(u64::from(sent.key))];
        let lane = usize::from(server) * self.config.connections + lane;
        let key = prefill::key(u64::from(sent.key));
        let value = self.values.get(u64::from(sent.key), sent.due_ns);
        let to = &mut self.lanes[lane];
        resp::encode(to.socket.out(), &[b"SET", &key, value]);
        to.unanswered.push_back(sent);
        self.unanswered += 1;
        lane
    }

    fn flush(&mut self, lane: usize) -> Result<()> {
        match self.lanes[lane].socket.flush(&self.epoll, lane) {
            Ok(()) => Ok(()),
            Err(_) => self.reopen(lane),
        }
    }

    /// After a connection has broken: nobody knows what became of what was under way on it.
    fn reopen(&mut self, lane: usize) -> Result<()> {
        let lost = self.lanes[lane].unanswered.len();
        self.unanswered -= lost;
        *self.found.errors.entry(CLOSED.to_owned()).or_default() += lost as u64;
        let address = self.servers[lane / self.config.connections];
        self.lanes[lane] = self.lane(address, lane)?;
        Ok(())
    }

    fn serve(&mut self, event: &Ready, chunk: &mut [u8], sends: bool) -> Result<()> {
        let (flags, lane) = (event.events, event.u64 as usize);
        if flags & libc::EPOLLOUT as u32 != 0 {
            self.flush(lane)?;
        }
        if flags & !(libc::EPOLLOUT as u32) == 0 {
            return Ok(());
        }
        let length = match self.lanes[lane].socket.receive(chunk) {
            Ok(length) => length,
            Err(_) => return self.reopen(lane),
        };
        let mut written = Vec::new();
        let replies = &mut self.lanes[lane].replies;
        replies.take(&chunk[..length], |one| written.push(one))?;
        let now_ns = self.now_ns();
        let own_lane = lane % self.config.connections;
        for one in written {
            let sent = self.lanes[lane].unanswered.pop_front();
            let sent = sent.ok_or_else(|| BenchError::reply("more replies than writes", b""))?;
            self.unanswered -= 1;
            self.answered(sent, one, own_lane, now_ns)?;
        }
        let is_own = |server: usize| server * self.config.connections + own_lane;
        let is_idle = || {
            (0..self.servers.len()).all(|server| self.lanes[is_own(server)].unanswered.is_empty())
        };
        if self.schedule.is_closed() && sends && is_idle() {
            self.send_batch(own_lane, now_ns)?;
        }
        Ok(())
    }

    fn answered(&mut self, sent: Sent, written: Written, lane: usize, now_ns: u64) -> Result<()> {
        let mut refused = |why: String| *self.found.errors.entry(why).or_default() += 1;
        match written {
            Written::Done => {
                let latency = now_ns.saturating_sub(sent.due_ns);
                self.latencies[sent.phase as usize].saturating_record(latency);
            }
            Written::Moved(_) if sent.moves == MOVES_MAX => refused(CIRCLES.to_owned()),
            Written::Moved(address) => {
                self.found.redirects += 1;
                let server = self.server(address)?;
                self.owner[slot_of_key(u64::from(sent.key))] = server;
                let moves = sent.moves + 1;
                let lane = self.append(Sent { moves, ..sent }, lane);
                self.flush(lane)?;
            }
            Written::Refused(why) => refused(why),
        }
        Ok(())
    }

    fn report(mut self) -> Found {
        if self.unanswered > 0 {
            let unanswered = self.unanswered as u64;
            self.found.errors.insert(UNANSWERED.to_owned(), unanswered);
        }
        let of = |phase: &Phase| {
            let histogram = &self.latencies[*phase as usize];
            let seconds = self.phase_ns[*phase as usize] as f64 / 1e9;
            PhaseReport {
                latency: load::latency(histogram),
                per_s: histogram.len() as f64 / seconds.max(1e-9),
            }
        };
        self.found.phases = Phase::ALL.iter().map(of).collect();
        self.found
    }
}
