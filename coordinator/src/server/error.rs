//! Why a coordinator does not start, or stops.

use std::path::PathBuf;

use ephesus_wal::dir::DirError;

use crate::command::RaftId;
use crate::member::MemberError;
use crate::state::Refusal;
use crate::storage::StorageError;

/// Why a coordinator does not start, or stops.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Look at the path and its permissions.
    #[error("cannot {0}")]
    Dir(#[from] DirError),
    /// Stop the other process, or choose another `--data-dir`.
    #[error("{} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// Choose a directory that is empty or a coordinator's.
    #[error("{} is not a coordinator's directory: it has no file `stamp`, and is not empty", .0.display())]
    Foreign(PathBuf),
    /// Run a release that knows the format, or restore the directory.
    #[error("{}: {what}", path.display())]
    Stamp {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Start it under the number it has.
    #[error("{} belongs to coordinator {found}: start it with --id {found}, not --id {asked}", path.display())]
    OtherId {
        /// The directory.
        path: PathBuf,
        /// Its number.
        found: RaftId,
        /// `--id`.
        asked: RaftId,
    },
    /// Say what the empty directory is: a founder's, or that of one more.
    #[error(
        "{} is empty: start a founding coordinator with --bootstrap, once; to replace a lost one, add \
         it with `ephesus coordinator-member add` and start it with --join under its new number",
        .0.display()
    )]
    Empty(PathBuf),
    /// Restore the directory, or replace the coordinator: one that has forgotten how it voted must not vote.
    #[error(
        "{}: the log is gone: restore the directory; or remove it with `ephesus coordinator-member remove`, and \
         add another with an empty directory (one that was just added is started with --join until it has the log)",
        .0.display()
    )]
    NoLog(PathBuf),
    /// See there.
    #[error("the state cannot be changed: {0}")]
    Refused(#[from] Refusal),
    /// Add it to `--peers`.
    #[error("--peers does not say where coordinator {0} is reached")]
    NotAmongPeers(RaftId),
    /// See there.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// See there.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// Try again; without it links could be confused with each other.
    #[error("no random bytes: {0}")]
    Random(getrandom::Error),
}
