//! Reads `--cluster-secret-file`.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ephesus_wire::handshake::{SECRET_BYTES_MAX, Secret, SecretError};

/// Permission bits that let anybody on the machine read or replace the secret.
const OTHERS_READ_WRITE: u32 = 0o006;

/// Why there is no secret; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretFileError {
    /// The file cannot be read.
    #[error("cluster secret file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Run the command, and think about who may have read it.
    #[error(
        "cluster secret file {} is open to every user of this machine: run chmod o-rwx '{}'",
        path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// See there.
    #[error("cluster secret file {}: {source}", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// What is wrong with them.
        source: SecretError,
    },
}

/// Reads a cluster secret: at least 16 bytes, without the newline at the end, in a file that only its
/// owner and group may read.
///
/// # Errors
/// [`SecretFileError`].
pub fn load_secret(path: &Path) -> Result<Secret, SecretFileError> {
    let failed = |source| SecretFileError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & OTHERS_READ_WRITE != 0 {
        return Err(SecretFileError::Exposed {
            path: path.to_owned(),
        });
    }
    // Enough to see that it is too long, and allocated at once: growing would leave copies behind.
    let bytes_max = SECRET_BYTES_MAX + 2;
    let mut contents = Vec::with_capacity(bytes_max + 1);
    file.take(bytes_max as u64)
        .read_to_end(&mut contents)
        .map_err(failed)?;
    Secret::new(contents).map_err(|source| SecretFileError::Contents {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
