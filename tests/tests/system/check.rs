//! `ephesus check` and a start on images and logs that do not fit each other, or are damaged.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ephesus_tests::images::{spoil, store_dir, stores};
use ephesus_tests::segments::Segment;
use ephesus_tests::slots::{SLOTS, slot};
use ephesus_tests::{Node, Options, Reply};

const PARTITIONS: usize = 16;
const KEYS: usize = 3 * PARTITIONS;

/// As many in each partition, one of each after the other: all have records in the oldest segment, so
/// it goes when all have images.
fn keys() -> Vec<Vec<u8>> {
    let mut of: Vec<Vec<Vec<u8>>> = vec![Vec::new(); PARTITIONS];
    for key in (0..20 * KEYS).map(|i| format!("key:{i}").into_bytes()) {
        of[usize::from(slot(&key)) * PARTITIONS / usize::from(SLOTS)].push(key);
    }
    let rounds = 0..KEYS / PARTITIONS;
    let keys = rounds.flat_map(|round| of.iter().map(move |keys| keys[round].clone()));
    keys.collect()
}

/// Every value begins with a marker that is found in the images' bytes.
fn value(i: usize) -> Vec<u8> {
    let mut value = format!("<value {i:06}>").into_bytes();
    value.resize(512 << 10, b'x');
    value
}

/// A stopped node with one shard, whose images hold all keys and whose log was shortened for them.
fn imaged_node() -> Node {
    let mut node = Node::start(Options {
        shards: 1,
        partitions: Some(PARTITIONS as u32),
        // Two segments of eight: no image begins before all is written.
        wal_budget: Some(128 << 20),
        ..Options::default()
    });
    let mut client = node.client();
    for (i, key) in keys().into_iter().enumerate() {
        let reply = client.call(&[b"SET".to_vec(), key, value(i)]);
        assert_eq!(reply, Reply::ok());
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    // What is published may be older than the last writes, which begin the second segment.
    while client.info("images_written") < PARTITIONS as u64 || client.info("wal_segments") > 1 {
        assert!(Instant::now() < deadline, "60 s of rest and no images");
        std::thread::sleep(Duration::from_millis(50));
    }
    node.stop();
    node
}

/// The lines of a report that say what is wrong.
fn damage(report: &str) -> Vec<&str> {
    let lines = report.lines();
    lines.filter(|line| line.starts_with("DAMAGE ")).collect()
}

/// That check exits with 1, finds fault with nothing but `store`, and reports the other stores.
fn assert_only_damaged(node: &Node, store: usize) {
    let (code, report) = node.check();
    assert_eq!(code, Some(1), "ephesus check:\n{report}");
    let damage = damage(&report);
    assert!(!damage.is_empty(), "ephesus check:\n{report}");
    for line in damage {
        assert!(line.contains(&format!("db-{store}")), "{line}\n{report}");
    }
    let stores = stores(node.data_dir());
    assert!(store < stores, "{stores} stores");
    for other in (0..stores).filter(|other| *other != store) {
        let images = (other..PARTITIONS).step_by(stores).count();
        let line = format!("store db-{other}: {images} images, ");
        assert!(report.contains(&line), "no {line:?} in\n{report}");
    }
    assert!(!report.lines().any(|line| line == "ok"), "{report}");
}

fn move_dir(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap_or_else(|error| panic!("move {}: {error}", from.display()));
}

fn assert_all_there(node: &Node) {
    let mut client = node.client();
    assert_eq!(client.say("DBSIZE"), Reply::Integer(KEYS as i64));
    for (i, key) in keys().into_iter().enumerate() {
        let reply = client.call(&[b"GET".to_vec(), key]);
        assert!(reply == Reply::Bulk(value(i)), "key {i} is {reply:?}");
    }
}

#[test]
fn a_damaged_image_store_is_reported_and_so_are_the_others() {
    let mut node = imaged_node();
    let (code, report) = node.check();
    assert_eq!(code, Some(0), "ephesus check:\n{report}");
    assert!(report.ends_with("\nok\n"), "{report}");
    assert!(report.contains("\ncoordinator log: "), "{report}");

    // What sled reads first.
    let last = stores(node.data_dir()) - 1;
    let conf = store_dir(node.data_dir(), last).join("conf");
    let intact = fs::read(&conf).expect("read sled's conf");
    let mut bytes = intact.clone();
    bytes[3] ^= 0x10;
    fs::write(&conf, &bytes).expect("damage sled's conf");
    assert_only_damaged(&node, last);
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&[&format!("db-{last}"), "restore"]);
    fs::write(&conf, &intact).expect("mend sled's conf");
    let (code, report) = node.check();
    assert_eq!(code, Some(0), "ephesus check:\n{report}");

    // A block of an image.
    let marker = format!("<value {:06}>", KEYS / 2);
    let store = spoil(node.data_dir(), marker.as_bytes());
    assert_only_damaged(&node, store);
}

