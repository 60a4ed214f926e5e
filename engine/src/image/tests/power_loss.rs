//! Power is lost at every operation of an image's life, with the unsynced writes kept or lost at
//! random: exactly one whole image must remain, and the order of writes must be what ensures it.

use ephesus_wire::{Epoch, PartitionId};
use proptest::prelude::*;

use super::super::fault::{FaultStore, splitmix};
use super::*;

const PARTITION: PartitionId = PartitionId(5);
const EPOCH: Epoch = Epoch(3);

/// What a history does to a store in which generation 1 is already durable.
type History = fn(&mut FaultStore, u64, u64) -> Result<(), WriterError>;

fn correct(store: &mut FaultStore, old: u64, new: u64) -> Result<(), WriterError> {
    // An attempt given up in between, and one whose generation is used again.
    let mut given_up = ImageWriter::begin(store, image(5, 3, 2), None)?;
    for extent in extents_of(image(5, 3, 2), 0..5, 4096) {
        given_up.put(store, &extent)?;
    }
    let places = given_up.abort(store)?;
    let places = write_next(store, image(5, 3, 2), old, 4096, places)?;
    write_next(store, image(5, 3, 3), new, 4096, Some(places)).map(drop)
}

fn early_switch(store: &mut FaultStore, _old: u64, new: u64) -> Result<(), WriterError> {
    let image = image(5, 3, 2);
    let mut writer = ImageWriter::begin(store, image, None)?;
    for extent in extents_of(image, 0..new, 4096) {
        writer.put(store, &extent)?;
    }
    let (new, bytes) = writer.written();
    writer.switch_before_seal(store, &manifest(image, new, bytes))?;
    writer.sweep(store)?;
    Ok(())
}

/// Loses power at operation `at` of `history` and opens the store again; says what is wrong.
fn survive(history: History, seed: u64, old: u64, new: u64, at: u64) -> Result<(), String> {
    let mut store = FaultStore::new(DbId(0));
    write_image(&mut store, image(5, 3, 1), old, 4096).expect("nothing fails yet");
    store.sync().expect("nothing fails yet");
    store.fail_at(at);
    let finished = history(&mut store, old, new).is_ok();
    let mut found = store.crash(seed);

    let before = load(&found, PARTITION, EPOCH).map_err(|e| e.to_string())?;
    let removed = collect_garbage(&mut found, PARTITION).map_err(|e| e.to_string())?;
    let manifest = load(&found, PARTITION, EPOCH).map_err(|e| e.to_string())?;
    if before != manifest {
        return Err(format!("collecting {removed} extents changed the manifest"));
    }
    let manifest = manifest.ok_or("no image is left")?;
    check_image(&found, &manifest).map_err(|e| e.to_string())?;
    if finished && manifest.image.generation.0 == 1 {
        return Err("a finished switch was taken back".into());
    }
    // Life goes on: the same generation number may be written again after the crash, over whatever the
    // crash has left, and then over what is known.
    let mut left = None;
    for (generation, blocks) in [(9, 9), (10, new), (11, 14)] {
        left = write_next(&mut found, image(5, 3, generation), blocks, 4096, left)
            .map(Some)
            .map_err(|e| e.to_string())?;
        let last = load(&found, PARTITION, EPOCH)
            .map_err(|e| e.to_string())?
            .ok_or("lost")?;
        check_image(&found, &last).map_err(|e| e.to_string())?;
        let kept = generations(&found, PARTITION);
        if kept != [(3, generation)] {
            return Err(format!("blocks of {kept:?} beside {}", last.image));
        }
    }
    Ok(())
}

fn operations_of(history: History, old: u64, new: u64) -> u64 {
    let mut store = FaultStore::new(DbId(0));
    write_image(&mut store, image(5, 3, 1), old, 4096).expect("nothing fails");
    let before = store.operations();
    history(&mut store, old, new).expect("nothing fails");
    store.operations() - before
}

#[test]
fn every_crash_point_leaves_one_whole_image() {
    let mut points = 0;
    for seed in 0..14 {
        let mut dice = seed;
        // The last ones are large enough for places ahead of their extents.
        let most = if seed < 12 { 32 } else { 160 };
        let mut blocks = || most - splitmix(&mut dice) % 32;
        let (old, new) = (blocks(), blocks());
        for at in 1..=operations_of(correct, old, new) + 1 {
            for fate in 0..4 {
                survive(correct, seed * 1000 + fate, old, new, at)
                    .unwrap_or_else(|e| panic!("seed {seed} fate {fate} operation {at}: {e}"));
                points += 1;
            }
        }
    }
    assert!(points >= 500, "only {points} crash points");
}

