//! Disks that others fill while a node runs, and nodes that start on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ephesus_engine::image::{
    BLOCK_BYTES_MAX, DbId, Generation, ImageId, ImageStore, ImageWriter, Manifest, SledStore,
    StoreClient, StoreReply, StoreRequest, StoreThread, TrySendError, manifests, read, verify,
    wait_for_room, waits_for_room,
};
use ephesus_tests::mount::SmallDisk;
use ephesus_tests::{Client, Node, Options, Reply, paths};
use ephesus_wire::{Epoch, Lsn, PartitionId};

const VALUE_BYTES: usize = 64 << 10;

fn value(n: u64) -> Vec<u8> {
    let mut value = format!("<value {n}>").into_bytes();
    value.resize(VALUE_BYTES, b'.');
    value
}

/// Sets these keys, which all are of one partition; answers how many were taken.
fn set(client: &mut Client, keys: std::ops::Range<u64>, round: u64) -> u64 {
    let sets: Vec<_> = keys
        .map(|n| {
            let key = format!("{{a}}:{n}").into_bytes();
            vec![b"SET".to_vec(), key, value(n + round)]
        })
        .collect();
    let replies = client.pipeline(&sets);
    replies
        .iter()
        .filter(|reply| **reply == Reply::ok())
        .count() as u64
}

