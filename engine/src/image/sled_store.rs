//! [`SledStore`]: one sled Db of a data directory as an [`ImageStore`].
//!
//! Only plain inserts and removes: sled's batches and transactions switch on a lock that every Db of
//! the process then takes. `flush_every_ms` is off, so nothing but [`ImageStore::sync`] and full write
//! buffers reach the disk, each with a real fsync (see [`crate::sled_sync`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ephesus_wal::dir;
use ephesus_wire::PartitionId;

use super::layout::{DbPaths, directory_bytes, free_bytes, remove_interrupted_snapshots};
use super::manifest::Manifest;
use super::open_guard;
use super::open_guard::{Failure, Inside};
use super::reader::ReadError;
use super::rebuild;
use super::reclaim;
use super::removal::collect_garbage;
use super::room::Room;
use super::store::{
    DbId, ImageStore, REMEDY_OPEN, REMEDY_SYSTEM, ROOM, STORES_MAX, StoreError, VALUE_BYTES_MAX,
    Visit,
};
use super::waiting::waits_for_room;
use crate::sled_sync;

/// Page cache of each Db: images are written once and only read at start. sled divides it over 256
/// lists, each of which keeps a leaf whatever its share is.
const CACHE_BYTES: u64 = 8 << 20;

/// How often a value is looked up again once it was read. sled lets go of leaves only when one of its 256
/// lists of looks at them is 64 long, which is late: by then a start holds hundreds of megabytes that were
/// read long ago. With 10M keys of 100 bytes it takes 1.6 GB instead of 1.9, and a twentieth less CPU.
const LOOKS_AGAIN: usize = 3;

/// Segments of sled's log. What is above a quarter of one becomes a file of its own, unsynced: a leaf of
/// 17 values of [`VALUE_BYTES_MAX`], the most before it is split, has to stay below.
const SEGMENT_BYTES: usize = 1 << 20;

const _: () = assert!(17 * (VALUE_BYTES_MAX + WRITE_BYTES) < SEGMENT_BYTES / 4);

/// Bytes given to sled between two flushes: with the leaves that it writes anew about 1 MiB of its
/// log, hence at most two of its write jobs.
///
/// sled 0.34.7 deadlocks (its issue 1412) when all seven threads of its I/O pool wait for the segment
/// lock while a writer holding that lock waits for a truncation queued behind them. Seen here within
/// 100k unpaced inserts on a busy disk: writing ahead of the disk is what must not happen.
const BYTES_PER_FLUSH: usize = 384 << 10;

/// Bytes of sled's log for each that it is given, as above.
const LOG_BYTES_PER_BYTE: usize = 3;

/// What a write costs besides its value: the key, and sled's framing.
const WRITE_BYTES: usize = 64;

/// What a removal costs: about every eighth writes a leaf anew.
const REMOVE_BYTES: usize = 8 << 10;

/// First byte of the name of a partition's tree; its number follows, big endian.
const TREE_TAG: u8 = b'p';

/// One sled Db with one tree per partition.
///
/// Cheap to clone; clones share the Db, so images may be read from several threads at once.
#[derive(Clone)]
pub struct SledStore {
    db: DbId,
    stores: u16,
    dir: PathBuf,
    sled: sled::Db,
    /// Bytes given to sled since the last flush.
    unflushed: usize,
    room: Room,
    trees: BTreeMap<PartitionId, sled::Tree>,
}

/// Opens every store of a data directory, in order, rebuilding those that have grown too large.
///
/// Call before any thread is pinned: sled's own threads inherit the affinity of whoever comes first.
///
/// # Errors
/// [`StoreError::Open`] says which store and what to do; nothing may be served.
///
/// # Panics
/// When `stores` is 0 or above [`STORES_MAX`]: it comes from the data directory's stamp.
#[expect(clippy::expect_used, reason = "opening a store does not panic")]
pub fn open_stores(root: &Path, stores: u16) -> Result<Vec<SledStore>, StoreError> {
    assert!(
        (1..=STORES_MAX).contains(&stores),
        "a data directory has 1 to {STORES_MAX} stores"
    );
    // Opening takes about 0.3 s per GB of files that are in memory, nearly all of it CPU.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..stores)
            .map(|n| scope.spawn(move || SledStore::open(root, DbId(n), stores)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("opening a store does not panic"))
            .collect()
    })
}

