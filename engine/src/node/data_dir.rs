//! What a data directory says about itself: the lock, the stamp that never changes once the node has
//! joined a cluster, and the layout that changes with the copies and the number of shards.
//!
//! ```text
//! DIR/lock             flock held by the node that serves the directory
//! DIR/stamp            text: format, node, stores; once it has joined: cluster, partitions;
//!                      a checksum
//! DIR/incarnation      text: starts of the node; on which boot of a machine and with which lock the last one runs
//! DIR/starts           text: by what the last starts are known to the cluster, see `data_dir/starts.rs`
//! DIR/coordinators     text: where coordinators were last reached, one per line
//! DIR/layout           which copies are here, and which log each shard writes: see `data_dir/layout.rs`;
//!                      twice, as `ephesus_wal::double_buffered` has it
//! DIR/functions        libraries of functions, as FUNCTION DUMP answers them; none before the first
//! DIR/reserve          nothing: see `reserve.rs`
//! DIR/order            text: seeds of the hash that orders keys, see `data_dir/hash_seeds.rs`
//! DIR/logs/UUID/       one shard's log, and the list of its files; made before the layout names it
//! DIR/images/db-N/     sled
//! DIR/coordinator/     of the embedded coordinator, if the node has one
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::reserve::Reserve;

use ephesus_coordinator::command::ClusterId;
use ephesus_coordinator::server::is_stamp;
use ephesus_wal::dir::{self, DirError};
use ephesus_wal::double_buffered::{self, Found};
use ephesus_wal::{DoubleBuffered, Durability, LogId, StdDisk, WalError, files, passes};
use ephesus_wire::NodeId;
use futures_lite::future::block_on;

use crate::image::STORES_MAX;

mod hash_seeds;
mod layout;
pub mod starts;

pub use layout::{Layout, LayoutError, NO_COPY, Occupied, Place, StagingPlace};

/// The only format this release reads and writes.
pub const FORMAT: u32 = 3;

/// More starts than a copy of a directory can be behind.
const OLD_STARTS_MAX: u64 = 1 << 32;

/// The file of the layout.
const LAYOUT: &str = "layout";

/// Begins the last line of the stamp: of all lines before it, eight hex digits.
const CHECKSUM: &str = "crc32=";

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// Another process serves it: stop that one first.
    #[error("data directory {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// Another release wrote it: use that release, or the one after it.
    #[error("data directory {} has format {found}, this release reads {FORMAT}", dir.display())]
    Format { dir: PathBuf, found: String },
    /// The stamp or layout is not one: restore it from a backup of the directory.
    #[error("{} is damaged: {reason}", file.display())]
    Damaged { file: PathBuf, reason: String },
    /// The directory has files but no stamp: name another directory.
    #[error("{} is not empty and not an Ephesus data directory", .0.display())]
    Foreign(PathBuf),
    /// A coordinator's: name a node's directory.
    #[error("{} is a coordinator's data directory, not a node's", .0.display())]
    Coordinator(PathBuf),
    /// There is nothing to check.
    #[error("{} is not an Ephesus data directory: there is no stamp in it, or no such directory", .0.display())]
    Missing(PathBuf),
    /// A log that the layout names is not there: mount it, restore it, or accept the loss.
    #[error(
        "log directory {} is gone: restore it, or accept the loss with --on-damage cut",
        .0.display()
    )]
    LostLog(PathBuf),
    /// The number of partitions never changes: leave the flag out.
    #[error(
        "the cluster of this node has {found} partitions, and their number never changes: \
         leave --partitions {asked} out"
    )]
    Partitions { found: u16, asked: u16 },
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] DirError),
}

impl DataDirError {
    /// Whether the same may be tried again: see [`WalError::passes`].
    #[must_use]
    pub fn passes(&self) -> bool {
        matches!(self, DataDirError::Io(error) if passes(&error.source))
    }
}

