//! SIGINT and SIGTERM as a flag, so that servers and directories are cleaned up on the way out.

use std::sync::atomic::{AtomicBool, Ordering};

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

/// Whether a signal asked to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Ends the current step when a signal asked to stop.
///
/// # Errors
/// [`BenchError::Interrupted`].
pub fn check() -> Result<()> {
    if requested() {
        Err(BenchError::Interrupted)
    } else {
        Ok(())
    }
}
