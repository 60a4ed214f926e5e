use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::error::{BenchError, Result};
use crate::interrupt;

const EVENTS_PER_TURN: usize = 128;

/// What is ready: flags and token.
pub(crate) type Ready = libc::epoll_event;

/// Waits for sockets.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: epoll_create1 has no preconditions; the result is checked before it is owned.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(BenchError::io("epoll_create1")(io::Error::last_os_error()));
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(epoll) }))
    }

    pub(super) fn control(
        &self,
        operation: libc::c_int,
        fd: RawFd,
        token: usize,
        for_out: bool,
    ) -> io::Result<()> {
        let out = if for_out { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | out) as u32,
            u64: token as u64,
        };
        // SAFETY: the caller holds `fd` open, and `event` outlives the call.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Room for what one wait finds.
    pub(crate) fn events() -> [Ready; EVENTS_PER_TURN] {
        [libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_TURN]
    }

    /// How many of `events` are ready, at the latest after `timeout_ns`.
    pub(crate) fn wait(&self, events: &mut [Ready], timeout_ns: u64) -> Result<usize> {
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: `events` is valid for its length, `timeout` outlives the call, no signal mask.
        let ready = unsafe {
            libc::epoll_pwait2(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                &timeout,
                std::ptr::null(),
            )
        };
        if ready >= 0 {
            return Ok(ready as usize);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {
                interrupt::check()?;
                Ok(0)
            }
            error => Err(BenchError::io("epoll_pwait2")(error)),
        }
    }
}
