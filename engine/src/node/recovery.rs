//! From a data directory to partitions in memory: images and logs, one thread per log.
//!
//! A copy's records live in exactly one log. When the number of shards has changed, the old logs
//! are replayed in the old layout, every copy is imaged under its next epoch, the new layout is
//! made durable, and only then are the old logs and images removed. A crash before the new layout
//! leaves the old one, complete; a crash after it leaves the new one, complete.
//!
//! The layout names every copy that may count: what a log or a store has of others is passed over and
//! removed. Which of those count that were moved, to here or from here, the table says.
//!
//! Images and logs vouch for each other, because either may have lost more than it shows: the log
//! names the images that it was cut for, the layout those that it began with, and a manifest says
//! how far the log reached.

mod dry_run;
#[cfg(any(test, feature = "planted"))]
#[cfg_attr(not(test), expect(clippy::expect_used, reason = "a test's equipment"))]
pub mod fault_logs;
mod home;
mod layout;
mod one_log;
mod settling;
mod vouching;

pub use dry_run::{DryRun, Known};
pub use home::Home;
pub use layout::Plan;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ephesus_wal::{
    Disk, LogFiles, LogId, LogOptions, LogWriter, OnDamage, SegmentHandle, StdDisk, WalError,
};
use ephesus_wire::{Database, Epoch, Lsn, MigrationId, PartitionId, Partitioning, ShardId};

use super::data_dir::{DataDir, DataDirError, Layout};
use crate::image::{DbId, Generation, ImageId, ImageStore, ReadError, StoreError};
use crate::keyspace::Partition;
use crate::keyspace::replay::ReplayError;
use crate::planted::{Bug, Planted};
use crate::table::{KeyHasher, work_for};
use one_log::{Copy, OneLog, Replayed};

/// Why a node could not recover; what is on disk stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("log {log}: {source}{}", remedy(source))]
    Log { log: LogId, source: WalError },
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Image(#[from] ReadError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An image was made with a log that the layout does not name.
    #[error("image {image} needs log {log}, which the layout does not name")]
    ForeignImage { image: ImageId, log: LogId },
    /// A store has lost an image that the log was cut for: restore the data directory.
    #[error(
        "images/{store} has lost the image of {needed} (it has {}), and the log alone is not \
         enough: restore the data directory from a backup; starting without the image would lose \
         acknowledged writes",
        Found(*found)
    )]
    LostImage {
        /// This one, or a later generation of it.
        needed: ImageId,
        /// 0: none.
        found: Generation,
        store: DbId,
    },
    /// The coordinator's table would give up what is here: it is older than this directory, as
    /// after a restore from a backup. Bring both back from the same time.
    #[error(
        "partition {partition} is here at epoch {epoch}, but the coordinator's table has epoch \
         {planned} for this node: the table is not the one that this data belongs to"
    )]
    Succession {
        partition: PartitionId,
        epoch: Epoch,
        planned: Epoch,
    },
    /// The coordinator's table gives this node what it cannot have: report this.
    #[error(
        "the coordinator's table gives partition {partition} to shard {shard} of this node: there is no such \
         partition or shard"
    )]
    Impossible {
        partition: PartitionId,
        shard: ShardId,
    },
    /// The layout says that a copy is served that its log does not have in full: restore the data
    /// directory.
    #[error(
        "partition {partition} is served here at epoch {epoch}, but its log does not say that it \
         was activated: restore the data directory from a backup"
    )]
    NotActivated {
        partition: PartitionId,
        epoch: Epoch,
    },
    /// A migration has brought a partition to this node that is not in the directory, or only in part: the
    /// directory is older than the move, or was damaged. Nobody else has the partition, so it is not begun
    /// empty. Bring back a later state of the directory, or give up what the node has.
    #[error(
        "partition {partition} was moved to this node at epoch {epoch} by migration {migration}, but this \
         directory does not hold all of it: it is older than the move, or damaged, or the coordinator was \
         forced and does not know that the partition has moved on. Restore a later \
         state of the data directory; or give up all data of this node with `ephesus node remove NAME \
         --yes`, and start it with an empty directory"
    )]
    NotHere {
        partition: PartitionId,
        epoch: Epoch,
        migration: MigrationId,
    },
    /// A copy that waits for the coordinator's word cannot change its shard: start with the number of
    /// shards that the node had, until the migration is over.
    #[error(
        "migration {migration} of partition {partition} to this node is not decided yet: start \
         with the number of shards that the node had before"
    )]
    Undecided {
        partition: PartitionId,
        migration: MigrationId,
    },
    /// A log has lost its end: restore the data directory, or start with `--on-damage cut`.
    #[error(
        "log {log} ends at LSN {last}, but was durable up to {lsn_end} when the image of {image} \
         was completed: restore the data directory from a backup, or accept the loss with \
         --on-damage cut"
    )]
    ShortLog {
        log: LogId,
        last: Lsn,
        image: ImageId,
        lsn_end: Lsn,
    },
}

