use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, mem};

use ephesus_engine::net::{Completion, ConnToken, Received, Ring};
use ephesus_wire::resp::value::decode;

use crate::error::{BenchError, During, Result};
use crate::procfs::own_cpu_time;
use crate::target::CONNECT_TIMEOUT;

use super::keys::Counters;
use super::link::{Link, Reply, first};
use super::outcome::Tally;
use super::routes::{self, Routes};
use super::schedule::{Phase, Schedule, Timetable};
use super::source::{Sent, Source};
use super::workload::Op;
use super::{DRAIN, Plan};

/// Batches begun before replies are looked at again.
const SENDS_PER_TURN: usize = 16;
const SLEEP_MAX: Duration = Duration::from_millis(10);
/// Times that one operation is sent elsewhere before it counts as failed.
const MOVES_MAX: u8 = 8;
/// How long a server of a cluster that was gone may take to let a client in.
const RETRY_TIMEOUT: Duration = Duration::from_millis(100);
/// Between two questions who has which slot.
const TABLE_INTERVAL_NS: u64 = 100_000_000;

/// The clients of one executor: one loop over one ring, in which every turn is one system call.
pub(super) struct Client {
    // Dropped before the links, whose buffers it may use.
    ring: Ring,
    /// `lanes` of each server, in the order of `routes`.
    links: Vec<Link>,
    /// Broken ones that still send.
    retired: Vec<Link>,
    /// Operations that are not answered, of each lane: one connection to each server, whichever of them a key belongs to.
    lanes: Vec<usize>,
    routes: Routes,
    plan: Arc<Plan>,
    source: Source,
    schedule: Schedule,
    times: Arc<Timetable>,
    tally: Arc<Mutex<Tally>>,
    /// The lane that the next batch of an open loop goes over.
    next_lane: usize,
    /// What is to be sent anew, to the owner of its key.
    again: Vec<Sent>,
    /// What waits until its owner can be reached, or somebody else owns its key, with its lane.
    held: Vec<(Sent, usize)>,
    retry_ns: u64,
    /// Servers of a cluster may be gone for a while, once it runs.
    is_patient: bool,
    /// When what was sent in this turn was due.
    due_ns: Vec<u64>,
    unanswered: usize,
    is_exhausted: bool,
    is_overloaded: bool,
    answered_ns: u64,
    /// A server has said that its table is another one.
    asks_table: bool,
    table_asked_ns: Option<u64>,
}

impl Client {
    /// Connects; must be called on the executor's thread.
    pub(super) fn open(
        plan: Arc<Plan>,
        of: (usize, usize),
        (times, counters): (Arc<Timetable>, Arc<Counters>),
        tally: Arc<Mutex<Tally>>,
    ) -> Result<Self> {
        let (executor, executors) = of;
        let all = plan.pace.connections;
        let lanes = all / executors + usize::from(executor < all % executors);
        let mut client = Client {
            ring: Ring::new().during("io_uring")?,
            links: Vec::new(),
            retired: Vec::new(),
            lanes: vec![0; lanes],
            routes: Routes::to(plan.target.address),
            source: Source::new(&plan, of, counters),
            schedule: Schedule::new(plan.pace.rate, plan.pace.pipeline, of),
            times,
            tally,
            next_lane: 0,
            again: Vec::new(),
            held: Vec::new(),
            retry_ns: 0,
            is_patient: false,
            due_ns: Vec::new(),
            unanswered: 0,
            is_exhausted: false,
            is_overloaded: false,
            answered_ns: 0,
            asks_table: false,
            table_asked_ns: None,
            plan,
        };
        if client.plan.is_cluster {
            client.learn_table()?;
        }
        client.connect_new()?;
        client.is_patient = client.plan.is_cluster;
        Ok(client)
    }

    fn learn_table(&mut self) -> Result<()> {
        let address = self.plan.target.address;
        let mut connection = self.plan.target.connect(address)?;
        let reply = connection.call(&["CLUSTER", "SLOTS"])?;
        match self.routes.learn(&reply, address)? {
            0 => Ok(()),
            missing => Err(BenchError::failed(
                format_args!("the cluster of {address}"),
                format_args!("nobody has {missing} of its slots"),
            )),
        }
    }

    fn connect_new(&mut self) -> Result<()> {
        while self.links.len() < self.routes.servers.len() * self.lanes.len() {
            let (index, generation) = (self.links.len() as u32, 0);
            let link = self.link(ConnToken { index, generation })?;
            self.links.push(link);
        }
        Ok(())
    }

    fn link(&mut self, token: ConnToken) -> Result<Link> {
        match self.connect(token) {
            Err(_) if self.is_patient => Ok(Link::down(token, self.address(token))),
            connected => connected,
        }
    }