/// What never changes in a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub node: NodeId,
    /// Number of sled Dbs.
    pub stores: u16,
    /// `None` until the node has joined one; there is no layout before.
    pub joined: Option<Joined>,
}

/// The cluster that a data directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    pub cluster: ClusterId,
    /// Of the whole cluster.
    pub partitions: u16,
}

/// The layout as its file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLayout {
    pub layout: Layout,
    /// Whether its last write was cut short by a crash, or one of its two places is damaged: the layout is
    /// known all the same, and the next start writes it anew.
    pub is_half: bool,
}

/// A locked data directory.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Once this process has written it.
    layout: Mutex<Option<DoubleBuffered<StdDisk>>>,
    lock: File,
}

impl DataDir {
    /// Creates the directory if there is none, and locks it.
    ///
    /// # Errors
    /// [`DataDirError::Locked`] or what the operating system says.
    pub fn lock(path: &Path) -> Result<DataDir, DataDirError> {
        // glommio finds directories only under absolute paths.
        let path = &std::path::absolute(path).map_err(DirError::of("find", path))?;
        dir::create(path)?;
        refuse_foreign(path)?;
        let lock = dir::lock(path)?.ok_or_else(|| DataDirError::Locked(path.to_owned()))?;
        Ok(DataDir {
            path: path.to_owned(),
            layout: Mutex::default(),
            lock,
        })
    }

