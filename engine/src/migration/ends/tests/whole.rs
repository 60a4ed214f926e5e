//! Whole moves under random writes.

use ephesus_wire::limits::STREAM_DATA_BYTES;

use super::pair::{MOVING, Pair};
use super::workload::words;
use crate::keyspace::AfterBreak;
use crate::keyspace::replay::Rebuild;
use crate::keyspace::tests::tape::contents;
use crate::migration::Stage;
use crate::planted::Bug;

/// What a move goes through.
#[derive(Clone, Copy)]
struct Plan {
    keys_first: u64,
    keys_last: u64,
    /// Random writes for each turn of the source's migration work, and new keys besides.
    writes: u64,
    growth: u64,
    breaks: u64,
}

const SMALL: Plan = Plan {
    keys_first: 1_000,
    keys_last: 2_000,
    writes: 10,
    growth: 10,
    breaks: 1,
};

/// Moves a partition as a whole; an error says what went wrong.
fn run(seed: u64, bug: Option<Bug>, plan: Plan) -> Result<Pair, String> {
    let mut pair = Pair::new(seed, bug);
    for n in 0..plan.keys_first {
        pair.add(n);
    }
    let large = vec![b'x'; 1 << 20];
    pair.run(&[b"SET".to_vec(), b"large".to_vec(), large]);
    let mut breaks = plan.breaks;
    let mut keys = plan.keys_first;
    pair.begin();
    for turn in 0.. {
        if turn > 200_000 {
            return Err("does not converge".into());
        }
        if pair.rng.one_in(2) {
            for _ in 0..pair.rng.below(2 * plan.writes) {
                pair.write(keys);
            }
            if pair.rng.one_in(4) {
                pair.section(keys);
            }
            if keys < plan.keys_last {
                for n in keys..keys + plan.growth {
                    pair.add(n);
                }
                keys += plan.growth;
            }
        }
        match pair.rng.below(400) {
            0 => pair.flush(),
            1..20 => pair.advance(turn % 50),
            20..40 => {
                pair.source.keyspace.sweep_slice();
            }
            40..60 => pair.source.keyspace.remove_lapsed(true),
            60 if breaks > 0 => {
                breaks -= 1;
                match pair.break_stream() {
                    AfterBreak::Wiped(_) => {}
                    other if bug.is_none() => return Err(format!("{other:?}")),
                    _ => {}
                }
                pair.begin();
            }
            60..70 => pair.source.commit(),
            _ => {}
        }
        let steps = 1 + pair.rng.below(4);
        pair.slice(steps);
        let records = pair.rng.below(60);
        pair.receive(records)?;
        if breaks == 0 && keys >= plan.keys_last && pair.finish(100_000)? {
            break;
        }
    }
    pair.commit();
    pair.compare()?;
    if !pair.source.keyspace.is_empty() || pair.source.keyspace.owns(MOVING) {
        return Err("the source still has the partition".into());
    }
    Ok(pair)
}

#[test]
fn a_move_loses_nothing_and_resurrects_nothing() {
    for seed in 0..40 {
        let pair = run(seed, None, SMALL);
        let mut pair = pair.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        // The target goes on as the owner.
        std::mem::swap(&mut pair.source, &mut pair.target);
        let now_ms = pair.source.keyspace.now_ms();
        pair.model.set_now(now_ms.into());
        for _ in 0..500 {
            pair.write(2_000);
        }
        std::mem::swap(&mut pair.source, &mut pair.target);
        let after = pair.compare();
        after.unwrap_or_else(|error| panic!("seed {seed}, after the move: {error}"));
        let epoch = super::pair::EPOCH;
        pair.target.commit();
        let rebuilt = pair
            .target
            .replay(vec![Rebuild::new(MOVING, epoch)], ephesus_wire::Lsn::ZERO);
        let served = contents(pair.target.keyspace.all_served());
        assert!(contents(rebuilt.iter()) == served, "seed {seed}: replay");
    }
}

#[test]
fn a_partition_that_grows_a_hundredfold_moves() {
    let plan = Plan {
        keys_first: 1_000,
        keys_last: 100_000,
        writes: 10,
        growth: 300,
        breaks: 2,
    };
    run(99, None, plan).expect("a move");
}

#[test]
fn an_empty_partition_moves() {
    let mut pair = Pair::new(1, None);
    pair.begin();
    assert_eq!(pair.finish(0), Ok(false), "nothing was walked yet");
    pair.slice(1);
    assert_eq!(pair.finish(0), Ok(true));
    pair.commit();
    assert_eq!(pair.compare(), Ok(()));
    assert!(pair.target.keyspace.owns(MOVING));
}

#[test]
fn a_flush_ends_the_walk_and_takes_everything_along() {
    let mut pair = Pair::new(2, None);
    for n in 0..5_000 {
        pair.run(&words(&format!("SET k{n} {n}")));
    }
    pair.begin();
    pair.slice(10);
    pair.receive(1_000).expect("good records");
    pair.flush();
    let outgoing = pair.source.keyspace.outgoing_mut(MOVING).expect("moving");
    assert_eq!(outgoing.stage(), Stage::CatchingUp);
    assert_eq!(outgoing.contents().count, 0);
    pair.run(&words("SET k1 again"));
    while !pair.finish(0).expect("no fault") {
        pair.slice(1);
        pair.receive(1_000).expect("good records");
        pair.target.commit();
    }
    pair.commit();
    assert_eq!(pair.compare(), Ok(()));
    assert_eq!(pair.target.keyspace.len(), 1);
}

