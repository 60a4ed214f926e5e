use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use super::replies::{Replies, Written};
use super::*;

fn all(pieces: &[&[u8]]) -> Vec<Written> {
    let mut replies = Replies::default();
    let mut found = Vec::new();
    for piece in pieces {
        let taken = replies.take(piece, |one| found.push(one));
        taken.expect("replies");
    }
    found
}

#[test]
fn replies_are_read_wherever_they_are_cut() {
    let stream = b"+OK\r\n-MOVED 12 127.0.0.1:7000\r\n-CLUSTERDOWN no lease\r\n+OK\r\n";
    let expected = vec![
        Written::Done,
        Written::Moved("127.0.0.1:7000".parse().expect("address")),
        Written::Refused("CLUSTERDOWN".to_owned()),
        Written::Done,
    ];
    for cut in 0..stream.len() {
        assert_eq!(all(&[&stream[..cut], &stream[cut..]]), expected, "{cut}");
    }
}

#[test]
fn other_replies_are_refused() {
    for wrong in [&b":1\r\n"[..], b"+OK\n", b"-MOVED 1 nowhere\r\n"] {
        assert!(Replies::default().take(wrong, |_| {}).is_err());
    }
    assert!(Replies::default().take(&[b'x'; 5000], |_| {}).is_err());
}

/// Answers every command on one connection with `reply`.
fn serve(listener: TcpListener, reply: Vec<u8>) {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            let commands = chunk[..length].iter().filter(|&&byte| byte == b'*').count();
            if stream.write_all(&reply.repeat(commands)).is_err() {
                return;
            }
        }
    });
}

#[test]
fn writes_follow_what_has_moved_and_are_told_apart_by_phase() {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    let (source, target) = (listen(), listen());
    let config = LoadConfig {
        address: source.local_addr().expect("address"),
        rate: 1000,
        connections: 1,
        pipeline: 2,
        keys: vec![7],
        value_bytes: 3,
    };
    let moved = target.local_addr().expect("address");
    serve(source, format!("-MOVED 1 {moved}\r\n").into_bytes());
    serve(target, b"+OK\r\n".to_vec());
    let mut load = Load::start(config).expect("load");
    load.enter(Phase::During);
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline {
        load.check().expect("it goes on");
        thread::sleep(Duration::from_millis(10));
    }
    let found = load.finish().expect("found");
    let done: u64 = found.phases.iter().map(|phase| phase.latency.count).sum();
    assert!(found.phases[Phase::During as usize].latency.count > 0);
    assert_eq!(found.phases[Phase::Before as usize].latency.count, 0);
    // Had it not learned, every write would have been sent twice.
    assert!((1..done / 2).contains(&found.redirects), "{found:?}");
    assert!(found.errors.is_empty() && !found.overloaded, "{found:?}");
}

#[test]
fn errors_and_broken_connections_are_counted() {
    let source = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    let config = LoadConfig {
        address: source.local_addr().expect("address"),
        rate: 1000,
        connections: 1,
        pipeline: 1,
        keys: vec![1],
        value_bytes: 3,
    };
    let serving = thread::spawn(move || {
        let (mut first, _) = source.accept().expect("a connection");
        let mut chunk = [0; 16];
        let _ = first.read(&mut chunk).expect("a command");
        drop(first);
        serve(source, b"-TRYAGAIN later\r\n".to_vec());
    });
    let load = Load::start(config).expect("load");
    thread::sleep(Duration::from_millis(200));
    let found = load.finish().expect("found");
    serving.join().expect("served");
    assert!(found.errors.contains_key("connection closed"), "{found:?}");
    assert!(found.errors.contains_key("TRYAGAIN"), "{found:?}");
}

#[test]
fn nothing_to_write_is_refused() {
    let config = LoadConfig {
        address: "127.0.0.1:1".parse().expect("address"),
        rate: 1,
        connections: 1,
        pipeline: 1,
        keys: Vec::new(),
        value_bytes: 1,
    };
    assert!(Load::start(config).is_err());
}
