//! Clients that write and read while partitions move, and take every reply for its word.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ephesus_tests::Rng;
use ephesus_tests::TestCluster;
use ephesus_tests::ledger::Unit;
use ephesus_tests::roaming::Roaming;

/// Clients at a time.
const CLIENTS: u64 = 4;

/// Units of each client: enough for every partition to have some of each kind.
const UNITS: u64 = 300;

/// One in so many commands reads.
const READS: u64 = 4;

/// Clients at work.
pub struct Load {
    clients: Vec<JoinHandle<Done>>,
    is_over: Arc<AtomicBool>,
    commands: Arc<AtomicU64>,
}

/// What one client has done.
struct Done {
    units: Vec<Unit>,
    moved: u64,
    longest: Duration,
}

/// What all clients have done.
pub struct Outcome {
    pub units: Vec<Unit>,
    pub commands: u64,
    /// Redirections.
    pub moved: u64,
    /// The longest wait for a reply.
    pub longest: Duration,
}

impl Load {
    /// Clients that begin at these addresses. Any error, and any reply but the one that is right, is
    /// a panic.
    pub fn start(seeds: &[SocketAddr], rng: &mut Rng) -> Load {
        let (is_over, commands) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let clients = (0..CLIENTS).map(|client| {
            let units: Vec<Unit> = (0..UNITS)
                .map(|n| Unit::new(n * CLIENTS + client))
                .collect();
            let (is_over, commands) = (Arc::clone(&is_over), Arc::clone(&commands));
            let (roaming, rng) = (Roaming::new(seeds.to_vec()), rng.fork());
            std::thread::spawn(move || work(roaming, units, rng, &is_over, &commands))
        });
        Load {
            clients: clients.collect(),
            is_over,
            commands,
        }
    }

    /// Waits until so many more commands were answered.
    pub fn goes_on(&self, more: u64) {
        let until = self.commands.load(Ordering::Relaxed) + more;
        let began = Instant::now();
        while self.commands.load(Ordering::Relaxed) < until {
            let is_working = self.clients.iter().all(|client| !client.is_finished());
            assert!(is_working, "a client has failed");
            assert!(began.elapsed() < Duration::from_secs(60), "nobody answers");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the load.
    pub fn finish(self) -> Outcome {
        self.is_over.store(true, Ordering::Relaxed);
        let mut outcome = Outcome {
            units: Vec::new(),
            commands: 0,
            moved: 0,
            longest: Duration::ZERO,
        };
        for client in self.clients {
            let done = client.join();
            let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome.units.extend(done.units);
            outcome.moved += done.moved;
            outcome.longest = outcome.longest.max(done.longest);
        }
        outcome.commands = self.commands.load(Ordering::Relaxed);
        eprintln!(
            "{} commands, {} of them redirected, none waited longer than {:?}",
            outcome.commands, outcome.moved, outcome.longest
        );
        outcome
    }
}

impl Outcome {
    /// Reads everything back, and holds it against what the nodes count.
    pub fn verify(&mut self, whole: &TestCluster) {
        let mut client = whole.client();
        let mut present = 0;
        for unit in &mut self.units {
            unit.settle_reply(client.call(&unit.read_request()));
            present += unit.present() as u64;
        }
        assert_eq!(whole.count_keys(), present, "keys of all nodes");
    }
}

fn work(
    mut client: Roaming,
    mut units: Vec<Unit>,
    mut rng: Rng,
    is_over: &AtomicBool,
    commands: &AtomicU64,
) -> Done {
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let at = rng.below(units.len() as u64) as usize;
        let unit = &mut units[at];
        let began = Instant::now();
        if rng.one_in(READS) {
            unit.settle_reply(client.call(&unit.read_request()));
        } else {
            let (words, expected) = unit.next_request(&mut rng);
            let reply = client.call(&words);
            expected.check(&reply, unit);
            unit.acknowledge();
        }
        longest = longest.max(began.elapsed());
        commands.fetch_add(1, Ordering::Relaxed);
    }
    Done {
        units,
        moved: client.moved,
        longest,
    }
}
