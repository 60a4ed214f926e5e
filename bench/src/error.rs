//! Why a measurement could not be made.

use std::fmt::Display;

pub type Result<T, E = BenchError> = std::result::Result<T, E>;

/// Every variant invalidates the run it occurred in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A flag does not fit, or the system, a server, or what else the run needs, did not do what was asked: do what the
    /// problem says.
    #[error("{what}: {problem}")]
    Failed { what: String, problem: String },
    /// This machine is too small for it: use fewer CPUs, or a larger machine.
    #[error("{0}")]
    TooFewCpus(String),
    /// A signal asked to stop; servers are killed on the way out.
    #[error("interrupted")]
    Interrupted,
}

const EXCERPT_CHARS: usize = 200;

impl BenchError {
    pub fn failed(what: impl Display, problem: impl Display) -> BenchError {
        BenchError::Failed {
            what: what.to_string(),
            problem: problem.to_string(),
        }
    }

    /// Keys are missing (or lookups were no hits), so the hit rate would not be 100%.
    pub fn keys(server: impl Display, found: u64, expected: u64) -> BenchError {
        BenchError::failed(
            server,
            format_args!("holds {found} keys, expected {expected}"),
        )
    }

    /// A program, a server or the kernel said something in a form that this tool does not know.
    pub fn unexpected(what: impl Display, said: &str) -> BenchError {
        let shown: String = said.chars().take(EXCERPT_CHARS).collect();
        BenchError::failed(what, format_args!("unexpected: {shown:?}"))
    }
}

/// Says what was being done when something failed.
pub trait During<T> {
    fn during(self, what: impl Display) -> Result<T>;
}

impl<T, E: Display> During<T> for Result<T, E> {
    fn during(self, what: impl Display) -> Result<T> {
        self.map_err(|error| BenchError::failed(what, error))
    }
}
