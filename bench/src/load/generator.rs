use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ephesus_wire::limits::SLOTS;
use ephesus_wire::resp::{reply, value};
use ephesus_wire::rng::Rng;
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::prefill::{self, Values, slot_of_key};

use super::phases::{Phase, Timetable};
use super::schedule::Schedule;
use super::socket::Socket;
use super::{DRAIN, Latency, histogram, latency};

const READ_BYTES: usize = 64 * 1024;
const SEED: u64 = 0x4c4f_4144;
const EVENTS_PER_TURN: usize = 128;
/// Batches begun before replies are looked at again.
const SENDS_PER_TURN: usize = 16;
/// Closer than this to the next send a generator with a CPU of its own spins instead of sleeping.
const SPIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(10);
/// Unanswered commands at which the servers count as overloaded, and nothing more is sent.
const UNANSWERED_MAX: usize = 1_000_000;
/// Times that one command is sent elsewhere before it counts as refused.
const MOVES_MAX: u8 = 8;
/// Longest reply that is waited for.
const REPLY_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Set,
    Del,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) kind: Kind,
    /// The index of its key.
    pub(crate) key: u64,
    /// Of the value that is set.
    pub(crate) generation: u64,
}

/// When the next command is due, and over which connection of each server it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) due_ns: u64,
    pub(crate) lane: usize,
}

/// How commands are sent.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    /// The server that has every slot at first.
    pub(crate) address: SocketAddr,
    /// Commands per second; 0 closes the loop: every connection has one batch in flight.
    pub(crate) rate: u64,
    /// To each server.
    pub(crate) connections: usize,
    /// Commands that are sent together.
    pub(crate) pipeline: u32,
    pub(crate) value_bytes: usize,
    /// The first connections are for a share of the batches of their own.
    pub(crate) apart: Option<Apart>,
    /// The generator has a CPU of its own, and may spin.
    pub(crate) spins: bool,
    /// Follows `-MOVED` and counts errors and broken connections, any of which ends it otherwise.
    pub(crate) is_patient: bool,
}

/// So many connections for all but a share of the batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Apart {
    pub(crate) connections: usize,
    pub(crate) others_percent: u32,
}

/// What one phase was like for clients.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PhaseReport {
    /// Of commands that were due in it and are done.
    pub all: Latency,
    /// GETs.
    pub get: Latency,
    /// SETs.
    pub set: Latency,
    /// Done per second.
    pub per_s: f64,
}

/// What clients have seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    #[serde(skip)]
    phases: Vec<PhaseReport>,
    /// Commands sent, warm-up included.
    pub sent: u64,
    /// Commands never answered.
    pub unanswered: u64,
    /// GETs that missed.
    pub misses: u64,
    /// Commands that were sent elsewhere.
    pub redirects: u64,
    /// Commands that were refused or never answered, by why.
    pub errors: BTreeMap<String, u64>,
    /// The servers fell so far behind that sending was stopped.
    pub overloaded: bool,
    /// Share of the time the generator had work in hand.
    pub client_busy: f64,
    /// 99th percentile of how late batches left the generator.
    pub send_delay_p99_us: f64,
}

impl Found {
    pub(crate) fn phase(&self, phase: Phase) -> PhaseReport {
        self.phases.get(phase as usize).cloned().unwrap_or_default()
    }

    fn count(&mut self, why: &str, commands: u64) {
        *self.errors.entry(why.to_owned()).or_default() += commands;
    }
}

/// A command that is not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    due_ns: u64,
    pub(super) command: Command,
    moves: u8,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Lane {
    socket: Socket,
    unread: Vec<u8>,
    pub(super) unanswered: VecDeque<Sent>,
}

/// What became of a command.
pub(super) enum Answer {
    Done,
    Missed,
    Refused(String),
}

/// A client of one server, or of a cluster; `next` says what it sends, none: nothing more.
pub(crate) struct Generator<N> {
    traffic: Traffic,
    next: N,
    epoll: OwnedFd,
    /// Servers it knows; each has `connections` lanes, in the same order.
    servers: Vec<SocketAddr>,
    pub(super) lanes: Vec<Lane>,
    /// Number of the server that has a slot.
    owner: Vec<u8>,
    schedule: Schedule,
    random: Rng,
    values: Values,
    /// Whose turn is next: among all connections, or among the first ones and the others.
    turns: [usize; 2],
    is_exhausted: bool,
    unanswered: usize,
    /// GETs and others, by phase.
    latencies: Vec<[Histogram<u64>; 2]>,
    send_delay: Histogram<u64>,
    busy: Duration,
    pub(super) found: Found,
}

