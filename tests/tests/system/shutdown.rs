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
    let mut rng = Rng::new(Rng::seed_of_run("shutdown"));
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

#[test]
fn a_second_signal_exits_at_once_and_loses_nothing() {
    let mut rng = Rng::new(Rng::seed_of_run("second signal"));
    let mut node = Node::start(Options::default());
    let mut all = units();
    for _ in 0..5 {
        let load = Load::start(node.port(), all, &mut rng);
        std::thread::sleep(Duration::from_millis(300));
        load.expect_break();
        node.signal(libc::SIGTERM);
        std::thread::sleep(Duration::from_micros(rng.below(20_000)));
        node.signal(libc::SIGTERM);
        node.wait_exit(Duration::from_secs(2));
        all = load.finish();
        node.restart();
        ledger::verify(&mut node.client(), all.iter_mut().flatten());
    }
}
