//! Logs that were damaged while the node was down: a torn tail is cut, anything else is refused.

use std::time::Duration;

use ephesus_tests::ledger::value_of;
use ephesus_tests::mount::SmallDisk;
use ephesus_tests::segments::{PAGE, Segment};
use ephesus_tests::{Client, Node, Options, Reply, Rng, paths};

const KEYS: u64 = 600;

fn key(i: u64) -> Vec<u8> {
    format!("key:{i}").into_bytes()
}

/// Every value begins with a marker that is found in the log's bytes.
fn value(i: u64) -> Vec<u8> {
    format!("<value {i:06}>{}", "x".repeat(500)).into_bytes()
}

/// A node with one shard (and so one log), one group per key, killed after the log went quiet.
fn killed_node() -> Node {
    killed_node_with(Options {
        shards: 1,
        ..Options::default()
    })
}

fn killed_node_with(options: Options) -> Node {
    let mut node = Node::start(options);
    let mut client = node.client();
    for i in 0..KEYS {
        assert_eq!(
            client.call(&[b"SET".to_vec(), key(i), value(i)]),
            Reply::ok()
        );
    }
    // Longer than the idle time after which an empty group marks everything before it durable.
    std::thread::sleep(Duration::from_millis(400));
    node.kill();
    node
}

fn newest(node: &Node) -> Segment {
    Segment::written(node.data_dir())
        .pop()
        .expect("a written segment")
}

/// How many of the first keys are there, which must be all there are.
fn assert_prefix(node: &Node, at_least: u64) {
    let mut client = node.client();
    let gets: Vec<_> = (0..KEYS).map(|i| vec![b"GET".to_vec(), key(i)]).collect();
    let replies = client.pipeline(&gets);
    let present = replies.iter().take_while(|reply| !reply.is_nil()).count() as u64;
    for (i, reply) in replies.iter().enumerate() {
        let expected = (i as u64) < present;
        assert!(
            if expected {
                *reply == Reply::Bulk(value(i as u64))
            } else {
                reply.is_nil()
            },
            "key:{i} is {reply:?}, the first {present} are there"
        );
    }
    assert!(
        present >= at_least,
        "{present} keys are left, {at_least} must be"
    );
    assert_eq!(client.say("SET after the-damage"), Reply::ok());
}

#[test]
fn an_unfinished_group_at_the_tail_is_cut() {
    let mut node = killed_node();
    let segment = newest(&node);
    let torn = Rng::new(ephesus_tests::seed_of_run("torn tail")).bytes(3 * PAGE);
    segment.write_at(segment.used(), &torn);
    node.restart();
    assert_prefix(&node, KEYS);
    node.kill();
    node.restart();
    assert_eq!(node.client().say("GET after"), Reply::bulk("the-damage"));
}

#[test]
fn a_garbled_last_group_is_cut() {
    let mut node = killed_node();
    let segment = newest(&node);
    let last = segment.used() - PAGE;
    segment.write_at(last + 100, &[0xa5; 1000]);

    let (code, report) = node.check();
    assert_eq!(code, Some(0), "a torn tail is no damage:\n{report}");
    let torn = format!("torn tail at offset {last} of ");
    let line = report.lines().find(|line| line.contains(&torn));
    let line = line.unwrap_or_else(|| panic!("no {torn:?} in\n{report}"));
    assert!(line.contains(&segment.name()), "{line}");
    assert!(line.contains("normal after a crash"), "{line}");

    node.restart();
    let words = ["ends in a torn write: it was not on the device"];
    let output = node.wait_says(&words, Duration::from_secs(5));
    let line = output.lines().find(|line| line.contains(words[0]));
    let line = line.expect("just seen");
    let offset = format!("offset={last}");
    assert!(line.contains(&offset), "no {offset:?} in {line:?}");
    assert_prefix(&node, KEYS - 1);
}

#[test]
fn a_truncated_newest_segment_is_cut() {
    let mut node = killed_node();
    let segment = newest(&node);
    segment.truncate(segment.used() - PAGE / 2);
    node.restart();
    assert_prefix(&node, KEYS - 1);
}

#[test]
fn a_flipped_bit_in_the_middle_is_refused_with_file_and_offset() {
    let mut node = killed_node();
    let marker = format!("<value {:06}>", KEYS / 2).into_bytes();
    let (segment, at) = Segment::written(node.data_dir())
        .into_iter()
        .find_map(|segment| segment.offset_of(&marker).map(|at| (segment, at)))
        .expect("the value is in the log");
    segment.flip_bit(at + 3);
    let offset = (at / PAGE * PAGE).to_string();
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&[&segment.name(), "damaged", "offset", &offset]);
    let (code, report) = node.check();
    assert_eq!(code, Some(1), "ephesus check:\n{report}");
    assert!(
        report.contains(&segment.name()) && report.contains(&offset),
        "check:\n{report}"
    );

    segment.write_at(at + 3, &marker[3..4]);
    node.restart();
    assert_prefix(&node, KEYS);
}

/// Damages the group of one key in the middle; answers its segment's name and its offset.
fn spoil_key(node: &Node, i: u64) -> (String, String) {
    let marker = format!("<value {i:06}>").into_bytes();
    let (segment, at) = Segment::written(node.data_dir())
        .into_iter()
        .find_map(|segment| segment.offset_of(&marker).map(|at| (segment, at)))
        .expect("the value is in the log");
    segment.flip_bit(at + 3);
    (segment.name(), (at / PAGE * PAGE).to_string())
}