impl<N: FnMut(&mut Rng, Turn) -> Option<Command>> Generator<N> {
    /// Connects.
    pub(crate) fn open(traffic: Traffic, next: N) -> Result<Self> {
        let latencies = Phase::ALL.iter().map(|_| Ok([histogram()?, histogram()?]));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let mut generator = Generator {
            next,
            epoll: epoll.map_err(|error| BenchError::io("epoll_create1")(error.into()))?,
            servers: Vec::new(),
            lanes: Vec::new(),
            owner: vec![0; usize::from(SLOTS)],
            schedule: Schedule::new(traffic.rate, traffic.pipeline),
            random: Rng::new(SEED),
            values: Values::new(traffic.value_bytes),
            turns: [0; 2],
            is_exhausted: false,
            unanswered: 0,
            latencies: latencies.collect::<Result<_>>()?,
            send_delay: histogram()?,
            busy: Duration::ZERO,
            found: Found::default(),
            traffic,
        };
        generator.server(generator.traffic.address)?;
        Ok(generator)
    }

    /// The number of a server, which is connected to if it is new.
    fn server(&mut self, address: SocketAddr) -> Result<u8> {
        if let Some(known) = self.servers.iter().position(|server| *server == address) {
            return Ok(known as u8);
        }
        if self.servers.len() > usize::from(u8::MAX) {
            let problem = "more servers than this client can tell apart";
            return Err(BenchError::failed(address.to_string(), problem));
        }
        for _ in 0..self.traffic.connections {
            let lane = self.lane(address, self.lanes.len())?;
            self.lanes.push(lane);
        }
        self.servers.push(address);
        Ok((self.servers.len() - 1) as u8)
    }

    fn lane(&self, address: SocketAddr, token: usize) -> Result<Lane> {
        Ok(Lane {
            socket: Socket::open(address, &self.epoll, token)?,
            unread: Vec::new(),
            unanswered: VecDeque::new(),
        })
    }

    /// Sends as the timetable says and waits for what is not answered then; the calling thread does all the work.
    pub(crate) fn run(mut self, times: &Timetable) -> Result<Found> {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        let mut chunk = vec![0; READ_BYTES];
        if self.schedule.is_closed() {
            for lane in 0..self.traffic.connections {
                self.send_batch(Turn { due_ns: 0, lane })?;
            }
        }
        let drain_ns = DRAIN.as_nanos() as u64;
        loop {
            interrupt::check()?;
            let began = Duration::from_nanos(times.now_ns());
            let sends = self.sends(times);
            let has_sent = sends && self.send_due(times)?;
            let is_late = times.now_ns() > times.end_ns().saturating_add(drain_ns);
            if is_late || self.is_over(times) && self.unanswered == 0 {
                break;
            }
            let mut now_ns = times.now_ns();
            if has_sent {
                self.busy += Duration::from_nanos(now_ns) - began;
            }
            self.wait(
                &mut events,
                if sends { self.idle(now_ns) } else { SLEEP_MAX },
            )?;
            if !events.is_empty() {
                now_ns = times.now_ns();
                for event in &events {
                    self.serve(event, &mut chunk, times)?;
                }
                self.busy += Duration::from_nanos(times.now_ns() - now_ns);
            } else if !has_sent {
                std::hint::spin_loop();
            }
        }
        Ok(self.report(times))
    }

    fn sends(&self, times: &Timetable) -> bool {
        !self.is_over(times) && !self.found.overloaded
    }

    /// Whether nothing is ever sent again; who is patient with servers that fall behind waits for the end.
    fn is_over(&self, times: &Timetable) -> bool {
        times.now_ns() >= times.end_ns()
            || self.is_exhausted
            || self.found.overloaded && !self.traffic.is_patient
    }

    fn idle(&self, now_ns: u64) -> Duration {
        let until = Duration::from_nanos(self.schedule.next_due_ns().saturating_sub(now_ns));
        let spin = if self.traffic.spins {
            SPIN
        } else {
            Duration::ZERO
        };
        until.saturating_sub(spin).min(SLEEP_MAX)
    }

