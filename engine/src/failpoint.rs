//! Places at which a test stops the process, which then can be killed between two steps and nowhere else.
//!
//! `EPHESUS_FAILPOINTS` names a directory. A file in it arms the place of its name for all processes with that directory;
//! the first one that passes renames the file and stops, as by SIGSTOP, until it gets SIGCONT. Without the variable,
//! or without the file, nothing happens. Under strace the attempt to rename marks the place among the system calls.
//!
//! It is in every build, as system tests run the one that ships. A client cannot reach it.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::OnceLock;

use signal_hook::consts::SIGSTOP;

/// Passes a place; what it is about joins the name of the file of an armed one.
pub fn pass(place: &str, about: impl Display) {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let named = || std::env::var_os("EPHESUS_FAILPOINTS").map(PathBuf::from);
    let Some(directory) = DIRECTORY.get_or_init(named) else {
        return;
    };
    let passed = directory.join(format!("{place} {about}"));
    if std::fs::rename(directory.join(place), passed).is_ok() {
        // To this thread: it executes nothing before the process stops.
        if let Err(error) = signal_hook::low_level::raise(SIGSTOP) {
            tracing::error!(place, %error, "a failpoint does not stop the process");
        }
    }
}
