use std::cell::RefCell;

use ephesus_wal::{FaultDisk, LogOptions, open_writer, recover};
use ephesus_wire::record::{Record, Source, decode};
use ephesus_wire::stream::{Contents, FIRST_SEQ, Final};
use ephesus_wire::{Epoch, Lsn, MigrationId, Partitioning};
use futures_lite::future::block_on;

use super::*;
use crate::keyspace::Partition;
use crate::keyspace::tests::tape::{complete, execute_valid};
use crate::table::KeyHasher;

const LOG: LogId = LogId([9; 16]);
const SEGMENT_BYTES: u64 = 16 << 10;

/// A store that does only what the test says.
#[derive(Default)]
struct Silent {
    is_full: RefCell<bool>,
    refused: RefCell<usize>,
    steps: RefCell<u64>,
    requests: RefCell<Vec<StoreRequest>>,
    replies: RefCell<VecDeque<StoreReply>>,
}

impl StoreLink for &Silent {
    fn try_send(&self, request: StoreRequest) -> Result<(), TrySendError> {
        if *self.is_full.borrow() {
            *self.refused.borrow_mut() += 1;
            return Err(TrySendError::Full(request));
        }
        self.requests.borrow_mut().push(request);
        Ok(())
    }

    fn try_recv(&self) -> Option<StoreReply> {
        self.replies.borrow_mut().pop_front()
    }

    fn has_reply(&self) -> bool {
        !self.replies.borrow().is_empty()
    }

    fn steps(&self) -> u64 {
        *self.steps.borrow()
    }
}

/// A shard whose log is long enough for an image.
struct Fixture<'a> {
    keyspace: Keyspace,
    checkpointer: Checkpointer<&'a Silent>,
    store: &'a Silent,
    records: Vec<Vec<u8>>,
    start: Instant,
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests need some instant to count from"
)]
fn now() -> Instant {
    Instant::now()
}

impl<'a> Fixture<'a> {
    fn new(store: &'a Silent) -> Fixture<'a> {
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            group_bytes_max: 8 << 10,
            ..LogOptions::new(LOG)
        };
        let disk = FaultDisk::new(1);
        let opened = block_on(async {
            let recovered = recover(&disk, &options, Lsn::ZERO, &mut |_, _| Ok(())).await?;
            open_writer(&disk, &options, &recovered, Lsn::ZERO, 0).await
        });
        let log = opened.expect("a disk without faults").writer;
        let one = Partitioning::new(1).expect("a valid number");
        let partition = Partition::new(PartitionId(0), Epoch(1));
        let hasher = KeyHasher::with_seeds([1, 2, 3, 4]);
        let mut fixture = Fixture {
            keyspace: Keyspace::new(one, vec![partition], hasher, log, 1),
            checkpointer: Checkpointer::new(vec![store], LOG, 2 * SEGMENT_BYTES),
            store,
            records: Vec::new(),
            start: now(),
        };
        (0..40).for_each(|n| fixture.set(n));
        fixture.commit();
        fixture
    }

    fn set(&mut self, n: u64) {
        let (key, value) = (format!("key:{n}").into_bytes(), vec![b'v'; 1_000]);
        execute_valid(&mut self.keyspace, &[b"SET".to_vec(), key, value]);
    }

    fn commit(&mut self) {
        let records = &mut self.records;
        complete(&mut self.keyspace.log, |group| records.push(group.to_vec()));
    }

    fn slice_at(&mut self, seconds: u64) -> Result<Progress, String> {
        let now = self.start + Duration::from_secs(seconds);
        self.checkpointer.slice(&mut self.keyspace, now)
    }

    fn take_at(&mut self, seconds: u64) -> Result<Vec<SegmentInfo>, String> {
        let now = self.start + Duration::from_secs(seconds);
        self.checkpointer.take_replies(&mut self.keyspace, now)
    }

    /// Of the image whose walk is over.
    fn stage(&self) -> Option<Stage> {
        self.checkpointer.walked.first().map(|walked| walked.stage)
    }

