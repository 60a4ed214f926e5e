//! Clients that do what they should not; a well-behaved one is served meanwhile.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use ephesus_tests::bystander::Bystander;
use ephesus_tests::garbage::attack;
use ephesus_tests::resp::encode;
use ephesus_tests::{Client, Node, Options, Reply, Rng};

const KEY_MAX: usize = 64 << 10;
const VALUE_MAX: usize = 8 << 20;
/// How long the well-behaved client may wait on a machine with two busy cores.
const PATIENCE: Duration = Duration::from_secs(3);

/// Raises the limit of open files to what the system allows.
fn raise_file_limit(wanted: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a valid pointer to a plain struct.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    assert!(
        limit.rlim_cur >= wanted,
        "this test needs {wanted} open files; the hard limit is {} (ulimit -Hn)",
        limit.rlim_cur
    );
}

#[test]
fn keys_and_values_up_to_the_limits_work_and_above_are_refused() {
    let mut node = Node::start(Options::default());
    let bystander = Bystander::watch(node.port());
    let mut rng = Rng::new(1);
    let key = rng.bytes(KEY_MAX);
    let value = rng.bytes(VALUE_MAX);
    let mut client = node.client();
    assert_eq!(client.call(&[b"SET".as_slice(), &key, &value]), Reply::ok());
    assert!(client.call(&[b"GET".as_slice(), &key]) == Reply::Bulk(value.clone()));

    let long_key = vec![b'k'; KEY_MAX + 1];
    let long_value = vec![b'v'; VALUE_MAX + 1];
    for (what, request) in [
        ("key", vec![b"SET".to_vec(), long_key, b"v".to_vec()]),
        ("value", vec![b"SET".to_vec(), b"k".to_vec(), long_value]),
    ] {
        let mut client = node.client();
        let mut bytes = Vec::new();
        encode(&request, &mut bytes);
        // The node may refuse, and close, before it has read everything.
        let _ = client.send_raw(&bytes);
        let reply = client
            .receive()
            .unwrap_or_else(|error| panic!("a {what} too long: {error}"));
        assert!(
            reply.error().is_some(),
            "a {what} above the limit: {reply:?}"
        );
    }
    assert_eq!(node.client().say("EXISTS k"), Reply::Integer(0));

    let mut big = node.client();
    for _ in 0..9 {
        big.call(&[b"APPEND".as_slice(), b"grown", &value[..1 << 20]]);
    }
    let len = big.say("STRLEN grown").integer();
    assert!(
        len <= VALUE_MAX as i64,
        "APPEND grew a value to {len} bytes"
    );
    bystander.assert_served(PATIENCE);
    node.kill();
    node.restart();
    assert!(node.client().call(&[b"GET".as_slice(), &key]) == Reply::Bulk(value));
}

#[test]
fn a_request_with_too_many_arguments_ends_its_connection() {
    let node = Node::start(Options::default());
    let bystander = Bystander::watch(node.port());
    let mut client = node.client();
    client.send_raw(b"*1048577\r\n").expect("send");
    let (answer, closed) = client.drain(Duration::from_secs(10));
    assert!(
        answer.starts_with(b"-ERR Protocol error"),
        "{}",
        answer.escape_ascii()
    );
    assert!(closed, "the connection stays open");

    let mut client = node.client();
    let mut many = vec![b"EXISTS".to_vec()];
    many.extend((0..50_000).map(|i| format!("key:{i}").into_bytes()));
    assert_eq!(client.call(&many), Reply::Integer(0));
    bystander.assert_served(PATIENCE);
}

#[test]
fn a_request_above_the_query_buffer_ends_its_connection() {
    let node = Node::start(Options::default());
    let bystander = Bystander::watch(node.port());
    let before = node.process().resident_bytes();
    for _ in 0..4 {
        let mut client = node.client();
        let piece = vec![b'v'; 4 << 20];
        let mut request = b"*40\r\n$4\r\nMSET\r\n".to_vec();
        let mut refused = client.send_raw(&request).is_err();
        for i in 0..20 {
            request = format!("$5\r\nkey{i:02}\r\n${}\r\n", piece.len()).into_bytes();
            request.extend_from_slice(&piece);
            request.extend_from_slice(b"\r\n");
            refused = refused || client.send_raw(&request).is_err();
        }
        let (answer, closed) = client.drain(Duration::from_secs(10));
        assert!(
            refused || closed,
            "80 MiB in one request: {}",
            answer.escape_ascii()
        );
    }
    let grown = node.process().resident_bytes().saturating_sub(before);
    assert!(
        grown < 256 << 20,
        "{grown} bytes more after four refused requests"
    );
    bystander.assert_served(PATIENCE);
}

