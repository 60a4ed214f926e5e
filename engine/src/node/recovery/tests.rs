//! Recovery of real directories: logs on files, images in sled.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ephesus_coordinator::command::ClusterId;
use ephesus_wal::DiskFile;
use ephesus_wire::NodeId;
use futures_lite::future::block_on;

use super::by_shards::first_layout;
use super::*;
use crate::image::{SledStore, StoreThread, open_stores};
use crate::keyspace::Keyspace;
use crate::keyspace::tests::tape::execute_valid;
use crate::node::data_dir::{Joined, Stamp};
use crate::shard::Checkpointer;

const STORES: u16 = 2;
const PARTITIONS: u16 = 3;
const KEYS: u64 = 300;

fn hasher() -> KeyHasher {
    KeyHasher::with_seeds([1, 2, 3, 4])
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        group_bytes_max: 16 << 10,
        ..LogOptions::new(LogId::default())
    }
}

/// A new data directory of one shard.
fn create(path: &Path) {
    let dir = DataDir::lock(path).expect("lock");
    let layout = first_layout(PARTITIONS, 1);
    for &log in &layout.logs {
        dir.create_log(LogId(log)).expect("a log");
    }
    dir.write_layout(&layout).expect("a layout");
    let stamp = Stamp {
        node: NodeId([7; 16]),
        stores: STORES,
        joined: Some(Joined {
            cluster: ClusterId([8; 16]),
            partitions: PARTITIONS,
        }),
    };
    dir.write_stamp(&stamp).expect("a stamp");
}

type Found = (Layout, Vec<RecoveredShard>, Vec<SledStore>);

fn recover(path: &Path, shards: u16) -> Result<Found, RecoveryError> {
    recover_with(path, shards, options())
}

fn recover_with(path: &Path, shards: u16, options: LogOptions) -> Result<Found, RecoveryError> {
    let dir = DataDir::lock(path)?;
    let partitioning = Partitioning::new(PARTITIONS).expect("a valid number");
    let hasher = hasher();
    let recovery = Recovery::new(&dir, partitioning, &hasher, options, 1_000);
    let mut stores = open_stores(&dir.image_dir(), STORES)?;
    let layout = dir.layout()?;
    let (layout, recovered) = recovery.run(layout, shards, &mut stores)?;
    Ok((layout, recovered, stores))
}

fn count(found: &Found) -> usize {
    let partitions = found.1.iter().flat_map(|shard| &shard.partitions);
    partitions.map(|partition| partition.table.len()).sum()
}

#[expect(clippy::disallowed_methods, reason = "the watchdog needs an instant")]
fn now() -> Instant {
    Instant::now()
}

/// Serves one life: writes every key over and over until images have let log segments go.
fn serve(path: &Path) {
    let (layout, mut recovered, stores) = recover(path, 1).expect("a good directory");
    let log = layout.log(ShardId(0));
    let mut shard = recovered.remove(0);
    let mut files = vec![(shard.segment.info.id, shard.segment.file)];
    let partitioning = Partitioning::new(PARTITIONS).expect("a valid number");
    let mut keyspace = Keyspace::new(
        partitioning,
        shard.partitions,
        hasher(),
        shard.writer,
        shard.wall_clock_ms,
    );
    let threads: Vec<StoreThread> = stores
        .into_iter()
        .map(|store| StoreThread::start(Box::new(store)).expect("a thread"))
        .collect();
    let clients = threads.iter().map(|t| t.client(Arc::new(|| {}))).collect();
    let mut checkpointer = Checkpointer::new(clients, log, 128 << 10);
    let (mut freed, mut n) = (0, 0u64);
    // The last round of writes is at the first multiple of eight that covers every key.
    while freed < 4 || n < KEYS.next_multiple_of(8) {
        let key = format!("key:{}", n % KEYS).into_bytes();
        execute_valid(&mut keyspace, &[b"SET".to_vec(), key, vec![b'v'; 700]]);
        n += 1;
        if n.is_multiple_of(8) {
            while keyspace.log.wants_segments() > 0 {
                let id = keyspace.log.allocate_segment();
                let options = keyspace.log.options().clone();
                let made = block_on(shard.files.prepare(&options, id)).expect("a segment");
                keyspace.log.add_segment(made.info).expect("the next one");
                files.push((id, made.file));
            }
            while let Some(op) = keyspace.log.next_write(1_000) {
                let (_, file) = files
                    .iter()
                    .find(|(id, _)| *id == op.segment)
                    .expect("open");
                block_on(file.write_at(&op.buf, op.offset)).expect("written");
                let len = op.buf.len();
                keyspace.log.complete(op, Ok(len)).expect("completed");
            }
        }
        let given = checkpointer
            .take_replies(&mut keyspace, now())
            .expect("a good store");
        for segment in given {
            block_on(shard.files.discard(segment)).expect("removed");
            freed += 1;
        }
        checkpointer
            .slice(&mut keyspace, now())
            .expect("a good store");
    }
    threads.into_iter().for_each(StoreThread::stop);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("create");
    for entry in fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("copy");
        }
    }
}

