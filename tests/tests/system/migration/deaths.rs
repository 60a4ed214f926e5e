//! Nodes and coordinators that die while partitions move, over and over: every acknowledged write
//! stays, no deleted key comes back, every move ends, and nothing is left behind.
//!
//! `EPHESUS_CRASH_ROUNDS=n` makes it longer, `EPHESUS_SEED=n` repeats a run's choices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use ephesus_tests::disk::{allocated_bytes, segment_bytes};
use ephesus_tests::ledger::Unit;
use ephesus_tests::scale::rounds;
use ephesus_tests::writer_pool::{self, Tolerance, WriterPool};
use ephesus_tests::{Failpoints, Node, Options, Reply, Rng, TestCluster};

use super::{in_state, owned};

const ROUNDS_IN_CI: u64 = 8;

const NAMES: [&str; 4] = ["athens", "byzantium", "cyrene", "delphi"];

/// So many that whoever dies during moves often does so while one of them is decided.
const PARTITIONS: &str = "64";

/// Partitions of each node while none is drained.
const SHARE: usize = 16;

const COORDINATORS: u64 = 3;

const WRITERS: u64 = 4;
const UNITS_PER_WRITER: u64 = 60;

/// Keys written once, so that a partition has something to move: 1 MB each.
const STILL_KEYS: u64 = 2_000;
const STILL_BYTES_MAX: u64 = 64 << 10;

/// The smallest one, so that images and truncation go on as well.
const WAL_BUDGET: u64 = 64 << 20;

/// How long it may take from a death until the moves of a round are done: a node counts as failed,
/// comes back, and attempts are repeated.
const DONE_WITHIN: Duration = Duration::from_secs(60);

/// MB per second that a node may send, so that moves last; none: as fast as they can.
const LIMITS: [Option<&str>; 3] = [None, Some("4"), Some("10")];

/// A death waits for its moment so long at most, and then for a part of the copying.
const MOMENT_WITHIN: Duration = Duration::from_secs(3);
const PART_MS: u64 = 100;

/// How long a node goes on at most behind the order at which it dies.
const BEYOND_US: u64 = 5_000;

/// What all nodes together may have on disk beside their logs: files of stores do not shrink, so each
/// keeps what its largest share ever took, several times.
const STORED_MAX: u64 = 6 * STILL_KEYS * STILL_BYTES_MAX / 2 + (64 << 20);

/// How much more memory the nodes may have than before anything has moved: for images, which stores
/// keep parts of, and for a share that was larger meanwhile.
const GROWTH_MAX: u64 = NAMES.len() as u64 * (128 << 20);

/// How much more of each they may have than after half of the rounds, when stores have what they keep.
const LATE_GROWTH_MAX: u64 = NAMES.len() as u64 * (48 << 20);

/// Orders to a shard, each behind one durable step and before the next: a node that dies where it is about to give
/// one leaves its part of a move half done.
pub(super) const ORDERS: [&str; 5] = [
    "order-receive",
    "order-send",
    "order-committed",
    "order-settle",
    "order-forget",
];

/// When somebody dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// So long after something is copied.
    Copying(Duration),
    /// When a node is about to give this order, or has just given it, and it is this node.
    Order(&'static str),
}

/// Who dies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Victim {
    Node(&'static str),
    Coordinator(u64),
}

/// What moves in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Everything away from a node.
    Drain(&'static str),
    /// It gets its share again.
    Rebalance,
}

/// What all nodes together take.
#[derive(Clone, Copy, Debug)]
struct Weight {
    resident: u64,
    /// Beside the logs and the reserve.
    stored: u64,
    logs: u64,
}

/// A cluster, and everything it has promised.
struct World {
    whole: TestCluster,
    failpoints: Failpoints,
    units: Vec<Vec<Unit>>,
    drained: Option<&'static str>,
    rng: Rng,
    acknowledged: u64,
    /// Rounds in which somebody died while a partition was copied, or at an order.
    struck: u64,
    /// Rounds in which somebody was to die at an order, and in which a node did.
    orders: u64,
    died_at_orders: u64,
}