/// What to do about a log that has lost something.
fn remedy(error: &WalError) -> &'static str {
    match error {
        WalError::Damage { .. } => {
            "; restore the data directory from a backup, or accept the loss: of what is damaged with --on-damage skip, of \
             that and all behind it with --on-damage cut"
        }
        WalError::MissingSegment { .. }
        | WalError::LostSegment { .. }
        | WalError::LostLog
        | WalError::DamagedFile { .. } => {
            "; restore the data directory from a backup, or accept the loss with --on-damage cut"
        }
        _ => "",
    }
}

struct Found(Generation);

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Generation(0) => f.write_str("none"),
            older => write!(f, "generation {older}"),
        }
    }
}

/// What one shard starts from.
pub struct RecoveredShard<D: Disk = StdDisk> {
    pub partitions: Vec<Partition>,
    pub writer: LogWriter,
    pub segment: SegmentHandle<D::File>,
    /// See [`ephesus_wal::Opened::mapped`].
    pub mapped: Option<D::File>,
    pub files: LogFiles<D>,
    /// The time goes on from here, Unix ms.
    pub wall_clock_ms: u64,
}

/// What the logs and images of a directory hold, in memory.
pub struct ReplayedLogs(Vec<Replayed>);

impl ReplayedLogs {
    /// The highest database that has keys.
    #[must_use]
    pub fn highest_database(&self) -> Database {
        let partitions = self.0.iter().flat_map(|log| &log.partitions);
        let databases = partitions.flat_map(|copy| copy.table.other_databases());
        let databases = databases.map(|(database, _)| database);
        databases.max().unwrap_or_default()
    }
}

/// How far recovery is, for the log and for whoever asks.
#[derive(Debug, Default)]
pub struct Progress {
    pub keys: AtomicU64,
    pub records: AtomicU64,
    finished: AtomicBool,
}

impl Progress {
    /// Logs the progress once a second until [`Progress::finish`].
    fn report(&self) {
        let clock = super::clock;
        let (started, mut next) = (clock(), Duration::from_secs(1));
        while !self.finished.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(20));
            if started.elapsed() >= next {
                next += Duration::from_secs(1);
                let keys = self.keys.load(Ordering::Relaxed);
                let records = self.records.load(Ordering::Relaxed);
                tracing::info!(
                    keys,
                    records,
                    seconds = started.elapsed().as_secs(),
                    "recovering"
                );
            }
        }
    }
}

/// What a start needs beside the logs' first segments: lists, mapped files, what sled writes.
pub const BESIDE_SEGMENTS_BYTES: u64 = 64 << 20;

/// The time at which a node starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// What the wall clock shows, Unix ms.
    wall_ms: u64,
    /// It is right, whatever later time logs and images have seen.
    resets: bool,
}

/// What recovery needs to know.
pub struct Recovery<'a, H = DataDir> {
    home: &'a H,
    partitioning: Partitioning,
    hasher: &'a KeyHasher,
    options: LogOptions,
    now: Now,
    pub(crate) planted: Planted,
}

type Recovered<H> = RecoveredShard<<H as Home>::Disk>;