impl SledStore {
    /// Opens store `db` of `stores` under `root`, creating it when it is not there.
    ///
    /// Finishes an interrupted rebuild, removes what a killed open left, removes blocks without a
    /// manifest, and rebuilds the Db when it wastes too much space.
    ///
    /// # Errors
    /// As [`open_stores`].
    pub fn open(root: &Path, db: DbId, stores: u16) -> Result<SledStore, StoreError> {
        sled_sync::verify().map_err(|source| StoreError::Durability { db, source })?;
        let paths = DbPaths::new(root, db);
        paths.settle(db)?;
        if !paths.live.exists() {
            let created = SledStore::open_at(&paths.fresh, db, stores)?;
            drop(created);
            paths.adopt(db)?;
        }
        let mut store = SledStore::open_at(&paths.live, db, stores)?;
        let mut removed = 0;
        for partition in store.partitions() {
            if store.room() < ROOM {
                tracing::warn!(%db, "no room to remove blocks of unfinished images, which stay for now");
                break;
            }
            match collect_garbage(&mut store, partition) {
                Ok(blocks) => removed += blocks,
                Err(ReadError::Store(error)) => return Err(error),
                // A damaged manifest is reported by whoever loads that partition; its blocks stay.
                Err(error) => tracing::error!(%error, "image not cleaned"),
            }
        }
        if removed > 0 {
            tracing::info!(%db, removed, "removed blocks of unfinished or replaced images");
            store.sync()?;
        }
        rebuild::if_wasteful(store, &paths)
    }

    /// Opens store `db` as it is, without tidying up; `None` when it is not there.
    ///
    /// # Errors
    /// As [`open_stores`].
    pub fn open_untouched(
        root: &Path,
        db: DbId,
        stores: u16,
    ) -> Result<Option<SledStore>, StoreError> {
        let paths = DbPaths::new(root, db);
        let dir = paths.complete();
        dir.map(|dir| SledStore::open_at(dir, db, stores))
            .transpose()
    }

    /// Opens the Db in exactly this directory.
    pub(super) fn open_at(dir: &Path, db: DbId, stores: u16) -> Result<SledStore, StoreError> {
        let refuse = |reason: String| StoreError::Open {
            db,
            path: dir.to_owned(),
            reason,
            remedy: REMEDY_OPEN,
            is_damage: true,
        };
        std::fs::create_dir_all(dir).map_err(|source| StoreError::Io {
            db,
            operation: "create",
            path: dir.to_owned(),
            source,
        })?;
        remove_interrupted_snapshots(dir, db)?;
        read_anew(dir, db)?;
        open_guard::inspect(dir).map_err(&refuse)?;
        let file = dir.join("db");
        if file.exists() {
            // sled writes to the file before anybody can ask for room.
            drop(Room::open(&file));
        }
        let config = sled::Config::new()
            .path(dir)
            .mode(sled::Mode::LowSpace)
            .cache_capacity(CACHE_BYTES)
            .segment_size(SEGMENT_BYTES)
            .flush_every_ms(None);
        let sled = open_guard::guarded(db, || {
            let sled = open_unlocked(&config)?;
            let names = sled.tree_names();
            let trees = names
                .iter()
                .filter_map(|name| Some((partition_of(name)?, name)))
                .map(|(partition, name)| Ok((partition, sled.open_tree(name)?)))
                .collect::<sled::Result<BTreeMap<_, _>>>()?;
            Ok((sled, trees))
        });
        let (sled, trees) = sled.map_err(|failure| match failure {
            Failure::Sled(error) if is_of_system(&error) => StoreError::Open {
                db,
                path: dir.to_owned(),
                reason: error.to_string(),
                remedy: REMEDY_SYSTEM,
                is_damage: false,
            },
            Failure::Sled(error) => refuse(error.to_string()),
            Failure::Panic(reason) => refuse(reason),
        })?;
        if let Some(foreign) = trees.keys().find(|id| DbId::of(**id, stores) != db) {
            return Err(refuse(format!(
                "it holds partition {foreign}, which belongs to {}: the stores' directories were mixed up",
                DbId::of(*foreign, stores)
            )));
        }
        let room = Room::open(&file).map_err(|source| StoreError::Io {
            db,
            operation: "open",
            path: file,
            source,
        })?;
        let mut store = SledStore {
            db,
            stores,
            dir: dir.to_owned(),
            sled,
            unflushed: 0,
            room,
            trees,
        };
        store.sync()?;
        sled_sync::sync_layout(dir).map_err(|source| StoreError::Durability { db, source })?;
        Ok(store)
    }

