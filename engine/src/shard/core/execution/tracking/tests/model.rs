//! Caches of clients that believe what they are told: once everything has arrived, none has what is not so any more.

use std::collections::{BTreeMap, VecDeque};

use ephesus_wire::resp::value::{Value, decode};
use ephesus_wire::rng::Rng;

use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, Client, PARTITIONS, key};

const SHARDS: u16 = 3;

/// A client that keeps what it reads until it is told otherwise.
struct Cache {
    client: Client,
    /// Keys whose values were asked for, in order; none: a reply that is no value.
    asked: VecDeque<Option<String>>,
    values: BTreeMap<String, Value>,
    opts_in: bool,
}

impl Cache {
    fn new(bed: &mut Bed, shard: u16, options: &str) -> Cache {
        let client = bed.connect(shard, Entry);
        bed.ask(
            client,
            &["HELLO 3", &format!("CLIENT TRACKING ON {options}")],
        );
        Cache {
            client,
            asked: VecDeque::new(),
            values: BTreeMap::new(),
            opts_in: options == "OPTIN",
        }
    }

    /// What it sends to read a key.
    fn read(&mut self, key: &str, rng: &mut Rng) -> Vec<String> {
        let get = format!("GET {key}");
        let mut commands = Vec::new();
        if self.opts_in {
            commands.push("CLIENT CACHING YES".to_owned());
            self.asked.push_back(None);
        }
        match rng.below(4) {
            0 => {
                commands.extend([
                    "MULTI".to_owned(),
                    format!("PTTL {key}"),
                    get,
                    "EXEC".to_owned(),
                ]);
                self.asked.extend([None, None, None, Some(key.to_owned())]);
            }
            1 => {
                commands.push(format!("EVAL \"return redis.call('get',KEYS[1])\" 1 {key}"));
                self.asked.push_back(Some(key.to_owned()));
            }
            _ => {
                commands.push(get);
                self.asked.push_back(Some(key.to_owned()));
            }
        }
        commands
    }

    /// Takes what has come.
    fn take(&mut self, bed: &mut Bed) {
        let text = bed.take(self.client);
        let mut rest = text.as_bytes();
        while let Some((value, len)) = decode(rest).expect("valid") {
            rest = &rest[len..];
            match value {
                Value::Push(parts) => self.forget(&parts),
                value => {
                    let key = self.asked.pop_front().expect("asked for");
                    if let Some(key) = key {
                        self.keep(key, value);
                    }
                }
            }
        }
        assert!(rest.is_empty());
    }

    fn keep(&mut self, key: String, value: Value) {
        match value {
            Value::Array(mut values) => self.keep(key, values.pop().expect("GET is the last")),
            // It was refused, as MOVED or while others decide.
            Value::Error(_) => {}
            value => {
                self.values.insert(key, value);
            }
        }
    }

