//! Why a measurement could not be made.

use std::fmt::Display;
use std::io;
use std::time::Duration;

/// The result of everything in this crate.
pub type Result<T, E = BenchError> = std::result::Result<T, E>;

/// Why a measurement could not be made; every variant invalidates the run it occurred in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A system call or file operation failed: look at `what`, fix it, run again.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system answered.
        source: io::Error,
    },
    /// A server ended by itself: read the end of its log, included here.
    #[error("{server} exited early ({status}); its last output:\n{log_tail}")]
    ServerExited {
        /// Which server.
        server: String,
        /// Exit status in words.
        status: String,
        /// Last lines of its output.
        log_tail: String,
    },
    /// A flag does not fit, or a server, or what else the run needs, did not do what was asked: do what the problem says,
    /// or look at the server's log.
    #[error("{what}: {problem}")]
    Failed {
        /// The flag, or what was asked, and of whom.
        what: String,
        /// What is wrong with it, or what came of it.
        problem: String,
    },
    /// Use fewer, or a larger machine.
    #[error("servers need {servers} CPUs and clients {clients}, and {there} may be used")]
    TooFewCpus {
        /// For servers.
        servers: usize,
        /// For the load generator.
        clients: usize,
        /// That this process may use.
        there: usize,
    },
    /// A signal asked to stop; servers are killed on the way out.
    #[error("interrupted")]
    Interrupted,
}

const EXCERPT_BYTES: usize = 200;

impl BenchError {
    /// An I/O failure while doing `what`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
        let what = what.into();
        move |source| BenchError::Io { what, source }
    }

    /// What was asked and not done.
    pub fn failed(what: impl Into<String>, problem: impl ToString) -> BenchError {
        BenchError::Failed {
            what: what.into(),
            problem: problem.to_string(),
        }
    }

    /// The machine is too slow, or the server hangs.
    pub fn timed_out(server: impl Display, state: &str, waited: Duration) -> BenchError {
        let problem = format!("not {state} after {} s", waited.as_secs());
        BenchError::failed(server.to_string(), problem)
    }

    /// Keys are missing (or lookups were no hits), so the hit rate would not be 100%.
    pub fn keys(server: impl Display, found: u64, expected: u64) -> BenchError {
        let problem = format!("holds {found} keys, expected {expected}");
        BenchError::failed(server.to_string(), problem)
    }

    /// A flag that does not fit this machine or the other flags.
    pub fn flag(flag: &str, problem: impl ToString) -> BenchError {
        BenchError::failed(flag, problem)
    }

    /// A text of a program or of the kernel that is not in the known form: a version this tool does not know.
    pub fn parse(what: &str, text: &str) -> BenchError {
        let shown: String = text.chars().take(EXCERPT_BYTES).collect();
        BenchError::failed(what, format!("cannot be read from {shown:?}"))
    }

    /// A server answered something else than the protocol or the measurement needs.
    pub fn reply(what: impl Into<String>, got: &[u8]) -> BenchError {
        let shown = String::from_utf8_lossy(&got[..got.len().min(EXCERPT_BYTES)]);
        BenchError::failed(what, format!("unexpected reply {shown:?}"))
    }
}