#[test]
fn unsynced_blocks_are_kept_lost_or_torn_and_manifests_never_torn() {
    let (key, name) = (
        manifest::extent_key(EPOCH, Side::A, 0),
        manifest::manifest_key(EPOCH),
    );
    let mut store = FaultStore::new(DbId(0));
    let write = |store: &mut FaultStore, value: &[u8]| {
        store.insert(PARTITION, &key, value).expect("insert");
        store.insert(PARTITION, &name, value).expect("insert");
    };
    write(&mut store, b"durable");
    store.sync().expect("sync");
    write(&mut store, b"later");
    let crashed: Vec<_> = (0..200).map(|seed| store.crash(seed)).collect();
    let ends = |key: &[u8]| -> std::collections::BTreeSet<_> {
        let value = |store: &FaultStore| store.get(PARTITION, key).expect("get");
        crashed.iter().map(value).collect()
    };
    let (old, new) = (Some(b"durable".to_vec()), Some(b"later".to_vec()));
    let blocks = ends(&key);
    assert!(blocks.is_superset(&[None, old.clone(), new.clone()].into()));
    let is_cut = |value: &Vec<u8>| value.len() < 5 && b"later".starts_with(value);
    assert!(blocks.iter().flatten().any(is_cut));
    assert_eq!(ends(&name), [old, new].into());
}

#[test]
fn a_switch_before_the_sync_is_caught() {
    let operations = operations_of(early_switch, 16, 24);
    let caught = (0..600)
        .filter(|seed| survive(early_switch, *seed, 16, 24, 1 + seed % operations).is_err())
        .count();
    assert!(
        caught >= 20,
        "the planted bug showed in {caught} of 600 crashes"
    );
}

#[test]
fn a_failed_sync_poisons_the_writer() {
    let mut store = FaultStore::new(DbId(0));
    let mut writer = ImageWriter::begin(&mut store, image(5, 3, 1), None).expect("begin");
    let extent = &extents_of(image(5, 3, 1), 0..1, 0)[0];
    writer.put(&mut store, extent).expect("put");
    store.fail_at(1);
    assert!(writer.seal(&mut store).is_err());
    assert_eq!(writer.state(), WriterState::Poisoned);
    let again = writer.seal(&mut store);
    assert!(
        matches!(again, Err(WriterError::Illegal { call: "seal", .. })),
        "{again:?}"
    );
}

#[test]
fn a_staging_copy_never_displaces_its_source() {
    let mut store = FaultStore::new(DbId(0));
    write_image(&mut store, image(5, 3, 1), 4, 0).expect("source");
    write_image(&mut store, image(5, 4, 1), 2, 0).expect("staging");
    assert_eq!(generations(&store, PARTITION), [(3, 1), (4, 1)]);
    for found in manifests(&store, PARTITION).expect("manifests") {
        check_image(&store, &found).expect("whole");
    }
    writer::drop_copy(&mut store, PARTITION, Epoch(4)).expect("rollback");
    assert_eq!(generations(&store, PARTITION), [(3, 1)]);
    assert_eq!(load(&store, PARTITION, Epoch(4)).expect("load"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_crash_leaves_one_whole_image(
        seed in any::<u64>(), old in 1u64..60, new in 1u64..60, at in 1u64..100,
    ) {
        prop_assert_eq!(survive(correct, seed, old, new, at), Ok(()));
    }

    #[test]
    fn dropping_a_copy_is_all_or_nothing(seed in any::<u64>(), blocks in 1u64..80, at in 1u64..30) {
        let mut store = FaultStore::new(DbId(0));
        write_image(&mut store, image(5, 3, 1), blocks, 4096).expect("nothing fails yet");
        store.fail_at(at);
        let dropped = writer::drop_copy(&mut store, PARTITION, EPOCH).is_ok();
        let mut found = store.crash(seed);
        collect_garbage(&mut found, PARTITION).expect("collect");
        match load(&found, PARTITION, EPOCH).expect("load") {
            Some(manifest) => {
                prop_assert!(!dropped);
                prop_assert!(check_image(&found, &manifest).is_ok());
            }
            None => prop_assert_eq!(generations(&found, PARTITION), []),
        }
    }
}
