//! Copies that are not served: what sees them and what does not, and what they refuse.

use std::time::Instant;

use ephesus_wal::LogId;
use ephesus_wire::record::{Record, RecordMeta};
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::stream::{Contents, FIRST_SEQ, Final};
use ephesus_wire::{Database, Epoch, Lsn, MigrationId, PartitionId};

use super::pair::{EPOCH, MOVING, START_MS, flush, source};
use super::workload::words;
use crate::command::parse::Scan;
use crate::keyspace::tests::keep::Keep;
use crate::keyspace::tests::tape::{Taped, execute};
use crate::keyspace::{
    AfterBreak, Drawn, OutgoingError, Partition, Reply, ScanCursor, StagingError, WalkFilter,
};
use crate::migration::ends::target::{CLOCK_AHEAD_MS_MAX, CLOCK_BEHIND_MS_MAX};
use crate::migration::{StagingState, TargetError};
use crate::shard::Checkpointer;
use crate::table::NEVER_MS;

const PARTITIONS: u16 = 4;

/// A keyspace that serves partitions 1 to 3 and has a staging copy of partition 0; how many keys each
/// part has.
fn target() -> (Taped, u64, u64) {
    let served = (1..PARTITIONS).map(|id| Partition::new(PartitionId(id), Epoch(1)));
    let mut taped = Taped::of(PARTITIONS, served.collect(), [5, 6, 7, 8], START_MS);
    let began = taped.keyspace.begin_incoming(MOVING, EPOCH, source(1));
    began.expect("nothing is here");
    let (mut payload, mut staged) = (Vec::new(), 0);
    for n in 0..1_000 {
        let key = format!("k{n}").into_bytes();
        if taped.keyspace.key(&key).partition != MOVING {
            execute(&mut taped.keyspace, &words(&format!("SET k{n} {n}")));
            continue;
        }
        let put = Record::Put {
            key: &key,
            value: b"v",
            expire_at_ms: START_MS + 10,
        };
        payload.extend_from_slice(&put.to_vec(meta(FIRST_SEQ + staged)));
        staged += 1;
    }
    let taken = taped.keyspace.import(MOVING, &payload, 0, || true);
    assert_eq!(taken.expect("good records"), payload.len());
    (taped, 1_000 - staged, staged)
}

fn meta(seq: u64) -> RecordMeta {
    RecordMeta {
        partition: MOVING,
        epoch: EPOCH,
        seq,
    }
}

