//! A connected socket of the executor.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_lite::io::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;

use super::inbound::Inbound;
use super::keep_alive::KeepAlive;

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    /// What is read goes through here, so that an idle link needs no buffer.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// One of a listener's links; its place is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Permit(Rc<Cell<usize>>);

impl Permit {
    /// A place, unless `max` are taken.
    pub(super) fn take(taken: &Rc<Cell<usize>>, max: usize) -> Option<Permit> {
        if taken.get() >= max {
            return None;
        }
        taken.set(taken.get() + 1);
        Some(Permit(Rc::clone(taken)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A socket that ends its connection when it is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    permit: Option<Permit>,
    /// Whether the connection belongs to somebody else now.
    is_handed_over: bool,
}

impl Socket {
    /// Takes over a connected stream.
    pub(super) fn new(stream: TcpStream) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        // SAFETY: the descriptor is open as long as the stream, which outlives the borrow.
        let descriptor = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
        KeepAlive::LINKS.set(&descriptor)?;
        Ok(Socket {
            stream,
            permit: None,
            is_handed_over: false,
        })
    }

    /// The connection for use outside the executor, non-blocking. The executor's own interest in it is at
    /// most a poll for readiness: no byte is read for a socket that is gone.
    pub(super) fn into_std(mut self) -> io::Result<std::net::TcpStream> {
        // SAFETY: the descriptor is open as long as the stream, which outlives the borrow.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.stream.as_raw_fd()) };
        let stream = std::net::TcpStream::from(descriptor.try_clone_to_owned()?);
        stream.set_nonblocking(true)?;
        self.is_handed_over = true;
        Ok(stream)
    }

    /// Connects.
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Socket> {
        Socket::new(TcpStream::connect(address).await?)
    }

    pub(super) fn set_permit(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.stream.peer_addr()?)
    }

    /// Reads once into `inbound`; 0 is the end. Nothing is lost when the caller stops polling:
    /// glommio waits until the socket is readable and reads then.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbound: &mut Inbound,
    ) -> Poll<io::Result<usize>> {
        self.poll_fill_up_to(cx, inbound, READ_BYTES)
    }

    fn poll_fill_up_to(
        &mut self,
        cx: &mut Context<'_>,
        inbound: &mut Inbound,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let scratch = scratch.get_mut(..bytes_max).unwrap_or_default();
            let read = Pin::new(&mut self.stream).poll_read(cx, scratch);
            if let Poll::Ready(Ok(len)) = read {
                inbound.push(scratch.get(..len).unwrap_or_default());
            }
            read
        })
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    /// As [`Socket::poll_fill`], at most so many bytes.
    pub(super) async fn fill(
        &mut self,
        inbound: &mut Inbound,
        bytes_max: usize,
    ) -> io::Result<usize> {
        poll_fn(|cx| self.poll_fill_up_to(cx, inbound, bytes_max)).await
    }

    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = poll_fn(|cx| self.poll_write(cx, bytes)).await?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Ends one or both directions.
    pub(super) fn shut_down(&self, how: Shutdown) {
        let mut shutdown = pin!(self.stream.shutdown(how));
        // It never waits; and a connection that is gone needs no end.
        let _ = shutdown
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
    }
}

impl Drop for Socket {
    /// A poll that is still in the ring would keep a merely closed socket connected.
    fn drop(&mut self) {
        if !self.is_handed_over {
            self.shut_down(Shutdown::Both);
        }
    }
}

/// What `work` answers, or `None` when it takes longer than `limit`.
pub(super) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    futures_lite::future::or(async { Some(work.await) }, async {
        glommio::timer::sleep(limit).await;
        None
    })
    .await
}