fn still_key(n: u64) -> String {
    format!("still:{n}")
}

fn still_value(n: u64) -> Vec<u8> {
    let mut rng = Rng::new(n);
    let size = rng.below(STILL_BYTES_MAX) as usize;
    rng.bytes(size)
}

impl World {
    fn new() -> Self {
        let rng = Rng::new(ephesus_tests::seed_of_run("deaths during moves"));
        let flags = ["--partitions", PARTITIONS];
        let failpoints = Failpoints::default();
        let whole = TestCluster::started_with(&flags, &NAMES, |whole, name| Options {
            wal_budget: Some(WAL_BUDGET),
            failpoints: Some(failpoints.clone()),
            ..whole.options(name, 2)
        });
        let mut client = whole.client();
        for n in 0..STILL_KEYS {
            let value = still_value(n);
            let key = still_key(n);
            let reply = client.call(&[b"SET", key.as_bytes(), &value]);
            assert_eq!(reply, Reply::ok());
        }
        let units = |writer: u64| {
            let first = writer * UNITS_PER_WRITER;
            (first..first + UNITS_PER_WRITER).map(Unit::new).collect()
        };
        Self {
            whole,
            failpoints,
            units: (0..WRITERS).map(units).collect(),
            drained: None,
            rng,
            acknowledged: 0,
            struck: 0,
            orders: 0,
            died_at_orders: 0,
        }
    }

    /// What the next round moves.
    fn next_task(&mut self) -> Task {
        match self.drained {
            Some(_) => Task::Rebalance,
            None => Task::Drain(NAMES[self.rng.below(4) as usize]),
        }
    }

    /// Has moves planned; they may be refused while somebody is away.
    fn plan(&mut self, task: Task) {
        let core = &self.whole.core;
        match (task, self.drained) {
            (Task::Drain(name), _) => {
                core.ask(&["drain", name]);
                self.drained = Some(name);
            }
            (Task::Rebalance, drained) => {
                if let Some(name) = drained {
                    let told = core.ask(&["drain", name, "--end"]);
                    self.drained = drained.filter(|_| told.code != Some(0));
                }
                core.ask(&["rebalance"]);
            }
        }
    }

    /// From now on, until nothing moves any more.
    fn limit(&self, mb_per_s: &str) {
        self.whole.core.ask(&["rebalance", "--limit", mb_per_s]);
    }

    fn moment(&mut self) -> Moment {
        match self.rng.one_in(2) {
            true => Moment::Copying(Duration::from_millis(self.rng.below(PART_MS))),
            false => Moment::Order(ORDERS[self.rng.below(ORDERS.len() as u64) as usize]),
        }
    }