    /// Gives free what no start needs, before one writes anything: the disk may be full.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn free_space(&self) -> Result<(), DataDirError> {
        Reserve::release(&self.path).map_err(DirError::of("free the reserve of", &self.path))?;
        let logs = self.path.join("logs");
        let logs = fs::read_dir(logs).into_iter().flatten();
        for log in logs.filter_map(Result::ok).map(|entry| entry.path()) {
            if log.is_dir() {
                dir::remove_unfinished(&log)?;
            }
        }
        Ok(dir::remove_unfinished(&self.coordinator_dir().join("log"))?)
    }

    /// Whether the layout may name logs that were never begun, in a directory that only a release without lists has
    /// started. One without `logs` has lost them.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn may_lack_logs(&self) -> Result<bool, DataDirError> {
        let logs = self.path.join("logs");
        let is_there = logs.try_exists().map_err(DirError::of("look for", &logs))?;
        Ok(is_there && !starts::is_noted(&self.path)?)
    }

    /// Begins the logs that the layout names and that have no file yet, if there may be such.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn begin_named_logs(&self) -> Result<(), DataDirError> {
        if !self.may_lack_logs()? {
            return Ok(());
        }
        // A damaged one is refused later.
        let named = self.layout().map_or(Vec::new(), |layout| layout.logs);
        named
            .into_iter()
            .try_for_each(|log| self.create_log(LogId(log)))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn log_dir(&self, log: LogId) -> PathBuf {
        self.path.join("logs").join(log.to_string())
    }

    #[must_use]
    pub fn image_dir(&self) -> PathBuf {
        self.path.join("images")
    }

    /// Reads the stamp; `None` when the directory is new.
    ///
    /// # Errors
    /// A damaged stamp, another format, or files of something else.
    pub fn stamp(&self) -> Result<Option<Stamp>, DataDirError> {
        let file = self.path.join("stamp");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(DirError::of("read", &file)(error).into()),
        };
        parse_stamp(&text, &self.path, &file).map(Some)
    }

    /// Writes the stamp; the layout of a node that has joined a cluster goes first.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write_stamp(&self, stamp: &Stamp) -> Result<(), DataDirError> {
        let mut text = format!(
            "format={FORMAT}\nnode={}\nstores={}\n",
            stamp.node, stamp.stores
        );
        if let Some(joined) = stamp.joined {
            text += &format!(
                "cluster={}\npartitions={}\n",
                joined.cluster, joined.partitions
            );
        }
        text += &format!("{CHECKSUM}{:08x}\n", crc32fast::hash(text.as_bytes()));
        Ok(dir::replace(&self.path, "stamp", text.as_bytes())?)
    }

    /// Counts this start, durably; the first is 1. One that takes an old directory for the newest passes all
    /// starts that the cluster can have seen. Answers also whether no earlier start runs any more: that is known of the
    /// first one, and where the one before had the lock that this one has, on a machine that was not booted since.
    ///
    /// # Errors
    /// What the operating system says, or a file that is no number.
    pub fn begin_start(&self, accepts_old: bool) -> Result<(u64, bool), DataDirError> {
        let step = if accepts_old { OLD_STARTS_MAX } else { 1 };
        let (last, last_place) = self.last_start()?;
        let next = last.saturating_add(step);
        let place = self.place();
        let is_sole = next == 1 || (place.is_some() && place == last_place);
        let mut text = format!("{next}\n");
        if let Some(place) = place {
            text += &format!("{place}\n");
        }
        dir::replace(&self.path, "incarnation", text.as_bytes())?;
        Ok((next, is_sole))
    }

    /// By what the lock is told apart from that of a copy of the directory: the boot of the machine, device and inode.
    fn place(&self) -> Option<String> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let lock = self.lock.metadata().ok()?;
        Some(format!("{} {} {}", boot.trim(), lock.dev(), lock.ino()))
    }

    /// How often the node was started.
    ///
    /// # Errors
    /// As [`DataDir::begin_start`].
    pub fn last_incarnation(&self) -> Result<u64, DataDirError> {
        Ok(self.last_start()?.0)
    }

    fn last_start(&self) -> Result<(u64, Option<String>), DataDirError> {
        let file = self.path.join("incarnation");
        let Some(bytes) = read_if_there(&file)? else {
            return Ok((0, None));
        };
        let text = str::from_utf8(&bytes).unwrap_or_default();
        let (number, place) = text.trim().split_once('\n').unwrap_or((text, ""));
        let number = number.trim().parse().ok();
        let number = number.filter(|number| *number < u64::MAX);
        let number = number.ok_or_else(|| DataDirError::Damaged {
            file,
            reason:
                "it is no number: restore it, or write one that is above the number of all starts \
                     so far, such as the seconds since 1970"
                    .to_owned(),
        })?;
        Ok((number, Some(place.to_owned())))
    }

    /// Where coordinators were reached when the table was last seen; empty if it never was. Lines that are no
    /// addresses are passed over: the file is written anew once a coordinator is reached.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn coordinators(&self) -> Result<Vec<String>, DataDirError> {
        let bytes = read_if_there(&self.path.join("coordinators"))?.unwrap_or_default();
        let lines = bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let addresses = lines.map(|line| str::from_utf8(line).ok().filter(|line| is_address(line)));
        let addresses: Vec<Option<&str>> = addresses.collect();
        let passed_over = addresses.iter().filter(|line| line.is_none()).count();
        if passed_over > 0 {
            tracing::warn!(
                lines = passed_over,
                "the file of coordinators has lines that are no addresses"
            );
        }
        Ok(addresses.into_iter().flatten().map(str::to_owned).collect())
    }

    /// Notes where coordinators are reached.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write_coordinators(&self, addresses: &[String]) -> Result<(), DataDirError> {
        let mut text = addresses.join("\n");
        text.push('\n');
        Ok(dir::replace(&self.path, "coordinators", text.as_bytes())?)
    }

    /// Where an embedded coordinator keeps its log.
    #[must_use]
    pub fn coordinator_dir(&self) -> PathBuf {
        self.path.join("coordinator")
    }

    /// Reads the layout, and changes nothing. Nothing may rest on it yet: see [`DataDir::settle_layout`].
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn layout(&self) -> Result<Layout, DataDirError> {
        Ok(self.find_layout()?.layout)
    }

    /// The same, and in what state it is.
    ///
    /// # Errors
    /// As [`DataDir::layout`].
    pub fn find_layout(&self) -> Result<FoundLayout, DataDirError> {
        let damaged = |reason: String| DataDirError::Damaged {
            file: self.path.join(LAYOUT),
            reason,
        };
        let found = self
            .disk()
            .and_then(|disk| block_on(double_buffered::read(&disk, LAYOUT)));
        let (bytes, is_half) = match found.map_err(|source| self.of_layout(source))? {
            Found::Whole(bytes) | Found::Other(bytes) => (bytes, false),
            Found::Half(bytes) => (bytes, true),
            Found::Damaged => return Err(damaged("neither of its two places is whole".to_owned())),
        };
        let layout = Layout::decode(&bytes).map_err(|error| match error {
            LayoutError::Version(version) => DataDirError::Format {
                dir: self.path.clone(),
                found: format!("{FORMAT} with a layout of version {version}"),
            },
            damage => damaged(damage.to_string()),
        })?;
        Ok(FoundLayout { layout, is_half })
    }

    /// Refuses a layout that is not of so many partitions, as the stamp says.
    ///
    /// # Errors
    /// [`DataDirError::Damaged`].
    pub fn check_layout(&self, layout: &Layout, joined: Joined) -> Result<(), DataDirError> {
        if layout.partitions.len() == usize::from(joined.partitions) {
            return Ok(());
        }
        Err(DataDirError::Damaged {
            file: self.path.join(LAYOUT),
            reason: format!(
                "it is of {} partitions, and the stamp says {}",
                layout.partitions.len(),
                joined.partitions
            ),
        })
    }

    /// Reads the layout, which an earlier process may not have written to its end, and makes it durable; a
    /// file as earlier releases have written it becomes one as this release does.
    ///
    /// # Errors
    /// As [`DataDir::layout`] and [`DataDir::write_layout`].
    pub fn settle_layout(&self) -> Result<Layout, DataDirError> {
        let layout = self.layout()?;
        self.write_layout(&layout)?;
        Ok(layout)
    }

    /// Replaces the layout; it is durable and complete or unchanged.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write_layout(&self, layout: &Layout) -> Result<(), DataDirError> {
        let bytes = layout.encode();
        let mut file = self.layout.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match &mut *file {
            Some(file) => block_on(file.write(&bytes)),
            None => self.disk().and_then(|disk| {
                *file = Some(block_on(DoubleBuffered::create(disk, LAYOUT, &bytes))?);
                Ok(())
            }),
        };
        written.map_err(|source| self.of_layout(source))
    }

    /// The directory itself, for the layout: what is written there is durable at once.
    fn disk(&self) -> Result<StdDisk, WalError> {
        let disk = StdDisk::new(&self.path, Durability::Strict);
        disk.map_err(|source| WalError::Io {
            op: "list the directory of",
            file: LAYOUT.to_owned(),
            source,
        })
    }

    fn of_layout(&self, error: WalError) -> DataDirError {
        let (action, file, source) = match error {
            WalError::Io { op, file, source } => (op, file, source),
            other => ("write", LAYOUT.to_owned(), io::Error::other(other)),
        };
        let path = self.path.join(file);
        let error = DirError {
            action,
            path,
            source,
        };
        error.into()
    }

    /// Begins a log in a directory of its own, durably, unless it has files there.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn create_log(&self, log: LogId) -> Result<(), DataDirError> {
        let (logs, dir) = (self.path.join("logs"), self.log_dir(log));
        fs::create_dir_all(&dir).map_err(DirError::of("create", &dir))?;
        let mut found = fs::read_dir(&dir).map_err(DirError::of("list", &dir))?;
        let unfinished = format!("{}.new", files::FILE_NAME);
        if !found.any(|file| file.map_or(true, |file| file.file_name() != *unfinished)) {
            let disk = StdDisk::new(&dir, Durability::Strict);
            let disk = disk.map_err(DirError::of("open", &dir))?;
            let begun = block_on(files::begin(&disk, Durability::Strict));
            begun.map_err(|error| DirError::of("begin a log in", &dir)(io::Error::other(error)))?;
        }
        // Also when it is there: the start that has begun it may have ended before this.
        dir::sync(&logs)?;
        Ok(dir::sync(&self.path)?)
    }

    /// Removes the logs that `layout` does not name.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn remove_other_logs(&self, layout: &Layout) -> Result<(), DataDirError> {
        let logs = self.path.join("logs");
        let named: Vec<String> = layout
            .logs
            .iter()
            .map(|&log| LogId(log).to_string())
            .collect();
        let Ok(entries) = fs::read_dir(&logs) else {
            return Ok(());
        };
        for entry in entries.filter_map(Result::ok) {
            let is_named = named.iter().any(|name| entry.file_name() == **name);
            if !is_named {
                fs::remove_dir_all(entry.path()).map_err(DirError::of("remove", &entry.path()))?;
            }
        }
        Ok(dir::sync(&logs)?)
    }
}

