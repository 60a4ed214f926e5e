//! SIGINT and SIGTERM: the first asks the process to stop, the second ends it at once. SIGHUP asks for files to be read
//! again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// A flag that the first signal sets; the second ends the process with 128 + the signal's number.
///
/// # Errors
/// What the operating system says.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let asked_to_stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let asked = Arc::clone(&asked_to_stop);
        // One swap: two threads may be in the handlers of two signals at the same time.
        let handler = move || {
            if asked.swap(true, Ordering::AcqRel) {
                low_level::exit(128 + signal);
            }
        };
        // SAFETY: the handler swaps an atomic and calls _exit, both of which signals may do.
        unsafe { low_level::register(signal, handler) }?;
    }
    Ok(asked_to_stop)
}

/// A flag that each SIGHUP sets.
///
/// # Errors
/// What the operating system says.
pub fn reload_flag() -> io::Result<Arc<AtomicBool>> {
    let asked_to_reload = Arc::new(AtomicBool::new(false));
    flag::register(SIGHUP, Arc::clone(&asked_to_reload))?;
    Ok(asked_to_reload)
}
