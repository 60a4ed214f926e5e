//! A whole node through its ports: whatever comes, it lives and answers its clients.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use ephesus_tests::{Node, Options, Reply, Rng};

use super::mutations::input;

/// How far other nodes' and the coordinator's ports are from the entry port.
const OTHER_PORTS: [u16; 2] = [10_000, 20_000];

/// Connections that send something wrong.
const CONNECTIONS: u64 = 300;

/// Sends bytes, and takes what comes back for a moment.
fn send(port: u16, bytes: &[u8], rng: &mut Rng) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return;
    };
    let moment = Duration::from_millis(1 + rng.below(20));
    stream.set_read_timeout(Some(moment)).expect("a timeout");
    stream.set_write_timeout(Some(moment)).expect("a timeout");
    let middle = rng.below(bytes.len() as u64 + 1) as usize;
    let _ = stream.write_all(&bytes[..middle]);
    let _ = stream.write_all(&bytes[middle..]);
    if rng.one_in(2) {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let _ = stream.read(&mut [0; 4096]);
}

/// Commands with words that mean something, in all orders.
fn commands(rng: &mut Rng) -> Vec<u8> {
    const WORDS: [&str; 44] = [
        "SET",
        "GET",
        "DEL",
        "MSET",
        "MGET",
        "APPEND",
        "INCRBY",
        "EXPIRE",
        "PEXPIREAT",
        "PERSIST",
        "SCAN",
        "KEYS",
        "RENAME",
        "GETEX",
        "CLIENT",
        "CONFIG",
        "CLUSTER",
        "COMMAND",
        "INFO",
        "HELLO",
        "DBSIZE",
        "RANDOMKEY",
        "TTL",
        "LIST",
        "SETNAME",
        "ID",
        "INFO",
        "SLOTS",
        "SHARDS",
        "GETKEYSINSLOT",
        "COUNTKEYSINSLOT",
        "MIGRATESLOTS",
        "DOCS",
        "COUNT",
        "MATCH",
        "EX",
        "PX",
        "NX",
        "XX",
        "KEEPTTL",
        "3",
        "-1",
        "9223372036854775807",
        "k",
    ];
    let mut out = Vec::new();
    for _ in 0..1 + rng.below(8) {
        let count = 1 + rng.below(6);
        out.extend(format!("*{count}\r\n").into_bytes());
        for _ in 0..count {
            let word = match rng.below(6) {
                0 => {
                    let len = rng.below(30) as usize;
                    rng.bytes(len)
                }
                _ => rng.pick(&WORDS).as_bytes().to_vec(),
            };
            out.extend(format!("${}\r\n", word.len()).into_bytes());
            out.extend(word);
            out.extend(b"\r\n");
        }
    }
    out
}

#[test]
fn a_node_lives_whatever_comes_through_its_ports() {
    let mut node = Node::start(Options::default());
    let mut bystander = node.client();
    let set = bystander.call(&["SET", "bystander", "here"]);
    assert_eq!(set, Reply::ok());
    let mut rng = Rng::new(ephesus_tests::seed_of_run("nodes"));
    let connections = CONNECTIONS.max(super::cases() / 100);
    let hello: Vec<u8> = {
        let mut bytes = b"EphF".to_vec();
        bytes.extend_from_slice(&[1, 0, 1, 0, 88, 0, 0, 0]);
        bytes.resize(120, 3);
        bytes
    };
    for n in 0..connections {
        let bytes = commands(&mut rng);
        let (port, bytes) = match n % 4 {
            0 => (node.port(), bytes),
            1 => (node.direct_port(0), input(&mut rng, &[bytes])),
            2 => (node.port(), input(&mut rng, &[bytes])),
            _ => {
                let port = node.port() + rng.pick(&OTHER_PORTS);
                (port, input(&mut rng, &[hello.clone(), bytes]))
            }
        };
        send(port, &bytes, &mut rng);
        if n % 10 == 0 {
            assert!(!node.has_exited(), "{}", bytes.escape_ascii());
            let pong = Reply::Simple("PONG".to_owned());
            assert_eq!(bystander.call(&["PING"]), pong);
        }
    }
    assert!(!node.has_exited());
    node.stop();
}
