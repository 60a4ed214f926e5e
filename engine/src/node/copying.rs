//! MIGRATE: threads that give keys to other servers, so that no shard waits for one.
//!
//! Each of them dials, writes and reads for one command at a time. A server that does not answer keeps one of them for
//! as long as the command allows.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephesus_wire::database;
use ephesus_wire::resp::reply;
use zeroize::Zeroizing;

use crate::keyspace::copies::Copied;
use crate::shard::mesh::{Message, Peer};

/// Threads of a node.
const THREADS_MAX: usize = 8;

/// Commands that wait for one of them.
const QUEUED_MAX: usize = 256;

/// Bytes of values that are on their way, of all commands.
const BYTES_MAX: usize = 128 << 20;

/// The longest line that a target may answer.
const LINE_BYTES_MAX: u64 = 4096;

/// Keys that are to be given to a target.
#[derive(Debug)]
pub struct Job {
    /// Comes back with the outcome.
    pub id: u64,
    /// Who wants to know it.
    pub peer: Peer,
    pub host: String,
    /// 0: none that there could be.
    pub port: u16,
    pub timeout: Duration,
    pub database: i64,
    pub user: Option<Vec<u8>>,
    pub password: Option<Zeroizing<Vec<u8>>>,
    pub replaces: bool,
    pub keys: Arc<[Copied]>,
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
    /// Makes room for the values of a job that may have to wait before it is [asked](Copying::ask) for; false if there is
    /// none.
    #[must_use]
    pub fn reserve(&self, keys: &[Copied]) -> bool {
        let bytes = bytes_of(keys);
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
        let bytes = bytes_of(&job.keys);
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
                    bytes.fetch_sub(bytes_of(&job.keys), Ordering::Relaxed);
                    job.peer.send(Message::Copied(job.id, outcome));
                }
            });
        if let Err(error) = started {
            tracing::error!(%error, "no thread for MIGRATE");
            self.threads.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn bytes_of(keys: &[Copied]) -> usize {
    keys.iter().map(Copied::bytes).sum()
}

fn carry_out(job: &Job) -> Outcome {
    match connect(job) {
        Ok(stream) => talk(job, &stream),
        Err(error) => Outcome {
            error: Some(error),
            ..Outcome::default()
        },
    }
}

/// Connects; who refuses is told apart as Redis does, which finds it when it writes.
fn connect(job: &Job) -> Result<TcpStream, CopyError> {
    let found = (&*job.host, job.port).to_socket_addrs();
    let found = found.map_err(|_| CopyError::Connecting)?;
    let mut failure = CopyError::Connecting;
    for address in found {
        let connected = TcpStream::connect_timeout(&address, job.timeout).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(job.timeout))?;
            stream.set_write_timeout(Some(job.timeout))?;
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
fn talk(job: &Job, stream: &TcpStream) -> Outcome {
    let mut outcome = Outcome::default();
    let (greeting, greetings) = greeting(job);
    let mut writer = stream;
    let mut sent = writer.write_all(&greeting);
    for copied in &*job.keys {
        let mut out = Vec::new();
        restore(&mut out, copied, job.replaces);
        sent = sent.and_then(|()| writer.write_all(&out));
    }
    if sent.is_err() {
        outcome.error = Some(CopyError::Writing);
        return outcome;
    }
    let mut reader = BufReader::new(stream);
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

/// Reads one reply: that all is well, or an error's text.
fn line(reader: &mut BufReader<&TcpStream>) -> io::Result<Result<(), String>> {
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
