//! Starts whose disk has no room: what must go and be written, and what may wait.

use std::sync::atomic::Ordering;

use super::super::by_shards::first_layout;
use super::*;
use crate::image::fault::FaultStore;
use crate::image::{ROOM, collect_garbage};

/// What each operation takes.
const COST: u64 = 64 << 10;

const KEYS: u64 = 4_000;

/// All partitions of the layout, the first one with keys.
fn partitions(layout: &Layout) -> Vec<Partition> {
    let mut all: Vec<_> = layout.copies().collect();
    all.sort();
    let mut all: Vec<_> = all
        .into_iter()
        .map(|(id, _, epoch)| Partition::new(id, epoch))
        .collect();
    for n in 0..KEYS {
        all[0].table.put(n << 40, &n.to_le_bytes(), &[7; 1_000], 0);
    }
    all
}

/// The layout under new epochs.
fn next(layout: &Layout) -> Layout {
    let mut next = layout.clone();
    for (_, epoch) in &mut next.partitions {
        *epoch = epoch.next();
    }
    next
}

fn set_room(store: &mut FaultStore, room: u64, cost: u64) {
    store.room.store(room, Ordering::Relaxed);
    store.cost = cost;
}

/// Manifests, and blocks that none counts.
fn found(store: &FaultStore) -> (usize, u64) {
    let of = |id| image::manifests(store, id).expect("readable").len();
    let manifests = store.partitions().into_iter().map(of).sum();
    let mut copy = store.crash(0);
    let garbage = |id| collect_garbage(&mut copy, id).expect("readable");
    (manifests, store.partitions().into_iter().map(garbage).sum())
}

fn is_no_room(result: &Result<impl Sized, RecoveryError>) -> bool {
    let Err(error) = result else { return false };
    let text = error.to_string();
    assert!(text.contains("set some free"), "{text}");
    true
}

#[test]
fn images_of_copies_that_left_go_as_far_as_there_is_room() {
    let layout = first_layout(2, 1);
    let mut stores = [FaultStore::new(DbId(0))];
    image_all(partitions(&layout), &layout, &mut stores, 1).expect("room");
    let later = next(&layout);
    image_all(partitions(&layout), &later, &mut stores, 1).expect("room");
    let [store] = &mut stores;
    let operations = store.operations();
    assert_eq!(found(store), (2, 0));
    set_room(store, ROOM - 1, COST);
    let removed = remove_other_copies(&later, &mut stores);
    assert!(is_no_room(&removed));
    assert_eq!(stores[0].operations(), operations, "nothing was touched");
    // Enough for the manifest and two slices or so.
    set_room(&mut stores[0], ROOM + 80 * COST, COST);
    remove_other_copies(&later, &mut stores).expect("what has to go is gone");
    let [store] = &mut stores;
    let (manifests, blocks) = found(store);
    assert_eq!(manifests, 1);
    assert!(blocks > 100, "{blocks}");
    // The rest at another start.
    set_room(store, u64::MAX, 0);
    collect_garbage(store, PartitionId(0)).expect("readable");
    store.sync().expect("no fault");
    assert_eq!(found(store), (1, 0));
}

#[test]
fn a_change_of_layout_without_room_is_refused_and_done_at_another_start() {
    let old = first_layout(2, 1);
    let mut stores = [FaultStore::new(DbId(0))];
    image_all(partitions(&old), &old, &mut stores, 1).expect("room");
    let new = next(&old);
    // Surely too little: nothing is begun. Too little as it turns out: it stops on the way.
    for (room, begins) in [(1 << 20, false), (2 * ROOM + 200 * COST, true)] {
        let operations = stores[0].operations();
        let cost = if begins { COST } else { 0 };
        set_room(&mut stores[0], room, cost);
        assert!(is_no_room(&image_all(
            partitions(&old),
            &new,
            &mut stores,
            1
        )));
        assert_eq!(stores[0].operations() > operations, begins);
        // The old one is there as it was, without a word about the new one.
        stores[0] = stores[0].crash(1);
        let manifests = image::manifests(&stores[0], PartitionId(0)).expect("readable");
        assert!(
            manifests
                .iter()
                .all(|m| old.names(m.image.partition, m.image.epoch))
        );
        assert_eq!(manifests.len(), 1);
    }
    remove_other_copies(&old, &mut stores).expect("room");
    image_all(partitions(&old), &new, &mut stores, 1).expect("room");
    remove_other_copies(&new, &mut stores).expect("room");
    assert_eq!(found(&stores[0]), (1, 0));
}
