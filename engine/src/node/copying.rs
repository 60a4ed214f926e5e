//! MIGRATE: threads that give keys to other servers, so that no shard waits for one.
//!
//! Each of them dials, writes and reads for one command at a time. A server that does not answer keeps one of them for
//! as long as the command allows each step: connecting, taking what is written in pieces, answering a key.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ephesus_wire::database;
use ephesus_wire::resp::reply;
use zeroize::Zeroizing;

use crate::keyspace::copies::Copied;
use crate::shard::mesh::{Message, Peer};

/// Threads of a node.
const THREADS_MAX: usize = 8;

/// Commands that wait for one of them.
const QUEUED_MAX: usize = 256;

/// Bytes of all commands that are on their way.
const BYTES_MAX: usize = 128 << 20;

/// What a target has to take in one step; so many it is with Redis.
const PIECE_BYTES: usize = 64 << 10;

/// The longest line that a target may answer.
const LINE_BYTES_MAX: u64 = 4096;

/// Keys that are to be given to a target.
#[derive(Debug)]
pub struct Job {
    /// Comes back with the outcome.
    pub id: u64,
    /// Who wants to know it.
    pub peer: Peer,
    pub host: Vec<u8>,
    /// 0: none that there could be.
    pub port: u16,
    /// For each step; not 0.
    pub timeout: Duration,
    pub database: i64,
    pub user: Option<Vec<u8>>,
    pub password: Option<Zeroizing<Vec<u8>>>,
    pub replaces: bool,
    pub keys: Arc<[Copied]>,
}

impl Job {
    /// Memory that it takes.
    fn bytes(&self) -> usize {
        let user = self.user.as_ref().map_or(0, Vec::capacity);
        let password = self.password.as_ref().map_or(0, |text| text.capacity());
        let keys: usize = self.keys.iter().map(Copied::bytes).sum();
        size_of::<Job>() + self.host.capacity() + user + password + keys
    }
}

/// What has become of a [`Job`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The keys that the target has taken, by index.
    pub taken: Vec<usize>,
    pub error: Option<CopyError>,
}

/// Why not all keys were taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// Nobody there, or not in time.
    #[error("IOERR error or timeout connecting to the client")]
    Connecting,
    #[error("IOERR error or timeout writing to target instance")]
    Writing,
    #[error("IOERR error or timeout reading to target instance")]
    Reading,
    #[error("ERR Target instance replied with error: {0}")]
    Refused(String),
}

