//! One io_uring per shard: multishot accepts and receives into shared buffers, sends, log writes
//! and syncs. A whole turn's submissions and the wait for the next completion are one syscall.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::buffers::{self, Buffers};

/// Submission entries; more in one turn are submitted in between.
const ENTRIES: u32 = 512;

/// Completion entries: every connection may have one receive and one send outstanding.
const COMPLETIONS: u32 = 16 * 1024;

/// A connection's place in its shard and how often the place was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnToken {
    pub index: u32,
    /// 24 bits, so that a completion for an earlier connection is told apart.
    pub generation: u32,
}

/// Which port a connection came in through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// The node's port: serves every key of the node.
    Entry,
    /// The shard's own port.
    Direct,
}

/// A port that clients connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    pub kind: ListenerKind,
    /// What comes through it is TLS.
    pub is_tls: bool,
}

impl Port {
    /// Its bits in `user_data`.
    fn payload(self) -> u64 {
        u64::from(self.kind == ListenerKind::Direct) | u64::from(self.is_tls) << 1
    }

    fn from_payload(payload: u64) -> Port {
        let kind = match payload & 1 {
            0 => ListenerKind::Entry,
            _ => ListenerKind::Direct,
        };
        Port {
            kind,
            is_tls: payload & 2 != 0,
        }
    }
}

/// A socket that carries a stream in bulk, with buffers of its own. Numbers are below 2^56 and are never
/// given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// Bytes that arrived, in one of the shard's receive buffers.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub buffer: u16,
    pub len: usize,
}

/// Something that was asked of the ring is done.
#[derive(Debug)]
pub enum Completion {
    Accepted {
        port: Port,
        result: io::Result<RawFd>,
        more: bool,
    },
    /// `Ok(None)` is the end of the stream; without `more` the receive has to be asked for again.
    Received {
        conn: ConnToken,
        result: io::Result<Option<Received>>,
        more: bool,
    },
    Sent {
        conn: ConnToken,
        result: io::Result<usize>,
    },
    /// The other end has closed the connection, or reset it: then nothing can be sent or received any more.
    HungUp {
        conn: ConnToken,
        is_reset: bool,
    },
    LogWritten {
        write: u64,
        result: io::Result<usize>,
    },
    LogSynced {
        result: io::Result<()>,
    },
    /// 0 is the end of the stream.
    StreamReceived {
        stream: StreamId,
        result: io::Result<usize>,
    },
    StreamSent {
        stream: StreamId,
        result: io::Result<usize>,
    },
    Woken,
}

mod tag {
    pub(super) const ACCEPT: u64 = 1;
    pub(super) const RECEIVE: u64 = 2;
    pub(super) const SEND: u64 = 3;
    pub(super) const LOG_WRITE: u64 = 4;
    pub(super) const LOG_SYNC: u64 = 5;
    pub(super) const WAKE: u64 = 6;
    pub(super) const CANCEL: u64 = 7;
    pub(super) const STREAM_RECEIVE: u64 = 8;
    pub(super) const STREAM_SEND: u64 = 9;
    pub(super) const HANGUP: u64 = 10;
}

/// Bits of `user_data` below the tag.
const PAYLOAD_BITS: u32 = 56;

const GENERATION_MASK: u32 = (1 << 24) - 1;

impl ConnToken {
    fn payload(self) -> u64 {
        u64::from(self.generation & GENERATION_MASK) << 32 | u64::from(self.index)
    }

    fn from_payload(payload: u64) -> ConnToken {
        ConnToken {
            index: payload as u32,
            generation: (payload >> 32) as u32 & GENERATION_MASK,
        }
    }

    /// The token of the next connection at the same place.
    #[must_use]
    pub fn next_generation(self) -> ConnToken {
        let generation = self.generation.wrapping_add(1) & GENERATION_MASK;
        ConnToken {
            index: self.index,
            generation,
        }
    }
}

fn user_data(tag: u64, payload: u64) -> u64 {
    tag << PAYLOAD_BITS | payload
}

/// What the streams of migrations need of a ring.
pub trait StreamIo {
    /// Receives into `into` what is there of a stream, or waits until something is. The socket must be a
    /// blocking one: the kernel would not wait for any other.
    ///
    /// # Safety
    /// The memory behind `into` must stay, and not be touched, until the `StreamReceived` completion.
    unsafe fn receive_stream(&mut self, stream: StreamId, fd: RawFd, into: &mut [u8]);

    /// Sends all that `message` points to. The socket must be a blocking one.
    ///
    /// # Safety
    /// The message and what it points to must neither move nor change until the `StreamSent` completion.
    unsafe fn send_stream(&mut self, stream: StreamId, fd: RawFd, message: *const libc::msghdr);
}

