//! Sequences of random requests of two clients, over all commands that this server has: each is answered as the oracle
//! answers it, Valkey 9.1 or, where both know the commands, redis-server 7.0; and the same is there in the end.
//!
//! A sequence that is not is made as short as it can be. `EPHESUS_COMMANDS=n` makes runs longer, `EPHESUS_SEED=n`
//! repeats one.

mod alike;
mod grammar;
mod lines;
mod requests;
mod run;
mod shrink;

use std::sync::Arc;
use std::time::Instant;

use ephesus_tests::oracle::Oracle;
use ephesus_tests::scale::commands;
use ephesus_tests::{Node, Options, Rng};

use alike::Differences;
use requests::{Keys, Maker, Profile, Step};
use run::{Mismatch, Run, Server};
use shrink::shrink;

/// Commands of each test.
const COMMANDS_IN_CI: u64 = 70_000;
/// Of those of CI.
const SEED_IN_CI: u64 = 1;
const SEQUENCE_LEN: u64 = 400;

/// How often a sequence is run again to see whether it is answered differently each time.
const AGAIN: usize = 3;

/// One oracle beside the node, and what both are asked.
struct Bed {
    name: &'static str,
    ours: Server,
    theirs: Server,
    differences: Differences,
    makers: Vec<(Profile, Maker)>,
}

impl Bed {
    fn new(
        name: &'static str,
        oracle: Oracle,
        node: &Arc<Node>,
        is_direct: bool,
        profiles: &[Profile],
    ) -> Self {
        let own = Arc::clone(node);
        let mut theirs = Server::new(move || oracle.client());
        let ours = Server::new(move || match is_direct {
            true => own.direct_client(0),
            false => own.client(),
        });
        let mut sha_of = |text: &str| {
            let sha = theirs.control.call(&["SCRIPT", "LOAD", text]);
            match sha.error() {
                // One that cannot be compiled has none.
                Some(_) => "ffffffffffffffffffffffffffffffffffffffff".to_owned(),
                None => sha.text(),
            }
        };
        let makers = profiles
            .iter()
            .map(|profile| (*profile, Maker::new(*profile, &mut sha_of)))
            .collect();
        Self {
            name,
            ours,
            theirs,
            differences: Differences::with(name),
            makers,
        }
    }

    fn run(&mut self, profile: Profile, steps: &[Step]) -> Result<(), Mismatch> {
        let run = Run::new(&mut self.ours, &mut self.theirs, &self.differences, profile);
        run.of(steps)
    }

    /// One sequence.
    ///
    /// # Panics
    /// When it is answered differently, with the shortest one that is.
    fn sequence(&mut self, rng: &mut Rng) -> u64 {
        let (profile, maker) = rng.pick(&self.makers);
        let profile = *profile;
        let len = rng.between(SEQUENCE_LEN / 4, 2 * SEQUENCE_LEN) as usize;
        let steps = maker.sequence(len, rng);
        let Err(found) = self.run(profile, &steps) else {
            return steps.len() as u64;
        };
        let first = shown(&found, self.name);
        let is_again = (0..AGAIN).any(|_| self.run(profile, &steps).is_err());
        assert!(
            is_again,
            "answered differently, and not when it was repeated:\n{first}"
        );
        let steps = shrink(steps, |steps| self.run(profile, steps).is_err());
        let last = (0..AGAIN).find_map(|_| self.run(profile, &steps).err());
        let last = last.map_or(first, |found| shown(&found, self.name));
        panic!("{profile:?}, answered differently:\n{last}");
    }
}

/// The end of what was sent, with all replies.
fn shown(found: &Mismatch, name: &str) -> String {
    let from = found.trail.len().saturating_sub(40);
    let lines = found.trail[from..].iter().map(|answered| {
        let (ours, theirs) = (&answered.ours, &answered.theirs);
        match ours == theirs {
            true => format!("{}\n    {ours}", answered.step),
            false => format!("{}\n    here {ours}\n    {name} {theirs}", answered.step),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn compare(what: &str, beds: &mut [Bed]) {
    // A run that was asked for sends other sequences each time, and CI always the same ones.
    let seed = match std::env::var_os("EPHESUS_COMMANDS") {
        Some(_) => ephesus_tests::seed_of_run(what),
        None => ephesus_tests::seed_or(what, SEED_IN_CI),
    };
    let mut rng = Rng::new(seed);
    let (wanted, began) = (commands(COMMANDS_IN_CI), Instant::now());
    let (mut sent, mut sequences) = (0, 0);
    while sent < wanted {
        let bed = rng.below(beds.len() as u64) as usize;
        sent += beds[bed].sequence(&mut rng.fork());
        sequences += 1;
    }
    eprintln!(
        "{what}: {sent} commands in {sequences} sequences, {:?}",
        began.elapsed()
    );
}

fn node(shards: u16) -> Arc<Node> {
    Arc::new(Node::start(Options {
        shards,
        durability: Some("relaxed"),
        ..Options::default()
    }))
}

const PLAIN: Profile = Profile {
    keys: Keys::Any,
    over_all_in_multi: true,
    databases: true,
    newer: false,
};

const NEWER: Profile = Profile {
    newer: true,
    ..PLAIN
};

#[test]
fn one_shard_answers_sequences_as_redis_and_valkey_answer_them() {
    let node = node(1);
    let mut beds = [
        Bed::new("redis", Oracle::standalone(), &node, false, &[PLAIN]),
        Bed::new("valkey", Oracle::valkey(), &node, false, &[NEWER]),
    ];
    compare("sequences at one shard", &mut beds);
}

#[test]
fn several_shards_answer_sequences_as_redis_and_valkey_answer_them() {
    let node = node(3);
    let profiles = |newer| {
        [Keys::OneSlot, Keys::Spread].map(|keys| Profile {
            keys,
            over_all_in_multi: false,
            newer,
            ..PLAIN
        })
    };
    let mut beds = [
        Bed::new(
            "redis",
            Oracle::standalone(),
            &node,
            false,
            &profiles(false),
        ),
        Bed::new("valkey", Oracle::valkey(), &node, false, &profiles(true)),
    ];
    compare("sequences at several shards", &mut beds);
}

#[test]
fn a_direct_port_answers_sequences_as_clusters_of_redis_and_valkey_answer_them() {
    let node = node(1);
    let of_redis = Profile {
        keys: Keys::Strays,
        databases: false,
        ..PLAIN
    };
    let of_valkey = Profile {
        keys: Keys::Strays,
        ..NEWER
    };
    let mut beds = [
        Bed::new("redis-cluster", Oracle::cluster(), &node, true, &[of_redis]),
        Bed::new(
            "valkey-cluster",
            Oracle::valkey_cluster(),
            &node,
            true,
            &[of_valkey],
        ),
    ];
    compare("sequences at a direct port", &mut beds);
}