#[test]
fn nothing_expires_behind_the_end_of_the_stream() {
    let mut pair = Pair::new(3, None);
    pair.run(&words("SET a 1 PX 100"));
    pair.run(&words("SET b 2 PX 5000"));
    pair.begin();
    pair.slice(1);
    assert_eq!(pair.finish(1 << 20), Ok(true));
    pair.advance(200);
    pair.source.keyspace.remove_lapsed(true);
    while !pair.source.keyspace.sweep_slice() {}
    assert_eq!(pair.source.keyspace.len(), 2, "the expired key stays");
    pair.commit();
    // By its own clock, which is behind.
    pair.advance(2_000);
    assert_eq!(pair.compare(), Ok(()));
    while !pair.target.keyspace.sweep_slice() {}
    assert_eq!(pair.target.keyspace.len(), 1, "the new owner removes it");
}

#[test]
fn what_has_expired_before_a_move_is_not_back_where_the_clock_is_behind() {
    let mut pair = Pair::new(5, None);
    pair.run(&words("SET a 1 PX 100"));
    pair.run(&words("SET b 2 PX 5000"));
    pair.begin();
    pair.slice(1);
    pair.advance(200);
    assert_eq!(pair.finish(1 << 20), Ok(true));
    pair.commit();
    let behind = pair.target.keyspace.now_ms() < pair.source.keyspace.now_ms();
    assert!(behind, "a move sets no clock");
    assert_eq!(pair.target.keyspace.len(), 1);
    assert_eq!(pair.compare(), Ok(()));
}

#[test]
fn a_move_that_is_rolled_back_leaves_the_source_as_it_was() {
    let mut pair = Pair::new(4, None);
    for n in 0..500 {
        pair.run(&words(&format!("SET k{n} {n}")));
    }
    pair.begin();
    while !pair.finish(0).expect("no fault") {
        pair.slice(5);
        pair.receive(1_000).expect("good records");
        pair.target.commit();
    }
    assert!(matches!(pair.break_stream(), AfterBreak::Kept(held) if held.count == 500));
    assert!(pair.target.keyspace.wipe(MOVING).is_some());
    assert!(pair.target.keyspace.wipe(MOVING).is_none(), "only once");
    for _ in 0..500 {
        pair.write(500);
    }
    pair.source.assert_replays();
    pair.begin();
    while !pair.finish(0).expect("no fault") {
        pair.slice(5);
        pair.receive(1_000).expect("good records");
        pair.target.commit();
    }
    pair.commit();
    assert_eq!(pair.compare(), Ok(()));
}

fn is_caught(bug: Bug) -> bool {
    (0..20).any(|seed| run(seed, Some(bug), SMALL).is_err())
}

macro_rules! planted_bugs_are_caught {
    ($($name:ident: $bug:ident,)*) => {$(
        #[test]
        fn $name() {
            assert!(is_caught(Bug::$bug));
        }
    )*};
}

planted_bugs_are_caught! {
    a_capture_that_starts_one_turn_late_is_caught: LateCapture,
    a_delete_that_is_not_captured_is_caught: DeleteNotCaptured,
    a_staging_copy_that_survives_a_break_is_caught: StagingSurvives,
    an_overwritten_entry_in_the_digest_is_caught: OverwrittenInDigest,
}

#[test]
fn captured_writes_are_gathered_until_their_message_is_full_or_commands_are_held() {
    let mut pair = Pair::new(7, None);
    pair.begin();
    pair.slice(u64::MAX);
    let messages = |pair: &mut Pair, gathers| {
        let outgoing = pair.source.keyspace.outgoing_mut(MOVING).expect("moving");
        assert_eq!(outgoing.stage(), Stage::CatchingUp);
        std::iter::from_fn(|| outgoing.next_message(gathers, true)).count()
    };
    for n in 0..10 {
        pair.add(n);
    }
    assert_eq!(messages(&mut pair, true), 0);
    pair.add(10);
    assert_eq!(messages(&mut pair, false), 1, "all of them together");
    for n in 11..21 {
        let value = vec![b'x'; STREAM_DATA_BYTES / 8];
        pair.run(&[b"SET".to_vec(), format!("large{n}").into_bytes(), value]);
    }
    assert_eq!(messages(&mut pair, true), 1, "what is full goes");
    let finished = pair.source.keyspace.try_finish(MOVING, usize::MAX);
    assert!(finished.expect("a good stream"));
    let outgoing = pair.source.keyspace.outgoing_mut(MOVING).expect("moving");
    let last = std::iter::from_fn(|| outgoing.next_message(true, true)).count();
    assert_eq!(last, 2, "the rest, and FINAL");
}
