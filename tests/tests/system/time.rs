//! Clocks that are wrong: keys expire when clients were told, and nothing else is taken by them.

use std::time::{Duration, Instant};

use ephesus_tests::{Node, Options, Reply, TestCluster};

const DAY_MS: i64 = 86_400_000;

/// Far less than a day, and enough for a loaded machine.
const SOON: Duration = Duration::from_secs(20);

fn ahead_ms(node: &Node) -> i64 {
    node.client().info("clock_ahead_ms") as i64
}

/// Starts a node again, with a clock that is wrong by so much.
fn restart(node: &mut Node, shift_ms: i64, flags: &[&str]) {
    if node.is_running() {
        node.stop();
    }
    node.options.flags = vec![format!("--clock-shift-ms={shift_ms}")];
    node.options
        .flags
        .extend(flags.iter().map(|&flag| flag.to_owned()));
    node.restart();
}

/// Waits until a key has expired.
fn expires(node: &Node, key: &str) {
    let mut client = node.client();
    let began = Instant::now();
    while !client.call(&["GET", key]).is_nil() {
        assert!(began.elapsed() < SOON, "{key} does not expire");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn set(node: &Node, key: &str, px: &str) {
    let reply = node.client().call(&["SET", key, "v", "PX", px]);
    assert_eq!(reply, Reply::ok());
}

fn node() -> Node {
    Node::stopped(Options {
        partitions: Some(8),
        ..Options::default()
    })
}

#[test]
fn a_clock_that_was_a_day_ahead_does_not_freeze_expiry() {
    let mut node = node();
    restart(&mut node, DAY_MS, &[]);
    set(&node, "while:ahead", "60000");
    assert!(ahead_ms(&node) < 1_000);
    restart(&mut node, 0, &[]);
    set(&node, "a", "1000");
    expires(&node, "a");
    assert!(ahead_ms(&node) > DAY_MS - 600_000);
    node.wait_says(&["clock is behind"], SOON);
    // Over a restart as well.
    set(&node, "b", "1000");
    restart(&mut node, 0, &[]);
    expires(&node, "b");
    assert!(ahead_ms(&node) > DAY_MS - 600_000);
    let mut client = node.client();
    let left = client.call(&["PTTL", "while:ahead"]).integer();
    assert!(left < 60_000, "{left} ms are left of 60 s");
    node.stop();
    let (code, text) = node.check();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("ahead of this machine's clock"), "{text}");
}

#[test]
fn a_clock_that_is_an_hour_behind_at_a_start_does_not_freeze_expiry() {
    let mut node = node();
    restart(&mut node, 0, &[]);
    set(&node, "gone", "1");
    expires(&node, "gone");
    restart(&mut node, -3_600_000, &[]);
    assert!(node.client().call(&["GET", "gone"]).is_nil());
    set(&node, "a", "1000");
    expires(&node, "a");
    assert!(ahead_ms(&node) > 3_000_000);
}

#[test]
fn a_typed_date_far_away_has_a_way_back() {
    let ten_years_ms = 3650 * DAY_MS;
    let mut node = node();
    restart(&mut node, ten_years_ms, &[]);
    let mut client = node.client();
    assert_eq!(client.call(&["SET", "kept", "v"]), Reply::ok());
    set(&node, "while:ahead", "3600000");
    node.stop();
    restart(&mut node, 0, &["--reset-clock"]);
    assert!(ahead_ms(&node) < 1_000);
    // A deadline stays what it is.
    let mut client = node.client();
    let left = client.call(&["PTTL", "while:ahead"]).integer();
    assert!(left > ten_years_ms, "{left}");
    set(&node, "a", "1000");
    expires(&node, "a");
    node.kill();
    // Once is enough, and the log is sound.
    restart(&mut node, 0, &[]);
    assert!(ahead_ms(&node) < 1_000);
    let mut client = node.client();
    assert_eq!(client.call(&["GET", "kept"]), Reply::bulk("v"));
    node.stop();
    let (code, text) = node.check();
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("ahead of"), "{text}");
}

#[test]
fn a_move_from_a_node_with_a_wrong_clock_takes_no_key_of_its_target() {
    let flags = ["--partitions", "8", "--assignment", "round-robin"];
    let whole = TestCluster::started_with(&flags, &["athens", "byzantium"], |whole, name| {
        let mut options = whole.options(name, 1);
        if name == "athens" {
            options.flags = vec!["--clock-shift-ms=3000000".to_owned()];
        }
        options
    });
    let mut client = whole.client();
    for n in 0..200 {
        let key = format!("key:{n}");
        let words: [&[u8]; 5] = [b"SET", key.as_bytes(), b"v", b"EX", b"1200"];
        assert_eq!(client.try_call(&words).expect("a reply"), Reply::ok());
    }
    let before = whole.count_keys();
    let moving = whole
        .table()
        .into_iter()
        .find(|row| row.node == "athens")
        .expect("half of them");
    let number = moving.partition.to_string();
    let words = [
        "move",
        "--partition",
        &number,
        "--to",
        "byzantium/0",
        "--wait",
    ];
    whole.core.ask(&words).assert(0, &[]);
    assert_eq!(before, 200);
    for n in 0..200 {
        let key = format!("key:{n}");
        let words: [&[u8]; 2] = [b"GET", key.as_bytes()];
        let reply = client.try_call(&words).expect("a reply");
        assert_eq!(reply, Reply::bulk("v"), "{key}");
    }
    let byzantium = &whole.nodes[1];
    set_somewhere(byzantium);
    assert!(ahead_ms(byzantium) < 1_000);
}

/// A key that the node serves expires in time.
fn set_somewhere(node: &Node) {
    let mut client = node.client();
    let key = (0..100).map(|n| format!("short:{n}")).find(|key| {
        let reply = client.call(&["SET", key, "v", "PX", "1000"]);
        reply == Reply::ok()
    });
    expires(node, &key.expect("a key of the node's"));
}
