//! Clients that check every reply while partitions move between the shards of their node, with messages
//! that are taken in any order in which shards may take them.

use std::collections::{BTreeMap, VecDeque};

use ephesus_wire::rng::Rng;
use ephesus_wire::{PartitionId, ShardId};

use crate::net::ListenerKind::{self, Direct, Entry};
use crate::shard::bed::{ATHENS, Bed, Client, PARTITIONS, key};

const SHARDS: u16 = 3;
const STEPS: usize = 3_000;

fn any_partition(rng: &mut Rng) -> u16 {
    rng.below(u64::from(PARTITIONS)) as u16
}

/// What a client has sent and what must come of it; nobody else writes its keys.
enum Sent {
    /// Adds a byte.
    Append(String),
    Get(String),
    Set(Vec<String>, String),
    GetAll(Vec<String>),
    /// With the keys that are there for sure.
    Count(usize),
    /// MULTI, and a command behind it.
    Queued,
    /// Adds a byte to each of these keys, or to none of them; whether it may be none.
    Exec(Vec<String>, bool),
}

/// A client with a key of its own in every partition.
struct Checker {
    client: Client,
    is_entry: bool,
    number: usize,
    values: BTreeMap<String, String>,
    sent: VecDeque<Sent>,
    received: String,
    moved: usize,
    /// Transactions that were executed.
    together: usize,
}

/// A client that adds to a number which others add to as well, if nobody has done so since it has read it.
struct Counter {
    client: Client,
    key: String,
    received: String,
    /// What it has read, until it has set what follows.
    read: Option<u64>,
    is_asked: bool,
    added: u64,
    /// The others were first.
    late: u64,
}

impl Counter {
    fn step(&mut self, bed: &mut Bed) {
        self.received += &bed.take(self.client);
        if self.is_asked {
            if !self.is_answered() {
                return;
            }
            let received = std::mem::take(&mut self.received);
            self.is_asked = false;
            match self.read.take() {
                None => self.has_read(&received),
                Some(_) if received.ends_with("*1\r\n+OK\r\n") => self.added += 1,
                Some(_) => self.late += 1,
            }
            return;
        }
        let key = &self.key;
        self.is_asked = true;
        match self.read {
            None => bed.send(
                self.client,
                &[&format!("WATCH {key}"), &format!("GET {key}")],
            ),
            Some(read) => {
                let set = format!("SET {key} {}", read + 1);
                bed.send(self.client, &["MULTI", &set, "EXEC"]);
            }
        }
    }

    /// Whether the replies to all that was sent have come.
    fn is_answered(&self) -> bool {
        let received = &self.received;
        let lines = received.matches("\r\n").count();
        match self.read {
            None => {
                let has_value = received.contains("\r\n$") && !received.contains("\r\n$-1");
                lines == 2 + usize::from(has_value)
            }
            Some(_) => {
                received.contains("*1\r\n+OK\r\n") || (lines == 3 && !received.ends_with("*1\r\n"))
            }
        }
    }

    fn has_read(&mut self, received: &str) {
        if received.contains("-MOVED") {
            return;
        }
        let value = received.trim_end().lines().last().expect("a value");
        self.read = Some(if value == "$-1" {
            0
        } else {
            value.parse().expect("a number")
        });
    }
}

impl Checker {
    fn next(&mut self, rng: &mut Rng, sure: usize) -> String {
        if rng.one_in(6) {
            return self.transaction(rng);
        }
        let number = self.number;
        let mut own = || key(any_partition(rng), number);
        let (one, two) = (own(), own());
        let (sent, command) = match rng.below(if self.is_entry { 8 } else { 4 }) {
            0..3 => (Sent::Append(one.clone()), format!("APPEND {one} x")),
            3 => (Sent::Get(one.clone()), format!("GET {one}")),
            4 | 5 if one != two => {
                let value = format!("v{}", rng.below(1000));
                let command = format!("MSET {one} {value} {two} {value}");
                (Sent::Set(vec![one, two], value), command)
            }
            6 => {
                let command = format!("MGET {one} {two} {one}");
                let keys = vec![one.clone(), two, one];
                (Sent::GetAll(keys), command)
            }
            _ => (Sent::Count(sure), "DBSIZE".to_owned()),
        };
        if !self.is_entry && matches!(sent, Sent::Count(_)) {
            return self.next(rng, sure);
        }
        self.sent.push_back(sent);
        command
    }

    /// Two keys, most often of one partition, that are changed together.
    fn transaction(&mut self, rng: &mut Rng) -> String {
        let first = any_partition(rng);
        let second = match rng.one_in(4) {
            true => any_partition(rng),
            false => first,
        };
        let keys = vec![key(first, self.number), key(second, self.number)];
        let may_fail = !self.is_entry || first != second;
        let commands = keys.iter().map(|key| format!("APPEND {key} x"));
        let commands: Vec<String> = commands.collect();
        self.sent.extend((0..=keys.len()).map(|_| Sent::Queued));
        self.sent.push_back(Sent::Exec(keys, may_fail));
        format!("MULTI\r\n{}\r\nEXEC", commands.join("\r\n"))
    }

