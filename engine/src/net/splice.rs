//! Sending memory without copying it: its pages go through a pipe into the socket.
//!
//! Over loopback the other end copies right out of these pages, with a network card the card reads them; the kernel's
//! `MSG_ZEROCOPY` copies on loopback after all.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};

use super::lent::Lent;

/// Pages that are on their way through the pipe at most; more than a turn's sends.
const PIPE_BYTES: libc::c_int = 512 << 10;

/// A pipe in front of one socket.
#[derive(Debug)]
pub struct Pipe {
    from: PipeReader,
    to: PipeWriter,
    /// Bytes in it.
    held: usize,
}

impl Pipe {
    /// # Errors
    /// What the operating system says, also if it does not let us splice: whoever wants to send has to copy.
    pub fn new() -> io::Result<Pipe> {
        let (from, to) = io::pipe()?;
        // Less room, which a user with many pipes gets, only means more calls.
        // SAFETY: sets the size of a descriptor's pipe.
        let _ = unsafe { libc::fcntl(to.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
        let pipe = Pipe { from, to, held: 0 };
        pipe.probe()?;
        Ok(pipe)
    }

    /// Makes the calls with nothing to do for them: sandboxes that forbid them look at no more than their numbers.
    fn probe(&self) -> io::Result<()> {
        let (from, to) = (self.from.as_raw_fd(), self.to.as_raw_fd());
        let null = std::ptr::null_mut();
        // SAFETY: no memory is named.
        let outcomes = unsafe {
            [
                libc::vmsplice(to, std::ptr::null(), 0, 0),
                libc::splice(from, null, to, null, 0, 0),
            ]
        };
        match outcomes {
            [0, 0] => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Takes of a frame what follows its first `done` bytes and finds room; how many bytes. The slot must stay as it
    /// is until the other end has them.
    ///
    /// # Errors
    /// What the operating system says, `WouldBlock` when there is no room.
    pub fn fill(&mut self, lent: &Lent, done: usize) -> io::Result<usize> {
        let rest = lent.frame().get(done..).unwrap_or_default();
        let part = libc::iovec {
            iov_base: rest.as_ptr().cast_mut().cast(),
            iov_len: rest.len(),
        };
        // SAFETY: reads the part, and takes references to its pages.
        let taken =
            unsafe { libc::vmsplice(self.to.as_raw_fd(), &part, 1, libc::SPLICE_F_NONBLOCK as _) };
        let taken = usize::try_from(taken).map_err(|_| io::Error::last_os_error())?;
        self.held += taken;
        Ok(taken)
    }

    /// Sends what is in the pipe, as far as the socket has room; how many bytes.
    ///
    /// # Errors
    /// What the operating system says, other than that there is no room.
    pub fn drain(&mut self, socket: RawFd) -> io::Result<usize> {
        let before = self.held;
        let waits = set_nonblocking(socket)?;
        let mut result = Ok(());
        while self.held > 0 && result.is_ok() {
            // SAFETY: both descriptors are open, and no memory is named.
            let sent = unsafe {
                libc::splice(
                    self.from.as_raw_fd(),
                    std::ptr::null_mut(),
                    socket,
                    std::ptr::null_mut(),
                    self.held,
                    libc::SPLICE_F_NONBLOCK as _,
                )
            };
            match usize::try_from(sent) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.held -= sent,
                Err(_) => result = Err(io::Error::last_os_error()),
            }
        }
        set_flags(socket, waits)?;
        match result {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(before - self.held),
        }
    }
}

/// Splicing waits for room unless the socket says that nobody does; what it said before. The ring needs sockets that
/// wait, but looks only when it is entered, by the same thread.
fn set_nonblocking(socket: RawFd) -> io::Result<libc::c_int> {
    // SAFETY: asks for the flags of a descriptor.
    let flags = unsafe { libc::fcntl(socket, libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    set_flags(socket, flags | libc::O_NONBLOCK)?;
    Ok(flags)
}

fn set_flags(socket: RawFd, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: sets the flags of a descriptor.
    match unsafe { libc::fcntl(socket, libc::F_SETFL, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use ephesus_wire::frame::FRAME_HEADER_BYTES;
    use ephesus_wire::limits::STREAM_DATA_BYTES;

    use super::super::lent::Pool;
    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let from = TcpStream::connect(address).expect("listening");
        (from, listener.accept().expect("connected").0)
    }

    fn filled(pool: &mut Pool, n: usize) -> Lent {
        let mut lent = pool.take().expect("one is free");
        let bytes = lent.grow(STREAM_DATA_BYTES - 16 * n);
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at / 7 + n) as u8;
        }
        lent.set_header(&[n as u8; FRAME_HEADER_BYTES]);
        lent
    }

    /// Puts as much of the frames into the pipe as there is room for; where to go on.
    fn fill(pipe: &mut Pipe, frames: &[Lent], (mut n, mut done): (usize, usize)) -> (usize, usize) {
        while let Some(frame) = frames.get(n) {
            match pipe.fill(frame, done) {
                Ok(taken) => done += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
            if done == frame.frame().len() {
                (n, done) = (n + 1, 0);
            }
        }
        (n, done)
    }

    #[test]
    fn frames_arrive_as_they_are_and_a_full_socket_makes_nobody_wait() {
        let (from, mut to) = pair();
        let mut pool = Pool::default();
        let frames: Vec<Lent> = (0..100).map(|n| filled(&mut pool, n)).collect();
        let expected = frames.iter().flat_map(|lent| lent.frame()).copied();
        let expected: Vec<u8> = expected.collect();
        let mut pipe = Pipe::new().expect("a pipe");
        let (mut at, mut sent, mut refused) = ((0, 0), 0, 0);
        let mut received = Vec::new();
        while sent < expected.len() {
            at = fill(&mut pipe, &frames, at);
            let now = pipe.drain(from.as_raw_fd()).expect("connected");
            sent += now;
            if now == 0 {
                refused += 1;
                let mut part = vec![0; 256 << 10];
                let len = to.read(&mut part).expect("connected");
                received.extend_from_slice(&part[..len]);
            }
        }
        assert!(pipe.is_empty());
        assert!(refused > 0, "6 MB fit no socket");
        let rest = received.len();
        received.resize(expected.len(), 0);
        to.read_exact(&mut received[rest..]).expect("the rest");
        assert!(received == expected, "other bytes");
        // SAFETY: asks for the flags of a descriptor.
        let flags = unsafe { libc::fcntl(from.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & libc::O_NONBLOCK, 0, "the ring needs it to wait");
    }

    #[test]
    fn a_closed_connection_is_an_error() {
        let (from, to) = pair();
        drop(to);
        let mut pool = Pool::default();
        let frames = [filled(&mut pool, 1)];
        let mut pipe = Pipe::new().expect("a pipe");
        let outcome = (0..100).find_map(|_| {
            fill(&mut pipe, &frames, (0, 0));
            pipe.drain(from.as_raw_fd()).err()
        });
        assert!(outcome.is_some(), "a hundred frames went nowhere");
    }

    /// Has every call of this number by this thread refused from now on.
    fn forbid(call: libc::c_long) {
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        let is_equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        let answer = (libc::BPF_RET | libc::BPF_K) as u16;
        let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let mut steps = [
            step(load, 0, 0, 0),
            step(is_equal, 0, 1, call as u32),
            step(answer, 0, 0, refusal),
            step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog {
            len: steps.len() as u16,
            filter: steps.as_mut_ptr(),
        };
        // SAFETY: the program is read during the call, and concerns this thread alone.
        let outcomes = unsafe {
            [
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter),
            ]
        };
        assert_eq!(outcomes, [0, 0], "{}", io::Error::last_os_error());
    }

    #[test]
    fn a_system_that_lets_nobody_splice_is_found_out_at_once() {
        for call in [libc::SYS_vmsplice, libc::SYS_splice] {
            let outcome = std::thread::scope(|scope| {
                let sandbox = scope.spawn(|| {
                    forbid(call);
                    Pipe::new().map(|_| ())
                });
                sandbox.join().expect("no panic")
            });
            let error = outcome.expect_err("it is forbidden");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
        Pipe::new().expect("others may");
    }
}
