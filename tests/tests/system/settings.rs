//! Settings that change between starts, at whatever state the log is in: every acknowledged write is there after each
//! start, and the node goes on taking writes.
//!
//! What matters may be what was before, what is now, and how the log was left. CI runs lives that have every pair of
//! values of these at least once; `make settings` runs all combinations.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ephesus_tests::{Node, Options, Reply, Rng};

const MIB: u64 = 1 << 20;

/// Segments of 16 MiB, of 18 with one shard, and of the largest size there is.
const BUDGETS: [u64; 3] = [64 * MIB, 144 * MIB, 1024 * MIB];
const SHARDS: [u16; 2] = [1, 3];
const DURABILITIES: [&str; 2] = ["strict", "relaxed"];
/// None, and one that is below what the tables hold: then writes are refused, and what was written stays.
const MEMORIES: [Option<u64>; 2] = [None, Some(12 * MIB)];
/// Open files: no limit of the test's own, and one that leaves few for clients.
const FILES: [Option<u32>; 2] = [None, Some(200)];
const ENDS: [End; 2] = [End::Kill, End::Stop];

/// Values of one key that are large, and how many keys have them; all are in one slot, and so in one shard's log.
const VALUE_BYTES: usize = 512 << 10;
const LARGE: u64 = 32;
const SMALL: u64 = 64;

/// How one life of the node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    Stop,
}

/// What the log is like at the end of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    Fresh,
    MidSegment,
    Segments,
    Images,
}

const LOGS: [Log; 4] = [Log::Fresh, Log::MidSegment, Log::Segments, Log::Images];

/// One life; each field is an index of the values above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    budget: usize,
    shards: usize,
    durability: usize,
    memory: usize,
    files: usize,
    log: usize,
    end: usize,
}

impl Life {
    const VALUES: [usize; 7] = [
        BUDGETS.len(),
        SHARDS.len(),
        DURABILITIES.len(),
        MEMORIES.len(),
        FILES.len(),
        LOGS.len(),
        ENDS.len(),
    ];

    fn of(values: [usize; 7]) -> Life {
        let [budget, shards, durability, memory, files, log, end] = values;
        Life {
            budget,
            shards,
            durability,
            memory,
            files,
            log,
            end,
        }
    }

    fn values(self) -> [usize; 7] {
        let Life {
            budget,
            shards,
            durability,
            memory,
            files,
            log,
            end,
        } = self;
        [budget, shards, durability, memory, files, log, end]
    }

    fn random(rng: &mut Rng) -> Life {
        Life::of(Life::VALUES.map(|values| rng.below(values as u64) as usize))
    }

    fn apply(self, options: &mut Options) {
        options.wal_budget = Some(BUDGETS[self.budget]);
        options.shards = SHARDS[self.shards];
        options.durability = Some(DURABILITIES[self.durability]);
        options.max_memory = MEMORIES[self.memory];
        options.wrapper = FILES[self.files].map_or(Vec::new(), |files| {
            let limited = format!("ulimit -n {files}; exec \"$@\"");
            ["sh", "-c", &limited, "sh"].map(str::to_owned).to_vec()
        });
    }

    /// Bytes that are written in it.
    fn bytes(self) -> u64 {
        match LOGS[self.log] {
            Log::Fresh => 0,
            Log::MidSegment => 4 * MIB,
            Log::Segments => 36 * MIB,
            // Or, with the largest budget, as much of a log as it has.
            Log::Images => (BUDGETS[self.budget] * 9 / 8).min(162 * MIB),
        }
    }
}

/// Pairs of values that a life and the one after it have: positions among the fields of both, and values.
type Pair = ((usize, usize), (usize, usize));

fn pairs(before: Life, after: Life) -> impl Iterator<Item = Pair> {
    // What the second life writes and how it ends matters to the third.
    let settings = after.values().into_iter().take(5);
    let values: Vec<_> = before
        .values()
        .into_iter()
        .chain(settings)
        .enumerate()
        .collect();
    let all = values.clone().into_iter();
    all.flat_map(move |first| {
        let later: Vec<_> = values
            .iter()
            .copied()
            .filter(|second| first.0 < second.0)
            .collect();
        later.into_iter().map(move |second| (first, second))
    })
}

/// Lives of which every pair of values is had by two that follow each other.
fn pairwise(rng: &mut Rng) -> Vec<Life> {
    const CANDIDATES: usize = 200;
    let counts: Vec<usize> = Life::VALUES
        .iter()
        .chain(&Life::VALUES[..5])
        .copied()
        .collect();
    let mut missing = BTreeSet::new();
    for first in 0..counts.len() {
        for second in first + 1..counts.len() {
            for one in 0..counts[first] {
                missing.extend((0..counts[second]).map(|two| ((first, one), (second, two))));
            }
        }
    }
    let mut lives = vec![Life::random(rng)];
    while !missing.is_empty() {
        let last = lives[lives.len() - 1];
        let news = |before: Life, after: Life| {
            let pairs = pairs(before, after);
            pairs.filter(|pair| missing.contains(pair)).count()
        };
        // What is new with the life before, and what will be with the one after, whatever that is.
        let worth = |life: &Life| {
            (
                2 * news(last, *life) + news(*life, *life),
                u64::MAX - life.bytes(),
            )
        };
        let candidates = (0..CANDIDATES).map(|_| Life::random(rng));
        let best = candidates.max_by_key(worth).expect("some");
        for pair in pairs(last, best) {
            missing.remove(&pair);
        }
        lives.push(best);
    }
    lives
}

