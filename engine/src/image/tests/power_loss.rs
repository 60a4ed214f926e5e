//! Power is lost at every operation of an image's life, with the unsynced writes kept or lost at
//! random: exactly one whole image must remain, and the order of writes must be what ensures it.

use ephesus_wire::rng::Rng;
use ephesus_wire::{Epoch, PartitionId};
use proptest::prelude::*;

use super::super::fault::FaultStore;
use super::*;

const PARTITION: PartitionId = PartitionId(5);
const EPOCH: Epoch = Epoch(3);

/// What a history does to a store in which generation 1 is already durable.
type History = fn(&mut FaultStore, u64, u64) -> Result<(), ReadError>;

fn correct(store: &mut FaultStore, old: u64, new: u64) -> Result<(), ReadError> {
    // An attempt given up in between, and one whose generation is used again.
    let mut given_up = ImageWriter::begin(store, image(5, 3, 2))?;
    given_up.put(store, &block(image(5, 3, 2), 0, 0))?;
    given_up.abort(store)?;
    write_image(store, image(5, 3, 2), old, 0)?;
    write_image(store, image(5, 3, 3), new, 0)
}

fn early_switch(store: &mut FaultStore, _old: u64, new: u64) -> Result<(), ReadError> {
    let image = image(5, 3, 2);
    let mut writer = ImageWriter::begin(store, image)?;
    let mut bytes = 0;
    let last = new - 1;
    for sequence in 0..last {
        let block = block(image, sequence, 0);
        bytes += block.len() as u64;
        writer.put(store, &block)?;
    }
    let block = block(image, last, 0);
    writer.put(store, &block)?;
    bytes += block.len() as u64;
    writer.switch_before_seal(store, &manifest(image, new, bytes))?;
    writer.sweep(store)?;
    Ok(())
}

/// Loses power at operation `at` of `history` and opens the store again; says what is wrong.
fn survive(history: History, seed: u64, old: u64, new: u64, at: u64) -> Result<(), String> {
    let mut store = FaultStore::new(DbId(0));
    write_image(&mut store, image(5, 3, 1), old, 0).expect("nothing fails yet");
    store.sync().expect("nothing fails yet");
    store.fail_at(at);
    let finished = history(&mut store, old, new).is_ok();
    let mut found = store.crash(seed);

    let before = load(&found, PARTITION, EPOCH).map_err(|e| e.to_string())?;
    let removed = collect_garbage(&mut found, PARTITION).map_err(|e| e.to_string())?;
    let manifest = load(&found, PARTITION, EPOCH).map_err(|e| e.to_string())?;
    if before != manifest {
        return Err(format!("collecting {removed} blocks changed the manifest"));
    }
    let manifest = manifest.ok_or("no image is left")?;
    check_image(&found, &manifest).map_err(|e| e.to_string())?;
    let kept = generations(&found, PARTITION);
    if kept != [(3, manifest.image.generation.0)] {
        return Err(format!("blocks of {kept:?} beside {}", manifest.image));
    }
    if finished && manifest.image.generation.0 == 1 {
        return Err("a finished switch was taken back".into());
    }
    // Life goes on: the same generation number may be written again after the crash.
    write_image(&mut found, image(5, 3, 9), 3, 0).map_err(|e| e.to_string())?;
    let last = load(&found, PARTITION, EPOCH)
        .map_err(|e| e.to_string())?
        .ok_or("lost")?;
    check_image(&found, &last).map_err(|e| e.to_string())
}

fn operations_of(history: History, old: u64, new: u64) -> u64 {
    let mut store = FaultStore::new(DbId(0));
    write_image(&mut store, image(5, 3, 1), old, 0).expect("nothing fails");
    let before = store.operations();
    history(&mut store, old, new).expect("nothing fails");
    store.operations() - before
}

#[test]
fn every_crash_point_leaves_one_whole_image() {
    let mut points = 0;
    for seed in 0..14 {
        let mut dice = Rng::new(seed);
        // The last ones are large enough for places ahead of their blocks.
        let most = if seed < 12 { 12 } else { 70 };
        let mut blocks = || most - dice.below(12);
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
        manifest::extent_key(EPOCH, Generation(1), 0),
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
    let operations = operations_of(early_switch, 4, 6);
    let caught = (0..600)
        .filter(|seed| survive(early_switch, *seed, 4, 6, 1 + seed % operations).is_err())
        .count();
    assert!(
        caught >= 20,
        "the planted bug showed in {caught} of 600 crashes"
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
    removal::drop_copy(&mut store, PARTITION, Epoch(4)).expect("rollback");
    assert_eq!(generations(&store, PARTITION), [(3, 1)]);
    assert_eq!(load(&store, PARTITION, Epoch(4)).expect("load"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_crash_leaves_one_whole_image(
        seed in any::<u64>(), old in 1u64..20, new in 1u64..20, at in 1u64..200,
    ) {
        prop_assert_eq!(survive(correct, seed, old, new, at), Ok(()));
    }

    #[test]
    fn dropping_a_copy_is_all_or_nothing(seed in any::<u64>(), blocks in 1u64..20, at in 1u64..30) {
        let mut store = FaultStore::new(DbId(0));
        write_image(&mut store, image(5, 3, 1), blocks, 0).expect("nothing fails yet");
        store.fail_at(at);
        let dropped = removal::drop_copy(&mut store, PARTITION, EPOCH).is_ok();
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