    fn until_sealing(&mut self) -> ImageId {
        while self.stage() != Some(Stage::Sealing) {
            self.slice_at(0).expect("nothing is late yet");
        }
        let requests = self.store.requests.borrow();
        match requests.last() {
            Some(StoreRequest::Seal(image)) => *image,
            other => panic!("the last request is {other:?}"),
        }
    }

    /// The copy is given up, durably.
    fn give_up(&mut self) {
        self.keyspace
            .drop_copy(PartitionId(0))
            .expect("it is served");
        self.commit();
    }

    fn drops(&self) -> usize {
        let requests = self.store.requests.borrow();
        let drops = requests.iter();
        let drops = drops.filter(|r| matches!(r, StoreRequest::DropCopy(PartitionId(0), Epoch(1))));
        drops.count()
    }

    fn answer(&self, reply: StoreReply) {
        self.store.replies.borrow_mut().push_back(reply);
    }

    /// Whether an image begins in the next slices.
    fn begins_at(&mut self, seconds: u64) -> bool {
        self.store.requests.borrow_mut().clear();
        for _ in 0..3 {
            self.slice_at(seconds).expect("in time");
        }
        let requests = self.store.requests.borrow();
        matches!(requests.first(), Some(StoreRequest::Begin { bytes, .. }) if *bytes > 0)
    }

    /// The store has sealed the image.
    fn until_answered(&mut self) {
        let image = self.checkpointer.walked[0].manifest.image;
        self.answer(StoreReply::Sealed {
            image,
            blocks: 1,
            bytes: 1,
        });
        self.take_at(2).expect("in time");
    }

    fn until_switching(&mut self) -> ImageId {
        let image = self.until_sealing();
        let blocks = self.store.requests.borrow().len() as u64 - 2;
        self.answer(StoreReply::Sealed {
            image,
            blocks,
            bytes: 1,
        });
        self.take_at(1).expect("in time");
        self.slice_at(1).expect("in time");
        assert_eq!(self.stage(), Some(Stage::Switching));
        image
    }
}

#[test]
fn moves_wait_for_images_that_are_behind_until_these_have_made_room() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    let count = fixture.keyspace.log.segments().count() as u64;
    assert!(count > 2);
    // More than half of it, and room for some more.
    fixture.checkpointer.budget = (2 * count - 1) * SEGMENT_BYTES;
    let has_room = |fixture: &Fixture<'_>| fixture.checkpointer.has_room_for_moves();
    fixture.slice_at(0).expect("begins");
    assert!(fixture.checkpointer.is_active() && has_room(&fixture));
    let room = fixture.checkpointer.load(&fixture.keyspace).full;
    while fixture.checkpointer.load(&fixture.keyspace).used < room {
        fixture.keyspace.log.append(&[0; 1_000]);
        fixture.commit();
    }
    fixture.slice_at(1).expect("in time");
    assert!(!has_room(&fixture) && fixture.checkpointer.is_urgent());
    let image = fixture.until_switching();
    assert!(!has_room(&fixture), "the log is as long as before");
    fixture.answer(StoreReply::Switched(image));
    fixture.take_at(2).expect("in time");
    fixture.commit();
    fixture.take_at(2).expect("gives segments back");
    fixture.slice_at(3).expect("in time");
    assert!(has_room(&fixture));
}

#[test]
fn what_is_walked_is_not_to_be_imaged_any_more() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    let all: u64 = fixture
        .keyspace
        .partitions()
        .map(|p| p.table.data_bytes())
        .sum();
    let left = |fixture: &Fixture<'_>| fixture.checkpointer.pinned_bytes(&fixture.keyspace);
    assert_eq!(left(&fixture), all);
    fixture.slice_at(0).expect("begins");
    assert_eq!(left(&fixture), all);
    fixture.until_sealing();
    assert_eq!(left(&fixture), 0);
}

