use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use super::*;

fn traffic(listener: &TcpListener, pipeline: u32) -> Traffic {
    Traffic {
        address: listener.local_addr().expect("address"),
        rate: 1000,
        connections: 1,
        pipeline,
        value_bytes: 3,
        apart: None,
        spins: false,
        is_patient: true,
    }
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
    let traffic = traffic(&source, 2);
    let moved = target.local_addr().expect("address");
    serve(source, format!("-MOVED 1 {moved}\r\n").into_bytes());
    serve(target, b"+OK\r\n".to_vec());
    let mut load = Load::start(traffic, vec![7]).expect("load");
    load.enter(Phase::During);
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline {
        load.check().expect("it goes on");
        thread::sleep(Duration::from_millis(10));
    }
    let found = load.finish().expect("found");
    let done = found.phase(Phase::During).all.count + found.phase(Phase::WarmUp).all.count;
    assert!(found.phase(Phase::During).all.count > 0);
    assert_eq!(found.phase(Phase::Before).all.count, 0);
    // Had it not learned, every write would have been sent twice.
    assert!((1..done / 2).contains(&found.redirects), "{found:?}");
    assert!(found.errors.is_empty() && !found.overloaded, "{found:?}");
}

#[test]
fn errors_and_broken_connections_are_counted() {
    let source = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    let traffic = traffic(&source, 1);
    let serving = thread::spawn(move || {
        let (mut first, _) = source.accept().expect("a connection");
        let mut chunk = [0; 16];
        let _ = first.read(&mut chunk).expect("a command");
        drop(first);
        serve(source, b"-TRYAGAIN later\r\n".to_vec());
    });
    let load = Load::start(traffic, vec![7]).expect("load");
    thread::sleep(Duration::from_millis(200));
    let found = load.finish().expect("found");
    serving.join().expect("served");
    assert!(found.errors.contains_key("connection closed"), "{found:?}");
    assert!(found.errors.contains_key("TRYAGAIN"), "{found:?}");
}

#[test]
fn nothing_to_write_is_refused() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    assert!(Load::start(traffic(&listener, 1), Vec::new()).is_err());
}
