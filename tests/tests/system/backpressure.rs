//! What has to wait waits, and nothing that was sent is dropped or half done.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ephesus_tests::resp::encode;
use ephesus_tests::slots::{SLOTS, slot};
use ephesus_tests::{Client, Node, Options, Reply};

const MIB: u64 = 1 << 20;

/// Keys of the upper half of the slots, which the second of two shards has.
fn keys_of_the_second_shard() -> impl Iterator<Item = String> {
    let keys = (0..).map(|n| format!("key:{n}"));
    keys.filter(|key| slot(key.as_bytes()) >= SLOTS / 2)
}

#[test]
fn writes_that_come_by_way_of_another_shard_keep_to_the_log_budget() {
    const BUDGET: u64 = 64 * MIB;
    const SEGMENT: u64 = 16 * MIB;
    let node = Node::start(Options {
        wal_budget: Some(BUDGET),
        durability: Some("relaxed"),
        ..Options::default()
    });
    let keys: Vec<String> = keys_of_the_second_shard().take(256).collect();
    let done = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (mut client, keys) = (node.client(), &keys);
                scope.spawn(move || {
                    let value = vec![b'v'; 64 << 10];
                    let requests: Vec<Vec<Vec<u8>>> = (0..16)
                        .map(|n| {
                            let key = &keys[(writer * 31 + n * 7) % keys.len()];
                            vec![b"SET".to_vec(), key.clone().into(), value.clone()]
                        })
                        .collect();
                    for _ in 0..40 {
                        let replies = client.pipeline(&requests);
                        assert!(replies.iter().all(|reply| *reply == Reply::ok()));
                    }
                })
            })
            .collect();
        let watch = scope.spawn(|| {
            let mut client = node.direct_client(1);
            let mut longest = 0;
            while !done.load(Ordering::Acquire) {
                longest = longest.max(client.info("wal_bytes"));
                std::thread::sleep(Duration::from_millis(5));
            }
            longest
        });
        for writer in writers {
            writer.join().expect("every write is taken");
        }
        done.store(true, Ordering::Release);
        watch.join().expect("the log is watched")
    });
    eprintln!("the log had at most {} MiB", longest / MIB);
    assert!(longest > BUDGET / 4, "the log was never under pressure");
    // And what was under way between the shards when the budget was reached.
    let most = BUDGET / 2 + SEGMENT + 4 * MIB;
    assert!(longest <= most, "{} MiB of log", longest / MIB);
}

#[test]
fn commands_before_the_end_of_input_are_executed_also_while_one_blocks() {
    const COMMANDS: usize = 400;
    let node = Node::start(Options::default());
    let mut loader = node.client();
    let load: Vec<Vec<Vec<u8>>> = (0..60_000)
        .map(|n| vec![b"SET".to_vec(), format!("load:{n}").into(), b"v".to_vec()])
        .collect();
    loader.pipeline(&load);
    for round in 0..4 {
        let mut client = node.client();
        let mut bytes = Vec::new();
        encode(&["KEYS", "nothing*"], &mut bytes);
        for n in 0..COMMANDS {
            encode(&["SET", &format!("tail:{round}:{n}"), "v"], &mut bytes);
        }
        client.send_raw(&bytes).expect("sent");
        client.finish_sending();
        let (replies, closed) = client.drain(Duration::from_secs(20));
        assert!(closed, "the connection ends");
        let expected = [b"*0\r\n".to_vec(), b"+OK\r\n".repeat(COMMANDS)].concat();
        assert_eq!(replies.len(), expected.len(), "every command is answered");
        assert_eq!(replies, expected);
        let last = format!("GET tail:{round}:{}", COMMANDS - 1);
        assert_eq!(loader.say(&last), Reply::bulk("v"));
    }
}

/// So many files a node of [`few_files`] may have open.
const FILES: usize = 160;

/// What such a node says when it has them open.
const TOLD: &str = "connections cannot be accepted";

fn few_files() -> Options {
    let limited = format!("ulimit -n {FILES}; exec \"$@\"");
    Options {
        wrapper: ["sh", "-c", &limited, "sh"].map(str::to_owned).to_vec(),
        ..Options::default()
    }
}

#[test]
fn clients_leave_descriptors_for_the_logs_segments() {
    let limited = "ulimit -n 300; exec \"$@\"";
    let node = Node::start(Options {
        wrapper: ["sh", "-c", limited, "sh"].map(str::to_owned).to_vec(),
        wal_budget: Some(256 * MIB),
        ..Options::default()
    });
    let output = node.process().output();
    assert!(
        output.contains("is lowered to 84 for each shard"),
        "{output}"
    );
    let mut early = node.client();
    let clients = early.say("INFO clients").text();
    assert!(clients.contains("maxclients:168"), "{clients}");
    assert_eq!(
        early.say("CONFIG GET maxclients").items()[1],
        Reply::bulk("168")
    );
    let writers: Vec<Client> = (0..400).map(|_| node.client()).collect();
    let value = vec![b'v'; MIB as usize];
    for n in 0..40 {
        let key = format!("{{one log}}:{n}").into_bytes();
        let reply = early.call(&[b"SET".to_vec(), key, value.clone()]);
        assert_eq!(reply, Reply::ok(), "write {n}");
    }
    drop(writers);
}