/// All that was acknowledged.
struct World {
    node: Node,
    /// The write that each key has; 0: none.
    large: Vec<u64>,
    small: Vec<u64>,
    writes: u64,
}

impl World {
    fn new() -> World {
        World {
            node: Node::stopped(Options::default()),
            large: vec![0; LARGE as usize],
            small: vec![0; SMALL as usize],
            writes: 0,
        }
    }

    fn live(&mut self, life: Life) {
        life.apply(&mut self.node.options);
        self.node.restart();
        self.verify(life);
        self.write(life);
        match ENDS[life.end] {
            End::Kill => self.node.kill(),
            End::Stop => self.node.stop(),
        }
    }

    fn keys(&self) -> impl Iterator<Item = (Vec<u8>, u64, usize)> + '_ {
        let large = self.large.iter().enumerate();
        let large = large.map(|(n, write)| (large_key(n as u64), *write, VALUE_BYTES));
        let small = self.small.iter().enumerate();
        large.chain(small.map(|(n, write)| (small_key(n as u64), *write, 16)))
    }

    fn verify(&self, life: Life) {
        let mut client = self.node.client();
        for (key, write, bytes) in self.keys() {
            let reply = client.call(&[b"GET".to_vec(), key.clone()]);
            let is_right = match write {
                0 => reply.is_nil(),
                _ => reply == Reply::Bulk(value(write, bytes)),
            };
            let key = String::from_utf8_lossy(&key);
            assert!(
                is_right,
                "{key} has not write {write} at the start of {life:?}"
            );
        }
    }

    fn write(&mut self, life: Life) {
        let mut client = self.node.client();
        let large = (0..life.bytes() / VALUE_BYTES as u64).map(|n| (n % LARGE, true));
        for (n, is_large) in large.chain((0..SMALL).map(|n| (n, false))) {
            self.writes += 1;
            let (key, bytes) = match is_large {
                true => (large_key(n), VALUE_BYTES),
                false => (small_key(n), 16),
            };
            let reply = client.call(&[b"SET".to_vec(), key, value(self.writes, bytes)]);
            let written = match is_large {
                true => &mut self.large[n as usize],
                false => &mut self.small[n as usize],
            };
            match reply.error() {
                None => *written = self.writes,
                Some(text) => {
                    let is_full = MEMORIES[life.memory].is_some() && text.starts_with("OOM");
                    assert!(is_full, "{text} in {life:?}");
                }
            }
        }
    }
}

fn large_key(n: u64) -> Vec<u8> {
    format!("{{large}}:{n}").into_bytes()
}

fn small_key(n: u64) -> Vec<u8> {
    format!("small:{n}").into_bytes()
}

fn value(write: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{write:016}").into_bytes();
    value.resize(bytes, write as u8);
    value
}

fn run(lives: &[Life]) {
    let started = Instant::now();
    let mut world = World::new();
    for (number, life) in lives.iter().enumerate() {
        world.live(*life);
        if started.elapsed() > Duration::from_secs(1) && number % 50 == 0 {
            eprintln!("{number} of {} lives", lives.len());
        }
    }
    eprintln!("{} lives in {:.1?}", lives.len(), started.elapsed());
}

#[test]
fn few_lives_have_all_pairs() {
    let lives = (1..20).map(|seed| pairwise(&mut Rng::new(seed)).len());
    let most = lives.max().expect("some");
    assert!(most < 60, "{most} lives");
}

#[test]
fn any_two_settings_may_change_at_any_state_of_the_log() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("settings"));
    run(&pairwise(&mut rng));
}

#[test]
#[ignore = "takes most of an hour: make settings"]
fn all_settings_may_change_at_every_state_of_the_log() {
    let combine = |lives: Vec<Vec<usize>>, values: &usize| -> Vec<Vec<usize>> {
        let values = 0..*values;
        let add = |life: Vec<usize>| {
            values
                .clone()
                .map(move |value| [&life[..], &[value]].concat())
        };
        lives.into_iter().flat_map(add).collect()
    };
    let all: Vec<Vec<usize>> = Life::VALUES.iter().fold(vec![Vec::new()], combine);
    let all = all
        .into_iter()
        .map(|values| Life::of(values.try_into().expect("of every field")));
    let all: Vec<Life> = all.collect();
    // The limits are what a life runs with, and nothing of them is left behind.
    for before in all
        .iter()
        .filter(|life| (life.memory, life.files) == (0, 0))
    {
        let after = all.iter().filter(|life| (life.log, life.end) == (0, 0));
        let lives: Vec<Life> = after.flat_map(|after| [*before, *after]).collect();
        eprintln!("{before:?}");
        run(&lives);
    }
}