/// The way to the threads.
#[derive(Debug)]
pub struct Copying {
    jobs: flume::Sender<Job>,
    queued: flume::Receiver<Job>,
    threads: AtomicUsize,
    /// Those that wait for a job.
    idle: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

impl Default for Copying {
    fn default() -> Copying {
        let (jobs, queued) = flume::bounded(QUEUED_MAX);
        Copying {
            jobs,
            queued,
            threads: AtomicUsize::new(0),
            idle: Arc::default(),
            bytes: Arc::default(),
        }
    }
}

impl Copying {
    /// Makes room for a job that may have to wait before it is [asked](Copying::ask) for; false if there is none.
    #[must_use]
    pub fn reserve(&self, job: &Job) -> bool {
        let bytes = job.bytes();
        let has_room = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= BYTES_MAX;
        if !has_room {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        has_room
    }

    /// Takes a job for which there is [room](Copying::reserve), whose outcome will come to the shard as a message; false
    /// if there are too many, and then the room is free again.
    #[must_use]
    pub fn ask(&self, job: Job) -> bool {
        let bytes = job.bytes();
        if self.idle.load(Ordering::Acquire) <= self.jobs.len() {
            self.add_thread();
        }
        let is_taken = self.threads.load(Ordering::Acquire) > 0 && self.jobs.try_send(job).is_ok();
        if !is_taken {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Starts one more thread, if there may be more. It ends with the node, or with the process: it may wait for somebody
    /// who does not answer.
    fn add_thread(&self) {
        if self.threads.fetch_add(1, Ordering::AcqRel) >= THREADS_MAX {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let (queued, idle) = (self.queued.clone(), Arc::clone(&self.idle));
        let bytes = Arc::clone(&self.bytes);
        let started = std::thread::Builder::new()
            .name("migrate".to_owned())
            .spawn(move || {
                loop {
                    idle.fetch_add(1, Ordering::AcqRel);
                    let job = queued.recv();
                    idle.fetch_sub(1, Ordering::AcqRel);
                    let Ok(job) = job else {
                        return;
                    };
                    let outcome = carry_out(&job);
                    bytes.fetch_sub(job.bytes(), Ordering::Relaxed);
                    job.peer.send(Message::Copied(job.id, outcome));
                }
            });
        if let Err(error) = started {
            tracing::error!(%error, "no thread for MIGRATE");
            self.threads.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn carry_out(job: &Job) -> Outcome {
    match connect(job) {
        Ok(stream) => talk(job, stream),
        Err(error) => Outcome {
            error: Some(error),
            ..Outcome::default()
        },
    }
}

/// Connects; who refuses is told apart as Redis does, which finds it when it writes.
fn connect(job: &Job) -> Result<TcpStream, CopyError> {
    let host = std::str::from_utf8(&job.host).map_err(|_| CopyError::Connecting)?;
    let found = (host, job.port).to_socket_addrs();
    let found = found.map_err(|_| CopyError::Connecting)?;
    let mut failure = CopyError::Connecting;
    for address in found {
        let connected = TcpStream::connect_timeout(&address, job.timeout).and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(_) => failure = CopyError::Writing,
        }
    }
    Err(failure)
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a target is waited for, as sockets do it"
)]
fn clock() -> Instant {
    Instant::now()
}

/// A connection of which each step has to be over in time, however many reads or writes it takes.
struct Timed {
    stream: TcpStream,
    timeout: Duration,
    ends: Instant,
}

impl Timed {
    /// A step begins.
    fn begin(&mut self) {
        self.ends = clock() + self.timeout;
    }

    /// What is left of the step.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.ends.saturating_duration_since(clock()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }

    /// Writes all of it, in steps.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE_BYTES) {
            self.begin();
            self.write_all(piece)?;
        }
        Ok(())
    }
}

impl Read for Timed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buf)
    }
}

impl Write for Timed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// What a target is told before the keys, and how many replies come to that.
fn greeting(job: &Job) -> (Zeroizing<Vec<u8>>, usize) {
    let mut out = Zeroizing::new(Vec::new());
    let mut replies = 1;
    if let Some(password) = &job.password {
        replies += 1;
        match &job.user {
            Some(user) => reply::command(&mut out, &[&b"AUTH"[..], &user[..], &password[..]]),
            None => reply::command(&mut out, &[&b"AUTH"[..], &password[..]]),
        }
    }
    let database = job.database.to_string();
    reply::command(&mut out, &[&b"SELECT"[..], database.as_bytes()]);
    (out, replies)
}

fn restore(out: &mut Vec<u8>, copied: &Copied, replaces: bool) {
    let ttl = copied.ttl_ms.to_string();
    let (_, key) = database::split(&copied.key);
    let mut args = vec![&b"RESTORE"[..], key, ttl.as_bytes(), &copied.dump];
    if replaces {
        args.push(b"REPLACE");
    }
    reply::command(out, &args);
}

/// Sends everything, then reads all replies, as Redis does.
fn talk(job: &Job, stream: TcpStream) -> Outcome {
    let mut outcome = Outcome::default();
    let (greeting, greetings) = greeting(job);
    let mut timed = Timed {
        stream,
        timeout: job.timeout,
        ends: clock(),
    };
    let mut sent = timed.send(&greeting);
    for copied in &*job.keys {
        sent = sent.and_then(|()| {
            let mut out = Vec::new();
            restore(&mut out, copied, job.replaces);
            timed.send(&out)
        });
    }
    if sent.is_err() {
        outcome.error = Some(CopyError::Writing);
        return outcome;
    }
    let mut reader = BufReader::new(timed);
    for _ in 0..greetings {
        match line(&mut reader) {
            Ok(Ok(())) => {}
            Ok(Err(text)) => {
                outcome.error.get_or_insert(CopyError::Refused(text));
            }
            Err(_) => {
                outcome.error = Some(CopyError::Reading);
                return outcome;
            }
        }
    }
    // What was restored into another database, or before a password was known to be wrong, is no copy.
    let is_greeted = outcome.error.is_none();
    for index in 0..job.keys.len() {
        match line(&mut reader) {
            Ok(Ok(())) if is_greeted => outcome.taken.push(index),
            Ok(Ok(())) => {}
            Ok(Err(text)) => {
                outcome.error.get_or_insert(CopyError::Refused(text));
            }
            Err(_) => {
                outcome.error = Some(CopyError::Reading);
                break;
            }
        }
    }
    outcome
}

/// Reads one reply, in one step: that all is well, or an error's text.
fn line(reader: &mut BufReader<Timed>) -> io::Result<Result<(), String>> {
    reader.get_mut().begin();
    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let text = String::from_utf8_lossy(&line);
    let text = text.trim_end_matches('\r');
    Ok(match text.strip_prefix('-') {
        Some(error) => Err(error.to_owned()),
        None => Ok(()),
    })
}

#[cfg(test)]
mod tests;