    /// Compares what has come with what must have.
    fn check(&mut self, bed: &mut Bed) {
        self.received += &bed.take(self.client);
        let received = std::mem::take(&mut self.received);
        let mut rest = received.as_str();
        while !rest.is_empty() {
            let sent = self.sent.pop_front().expect("nothing else was asked");
            let may_fail = match &sent {
                Sent::Queued => true,
                Sent::Exec(_, may_fail) => *may_fail,
                _ => false,
            };
            let is_moved = !self.is_entry && rest.starts_with("-MOVED ");
            let is_refused = rest.starts_with("-CROSSSLOT ") || rest.starts_with("-EXECABORT ");
            if is_moved || (may_fail && is_refused) {
                self.moved += usize::from(is_moved);
                rest = &rest[rest.find('\n').expect("a line") + 1..];
                continue;
            }
            let bulk = |value: Option<&String>| match value {
                Some(value) => format!("${}\r\n{value}\r\n", value.len()),
                None => "$-1\r\n".to_owned(),
            };
            let expected = match sent {
                Sent::Append(key) => {
                    let value = self.values.entry(key).or_default();
                    value.push('x');
                    format!(":{}\r\n", value.len())
                }
                Sent::Get(key) => bulk(self.values.get(&key)),
                Sent::Set(keys, value) => {
                    for key in keys {
                        self.values.insert(key, value.clone());
                    }
                    "+OK\r\n".to_owned()
                }
                Sent::GetAll(keys) => {
                    let values = keys.iter().map(|key| bulk(self.values.get(key)));
                    format!("*{}\r\n", keys.len()) + &values.collect::<String>()
                }
                Sent::Queued if rest.starts_with("+OK") => "+OK\r\n".to_owned(),
                Sent::Queued => "+QUEUED\r\n".to_owned(),
                Sent::Exec(keys, _) => {
                    let mut expected = format!("*{}\r\n", keys.len());
                    for key in keys {
                        let value = self.values.entry(key).or_default();
                        value.push('x');
                        expected += &format!(":{}\r\n", value.len());
                    }
                    self.together += 1;
                    expected
                }
                Sent::Count(sure) => {
                    let line = rest.split("\r\n").next().expect("a line");
                    let count: usize = line[1..].parse().expect("a number");
                    let most = usize::from(PARTITIONS) * CLIENTS.len() + COUNTED;
                    assert!((sure..=most).contains(&count), "{sure} {count} {most}");
                    format!("{line}\r\n")
                }
            };
            let behind = rest.strip_prefix(expected.as_str());
            rest = behind.unwrap_or_else(|| panic!("{expected:?} expected, {rest:?} found"));
        }
    }
}

const CLIENTS: [(u16, ListenerKind); 7] = [
    (0, Entry),
    (1, Entry),
    (2, Entry),
    (2, Entry),
    (0, Direct),
    (1, Direct),
    (2, Direct),
];

/// Keys that are counted in.
const COUNTED: usize = 2;

/// What a shard has been told by its node and does in its next turn.
#[derive(Clone, Copy)]
enum Told {
    GiveUp,
    Activate,
}

fn act(bed: &mut Bed, shard: u16, partition: u16, what: Told) {
    let id = PartitionId(partition);
    let core = bed.core(shard);
    match what {
        Told::GiveUp => {
            core.keyspace.drop_copy(id).expect("served");
            core.reroute(id);
        }
        Told::Activate => {
            core.keyspace.activate(id).expect("prepared");
        }
    }
}

/// The move of a prepared copy is off.
fn abort(bed: &mut Bed, partition: u16) {
    let id = PartitionId(partition);
    let (_, from) = bed.homes[usize::from(partition)];
    let to = bed.end_staging(partition);
    let source = bed.core(from.0);
    source.keyspace.end_outgoing(id);
    source.resume(id);
    bed.core(to.0).keyspace.wipe(id).expect("prepared");
}

