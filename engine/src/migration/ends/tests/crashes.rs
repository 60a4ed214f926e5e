//! The target crashes after every record of its log.

use ephesus_wire::digest::Digest;
use ephesus_wire::record::{Record, decode};
use ephesus_wire::stream::Contents;

use super::pair::{EPOCH, MOVING, Pair, START_MS, source};
use super::workload::words;
use crate::keyspace::replay::{Rebuild, Replay};
use crate::keyspace::tests::tape::{Taped, contents};
use crate::keyspace::{AfterBreak, Partition};

fn contents_of(copy: &Partition) -> Contents {
    let mut digest = Digest::EMPTY;
    for (key, (value, expire_at_ms)) in contents([copy].into_iter()) {
        digest.add(&key, &value, expire_at_ms);
    }
    Contents {
        count: copy.table.len() as u64,
        digest: digest.to_words(),
    }
}

/// A move whose first attempt breaks, with every kind of record in the target's log.
fn moved(seed: u64) -> Pair {
    let mut pair = Pair::new(seed, None);
    for n in 0..200 {
        pair.run(&words(&format!("SET k{n} {n}")));
    }
    pair.run(&[b"SET".to_vec(), b"large".to_vec(), vec![b'x'; 100_000]]);
    for attempt in 0..2 {
        pair.begin();
        for _ in 0..6 {
            pair.slice(1);
            for _ in 0..10 {
                pair.write(250);
            }
            pair.receive(1_000).expect("good records");
        }
        if attempt == 0 {
            assert!(matches!(pair.break_stream(), AfterBreak::Wiped(_)));
        }
    }
    while !pair.finish(0).expect("no fault") {
        pair.slice(5);
        pair.receive(1_000).expect("good records");
        pair.target.commit();
    }
    pair.commit();
    pair.compare().expect("a good move");
    pair
}

#[test]
fn a_crash_leaves_what_was_confirmed_and_nothing_else() {
    for seed in 0..5 {
        let pair = moved(seed);
        let records = &pair.target.records;
        let mut outcomes = [0; 4];
        for end in 0..=records.len() {
            let rebuild = Rebuild::staging(MOVING, EPOCH, source(2));
            let mut replay = Replay::new(pair.target.hasher.clone(), 1, vec![rebuild]);
            for (lsn, record) in &records[..end] {
                replay.record(*lsn, record).expect("a good record");
            }
            let copies = replay.finish().expect("dense sequences");
            let mut after = Taped::of(1, copies, [5, 6, 7, 8], START_MS);
            let found = contents_of(after.keyspace.partition(MOVING).expect("a copy"));
            let last = records[..end].last();
            let last = last.map(|(_, record)| decode(record).unwrap().unwrap().1);
            let broken = after.keyspace.stream_broken(MOVING);
            match last {
                Some(Record::Activated { .. }) => {
                    outcomes[0] += 1;
                    assert!(after.keyspace.owns(MOVING));
                    assert_eq!(after.keyspace.len(), found.count);
                    assert_eq!(broken, AfterBreak::Nothing);
                }
                Some(Record::Prepared(prepared)) => {
                    outcomes[1] += 1;
                    let (count, digest) = (prepared.count, prepared.digest);
                    assert_eq!(found, Contents { count, digest });
                    assert_eq!(broken, AfterBreak::Kept(found));
                    assert_eq!(after.keyspace.len(), 0, "not served yet");
                }
                Some(Record::StagingWiped) => {
                    outcomes[2] += 1;
                    assert_eq!(broken, AfterBreak::Nothing);
                    assert_eq!(found, Contents::default());
                }
                _ => {
                    outcomes[3] += 1;
                    assert!(matches!(broken, AfterBreak::Wiped(_)), "{broken:?}");
                    let copy = after.keyspace.partition(MOVING).expect("a remnant");
                    assert!(copy.table.is_empty());
                    assert!(after.keyspace.forget(MOVING));
                    assert!(
                        after
                            .keyspace
                            .begin_incoming(MOVING, EPOCH, source(3))
                            .is_ok()
                    );
                }
            }
        }
        assert_eq!(outcomes[..3], [1, 1, 1], "seed {seed}");
        assert!(outcomes[3] > 20, "seed {seed}: {outcomes:?}");
    }
}

#[test]
fn a_prepared_copy_that_comes_back_is_served_after_the_commit() {
    let pair = moved(7);
    let until = |record: &Record<'_>| matches!(record, Record::Activated { .. });
    let records = pair.target.records.iter();
    let records = records.take_while(|(_, r)| !until(&decode(r).unwrap().unwrap().1));
    let rebuild = Rebuild::staging(MOVING, EPOCH, source(2));
    let mut replay = Replay::new(pair.target.hasher.clone(), 1, vec![rebuild]);
    for (lsn, record) in records {
        replay.record(*lsn, record).expect("a good record");
    }
    let copies = replay.finish().expect("dense sequences");
    let pin = copies[0].kept_from().expect("its role is in the log only");
    let expected = contents(copies.iter());
    let mut after = Taped::of(1, copies, [5, 6, 7, 8], START_MS);
    // A log that goes on behind what was recovered.
    while after.keyspace.log.durable() < pin {
        after.keyspace.log.append(b"filler");
        after.commit();
    }
    after.keyspace.restate(MOVING).expect("prepared");
    let moved = after.keyspace.partition(MOVING).expect("here").kept_from();
    assert!(moved > Some(pin));
    assert!(after.keyspace.activate(MOVING).is_some());
    assert!(after.keyspace.activate(MOVING).is_none(), "only once");
    assert_eq!(contents(after.keyspace.all_served()), expected);
    assert_eq!(after.keyspace.len(), expected.len() as u64);
    assert!(after.keyspace.oldest_pin().is_some());
}
