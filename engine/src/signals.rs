//! SIGINT and SIGTERM: the first asks the process to stop, the second ends it at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that the first signal sets; the second ends the process with 128 + the signal's number.
///
/// # Errors
/// What the operating system says.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let asked_to_stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The handler that ends the process runs before the one that sets the flag.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked_to_stop))?;
        flag::register(signal, Arc::clone(&asked_to_stop))?;
    }
    Ok(asked_to_stop)
}
