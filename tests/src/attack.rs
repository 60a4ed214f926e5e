//! Clients that mean harm: what each sends, and how it goes about it.
//!
//! All of them share one CPU at a low priority, so that what others suffer is what the node lets them
//! suffer, not the attackers' own use of the machine.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::node::Node;
use crate::resp::encode;
use crate::slots::{SLOTS, slot};

/// How much lower than other threads' the priority of attackers is.
const NICE: i32 = 10;

/// How long an attacker rests when none of its connections could take a byte.
const REST: Duration = Duration::from_millis(2);

/// How long one write or read may take before the attacker looks whether it shall stop.
const SOCKET_TIMEOUT: Duration = Duration::from_millis(50);

/// A value as large as values may be.
const LARGEST_VALUE: usize = 8 << 20;

/// Shards over which the keys of one command are spread, and what each has of them.
pub const SPREAD: u16 = 4;
const SPREAD_VALUE: usize = 2 << 20;

/// Nearly as much as one request may have.
const LARGE_REQUEST: usize = 31 << 20;

/// How a part of an attack behaves.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// So many connections send the bytes over and over and never read.
    Stuff(usize),
    /// So many connections send the bytes once and stay, without reading.
    Once(usize),
    /// Connects, sends the bytes and leaves, over and over.
    Leave,
    /// So many connections send the bytes over and over, and read what comes.
    Converse(usize),
    /// Sends the bytes in pieces of so many, reads what comes, and begins again.
    Pieces(usize),
}

/// Where a part of an attack goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Entry,
    /// The direct port of the first shard.
    Direct,
    /// The port for other nodes.
    Peers,
    /// The port of the embedded coordinator.
    Coordinator,
}

/// Connections of one kind.
#[derive(Clone, Debug)]
pub struct Part {
    pub door: Door,
    pub manner: Manner,
    pub bytes: Vec<u8>,
}

/// A name and what belongs to it.
#[derive(Clone, Debug)]
pub struct Attack {
    pub name: &'static str,
    pub parts: Vec<Part>,
}

/// A key of the given shard of so many.
fn key_of((shard, shards): (u16, u16), name: &str) -> String {
    let share = SLOTS / shards;
    let keys = (0..).map(|n| format!("{name}:{n}"));
    let mut here = keys.filter(|key| slot(key.as_bytes()) / share == shard);
    here.next().expect("some key lies in the shard")
}

fn request<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(args, &mut bytes);
    bytes
}

/// Puts the data in place that attacks refer to: values of 8 MiB at both shards, a long key, many
/// small ones.
///
/// # Panics
/// When the node refuses.
pub fn prepare(node: &Node) {
    let mut client = node.client();
    let value = vec![b'v'; LARGEST_VALUE - 4096];
    for shard in 0..2 {
        let key = key_of((shard, 2), "large");
        let reply = client.call(&[b"SET".as_slice(), key.as_bytes(), &value]);
        assert!(reply.error().is_none(), "{reply:?}");
    }
    for key in spread_keys() {
        let reply = client.call(&[b"SET".as_slice(), key.as_bytes(), &value[..SPREAD_VALUE]]);
        assert!(reply.error().is_none(), "{reply:?}");
    }
    let long_key = vec![b'a'; 64_000];
    client.call(&[b"SET".as_slice(), &long_key, b"v"]);
    for thousand in 0..200 {
        let small: Vec<Vec<Vec<u8>>> = (0..1000)
            .map(|n| {
                vec![
                    b"SET".to_vec(),
                    format!("small:{thousand}:{n}").into(),
                    b"v".to_vec(),
                ]
            })
            .collect();
        client.pipeline(&small);
    }
}

/// A key of each of four shards.
fn spread_keys() -> Vec<String> {
    let keys = (0..SPREAD).map(|shard| key_of((shard, SPREAD), "spread"));
    keys.collect()
}