fn within(seconds: u64, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn options() -> Options {
    Options {
        shards: 1,
        wal_budget: Some(64 << 20),
        ..Options::default()
    }
}

#[test]
fn the_floor_of_free_space_knows_the_largest_partition() {
    let node = Node::start(options());
    let mut client = node.client();
    let before = client.info("disk_floor_bytes");
    assert!(client.info("disk_free_bytes") > before);
    assert_eq!(client.info("disk_full"), 0);
    assert_eq!(set(&mut client, 0..320, 0), 320);
    let bytes = 2 * 320 * VALUE_BYTES as u64;
    within(10, "a higher floor", || {
        client.info("disk_floor_bytes") >= before + bytes
    });
}

#[test]
fn full_disk_while_images_are_written_ends_no_node() {
    const KEYS: u64 = 400;
    let Some(disk) = SmallDisk::mount(1 << 30) else {
        return;
    };
    let mut node = Node::stopped_at(options(), paths::scratch(), disk.path().join("data"));
    node.restart();
    assert_eq!(set(&mut node.client(), 0..KEYS, 0), KEYS);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut writer = node.client();
        let is_over = &is_over;
        scope.spawn(move || {
            for round in 1.. {
                for from in (0..KEYS).step_by(20) {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    set(&mut writer, from..from + 20, round);
                }
            }
        });
        for _ in 0..2 {
            let mut client = node.client();
            let images = client.info("images_written");
            within(60, "an image", || {
                client.info("images_written") > images && client.info("image_in_progress") == 1
            });
            let ballast = disk.fill(0);
            within(20, "a full disk", || client.info("disk_full") == 1);
            std::thread::sleep(Duration::from_secs(1));
            let reply = client.call(&["GET", "{a}:7"]);
            assert!(matches!(&reply, Reply::Bulk(v) if v.len() == VALUE_BYTES));
            drop(ballast);
            within(30, "space again", || client.info("disk_full") == 0);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(set(&mut node.client(), 0..KEYS, 9), KEYS);
    node.kill();
    node.restart();
    let mut client = node.client();
    let all: Vec<_> = (0..KEYS)
        .map(|n| vec![b"GET".to_vec(), format!("{{a}}:{n}").into_bytes()])
        .collect();
    for (n, reply) in (0..).zip(client.pipeline(&all)) {
        assert!(reply == Reply::Bulk(value(n + 9)), "key {n}");
    }
}

/// Hands requests to a store's thread.
fn send(client: &StoreClient, requests: impl IntoIterator<Item = StoreRequest>) {
    for mut request in requests {
        while let Err(error) = client.try_send(request) {
            let TrySendError::Full(returned) = error else {
                panic!("{error}");
            };
            request = returned;
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn block(image: ImageId, n: u64) -> Vec<u8> {
    let mut block = format!("{image} block {n}").into_bytes();
    block.resize(BLOCK_BYTES_MAX, b'.');
    block
}

fn manifest(image: ImageId, (blocks, bytes): (u64, u64)) -> Manifest {
    Manifest {
        image,
        log: [0; 16],
        lsn_start: Lsn(1),
        lsn_end: Lsn(2),
        seq_start: 1,
        count: blocks,
        digest: [0; 2],
        blocks,
        bytes,
        created_ms: 1,
    }
}

/// Writes an image as shards do; answers whether the disk had room for it.
fn write_image(client: &StoreClient, image: ImageId, blocks: u64) -> bool {
    let of_image = |n| StoreRequest::Block(image, block(image, n).into_boxed_slice());
    send(client, [StoreRequest::Begin { image, bytes: 0 }]);
    send(client, (0..blocks).map(of_image));
    send(client, [StoreRequest::Seal(image)]);
    loop {
        match client.replies().recv_timeout(Duration::from_secs(60)) {
            Ok(StoreReply::Sealed { bytes, .. }) => {
                let manifest = Box::new(manifest(image, (blocks, bytes)));
                send(client, [StoreRequest::Switch(manifest)]);
            }
            Ok(StoreReply::Switched(_)) => return true,
            Ok(StoreReply::Aborted(_)) => return false,
            Ok(StoreReply::Fatal(fault)) => panic!("{fault}"),
            Ok(_) => {}
            Err(_) => panic!("{image}: no reply"),
        }
    }
}

#[test]
fn full_disk_in_the_middle_of_what_a_store_writes_is_waited_for() {
    const BLOCKS: u64 = 8000;
    let Some(disk) = SmallDisk::mount(128 << 20) else {
        return;
    };
    wait_for_room(true);
    let mut store = SledStore::open(&disk.path(), DbId(0), 1).expect("open");
    let ballast = disk.fill(0);
    let image = ImageId {
        partition: PartitionId(0),
        epoch: Epoch(1),
        generation: Generation(1),
    };
    let writer = std::thread::spawn(move || {
        // Nobody asks whether there is room.
        let mut writer = ImageWriter::begin(&mut store, image).expect("begin");
        for n in 0..BLOCKS {
            writer.put(&mut store, &block(image, n)).expect("put");
        }
        writer.seal(&mut store).expect("seal");
        let manifest = manifest(image, writer.written());
        writer.switch(&mut store, &manifest).expect("switch");
    });
    within(20, "a store that waits", || {
        assert!(!writer.is_finished());
        waits_for_room()
    });
    drop(ballast);
    writer.join().expect("the image is written");
    let store = SledStore::open(&disk.path(), DbId(0), 1).expect("open");
    let found = manifests(&store, PartitionId(0)).expect("readable");
    assert_eq!(found.len(), 1);
    read(&store, &found[0], |n, found| {
        assert!(found == block(image, n), "block {n}");
        Ok(())
    })
    .expect("whole");
}

#[test]
fn full_disk_whose_space_others_take_at_once_ends_no_store() {
    let Some(disk) = SmallDisk::mount(128 << 20) else {
        return;
    };
    wait_for_room(true);
    let store = SledStore::open(&disk.path(), DbId(0), 1).expect("open");
    let thread = StoreThread::start(Box::new(store)).expect("start");
    let client = thread.client(Arc::new(|| {}));
    let seed = ephesus_tests::seed_of_run("full disk");
    let others = disk.come_and_go(seed, Duration::from_millis(40));
    let deadline = Instant::now() + Duration::from_secs(5);
    let of = |partition, generation| ImageId {
        partition: PartitionId(partition),
        epoch: Epoch(1),
        generation: Generation(generation),
    };
    for n in (0u16..).take_while(|_| Instant::now() < deadline) {
        let blocks = [10, 300, 2000][usize::from(n / 3 % 3)];
        write_image(&client, of(n % 3, 1 + u64::from(n)), blocks);
    }
    drop(others);
    for partition in 0..3 {
        let image = of(partition, 1 << 20);
        assert!(write_image(&client, image, 300), "there is room again");
    }
    thread.stop();
    let store = SledStore::open(&disk.path(), DbId(0), 1).expect("open");
    assert_eq!(store.partitions(), [0, 1, 2].map(PartitionId));
    assert!(verify(&store, |_| Ok(())).expect("readable").is_empty());
}

#[test]
fn a_node_killed_on_a_full_disk_starts_there_and_serves_reads() {
    const KEYS: u64 = 300;
    let Some(disk) = SmallDisk::mount(1 << 30) else {
        return;
    };
    let options = Options {
        shards: 2,
        ..options()
    };
    let mut node = Node::stopped_at(options, paths::scratch(), disk.path().join("data"));
    node.restart();
    let mut client = node.client();
    for round in 0..5 {
        assert_eq!(set(&mut client, 0..KEYS, round), KEYS);
    }
    within(60, "images", || client.info("images_written") > 0);
    let ballast = disk.fill(0);
    within(20, "a full disk", || client.info("disk_full") == 1);
    for is_refilled in [true, false] {
        node.kill();
        // What the kill has set free is taken, too.
        let _rest = is_refilled.then(|| disk.fill_more(0));
        let (_, report) = node.check();
        assert!(!report.contains("DAMAGE"), "ephesus check:\n{report}");
        node.restart();
        let mut client = node.client();
        for n in 0..KEYS {
            let reply = client.call(&["GET".to_owned(), format!("{{a}}:{n}")]);
            assert!(reply == Reply::Bulk(value(n + 4)), "key {n}");
        }
        let refused = client.say("SET x y");
        let text = refused.error().expect("an error: the disk is full");
        assert!(text.starts_with("MISCONF"), "{text}");
        assert_eq!(client.info("disk_full"), 1);
    }
    drop(ballast);
    let mut client = node.client();
    within(30, "writes", || client.say("SET x y") == Reply::ok());
}

#[test]
fn other_shards_on_a_full_disk_are_refused_in_a_line_and_cost_nothing() {
    const KEYS: u64 = 100;
    let Some(disk) = SmallDisk::mount(512 << 20) else {
        return;
    };
    let two = Options {
        shards: 2,
        ..options()
    };
    let mut node = Node::stopped_at(two, paths::scratch(), disk.path().join("data"));
    node.restart();
    assert_eq!(set(&mut node.client(), 0..KEYS, 0), KEYS);
    let ballast = disk.fill(0);
    node.kill();
    node.options.shards = 3;
    let refused = node.start_refused().output;
    assert!(refused.contains("set space free"), "{refused}");
    assert!(refused.contains("--shards 2"), "{refused}");
    let all_are_there = |node: &Node| {
        let mut client = node.client();
        for n in 0..KEYS {
            let reply = client.call(&["GET".to_owned(), format!("{{a}}:{n}")]);
            assert!(reply == Reply::Bulk(value(n)), "key {n}");
        }
    };
    node.options.shards = 2;
    node.restart();
    all_are_there(&node);
    node.kill();
    drop(ballast);
    node.options.shards = 3;
    node.restart();
    all_are_there(&node);
}