    /// Bytes of blocks that manifests count, over all partitions; damaged manifests count as nothing.
    pub(super) fn live_bytes(&self) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for partition in self.partitions() {
            self.scan_prefix(
                partition,
                super::manifest::MANIFEST_TAG,
                &mut |_, stored| {
                    bytes += Manifest::decode(stored).map_or(0, |m| m.bytes);
                    ControlFlow::Continue(())
                },
            )?;
        }
        Ok(bytes)
    }

    /// How many stores the data directory has.
    #[must_use]
    pub fn stores(&self) -> u16 {
        self.stores
    }

    fn owned(&self, partition: PartitionId) -> PartitionId {
        assert_eq!(
            DbId::of(partition, self.stores),
            self.db,
            "partition {partition} asked of the wrong store"
        );
        partition
    }

    fn failed(
        &self,
        operation: &'static str,
        partition: PartitionId,
    ) -> impl Fn(sled::Error) -> StoreError {
        let db = self.db;
        move |e| StoreError::Operation {
            db,
            operation,
            partition,
            source: Box::new(e),
        }
    }

    /// Waits for the disk every [`BYTES_PER_FLUSH`], and as soon as it is full.
    fn pace(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.unflushed += bytes;
        if self.unflushed < BYTES_PER_FLUSH && !waits_for_room() {
            Ok(())
        } else {
            self.sync()
        }
    }

    fn tree(&self, partition: PartitionId) -> Option<&sled::Tree> {
        self.trees.get(&self.owned(partition))
    }
}

impl ImageStore for SledStore {
    fn db(&self) -> DbId {
        self.db
    }

    fn insert(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        assert!(value.len() <= VALUE_BYTES_MAX, "{} bytes", value.len());
        let _inside = Inside::of(self.db);
        let tree = match self.tree(partition) {
            Some(tree) => tree,
            None => {
                let tree = self
                    .sled
                    .open_tree(tree_name(partition))
                    .map_err(self.failed("create the tree", partition))?;
                self.trees.entry(partition).or_insert(tree)
            }
        };
        tree.insert(key, value)
            .map(drop)
            .map_err(self.failed("write a block", partition))?;
        self.pace(WRITE_BYTES + value.len())
    }

    fn remove(&mut self, partition: PartitionId, key: &[u8]) -> Result<(), StoreError> {
        let _inside = Inside::of(self.db);
        let Some(tree) = self.tree(partition) else {
            return Ok(());
        };
        tree.remove(key)
            .map(drop)
            .map_err(self.failed("remove a block", partition))?;
        self.pace(REMOVE_BYTES)
    }