#[test]
fn a_store_that_never_seals_is_fatal_after_a_minute() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    fixture.until_sealing();
    assert!(fixture.take_at(59).is_ok());
    let error = fixture.take_at(60).expect_err("silent for too long");
    for part in ["db-0", "partition 0", "60 s", "start the node again"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_store_that_never_switches_is_fatal_after_a_minute() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    fixture.until_switching();
    assert!(fixture.slice_at(60).is_ok(), "the seal came at second 1");
    assert!(fixture.slice_at(61).is_err());
}

#[test]
fn a_store_that_stays_full_is_fatal_after_a_minute() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    *store.is_full.borrow_mut() = true;
    fixture.slice_at(0).expect("begins");
    fixture.slice_at(0).expect("finds no room");
    assert!(fixture.take_at(50).is_ok());
    fixture.answer(StoreReply::Capacity(DbId(0)));
    assert!(fixture.take_at(59).is_ok(), "a sign of life");
    assert!(fixture.slice_at(59).is_ok());
    assert!(fixture.take_at(118).is_ok());
    assert!(fixture.take_at(180).is_err());
}

#[test]
fn a_store_that_works_without_an_answer_hangs_once_it_does_nothing() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    fixture.until_sealing();
    for seconds in (0..=600).step_by(50) {
        *store.steps.borrow_mut() += 1;
        assert!(fixture.take_at(seconds).is_ok(), "busy at {seconds} s");
    }
    assert!(fixture.take_at(659).is_ok());
    assert!(fixture.take_at(660).is_err());
}

#[test]
fn a_store_that_an_image_waits_for_is_hurried() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    fixture.until_sealing();
    fixture.take_at(1).expect("in time");
    assert!(!fixture.checkpointer.is_kept_waiting());
    *store.steps.borrow_mut() += 1;
    fixture.take_at(2).expect("in time");
    assert!(fixture.checkpointer.is_kept_waiting(), "work for others");
    fixture.until_answered();
    assert!(!fixture.checkpointer.is_kept_waiting());
}

#[test]
fn an_image_without_room_is_tried_again_later_and_the_log_keeps_what_it_was_to_hold() {
    for is_sealed in [false, true] {
        let store = Silent::default();
        let mut fixture = Fixture::new(&store);
        let pin = fixture.keyspace.oldest_pin();
        let image = match is_sealed {
            false => fixture.until_sealing(),
            true => fixture.until_switching(),
        };
        fixture.set(1_000);
        fixture.commit();
        fixture.answer(StoreReply::NoRoom(image));
        fixture.take_at(1).expect("in time");
        let checkpointer = &fixture.checkpointer;
        assert!(checkpointer.lacks_room() && !checkpointer.is_active());
        assert!(!fixture.begins_at(9), "its blocks are still there");
        fixture.answer(StoreReply::Aborted(image));
        fixture.take_at(9).expect("in time");
        assert_eq!(fixture.keyspace.oldest_pin(), pin, "as before");
        assert!(!fixture.checkpointer.lacks_room());
        assert!(fixture.begins_at(9));
        fixture.answer(StoreReply::NoRoom(image));
        fixture.answer(StoreReply::Aborted(image));
        fixture.take_at(10).expect("in time");
        assert!(!fixture.begins_at(14), "not at once");
        assert!(fixture.begins_at(15));
    }
}

#[test]
fn a_store_that_answers_does_not_excuse_another_one() {
    let (store, other) = (Silent::default(), Silent::default());
    let mut fixture = Fixture::new(&store);
    fixture.checkpointer = Checkpointer::new(vec![&store, &other], LOG, 2 * SEGMENT_BYTES);
    fixture.until_sealing();
    for seconds in 1..60 {
        let capacity = StoreReply::Capacity(DbId(1));
        other.replies.borrow_mut().push_back(capacity);
        assert!(fixture.take_at(seconds).is_ok());
    }
    assert!(fixture.take_at(60).is_err());
}

#[test]
fn an_idle_checkpointer_waits_for_nobody() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    let image = fixture.until_switching();
    fixture.answer(StoreReply::Switched(image));
    fixture.take_at(2).expect("in time");
    assert!(fixture.take_at(10_000).is_ok());
    assert!(!fixture.checkpointer.is_active());
}