fn served() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().expect("temp dir");
    let path = temp.path().join("data");
    create(&path);
    serve(&path);
    (temp, path)
}

fn assert_lost(path: &Path, shards: u16, store: u16) {
    let error = recover(path, shards).err().expect("refused");
    match &error {
        RecoveryError::LostImage { store: lost, .. } => assert_eq!(*lost, DbId(store)),
        other => panic!("{other}"),
    }
    let text = error.to_string();
    assert!(
        text.contains(&format!("images/db-{store} has lost")),
        "{text}"
    );
    assert!(text.contains("restore"), "{text}");
}

#[test]
fn a_directory_comes_back_whole_and_a_lost_store_is_refused() {
    let (_temp, path) = served();
    assert_eq!(count(&recover(&path, 1).expect("whole")), KEYS as usize);
    for store in 0..STORES {
        let (live, aside) = (path.join(format!("images/db-{store}")), path.join("aside"));
        fs::rename(&live, &aside).expect("move away");
        assert_lost(&path, 1, store);
        assert_lost(&path, 3, store);
        fs::remove_dir_all(&live).expect("the empty one");
        fs::rename(&aside, &live).expect("move back");
    }
    assert_eq!(
        count(&recover(&path, 1).expect("whole again")),
        KEYS as usize
    );
}

#[test]
fn a_store_that_has_gone_back_in_time_is_refused() {
    let (temp, path) = served();
    let old = temp.path().join("old");
    copy(&path.join("images/db-0"), &old);
    serve(&path);
    fs::remove_dir_all(path.join("images/db-0")).expect("remove");
    copy(&old, &path.join("images/db-0"));
    assert_lost(&path, 1, 0);
}

#[test]
fn a_lost_store_is_refused_after_a_change_of_layout_too() {
    let (_temp, path) = served();
    assert_eq!(count(&recover(&path, 3).expect("whole")), KEYS as usize);
    assert_eq!(count(&recover(&path, 3).expect("whole")), KEYS as usize);
    fs::remove_dir_all(path.join("images/db-1")).expect("remove");
    assert_lost(&path, 3, 1);
}

#[test]
fn a_log_that_has_lost_its_end_is_refused() {
    let (_temp, path) = served();
    for log in fs::read_dir(path.join("logs")).expect("list") {
        let log = log.expect("entry").path();
        for segment in fs::read_dir(&log).expect("list") {
            fs::remove_file(segment.expect("entry").path()).expect("remove");
        }
        let error = recover(&path, 1).err().expect("refused");
        assert!(
            error.to_string().contains("all files of the log are gone"),
            "{error}"
        );
        assert!(error.to_string().contains("--on-damage cut"), "{error}");
        // As a release without lists would have left it, had it never made its first segment.
        fs::write(log.join("free-0000000000000001.log"), "").expect("written");
    }
    let error = recover(&path, 1).err().expect("refused");
    assert!(matches!(error, RecoveryError::ShortLog { .. }), "{error}");
    assert!(error.to_string().contains("--on-damage cut"), "{error}");
}

#[test]
fn a_log_directory_that_is_gone_is_refused_until_its_loss_is_accepted() {
    let (_temp, path) = served();
    fs::remove_dir_all(path.join("logs")).expect("remove");
    let error = recover(&path, 1).err().expect("refused");
    let is_lost = matches!(error, RecoveryError::DataDir(DataDirError::LostLog(_)));
    assert!(
        is_lost && error.to_string().contains("--on-damage cut"),
        "{error}"
    );
    let cut = LogOptions {
        on_damage: OnDamage::Cut,
        ..options()
    };
    recover_with(&path, 1, cut).expect("the loss is accepted");
    recover(&path, 1).expect("once, for nothing was written since");
}

#[test]
fn the_clock_goes_on_through_a_change_of_layout() {
    let (_temp, path) = served();
    let dir = DataDir::lock(&path).expect("lock");
    let partitioning = Partitioning::new(PARTITIONS).expect("a valid number");
    let hasher = hasher();
    let recovery = Recovery::new(&dir, partitioning, &hasher, options(), 5);
    let mut stores = open_stores(&dir.image_dir(), STORES).expect("stores");
    let layout = dir.layout().expect("layout");
    let (_, shards) = recovery.run(layout, 2, &mut stores).expect("recovered");
    assert!(shards.iter().all(|shard| shard.wall_clock_ms >= 1_000));
}
