//! SIGKILL under load: what was acknowledged stays, what was read stays, nothing is invented.
//!
//! `EPHESUS_CRASH_ROUNDS=n` makes it longer, `EPHESUS_SEED=n` repeats a run.

use std::time::{Duration, Instant};

use ephesus_tests::ledger::{self, Unit, value_of};
use ephesus_tests::load::Load;
use ephesus_tests::scale::rounds;
use ephesus_tests::segments::Segment;
use ephesus_tests::{Client, Failpoints, Node, Options, Reply, Rng};

const ROUNDS_IN_CI: u64 = 30;
const WRITERS: u64 = 6;
const UNITS_PER_WRITER: u64 = 64;
/// Keys written once, so that images have something to walk; ids above all units'.
const STILL_KEYS: u64 = 20_000;
const STILL_FIRST: u64 = 1 << 20;
/// The smallest segments, so that images and truncation go on all the time.
const WAL_BUDGET: u64 = 64 << 20;

/// Where a node stops with an image whose blocks are durable, and once its manifest is.
const SEALED: &str = "image-sealed";
const SWITCHED: &str = "image-switched";
/// What a start says that finds blocks of an image that was not completed, or was replaced.
const LEFTOVERS: &str = "removed blocks of unfinished or replaced images";

/// How long a round waits for its moment.
const MOMENT_WITHIN: Duration = Duration::from_secs(10);

/// When the node is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    After(Duration),
    /// The blocks of an image are durable, its manifest is about to be written.
    Sealed,
    /// An image has replaced another one, whose blocks are about to be removed.
    Switched,
    /// A segment of a log was given back, others are about to be.
    Truncated,
}

/// Kills of each kind, as what they have left behind shows.
#[derive(Debug, Default)]
struct Kills {
    /// An image was sealed and had not switched.
    between_seal_and_switch: u64,
    /// There were blocks of an image without a manifest, or of one that was replaced.
    during_an_image: u64,
    /// At once after the number of segments had fallen.
    during_truncation: u64,
}

/// A node, and everything it has promised.
struct World {
    node: Node,
    units: Vec<Vec<Unit>>,
    rng: Rng,
    acknowledged: u64,
    kills: Kills,
}

impl World {
    fn new(name: &str, options: Options) -> Self {
        let rng = Rng::new(ephesus_tests::seed_of_run(name));
        let node = Node::start(options);
        write_still_keys(&mut node.client());
        let units = (0..WRITERS)
            .map(|writer| {
                let first = writer * UNITS_PER_WRITER;
                (first..first + UNITS_PER_WRITER).map(Unit::new).collect()
            })
            .collect();
        Self {
            node,
            units,
            rng,
            acknowledged: 0,
            kills: Kills::default(),
        }
    }

    /// Load until `moment`, then SIGKILL.
    fn load_and_kill(&mut self, moment: Moment) {
        let units = std::mem::take(&mut self.units);
        let load = Load::start(self.node.port(), units, &mut self.rng);
        let has_come = self.wait_for(moment);
        load.expect_break();
        self.node.kill();
        self.kills.between_seal_and_switch += u64::from(has_come && moment == Moment::Sealed);
        self.kills.during_truncation += u64::from(has_come && moment == Moment::Truncated);
        self.acknowledged += load.acknowledged();
        self.units = load.finish();
    }

    /// Waits until `moment`; false when it has not come in time.
    fn wait_for(&mut self, moment: Moment) -> bool {
        let place = match moment {
            Moment::After(span) => {
                std::thread::sleep(span);
                return true;
            }
            Moment::Truncated => {
                let count = || Segment::count(self.node.data_dir());
                let mut before = count();
                return within_moment(|| {
                    let now = count();
                    now < std::mem::replace(&mut before, now)
                });
            }
            Moment::Sealed => SEALED,
            Moment::Switched => SWITCHED,
        };
        let failpoints = self.node.options.failpoints.as_ref().expect("failpoints");
        failpoints.arm(place);
        let has_come = within_moment(|| self.node.is_stopped()) || failpoints.disarm(place);
        if has_come && moment == Moment::Switched && self.rng.one_in(2) {
            // Into the removal of the blocks.
            self.node.signal(libc::SIGCONT);
            std::thread::sleep(Duration::from_micros(self.rng.below(5_000)));
        }
        has_come
    }

    /// Starts the node and kills it at once, up to three times.
    fn kill_during_start(&mut self) {
        for _ in 0..=self.rng.below(3) {
            self.node.spawn();
            std::thread::sleep(Duration::from_micros(self.rng.below(150_000)));
            self.node.kill();
        }
    }

    /// Starts the node on what the kill has left.
    fn restart(&mut self) {
        self.node.restart();
        let has_leftovers = self.node.process().output().contains(LEFTOVERS);
        self.kills.during_an_image += u64::from(has_leftovers);
    }

    fn verify(&mut self) {
        let mut client = self.node.client();
        let present = ledger::verify(&mut client, self.units.iter_mut().flatten());
        assert_eq!(
            client.say("DBSIZE"),
            Reply::Integer((present as u64 + STILL_KEYS) as i64),
            "keys came back or vanished"
        );
        let from = self.rng.below(STILL_KEYS);
        check_still_keys(&mut client, (0..500).map(|i| (from + i * 37) % STILL_KEYS));
    }
}

