//! Disks that others fill while a node runs, and nodes that start on them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ephesus_tests::mount::SmallDisk;
use ephesus_tests::{Client, Node, Options, Reply, paths};

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

fn info(client: &mut Client, name: &str) -> u64 {
    let info = client.say("INFO persistence").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.strip_prefix(':'));
    let value = value.and_then(|value| value.trim().parse().ok());
    value.unwrap_or_else(|| panic!("INFO lacks {name}: {info}"))
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
    let before = info(&mut client, "disk_floor_bytes");
    assert!(info(&mut client, "disk_free_bytes") > before);
    assert_eq!(info(&mut client, "disk_full"), 0);
    assert_eq!(set(&mut client, 0..320, 0), 320);
    let bytes = 2 * 320 * VALUE_BYTES as u64;
    within(10, "a higher floor", || {
        info(&mut client, "disk_floor_bytes") >= before + bytes
    });
}

#[test]
fn full_disk_while_images_are_written_ends_no_node() {
    const KEYS: u64 = 400;
    let disk = SmallDisk::mount(1 << 30);
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
            let images = info(&mut client, "images_written");
            within(60, "an image", || {
                info(&mut client, "images_written") > images
                    && info(&mut client, "image_in_progress") == 1
            });
            let ballast = disk.fill(0);
            within(20, "a full disk", || info(&mut client, "disk_full") == 1);
            std::thread::sleep(Duration::from_secs(1));
            let reply = client.call(&["GET", "{a}:7"]);
            assert!(matches!(&reply, Reply::Bulk(v) if v.len() == VALUE_BYTES));
            drop(ballast);
            within(30, "space again", || info(&mut client, "disk_full") == 0);
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

#[test]
fn a_node_killed_on_a_full_disk_starts_there_and_serves_reads() {
    const KEYS: u64 = 300;
    let disk = SmallDisk::mount(1 << 30);
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
    within(60, "images", || info(&mut client, "images_written") > 0);
    let ballast = disk.fill(0);
    within(20, "a full disk", || info(&mut client, "disk_full") == 1);
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
        assert_eq!(info(&mut client, "disk_full"), 1);
    }
    drop(ballast);
    let mut client = node.client();
    within(30, "writes", || client.say("SET x y") == Reply::ok());
}

#[test]
fn other_shards_on_a_full_disk_are_refused_in_a_line_and_cost_nothing() {
    const KEYS: u64 = 100;
    let disk = SmallDisk::mount(512 << 20);
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
