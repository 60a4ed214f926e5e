//! The real store in a temporary directory.

use std::fs;
use std::path::Path;

use ephesus_wire::Epoch;

use super::super::extent::ExtentBuilder;
use super::super::layout::DbPaths;
use super::super::rebuild::rebuild;
use super::*;

fn open(root: &Path) -> SledStore {
    SledStore::open(root, DbId(0), 1).expect("open")
}

fn check_all(store: &SledStore, expected: &[(u16, u64)]) {
    let found: Vec<(u16, u64)> = store
        .partitions()
        .into_iter()
        .flat_map(|p| manifests(store, p).expect("manifests"))
        .map(|m| {
            check_image(store, &m).expect("whole image");
            (m.image.partition.0, m.image.generation.0)
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn images_survive_a_reopen_and_garbage_does_not() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut store = open(dir.path());
    write_image(&mut store, image(0, 1, 1), 300, 4096).expect("write");
    write_image(&mut store, image(0, 1, 2), 200, 4096).expect("write");
    write_image(&mut store, image(9, 1, 5), 1, 10).expect("write");
    let mut unfinished = ImageWriter::begin(&mut store, image(9, 1, 6)).expect("begin");
    unfinished.put(&mut store, b"half").expect("put");
    unfinished.seal(&mut store).expect("seal");
    drop(store);

    let store = open(dir.path());
    check_all(&store, &[(0, 2), (9, 5)]);
    assert_eq!(generations(&store, PartitionId(0)), [(1, 2)]);
    assert_eq!(generations(&store, PartitionId(9)), [(1, 5)]);
    assert!(verify(&store, |_| Ok(())).expect("readable").is_empty());
}

#[test]
fn places_ahead_of_extents_are_gone_once_the_image_is_sealed_or_given_up() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut store = open(dir.path());
    // After a large image places are made from the start on.
    write_image(&mut store, image(2, 1, 1), 150, 4096).expect("write");
    let keys = |store: &SledStore, partition| {
        let mut keys = 0u64;
        let counted = store.scan_prefix(partition, b"b", &mut |_, _| {
            keys += 1;
            std::ops::ControlFlow::Continue(())
        });
        counted.expect("scan");
        keys
    };
    let sizes = [1, 3, 31, 32, 33, 49, 50, 64, 65, 66, 200];
    for (partition, extents) in [1, 2].into_iter().flat_map(|p| sizes.map(|size| (p, size))) {
        let blocks = extents * 3 - 1;
        let image = image(partition, 1, extents + 1);
        let before = keys(&store, PartitionId(partition));
        let mut writer = ImageWriter::begin(&mut store, image).expect("begin");
        for sequence in 0..blocks {
            let block = block(image, sequence, 4096);
            writer.put(&mut store, &block).expect("put");
        }
        writer.seal(&mut store).expect("seal");
        assert_eq!(keys(&store, PartitionId(partition)), before + extents);
        writer.abort(&mut store).expect("abort");
        assert_eq!(keys(&store, PartitionId(partition)), before);
        let mut writer = ImageWriter::begin(&mut store, image).expect("begin");
        for sequence in 0..blocks {
            let block = block(image, sequence, 4096);
            writer.put(&mut store, &block).expect("put");
        }
        writer.abort(&mut store).expect("abort");
        assert_eq!(keys(&store, PartitionId(partition)), before);
    }
}

#[test]
fn a_dropped_partition_stays_dropped() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut store = open(dir.path());
    write_image(&mut store, image(2, 1, 1), 50, 4096).expect("write");
    removal::drop_copy(&mut store, PartitionId(2), Epoch(1)).expect("drop");
    assert_eq!(store.partitions(), []);
    write_image(&mut store, image(2, 2, 1), 5, 100).expect("write again");
    drop(store);
    check_all(&open(dir.path()), &[(2, 1)]);
}

#[test]
fn a_dropped_copy_leaves_every_other_copy_of_its_partition() {
    for (dropped, kept) in [(1, 2), (2, 1)] {
        for kept_blocks in [0, 1, 200] {
            let dir = tempfile::tempdir().expect("temp dir");
            let mut store = open(dir.path());
            write_image(&mut store, image(3, dropped, dropped), 200, 4096).expect("write");
            write_image(&mut store, image(3, kept, kept), kept_blocks, 4096).expect("write");
            removal::drop_copy(&mut store, PartitionId(3), Epoch(dropped)).expect("drop");
            assert_eq!(store.partitions(), [PartitionId(3)]);
            drop(store);
            check_all(&open(dir.path()), &[(3, kept)]);
        }
    }
}