    /// Waits for sockets.
    fn wait(&self, events: &mut Vec<epoll::Event>, at_most: Duration) -> Result<()> {
        events.clear();
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: at_most.as_nanos() as i64,
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(BenchError::io("epoll_pwait2")(error.into())),
        }
    }

    fn send_due(&mut self, times: &Timetable) -> Result<bool> {
        let mut has_sent = false;
        for _ in 0..SENDS_PER_TURN {
            let now_ns = times.now_ns();
            let Some(due_ns) = self.schedule.take_due(now_ns) else {
                break;
            };
            if times.phase(due_ns) != Phase::WarmUp {
                self.send_delay.saturating_record(now_ns - due_ns);
            }
            let lane = self.next_lane();
            self.send_batch(Turn { due_ns, lane })?;
            has_sent = true;
        }
        Ok(has_sent)
    }

    /// The connection of each server that the next batch goes over.
    pub(super) fn next_lane(&mut self) -> usize {
        let all = self.traffic.connections;
        let (is_other, first, count) = match self.traffic.apart {
            None => (false, 0, all),
            Some(apart) => match self.random.below(100) < u64::from(apart.others_percent) {
                false => (false, 0, apart.connections),
                true => (true, apart.connections, all - apart.connections),
            },
        };
        let turn = &mut self.turns[usize::from(is_other)];
        let lane = first + *turn;
        *turn = (*turn + 1) % count;
        lane
    }

    /// Commands that are due together, on the same lane of each server that has some of them.
    pub(super) fn send_batch(&mut self, turn: Turn) -> Result<()> {
        for _ in 0..self.traffic.pipeline {
            let Some(command) = (self.next)(&mut self.random, turn) else {
                self.is_exhausted = true;
                break;
            };
            self.found.sent += 1;
            let sent = Sent {
                due_ns: turn.due_ns,
                command,
                moves: 0,
            };
            self.append(sent, turn.lane);
        }
        for server in 0..self.servers.len() {
            self.flush(server * self.traffic.connections + turn.lane)?;
        }
        self.found.overloaded |= self.unanswered > UNANSWERED_MAX;
        Ok(())
    }

    /// Appends a command to what goes to the owner of its slot; the lane that is to be flushed.
    fn append(&mut self, sent: Sent, lane: usize) -> usize {
        let Command {
            kind,
            key,
            generation,
        } = sent.command;
        let server = match self.servers.len() {
            1 => 0,
            _ => usize::from(self.owner[slot_of_key(key)]),
        };
        let lane = server * self.traffic.connections + lane;
        let key_bytes = &prefill::key(key)[..];
        let to = &mut self.lanes[lane];
        let out = to.socket.out();
        match kind {
            Kind::Get => reply::command(out, &[b"GET", key_bytes]),
            Kind::Set => {
                reply::command(out, &[b"SET", key_bytes, self.values.get(key, generation)])
            }
            Kind::Del => reply::command(out, &[b"DEL", key_bytes]),
        }
        to.unanswered.push_back(sent);
        self.unanswered += 1;
        lane
    }

    fn flush(&mut self, lane: usize) -> Result<()> {
        let flushed = self.lanes[lane].socket.flush(&self.epoll, lane);
        flushed.or_else(|error| self.reopen(lane, error))
    }

    /// After a connection has broken: nobody knows what became of what was under way on it.
    fn reopen(&mut self, lane: usize, error: std::io::Error) -> Result<()> {
        let address = self.servers[lane / self.traffic.connections];
        if !self.traffic.is_patient {
            return Err(BenchError::io(format!("commands to {address}"))(error));
        }
        let lost = self.lanes[lane].unanswered.len();
        self.unanswered -= lost;
        self.found.count("connection closed", lost as u64);
        self.lanes[lane] = self.lane(address, lane)?;
        Ok(())
    }

    fn serve(&mut self, event: &epoll::Event, chunk: &mut [u8], times: &Timetable) -> Result<()> {
        let (flags, lane) = (event.flags, event.data.u64() as usize);
        if flags.contains(epoll::EventFlags::OUT) {
            self.flush(lane)?;
        }
        if flags == epoll::EventFlags::OUT {
            return Ok(());
        }
        let length = match self.lanes[lane].socket.receive(chunk) {
            Ok(length) => length,
            Err(error) => return self.reopen(lane, error),
        };
        let answers = answers(&mut self.lanes[lane].unread, &chunk[..length])?;
        let now_ns = times.now_ns();
        let own_lane = lane % self.traffic.connections;
        for answer in answers {
            let sent = self.lanes[lane].unanswered.pop_front();
            let sent = sent.ok_or_else(|| BenchError::reply("more replies than commands", b""))?;
            self.unanswered -= 1;
            self.answered(sent, answer, own_lane, (now_ns, times))?;
        }
        let mut own =
            (0..self.servers.len()).map(|server| server * self.traffic.connections + own_lane);
        let is_idle = own.all(|lane| self.lanes[lane].unanswered.is_empty());
        if self.schedule.is_closed() && is_idle && self.sends(times) {
            let (due_ns, lane) = (now_ns, own_lane);
            self.send_batch(Turn { due_ns, lane })?;
        }
        Ok(())
    }

    fn answered(
        &mut self,
        sent: Sent,
        answer: Answer,
        lane: usize,
        (now_ns, times): (u64, &Timetable),
    ) -> Result<()> {
        let text = match answer {
            Answer::Refused(text) => text,
            Answer::Done | Answer::Missed => {
                self.found.misses += u64::from(matches!(answer, Answer::Missed));
                let kinds = &mut self.latencies[times.phase(sent.due_ns) as usize];
                let latency = now_ns.saturating_sub(sent.due_ns);
                kinds[usize::from(sent.command.kind != Kind::Get)].saturating_record(latency);
                return Ok(());
            }
        };
        if !self.traffic.is_patient {
            let what = format!("{:?} on {}", sent.command.kind, self.traffic.address);
            return Err(BenchError::reply(what, text.as_bytes()));
        }
        match moved(&text) {
            Some(_) if sent.moves == MOVES_MAX => self.found.count("MOVED in circles", 1),
            Some(address) => {
                self.found.redirects += 1;
                self.owner[slot_of_key(sent.command.key)] = self.server(address)?;
                let moves = sent.moves + 1;
                let lane = self.append(Sent { moves, ..sent }, lane);
                self.flush(lane)?;
            }
            None => self
                .found
                .count(text.split(' ').next().unwrap_or_default(), 1),
        }
        Ok(())
    }

    fn report(self, times: &Timetable) -> Found {
        let mut found = self.found;
        found.unanswered = self.unanswered as u64;
        if found.unanswered > 0 {
            found.count("unanswered", found.unanswered);
        }
        found.client_busy = self.busy.as_nanos() as f64 / times.now_ns().max(1) as f64;
        found.send_delay_p99_us = self.send_delay.value_at_quantile(0.99) as f64 / 1e3;
        let phases = Phase::ALL.into_iter().zip(&self.latencies);
        found.phases = phases
            .map(|(phase, [get, set])| {
                let all = get.clone() + set;
                PhaseReport {
                    per_s: all.len() as f64 / times.seconds(phase).max(1e-9),
                    all: latency(&all),
                    get: latency(get),
                    set: latency(set),
                }
            })
            .collect();
        found
    }
}

