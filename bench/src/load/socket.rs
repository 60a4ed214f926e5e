use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::error::{BenchError, Result};

/// A non-blocking connection to a server with what is not sent yet.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    watches_out: bool,
}

impl Socket {
    /// Connects, and is watched under `token`.
    pub(super) fn open(address: SocketAddr, epoll: &OwnedFd, token: usize) -> Result<Self> {
        let what = || BenchError::io(format!("connecting to {address}"));
        let stream = TcpStream::connect(address).map_err(what())?;
        stream.set_nodelay(true).map_err(what())?;
        stream.set_nonblocking(true).map_err(what())?;
        let added = epoll::add(
            epoll,
            &stream,
            EventData::new_u64(token as u64),
            EventFlags::IN,
        );
        added.map_err(|error| what()(error.into()))?;
        Ok(Socket {
            stream,
            out: Vec::new(),
            written: 0,
            watches_out: false,
        })
    }

    /// Where commands are appended before [`Socket::flush`].
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes what the socket takes and watches for room when it does not take all.
    pub(super) fn flush(&mut self, epoll: &OwnedFd, token: usize) -> io::Result<()> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(length) => self.written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let is_done = self.written == self.out.len();
        if is_done {
            self.out.clear();
            self.written = 0;
        }
        if self.watches_out == is_done {
            self.watches_out = !is_done;
            let out = if is_done {
                EventFlags::empty()
            } else {
                EventFlags::OUT
            };
            epoll::modify(
                epoll,
                &self.stream,
                EventData::new_u64(token as u64),
                EventFlags::IN | out,
            )?;
        }
        Ok(())
    }

    /// Reads once; 0 bytes when there is nothing now.
    ///
    /// # Errors
    /// Also when the other end has closed.
    pub(super) fn receive(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(chunk) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(0)
            }
            other => other,
        }
    }
}