fn reply<T>(f: impl FnOnce(&mut Reply<'_>) -> T) -> Vec<u8> {
    let mut out = Vec::new();
    f(&mut Reply {
        out: &mut out,
        protocol: Protocol::Resp2,
        gate: Lsn::ZERO,
    });
    out
}

#[test]
fn commands_about_all_keys_do_not_see_a_staging_copy() {
    let (mut taped, served, staged) = target();
    let keyspace = &mut taped.keyspace;
    assert!(served > 0 && staged > 0);
    assert_eq!(keyspace.len(), served);
    let dbsize = reply(|reply| keyspace.dbsize(Database::ZERO, reply));
    assert_eq!(dbsize, format!(":{served}\r\n").into_bytes());
    assert!(!keyspace.owns(MOVING) && !keyspace.owned().contains(&MOVING));
    while !keyspace.sweep_slice() {}
    assert_eq!(keyspace.expires_from_ms(), NEVER_MS);

    let mut walk = keyspace.walk(
        Database::ZERO,
        &WalkFilter::Matching(b"*".to_vec()),
        usize::MAX,
    );
    while keyspace.walk_slice(&mut walk).is_none() {}
    let keys = walk.finish().expect("it may be long");
    assert!(keys.starts_with(format!("*{served}\r\n").as_bytes()));
    let slot = (0..1_000).find_map(|n| {
        let key = format!("k{n}");
        let located = keyspace.locate(key.as_bytes());
        (keyspace.key(key.as_bytes()).partition == MOVING).then_some(located.slot)
    });
    let mut walk = keyspace.walk(
        Database::ZERO,
        &WalkFilter::CountInSlot(slot.expect("a staged key")),
        usize::MAX,
    );
    while keyspace.walk_slice(&mut walk).is_none() {}
    assert_eq!(walk.finish(), Ok(b":0\r\n".to_vec()));

    let scan = Scan {
        cursor: 0,
        pattern: None,
        count: 2_000,
        type_name: None,
    };
    let at = ScanCursor {
        partition: MOVING,
        table: 0,
    };
    let scanned = reply(|reply| keyspace.scan((Database::ZERO, at), &scan, &|_, _| None, reply));
    assert!(scanned.ends_with(b"*0\r\n"), "nothing in the staging copy");

    for random in 0..2_000u64 {
        let mixed = random.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let Drawn::Key(key) = keyspace.random_key(Database::ZERO, mixed) else {
            panic!("all keys are of this database")
        };
        assert_ne!(keyspace.key(&key).partition, MOVING);
    }

    keyspace.set_now(START_MS + 100_000);
    while !keyspace.sweep_slice() {}
    assert_eq!(keyspace.counters.expired, 0);
    flush(&mut taped);
    let keyspace = &taped.keyspace;
    assert!(keyspace.is_empty());
    let copy = keyspace.partition(MOVING).expect("here");
    assert_eq!(copy.table.len() as u64, staged, "not flushed, not expired");
}

#[test]
fn memory_images_and_the_log_know_a_staging_copy() {
    let (mut taped, _, staged) = target();
    taped.commit();
    let keyspace = &taped.keyspace;
    let copies: usize = keyspace.partitions().map(|p| p.table.len()).sum();
    assert_eq!(copies, 1_000);
    assert!(staged > 0);
    let (oldest, id) = keyspace.oldest_pin().expect("nothing is imaged");
    assert_eq!((oldest, id), (Lsn(1), MOVING));
    let only = |id| id == MOVING;
    assert_eq!(keyspace.oldest_idle_pin(only), Some((Lsn(1), MOVING)));
    let memory = keyspace.partitions().map(|p| p.table.memory_bytes());
    assert_eq!(keyspace.memory_bytes(), memory.sum::<u64>());
}

#[test]
fn an_image_of_a_staging_copy_leaves_out_no_key_that_has_expired_here() {
    let (mut taped, _, staged) = target();
    // Deadlines are at START_MS + 10; the source, which is behind, may yet give its keys more time.
    taped.keyspace.set_now(START_MS + 60_000);
    let store = Keep::default();
    let mut checkpointer = Checkpointer::new(vec![&store], LogId([9; 16]), 1);
    let start = now();
    let mut turns = 0;
    while store.manifest.borrow().is_none() {
        taped.commit();
        let keyspace = &mut taped.keyspace;
        checkpointer
            .take_replies(keyspace, start)
            .expect("no fault");
        checkpointer.slice(keyspace, start).expect("no fault");
        turns += 1;
        assert!(turns < 1_000, "an image");
    }
    let manifest = store.manifest.borrow();
    let manifest = manifest.as_ref().expect("switched");
    assert_eq!(manifest.image.partition, MOVING);
    assert_eq!(manifest.count, staged);
}

#[expect(
    clippy::disallowed_methods,
    reason = "any instant does: it only has to stay the same"
)]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn wiped_and_given_up_copies_stay_until_they_are_forgotten() {
    let (mut taped, served, _) = target();
    let keyspace = &mut taped.keyspace;
    assert!(!keyspace.forget(MOVING), "it is being filled");
    assert!(matches!(
        keyspace.stream_broken(MOVING),
        AfterBreak::Wiped(_)
    ));
    assert_eq!(keyspace.stream_broken(MOVING), AfterBreak::Nothing);
    assert_eq!(keyspace.oldest_idle_pin(|id| id == MOVING), None);
    assert!(keyspace.forget(MOVING));
    assert!(keyspace.partition(MOVING).is_none());

    let given_up = PartitionId(2);
    let keys = keyspace.partition(given_up).expect("served").table.len() as u64;
    let lsn = keyspace.drop_copy(given_up).expect("served");
    assert_eq!(keyspace.drop_copy(given_up), None);
    assert_eq!(keyspace.len(), served - keys);
    assert!(!keyspace.owns(given_up));
    assert!(keyspace.memory_bytes() > 0);
    let copy = keyspace.partition(given_up).expect("a remnant");
    assert_eq!((copy.pin(), copy.kept_from()), (None, Some(lsn)));
    let refused = keyspace.begin_incoming(given_up, EPOCH, source(1));
    let here = Epoch(1);
    let partition = given_up;
    assert_eq!(refused, Err(StagingError::Occupied { partition, here }));
    while keyspace.free_slice(16) {}
    assert!(keyspace.forget(given_up));
    let began = keyspace.begin_incoming(given_up, EPOCH, source(1));
    assert!(began.is_ok(), "it may come back");
}

