//! Why a measurement could not be made.

use std::io;
use std::path::PathBuf;

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
    /// A server answered something else than the protocol or the measurement needs.
    #[error("{what}: unexpected reply {got:?}")]
    Reply {
        /// The request.
        what: String,
        /// The reply, shortened.
        got: String,
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
    /// A server did not become ready or idle in time: the machine is too slow or the server hangs.
    #[error("{server} was not {state} after {waited_s} s")]
    TimedOut {
        /// Which server.
        server: String,
        /// What was waited for.
        state: &'static str,
        /// Seconds waited.
        waited_s: u64,
    },
    /// A thread may run outside its core, so no number of this run is fair: use `--confine cpuset`
    /// when the kernel's own io_uring workers ignore the affinity mask.
    #[error(
        "{server}: thread {tid} ({thread}) may run on CPUs {cpus}, not only on {wanted}; \
         if it is an io_uring worker of the kernel, use --confine cpuset"
    )]
    Escaped {
        /// Which server.
        server: String,
        /// Thread id.
        tid: u32,
        /// Thread name.
        thread: String,
        /// What the kernel allows it.
        cpus: String,
        /// What it should be confined to.
        wanted: String,
    },
    /// Text of a program or of the kernel was not in the known form: a version this tool does not know.
    #[error("cannot read {what} from {text:?}")]
    Parse {
        /// What was looked for.
        what: &'static str,
        /// The text, shortened.
        text: String,
    },
    /// A program or directory that the run needs is not there.
    #[error("{what} not found; {remedy}")]
    Missing {
        /// What is missing.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Keys were missing, so the hit rate would not be 100%.
    #[error("{server} holds {found} keys, expected {expected}")]
    KeyCount {
        /// Which server.
        server: String,
        /// Keys found (or hits).
        found: u64,
        /// Keys expected (or lookups).
        expected: u64,
    },
    /// The data directory is in memory, where sync costs nothing: pass `--dir` on a real disk.
    #[error("{path} is on tmpfs or ramfs; pass --dir on a real disk")]
    InMemoryDirectory {
        /// The refused directory.
        path: PathBuf,
    },
    /// A flag does not fit this machine or the other flags.
    #[error("{flag}: {problem}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The coordinators or a node of a cluster did not do what was asked: look at their logs.
    #[error("{what}: {problem}")]
    Cluster {
        /// What was asked.
        what: String,
        /// What came of it.
        problem: String,
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

    /// What a cluster did not do.
    pub fn cluster(what: impl Into<String>, problem: impl ToString) -> BenchError {
        BenchError::Cluster {
            what: what.into(),
            problem: problem.to_string(),
        }
    }

    /// A flag that does not fit.
    pub fn flag(flag: &'static str, problem: impl Into<String>) -> BenchError {
        BenchError::Flag {
            flag,
            problem: problem.into(),
        }
    }

    /// A text that could not be understood.
    pub fn parse(what: &'static str, text: &str) -> BenchError {
        BenchError::Parse {
            what,
            text: text.chars().take(EXCERPT_BYTES).collect(),
        }
    }

    /// A reply that does not fit.
    pub fn reply(what: impl Into<String>, got: &[u8]) -> BenchError {
        let shown = &got[..got.len().min(EXCERPT_BYTES)];
        BenchError::Reply {
            what: what.into(),
            got: String::from_utf8_lossy(shown).into_owned(),
        }
    }
}
