//! Whole lives of a node on simulated disks and stores, ended at random or enumerated operations,
//! also while it recovers or changes its layout; and proof that the same harness catches bugs.
//!
//! `EPHESUS_SEED=n` runs one seed alone, `EPHESUS_SEEDS=n` the first n.

mod history;
mod home;
mod shard;
mod store;
mod workload;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::planted::Bug;
use world::{Fault, Flips, Outcome, World};

const LIVES: u64 = 4;

/// Bits that flip after one run's last life, one at a time.
const FLIPS: u64 = 8;

fn run(seed: u64, bug: Option<Bug>, first: Fault) -> Result<Outcome, String> {
    run_in(World::new(seed, bug), first)
}

/// A run in which partitions move between the shards of the node.
fn run_moves(seed: u64, bug: Option<Bug>) -> Result<Outcome, String> {
    run_in(World::moving(seed, bug), Fault::Random)
}

fn run_in(mut world: World, first: Fault) -> Result<Outcome, String> {
    for life in 0..LIVES {
        let fault = if life == 0 { first } else { Fault::Random };
        world.live(fault)?;
    }
    world.reopen()?;
    world.outcome.digest = u64::from(world.digest.finalize());
    Ok(world.outcome)
}

fn seeds(count: u64) -> std::ops::RangeInclusive<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("EPHESUS_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("EPHESUS_SEEDS").unwrap_or(count),
    }
}

#[test]
fn nothing_promised_is_lost_at_random_crash_points() {
    let mut total = Outcome::default();
    for seed in seeds(260) {
        match run(seed, None, Fault::Random) {
            Ok(outcome) => {
                total.crashes += outcome.crashes;
                total.images += outcome.images;
                total.relayouts += outcome.relayouts;
                total.refused += outcome.refused;
                total.cramped += outcome.cramped;
            }
            Err(violation) => panic!("EPHESUS_SEED={seed}: {violation}"),
        }
    }
    println!("{total:?}");
    if std::env::var_os("EPHESUS_SEED").is_none() {
        assert!(total.crashes >= 1_000, "{total:?}");
        assert!(total.images >= 200, "{total:?}");
        assert!(total.relayouts >= 100, "{total:?}");
        assert!(total.refused >= 10, "{total:?}");
        assert!(total.cramped >= 10, "{total:?}");
    }
}

#[test]
fn nothing_promised_is_lost_at_any_operation_of_one_workload() {
    for seed in [4, 9, 15] {
        for operations in 0..70 {
            for fault in [Fault::Disk(operations * 3), Fault::Store(operations)] {
                if let Err(violation) = run(seed, None, fault) {
                    panic!("seed {seed}, {fault:?}: {violation}");
                }
            }
        }
    }
}

#[test]
fn nothing_promised_is_lost_while_partitions_move() {
    let mut total = Outcome::default();
    for seed in seeds(700) {
        match run_moves(seed, None) {
            Ok(outcome) => {
                total.crashes += outcome.crashes;
                total.images += outcome.images;
                total.relayouts += outcome.relayouts;
                total.moved += outcome.moved;
                total.aborted += outcome.aborted;
            }
            Err(violation) => panic!("EPHESUS_SEED={seed}: {violation}"),
        }
    }
    println!("{total:?}");
    if std::env::var_os("EPHESUS_SEED").is_none() {
        assert!(total.crashes >= 1_000 && total.images >= 200, "{total:?}");
        assert!(total.moved >= 200 && total.aborted >= 50, "{total:?}");
    }
}

/// Bits that flip after some lives, the last of which every other time ended with marks.
fn run_flips(seed: u64) -> Result<Flips, String> {
    let mut world = World::new(seed, None);
    for _ in 0..seed / 4 % 3 {
        world.live(Fault::Random)?;
        world.land();
    }
    let settles = seed.is_multiple_of(2);
    world.live(if settles { Fault::None } else { Fault::Random })?;
    world.land();
    let flips = world.flip_bits(FLIPS)?;
    world.reopen()?;
    if settles && flips.cut > 0 {
        return Err("marked logs have lost records".into());
    }
    Ok(flips)
}

#[test]
fn flipped_bits_are_refused_or_cost_nothing_a_group_vouches_for() {
    let mut total = Flips::default();
    for seed in seeds(250) {
        match run_flips(seed) {
            Ok(flips) => total += flips,
            Err(violation) => panic!("EPHESUS_SEED={seed}: {violation}"),
        }
    }
    println!("{total:?}");
    if std::env::var_os("EPHESUS_SEED").is_none() {
        assert!(total.refused_logs >= 300, "{total:?}");
        assert!(total.refused_images >= 100, "{total:?}");
        assert!(total.cut >= 10, "{total:?}");
        assert!(total.unharmed >= 300, "{total:?}");
    }
}

#[test]
fn a_seed_runs_the_same_way_twice() {
    for seed in [11, 22, 33, 43] {
        let first = run(seed, None, Fault::Random);
        assert!(first.as_ref().is_ok_and(|outcome| outcome.digest != 0));
        assert_eq!(first, run(seed, None, Fault::Random));
    }
}

fn assert_caught(bug: Bug) {
    assert_caught_by(bug, |seed| run(seed, Some(bug), Fault::Random));
}

fn assert_caught_by(bug: Bug, run: impl Fn(u64) -> Result<Outcome, String>) {
    let caught = (1..=600).find_map(|seed| {
        let run = AssertUnwindSafe(|| run(seed));
        match catch_unwind(run) {
            Ok(Ok(_)) => None,
            Ok(Err(violation)) => Some((seed, violation)),
            Err(_) => Some((seed, "a panic".to_owned())),
        }
    });
    let (seed, violation) = caught.unwrap_or_else(|| panic!("{bug:?} is not caught"));
    println!("{bug:?}: seed {seed}: {violation}");
}

macro_rules! planted_bugs_are_caught {
    ($($name:ident: $bug:ident,)*) => {$(
        #[test]
        fn $name() {
            assert_caught(Bug::$bug);
        }
    )*};
}

planted_bugs_are_caught! {
    catches_a_manifest_that_switches_early: EarlySwitch,
    catches_an_image_that_starts_late: LateStart,
    catches_truncation_before_the_switch: TruncateBeforeSwitch,
    catches_truncation_without_naming_the_images: NoImagesRecord,
    catches_truncation_before_the_names_are_durable: TruncateBeforeNamed,
    catches_replies_before_the_commit: IgnoreGate,
    catches_a_flush_that_is_not_logged: FlushNotLogged,
    catches_a_layout_that_switches_early: EarlyLayout,
}

macro_rules! planted_bugs_of_moves_are_caught {
    ($($name:ident: $bug:ident,)*) => {$(
        #[test]
        fn $name() {
            assert_caught_by(Bug::$bug, |seed| run_moves(seed, Some(Bug::$bug)));
        }
    )*};
}

planted_bugs_of_moves_are_caught! {
    catches_a_staging_copy_that_is_named_late: NamedLate,
    catches_a_copy_that_is_confirmed_early: ConfirmedEarly,
    catches_a_copy_that_is_noted_as_served_early: PromotedEarly,
    catches_images_that_go_before_the_layout_lets_them: RemovedEarly,
    catches_a_copy_that_has_moved_away_and_is_kept: VoidKept,
}
