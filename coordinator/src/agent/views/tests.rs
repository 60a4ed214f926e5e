use std::collections::BTreeMap;

use ephesus_wire::table::{PartitionStatus, PartitionTable};
use ephesus_wire::{Epoch, MigrationId, PartitionId, Partitioning};

use super::*;
use crate::command::{ClusterId, ClusterOptions};
use crate::migration::MigrationTable;
use crate::placement::Policy;
use ephesus_wire::rng::Rng;

const PARTITIONS: u16 = 8;

fn first_view() -> View {
    let partitioning = Partitioning::new(PARTITIONS).expect("a valid number");
    View {
        cluster: ClusterId([1; 16]),
        options: ClusterOptions {
            partitions: PARTITIONS,
            min_nodes: 1,
            policy: Policy::Contiguous,
            heartbeat_timeout_ms: 2_000,
        },
        coordinators: BTreeMap::new(),
        members: BTreeMap::new(),
        table: PartitionTable {
            version: 1,
            ..PartitionTable::unassigned(partitioning)
        },
        migrations: MigrationTable::default(),
    }
}

fn next_delta(view: &View, rng: &mut Rng) -> Delta {
    let partition = PartitionId(rng.below(u64::from(PARTITIONS)) as u16);
    let mut entry = view.table.entry(partition).expect("it is there").clone();
    entry.epoch = Epoch(view.version());
    entry.status = PartitionStatus::Online;
    Delta {
        from: view.version(),
        to: view.version() + 1 + rng.below(3),
        coordinators: None,
        members: Vec::new(),
        partitions: vec![(partition, entry)],
        last_migration: MigrationId(view.version()),
        migrations: Vec::new(),
        arrivals: Vec::new(),
        limit_mb_s: rng.below(5) as u32,
    }
}

#[test]
fn views_move_on_whoever_holds_on_to_which() {
    let mut rng = Rng::new(5);
    let mut views = Views::default();
    let mut right = first_view();
    views.replace(right.clone());
    let mut held: Vec<(Arc<View>, View)> = Vec::new();
    for _ in 0..3_000 {
        let delta = next_delta(&right, &mut rng);
        right.update(delta.clone()).expect("it fits");
        views.update(delta.clone()).expect("it fits");
        assert_eq!(**views.newest().expect("a view"), right);
        assert!(views.update(delta).is_err(), "it does not fit again");
        if rng.one_in(300) {
            views.replace(right.clone());
        }
        if rng.one_in(2) {
            let newest = Arc::clone(views.newest().expect("a view"));
            held.push((newest, right.clone()));
        }
        while held.len() as u64 > rng.below(9) {
            held.swap_remove(rng.below(held.len() as u64) as usize);
        }
        for (view, then) in &held {
            assert_eq!(**view, *then, "nobody's view changes");
        }
        assert!(views.spares.len() <= SPARES_MAX);
        let needed = views.spares.front().map_or(0, |view| view.version());
        let kept = views.deltas.front().map(|delta| delta.from);
        assert!(kept.is_none_or(|from| from >= needed), "{kept:?}, {needed}");
    }
}

#[test]
fn views_that_are_let_go_of_are_used_again() {
    let mut rng = Rng::new(6);
    let mut views = Views::default();
    let mut right = first_view();
    views.replace(right.clone());
    let mut places = std::collections::BTreeSet::new();
    let mut told = Arc::clone(views.newest().expect("a view"));
    for _ in 0..100 {
        let delta = next_delta(&right, &mut rng);
        right.update(delta.clone()).expect("it fits");
        views.update(delta).expect("it fits");
        // A node that takes the next view and lets go of the one before.
        told = Arc::clone(views.newest().expect("a view"));
        places.insert(Arc::as_ptr(&told).addr());
    }
    assert_eq!(*told, right);
    assert!(
        places.len() <= SPARES_MAX,
        "{} views were made",
        places.len()
    );
}