#[test]
fn a_store_that_fails_stops_the_process() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    fixture.until_sealing();
    let (db, operation) = (DbId(0), "write");
    let error = std::sync::Arc::new(crate::image::StoreError::NoRoom { db, operation });
    fixture.answer(StoreReply::Fatal(crate::image::StoreFault { db, error }));
    let text = fixture.take_at(1).expect_err("failed");
    assert!(text.contains("db-0 failed"), "{text}");
}

#[test]
fn the_manifest_switches_only_once_the_image_is_durable_in_the_log() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    fixture.slice_at(0).expect("begins");
    fixture.set(1_000);
    let image = fixture.until_sealing();
    fixture.answer(StoreReply::Sealed {
        image,
        blocks: 1,
        bytes: 1,
    });
    fixture.take_at(0).expect("in time");
    fixture.slice_at(0).expect("waits for the log");
    assert!(matches!(
        store.requests.borrow().last(),
        Some(StoreRequest::Seal(_))
    ));
    fixture.commit();
    fixture.slice_at(0).expect("goes on");
    match store.requests.borrow().last() {
        Some(StoreRequest::Switch(manifest)) => {
            assert_eq!(manifest.lsn_end, fixture.keyspace.log.durable());
            assert!(manifest.lsn_start < manifest.lsn_end);
        }
        other => panic!("the last request is {other:?}"),
    };
}

#[test]
fn segments_go_only_after_the_images_are_named_durably() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    let image = fixture.until_switching();
    let before = fixture.keyspace.log.segments().count();
    assert!(before > 2);
    fixture.answer(StoreReply::Switched(image));
    let named = fixture.keyspace.log.appended().next();
    assert_eq!(
        fixture.take_at(2),
        Ok(vec![]),
        "the record is not durable yet"
    );
    assert_eq!(fixture.keyspace.log.appended(), named);
    assert_eq!(
        fixture.keyspace.oldest_pin(),
        None,
        "the record pins nothing"
    );
    fixture.records.clear();
    fixture.commit();
    let given = fixture.take_at(2).expect("in time");
    assert_eq!(given.len(), before - 1);
    let group = &fixture.records[0];
    let (_, record, _) = decode(&group[132..]).expect("valid").expect("complete");
    let Record::Images(mut images) = record else {
        panic!("{record:?} names no images")
    };
    let entry = images.next().expect("one image");
    assert_eq!((entry.partition, entry.epoch), (PartitionId(0), Epoch(1)));
    assert_eq!((entry.generation, images.next()), (1, None));
    assert_eq!(fixture.take_at(3), Ok(vec![]), "once");
}

const DROPPED: StoreReply = StoreReply::Dropped {
    partition: PartitionId(0),
    epoch: Epoch(1),
};

const COPY: (PartitionId, Epoch) = (PartitionId(0), Epoch(1));

#[test]
fn a_copy_that_leaves_is_forgotten_once_its_images_are_gone() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    let image = fixture.until_switching();
    fixture.answer(StoreReply::Switched(image));
    fixture.take_at(2).expect("in time");
    fixture.checkpointer.remove_copy(COPY.0, COPY.1);
    fixture.take_at(2).expect("in time");
    assert_eq!(fixture.drops(), 0, "it is served");
    fixture.give_up();
    *store.is_full.borrow_mut() = true;
    fixture.checkpointer.remove_copy(COPY.0, COPY.1);
    fixture.take_at(2).expect("in time");
    fixture.take_at(2).expect("in time");
    assert_eq!(*store.refused.borrow(), 1, "not asked again in every turn");
    let other = (PartitionId(0), Epoch(2));
    fixture.checkpointer.remove_copy(other.0, other.1);
    fixture.take_at(2).expect("in time");
    assert_eq!(
        fixture.checkpointer.take_removed(),
        [other],
        "needs no store"
    );
    *store.is_full.borrow_mut() = false;
    fixture.take_at(2).expect("in time");
    assert_eq!(fixture.drops(), 0, "not before it tells of room");
    fixture.answer(StoreReply::Capacity(DbId(0)));
    fixture.checkpointer.remove_copy(COPY.0, COPY.1);
    fixture.take_at(2).expect("in time");
    fixture.take_at(3).expect("in time");
    assert_eq!(fixture.drops(), 1, "once");
    assert_eq!(fixture.checkpointer.take_removed(), []);
    assert!(fixture.keyspace.partition(COPY.0).is_some());
    fixture.answer(DROPPED);
    fixture.take_at(4).expect("in time");
    assert_eq!(fixture.checkpointer.take_removed(), [COPY]);
    assert_eq!(fixture.checkpointer.take_removed(), []);
    assert!(fixture.keyspace.partition(COPY.0).is_none());
}