impl<'a, H: Home> Recovery<'a, H> {
    /// `options` are those of every log but for the identity; `now_ms` is the wall clock.
    #[must_use]
    pub fn new(
        home: &'a H,
        partitioning: Partitioning,
        hasher: &'a KeyHasher,
        options: LogOptions,
        now_ms: u64,
    ) -> Recovery<'a, H> {
        Recovery {
            home,
            partitioning,
            hasher,
            options,
            now: Now {
                wall_ms: now_ms,
                resets: false,
            },
            planted: Planted::default(),
        }
    }

    /// Has the node's time begin with the wall clock, although its data may have seen a later one.
    #[must_use]
    pub fn resetting_time(mut self, resets: bool) -> Self {
        self.now.resets = resets;
        self
    }

    /// Rebuilds in memory what the directory holds.
    ///
    /// # Errors
    /// [`RecoveryError`]; start again once its cause is mended.
    pub fn replay<S: ImageStore + Sync>(
        &self,
        layout: &Layout,
        stores: &mut [S],
    ) -> Result<ReplayedLogs, RecoveryError> {
        let progress = Progress::default();
        std::thread::scope(|scope| {
            scope.spawn(|| progress.report());
            let result = self.replay_with(&progress, layout, stores);
            progress.finished.store(true, Ordering::Release);
            result
        })
    }

    /// The same without a word about how far it is.
    ///
    /// # Errors
    /// As [`Recovery::replay`].
    pub(crate) fn replay_with<S: ImageStore + Sync>(
        &self,
        progress: &Progress,
        layout: &Layout,
        stores: &mut [S],
    ) -> Result<ReplayedLogs, RecoveryError> {
        layout::remove_other_copies(layout, stores)?;
        for shard in (0..layout.shards()).map(ShardId) {
            let is_needed = copies_of(layout, shard).next().is_some();
            if !is_needed || self.options.on_damage != OnDamage::Refuse {
                self.home.create_log(layout.log(shard))?;
            }
        }
        let replayed = self.replay_all(progress, layout, stores)?;
        // Not before: what is missed may have been moved there.
        self.home.remove_other_logs(layout)?;
        Ok(ReplayedLogs(replayed))
    }

    /// Opens logs for the copies of `plan`; answers the layout that is in force now.
    ///
    /// # Errors
    /// [`RecoveryError`]; start again once its cause is mended.
    #[expect(
        clippy::indexing_slicing,
        reason = "a plan is checked to be of these shards, and a layout of these logs"
    )]
    pub fn open<S: ImageStore>(
        &self,
        found: Layout,
        plan: &Plan,
        replayed: ReplayedLogs,
        stores: &mut [S],
    ) -> Result<(Layout, Vec<Recovered<H>>), RecoveryError> {
        plan.check(&found)?;
        let ReplayedLogs(mut replayed) = replayed;
        let mut copies: Vec<_> = replayed.iter_mut().map(|r| &mut r.partitions).collect();
        let mut layout = plan.settle(&found, &mut copies, self.planted)?;
        let keeps = plan.keeps(&layout);
        if !keeps {
            plan.check_succession(&layout)?;
        }
        if layout != found {
            // Before anything is written under an epoch that a void copy may have too.
            self.home.write_layout(&layout)?;
            layout::remove_other_copies(&layout, stores)?;
        }
        if !keeps {
            tracing::info!(
                from = layout.shards(),
                to = plan.shards,
                "the number of shards has changed"
            );
            return self.change_layout(&layout, plan, replayed, stores);
        }
        let added = layout.add_copies(&plan.copies);
        if !added.is_empty() {
            self.home.write_layout(&layout)?;
        }
        for (partition, shard, epoch) in added {
            let partitions = &mut replayed[usize::from(shard.0)].partitions;
            partitions.push(Partition::new(partition, epoch));
        }
        let opened = self.open_all(&layout, replayed)?;
        Ok((layout, opened))
    }

    /// Gives every copy an image under a new epoch, and the node new logs.
    #[expect(
        clippy::indexing_slicing,
        reason = "the new layout is of the planned shards, and of all partitions"
    )]
    fn change_layout<S: ImageStore>(
        &self,
        old: &Layout,
        plan: &Plan,
        replayed: Vec<Replayed>,
        stores: &mut [S],
    ) -> Result<(Layout, Vec<Recovered<H>>), RecoveryError> {
        let clocks = replayed.iter().map(|replayed| replayed.wall_clock_ms);
        let wall_clock_ms = clocks.max().unwrap_or(0);
        let partitions: Vec<Partition> = replayed
            .into_iter()
            .flat_map(|replayed| replayed.partitions)
            .collect();
        let logs = (0..plan.shards).map(|_| self.home.new_log());
        let logs: Vec<_> = logs.collect::<Result<_, _>>()?;
        let mut layout = Layout::empty(self.partitioning.count(), logs.into_iter());
        let added: Vec<_> = layout.add_copies(&plan.copies);
        let has_copy = |partition: PartitionId| {
            old.served(partition).is_some() || old.staging_of(partition).is_some()
        };
        let new = added.into_iter().filter(|(id, ..)| !has_copy(*id));
        let new: Vec<_> = new
            .map(|(id, _, epoch)| Partition::new(id, epoch))
            .collect();
        if self.planted.has(Bug::EarlyLayout) {
            self.home.write_layout(&layout)?;
        }
        let partitions = layout::image_all(partitions, &layout, stores, wall_clock_ms)?;
        for partition in &partitions {
            layout.has_image[usize::from(partition.id.0)] = partition.generation > Generation(0);
        }
        self.home.write_layout(&layout)?;
        self.home.remove_other_logs(&layout)?;
        layout::remove_other_copies(&layout, stores)?;
        let mut by_shard: Vec<Vec<Partition>> = (0..plan.shards).map(|_| Vec::new()).collect();
        for partition in partitions.into_iter().chain(new) {
            let (shard, _) = layout.partitions[usize::from(partition.id.0)];
            by_shard[usize::from(shard.0)].push(partition);
        }
        let fresh = by_shard
            .into_iter()
            .zip(&layout.logs)
            .map(|(partitions, &log)| self.log(LogId(log))?.adopt(partitions, wall_clock_ms))
            .collect::<Result<Vec<_>, _>>()?;
        let opened = self.open_all(&layout, fresh)?;
        Ok((layout, opened))
    }

    fn log(&self, log: LogId) -> Result<OneLog<'a, H::Disk>, RecoveryError> {
        Ok(OneLog {
            disk: self.home.disk(log, self.options.durability)?,
            options: LogOptions {
                log_id: log,
                is_begun: true,
                ..self.options.clone()
            },
            hasher: self.hasher,
            partitions: self.partitioning.count(),
        })
    }

    #[expect(clippy::expect_used, reason = "recovery threads do not panic")]
    fn replay_all<S: ImageStore + Sync>(
        &self,
        progress: &Progress,
        layout: &Layout,
        stores: &[S],
    ) -> Result<Vec<Replayed>, RecoveryError> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..layout.shards())
                .map(ShardId)
                .map(|shard| {
                    scope.spawn(move || {
                        work_for(usize::from(shard.0));
                        let copies = copies_of(layout, shard);
                        let log = self.log(layout.log(shard))?;
                        log.replay(copies, stores, progress)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("recovery threads do not panic"))
                .collect()
        })
    }

    /// Opens the next incarnation of every log.
    fn open_all(
        &self,
        layout: &Layout,
        replayed: Vec<Replayed>,
    ) -> Result<Vec<Recovered<H>>, RecoveryError> {
        // Else the first ones would take the room of the last.
        let wanted = replayed.len() as u64 * self.options.segment_bytes + BESIDE_SEGMENTS_BYTES;
        let opens_small = self.home.free_bytes().is_some_and(|free| free < wanted);
        replayed
            .into_iter()
            .zip(&layout.logs)
            .map(|(replayed, &log)| {
                let mut log = self.log(LogId(log))?;
                log.options.opens_small = opens_small;
                log.open(replayed, self.now)
            })
            .collect()
    }
}

/// The copies whose records are in the log of `shard`.
#[expect(
    clippy::indexing_slicing,
    reason = "a layout has a place for each of its partitions"
)]
fn copies_of(layout: &Layout, shard: ShardId) -> impl Iterator<Item = Copy> + '_ {
    let served = layout.copies().filter(move |(_, owner, _)| *owner == shard);
    let served = served.map(|(partition, _, epoch)| Copy {
        partition,
        epoch,
        has_image: layout.has_image[usize::from(partition.0)],
        source: None,
    });
    let staging = layout.staging().iter();
    let staging = staging.filter(move |staging| staging.shard == shard);
    served.chain(staging.map(|staging| Copy {
        partition: staging.partition,
        epoch: staging.epoch,
        has_image: false,
        source: Some(staging.source),
    }))
}

/// How long something took, for the banner.
#[must_use]
pub fn elapsed_ms(since: Instant) -> u64 {
    since.elapsed().as_millis() as u64
}

#[cfg(test)]
mod by_shards;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;