    fn forget(&mut self, parts: &[Value]) {
        let [name, keys] = parts else {
            panic!("{parts:?}");
        };
        assert_eq!(name.as_bytes(), Some(&b"invalidate"[..]));
        match keys {
            Value::Null => self.values.clear(),
            Value::Array(keys) => {
                for key in keys {
                    let key = key.as_bytes().expect("a key");
                    self.values
                        .remove(&String::from_utf8_lossy(key).into_owned());
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn write(rng: &mut Rng, keys: &[String]) -> Vec<String> {
    let (a, b) = (rng.pick(keys).clone(), rng.pick(keys).clone());
    let n = rng.below(1000);
    let command = match rng.below(14) {
        0 | 1 => format!("SET {a} {n}"),
        2 => format!("SET {a} {n} PX {}", 1 + rng.below(50)),
        3 => format!("DEL {a} {b}"),
        4 => format!("PEXPIRE {a} {}", rng.below(30)),
        5 => format!("MSET {a} {n} {b} {n}"),
        6 => format!("EVAL \"redis.call('set',KEYS[1],ARGV[1])\" 1 {a} {n}"),
        7 => format!("EVAL \"redis.call('set',KEYS[1],ARGV[1]) error('no')\" 1 {a} {n}"),
        8 => {
            let discard = if rng.one_in(3) { "DISCARD" } else { "EXEC" };
            let commands = [
                "MULTI".to_owned(),
                format!("SET {a} {n}"),
                format!("APPEND {a} x"),
            ];
            return commands.into_iter().chain([discard.to_owned()]).collect();
        }
        9 => format!("GETEX {a} PX {}", 1 + rng.below(50)),
        10 => format!("APPEND {a} y"),
        11 if rng.one_in(10) => "FLUSHDB".to_owned(),
        12 if rng.one_in(10) => "FLUSHALL".to_owned(),
        _ => format!("GETDEL {a}"),
    };
    vec![command]
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut bed = Bed::new(SHARDS, &[]);
    let keys: Vec<String> = (0..PARTITIONS)
        .flat_map(|partition| (0..2).map(move |n| key(partition, n)))
        .collect();
    let mut caches: Vec<Cache> = (0..6)
        .map(|n| {
            let options = ["", "OPTIN", "NOLOOP", "BCAST"][usize::from(n) % 4];
            Cache::new(&mut bed, n % SHARDS, options)
        })
        .collect();
    let writers: Vec<Client> = (0..6)
        .map(|n| bed.connect(n % SHARDS, if n < 4 { Entry } else { Direct }))
        .collect();
    let mut moving: Option<u16> = None;
    let mut kept = 0;
    for step in 0..600 {
        match rng.below(12) {
            0..=4 => {
                let (cache, key) = (rng.below(caches.len() as u64) as usize, rng.pick(&keys));
                let commands = caches[cache].read(key, &mut rng);
                let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
                bed.send(caches[cache].client, &commands);
            }
            5..=8 => {
                let commands = write(&mut rng, &keys);
                let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
                bed.send(*rng.pick(&writers), &commands);
            }
            9 => {
                let shard = rng.below(SHARDS.into()) as u16;
                bed.turn(shard, 1 + rng.below(3) as usize);
            }
            10 if rng.one_in(4) => match rng.one_in(2) {
                true => bed.hold_log(),
                false => bed.release_log(),
            },
            _ if rng.one_in(10) => {
                // As a move does, between turns in which everybody follows.
                bed.release_log();
                match moving.take() {
                    None => {
                        let partition = rng.below(PARTITIONS.into()) as u16;
                        let (_, from) = bed.homes[usize::from(partition)];
                        bed.prepare_within(partition, (from.0 + 1) % SHARDS);
                        moving = Some(partition);
                    }
                    Some(partition) => {
                        bed.commit_within(partition);
                        bed.follow();
                    }
                }
            }
            _ => bed.advance(1 + rng.below(20)),
        }
        if step % 20 == 19 {
            if let Some(partition) = moving.take() {
                bed.commit_within(partition);
                bed.follow();
            }
            bed.release_log();
            for shard in 0..SHARDS {
                while !bed.core(shard).keyspace.sweep_slice() {}
            }
            bed.settle();
            let reader = bed.connect(0, Entry);
            bed.ask(reader, &["HELLO 3"]);
            for cache in &mut caches {
                cache.take(&mut bed);
                assert_eq!(cache.asked, [None; 0], "seed {seed}: all is answered");
                kept += cache.values.len();
                for (key, value) in &cache.values {
                    let now = bed.ask(reader, &[&format!("GET {key}")]);
                    let (now, _) = decode(now.as_bytes()).expect("valid").expect("whole");
                    assert_eq!(*value, now, "seed {seed}, step {step}: {key} is stale");
                }
            }
            bed.kill(reader);
        }
    }
    assert!(kept > 100, "seed {seed}: {kept} values were kept");
}

#[test]
fn a_cache_has_nothing_that_is_stale_once_it_was_told() {
    let first = std::env::var("EPHESUS_SEED").ok();
    let first: u64 = first.map_or(1, |seed| seed.parse().expect("a number"));
    for seed in first..first + 30 {
        run(seed);
    }
}