    fn connect(&mut self, token: ConnToken) -> Result<Link> {
        // Others wait meanwhile, once it runs.
        let timeout = match self.is_patient {
            true => RETRY_TIMEOUT,
            false => CONNECT_TIMEOUT,
        };
        let address = self.address(token);
        let connection = self.plan.target.connect_within(address, timeout)?;
        Link::new(connection, token, &mut self.ring)
    }

    fn address(&self, token: ConnToken) -> SocketAddr {
        self.routes.servers[token.index as usize / self.lanes.len()]
    }

    /// Sends as the timetable says and waits for what is not answered then.
    pub(super) fn run(mut self) -> Result<()> {
        let mut completions = Vec::new();
        let (cpu, mut spun_ns) = (own_cpu_time(), 0);
        if self.schedule.is_closed() {
            for lane in 0..self.lanes.len() {
                self.send_batch(self.times.now_ns(), lane)?;
            }
        }
        loop {
            let began_ns = self.times.now_ns();
            if !self.held.is_empty() && began_ns >= self.retry_ns {
                self.retry(began_ns)?;
            }
            let sends = self.sends(began_ns);
            if sends {
                self.send_due()?;
            }
            let is_late = began_ns > self.times.end_ns().saturating_add(DRAIN.as_nanos() as u64);
            if is_late || self.unanswered == 0 && self.is_over(began_ns) {
                break;
            }
            let has_sent = !self.due_ns.is_empty();
            let sleep = match (has_sent, sends) {
                (true, _) => Duration::ZERO,
                (false, true) => self.idle(began_ns),
                (false, false) => SLEEP_MAX,
            };
            match sleep.is_zero() {
                true => self.ring.poll(),
                false => self.ring.wait(sleep),
            }
            .during("io_uring_enter")?;
            if has_sent {
                self.note_delays();
            }
            self.ring.collect(&mut completions);
            if completions.is_empty() && !has_sent && sleep.is_zero() {
                spun_ns += self.times.now_ns() - began_ns;
            }
            for completion in completions.drain(..) {
                self.complete(completion)?;
            }
        }
        let unanswered = self.unanswered as u64;
        let mut tally = lock(&self.tally);
        tally.failed("UNANSWERED", unanswered, "operations were not answered");
        let unsent = match self.sends(self.times.now_ns()) {
            true => {
                self.schedule.due_before(self.times.end_ns()) * u64::from(self.plan.pace.pipeline)
            }
            false => 0,
        };
        let example = "the generator could not keep up with the rate";
        tally.failed("UNSENT", unsent, example);
        let used = own_cpu_time().saturating_sub(cpu);
        tally.cpu += used.saturating_sub(Duration::from_nanos(spun_ns));
        tally.answered_ns = self.answered_ns;
        Ok(())
    }

    fn sends(&self, now_ns: u64) -> bool {
        !self.is_over(now_ns) && !self.is_overloaded
    }

    /// Whether nothing is ever sent again: an open loop also sends what was due before the end and is late.
    fn is_over(&self, now_ns: u64) -> bool {
        let next_ns = match self.schedule.is_closed() || self.is_overloaded {
            true => now_ns,
            false => self.schedule.next_due_ns(),
        };
        next_ns >= self.times.end_ns() || self.is_exhausted
    }

    /// How long nothing has to be sent; an executor with a CPU of its own does not sleep meanwhile, as waking up takes
    /// longer than a schedule may be late.
    fn idle(&self, now_ns: u64) -> Duration {
        let until = Duration::from_nanos(self.schedule.next_due_ns().saturating_sub(now_ns));
        match self.plan.pace.cpus.is_empty() || self.schedule.is_closed() {
            true => until.min(SLEEP_MAX),
            false => Duration::ZERO,
        }
    }

    fn send_due(&mut self) -> Result<()> {
        for _ in 0..SENDS_PER_TURN {
            let until_ns = self
                .times
                .now_ns()
                .min(self.times.end_ns().saturating_sub(1));
            let Some(due_ns) = self.schedule.take_due(until_ns) else {
                break;
            };
            self.due_ns.push(due_ns);
            let lane = self.next_lane;
            self.next_lane = (lane + 1) % self.lanes.len();
            self.send_batch(due_ns, lane)?;
        }
        Ok(())
    }

    /// What was due has been handed to the kernel.
    fn note_delays(&mut self) {
        let now_ns = self.times.now_ns();
        let mut tally = lock(&self.tally);
        for due_ns in self.due_ns.drain(..) {
            if self.times.phase(due_ns) != Phase::WarmUp {
                let delay = tally.send_delay.get_or_insert_default();
                delay.record_ns(now_ns.saturating_sub(due_ns));
            }
        }
    }