#[test]
fn a_copy_that_leaves_waits_for_its_image() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    let image = fixture.until_sealing();
    fixture.give_up();
    fixture.checkpointer.remove_copy(COPY.0, COPY.1);
    fixture.take_at(1).expect("in time");
    fixture.answer(StoreReply::Sealed {
        image,
        blocks: 1,
        bytes: 1,
    });
    fixture.take_at(1).expect("in time");
    fixture.slice_at(1).expect("in time");
    assert_eq!(
        (fixture.drops(), fixture.stage()),
        (0, Some(Stage::Switching))
    );
    fixture.answer(StoreReply::Switched(image));
    fixture.take_at(2).expect("in time");
    assert_eq!(fixture.drops(), 1);
    assert!(fixture.take_at(61).is_ok());
    let text = fixture.take_at(62).expect_err("silent for a minute");
    assert!(
        text.contains("the removal of partition 0 epoch 1"),
        "{text}"
    );
}

#[test]
fn a_copy_without_images_or_that_is_not_here_leaves_at_once() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    fixture.give_up();
    let other = (PartitionId(0), Epoch(2));
    fixture.checkpointer.remove_copy(other.0, other.1);
    fixture.checkpointer.remove_copy(COPY.0, COPY.1);
    fixture.take_at(0).expect("in time");
    assert_eq!(fixture.checkpointer.take_removed(), [other, COPY]);
    assert!(fixture.keyspace.partition(COPY.0).is_none());
    assert!(store.requests.borrow().is_empty());
}

#[test]
fn a_prepared_copy_that_waits_for_long_lets_the_log_go() {
    let store = Silent::default();
    let mut fixture = Fixture::new(&store);
    fixture.give_up();
    fixture.checkpointer.remove_copy(COPY.0, COPY.1);
    fixture.take_at(0).expect("in time");
    let source = Source {
        migration: MigrationId(3),
        ..Source::NONE
    };
    let began = fixture.keyspace.begin_incoming(COPY.0, Epoch(2), source);
    began.expect("nothing is here");
    let last = Final {
        contents: Contents::default(),
        clock_ms: 1,
        last_seq: FIRST_SEQ - 1,
    };
    let prepared = fixture.keyspace.prepare(COPY.0, &last).expect("empty");
    for _ in 0..40 {
        fixture.keyspace.log.append(&[0; 1_000]);
    }
    fixture.commit();
    // The records of the copy before go first.
    fixture.slice_at(0).expect("names images");
    fixture.commit();
    fixture.take_at(0).expect("gives segments back");
    let image = fixture.until_switching();
    fixture.answer(StoreReply::Switched(image));
    fixture.take_at(2).expect("in time");
    let kept_from = |fixture: &Fixture<'_>| fixture.keyspace.partition(COPY.0)?.kept_from();
    assert_eq!(kept_from(&fixture), Some(prepared), "it holds the log");
    fixture.slice_at(3).expect("in time");
    assert!(kept_from(&fixture) > Some(prepared), "said again");
    fixture.commit();
    let first = fixture.keyspace.log.segments().next().expect("a segment");
    let given = fixture.take_at(3).expect("in time");
    assert!(given.iter().any(|segment| segment.id == first.id));
}