#[test]
fn half_requests_disturb_nobody() {
    let node = Node::start(Options::default());
    let bystander = Bystander::watch(node.port());
    let mut rng = Rng::new(ephesus_tests::seed_of_run("half requests"));
    let mut whole = Vec::new();
    encode(&["SET", "half", "must never be set"], &mut whole);
    let mut waiting = Vec::new();
    for i in 0..400 {
        let mut client = if i % 2 == 0 {
            node.client()
        } else {
            node.direct_client(0)
        };
        let cut = 1 + rng.below(whole.len() as u64 - 1) as usize;
        client.send_raw(&whole[..cut]).expect("send half a request");
        if i % 4 == 0 {
            client.finish_sending();
        }
        waiting.push(client);
        if rng.one_in(3) {
            let index = rng.below(waiting.len() as u64) as usize;
            waiting.swap_remove(index);
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(node.client().say("EXISTS half"), Reply::Integer(0));
    bystander.assert_served(PATIENCE);
}

/// A node that gives up on clients that do not read after a few seconds.
fn impatient() -> Options {
    Options {
        flags: [
            "--client-timeout-output",
            "3",
            "--max-client-memory",
            "256m",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Options::default()
    }
}

/// Sends requests over and over and reads nothing; answers how long it took until the connection was reset, and the most
/// memory that the node held for it.
fn flood(node: &Node, port: u16, requests: &[u8]) -> (Duration, u64) {
    let before = node.process().resident_bytes();
    let address = ("127.0.0.1", port);
    let mut stream = std::net::TcpStream::connect(address).expect("connected");
    stream.set_nonblocking(true).expect("set nonblocking");
    let begun = Instant::now();
    let (mut most, mut at) = (0, 0);
    loop {
        match stream.write(&requests[at..]) {
            Ok(written) => at = (at + written) % requests.len(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => return (begun.elapsed(), most),
        }
        most = most.max(node.process().resident_bytes().saturating_sub(before));
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "still connected");
    }
}

#[test]
fn a_client_that_reads_slowly_and_steadily_gets_everything() {
    let node = Node::start(impatient());
    let value = vec![b'x'; 8 << 20];
    let set = node
        .client()
        .call(&[b"SET".as_slice(), b"large", value.as_slice()]);
    assert_eq!(set, Reply::ok());
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", node.port())).expect("connected");
    stream.write_all(b"GET large\r\n").expect("asked");
    let mut piece = vec![0; 24 << 10];
    for _ in 0..14 {
        std::thread::sleep(Duration::from_millis(500));
        stream.read_exact(&mut piece).expect("still served");
    }
    let left = 10 + value.len() + 2 - 14 * piece.len();
    stream.read_exact(&mut vec![0; left]).expect("the rest");
}

#[test]
fn a_client_that_never_reads_holds_little_memory_and_is_reset() {
    let node = Node::start(impatient());
    let mut client = node.client();
    for i in 0..4 {
        let key = format!("big:{i}");
        assert_eq!(
            client.call(&[b"SET".as_slice(), key.as_bytes(), &vec![b'x'; 1 << 20]]),
            Reply::ok()
        );
    }
    let bystander = Bystander::watch(node.port());
    let mut gets = Vec::new();
    for i in 0..400 {
        encode(&["GET", &format!("big:{}", i % 4)], &mut gets);
    }
    let unknown = b"a\n".repeat(32 << 10);
    let arity = b"GET\n".repeat(16 << 10);
    std::thread::scope(|scope| {
        for port in [node.port(), node.direct_port(0)] {
            for requests in [&gets, &unknown, &arity] {
                let node = &node;
                scope.spawn(move || {
                    let (after, most) = flood(node, port, requests);
                    eprintln!("reset after {after:?}; {} MiB in all", most >> 20);
                    assert!(most < 512 << 20, "{most} bytes for six clients");
                });
            }
        }
    });
    bystander.assert_served(PATIENCE);
}

#[test]
fn five_thousand_idle_connections_cost_little_and_block_nobody() {
    const IDLE: usize = 5_000;
    raise_file_limit(IDLE as u64 + 1_000);
    let node = Node::start(Options::default());
    let ports = [node.port(), node.direct_port(1)];
    let warm = ports.map(Bystander::watch);
    std::thread::sleep(Duration::from_millis(300));
    for bystander in warm {
        bystander.assert_served(PATIENCE);
    }
    let before = node.process().resident_bytes();
    let bystanders = ports.map(Bystander::watch);
    // Plain streams: a buffered client of 64 KiB each would be this test's own memory.
    let mut idle: Vec<std::net::TcpStream> = (0..IDLE)
        .map(|i| {
            let port = node.port() + (i % 3) as u16;
            std::net::TcpStream::connect(("127.0.0.1", port))
                .unwrap_or_else(|error| panic!("connection {i}: {error}"))
        })
        .collect();
    for stream in &mut idle {
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("set a timeout");
        stream.write_all(b"PING\r\n").expect("send PING");
    }
    for (i, stream) in idle.iter_mut().enumerate() {
        let mut pong = [0; 7];
        stream
            .read_exact(&mut pong)
            .unwrap_or_else(|error| panic!("connection {i}: {error}"));
        assert_eq!(&pong, b"+PONG\r\n");
    }
    std::thread::sleep(Duration::from_secs(1));
    let each = node.process().resident_bytes().saturating_sub(before) / IDLE as u64;
    eprintln!("{each} bytes of resident memory per idle connection");
    assert!(each <= 4 << 10, "{each} bytes per idle connection");
    for bystander in bystanders {
        bystander.assert_served(PATIENCE);
    }
}

#[test]
fn clients_above_the_limit_are_told_so() {
    let node = Node::start(Options {
        shards: 1,
        max_clients: Some(20),
        ..Options::default()
    });
    // The connection that saw the node become ready is gone, and has to be counted off first.
    std::thread::sleep(Duration::from_millis(200));
    let mut clients: Vec<Client> = (0..20).map(|_| node.client()).collect();
    for client in &mut clients {
        assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
    }
    let mut refused = node.client();
    let reply = refused.try_call(&["PING"]);
    assert!(
        reply.as_ref().is_ok_and(
            |reply| *reply == Reply::Error("ERR max number of clients reached".to_owned())
        ),
        "client 21 of 20: {reply:?}"
    );
    clients.truncate(10);
    let deadline = Instant::now() + Duration::from_secs(5);
    while node
        .client()
        .try_call(&["PING"])
        .is_ok_and(|reply| reply.error().is_some())
    {
        assert!(Instant::now() < deadline, "closed connections still count");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn random_bytes_disturb_nobody() {
    let node = Node::start(Options::default());
    let bystander = Bystander::watch(node.port());
    let mut rng = Rng::new(ephesus_tests::seed_of_run("random bytes"));
    let starts: [&[u8]; 8] = [
        b"",
        b"*",
        b"*3\r\n$",
        b"*2\r\n$3\r\nGET\r\n$",
        b"$5\r\n",
        b"\0",
        b"HELLO 3\r\n",
        b"\r\n\"'",
    ];
    for i in 0..400u64 {
        let len = rng.between(1, 20_000) as usize;
        let mut bytes = rng.pick(&starts).to_vec();
        bytes.extend(rng.bytes(len));
        let mut client = if i % 2 == 0 {
            node.client()
        } else {
            node.direct_client((i % 4 / 2) as u16)
        };
        let _ = client.send_raw(&bytes);
        client.finish_sending();
        let (_, closed) = client.drain(Duration::from_secs(5));
        assert!(closed, "connection {i} stays open after its input ended");
    }
    let served = bystander.assert_served(PATIENCE);
    eprintln!(
        "{} requests served meanwhile, the slowest in {:?}",
        served.requests, served.slowest
    );
}

#[test]
fn garbage_at_the_port_for_other_nodes_is_closed_and_counted() {
    const ATTACKS: u64 = 60;
    let node = Node::start(Options::default());
    let bystander = Bystander::watch(node.port());
    let mut rng = Rng::new(ephesus_tests::seed_of_run("garbage for a node"));
    let address = format!("127.0.0.1:{}", node.port() + 10_000);
    for _ in 0..ATTACKS {
        attack(&address, &mut rng);
    }
    let told = node.client().say("INFO stats").text();
    let counted = format!("peer_links_opened:0\r\npeer_links_refused:{ATTACKS}\r\n");
    assert!(told.contains(&counted), "{told}");
    bystander.assert_served(PATIENCE);
    let output = node.process().output();
    let lines = output.matches("reason=\"not_a_peer\"").count();
    assert_eq!(lines, 1, "told once:\n{output}");
}