/// The ring of the executor that created it.
pub struct Ring {
    ring: IoUring,
    buffers: Buffers,
    wake_value: Box<u64>,
    /// Why entries could not be submitted, until somebody waits.
    failed: Option<io::Error>,
}

impl StreamIo for Ring {
    unsafe fn receive_stream(&mut self, stream: StreamId, fd: RawFd, into: &mut [u8]) {
        let len = into.len().min(i32::MAX as usize) as u32;
        let entry = opcode::Recv::new(Fd(fd), into.as_mut_ptr(), len).build();
        self.push(entry.user_data(user_data(tag::STREAM_RECEIVE, stream.0)));
    }

    unsafe fn send_stream(&mut self, stream: StreamId, fd: RawFd, message: *const libc::msghdr) {
        let entry = opcode::SendMsg::new(Fd(fd), message)
            .flags((libc::MSG_WAITALL | libc::MSG_NOSIGNAL) as u32)
            .build();
        self.push(entry.user_data(user_data(tag::STREAM_SEND, stream.0)));
    }
}

impl Ring {
    /// # Errors
    /// When the kernel is older than 6.1 or io_uring is forbidden (seccomp, `io_uring_disabled`).
    pub fn new() -> io::Result<Ring> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)?;
        let buffers = Buffers::register(&ring.submitter())?;
        Ok(Ring {
            ring,
            buffers,
            wake_value: Box::new(0),
            failed: None,
        })
    }

    /// Accepts connections until told otherwise by a completion without `more`.
    pub fn accept(&mut self, listener: RawFd, port: Port) {
        let entry = opcode::AcceptMulti::new(Fd(listener))
            .flags(libc::SOCK_CLOEXEC)
            .build();
        self.push(entry.user_data(user_data(tag::ACCEPT, port.payload())));
    }

    /// Receives into shared buffers until a completion without `more`.
    pub fn receive(&mut self, conn: ConnToken, fd: RawFd) {
        let entry = opcode::RecvMulti::new(Fd(fd), buffers::GROUP).build();
        self.push(entry.user_data(user_data(tag::RECEIVE, conn.payload())));
    }

    /// Asks for one `HungUp`, which the kernel also gives for the end of the stream. A multishot receive does not always tell: the kernel forgets a reset that comes while
    /// it still hands out what came before.
    pub fn await_hangup(&mut self, conn: ConnToken, fd: RawFd) {
        let entry = opcode::PollAdd::new(Fd(fd), RESET).build();
        self.push(entry.user_data(user_data(tag::HANGUP, conn.payload())));
    }

    /// Ends the outstanding receive of a connection; its last completion has no `more`.
    pub fn stop_receiving(&mut self, conn: ConnToken) {
        let target = user_data(tag::RECEIVE, conn.payload());
        let entry = opcode::AsyncCancel::new(target).build();
        self.push(entry.user_data(user_data(tag::CANCEL, 0)));
    }

    /// Sends all of `bytes`.
    ///
    /// # Safety
    /// `bytes` must neither move nor change until the `Sent` completion.
    pub unsafe fn send(&mut self, conn: ConnToken, fd: RawFd, bytes: &[u8]) {
        let entry = opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32)
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
            .build();
        self.push(entry.user_data(user_data(tag::SEND, conn.payload())));
    }

    /// Writes `bytes` at `offset` of a log segment.
    ///
    /// # Safety
    /// `bytes` must neither move nor change until the `LogWritten` completion.
    pub unsafe fn write_log(&mut self, write: u64, fd: RawFd, bytes: &[u8], offset: u64) {
        let entry = opcode::Write::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32)
            .offset(offset)
            .build();
        self.push(entry.user_data(user_data(tag::LOG_WRITE, write)));
    }

    /// Makes what was written to a log segment durable.
    pub fn sync_log(&mut self, fd: RawFd) {
        let entry = opcode::Fsync::new(Fd(fd))
            .flags(io_uring::types::FsyncFlags::DATASYNC)
            .build();
        self.push(entry.user_data(user_data(tag::LOG_SYNC, 0)));
    }

    /// Asks for one `Woken` when the waker rings.
    pub fn await_wake(&mut self, waker: RawFd) {
        let value: *mut u64 = &mut *self.wake_value;
        let entry = opcode::Read::new(Fd(waker), value.cast(), size_of::<u64>() as u32).build();
        self.push(entry.user_data(user_data(tag::WAKE, 0)));
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: every buffer an entry points to is kept by the caller until its completion
        // (`send`, `write_log`, those of streams) or lives in `self`.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            if let Err(error) = tolerate(self.ring.submit()) {
                // Whoever waits next is told; what was to be done until then is not begun.
                self.failed = Some(error);
                return;
            }
        }
    }

    fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Submits everything and waits up to `timeout` for a completion.
    ///
    /// # Errors
    /// Only what no retry can mend.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.check()?;
        if !self.ring.completion().is_empty() {
            return self.poll();
        }
        let timespec = Timespec::from(timeout);
        let args = SubmitArgs::new().timespec(&timespec);
        tolerate(self.ring.submitter().submit_with_args(1, &args))
    }

    /// Submits everything and collects what is complete, without waiting.
    ///
    /// # Errors
    /// Only what no retry can mend.
    pub fn poll(&mut self) -> io::Result<()> {
        self.check()?;
        let submitter = self.ring.submitter();
        // SAFETY: no argument but flags; GETEVENTS runs the deferred completions.
        let result = unsafe {
            let to_submit = self.ring.submission_shared().len() as u32;
            submitter.enter::<libc::sigset_t>(to_submit, 0, ENTER_GETEVENTS, None)
        };
        tolerate(result)
    }

    /// Moves all completions into `into`.
    pub fn collect(&mut self, into: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            let payload = entry.user_data() & ((1 << PAYLOAD_BITS) - 1);
            let more = cqueue::more(entry.flags());
            let result = match entry.result() {
                error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                value => Ok(value as usize),
            };
            let completion = match entry.user_data() >> PAYLOAD_BITS {
                tag::ACCEPT => Completion::Accepted {
                    port: Port::from_payload(payload),
                    result: result.map(|fd| fd as RawFd),
                    more,
                },
                tag::RECEIVE => {
                    let buffer = cqueue::buffer_select(entry.flags());
                    let result = result.map(|len| buffer.map(|buffer| Received { buffer, len }));
                    Completion::Received {
                        conn: ConnToken::from_payload(payload),
                        result,
                        more,
                    }
                }
                tag::SEND => Completion::Sent {
                    conn: ConnToken::from_payload(payload),
                    result,
                },
                tag::HANGUP => Completion::HungUp {
                    conn: ConnToken::from_payload(payload),
                    is_reset: result.is_ok_and(|events| events & RESET as usize != 0),
                },
                tag::LOG_WRITE => Completion::LogWritten {
                    write: payload,
                    result,
                },
                tag::LOG_SYNC => Completion::LogSynced {
                    result: result.map(drop),
                },
                tag::STREAM_RECEIVE => Completion::StreamReceived {
                    stream: StreamId(payload),
                    result,
                },
                tag::STREAM_SEND => Completion::StreamSent {
                    stream: StreamId(payload),
                    result,
                },
                tag::WAKE => Completion::Woken,
                _ => continue,
            };
            into.push(completion);
        }
    }

    /// The bytes of a `Received` completion.
    #[must_use]
    pub fn received(&self, received: Received) -> &[u8] {
        self.buffers.filled(received.buffer, received.len)
    }

    /// Gives a `Received` completion's buffer back to the kernel.
    pub fn release(&mut self, received: Received) {
        self.buffers.give_back(received.buffer);
    }
}