fn read_if_there(file: &Path) -> Result<Option<Vec<u8>>, DataDirError> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DirError::of("read", file)(error).into()),
    }
}

/// Whether this is a host and a port.
fn is_address(line: &str) -> bool {
    let parts = line.rsplit_once(':');
    let is_host = |host: &str| !host.is_empty() && host.chars().all(|c| c.is_ascii_graphic());
    parts.is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok())
}

/// Refuses a directory that has files but no stamp, before anything is written to it.
fn refuse_foreign(path: &Path) -> Result<(), DataDirError> {
    /// What a start that was interrupted before the stamp may have left.
    const BEFORE_STAMP: [&str; 4] = ["lock", "layout", "layout.new", "stamp.new"];
    let entries = fs::read_dir(path).map_err(DirError::of("list", path))?;
    let names: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name())
        .collect();
    let is_ours = |name: &std::ffi::OsString| BEFORE_STAMP.iter().any(|ours| name == ours);
    if names.iter().any(|name| name == "stamp") || names.iter().all(is_ours) {
        Ok(())
    } else {
        Err(DataDirError::Foreign(path.to_owned()))
    }
}

fn parse_stamp(text: &str, dir: &Path, file: &Path) -> Result<Stamp, DataDirError> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .map(str::trim)
    };
    let damaged = |name: &str| DataDirError::Damaged {
        file: file.to_owned(),
        reason: format!("no valid {name}"),
    };
    if is_stamp(text) {
        return Err(DataDirError::Coordinator(dir.to_owned()));
    }
    let format = field("format").ok_or_else(|| damaged("format"))?;
    if format != FORMAT.to_string() {
        return Err(DataDirError::Format {
            dir: dir.to_owned(),
            found: format.to_owned(),
        });
    }
    let checked = text.rsplit_once(CHECKSUM).filter(|(body, sum)| {
        let sum = u32::from_str_radix(sum.trim_end(), 16);
        sum == Ok(crc32fast::hash(body.as_bytes()))
    });
    if checked.is_none() {
        return Err(DataDirError::Damaged {
            file: file.to_owned(),
            reason: "its checksum is wrong".to_owned(),
        });
    }
    let number = |name: &str| {
        field(name)
            .and_then(|v| v.parse().ok())
            .ok_or_else(|| damaged(name))
    };
    let id = |name: &str| {
        field(name)
            .and_then(|v| v.parse::<NodeId>().ok())
            .ok_or_else(|| damaged(name))
    };
    let joined = match field("cluster") {
        None if field("partitions").is_none() => None,
        _ => Some(Joined {
            cluster: ClusterId(id("cluster")?.0),
            partitions: number("partitions")?,
        }),
    };
    let stores = number("stores")?;
    if !(1..=STORES_MAX).contains(&stores) {
        return Err(damaged("stores"));
    }
    Ok(Stamp {
        node: id("node")?,
        stores,
        joined,
    })
}

#[cfg(test)]
mod tests;
