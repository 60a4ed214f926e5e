//! Shards and the store thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ephesus_wire::Epoch;

use super::super::fault::FaultStore;
use super::super::removal::{self, Removal, What};
use super::super::scheduling::{Class, Relay, become_idle, current_class, may_leave_idle};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn no_wake() -> Wake {
    Arc::new(|| {})
}

fn reply(client: &StoreClient) -> StoreReply {
    client.replies().recv_timeout(PATIENCE).expect("a reply")
}

/// Sends like a shard: on a full channel it waits for `Capacity`; returns how often it had to.
fn send(client: &StoreClient, mut request: StoreRequest) -> usize {
    let mut refusals = 0;
    loop {
        match client.try_send(request) {
            Ok(()) => return refusals,
            Err(TrySendError::Full(returned)) => {
                refusals += 1;
                request = returned;
                match reply(client) {
                    StoreReply::Capacity(_) => {}
                    other => panic!("expected Capacity, got {other:?}"),
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn next_but_capacity(client: &StoreClient) -> StoreReply {
    loop {
        match reply(client) {
            StoreReply::Capacity(_) => {}
            other => return other,
        }
    }
}

fn begin(image: ImageId) -> StoreRequest {
    StoreRequest::Begin { image, bytes: 0 }
}

fn image_through(client: &StoreClient, image: ImageId, blocks: u64) -> usize {
    let mut refusals = send(client, StoreRequest::Begin { image, bytes: 0 });
    for sequence in 0..blocks {
        let block = block(image, sequence, 4096).into_boxed_slice();
        refusals += send(client, StoreRequest::Block(image, block));
    }
    send(client, StoreRequest::Seal(image));
    let (blocks, bytes) = match next_but_capacity(client) {
        StoreReply::Sealed {
            image: sealed,
            blocks,
            bytes,
        } if sealed == image => (blocks, bytes),
        other => panic!("expected Sealed, got {other:?}"),
    };
    send(
        client,
        StoreRequest::Switch(Box::new(manifest(image, blocks, bytes))),
    );
    match next_but_capacity(client) {
        StoreReply::Switched(switched) if switched == image => refusals,
        other => panic!("expected Switched, got {other:?}"),
    }
}

#[test]
fn two_shards_write_images_through_one_thread() {
    let dir = tempfile::tempdir().expect("temp dir");
    let store = SledStore::open(dir.path(), DbId(0), 1).expect("open");
    let thread = StoreThread::start(Box::new(store)).expect("start");
    let refusals: usize = std::thread::scope(|scope| {
        let shards: Vec<_> = (0..2)
            .map(|shard| {
                let wakes = Arc::new(AtomicUsize::new(0));
                let counted = Arc::clone(&wakes);
                let client = thread.client(Arc::new(move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                }));
                scope.spawn(move || {
                    let refusals: usize = (1..4)
                        .map(|g| image_through(&client, image(shard, 1, g), 400))
                        .sum();
                    // A wake follows its reply, so the last one may still be on its way.
                    let deadline = now() + PATIENCE;
                    while wakes.load(Ordering::Relaxed) < refusals + 6 {
                        assert!(now() < deadline, "a reply without wake");
                        std::thread::yield_now();
                    }
                    refusals
                })
            })
            .collect();
        thread.raise();
        thread.lower();
        thread.raise();
        shards.into_iter().map(|s| s.join().expect("shard")).sum()
    });
    assert!(
        refusals > 0,
        "2400 blocks must fill a channel of {REQUESTS_MAX}"
    );
    thread.stop();

    let store = SledStore::open(dir.path(), DbId(0), 1).expect("open");
    for partition in [PartitionId(0), PartitionId(1)] {
        let found = load(&store, partition, Epoch(1))
            .expect("load")
            .expect("an image");
        assert_eq!((found.image.generation, found.blocks), (Generation(3), 400));
        check_image(&store, &found).expect("whole");
    }
}

#[test]
fn a_client_that_is_refused_again_at_once_does_not_keep_the_thread_from_its_work() {
    const BLOCKS: usize = 2_000;
    let thread = StoreThread::start(Box::new(FaultStore::new(DbId(0)))).expect("start");
    let own: Arc<OnceLock<StoreClient>> = Arc::default();
    let (sent, wakes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let push = {
        let (own, sent, wakes) = (Arc::clone(&own), Arc::clone(&sent), Arc::clone(&wakes));
        move || {
            let Some(client) = own.get() else { return };
            let runs_away = wakes.fetch_add(1, Ordering::Relaxed) > BLOCKS;
            while !runs_away && sent.load(Ordering::Relaxed) < BLOCKS {
                let block = StoreRequest::Block(image(0, 1, 1), Box::from(*b"x"));
                match client.try_send(block) {
                    Ok(()) => sent.fetch_add(1, Ordering::Relaxed),
                    Err(_) => return,
                };
            }
        }
    };
    let push: Wake = Arc::new(push);
    let client = thread.client(Arc::clone(&push));
    send(&client, begin(image(0, 1, 1)));
    assert!(own.set(client).is_ok());
    push();
    let deadline = now() + PATIENCE;
    while sent.load(Ordering::Relaxed) < BLOCKS && wakes.load(Ordering::Relaxed) <= BLOCKS {
        assert!(now() < deadline, "the client was forgotten");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(sent.load(Ordering::Relaxed), BLOCKS);
    thread.stop();
}

#[test]
fn a_failing_store_is_fatal_for_every_client() {
    let mut store = FaultStore::new(DbId(2));
    store.fail_at(3);
    let thread = StoreThread::start(Box::new(store)).expect("start");
    let (writer, bystander) = (thread.client(no_wake()), thread.client(no_wake()));
    send(&writer, begin(image(0, 1, 1)));
    // The tenth has an extent of three inserted for the third time.
    for _ in 0..10 {
        let block = vec![b'x'; BLOCK_BYTES_MAX].into_boxed_slice();
        send(&writer, StoreRequest::Block(image(0, 1, 1), block));
    }
    for client in [&writer, &bystander] {
        match reply(client) {
            StoreReply::Fatal(fault) => {
                assert!(fault.to_string().contains("db-2 failed"), "{fault}");
            }
            other => panic!("expected Fatal, got {other:?}"),
        }
    }
    send(&bystander, StoreRequest::SizeOnDisk);
    assert!(
        matches!(reply(&bystander), StoreReply::Fatal(_)),
        "later requests get it again"
    );
    thread.stop();
    let after = bystander.try_send(StoreRequest::SizeOnDisk);
    assert!(matches!(
        after,
        Err(TrySendError::Stopped(StoreRequest::SizeOnDisk))
    ));
}

/// How many blocks of full size the store has.
fn blocks(client: &StoreClient) -> u64 {
    send(client, StoreRequest::SizeOnDisk);
    match next_but_capacity(client) {
        StoreReply::Size { bytes, .. } => bytes / 4096,
        other => panic!("expected Size, got {other:?}"),
    }
}

#[test]
fn the_removal_of_a_large_image_yields_to_requests_and_is_seen_as_work() {
    const OLD: u64 = 3_000;
    let thread = StoreThread::start(Box::new(FaultStore::new(DbId(0)))).expect("start");
    image_through(&thread.client(no_wake()), image(0, 1, 1), OLD);
    let own: Arc<OnceLock<StoreClient>> = Arc::default();
    let ask = {
        let (own, wakes) = (Arc::clone(&own), AtomicUsize::new(0));
        // With the second reply, which is of the switch, on the store's thread: before it goes on.
        move || {
            if wakes.fetch_add(1, Ordering::Relaxed) == 1 {
                let client = own.get().expect("it has sent requests");
                client.try_send(StoreRequest::SizeOnDisk).expect("room");
            }
        }
    };
    assert!(own.set(thread.client(Arc::new(ask))).is_ok());
    let client = own.get().expect("just set");
    send(client, begin(image(0, 1, 2)));
    send(client, StoreRequest::Seal(image(0, 1, 2)));
    let sealed = next_but_capacity(client);
    assert!(matches!(sealed, StoreReply::Sealed { .. }), "{sealed:?}");
    let switch = StoreRequest::Switch(Box::new(manifest(image(0, 1, 2), 0, 0)));
    let steps = client.steps();
    send(client, switch);
    let switched = next_but_capacity(client);
    assert!(matches!(switched, StoreReply::Switched(_)), "{switched:?}");
    let left = match next_but_capacity(client) {
        StoreReply::Size { bytes, .. } => bytes / 4096,
        other => panic!("expected Size, got {other:?}"),
    };
    assert!(left > OLD * 9 / 10, "{left} blocks are left");
    let deadline = now() + PATIENCE;
    while blocks(client) > 0 {
        assert!(now() < deadline, "the old image stays");
        std::thread::yield_now();
    }
    assert!(
        client.steps() >= steps + OLD / 3 / 48,
        "each slice is a step"
    );
    thread.stop();
}

#[test]
fn a_copy_that_leaves_goes_by_slices_and_leaves_others() {
    let mut store = FaultStore::new(DbId(0));
    write_image(&mut store, image(0, 1, 1), 900, 4096).expect("write");
    write_image(&mut store, image(0, 2, 1), 9, 4096).expect("write");
    removal::drop_manifest(&mut store, PartitionId(0), Epoch(1)).expect("drop");
    let mut removal = Removal::new(PartitionId(0), Epoch(1), What::All(900));
    let mut slices = 0;
    let mut before = store.operations();
    while !removal.slice(&mut store).expect("slice") {
        slices += 1;
        assert!(store.operations() - before <= 48, "more than a slice");
        before = store.operations();
    }
    assert_eq!(slices, 300 / 48);
    assert_eq!(generations(&store, PartitionId(0)), [(2, 1)]);
    // A large one that is alone goes with its tree only at the end.
    let mut removal = Removal::new(PartitionId(0), Epoch(2), What::All(u64::MAX));
    removal::drop_manifest(&mut store, PartitionId(0), Epoch(2)).expect("drop");
    assert!(removal.slice(&mut store).expect("slice"));
    assert_eq!(generations(&store, PartitionId(0)), []);
}

#[test]
fn what_replaces_an_image_never_costs_a_newer_one_its_blocks() {
    let mut store = FaultStore::new(DbId(0));
    for generation in [1, 2] {
        write_blocks(&mut store, image(0, 1, generation), 200);
    }
    write_blocks(&mut store, image(0, 1, 4), 200);
    let mut removal = Removal::new(PartitionId(0), Epoch(1), What::Below(Generation(3)));
    while !removal.slice(&mut store).expect("slice") {}
    assert_eq!(generations(&store, PartitionId(0)), [(1, 4)]);
}

fn write_blocks(store: &mut FaultStore, image: ImageId, blocks: u64) {
    let mut writer = ImageWriter::begin(store, image).expect("begin");
    for sequence in 0..blocks {
        writer
            .put(store, &block(image, sequence, 4096))
            .expect("put");
    }
    writer.seal(store).expect("seal");
}

#[test]
fn an_image_without_room_is_given_up_and_what_is_to_be_removed_waits_for_room() {
    let store = FaultStore::new(DbId(0));
    let room = Arc::clone(&store.room);
    let thread = StoreThread::start(Box::new(store)).expect("start");
    let client = thread.client(no_wake());
    image_through(&client, image(0, 1, 1), 3);
    image_through(&client, image(1, 1, 1), 3);
    let is_given_up = |wanted: ImageId| {
        let reply = next_but_capacity(&client);
        assert!(
            matches!(reply, StoreReply::NoRoom(image) if image == wanted),
            "{reply:?}"
        );
    };
    let is_gone = |wanted: ImageId| {
        let reply = next_but_capacity(&client);
        assert!(
            matches!(reply, StoreReply::Aborted(image) if image == wanted),
            "{reply:?}"
        );
    };
    // One that is larger than what is free is not begun.
    room.store(100 << 20, Ordering::Relaxed);
    let large = StoreRequest::Begin {
        image: image(0, 1, 2),
        bytes: 101 << 20,
    };
    send(&client, large);
    is_given_up(image(0, 1, 2));
    is_gone(image(0, 1, 2));
    // One that is under way ends, and the rest of it is passed over.
    send(&client, begin(image(0, 1, 2)));
    let part = || StoreRequest::Block(image(0, 1, 2), vec![1; 4096].into_boxed_slice());
    for _ in 0..6 {
        send(&client, part());
    }
    assert_eq!(blocks(&client), 9, "three of the six have an extent");
    room.store(0, Ordering::Relaxed);
    send(&client, part());
    is_given_up(image(0, 1, 2));
    send(&client, part());
    send(&client, StoreRequest::Seal(image(0, 1, 2)));
    send(&client, StoreRequest::DropCopy(PartitionId(1), Epoch(1)));
    let steps = client.steps();
    assert_eq!(blocks(&client), 9, "nothing is removed without room");
    assert!(client.replies().try_recv().is_err());
    assert!(client.steps() > steps);
    room.store(u64::MAX, Ordering::Relaxed);
    is_gone(image(0, 1, 2));
    let reply = next_but_capacity(&client);
    assert!(matches!(reply, StoreReply::Dropped { .. }), "{reply:?}");
    image_through(&client, image(0, 1, 2), 6);
    thread.stop();
}

#[test]
fn what_a_start_without_room_has_left_goes_in_slices_before_the_next_image() {
    let mut store = FaultStore::new(DbId(0));
    write_blocks(&mut store, image(0, 1, 2), 600);
    write_image(&mut store, image(0, 1, 1), 3, 0).expect("the valid one");
    let before = store.size_on_disk().expect("size");
    let thread = StoreThread::start(Box::new(store)).expect("start");
    let own: Arc<OnceLock<StoreClient>> = Arc::default();
    let ask = {
        let (own, wakes) = (Arc::clone(&own), AtomicUsize::new(0));
        // With the first reply, on the store's thread: before it goes on.
        move || {
            if wakes.fetch_add(1, Ordering::Relaxed) == 0 {
                let client = own.get().expect("it has sent a request");
                client.try_send(StoreRequest::SizeOnDisk).expect("room");
            }
        }
    };
    assert!(own.set(thread.client(Arc::new(ask))).is_ok());
    let client = own.get().expect("just set");
    send(client, begin(image(0, 1, 2)));
    let reply = next_but_capacity(client);
    assert!(matches!(reply, StoreReply::NoRoom(_)), "{reply:?}");
    match next_but_capacity(client) {
        StoreReply::Size { bytes, .. } => assert!(bytes > before * 9 / 10, "{bytes} B are left"),
        other => panic!("expected Size, got {other:?}"),
    }
    let reply = next_but_capacity(client);
    assert!(matches!(reply, StoreReply::Aborted(_)), "{reply:?}");
    assert!(blocks(client) < 10);
    image_through(client, image(0, 1, 2), 3);
    thread.stop();
}

#[test]
fn priority_goes_down_and_up_again() {
    let thread = StoreThread::start(Box::new(FaultStore::new(DbId(0)))).expect("start");
    let (sender, classes) = flume::unbounded();
    let client = thread.client(Arc::new(move || {
        let _ = sender.send(current_class());
    }));
    let class = || {
        send(&client, StoreRequest::SizeOnDisk);
        classes.recv_timeout(PATIENCE).expect("a wake")
    };
    assert_eq!(class(), Class::Idle);
    for (wanted, set) in [
        (Class::Normal, StoreThread::raise as fn(&_)),
        (Class::Idle, StoreThread::lower),
    ] {
        set(&thread);
        // The request that was waiting may still be served by the other thread.
        let reached = (0..50).any(|_| class() == wanted);
        assert!(reached, "{wanted:?} was not reached");
    }
    thread.stop();
}

#[test]
fn an_idle_thread_hurries_with_what_it_has_begun_if_it_may() {
    let may = std::thread::scope(|scope| scope.spawn(may_leave_idle).join());
    let may = may.expect("no panic");
    let relay = Relay::new((), Class::Idle);
    let (classes, seen) = flume::unbounded();
    let (go_on, goes_on) = flume::unbounded();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_idle().expect("everybody may");
            relay.serve(Class::Idle, |()| {
                classes.send(current_class()).expect("somebody waits");
                goes_on.recv_timeout(PATIENCE).expect("a word");
                classes.send(current_class()).expect("somebody waits");
                (relay.wanted() == Class::Idle).then_some(())
            });
        });
        let class = || seen.recv_timeout(PATIENCE).expect("a class");
        for wanted in [Class::Idle, Class::Normal] {
            assert_eq!(class(), Class::Idle);
            relay.want(Class::Normal);
            relay.want(wanted);
            go_on.send(()).expect("somebody waits");
            let hurries = may && wanted == Class::Normal;
            assert_eq!(class() == Class::Normal, hurries, "{wanted:?}");
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "bounds how long a test waits")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