#[test]
fn what_a_kill_during_open_leaves_is_removed() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut store = open(dir.path());
    write_image(&mut store, image(0, 1, 1), 100, 4096).expect("write");
    drop(store);
    let leftover = dir.path().join("db-0/snap.FFFFFFFFFFFFFFF0.generating");
    fs::write(&leftover, b"half a snapshot").expect("write");
    fs::create_dir(dir.path().join("db-0.fresh")).expect("mkdir");
    let store = open(dir.path());
    check_all(&store, &[(0, 1)]);
    assert!(!leftover.exists());
    assert!(!dir.path().join("db-0.fresh").exists());
}

#[test]
fn a_damaged_snapshot_or_configuration_is_named() {
    for name in ["snap.", "conf"] {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut store = open(dir.path());
        write_image(&mut store, image(0, 1, 1), 100, 4096).expect("write");
        drop(store);
        drop(open(dir.path()));
        let damaged = fs::read_dir(dir.path().join("db-0"))
            .expect("list")
            .map(|e| e.expect("entry").path())
            .find(|p| {
                p.file_name()
                    .expect("name")
                    .to_string_lossy()
                    .starts_with(name)
            })
            .expect("sled wrote such a file");
        let mut bytes = fs::read(&damaged).expect("read");
        bytes[3] ^= 0x40;
        fs::write(&damaged, bytes).expect("write");
        let error = SledStore::open(dir.path(), DbId(0), 1)
            .err()
            .expect("refused")
            .to_string();
        assert!(
            error.contains("db-0") && error.contains("restore"),
            "{error}"
        );
        assert!(error.contains(&*damaged.to_string_lossy()), "{error}");
    }
}

#[test]
fn a_store_that_is_in_use_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    let _first = open(dir.path());
    let error = SledStore::open(dir.path(), DbId(0), 1)
        .err()
        .expect("locked")
        .to_string();
    assert!(error.contains("lock"), "{error}");
}

#[test]
fn damaged_and_missing_blocks_are_named() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut store = open(dir.path());
    for partition in 0..4 {
        write_image(&mut store, image(partition, 2, 4), 40, 4096).expect("write");
    }
    let key = |n| manifest::extent_key(Epoch(2), Generation(4), n);
    store
        .insert(PartitionId(0), &key(5), b"other bytes")
        .expect("damage");
    store.remove(PartitionId(1), &key(8)).expect("damage");
    store.remove(PartitionId(2), &key(13)).expect("damage");
    let mut other = ExtentBuilder::default();
    other.push(b"other bytes");
    store
        .insert(PartitionId(3), &key(5), other.bytes())
        .expect("damage");
    let problems = verify(&store, |block| {
        if block.starts_with(b"partition") {
            Ok(())
        } else {
            Err("bad checksum".into())
        }
    });
    let problems: Vec<String> = problems
        .expect("readable")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        problems,
        [
            "db-0: partition 0 epoch 2 generation 4, extent 5: the lengths of its blocks do not add up",
            "db-0: partition 1 epoch 2 generation 4, extent 8 with block 24 is missing",
            "db-0: partition 2 epoch 2 generation 4 has 39 blocks, its manifest counts 40",
            "db-0: partition 3 epoch 2 generation 4, extent 5, block 15: bad checksum",
        ]
    );

    let stored = manifest::manifest_key(Epoch(2));
    store
        .insert(PartitionId(0), &stored, &[1; manifest::MANIFEST_BYTES])
        .expect("damage");
    let error = load(&store, PartitionId(0), Epoch(2))
        .expect_err("damaged")
        .to_string();
    assert_eq!(
        error,
        "db-0: partition 0: manifest has the wrong magic number"
    );
    assert!(collect_garbage(&mut store, PartitionId(0)).is_err());
    assert_eq!(
        generations(&store, PartitionId(0)),
        [(2, 4)],
        "damage must not cost blocks"
    );
}