#[test]
fn a_copy_is_moved_once_at_a_time_and_to_a_later_epoch() {
    let (mut taped, ..) = target();
    let keyspace = &mut taped.keyspace;
    let mut begin = |partition, migration, epoch| {
        let migration = MigrationId(migration);
        keyspace.begin_outgoing(partition, migration, Epoch(epoch))
    };
    let served = PartitionId(1);
    assert_eq!(begin(MOVING, 5, 9), Err(OutgoingError::NotServed(MOVING)));
    assert!(matches!(
        begin(served, 5, 1),
        Err(OutgoingError::Epoch { .. })
    ));
    assert_eq!(begin(served, 5, 2), Ok(()));
    let moving = Err(OutgoingError::Moving {
        partition: served,
        migration: MigrationId(5),
    });
    assert_eq!(begin(served, 6, 2), moving);
    keyspace.end_outgoing(served);
    assert!(keyspace.outgoing_mut(served).is_none());
    let busy = keyspace.begin_incoming(MOVING, EPOCH, source(2));
    let migration = MigrationId(1);
    let partition = MOVING;
    assert_eq!(
        busy,
        Err(StagingError::Busy {
            partition,
            migration
        })
    );
}

#[test]
fn what_no_source_sends_breaks_the_copy_and_is_not_logged() {
    let (_, _, staged) = target();
    let next = meta(FIRST_SEQ + staged);
    let delete = Record::Delete { key: b"k" };
    let (other_partition, other_epoch, later, earlier) = (
        RecordMeta {
            partition: PartitionId(1),
            ..next
        },
        RecordMeta {
            epoch: Epoch(8),
            ..next
        },
        meta(next.seq + 1),
        meta(next.seq - 1),
    );
    let bad = [
        delete.to_vec(other_partition),
        delete.to_vec(other_epoch),
        delete.to_vec(later),
        delete.to_vec(earlier),
        Record::Dropped.to_vec(next),
        Record::Block(b"no block").to_vec(next),
        vec![0; 50],
        delete.to_vec(next)[..30].to_vec(),
        vec![1; 50],
    ];
    for payload in bad {
        let (mut taped, ..) = target();
        let before = taped.keyspace.log.appended();
        let refused = taped.keyspace.import(MOVING, &payload, 0, || true);
        assert!(refused.is_err());
        assert_eq!(taped.keyspace.log.appended(), before);
        let good = delete.to_vec(next);
        let after = taped.keyspace.import(MOVING, &good, 0, || true);
        assert!(matches!(after, Err(TargetError::NotReceiving)));
        let broken = taped.keyspace.stream_broken(MOVING);
        assert!(matches!(broken, AfterBreak::Wiped(_)));
    }
}

