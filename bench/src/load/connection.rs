use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::{BenchError, Result};
use crate::resp::{ReplyScanner, Scanned};

const READ_BYTES: usize = 64 * 1024;

/// Commands sent together: replies are counted off, kinds kept as bits, first command lowest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) intended_ns: u64,
    pub(super) left: u32,
    pub(super) gets: u64,
}

impl Batch {
    /// Counts off the next `taken` replies and says how many of them are GETs.
    pub(super) fn take(&mut self, taken: u32, pipeline: u32) -> u32 {
        let first = pipeline - self.left;
        let ones = u64::MAX.checked_shr(64 - taken).unwrap_or(0);
        self.left -= taken;
        (self.gets.checked_shr(first).unwrap_or(0) & ones).count_ones()
    }
}

/// One non-blocking connection with what is unsent and what is unanswered.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    watches_out: bool,
    outstanding: VecDeque<Batch>,
    scanner: ReplyScanner,
    chunk: Vec<u8>,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Result<Self> {
        let what = || BenchError::io(format!("connecting to {address}"));
        let stream = TcpStream::connect(address).map_err(what())?;
        stream.set_nodelay(true).map_err(what())?;
        stream.set_nonblocking(true).map_err(what())?;
        Ok(Connection {
            stream,
            out: Vec::new(),
            written: 0,
            watches_out: false,
            outstanding: VecDeque::new(),
            scanner: ReplyScanner::default(),
            chunk: vec![0; READ_BYTES],
        })
    }

    pub(super) fn watch(
        &self,
        epoll: &OwnedFd,
        index: usize,
        for_out: bool,
        operation: libc::c_int,
    ) -> Result<()> {
        let out = if for_out { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | out) as u32,
            u64: index as u64,
        };
        let fd = self.stream.as_raw_fd();
        // SAFETY: both descriptors are open and `event` outlives the call.
        match unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(BenchError::io("epoll_ctl")(io::Error::last_os_error())),
        }
    }

    /// Where commands are appended before [`Connection::flush`].
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(super) fn expect(&mut self, batch: Batch) {
        self.outstanding.push_back(batch);
    }

    pub(super) fn front(&mut self) -> Option<&mut Batch> {
        self.outstanding.front_mut()
    }

    pub(super) fn finish_front(&mut self) {
        self.outstanding.pop_front();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    pub(super) fn backlog(&self) -> usize {
        self.outstanding.len()
    }

    pub(super) fn unanswered(&self) -> u64 {
        self.outstanding
            .iter()
            .map(|batch| u64::from(batch.left))
            .sum()
    }

    /// Writes what the socket takes and watches for room when it does not take all.
    pub(super) fn flush(&mut self, epoll: &OwnedFd, index: usize) -> Result<()> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(length) => self.written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::io("sending commands")(error)),
            }
        }
        let is_done = self.written == self.out.len();
        if is_done {
            self.out.clear();
            self.written = 0;
        }
        if self.watches_out == is_done {
            self.watches_out = !is_done;
            self.watch(epoll, index, self.watches_out, libc::EPOLL_CTL_MOD)?;
        }
        Ok(())
    }

    /// Reads once and counts the replies.
    pub(super) fn receive(&mut self) -> Result<Scanned> {
        match self.stream.read(&mut self.chunk) {
            Ok(0) => Err(BenchError::io("reading replies")(
                io::ErrorKind::UnexpectedEof.into(),
            )),
            Ok(length) => self.scanner.scan(&self.chunk[..length]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(Scanned::default())
            }
            Err(error) => Err(BenchError::io("reading replies")(error)),
        }
    }
}