/// Large replies that all shards make at once, behind many small ones.
fn replies_of_all_shards() -> Attack {
    let keys = spread_keys();
    let words: Vec<&str> = std::iter::once("MGET")
        .chain(keys.iter().map(String::as_str))
        .collect();
    let one = [request(&["PING"]).repeat(64), request(&words)].concat();
    Attack {
        name: "MGETs of all shards, unread",
        parts: vec![Part {
            door: Door::Entry,
            manner: Manner::Stuff(64),
            bytes: one.repeat(4),
        }],
    }
}

/// Every attack, each a fault of its own kind.
pub fn all() -> Vec<Attack> {
    let (near, far) = (key_of((0, 2), "large"), key_of((1, 2), "large"));
    let part = |door, manner, bytes: Vec<u8>| Part {
        door,
        manner,
        bytes,
    };
    let one = |name, door, manner, bytes| Attack {
        name,
        parts: vec![part(door, manner, bytes)],
    };
    let many = |word: &str, count: usize| -> Vec<Vec<u8>> {
        std::iter::repeat_n(word.as_bytes().to_vec(), count).collect()
    };
    let with = |head: &[&str], tail: Vec<Vec<u8>>| {
        let head = head.iter().map(|word| word.as_bytes().to_vec());
        request(&head.chain(tail).collect::<Vec<_>>())
    };
    let gets = |key: &str, count: usize| request(&["GET", key]).repeat(count);
    let class = format!("*[{}]z", "b".repeat(1 << 20));
    let questions = "?".repeat(1 << 10);
    let stars = format!("*{}b", "a".repeat(1000));
    let name = "n".repeat(LARGE_REQUEST);
    let million = with(&["EXISTS"], many("k", 1_000_000));
    let half = [
        format!("*2\r\n$3\r\nGET\r\n${}\r\n", LARGE_REQUEST + 9).into_bytes(),
        vec![b'x'; LARGE_REQUEST],
    ];
    let writes: Vec<u8> = (0..2000)
        .flat_map(|n| request(&["SET", &format!("pipe:{n}"), "0123456789"]))
        .collect();
    let expiring: Vec<u8> = (0..2000)
        .flat_map(|n| request(&["SET", &format!("brief:{n}"), "v", "PX", "20"]))
        .collect();
    let cached = (0..300_000).map(|n| format!("{{{near}}}{n}").into_bytes());
    let cached = [
        request(&["CLIENT", "TRACKING", "ON"]),
        with(&["MGET"], cached.collect()),
    ];
    let mixed = [
        gets(&near, 12),
        with(&["SET", "mine"], vec![vec![b'm'; 8 << 20]]).repeat(4),
    ];
    vec![
        one(
            "unknown commands",
            Door::Entry,
            Manner::Stuff(8),
            b"a\n".repeat(32 << 10),
        ),
        replies_of_all_shards(),
        one(
            "wrong arity",
            Door::Direct,
            Manner::Stuff(8),
            b"GET\n".repeat(16 << 10),
        ),
        one(
            "one MGET of 3 GiB",
            Door::Entry,
            Manner::Stuff(8),
            with(&["MGET"], many(&far, 400)),
        ),
        one(
            "COMMAND DOCS a million times",
            Door::Direct,
            Manner::Stuff(4),
            with(&["COMMAND", "DOCS"], many("cluster", 1_000_000)),
        ),
        Attack {
            name: "GETs of 8 MiB, unread",
            parts: vec![
                part(Door::Entry, Manner::Stuff(8), gets(&far, 3000)),
                part(Door::Direct, Manner::Stuff(8), gets(&near, 3000)),
                part(Door::Entry, Manner::Stuff(4), mixed.concat()),
            ],
        },
        one(
            "PINGs, unread",
            Door::Direct,
            Manner::Stuff(64),
            request(&["PING"]),
        ),
        one(
            "appends to a value of another shard",
            Door::Entry,
            Manner::Stuff(4),
            request(&["APPEND", &far, "x"]).repeat(2000),
        ),
        one(
            "KEYS and gone",
            Door::Entry,
            Manner::Leave,
            request(&["KEYS", "*"]),
        ),
        one(
            "slots listed over and over",
            Door::Entry,
            Manner::Stuff(8),
            request(&["CLUSTER", "GETKEYSINSLOT", "9000", "1000000"]).repeat(1000),
        ),
        Attack {
            name: "long names, listed",
            parts: vec![
                part(
                    Door::Entry,
                    Manner::Once(6),
                    request(&["CLIENT", "SETNAME", &name]),
                ),
                part(
                    Door::Entry,
                    Manner::Stuff(8),
                    request(&["CLIENT", "LIST"]).repeat(1000),
                ),
            ],
        },
        Attack {
            name: "lists of a million arguments",
            parts: vec![
                part(
                    Door::Entry,
                    Manner::Converse(1),
                    with(&["CLIENT", "LIST", "ID"], many("9", 1_000_000)),
                ),
                part(
                    Door::Direct,
                    Manner::Converse(8),
                    with(
                        &["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"],
                        many("0", 1_000_000),
                    ),
                ),
            ],
        },
        Attack {
            name: "patterns",
            parts: vec![
                part(
                    Door::Direct,
                    Manner::Converse(2),
                    request(&["KEYS", &class]),
                ),
                part(Door::Entry, Manner::Converse(2), request(&["KEYS", &stars])),
                part(
                    Door::Entry,
                    Manner::Converse(1),
                    request(&["CONFIG", "GET", &class]),
                ),
                part(
                    Door::Direct,
                    Manner::Converse(2),
                    with(&["CONFIG", "GET"], many(&questions, 64)),
                ),
            ],
        },
        Attack {
            name: "requests without an end",
            parts: vec![
                part(Door::Entry, Manner::Once(64), half.concat()),
                part(Door::Direct, Manner::Pieces(2048), million),
            ],
        },
        one(
            "large requests for another shard",
            Door::Entry,
            Manner::Converse(4),
            with(&["SET", &far], vec![vec![b'w'; LARGEST_VALUE - 8192]]),
        ),
        Attack {
            name: "endless pipelines",
            parts: vec![
                part(Door::Entry, Manner::Converse(2), writes.clone()),
                part(Door::Direct, Manner::Converse(2), gets("small:1:1", 4000)),
            ],
        },
        one(
            "keys that expire at once",
            Door::Entry,
            Manner::Converse(2),
            expiring,
        ),
        one(
            "more keys to track than a table holds",
            Door::Direct,
            Manner::Converse(2),
            cached.concat(),
        ),
        Attack {
            name: "garbage at every port",
            parts: vec![
                part(
                    Door::Entry,
                    Manner::Leave,
                    b"POST / HTTP/1.1\r\nHost: a\r\n\r\nSET a b\r\n".to_vec(),
                ),
                part(Door::Peers, Manner::Leave, vec![0xa5; 9000]),
                part(Door::Coordinator, Manner::Leave, vec![0x5a; 9000]),
            ],
        },
    ]
}