#[test]
fn a_final_that_differs_in_anything_is_refused_with_both_numbers() {
    let (mut taped, _, staged) = target();
    let copy = taped.keyspace.incoming_mut(MOVING).expect("staging");
    let contents = copy.contents();
    assert_eq!(contents.count, staged);
    let right = Final {
        contents,
        clock_ms: START_MS + 5,
        last_seq: FIRST_SEQ + staged - 1,
    };
    let [low, high] = contents.digest;
    let count = contents.count + 1;
    let wrong = [
        Final {
            contents: Contents { count, ..contents },
            ..right
        },
        Final {
            contents: Contents {
                digest: [low, high ^ 1],
                ..contents
            },
            ..right
        },
        Final {
            last_seq: right.last_seq + 1,
            ..right
        },
        Final {
            clock_ms: START_MS + CLOCK_AHEAD_MS_MAX + 1,
            ..right
        },
        Final {
            clock_ms: START_MS - CLOCK_BEHIND_MS_MAX - 1,
            ..right
        },
    ];
    for last in wrong {
        let (mut taped, ..) = target();
        let refused = taped.keyspace.prepare(MOVING, &last);
        let text = refused.expect_err("it differs").to_string();
        let is_clock = last.clock_ms != right.clock_ms;
        let numbers = [contents.count, last.contents.count].map(|n| text.contains(&n.to_string()));
        assert!(is_clock || numbers == [true; 2], "{text}");
        let copy = taped.keyspace.incoming_mut(MOVING).expect("staging");
        assert_eq!(copy.state(), StagingState::Broken);
        let again = taped.keyspace.prepare(MOVING, &right);
        assert!(matches!(again, Err(TargetError::NotReceiving)));
    }
    let lsn = taped.keyspace.prepare(MOVING, &right).expect("the same");
    let now_ms = taped.keyspace.now_ms();
    assert_eq!(now_ms, START_MS, "a move sets no clock");
    let copy = taped.keyspace.incoming_mut(MOVING).expect("staging");
    assert_eq!(copy.confirmed(Lsn(lsn.0 - 1)), None, "not durable yet");
    assert_eq!(copy.confirmed(lsn), Some(contents));
    assert_eq!(
        taped.keyspace.stream_broken(MOVING),
        AfterBreak::Kept(contents)
    );
}

#[test]
fn acknowledgements_follow_the_log() {
    let (mut taped, _, staged) = target();
    let keyspace = &mut taped.keyspace;
    let appended = keyspace.log.appended();
    let last = FIRST_SEQ + staged - 1;
    let incoming = keyspace.incoming_mut(MOVING).expect("staging");
    assert_eq!(
        incoming.acknowledge(Lsn(staged)),
        None,
        "the last is missing"
    );
    assert_eq!(incoming.acknowledge(appended), Some(last));
    assert_eq!(incoming.acknowledge(appended), None, "only once");
}

/// They could neither be reached there, nor would the node start again.
#[test]
fn keys_of_a_database_that_is_not_here_do_not_come() {
    for (number, is_taken) in [(0, true), (15, true), (16, false), (255, false)] {
        let mut taped = Taped::of(PARTITIONS, Vec::new(), [5, 6, 7, 8], START_MS);
        let keyspace = &mut taped.keyspace;
        let began = keyspace.begin_incoming(MOVING, EPOCH, source(1));
        began.expect("nothing is here");
        let put = Record::Put {
            key: &Database(number).stored(b"key"),
            value: b"v",
            expire_at_ms: 0,
        };
        let payload = put.to_vec(meta(FIRST_SEQ));
        match keyspace.import(MOVING, &payload, 0, || true) {
            Ok(taken) => assert!(is_taken && taken == payload.len(), "{number}"),
            Err(TargetError::Database { database, .. }) => {
                assert!(!is_taken && database == Database(number));
                let broken = keyspace.stream_broken(MOVING);
                assert!(matches!(broken, AfterBreak::Wiped(_)), "{broken:?}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}
