use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::error::{BenchError, Result};
use crate::resp::{ReplyScanner, Scanned};

use super::epoll::Epoll;
use super::socket::Socket;

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

/// One connection with what is unanswered.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    token: usize,
    outstanding: VecDeque<Batch>,
    scanner: ReplyScanner,
    chunk: Vec<u8>,
}

impl Connection {
    pub(super) fn open(address: SocketAddr, epoll: &Epoll, token: usize) -> Result<Self> {
        Ok(Connection {
            socket: Socket::open(address, epoll, token)?,
            token,
            outstanding: VecDeque::new(),
            scanner: ReplyScanner::default(),
            chunk: vec![0; READ_BYTES],
        })
    }

    /// Where commands are appended before [`Connection::flush`].
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        self.socket.out()
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
    pub(super) fn flush(&mut self, epoll: &Epoll) -> Result<()> {
        let flushed = self.socket.flush(epoll, self.token);
        flushed.map_err(BenchError::io("sending commands"))
    }

    /// Reads once and counts the replies.
    pub(super) fn receive(&mut self) -> Result<Scanned> {
        let received = self.socket.receive(&mut self.chunk);
        let length = received.map_err(BenchError::io("reading replies"))?;
        self.scanner.scan(&self.chunk[..length])
    }
}