/// Attackers at work; they stop when told, or dropped.
#[derive(Debug)]
pub struct Attackers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attackers {
    /// Sets a thread to each part of each of `attacks`.
    pub fn start<'a>(node: &Node, attacks: impl IntoIterator<Item = &'a Attack>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let parts = attacks.into_iter().flat_map(|attack| &attack.parts);
        let threads = parts
            .map(|part| {
                let port = match part.door {
                    Door::Entry => node.port(),
                    Door::Direct => node.direct_port(0),
                    Door::Peers => node.port() + 10_000,
                    Door::Coordinator => node.port() + 20_000,
                };
                let (part, stop) = (part.clone(), Arc::clone(&stop));
                std::thread::spawn(move || {
                    share_one_cpu();
                    go_on(&part, port, &stop);
                })
            })
            .collect();
        Self { stop, threads }
    }

    /// # Panics
    /// When an attacker has.
    pub fn stop(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("an attacker ends well");
        }
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Confines this thread to the first CPU that it may use, at a low priority.
fn share_one_cpu() {
    // SAFETY: plain calls about the calling thread; `set` is a plain struct, valid for its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        let cpus = 0..libc::CPU_SETSIZE as usize;
        let first = cpus.into_iter().find(|&cpu| libc::CPU_ISSET(cpu, &set));
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first.unwrap_or(0), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}

