//! Shards and the store thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ephesus_wire::Epoch;

use super::super::fault::FaultStore;
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

fn image_through(client: &StoreClient, image: ImageId, blocks: u64) -> usize {
    let mut refusals = send(client, StoreRequest::Begin(image));
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
    assert!(own.set(thread.client(Arc::clone(&push))).is_ok());
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
    send(&writer, StoreRequest::Begin(image(0, 1, 1)));
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

#[test]
fn mistakes_cost_one_image_and_not_the_store() {
    let thread = StoreThread::start(Box::new(FaultStore::new(DbId(0)))).expect("start");
    let client = thread.client(no_wake());
    image_through(&client, image(0, 1, 5), 3);
    let refused = |client: &StoreClient, text: &str| match next_but_capacity(client) {
        StoreReply::Refused { error, .. } => {
            assert!(error.to_string().contains(text), "{error}");
        }
        other => panic!("expected Refused, got {other:?}"),
    };
    send(&client, StoreRequest::Begin(image(0, 1, 5)));
    refused(&client, "not newer");
    send(&client, StoreRequest::Seal(image(0, 1, 6)));
    refused(&client, "not being written");
    send(&client, StoreRequest::Begin(image(0, 1, 6)));
    send(
        &client,
        StoreRequest::Switch(Box::new(manifest(image(0, 1, 6), 0, 0))),
    );
    refused(&client, "not legal while Writing");
    send(&client, StoreRequest::Begin(image(0, 1, 6)));
    send(
        &client,
        StoreRequest::Block(image(0, 1, 6), vec![0; 5000].into_boxed_slice()),
    );
    refused(&client, "5000 bytes");
    image_through(&client, image(0, 1, 6), 2);
    send(&client, StoreRequest::DropPartition(PartitionId(0)));
    assert!(matches!(
        next_but_capacity(&client),
        StoreReply::Dropped { epoch: None, .. }
    ));
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