/// What the kernel answers while it has no memory, has completions to hand out first, or was interrupted is no error: the
/// entries stay, and are submitted with the next ones.
fn tolerate(result: io::Result<usize>) -> io::Result<()> {
    use libc::{EAGAIN, EBUSY, EINTR, ENOMEM, ETIME};
    match result {
        Err(error) => match error.raw_os_error() {
            Some(ETIME | EINTR | EBUSY | EAGAIN | ENOMEM) => Ok(()),
            _ => Err(error),
        },
        Ok(_) => Ok(()),
    }
}

/// What a socket shows that was reset, or closed both ways.
const RESET: u32 = (libc::POLLERR | libc::POLLHUP) as u32;

const ENTER_GETEVENTS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lacks_for_a_while_is_no_error_of_the_ring() {
        let answer = |code| tolerate(Err(io::Error::from_raw_os_error(code)));
        for code in [
            libc::ENOMEM,
            libc::EAGAIN,
            libc::EBUSY,
            libc::EINTR,
            libc::ETIME,
        ] {
            answer(code).expect("it may be asked again");
        }
        assert!(answer(libc::EINVAL).is_err());
    }

    #[test]
    fn a_ring_that_takes_no_entries_says_so_to_whoever_waits() {
        let mut ring = Ring::new().expect("io_uring");
        ring.failed = Some(io::Error::from_raw_os_error(libc::EBADR));
        assert!(ring.wait(Duration::ZERO).is_err());
        assert!(ring.poll().is_ok(), "once");
    }
}