    /// Operations that are due together, on the same lane of each server that has some of them.
    fn send_batch(&mut self, due_ns: u64, lane: usize) -> Result<()> {
        let mut count = 0;
        for _ in 0..self.plan.pace.pipeline {
            let Some(sent) = self.source.next(due_ns) else {
                self.is_exhausted = true;
                break;
            };
            count += 1;
            self.append(sent, lane);
        }
        self.lanes[lane] += count;
        self.unanswered += count;
        let is_overloaded = self.unanswered > self.plan.unanswered_max;
        let mut tally = lock(&self.tally);
        tally.sent += count as u64;
        if is_overloaded && !self.is_overloaded {
            self.is_overloaded = true;
            let example = "too many operations are not answered: nothing more is sent";
            tally.failed("OVERLOADED", 1, example);
        }
        drop(tally);
        self.flush_lane(lane)
    }

    fn append(&mut self, sent: Sent, lane: usize) {
        let link = self.routes.server_of(&sent) * self.lanes.len() + lane;
        match self.links[link].is_down() {
            true => self.held.push((sent, lane)),
            false => self.append_to(sent, link),
        }
    }

    /// Looks for servers that can be reached again, and who owns the keys of what is held.
    fn retry(&mut self, now_ns: u64) -> Result<()> {
        self.retry_ns = now_ns + TABLE_INTERVAL_NS;
        for first in (0..self.links.len()).step_by(self.lanes.len()) {
            for link in first..first + self.lanes.len() {
                if self.links[link].is_down() {
                    let token = self.links[link].token.next_generation();
                    // One that is not there is not there for its other lanes either.
                    let Ok(new) = self.connect(token) else { break };
                    self.links[link] = new;
                }
            }
        }
        if let Some(link) = self.links.iter().position(|link| !link.is_down()) {
            self.ask_table(link, now_ns);
        }
        for (sent, lane) in mem::take(&mut self.held) {
            self.append(sent, lane);
        }
        (0..self.lanes.len()).try_for_each(|lane| self.flush_lane(lane))
    }

    fn append_to(&mut self, sent: Sent, link: usize) {
        let link = &mut self.links[link];
        self.source.encode(&sent, &mut link.out);
        link.in_flight.push_back(sent);
    }

    fn flush_lane(&mut self, lane: usize) -> Result<()> {
        for link in (lane..self.links.len()).step_by(self.lanes.len()) {
            self.links[link]
                .flush(&mut self.ring)
                .during("encrypting")?;
        }
        Ok(())
    }