/// What became of a write.
#[derive(PartialEq, Eq)]
enum Sent {
    /// So much; the socket takes no more.
    Some(usize),
    Broken,
}

/// One connection of an attacker and how much of its bytes it has sent.
struct Line {
    stream: TcpStream,
    at: usize,
}

impl Line {
    fn open(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(SOCKET_TIMEOUT)).ok()?;
        stream.set_write_timeout(Some(SOCKET_TIMEOUT)).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self { stream, at: 0 })
    }

    /// Sends from where it stands to the end of `bytes`, as far as the socket takes them.
    fn push(&mut self, bytes: &[u8]) -> Sent {
        let mut sent = 0;
        while self.at < bytes.len() {
            match self.stream.write(&bytes[self.at..]) {
                Ok(count) => {
                    self.at += count;
                    sent += count;
                }
                Err(error) if is_full(error.kind()) => break,
                Err(_) => return Sent::Broken,
            }
        }
        Sent::Some(sent)
    }

    /// Takes what has come; false once the node has closed.
    fn swallow(&mut self, buffer: &mut [u8]) -> bool {
        match self.stream.read(buffer) {
            Ok(count) => count > 0,
            Err(error) => is_full(error.kind()),
        }
    }
}

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn go_on(part: &Part, port: u16, stop: &AtomicBool) {
    match part.manner {
        Manner::Stuff(lines) => stuff(part, port, lines, true, stop),
        Manner::Once(lines) => stuff(part, port, lines, false, stop),
        Manner::Converse(lines) => converse(part, port, lines, usize::MAX, stop),
        Manner::Pieces(bytes) => converse(part, port, 1, bytes, stop),
        Manner::Leave => {
            while !stop.load(Ordering::SeqCst) {
                match Line::open(port) {
                    Some(mut line) => drop(line.push(&part.bytes)),
                    None => std::thread::sleep(REST),
                }
            }
        }
    }
}

fn stuff(part: &Part, port: u16, lines: usize, again: bool, stop: &AtomicBool) {
    let mut open: Vec<Line> = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let mut has_sent = false;
        if open.len() < lines
            && let Some(line) = Line::open(port)
            && line.stream.set_nonblocking(true).is_ok()
        {
            open.push(line);
        }
        open.retain_mut(|line| {
            if again && line.at == part.bytes.len() {
                line.at = 0;
            }
            match line.push(&part.bytes) {
                Sent::Some(count) => {
                    has_sent |= count > 0;
                    true
                }
                Sent::Broken => false,
            }
        });
        if !has_sent {
            std::thread::sleep(REST);
        }
    }
}

fn converse(part: &Part, port: u16, lines: usize, piece: usize, stop: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    let mut open: Vec<Line> = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        if open.len() < lines
            && let Some(line) = Line::open(port)
            && line.stream.set_nonblocking(true).is_ok()
        {
            open.push(line);
        }
        let began = Instant::now();
        open.retain_mut(|line| {
            if line.at == part.bytes.len() {
                line.at = 0;
            }
            let end = part.bytes.len().min(line.at.saturating_add(piece));
            line.push(&part.bytes[..end]) != Sent::Broken && line.swallow(&mut buffer)
        });
        if began.elapsed() < REST / 20 {
            std::thread::sleep(REST / 10);
        }
    }
}
