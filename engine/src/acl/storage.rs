//! Files of users and passwords on the disk.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::file::{self, FILE_BYTES_MAX};
use super::password::{PASSWORD_BYTES_MAX, PasswordHash};
use super::users::Users;

/// Permission bits that let anybody on the machine read or replace a secret.
const OTHERS_READ_WRITE: u32 = 0o006;

/// Why a file of users or of a password cannot be used; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersFileError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{} is open to every user of this machine: run chmod o-rwx '{}'",
        path.display(), path.display()
    )]
    Exposed { path: PathBuf },
    #[error("{} has more than {bytes_max} bytes", path.display())]
    TooLong { path: PathBuf, bytes_max: usize },
    #[error("{} holds no password: its first line is empty", path.display())]
    Empty { path: PathBuf },
    #[error("{} has more than one line: a password has one", path.display())]
    Lines { path: PathBuf },
    #[error("{0}")]
    Contents(#[from] file::AclFileError),
}

/// Reads a file that others must not, at most `bytes_max` of it.
fn read(path: &Path, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, UsersFileError> {
    let failed = |source| UsersFileError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.permissions().mode() & OTHERS_READ_WRITE != 0 {
        let path = path.to_owned();
        return Err(UsersFileError::Exposed { path });
    }
    // Allocated at once: growing would leave copies behind.
    let len = usize::try_from(metadata.len()).unwrap_or(bytes_max);
    let mut contents = Zeroizing::new(Vec::with_capacity(len.min(bytes_max) + 2));
    let read = file.take(bytes_max as u64 + 1).read_to_end(&mut contents);
    match read.map_err(failed)? {
        len if len > bytes_max => Err(UsersFileError::TooLong {
            path: path.to_owned(),
            bytes_max,
        }),
        _ => Ok(contents),
    }
}

/// The password in a file: its only line.
///
/// # Errors
/// [`UsersFileError`].
pub fn load_password(path: &Path) -> Result<PasswordHash, UsersFileError> {
    let contents = read(path, PASSWORD_BYTES_MAX + 2)?;
    let line = contents.strip_suffix(b"\n").unwrap_or(&contents);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let path = path.to_owned();
    if line.contains(&b'\n') {
        return Err(UsersFileError::Lines { path });
    }
    let bytes_max = PASSWORD_BYTES_MAX;
    match line {
        [] => Err(UsersFileError::Empty { path }),
        line => PasswordHash::of(line).ok_or(UsersFileError::TooLong { path, bytes_max }),
    }
}

/// The users of an ACL file.
///
/// # Errors
/// [`UsersFileError`].
pub fn load_users(path: &Path) -> Result<Users, UsersFileError> {
    check(path, &read(path, FILE_BYTES_MAX)?)
}

/// Writes an ACL file, wholly or not at all, and durably. Only the owner and those whom the file so far admits may
/// read it.
///
/// # Errors
/// The system's, or the next start would not read what would be written; the file is as it was.
pub fn save_users(path: &Path, users: &Users) -> Result<(), UsersFileError> {
    let text = Zeroizing::new(file::write(users));
    check(path, &text)?;
    replace(path, &text).map_err(|source| UsersFileError::Io {
        path: path.to_owned(),
        source,
    })
}

/// Looks whether [`load_users`] would take this.
fn check(path: &Path, text: &[u8]) -> Result<Users, UsersFileError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(UsersFileError::TooLong {
            path: path.to_owned(),
            bytes_max: FILE_BYTES_MAX,
        });
    }
    Ok(file::parse(&path.display().to_string(), text)?)
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let found = std::fs::metadata(path).ok();
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".tmp-{}", std::process::id()));
    let new = PathBuf::from(new);
    let written = write_new(&new, text, found).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
        return written;
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Writes what takes the place of the file that was `found`: its group may do with it what it might, and no other group.
fn write_new(path: &Path, text: &[u8], found: Option<Metadata>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    let mut mode = found.as_ref().map_or(0o600, |found| found.mode() & 0o660);
    if let Some(group) = found.map(|found| found.gid())
        && group != file.metadata()?.gid()
        && fchown(&file, None, Some(group)).is_err()
    {
        mode &= 0o600;
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(contents: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("secret");
        std::fs::write(&path, contents).expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
        (dir, path)
    }

    #[test]
    fn a_password_is_the_only_line_of_a_file_that_others_cannot_read() {
        for contents in ["pass", "pass\n", "pass\r\n"] {
            let (_dir, path) = file(contents.as_bytes(), 0o640);
            let password = load_password(&path).expect("a password");
            assert_eq!(Some(password), PasswordHash::of(b"pass"));
        }
        for (contents, mode, expected) in [
            ("pass", 0o644, "chmod o-rwx"),
            ("", 0o600, "holds no password"),
            ("\n", 0o600, "holds no password"),
            ("one\ntwo\n", 0o600, "more than one line"),
            (&*"p".repeat(5000), 0o600, "more than 4098 bytes"),
        ] {
            let (_dir, path) = file(contents.as_bytes(), mode);
            let error = load_password(&path).expect_err(contents).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn users_are_loaded_as_they_were_saved() {
        let text = b"user alice on >secret ~a* +get\nuser default off\n";
        let (_dir, path) = file(text, 0o640);
        let users = load_users(&path).expect("users");
        save_users(&path, &users).expect("saved");
        let saved = std::fs::read(&path).expect("a file");
        assert!(!String::from_utf8_lossy(&saved).contains("secret"));
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(file::write(&load_users(&path).expect("again")), saved);
        assert!(users.authenticate(b"alice", b"secret").is_some());
    }

    #[test]
    fn a_saved_file_is_for_the_group_that_it_was_for() {
        let (_dir, path) = file(b"user alice on\n", 0o640);
        let own = std::fs::metadata(&path).expect("there").gid();
        let other = std::os::unix::fs::chown(&path, None, Some(own + 1));
        let group = if other.is_ok() { own + 1 } else { own };
        save_users(&path, &load_users(&path).expect("users")).expect("saved");
        let saved = std::fs::metadata(&path).expect("there");
        assert_eq!((saved.gid(), saved.mode() & 0o777), (group, 0o640));
    }
}
