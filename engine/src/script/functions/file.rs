//! The file of a node's libraries, `functions` in its data directory: what FUNCTION DUMP answers.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ephesus_wal::dir::{self, DirError};

use super::libraries::BYTES_MAX;
use super::{Libraries, payload, trial};
use crate::command::error::ClientError;

const FILE: &str = "functions";

/// How long a start waits for all libraries: each was loaded within a second before.
const START_TIME_MAX: Duration = Duration::from_secs(600);

/// Why the libraries of a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionsFileError {
    #[error("{}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
    /// Restore it, or remove it.
    #[error(
        "{} is damaged ({reason}): restore it from a backup, or remove it and load the libraries again",
        file.display()
    )]
    Damaged { file: PathBuf, reason: ClientError },
    /// Lua takes its libraries otherwise than before.
    #[error(
        "the libraries in {} cannot be loaded ({reason}): remove it and load them again",
        file.display()
    )]
    Unusable { file: PathBuf, reason: ClientError },
}

/// The texts of the libraries of a data directory; none if it has no file.
///
/// # Errors
/// [`FunctionsFileError`].
fn texts(dir: &Path) -> Result<Vec<Vec<u8>>, FunctionsFileError> {
    let file = dir.join(FILE);
    let mut bytes = Vec::new();
    let read = File::open(&file).and_then(|file| {
        // Longer than what was written is damaged as well.
        file.take(2 * BYTES_MAX as u64).read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => {
            payload::read(&bytes).map_err(|reason| FunctionsFileError::Damaged { file, reason })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(FunctionsFileError::Io { file, source }),
    }
}

/// How many libraries a data directory has, as far as its file can be read.
///
/// # Errors
/// [`FunctionsFileError`].
pub fn check(dir: &Path) -> Result<usize, FunctionsFileError> {
    texts(dir).map(|texts| texts.len())
}

impl Libraries {
    /// Those of a data directory.
    ///
    /// # Errors
    /// [`FunctionsFileError`]: nothing was changed.
    pub fn open(dir: &Path) -> Result<Libraries, FunctionsFileError> {
        trial::libraries_of(&texts(dir)?, START_TIME_MAX).map_err(|reason| {
            FunctionsFileError::Unusable {
                file: dir.join(FILE),
                reason,
            }
        })
    }

    /// Writes them, wholly or not at all, and durably.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn save(&self, dir: &Path) -> Result<(), DirError> {
        dir::replace(dir, FILE, &payload::write(self))
    }
}