    /// Waits for the moment, and answers whom it names; it may not come.
    fn wait_for(&mut self, moment: Moment) -> Option<Victim> {
        let deadline = Instant::now() + MOMENT_WITHIN;
        while Instant::now() < deadline {
            match moment {
                Moment::Copying(part) if in_state(&self.whole, "copying") > 0 => {
                    std::thread::sleep(part);
                    return None;
                }
                Moment::Order(_) => {
                    if let Some(at) = self.whole.stopped() {
                        return Some(self.struck_at(at));
                    }
                }
                Moment::Copying(_) => {}
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let Moment::Order(order) = moment else {
            return None;
        };
        // One may have passed since the last look.
        self.failpoints.disarm(order).then(|| {
            let at = self.whole.until_stopped(MOMENT_WITHIN);
            self.struck_at(at)
        })
    }

    /// The node that has stopped before an order; half of them give it and go on for a little.
    fn struck_at(&mut self, at: usize) -> Victim {
        if self.rng.one_in(2) {
            self.whole.nodes[at].signal(libc::SIGCONT);
            std::thread::sleep(Duration::from_micros(self.rng.below(BEYOND_US)));
        }
        Victim::Node(NAMES[at])
    }

    /// Whether all partitions are where the task wants them.
    fn is_done(&self, task: Task) -> bool {
        let owned = owned(&self.whole);
        match task {
            Task::Drain(name) => !owned.contains_key(name),
            Task::Rebalance => NAMES.iter().all(|name| owned.get(*name) == Some(&SHARE)),
        }
    }

    /// Goes on planning until the task is done and no migration is under way.
    fn complete(&mut self, task: Task) {
        let began = Instant::now();
        loop {
            let is_still = in_state(&self.whole, "planned") + in_state(&self.whole, "copying") == 0;
            if is_still && self.is_done(task) {
                return;
            }
            if is_still {
                self.plan(task);
            }
            assert!(
                began.elapsed() < DONE_WITHIN,
                "{task:?} is not done within {DONE_WITHIN:?}: {}",
                self.whole.core.json("migrations")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// One process, a node and a coordinator, or all nodes.
    fn victims(&mut self) -> Vec<Victim> {
        let node = Victim::Node(NAMES[self.rng.below(4) as usize]);
        let coordinator = Victim::Coordinator(self.rng.between(1, COORDINATORS + 1));
        match self.rng.below(10) {
            0 => vec![node, coordinator],
            1 | 2 => vec![coordinator],
            3 => NAMES.map(Victim::Node).to_vec(),
            _ => vec![node],
        }
    }

    /// From no time at all to more than it takes until a node counts as failed.
    fn absence(&mut self) -> Duration {
        let at_most_ms = *self.rng.pick(&[1, 300, 1_000, 3_500]);
        Duration::from_millis(self.rng.below(at_most_ms))
    }

    fn kill(&mut self, victim: &Victim) {
        match *victim {
            Victim::Node(name) => self.whole.node(name).kill(),
            Victim::Coordinator(id) => self.whole.core.coordinator(id).kill(),
        }
    }

    /// Starts it; a node may die again before it is there.
    fn start(&mut self, victim: &Victim) {
        match *victim {
            Victim::Node(name) => {
                let dies_again = self.rng.one_in(4);
                let lives = Duration::from_millis(self.rng.below(300));
                let node = self.whole.node(name);
                if dies_again {
                    node.spawn();
                    std::thread::sleep(lives);
                    node.kill();
                }
                node.spawn();
            }
            Victim::Coordinator(id) => self.whole.core.coordinator(id).start(),
        }
    }

    /// Waits until it serves.
    fn wait_ready(&mut self, victim: &Victim) {
        if let Victim::Node(name) = *victim {
            let started = self.whole.node(name).wait_ready();
            started.unwrap_or_else(|refused| panic!("{name}: {}", refused.output));
        }
    }

    /// Moves with deaths in their middle, under load, and reads everything back.
    fn round(&mut self, number: u64) {
        let units = std::mem::take(&mut self.units);
        let entries = self.whole.entries();
        let began = Instant::now();
        let writers = WriterPool::start(&entries, units, Tolerance::Patient, &mut self.rng);
        let (task, moment) = (self.next_task(), self.moment());
        if let Moment::Order(order) = moment {
            self.failpoints.arm(order);
            self.orders += 1;
        }
        self.plan(task);
        let limit = LIMITS[self.rng.below(LIMITS.len() as u64) as usize];
        if let Some(limit) = limit {
            self.limit(limit);
        }
        let (victims, absence) = (self.victims(), self.absence());
        let named = self.wait_for(moment);
        let is_named = named.is_some();
        let victims = named.map_or(victims, |victim| vec![victim]);
        victims.iter().for_each(|victim| self.kill(victim));
        let copying = in_state(&self.whole, "copying");
        eprintln!(
            "round {number}: {task:?} at {limit:?}, {moment:?}; {victims:?} for {absence:?}, {copying} copied"
        );
        self.struck += u64::from(is_named || copying > 0);
        self.died_at_orders += u64::from(is_named);
        std::thread::sleep(absence);
        victims.iter().for_each(|victim| self.start(victim));
        victims.iter().for_each(|victim| self.wait_ready(victim));
        if limit.is_some() {
            self.limit("0");
        }
        self.complete(task);
        self.whole.until_healthy();
        self.acknowledged += writers.acknowledged();
        let errors = writers.errors();
        self.units = writers.finish();
        eprintln!(
            "done in {:?}; {} acknowledged in all, {errors} errors, {:?}",
            began.elapsed(),
            self.acknowledged,
            self.weight()
        );
        self.verify();
    }

    /// Every unit is in a state it may be in, and no node has a key that should not be there.
    fn verify(&mut self) {
        let mut client = self.whole.client();
        let units = self.units.iter_mut().flatten();
        let present = writer_pool::verify(&mut client, units) as u64 + STILL_KEYS;
        let counted = self.whole.count_keys();
        assert_eq!(counted, present, "keys came back or vanished");
        let from = self.rng.below(STILL_KEYS);
        for n in (0..STILL_KEYS / 8).map(|n| (from + n * 37) % STILL_KEYS) {
            let reply = client.call(&["GET", &still_key(n)]);
            let is_right = reply == Reply::Bulk(still_value(n));
            assert!(is_right, "{n}: {:?}", reply.error());
        }
    }

    fn weight(&self) -> Weight {
        let mut weight = Weight {
            resident: 0,
            stored: 0,
            logs: 0,
        };
        for node in &self.whole.nodes {
            let dir = node.data_dir().join("logs");
            let segments = segment_bytes(&dir);
            assert!(segments <= WAL_BUDGET, "logs of {segments} bytes");
            let logs = allocated_bytes(&dir);
            weight.resident += node.process().resident_bytes();
            // Of a fixed size, for starts on a full disk.
            let reserve = fs::metadata(node.data_dir().join("reserve"));
            let reserve = reserve.map_or(0, |file| file.blocks() * 512);
            weight.stored += allocated_bytes(node.data_dir()) - logs - reserve;
            weight.logs += logs;
        }
        weight
    }

    /// Ends what the last round has left undone.
    fn settle(&mut self) {
        if self.drained.is_some() {
            self.plan(Task::Rebalance);
            self.complete(Task::Rebalance);
        }
        self.whole.until_healthy();
    }
}

/// How many images a stopped node has, as `ephesus check` says, which finds nothing wrong.
fn images(node: &Node) -> usize {
    let (code, report) = node.check();
    assert_eq!(code, Some(0), "{report}");
    let stores = report.lines().filter(|line| line.starts_with("store "));
    let images = stores.map(|line| {
        let (before, _) = line.split_once(" images, ").expect("a number of images");
        let (_, number) = before.rsplit_once(' ').expect("a number of images");
        number.parse::<usize>().expect("a number of images")
    });
    images.sum()
}

#[test]
fn deaths_in_the_middle_of_moves_lose_nothing_and_leave_nothing_behind() {
    let mut world = World::new();
    let rounds = rounds(ROUNDS_IN_CI);
    let first = world.weight();
    let mut half = first;
    for number in 0..rounds {
        world.round(number);
        if number == rounds / 2 {
            half = world.weight();
        }
    }
    world.settle();
    world.verify();
    let last = world.weight();
    eprintln!(
        "at first {first:?}, after half {half:?}, at last {last:?}, {} rounds of {rounds} in the middle, {} of {} at orders",
        world.struck, world.died_at_orders, world.orders
    );
    assert!(last.stored <= STORED_MAX, "{last:?}");
    assert!(last.resident <= first.resident + GROWTH_MAX, "{last:?}");
    let most = half.resident + LATE_GROWTH_MAX;
    assert!(last.resident <= most, "{last:?} after {half:?}");
    let most = half.stored + LATE_GROWTH_MAX;
    assert!(last.stored <= most, "{last:?} after {half:?}");
    assert!(world.struck > 0, "nobody has died in the middle of a move");
    // An order may come too late, as the last ones of a slow move do.
    let at_orders = (world.died_at_orders, world.orders);
    assert!(2 * at_orders.0 >= at_orders.1, "{at_orders:?} at orders");

    for node in &mut world.whole.nodes {
        node.stop();
        let images = images(node);
        assert!(images <= SHARE, "{images} images of {SHARE} partitions");
        node.restart();
    }
    world.whole.until_healthy();
    world.verify();
}
