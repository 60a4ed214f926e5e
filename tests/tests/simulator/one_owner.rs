//! Runs in which a node might serve what is another's: it misses what has become of its partition, is stopped, or comes
//! back with a directory that is older than the table. Each is tried as it ships, and with the bug planted that it is
//! about.

use ephesus_coordinator::report::Query;
use ephesus_engine::planted::Bug;
use ephesus_wire::PartitionId;

use crate::moment::Moment;
use crate::world::{Harm, Kill, Party, Shape, World};
use crate::{caught, grid};

/// Which partition moves.
const PARTITION: PartitionId = PartitionId(4);

/// So long a node hears nothing, ms: a second move fits into it.
const DEAF_MS: u64 = 3_500;

/// So long a process is stopped, ms: it does not fail.
const STOPPED_MS: u64 = 800;

fn owner(world: &World) -> Result<usize, String> {
    let latest = world.checks.latest().ok_or("no table")?;
    let entry = latest.table.entry(PARTITION).ok_or("no partition")?;
    let owner = entry.primary().ok_or("no owner")?.node;
    let mut nodes = world.nodes.iter();
    let place = nodes.position(|process| process.disk.id == owner);
    place.ok_or_else(|| "the owner is gone".to_owned())
}

fn ask_for_move(world: &mut World, to: usize) -> Result<(), String> {
    let node = world.nodes[to].name.clone();
    let leader = world.leader().ok_or("nobody leads")?;
    let partition = PARTITION.0;
    let shard = None;
    let query = Query::Move {
        partition,
        node,
        shard,
    };
    world.ask(leader, query);
    Ok(())
}

/// Waits until a node owns the partition.
fn until_owned(world: &mut World, by: usize) -> Result<(), String> {
    let end = world.now + DEAF_MS;
    while owner(world)? != by {
        world.run_until(world.now + 10)?;
        if world.now > end {
            return Err(format!("node {by} does not get the partition"));
        }
    }
    Ok(())
}

fn settled(seed: u64, bug: Option<Bug>) -> Result<World, String> {
    let mut world = World::new(seed, grid::shape(), None)?;
    world.mistake = bug;
    world.heal()?;
    world.run_until(world.now + 300)?;
    Ok(world)
}

fn ended(world: &mut World) -> Result<(), String> {
    world.run_until(world.now + 300)?;
    world.heal()?;
    world.run_until(world.now + 300)?;
    world.read_everything()?;
    world.checks.promises()
}

/// A source hears nothing of its commit, and before it does the partition has moved on.
fn overtaken(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    let mut world = settled(seed, bug)?;
    let first = owner(&world)?;
    let (second, third) = ((first + 1) % 3, (first + 2) % 3);
    world.kill = Some(Kill {
        moment: Moment::Confirmed,
        party: Party::Source,
        harm: Harm::IsDeaf,
        away_ms: DEAF_MS,
    });
    ask_for_move(&mut world, second)?;
    until_owned(&mut world, second)?;
    // The second owner has to serve it before it moves on.
    world.run_until(world.now + 200)?;
    ask_for_move(&mut world, third)?;
    until_owned(&mut world, third)?;
    world.run_until(world.now + DEAF_MS)?;
    ended(&mut world)
}

/// A node comes back with the directory that it had before a partition has moved to it; why it does not start.
fn restored(seed: u64, bug: Option<Bug>) -> Result<Option<String>, String> {
    let mut world = settled(seed, bug)?;
    let first = owner(&world)?;
    let second = (first + 1) % 3;
    world.stop_node(second);
    let backup = world.nodes[second].disk.dir.snapshot();
    world.start_node(second);
    world.heal()?;
    ask_for_move(&mut world, second)?;
    until_owned(&mut world, second)?;
    world.heal()?;
    world.run_until(world.now + 300)?;
    world.stop_node(second);
    let node = &mut world.nodes[second];
    node.disk.dir = backup;
    node.may_be_refused = true;
    world.start_node(second);
    world.run_until(world.now + 1_000)?;
    Ok(world.nodes[second].refused.take())
}

/// A source is stopped while the word of its target is under way, and the move is cancelled before it goes on.
fn cancelled(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    let mut world = settled(seed, bug)?;
    let to = (owner(&world)? + 1) % 3;
    world.kill = Some(Kill {
        moment: Moment::Held,
        party: Party::Source,
        harm: Harm::Stands,
        away_ms: STOPPED_MS,
    });
    ask_for_move(&mut world, to)?;
    let end = world.now + DEAF_MS;
    while !world.is_struck && world.now < end {
        world.run_until(world.now + 1)?;
    }
    world.run_until(world.now + STOPPED_MS / 4)?;
    let leader = world.leader().ok_or("nobody leads")?;
    world.ask(leader, Query::CancelMigration { id: 1 });
    world.run_until(world.now + STOPPED_MS)?;
    ended(&mut world)
}

/// Any run of one seed.
fn any(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    let mut world = World::new(seed, Shape::any(3, seed), None)?;
    world.mistake = bug;
    world.run()
}

/// One of these seeds fails with the bug in one of these ways, and not without it.
fn assert_found(
    bug: Bug,
    seeds: std::ops::Range<u64>,
    how: &[&str],
    run: impl Fn(u64, Option<Bug>) -> Result<(), String>,
) {
    let found = seeds.clone().find_map(|seed| {
        let violation = caught(|| run(seed, Some(bug))).err()?;
        let is_expected = how.iter().any(|part| violation.contains(part));
        is_expected.then_some((seed, violation))
    });
    let (seed, violation) = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
    println!("{bug:?}: seed {seed}: {violation}");
    if let Err(violation) = caught(|| run(seed, None)) {
        panic!("seed {seed}: {violation}");
    }
}

#[test]
fn a_source_that_misses_its_commit_serves_nothing_when_the_partition_has_moved_on() {
    for seed in 0..4 {
        caught(|| overtaken(seed, None)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let how = ["is served by", "is lost", "resurrected"];
    assert_found(Bug::HeldIsStronger, 0..4, &how, overtaken);
}

#[test]
fn a_start_never_begins_empty_what_a_migration_has_brought() {
    for seed in 0..3 {
        let refused = caught(|| restored(seed, None));
        let refused = refused.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let reason = refused.unwrap_or_else(|| panic!("seed {seed}: it starts"));
        assert!(reason.contains("older than the move"), "{reason}");
    }
    let how = ["has brought"];
    let run = |seed, bug| restored(seed, bug).map(drop);
    assert_found(Bug::EmptyArrival, 0..3, &how, run);
}

#[test]
fn a_source_that_is_stopped_takes_the_word_of_its_target_and_the_end_together() {
    let how = ["what was confirmed is not taken back"];
    assert_found(Bug::StaleConfirmed, 0..8, &how, cancelled);
}

#[test]
fn a_process_that_is_stopped_within_a_turn_answers_nothing_without_a_lease() {
    let how = ["without a lease"];
    assert_found(Bug::LeaseAtBegin, 0..40, &how, any);
}
