//! The directory of a coordinator.
//!
//! ```text
//! lock    held by the process that runs
//! stamp   "ephesus-coordinator 1", its number, its UUID and that of its log, "begun" once the log was: a line each
//! met     the other coordinators that were met
//! log/    segments of the raft log
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ephesus_wal::dir::{self, DirError};
use ephesus_wal::{Durability, LogId, StdDisk, files};
use ephesus_wire::NodeId;
use futures_lite::future::block_on;

use super::error::ServerError;
use crate::command::RaftId;

/// The directory of the segments.
const LOG: &str = "log";

const FORMAT: &str = "ephesus-coordinator 1";

/// The line of a stamp that was written after the log was begun: a log that is not there is lost.
const BEGUN: &str = "begun";

/// Whether a data directory's stamp is a coordinator's, of whatever format.
#[must_use]
pub fn is_stamp(text: &str) -> bool {
    text.split(' ').next() == FORMAT.split(' ').next()
}

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
    /// Its number.
    pub(super) id: RaftId,
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
        // glommio finds directories only under absolute paths.
        let path = &std::path::absolute(path).map_err(DirError::of("find", path))?;
        dir::create(path)?;
        let stamp = path.join("stamp");
        let is_stamped = stamp
            .try_exists()
            .map_err(DirError::of("look for", &stamp))?;
        if !is_stamped {
            let mut entries = fs::read_dir(path).map_err(DirError::of("list", path))?;
            // A start that was interrupted has left no more than these.
            let begins = empty != Empty::Refused;
            let is_own = |name: &std::ffi::OsStr| {
                name == "lock" || name == "stamp.new" || (name == LOG && begins)
            };
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
        let lock = dir::lock(path)?.ok_or_else(|| ServerError::Locked(path.to_owned()))?;
        if !is_stamped {
            let [uuid, log] = [random_id()?, random_id()?];
            begin_log(path)?;
            let text = format!("{FORMAT}\nid {id}\nuuid {uuid}\nlog {log}\n{BEGUN}\n");
            dir::replace(path, "stamp", text.as_bytes())?;
        }
        let home = Home::read(path, lock)?;
        if home.id != id {
            return Err(ServerError::OtherId {
                path: path.to_owned(),
                found: home.id,
                asked: id,
            });
        }
        home.settle_stamp(empty)?;
        Ok(home)
    }

    /// Earlier releases have written the stamp first. One that such a release may have left alone gets its log.
    fn settle_stamp(&self, empty: Empty) -> Result<(), ServerError> {
        let stamp = self.path.join("stamp");
        let text = fs::read_to_string(&stamp).map_err(DirError::of("read", &stamp))?;
        if text.lines().any(|line| line == BEGUN) {
            return Ok(());
        }
        let log = self.path.join(LOG);
        let unfinished = format!("{}.new", files::FILE_NAME);
        let is_empty = match fs::read_dir(&log) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            entries => entries
                .map_err(DirError::of("list", &log))?
                .all(|file| file.is_ok_and(|file| file.file_name() == *unfinished)),
        };
        if is_empty {
            if empty == Empty::Refused || self.has_met() {
                return Ok(());
            }
            begin_log(&self.path)?;
        }
        // It can wait: the disk may be full.
        let text = format!("{}\n{BEGUN}\n", text.trim_end());
        if let Err(error) = dir::replace(&self.path, "stamp", text.as_bytes()) {
            tracing::warn!(%error, "the coordinator's stamp does not say yet that its log was begun");
        }
        Ok(())
    }

    /// The directory of a stopped coordinator, whichever it is.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(super) fn existing(path: &Path) -> Result<Home, ServerError> {
        let stamp = path.join("stamp");
        let is_stamped = stamp
            .try_exists()
            .map_err(DirError::of("look for", &stamp))?;
        if !is_stamped {
            return Err(ServerError::Foreign(path.to_owned()));
        }
        let lock = dir::lock(path)?.ok_or_else(|| ServerError::Locked(path.to_owned()))?;
        Home::read(path, lock)
    }

    /// What the stamp says.
    fn read(path: &Path, lock: File) -> Result<Home, ServerError> {
        let stamp = path.join("stamp");
        let text = fs::read_to_string(&stamp).map_err(DirError::of("read", &stamp))?;
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
        let id = field("id")?
            .parse()
            .map(RaftId)
            .map_err(|_| damaged("its id is no number"))?;
        let mut id_of = |name: &str| {
            let parsed = field(name)?.parse::<NodeId>();
            parsed.map_err(|_| damaged(&format!("its {name} is no UUID")))
        };
        let (uuid, NodeId(log)) = (id_of("uuid")?, id_of("log")?);
        Ok(Home {
            id,
            path: path.to_owned(),
            uuid,
            log: LogId(log),
            _lock: lock,
        })
    }

    /// Whether other coordinators were met, which happens only after the log was begun.
    pub(super) fn has_met(&self) -> bool {
        self.path.join(super::met::FILE).exists()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the segments are.
    pub(super) fn log_dir(&self) -> Result<PathBuf, ServerError> {
        let dir = self.path.join(LOG);
        match dir.try_exists().map_err(DirError::of("look for", &dir))? {
            true => Ok(dir),
            false => Err(ServerError::NoLog(dir)),
        }
    }
}

/// Begins the log, before a stamp says that there is one.
fn begin_log(path: &Path) -> Result<(), ServerError> {
    let dir = path.join(LOG);
    dir::create(&dir)?;
    let disk = StdDisk::new(&dir, Durability::Strict).map_err(DirError::of("open", &dir))?;
    let begun = block_on(files::begin(&disk, Durability::Strict));
    begun.map_err(|error| DirError::of("begin a log in", &dir)(io::Error::other(error)))?;
    Ok(dir::sync(path)?)
}

fn random_id() -> Result<NodeId, ServerError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(ServerError::Random)?;
    Ok(NodeId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RaftId = RaftId(1);

    fn has_log(path: &Path) -> bool {
        path.join(LOG).join(files::FILE_NAME).exists()
    }

    #[test]
    fn a_stamp_that_an_earlier_release_wrote_before_the_log_gets_one_once() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path();
        let stamp = path.join("stamp");
        drop(Home::open(path, ID, Empty::Founds).expect("made"));
        let text = fs::read_to_string(&stamp).expect("a stamp");
        let log = path.join(LOG);
        fs::remove_dir_all(&log).expect("removed");
        let home = Home::open(path, ID, Empty::Founds).expect("stamped");
        assert!(home.log_dir().is_err(), "a log that was begun is lost");
        drop(home);

        let earlier = text.replace(&format!("{BEGUN}\n"), "");
        fs::write(&stamp, &earlier).expect("written");
        drop(Home::open(path, ID, Empty::Refused).expect("stamped"));
        assert!(!log.exists(), "it has to be there");
        drop(Home::open(path, ID, Empty::Founds).expect("stamped"));
        assert!(has_log(path));
        assert_eq!(fs::read_to_string(&stamp).expect("a stamp"), text);

        fs::write(&stamp, &earlier).expect("written");
        fs::remove_dir_all(&log).expect("removed");
        fs::write(path.join(super::super::met::FILE), "").expect("written");
        drop(Home::open(path, ID, Empty::Founds).expect("stamped"));
        assert!(!log.exists(), "it has met others, and so it had one");
    }
}