#[test]
fn a_rebuild_keeps_every_image_and_shrinks() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut store = open(dir.path());
    for generation in 1..6 {
        write_image(&mut store, image(0, 1, generation), 600, 4096).expect("write");
        write_image(&mut store, image(3, 1, generation), 20, 4096).expect("write");
    }
    removal::drop_copy(&mut store, PartitionId(0), Epoch(1)).expect("drop");
    let before = store.size_on_disk().expect("size");
    let paths = DbPaths::new(dir.path(), DbId(0));
    let store = rebuild(store, &paths).expect("rebuild");
    let after = store.size_on_disk().expect("size");
    check_all(&store, &[(3, 5)]);
    assert!(after * 2 < before, "{before} -> {after}");
    assert!(!paths.old.exists() && !paths.fresh.exists());
}

#[test]
fn a_rebuild_may_stop_between_any_two_renames() {
    // Which of live, fresh and old exist when the process died, and which must be the store after.
    for (stopped, survivor) in [
        ("live fresh", "live"),
        ("old fresh", "fresh"),
        ("old live", "live"),
        ("old", "old"),
    ] {
        let dir = tempfile::tempdir().expect("temp dir");
        let paths = DbPaths::new(dir.path(), DbId(0));
        for name in stopped.split(' ') {
            let path = match name {
                "live" => &paths.live,
                "fresh" => &paths.fresh,
                _ => &paths.old,
            };
            let mut store = SledStore::open_at(path, DbId(0), 1).expect("open");
            let generation = if name == survivor { 7 } else { 1 };
            write_image(&mut store, image(0, 1, generation), 5, 100).expect("write");
        }
        check_all(&open(dir.path()), &[(0, 7)]);
        assert!(!paths.old.exists() && !paths.fresh.exists(), "{stopped}");
    }
}

#[test]
fn stores_share_partitions_by_remainder() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut stores = open_stores(dir.path(), 3).expect("open");
    for partition in 0..9 {
        let store = &mut stores[usize::from(partition % 3)];
        write_image(store, image(partition, 1, 1), 2, 50).expect("write");
    }
    drop(stores);
    for (n, store) in open_stores(dir.path(), 3).expect("open").iter().enumerate() {
        let n = u16::try_from(n).expect("small");
        assert_eq!(store.db(), DbId(n));
        check_all(store, &[(n, 1), (n + 3, 1), (n + 6, 1)]);
    }
}

#[test]
fn damage_to_the_log_of_sled_is_noticed_or_harmless() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut store = open(dir.path());
    write_image(&mut store, image(0, 1, 1), 200, 4096).expect("write");
    write_image(&mut store, image(0, 1, 2), 200, 4096).expect("write");
    drop(store);
    drop(open(dir.path()));
    let file = dir.path().join("db-0/db");
    let (pristine, bytes) = (dir.path().join("pristine"), fs::read(&file).expect("read"));
    copy_flat(&dir.path().join("db-0"), &pristine);
    let mut noticed = 0;
    for at in (0..24).map(|n| bytes.len() / 24 * n + 40) {
        fs::remove_dir_all(dir.path().join("db-0")).expect("clear");
        copy_flat(&pristine, &dir.path().join("db-0"));
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        fs::write(&file, damaged).expect("write");
        // Opening may say so (also by a panic inside sled); else reading must, or all is there.
        let whole = std::panic::catch_unwind(|| {
            let store = SledStore::open(dir.path(), DbId(0), 1).map_err(|e| e.to_string())?;
            let found = load(&store, PartitionId(0), Epoch(1)).map_err(|e| e.to_string())?;
            let manifest = found.ok_or("no image")?;
            check_image(&store, &manifest).map_err(|e| e.to_string())
        });
        match whole {
            Ok(Ok(())) => {}
            Ok(Err(message)) => {
                assert!(
                    message.contains("db-0") || message == "no image",
                    "{message}"
                );
                noticed += 1;
            }
            Err(_) => noticed += 1,
        }
    }
    assert!(
        noticed > 0,
        "no damage was noticed: the test damages nothing that matters"
    );
}

fn copy_flat(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("mkdir");
    for entry in fs::read_dir(from).expect("list") {
        let path = entry.expect("entry").path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().expect("name"))).expect("copy");
        }
    }
}