#[test]
fn a_store_that_has_lost_its_images_is_refused_and_reported() {
    const LOST: usize = 1;
    let mut node = imaged_node();
    let dir = store_dir(node.data_dir(), LOST);
    let aside = node.data_dir().with_file_name("aside");
    move_dir(&dir, &aside);
    assert_only_damaged(&node, LOST);
    let (_, report) = node.check();
    let lost = damage(&report);
    assert!(
        lost[0].contains("has lost the image of partition "),
        "{report}"
    );
    assert!(
        report.contains(&format!("store db-{LOST}: not there")),
        "{report}"
    );
    assert!(!dir.exists(), "a check creates no store");

    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    let store = format!("images/db-{LOST} has lost the image of partition ");
    refused.assert_says(&[&store, "restore the data directory from a backup"]);
    node.options.on_damage = Some("cut");
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "no flag helps: {}", refused.output);
    refused.assert_says(&[&store]);

    // The refused starts have created an empty store in its place.
    node.options.on_damage = None;
    assert_only_damaged(&node, LOST);
    fs::remove_dir_all(&dir).expect("remove the empty store");
    move_dir(&aside, &dir);
    let (code, report) = node.check();
    assert_eq!(code, Some(0), "ephesus check:\n{report}");
    node.restart();
    assert_all_there(&node);
}

#[test]
fn a_small_file_that_stops_a_start_is_reported_and_one_that_does_not_is_none_for_check_either() {
    let mut node = Node::start(Options::default());
    node.stop();
    let garbage = b"\xff\xfe garbage";
    let file = node.data_dir().join("incarnation");
    let whole = fs::read(&file).expect("a small file");
    fs::write(&file, garbage).expect("damage");
    let refused = node.start_refused();
    refused.assert_says(&["incarnation"]);
    let (code, report) = node.check();
    assert_eq!(code, Some(1), "ephesus check:\n{report}");
    let damage = damage(&report).join("\n");
    assert!(damage.contains("incarnation"), "{damage}\n{report}");
    fs::write(&file, whole).expect("mended");

    // Addresses are learnt again from the coordinators themselves.
    let file = node.data_dir().join("coordinators");
    fs::write(&file, garbage).expect("damage");
    let (code, report) = node.check();
    assert_eq!(code, Some(0), "ephesus check:\n{report}");
    node.restart();
    let output = node.process().output();
    assert!(output.contains("lines that are no addresses"), "{output}");
    node.stop();
    let now = fs::read(&file).expect("a small file");
    assert_ne!(now, garbage, "it was written anew");
}

