//! Images of copies that are being filled, and their logs, make the same tables.

use std::time::{Duration, Instant};

use ephesus_wal::LogId;

use super::pair::{EPOCH, MOVING, Pair, source};
use super::workload::words;
use crate::keyspace::replay::Rebuild;
use crate::keyspace::tests::keep::Keep;
use crate::keyspace::tests::tape::contents;
use crate::migration::StagingState;
use crate::shard::Checkpointer;

#[test]
fn an_image_begun_at_any_time_and_the_log_make_the_same_copy() {
    let mut imaged_before_the_end = 0;
    for seed in 0..60 {
        let mut pair = Pair::new(seed, None);
        for n in 0..1_000 {
            pair.run(&words(&format!("SET k{n} {n}")));
        }
        for n in 0..3 {
            let value = vec![b'x'; 70_000 + n];
            pair.run(&[b"SET".to_vec(), format!("large{n}").into_bytes(), value]);
        }
        let store = Keep::default();
        let mut checkpointer = Checkpointer::new(vec![&store], LogId([9; 16]), 1);
        checkpointer.slice = Duration::ZERO;
        let first_image_turn = pair.rng.below(25);
        let break_turn = pair.rng.below(60);
        let start = now();
        let mut image = |pair: &mut Pair, turn| {
            if turn < first_image_turn || store.manifest.borrow().is_some() {
                return;
            }
            let keyspace = &mut pair.target.keyspace;
            let taken = checkpointer.take_replies(keyspace, start);
            taken.expect("a store without faults");
            let slice = checkpointer.slice(keyspace, start);
            slice.expect("a store without faults");
        };
        pair.begin();
        let mut turn = 0;
        while turn < 60 || !pair.finish(0).expect("no fault") {
            for _ in 0..5 {
                pair.write(1_500);
            }
            pair.slice(1);
            let records = pair.rng.below(20);
            pair.receive(records).expect("good records");
            image(&mut pair, turn);
            if turn == break_turn {
                pair.break_stream();
                pair.begin();
            }
            if turn % 4 == 0 || turn > 60 {
                pair.target.commit();
            }
            turn += 1;
            assert!(turn < 100_000, "converges");
        }
        imaged_before_the_end += u32::from(store.manifest.borrow().is_some());
        if seed % 2 == 0 {
            pair.commit();
        }
        while store.manifest.borrow().is_none() {
            image(&mut pair, turn);
            pair.target.commit();
        }
        pair.target.commit();
        let manifest = store.manifest.borrow_mut().take().expect("switched");
        let mut rebuild = Rebuild::staging(MOVING, EPOCH, source(2));
        for block in store.blocks.borrow().iter() {
            let block = rebuild.block(block, &pair.target.hasher);
            block.expect("a good block");
        }
        let complete = rebuild.image_complete(&manifest);
        complete.expect("what the manifest says");
        let rebuilt = pair.target.replay(vec![rebuild], manifest.lsn_start);
        let keyspace = &pair.target.keyspace;
        let found = contents(rebuilt.iter());
        assert!(found == contents(keyspace.partitions()), "seed {seed}");
        assert_eq!(rebuilt[0].is_serving(), seed % 2 == 0, "seed {seed}");
        if let Some(incoming) = rebuilt[0].incoming() {
            let is_prepared = matches!(incoming.state(), StagingState::Prepared(..));
            assert!(is_prepared, "seed {seed}: {:?}", incoming.state());
        }
    }
    assert!(imaged_before_the_end > 20, "{imaged_before_the_end} of 60");
}

#[expect(
    clippy::disallowed_methods,
    reason = "any instant does: it only has to stay the same"
)]
fn now() -> Instant {
    Instant::now()
}
