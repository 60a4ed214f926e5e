//! SIGINT and SIGTERM as a flag, so that servers and directories are cleaned up on the way out.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_signal: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Turns SIGINT and SIGTERM into a flag; blocking calls return early.
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: a zeroed sigaction is valid, and the handler only stores to an atomic.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

pub fn check() -> Result<()> {
    match requested() {
        true => Err(BenchError::Interrupted),
        false => Ok(()),
    }
}

/// Looks every `pause` whether something is so, for at most `timeout`; whether it has come to that.
pub fn wait_until(
    timeout: Duration,
    pause: Duration,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    let began = Instant::now();
    loop {
        check()?;
        if is_so()? {
            return Ok(true);
        }
        if began.elapsed() > timeout {
            return Ok(false);
        }
        thread::sleep(pause);
    }
}

/// Waits until a server is in a state, and fails when it is not in time.
pub fn wait_for(
    (server, state): (impl Display, &str),
    timeout: Duration,
    pause: Duration,
    is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    match wait_until(timeout, pause, is_so)? {
        true => Ok(()),
        false => Err(BenchError::failed(
            server,
            format_args!("not {state} after {} s", timeout.as_secs()),
        )),
    }
}

/// Runs something and, on a thread beside it, does something else every `pause`, at least once.
pub fn beside<T>(
    pause: Duration,
    mut tick: impl FnMut() -> Result<()> + Send,
    run: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let ticking = scope.spawn(|| {
            loop {
                tick()?;
                thread::sleep(pause);
                if is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        });
        let done = run();
        is_over.store(true, Ordering::Relaxed);
        let ticked = ticking.join();
        ticked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        done
    })
}