#[test]
fn skipped_damage_costs_the_damaged_group_and_a_cut_everything_behind_it() {
    let mut node = killed_node_with(Options {
        shards: 1,
        ..Options::default()
    });
    // Others of its partition follow.
    let spoilt = KEYS / 2;
    let (segment, offset) = spoil_key(&node, spoilt);
    let copy = node.data_dir().with_file_name("copy");
    copy_dir(node.data_dir(), &copy);
    let refused = node.start_refused();
    refused.assert_says(&[&segment, "damaged", &offset]);

    node.options.on_damage = Some("skip");
    node.restart();
    let mut client = node.client();
    for i in 0..KEYS {
        let reply = client.call(&[b"GET".to_vec(), key(i)]);
        let is_right = if i == spoilt {
            reply.is_nil()
        } else {
            reply == Reply::Bulk(value(i))
        };
        assert!(is_right, "skip: key:{i} is {reply:?}");
    }
    assert_eq!(client.say("SET after the-damage"), Reply::ok());
    node.kill();
    node.restart();
    let mut client = node.client();
    assert_eq!(client.say("GET after"), Reply::bulk("the-damage"));
    assert_eq!(client.say("DBSIZE"), Reply::Integer(KEYS as i64));
    node.kill();

    std::fs::remove_dir_all(node.data_dir()).expect("remove the data directory");
    std::fs::rename(&copy, node.data_dir()).expect("put the copy in its place");
    node.options.on_damage = Some("cut");
    node.restart();
    let mut client = node.client();
    for i in 0..KEYS {
        let reply = client.call(&[b"GET".to_vec(), key(i)]);
        let is_right = if i < spoilt {
            reply == Reply::Bulk(value(i))
        } else {
            reply.is_nil()
        };
        assert!(is_right, "cut: key:{i} is {reply:?}");
    }
    assert_eq!(client.say("SET after the-damage"), Reply::ok());
    node.kill();
    node.restart();
    assert_eq!(node.client().say("GET after"), Reply::bulk("the-damage"));
}

fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status();
    assert!(
        copied.is_ok_and(|status| status.success()),
        "copy {}",
        from.display()
    );
}

#[test]
fn check_finds_nothing_wrong_with_a_healthy_directory() {
    let mut node = killed_node();
    let (code, report) = node.check();
    assert_eq!(code, Some(0), "ephesus check after a kill:\n{report}");
    node.restart();
    node.stop();
    let (code, report) = node.check();
    assert_eq!(code, Some(0), "ephesus check after a clean stop:\n{report}");
}

#[test]
fn a_missing_segment_is_refused_by_name() {
    let options = Options {
        shards: 1,
        wal_budget: Some(256 << 20),
        ..Options::default()
    };
    let mut node = Node::start(options);
    let mut client = node.client();
    let value = vec![b'v'; 256 << 10];
    // Three and a half segments of 32 MiB, well under the budget: no image replaces them yet.
    for i in 0..448 {
        assert_eq!(
            client.call(&[b"SET".as_slice(), &key(i % 64), &value]),
            Reply::ok()
        );
    }
    node.kill();
    let segments = Segment::written(node.data_dir());
    assert!(
        segments.len() >= 3,
        "112 MiB lie in {} segments",
        segments.len()
    );
    let missing = &segments[segments.len() - 2];
    missing.remove();
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&[&missing.name(), "missing"]);
    let (code, report) = node.check();
    assert_eq!(code, Some(1), "ephesus check:\n{report}");
    assert!(report.contains(&missing.name()), "ephesus check:\n{report}");
}

#[test]
fn full_disk_refuses_writes_keeps_reads_and_recovers() {
    let Some(disk) = SmallDisk::mount(1 << 30) else {
        return;
    };
    let data = disk.path().join("data");
    let options = Options {
        wal_budget: Some(128 << 20),
        ..Options::default()
    };
    let mut node = Node::stopped_at(options, paths::scratch(), data);
    node.restart();
    let mut client = node.client();
    let mut kept = 0;
    let mut write = |client: &mut Client| -> Option<Reply> {
        let reply = client.call(&[b"SET".to_vec(), key(kept), value_of(kept, 1)]);
        if reply == Reply::ok() {
            kept += 1;
            None
        } else {
            Some(reply)
        }
    };
    for _ in 0..20_000 {
        assert_eq!(
            write(&mut client),
            None,
            "with {} bytes free",
            disk.free_bytes()
        );
    }

    let ballast = disk.fill(0);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let refusal = loop {
        if let Some(reply) = write(&mut client) {
            break reply;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "writes go on although the disk is full"
        );
    };
    let text = refusal.error().expect("an error when the disk is full");
    assert!(
        text.starts_with("MISCONF not enough free disk space"),
        "the message says why: {text}"
    );
    assert_eq!(
        client.call(&[b"GET".to_vec(), key(7)]),
        Reply::Bulk(value_of(7, 1))
    );
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(
        client.say("PING"),
        Reply::Simple("PONG".to_owned()),
        "the node lives on"
    );

    drop(ballast);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while let Some(reply) = write(&mut client) {
        assert!(
            std::time::Instant::now() < deadline,
            "space is back, yet: {reply:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    node.kill();
    node.restart();
    let mut client = node.client();
    assert_eq!(client.say("DBSIZE"), Reply::Integer(kept as i64));
    for i in 0..kept {
        let reply = client.call(&[b"GET".to_vec(), key(i)]);
        assert!(reply == Reply::Bulk(value_of(i, 1)), "key:{i} is {reply:?}");
    }
    node.kill();
}

#[test]
fn a_start_on_a_full_disk_says_so() {
    let Some(disk) = SmallDisk::mount(64 << 20) else {
        return;
    };
    let _ballast = disk.fill(1 << 20);
    let data = disk.path().join("data");
    let mut node = Node::stopped_at(Options::default(), paths::scratch(), data);
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["space"]);
}