    fn complete(&mut self, completion: Completion) -> Result<()> {
        match completion {
            Completion::Received { conn, result, more } => match (self.current(conn), result) {
                (Some(link), result) => self.received(link, (result, more))?,
                (None, Ok(Some(received))) => self.ring.release(received),
                (None, _) => {}
            },
            Completion::Sent { conn, result } => {
                self.retired.retain(|link| link.token != conn);
                if let Some(link) = self.current(conn) {
                    self.links[link].is_sending = false;
                    match result {
                        Ok(_) => self.flush_lane(link % self.lanes.len())?,
                        Err(error) => self.broken(link, error)?,
                    }
                }
            }
            Completion::HungUp { conn, .. } => {
                if let Some(link) = self.current(conn) {
                    self.broken(link, io::ErrorKind::ConnectionReset.into())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn current(&self, token: ConnToken) -> Option<usize> {
        let place = token.index as usize;
        let link = self.links.get(place)?;
        (link.token == token).then_some(place)
    }

    fn received(
        &mut self,
        link: usize,
        (result, more): (io::Result<Option<Received>>, bool),
    ) -> Result<()> {
        let received = match result {
            Ok(Some(received)) => received,
            Ok(None) => return self.broken(link, io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                self.receive(link);
                return Ok(());
            }
            Err(error) => return self.broken(link, error),
        };
        let bytes = self.ring.received(received);
        self.links[link].arrived(bytes)?;
        self.ring.release(received);
        if !more {
            self.receive(link);
        }
        self.answered_ns = self.times.now_ns();
        let lane = link % self.lanes.len();
        self.take_replies(link)?;
        self.connect_new()?;
        let asks_table = mem::take(&mut self.asks_table);
        if asks_table {
            self.ask_table(link, self.times.now_ns());
        }
        if asks_table || !self.again.is_empty() {
            for sent in mem::take(&mut self.again) {
                self.append(sent, lane);
            }
            self.flush_lane(lane)?;
        }
        self.go_on(lane)
    }

    fn receive(&mut self, link: usize) {
        let link = &self.links[link];
        self.ring.receive(link.token, link.fd());
    }

    fn take_replies(&mut self, link: usize) -> Result<()> {
        let (address, lane) = (self.links[link].address, link % self.lanes.len());
        let tally = Arc::clone(&self.tally);
        let mut tally = lock(&tally);
        let mut unread = mem::take(&mut self.links[link].unread);
        let mut used = 0;
        while let Some((reply, length)) = first(&unread[used..]).during(address)? {
            let sent = self.links[link].in_flight.pop_front();
            let surplus = || BenchError::failed(address, "more replies than commands");
            if self.take(sent.ok_or_else(surplus)?, reply, address, &mut tally)? {
                self.unanswered -= 1;
                self.lanes[lane] -= 1;
            }
            used += length;
        }
        unread.drain(..used);
        self.links[link].unread = unread;
        Ok(())
    }

    /// Takes the reply of a server; whether the operation is over.
    fn take(
        &mut self,
        sent: Sent,
        reply: Reply<'_>,
        from: SocketAddr,
        tally: &mut Tally,
    ) -> Result<bool> {
        let Some(op) = sent.op else {
            self.take_table(reply, from)?;
            return Ok(false);
        };
        if let Reply::Error(text) = reply {
            return self.refused(sent, &String::from_utf8_lossy(text), from, tally);
        }
        let is_read = matches!(op, Op::Read | Op::Rmw) && !sent.is_second;
        tally.misses += u64::from(reply == Reply::Null && is_read);
        match self.source.carried_out(&sent, &reply) {
            Ok(Some(second)) => {
                self.again.push(second);
                return Ok(false);
            }
            Ok(None) => {
                let latency_ns = self.answered_ns.saturating_sub(sent.due_ns);
                tally.done(self.times.phase(sent.due_ns), op, latency_ns);
            }
            Err(flaw) => {
                let example = format!("{flaw} of {}", String::from_utf8_lossy(&sent.key_name()));
                tally.failed(flaw, 1, &example);
            }
        }
        Ok(true)
    }

    fn refused(
        &mut self,
        sent: Sent,
        text: &str,
        from: SocketAddr,
        tally: &mut Tally,
    ) -> Result<bool> {
        if let Some(address) = routes::moved(text, from) {
            tally.redirects += 1;
            self.asks_table = true;
            self.routes.moved(&sent, address)?;
            if sent.moves < MOVES_MAX {
                self.again.push(sent.elsewhere());
                return Ok(false);
            }
        }
        let code = text.split(' ').next().unwrap_or_default();
        tally.failed(code, 1, text);
        Ok(true)
    }

    /// A table that is not whole, or none, is no error: moves go on, and each error names its slot's owner.
    fn take_table(&mut self, reply: Reply<'_>, from: SocketAddr) -> Result<()> {
        if let Reply::List(bytes) = reply
            && let Ok(Some((table, _))) = decode(bytes)
        {
            self.routes.learn(&table, from)?;
        }
        Ok(())
    }

    /// Asks the server at `link`, which knows better than the table does, unless one was asked just now.
    fn ask_table(&mut self, link: usize, now_ns: u64) {
        let is_new = |asked_ns: u64| now_ns - asked_ns < TABLE_INTERVAL_NS;
        if self.plan.is_cluster && !self.table_asked_ns.is_some_and(is_new) {
            self.table_asked_ns = Some(now_ns);
            self.append_to(Sent::TABLE, link);
        }
    }

    /// In a closed loop the next batch follows when all of the last one is answered.
    fn go_on(&mut self, lane: usize) -> Result<()> {
        let is_idle = self.lanes[lane] == 0 && self.schedule.is_closed();
        let now_ns = self.times.now_ns();
        match is_idle && self.sends(now_ns) {
            true => self.send_batch(now_ns, lane),
            false => Ok(()),
        }
    }

    /// After a connection has broken: nobody knows what became of what was under way on it.
    fn broken(&mut self, link: usize, error: io::Error) -> Result<()> {
        let lane = link % self.lanes.len();
        let under_way = mem::take(&mut self.links[link].in_flight);
        let lost = under_way.iter().filter(|sent| sent.op.is_some()).count();
        let why = format!("connection to {}: {error}", self.links[link].address);
        lock(&self.tally).failed("CONNECTION-LOST", lost as u64, &why);
        self.unanswered -= lost;
        self.lanes[lane] -= lost;
        let token = self.links[link].token.next_generation();
        self.links[link].shut();
        let new = self.link(token)?;
        let old = mem::replace(&mut self.links[link], new);
        if old.is_sending {
            self.retired.push(old);
        }
        self.go_on(lane)
    }
}

pub(super) fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}