/// Changes how many files a running process may have open.
fn limit_files(node: &Node, files: u64) {
    let limit = libc::rlimit {
        rlim_cur: files,
        rlim_max: files,
    };
    let pid = node.process().pid() as libc::pid_t;
    // SAFETY: sets a limit of a child from plain data.
    let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_node_out_of_file_descriptors_waits_and_then_accepts_again() {
    let limited = "ulimit -n 4096; exec \"$@\"";
    let mut node = Node::stopped(Options {
        wrapper: ["sh", "-c", limited, "sh"].map(str::to_owned).to_vec(),
        wal_budget: Some(256 * MIB),
        ..Options::default()
    });
    node.spawn();
    node.wait_says(&["is lowered to"], Duration::from_secs(10));
    // Fewer than it has reckoned with, and before it begins to accept: the kernel looks at the limit then.
    limit_files(&node, FILES as u64);
    node.wait_ready().expect("it starts");
    // Connected is not accepted yet: a shard with many to accept may come to it when no file is left.
    let mut early = node.client();
    assert_eq!(early.say("PING"), Reply::Simple("PONG".into()));
    let writers: Vec<Client> = (0..2 * FILES).map(|_| node.client()).collect();
    node.wait_says(&[TOLD], Duration::from_secs(10));
    let value = vec![b'v'; MIB as usize];
    let mut sets = Vec::new();
    for n in 0..60 {
        encode(
            &[
                b"SET".to_vec(),
                format!("{{one log}}:{n}").into(),
                value.clone(),
            ],
            &mut sets,
        );
    }
    let mut writer = early.stream().try_clone().expect("a second handle");
    let writes = std::thread::spawn(move || writer.write_all(&sets));
    node.wait_says(&["the log's files wait"], Duration::from_secs(10));
    let before = node.process().cpu_time();
    std::thread::sleep(Duration::from_secs(2));
    let used = node.process().cpu_time() - before;
    assert!(used < Duration::from_secs(1), "{used:?} of CPU in 2 s");
    drop(writers);
    for n in 0..60 {
        assert_eq!(
            early.receive().expect("an answer"),
            Reply::ok(),
            "write {n}"
        );
    }
    writes.join().expect("no panic").expect("all is sent");
    assert_eq!(early.say("PING"), Reply::Simple("PONG".into()));
    let deadline = Instant::now() + Duration::from_secs(10);
    while node.client().try_call(&["PING"]).is_err() {
        assert!(Instant::now() < deadline, "nobody is accepted again");
    }
    let lines = node.process().output().matches(TOLD).count();
    assert!(lines <= 8, "{lines} lines about it");
}

#[test]
fn clients_that_wait_for_a_node_to_start_do_not_keep_its_shards_from_starting() {
    let mut node = Node::stopped(Options {
        shards: 6,
        ..few_files()
    });
    node.spawn();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut writers = Vec::new();
    while writers.len() < 2 * FILES {
        assert!(Instant::now() < deadline, "nobody listens");
        match Client::connect_to(node.entry()) {
            Ok(client) => writers.push(client),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    assert!(!node.has_exited(), "{}", node.process().output());
    drop(writers);
    node.wait_ready().expect("every shard has started");
}

#[test]
fn a_command_over_shards_that_breaks_a_limit_has_no_effect_on_any() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    let long = "k".repeat((64 << 10) + 1);
    let big = "v".repeat((8 << 20) + 1);
    for (key, value) in [(long.as_str(), "v"), ("big", big.as_str())] {
        let mut words = vec!["MSET".to_owned()];
        for n in 0..20 {
            words.extend([format!("other:{n}"), "v".to_owned()]);
        }
        words.extend([key.to_owned(), value.to_owned()]);
        let reply = client.call(&words);
        assert!(reply.error().is_some(), "{reply:?}");
        assert_eq!(client.say("DBSIZE"), Reply::Integer(0), "{reply:?}");
    }
}

/// A key of each of two shards, with a value of so many bytes.
fn values_on_both(node: &Node, bytes: usize) -> [String; 2] {
    let mut here = (0..).map(|n| format!("key:{n}"));
    let here = here.find(|key| slot(key.as_bytes()) < SLOTS / 2);
    let keys = [here, keys_of_the_second_shard().next()].map(|key| key.expect("there are many"));
    let mut client = node.client();
    for key in &keys {
        let set = [b"SET".to_vec(), key.clone().into(), vec![b'v'; bytes]];
        assert_eq!(client.call(&set), Reply::ok());
    }
    keys
}

/// Sends all requests before it reads the first reply; the replies.
fn all_at_once(client: &mut Client, requests: &[Vec<Vec<u8>>]) -> Vec<Reply> {
    let mut bytes = Vec::new();
    requests
        .iter()
        .for_each(|request| encode(request, &mut bytes));
    client.send_raw(&bytes).expect("all is read");
    let replies = requests.iter().map(|_| client.receive().expect("a reply"));
    replies.collect()
}

fn get(key: &str) -> Vec<Vec<u8>> {
    vec![b"GET".to_vec(), key.into()]
}

#[test]
fn large_replies_come_to_a_client_that_reads_however_many_it_has_asked_for() {
    let node = Node::start(Options::default());
    let ports = [node.port(), node.direct_port(0), node.direct_port(1)];
    let keys = values_on_both(&node, MIB as usize);
    let before = node.process().resident_bytes();
    for (port, keys) in ports.into_iter().zip([&keys[..], &keys[..1], &keys[1..]]) {
        let mut client = Client::connect_to(([127, 0, 0, 1], port).into()).expect("connected");
        let all = |count: usize| keys.iter().cycle().take(count);
        let gets: Vec<_> = all(200).map(|key| get(key)).collect();
        for reply in all_at_once(&mut client, &gets) {
            assert!(matches!(reply, Reply::Bulk(value) if value.len() == MIB as usize));
        }
        let mget = std::iter::once("MGET").chain(all(128).map(String::as_str));
        let reply = client.call(&mget.collect::<Vec<_>>());
        let Reply::Array(values) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(values.len(), 128);
    }
    let grown = node.process().resident_bytes().saturating_sub(before);
    eprintln!("{} MiB more", grown / MIB);
}

#[test]
fn a_client_that_sends_large_requests_before_it_reads_does_not_hang() {
    let node = Node::start(Options::default());
    let bytes = 8 * MIB as usize;
    let keys = values_on_both(&node, bytes);
    for port in [node.port(), node.direct_port(0)] {
        let mut client = Client::connect_to(([127, 0, 0, 1], port).into()).expect("connected");
        let key = &keys[0];
        let set = vec![b"SET".to_vec(), key.clone().into(), vec![b'w'; bytes]];
        let other = if port == node.port() { &keys[1] } else { key };
        let gets = (0..12).map(|n| get(if n % 2 == 0 { key } else { other }));
        let requests: Vec<_> = gets.chain(std::iter::repeat_n(set, 4)).collect();
        let replies = all_at_once(&mut client, &requests);
        assert_eq!(replies.len(), 16);
        assert!(replies[12..].iter().all(|reply| *reply == Reply::ok()));
    }
}

#[test]
fn a_reply_that_is_too_long_is_an_error_before_it_is_made() {
    let node = Node::start(Options {
        flags: vec!["--max-client-memory".into(), "64m".into()],
        ..Options::default()
    });
    let keys = values_on_both(&node, 8 * MIB as usize);
    let before = node.process().resident_bytes();
    for (port, keys) in [(node.port(), &keys[..]), (node.direct_port(0), &keys[..1])] {
        let mut client = Client::connect_to(([127, 0, 0, 1], port).into()).expect("connected");
        let mget = |count: usize| {
            let keys = keys.iter().cycle().take(count);
            let words = std::iter::once("MGET").chain(keys.map(String::as_str));
            words.collect::<Vec<_>>()
        };
        let reply = client.call(&mget(400));
        let error = reply.error().unwrap_or_else(|| panic!("400 values came"));
        assert!(error.contains("reply"), "{error}");
        assert!(matches!(client.call(&mget(3)), Reply::Array(values) if values.len() == 3));
    }
    let grown = node.process().resident_bytes().saturating_sub(before);
    assert!(grown < 192 * MIB, "{grown} bytes");
}

#[test]
fn memory_of_large_replies_goes_back_to_the_system() {
    let node = Node::start(Options::default());
    let key = &values_on_both(&node, MIB as usize)[0];
    let before = node.process().resident_bytes();
    let words = std::iter::once("MGET").chain(std::iter::repeat_n(key.as_str(), 50));
    let mget: Vec<&str> = words.collect();
    for _ in 0..20 {
        let reply = node.direct_client(0).call(&mget);
        assert!(matches!(reply, Reply::Array(values) if values.len() == 50));
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let grown = node.process().resident_bytes().saturating_sub(before);
        if grown < 24 * MIB {
            break;
        }
        assert!(Instant::now() < deadline, "{grown} bytes are kept");
        std::thread::sleep(Duration::from_millis(100));
    }
}