#[test]
fn half_an_image_store_is_refused_in_one_line_and_reported_and_so_are_mixed_up_ones() {
    let mut node = imaged_node();
    let store = store_dir(node.data_dir(), 0);
    if stores(node.data_dir()) > 1 {
        let (second, aside) = (store_dir(node.data_dir(), 1), store.with_extension("aside"));
        for (from, to) in [(&store, &aside), (&second, &store), (&aside, &second)] {
            move_dir(from, to);
        }
        let refused = node.start_refused();
        assert_eq!(refused.code(), 1, "{}", refused.output);
        refused.assert_says(&["mixed up"]);
        let (code, report) = node.check();
        assert_eq!(code, Some(1), "ephesus check:\n{report}");
        assert!(report.contains("mixed up"), "ephesus check:\n{report}");
        for (from, to) in [(&store, &aside), (&second, &store), (&aside, &second)] {
            move_dir(from, to);
        }
    }
    let spare = store.with_extension("spare");
    let file = store.join("db");
    let whole = fs::read(&file).expect("a store's file");
    for left in [None, Some(whole.len() / 2), Some(0)] {
        match left {
            None => fs::rename(&file, &spare).expect("moved aside"),
            Some(bytes) => fs::write(&file, &whole[..bytes]).expect("cut"),
        }
        let refused = node.start_refused();
        assert_eq!(refused.code(), 1, "{}", refused.output);
        refused.assert_says(&["db-0", "restore"]);
        let (code, report) = node.check();
        assert_eq!(code, Some(1), "ephesus check:\n{report}");
        let damage = damage(&report);
        assert!(!damage.is_empty(), "ephesus check:\n{report}");
        for line in damage {
            assert!(line.contains("db-0"), "{line}");
        }
    }
}

#[test]
fn a_log_that_has_lost_its_end_is_refused_until_the_loss_is_accepted() {
    let mut node = imaged_node();
    for segment in Segment::of(node.data_dir()) {
        segment.remove();
    }
    let (code, report) = node.check();
    assert_eq!(code, Some(1), "ephesus check:\n{report}");
    let lines = damage(&report);
    assert_eq!(lines.len(), 1, "{report}");
    assert!(lines[0].contains("is gone"), "{report}");
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["is gone", "--on-damage cut"]);

    // Once is enough, also if nothing is written in that life.
    node.options.on_damage = Some("cut");
    node.restart();
    node.kill();
    node.options.on_damage = None;
    node.restart();
    node.stop();
    node.options.on_damage = Some("cut");
    node.restart();
    assert_all_there(&node);
    assert_eq!(node.client().say("SET after the-loss"), Reply::ok());
    node.kill();
    node.options.on_damage = None;
    node.restart();
    assert_eq!(node.client().say("GET after"), Reply::bulk("the-loss"));
}

#[test]
fn the_log_of_the_coordinator_that_a_node_brings_is_checked_too() {
    let mut node = Node::start(Options::default());
    assert_eq!(node.client().say("SET a 1"), Reply::ok());
    node.stop();
    let segments = Segment::below(&node.data_dir().join("coordinator"));
    let segment = segments
        .first()
        .expect("a segment of the coordinator's log");
    // The head of the oldest segment, which everything behind it proves to have been durable.
    segment.flip_bit(100);
    let (code, report) = node.check();
    assert_eq!(code, Some(1), "ephesus check:\n{report}");
    let lines = damage(&report);
    assert!(!lines.is_empty(), "ephesus check:\n{report}");
    for line in lines {
        assert!(line.starts_with("DAMAGE coordinator log: "), "{report}");
    }
    assert!(report.contains(&segment.name()), "{report}");
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["coordinator", &segment.name()]);
}

#[test]
fn a_layout_of_which_one_half_is_damaged_is_read_and_written_anew() {
    let mut node = Node::start(Options::default());
    node.client().say("SET a 1");
    node.stop();
    let layout = node.data_dir().join("layout");
    let sound = fs::read(&layout).expect("read the layout");
    for half in [0, sound.len() / 2] {
        let mut damaged = fs::read(&layout).expect("read the layout");
        damaged[half..half + 512].fill(0);
        fs::write(&layout, damaged).expect("write the layout");
        let (code, report) = node.check();
        assert_eq!(code, Some(0), "ephesus check:\n{report}");
        assert!(report.contains("layout: one of its two places"), "{report}");
        node.restart();
        assert_eq!(node.client().say("GET a"), Reply::bulk("1"));
        node.stop();
        let (code, report) = node.check();
        assert_eq!(code, Some(0), "ephesus check:\n{report}");
        assert!(!report.contains("layout: "), "{report}");
    }
}
