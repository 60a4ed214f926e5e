//! The coordinators and the nodes' side of them under a simulated network, simulated disks and a
//! virtual clock: every run follows from its seed.
//!
//! `EPHESUS_SEED=n` runs one seed alone, `EPHESUS_SEEDS=n` the first n.

mod checks;
mod clients;
mod clock;
mod golden;
mod grid;
mod moment;
mod network;
mod one_owner;
mod planted;
mod process;
mod trouble;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use ephesus_coordinator::planted::Bug;
use world::{Shape, World};

/// Runs a seed; what raft asserts is a violation like any other.
fn run(coordinators: u64, seed: u64, bug: Option<Bug>) -> Result<World, String> {
    caught(|| {
        let mut world = World::new(seed, Shape::any(coordinators, seed), bug)?;
        world.run()?;
        Ok(world)
    })
}

fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}

fn seeds(range: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match (number("EPHESUS_SEED"), number("EPHESUS_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => range.start..range.start + count,
        (None, None) => range,
    }
}

fn run_all(test: &str, coordinators: u64, range: std::ops::Range<u64>) {
    let (mut failures, mut arrivals) = (0, 0);
    let mut unleased = Vec::new();
    for seed in seeds(range) {
        match run(coordinators, seed, None) {
            Ok(world) => {
                failures += world.checks.failures;
                arrivals += world.checks.arrivals;
                unleased.push(world.unleased_ms);
            }
            Err(violation) => panic!(
                "seed {seed}: {violation}\nrun it again: EPHESUS_SEED={seed} cargo test -p ephesus-tests --test simulator {test}"
            ),
        }
    }
    let runs = unleased.len();
    unleased.retain(|ms| *ms > 0);
    let longest = unleased.iter().max().copied().unwrap_or(0);
    println!(
        "{runs} runs: {failures} nodes failed, {arrivals} partitions moved; when the leader's machine died, a lease ran out in {} of them, \
         for at most {longest} ms",
        unleased.len()
    );
    if std::env::var_os("EPHESUS_SEED").is_none() {
        assert!(
            failures > 0,
            "no node was ever failed: the runs are too calm"
        );
        assert!(arrivals > 0, "no partition was ever moved");
    }
}

#[test]
fn three_coordinators_keep_every_promise() {
    run_all("three_coordinators_keep_every_promise", 3, 0..110);
}

#[test]
fn three_other_coordinators_keep_every_promise() {
    run_all(
        "three_other_coordinators_keep_every_promise",
        3,
        1_000..1_110,
    );
}

#[test]
fn five_coordinators_keep_every_promise() {
    run_all("five_coordinators_keep_every_promise", 5, 2_000..2_090);
}

#[test]
fn a_seed_determines_a_run() {
    let trace = |seed| run(3, seed, None).map(|world| world.checks.trace);
    for seed in [7, 8, 1_009] {
        let first = trace(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert_eq!(Ok(first), trace(seed), "seed {seed}");
    }
    assert_ne!(trace(7), trace(8));
}