fn run(seed: u64) -> (usize, usize) {
    let mut rng = Rng::new(seed);
    let mut bed = Bed::new(SHARDS, &[]);
    let clients = CLIENTS.iter().enumerate();
    let mut clients: Vec<Checker> = clients
        .map(|(number, &(shard, kind))| Checker {
            client: bed.connect(shard, kind),
            is_entry: kind == Entry,
            number,
            values: BTreeMap::new(),
            sent: VecDeque::new(),
            received: String::new(),
            moved: 0,
            together: 0,
        })
        .collect();
    let counters = CLIENTS.iter().enumerate();
    let mut counters: Vec<Counter> = counters
        .map(|(number, &(shard, kind))| Counter {
            client: bed.connect(shard, kind),
            // Few keys, so that they get in each other's way.
            key: key(number as u16 % 2, CLIENTS.len()),
            received: String::new(),
            read: None,
            is_asked: false,
            added: 0,
            late: 0,
        })
        .collect();
    let mut moving: BTreeMap<u16, u16> = BTreeMap::new();
    let mut told: VecDeque<(u16, u16, Told)> = VecDeque::new();
    let everyone: Vec<u16> = (0..SHARDS).collect();
    let mut moves = 0;
    for _ in 0..STEPS {
        let counter = rng.below(counters.len() as u64) as usize;
        counters[counter].step(&mut bed);
        match rng.below(16) {
            0..7 => {
                let at = rng.below(clients.len() as u64) as usize;
                let sure = clients.iter().map(|c| c.values.len()).sum();
                let count = 1 + rng.below(4);
                let checker = &mut clients[at];
                let commands: Vec<String> =
                    (0..count).map(|_| checker.next(&mut rng, sure)).collect();
                let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
                bed.send(checker.client, &commands);
                checker.check(&mut bed);
            }
            7..14 => {
                let shard = rng.below(u64::from(SHARDS)) as u16;
                let mine = told.iter().position(|(to, ..)| *to == shard);
                if let Some((_, partition, what)) = mine.and_then(|at| told.remove(at)) {
                    act(&mut bed, shard, partition, what);
                }
                if !told.iter().any(|(to, ..)| *to == shard) {
                    let messages = 1 + rng.below(3) as usize;
                    bed.turn(shard, messages);
                }
                for checker in &mut clients {
                    checker.check(&mut bed);
                }
            }
            14 => {
                let partition = any_partition(&mut rng);
                let (_, from) = bed.homes[usize::from(partition)];
                let to = rng.below(u64::from(SHARDS)) as u16;
                let is_told = told.iter().any(|(_, p, _)| *p == partition);
                // A partition does not move again before all shards know where it is.
                let is_known = !is_told && bed.is_followed();
                if to != from.0 && !moving.contains_key(&partition) && is_known {
                    bed.prepare_within(partition, to);
                    bed.send_routes(&everyone);
                    moving.insert(partition, to);
                }
            }
            _ => {
                let Some((partition, to)) = moving.pop_first() else {
                    continue;
                };
                let (_, from) = bed.homes[usize::from(partition)];
                if rng.below(3) > 0 {
                    bed.end_staging(partition);
                    told.push_back((from.0, partition, Told::GiveUp));
                    told.push_back((to, partition, Told::Activate));
                    bed.give(partition, (ATHENS, ShardId(to)));
                    moves += 1;
                } else {
                    abort(&mut bed, partition);
                }
                bed.send_routes(&everyone);
            }
        }
    }
    for (shard, partition, what) in told {
        act(&mut bed, shard, partition, what);
    }
    for (partition, _) in moving {
        abort(&mut bed, partition);
    }
    bed.follow();
    let mut moved = 0;
    for checker in &mut clients {
        checker.check(&mut bed);
        assert!(checker.sent.is_empty(), "everything is answered");
        assert!(bed.is_open(checker.client));
        moved += checker.moved;
    }
    // What everyone has read and written is where the table says.
    let entry = clients[0].client;
    for checker in &clients {
        for (key, value) in &checker.values {
            let reply = bed.ask(entry, &[&format!("GET {key}")]);
            assert_eq!(reply, format!("${}\r\n{value}\r\n", value.len()));
        }
    }
    let mut counted = 0;
    for number in 0..COUNTED {
        let key = key(number as u16, CLIENTS.len());
        let of_key = |counter: &&mut Counter| counter.key == key;
        let mut added = 0;
        for counter in counters.iter_mut().filter(of_key) {
            // What it was waiting for has come.
            if counter.is_asked {
                counter.step(&mut bed);
                assert!(!counter.is_asked, "everything is answered");
            }
            added += counter.added;
        }
        let reply = bed.ask(entry, &[&format!("GET {key}")]);
        let value = reply.trim_end().lines().last().expect("a value");
        let value = if value == "$-1" { "0" } else { value };
        assert_eq!(value, added.to_string(), "what was set was added");
        counted += usize::from(added > 0);
    }
    let added: u64 = counters.iter().map(|counter| counter.added).sum();
    let late: u64 = counters.iter().map(|counter| counter.late).sum();
    let together: usize = clients.iter().map(|checker| checker.together).sum();
    println!("{added} added, {late} late, {together} together");
    assert!(added > 50 && late > 20 && together > 100);
    for counter in &counters {
        bed.kill(counter.client);
    }
    bed.settle();
    for shard in &everyone {
        assert_eq!(bed.core(*shard).keyspace.watchers(), 0);
    }
    let keys: usize = clients.iter().map(|checker| checker.values.len()).sum();
    let keys = keys + counted;
    assert_eq!(bed.ask(entry, &["DBSIZE"]), format!(":{keys}\r\n"));
    for shard in everyone {
        assert_eq!(bed.core(shard).unanswered(), 0);
        assert_eq!(bed.core(shard).admission.held_commands(), 0);
    }
    (moves, moved)
}

#[test]
fn clients_get_every_reply_in_order_while_partitions_move_within_their_node() {
    let (mut moves, mut moved) = (0, 0);
    for seed in 1..=62 {
        println!("seed {seed}");
        let counts = run(seed);
        moves += counts.0;
        moved += counts.1;
    }
    assert!(
        moves > 1_500 && moved > 1_000,
        "{moves} moves, {moved} MOVED"
    );
}