    fn get_with(
        &self,
        partition: PartitionId,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, StoreError> {
        let _inside = Inside::of(self.db);
        let Some(tree) = self.tree(partition) else {
            return Ok(false);
        };
        let value = tree.get(key).map_err(self.failed("read", partition))?;
        if let Some(value) = &value {
            visit(value);
        }
        for _ in 0..LOOKS_AGAIN {
            tree.contains_key(key)
                .map_err(self.failed("read", partition))?;
        }
        Ok(value.is_some())
    }

    fn next_key(&self, partition: PartitionId, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let _inside = Inside::of(self.db);
        let first = self
            .tree(partition)
            .and_then(|tree| tree.range(from..).keys().next());
        first
            .transpose()
            .map(|key| key.map(|k| k.to_vec()))
            .map_err(self.failed("read", partition))
    }

    fn scan_prefix(
        &self,
        partition: PartitionId,
        prefix: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let _inside = Inside::of(self.db);
        let Some(tree) = self.tree(partition) else {
            return Ok(());
        };
        for entry in tree.scan_prefix(prefix) {
            let (key, value) = entry.map_err(self.failed("read", partition))?;
            if visit(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn drop_partition(&mut self, partition: PartitionId) -> Result<(), StoreError> {
        let _inside = Inside::of(self.db);
        self.trees.remove(&self.owned(partition));
        self.sled
            .drop_tree(tree_name(partition))
            .map(drop)
            .map_err(self.failed("drop the tree", partition))?;
        self.pace(REMOVE_BYTES)
    }

    fn partitions(&self) -> Vec<PartitionId> {
        self.trees.keys().copied().collect()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let _inside = Inside::of(self.db);
        let written = std::mem::take(&mut self.unflushed);
        self.sled.flush().map(drop).map_err(|e| StoreError::Sync {
            db: self.db,
            source: Box::new(e),
        })?;
        reclaim::let_go(written * LOG_BYTES_PER_BYTE);
        self.room.written();
        Ok(())
    }

    fn room(&mut self) -> u64 {
        self.room.left()
    }

    fn has_free(&self, bytes: u64) -> bool {
        free_bytes(&self.dir).is_ok_and(|free| free >= bytes)
    }

    fn size_on_disk(&self) -> Result<u64, StoreError> {
        let bytes = directory_bytes(&self.dir).map_err(|source| StoreError::Io {
            db: self.db,
            operation: "measure",
            path: self.dir.clone(),
            source,
        })?;
        Ok(bytes.saturating_sub(self.room.reserved()))
    }
}

/// Whether an error is the machine's and not of what the files hold.
fn is_of_system(error: &sled::Error) -> bool {
    use std::io::ErrorKind;
    match error {
        sled::Error::Io(error) => match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput => false,
            ErrorKind::Other => error.to_string().contains(LOCKED),
            _ => true,
        },
        _ => false,
    }
}

/// Has all that is read of a Db come from its device ([`forget_cached`](dir::forget_cached)), and begins to read it: an
/// opening reads most of it, in pieces of some KB.
fn read_anew(path: &Path, db: DbId) -> Result<(), StoreError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::Io {
            db,
            operation: "read anew",
            path,
            source,
        }
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed(path))? {
        let name = entry.map_err(failed(path))?.path();
        if name.is_file() {
            let file = File::open(&name).map_err(failed(&name))?;
            dir::forget_cached(&file).map_err(failed(&name))?;
            files.push(file);
        }
    }
    dir::read_ahead(files);
    Ok(())
}

fn tree_name(partition: PartitionId) -> [u8; 3] {
    let [high, low] = partition.0.to_be_bytes();
    [TREE_TAG, high, low]
}

fn partition_of(name: &[u8]) -> Option<PartitionId> {
    match *name {
        [TREE_TAG, high, low] => Some(PartitionId(u16::from_be_bytes([high, low]))),
        _ => None,
    }
}

/// How long a Db's lock may outlive whoever held it: sled gives it up in a thread of its own, and the
/// kernel closes a killed process's files in the background.
const LOCK_TRIES: u32 = 100;
/// What sled says of it.
const LOCKED: &str = "acquire lock";
const LOCK_RETRY: Duration = Duration::from_millis(50);

fn open_unlocked(config: &sled::Config) -> sled::Result<sled::Db> {
    let mut tries = 0;
    loop {
        match config.open() {
            Err(error) if tries < LOCK_TRIES && error.to_string().contains(LOCKED) => {
                tries += 1;
                std::thread::sleep(LOCK_RETRY);
            }
            result => return result,
        }
    }
}