/// Waits until `is_so`; false when that has not come in time.
fn within_moment(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + MOMENT_WITHIN;
    while Instant::now() < deadline {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}

fn still_key(i: u64) -> Vec<u8> {
    format!("still:{i}").into_bytes()
}

fn write_still_keys(client: &mut Client) {
    for first in (0..STILL_KEYS).step_by(500) {
        let requests: Vec<Vec<Vec<u8>>> = (first..first + 500)
            .map(|i| vec![b"SET".to_vec(), still_key(i), value_of(STILL_FIRST + i, 1)])
            .collect();
        assert!(
            client
                .pipeline(&requests)
                .iter()
                .all(|reply| *reply == Reply::ok())
        );
    }
}

fn check_still_keys(client: &mut Client, which: impl Iterator<Item = u64>) {
    for i in which {
        let reply = client.call(&[b"GET".as_slice(), &still_key(i)]);
        assert!(
            reply == Reply::Bulk(value_of(STILL_FIRST + i, 1)),
            "still:{i} is {reply:?}"
        );
    }
}

#[test]
fn no_kill_takes_back_what_was_acknowledged_or_read() {
    let mut world = World::new(
        "crash",
        Options {
            wal_budget: Some(WAL_BUDGET),
            failpoints: Some(Failpoints::default()),
            ..Options::default()
        },
    );
    let begun = Instant::now();
    let rounds = rounds(ROUNDS_IN_CI);
    for round in 0..rounds {
        let moment = match round % 5 {
            0 => Moment::After(Duration::from_millis(world.rng.between(5, 100))),
            1 => Moment::After(Duration::from_millis(world.rng.between(100, 1200))),
            2 => Moment::Sealed,
            3 => Moment::Switched,
            _ => Moment::Truncated,
        };
        world.load_and_kill(moment);
        if world.rng.one_in(3) {
            world.kill_during_start();
        }
        // Relaxed survives the process as well: only the device may be behind.
        world.node.options.durability = Some(*world.rng.pick(&["strict", "relaxed"]));
        world.restart();
        world.verify();
    }
    check_still_keys(&mut world.node.client(), 0..STILL_KEYS);
    world.node.stop();
    world.node.restart();
    world.verify();
    eprintln!(
        "{rounds} kills, {:?}, {} acknowledged writes, {:?}",
        world.kills,
        world.acknowledged,
        begun.elapsed()
    );
    assert!(
        world.acknowledged > 100 * rounds,
        "{} writes only",
        world.acknowledged
    );
    let Kills {
        between_seal_and_switch,
        during_an_image,
        during_truncation,
    } = world.kills;
    for (kind, count) in [
        ("between seal and switch", between_seal_and_switch),
        ("during an image", during_an_image),
        ("during truncation", during_truncation),
    ] {
        assert!(
            count >= rounds / 10,
            "{count} of {rounds} kills were {kind}"
        );
    }
}

#[test]
fn no_kill_takes_anything_back_when_the_number_of_shards_changes() {
    let options = Options {
        shards: 3,
        wal_budget: Some(WAL_BUDGET),
        ..Options::default()
    };
    let mut world = World::new("crash with other shards", options);
    for _ in 0..rounds(ROUNDS_IN_CI).div_ceil(4) {
        let span = world.rng.between(50, 500);
        world.load_and_kill(Moment::After(Duration::from_millis(span)));
        world.node.options.shards = world.rng.between(1, 5) as u16;
        if world.rng.one_in(2) {
            world.kill_during_start();
            world.node.options.shards = world.rng.between(1, 5) as u16;
        }
        world.node.restart();
        world.verify();
    }
    check_still_keys(&mut world.node.client(), 0..STILL_KEYS);
}

#[test]
fn a_flush_is_not_undone_by_a_kill() {
    let mut node = Node::start(Options {
        wal_budget: Some(WAL_BUDGET),
        ..Options::default()
    });
    for round in 0..4 {
        let mut client = node.client();
        write_still_keys(&mut client);
        client.say(if round % 2 == 0 {
            "FLUSHALL"
        } else {
            "FLUSHDB"
        });
        client.say("SET after 1");
        node.kill();
        node.restart();
        let mut client = node.client();
        assert_eq!(client.say("DBSIZE"), Reply::Integer(1));
        assert_eq!(client.say("GET after"), Reply::bulk("1"));
    }
}

#[test]
fn a_relaxed_write_outlives_a_kill_that_comes_before_the_log_is_written() {
    let mut node = Node::start(Options {
        shards: 2,
        durability: Some("relaxed"),
        ..Options::default()
    });
    let mut unwritten = 0;
    let mut written = 0;
    for round in 0..8 {
        let mut client = node.client();
        let name = |i: usize| format!("relaxed:{i}").into_bytes();
        let keys = written..written + 50 + 100 * round;
        let set = |i| vec![b"SET".to_vec(), name(i), format!("value {i}").into_bytes()];
        let requests: Vec<_> = keys.clone().map(set).collect();
        for reply in client.pipeline(&requests) {
            assert_eq!(reply, Reply::ok());
        }
        node.kill();
        written = keys.end;
        let (code, report) = node.check();
        assert_eq!(code, Some(0), "{report}");
        unwritten += usize::from(report.contains("that the system has and the log has not"));
        // Whatever the next start is, it takes over what this one has left.
        node.options.durability = Some(["strict", "relaxed", "relaxed"][round % 3]);
        node.options.shards = 1 + (round / 2 % 3) as u16;
        node.restart();
        let mut client = node.client();
        assert_eq!(client.say("DBSIZE"), Reply::Integer(written as i64));
        let requests: Vec<_> = (0..written)
            .map(|i| vec![b"GET".to_vec(), name(i)])
            .collect();
        for (i, reply) in client.pipeline(&requests).into_iter().enumerate() {
            assert_eq!(reply, Reply::bulk(format!("value {i}")));
        }
    }
    assert!(unwritten > 0, "every kill came after the log was written");
}
