//! SIGTERM and SIGINT drain, sync and close; a second signal exits at once.

use std::time::{Duration, Instant};

use ephesus_tests::ledger::{self, Unit};
use ephesus_tests::load::Load;
use ephesus_tests::process::describe;
use ephesus_tests::{Client, Node, Options, Reply, Rng};

fn units() -> Vec<Vec<Unit>> {
    (0..4)
        .map(|writer| (writer * 50..writer * 50 + 50).map(Unit::new).collect())
        .collect()
}

#[test]
fn a_signal_under_load_ends_with_code_0_and_all_data() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("shutdown"));
    let mut node = Node::start(Options::default());
    let mut all = units();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGTERM] {
        let load = Load::start(node.port(), all, &mut rng);
        std::thread::sleep(Duration::from_millis(500));
        load.expect_break();
        node.signal(signal);
        let status = node.wait_exit(Duration::from_secs(30));
        assert_eq!(
            status.code(),
            Some(0),
            "signal {signal} led to {}",
            describe(status)
        );
        assert!(load.acknowledged() > 0);
        all = load.finish();
        node.restart();
        ledger::verify(&mut node.client(), all.iter_mut().flatten());
    }
}

#[test]
fn idle_connections_do_not_hold_up_a_shutdown() {
    let mut node = Node::start(Options::default());
    let mut idle: Vec<Client> = (0..50).map(|_| node.client()).collect();
    idle[0]
        .send_raw(b"*2\r\n$3\r\nGET\r\n$100\r\nhalf")
        .expect("send half a request");
    assert_eq!(node.client().say("SET a 1"), Reply::ok());
    let begun = Instant::now();
    node.stop();
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        begun.elapsed()
    );
    assert!(Client::connect(node.port()).is_err(), "the port is closed");
    node.restart();
    assert_eq!(node.client().say("GET a"), Reply::bulk("1"));
}

/// How long a stopping node waits for clients to take their replies.
const DRAIN: Duration = Duration::from_secs(3);

/// A client that asks for more than the sockets hold and reads nothing: a stopping node waits for it.
fn greedy(node: &Node) -> Client {
    const VALUE_BYTES: usize = 4 << 20;
    let mut client = node.client();
    let value = vec![b'v'; VALUE_BYTES];
    let set = client.call(&[b"SET".as_slice(), b"greedy", &value]);
    assert_eq!(set, Reply::ok());
    for _ in 0..8 {
        client.send(&["GET", "greedy"]).expect("send GET");
    }
    client
}

/// The first signal, until the node has said that it stops.
fn begin_stop(node: &Node, signal: i32) -> Instant {
    let begun = Instant::now();
    node.signal(signal);
    node.wait_says(&["stopping"], Duration::from_secs(2));
    begun
}

#[test]
fn a_client_that_reads_nothing_holds_a_shutdown_up_for_seconds_only() {
    let mut node = Node::start(Options::default());
    let _greedy = greedy(&node);
    let begun = begin_stop(&node, libc::SIGTERM);
    let status = node.wait_exit(Duration::from_secs(20));
    let took = begun.elapsed();
    assert_eq!(status.code(), Some(0), "{}", describe(status));
    let least = DRAIN - Duration::from_millis(500);
    assert!(took > least && took < 3 * DRAIN, "it took {took:?}");
}

#[test]
fn a_second_signal_exits_at_once_and_loses_nothing() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("second signal"));
    let mut node = Node::start(Options::default());
    let mut all = units();
    for (first, second) in [
        (libc::SIGTERM, libc::SIGTERM),
        (libc::SIGTERM, libc::SIGINT),
        (libc::SIGINT, libc::SIGTERM),
    ] {
        let load = Load::start(node.port(), all, &mut rng);
        let greedy = greedy(&node);
        std::thread::sleep(Duration::from_millis(300));
        load.expect_break();
        let begun = begin_stop(&node, first);
        std::thread::sleep(Duration::from_micros(rng.below(500_000)));
        assert!(!node.has_exited(), "there was no drain to cut short");
        node.signal(second);
        let status = node.wait_exit(Duration::from_secs(1));
        let took = begun.elapsed();
        assert_eq!(status.code(), Some(128 + second), "{}", describe(status));
        assert!(
            took < DRAIN - Duration::from_millis(500),
            "it took {took:?}"
        );
        drop(greedy);
        assert!(load.acknowledged() > 0);
        all = load.finish();
        node.restart();
        ledger::verify(&mut node.client(), all.iter_mut().flatten());
    }
}