/// Where a slot is served, of the text of an error.
fn moved(error: &str) -> Option<SocketAddr> {
    let mut words = error.split(' ');
    let is_moved = words.next() == Some("MOVED");
    words.nth(1).filter(|_| is_moved)?.parse().ok()
}

/// What these bytes and those before, which are no whole reply, answer.
pub(super) fn answers(unread: &mut Vec<u8>, bytes: &[u8]) -> Result<Vec<Answer>> {
    unread.extend_from_slice(bytes);
    let (mut answers, mut rest) = (Vec::new(), &unread[..]);
    let wrong = |rest| BenchError::reply("a command", rest);
    while let Some(length) = value::measure(rest).map_err(|_| wrong(rest))? {
        answers.push(match rest[..length] {
            [b'-', ref text @ .., _, _] => {
                Answer::Refused(String::from_utf8_lossy(text).into_owned())
            }
            [b'_', ..] | [b'$', b'-', ..] => Answer::Missed,
            [b'+' | b':' | b'$', ..] => Answer::Done,
            _ => return Err(wrong(rest)),
        });
        rest = &rest[length..];
    }
    if rest.len() > REPLY_BYTES_MAX {
        return Err(wrong(rest));
    }
    let used = unread.len() - rest.len();
    unread.drain(..used);
    Ok(answers)
}
