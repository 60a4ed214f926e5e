//! The directory of a coordinator.
//!
//! ```text
//! lock    held by the process that runs
//! stamp   "ephesus-coordinator 1", its number, its UUID and that of its log: a line each
//! log/    segments of the raft log
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ephesus_wal::LogId;
use ephesus_wire::NodeId;

use super::error::ServerError;
use crate::command::RaftId;

const FORMAT: &str = "ephesus-coordinator 1";

/// What an empty directory is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// Nothing: it must not be empty.
    Refused,
    /// One of a new cluster's.
    Founds,
    /// That of one more coordinator, which was added before.
    Joins,
}

/// A directory that is this process's own.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    /// The process, on links.
    pub(super) uuid: NodeId,
    pub(super) log: LogId,
    _lock: File,
}

impl Home {
    /// Opens the directory of coordinator `id`, creating it if it is empty and may be.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(super) fn open(path: &Path, id: RaftId, empty: Empty) -> Result<Home, ServerError> {
        fs::create_dir_all(path).map_err(failed("create", path))?;
        let stamp = path.join("stamp");
        let is_stamped = stamp.try_exists().map_err(failed("look for", &stamp))?;
        if !is_stamped {
            let mut entries = fs::read_dir(path).map_err(failed("list", path))?;
            // A start that was interrupted has left no more than these.
            let is_own = |name: &std::ffi::OsStr| name == "lock" || name == "stamp.new";
            let is_foreign = |entry: io::Result<fs::DirEntry>| {
                entry.map_or(true, |entry| !is_own(&entry.file_name()))
            };
            if entries.any(is_foreign) {
                return Err(ServerError::Foreign(path.to_owned()));
            }
            if empty == Empty::Refused {
                return Err(ServerError::Empty(path.to_owned()));
            }
        }
        let lock = lock(path)?;
        if !is_stamped {
            let mut random = [0; 32];
            getrandom::fill(&mut random).map_err(ServerError::Random)?;
            let (uuid, log) = (&random[..16], &random[16..]);
            let text = format!("{FORMAT}\nid {id}\nuuid {}\nlog {}\n", hex(uuid), hex(log));
            write(path, text.as_bytes())?;
        }
        let text = fs::read_to_string(&stamp).map_err(failed("read", &stamp))?;
        let damaged = |what: &str| ServerError::Stamp {
            path: stamp.clone(),
            what: what.to_owned(),
        };
        let mut lines = text.lines();
        if lines.next() != Some(FORMAT) {
            return Err(damaged("not the format of this release"));
        }
        let mut field = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.strip_prefix(' '))
                .ok_or_else(|| damaged(&format!("it lacks {name}")))
        };
        let found = field("id")?
            .parse()
            .map(RaftId)
            .map_err(|_| damaged("its id is no number"))?;
        let uuid = unhex(field("uuid")?).ok_or_else(|| damaged("its uuid is none"))?;
        let log = unhex(field("log")?).ok_or_else(|| damaged("its log's uuid is none"))?;
        if found != id {
            return Err(ServerError::OtherId {
                path: path.to_owned(),
                found,
                asked: id,
            });
        }
        Ok(Home {
            path: path.to_owned(),
            uuid: NodeId(uuid),
            log: LogId(log),
            _lock: lock,
        })
    }

    /// Where the segments are.
    pub(super) fn log_dir(&self) -> Result<PathBuf, ServerError> {
        let dir = self.path.join("log");
        fs::create_dir_all(&dir).map_err(failed("create", &dir))?;
        sync_dir(&self.path)?;
        Ok(dir)
    }
}

fn lock(path: &Path) -> Result<File, ServerError> {
    let file = path.join("lock");
    let lock = File::create(&file).map_err(failed("open", &file))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(ServerError::Locked(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed("lock", &file)(source)),
    }
}

/// Puts the stamp into `dir`, whole or not at all.
fn write(dir: &Path, text: &[u8]) -> Result<(), ServerError> {
    let (new, stamp) = (dir.join("stamp.new"), dir.join("stamp"));
    let mut file = File::create(&new).map_err(failed("create", &new))?;
    file.write_all(text).map_err(failed("write", &new))?;
    file.sync_all().map_err(failed("sync", &new))?;
    fs::rename(&new, &stamp).map_err(failed("name", &stamp))?;
    sync_dir(dir)
}

fn sync_dir(dir: &Path) -> Result<(), ServerError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(failed("sync", dir))
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ServerError {
    let path = path.to_owned();
    move |source| ServerError::Io {
        action,
        path: path.clone(),
        source,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}
