//! Mixed load from several connections that a crash may cut short at any byte.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::Rng;
use crate::ledger::{Expected, Unit};
use crate::resp::{Client, Reply, encode};
use crate::slots::SLOTS;

/// Most requests one writer has in flight.
const DEPTH: u64 = 48;
/// Reads an observer pipelines.
const OBSERVED_AT_ONCE: usize = 16;

/// Writers, each with its own units, and observers that read everybody's.
#[derive(Debug)]
pub struct Load {
    writers: Vec<JoinHandle<Vec<Unit>>>,
    observers: Vec<JoinHandle<HashMap<u64, u64>>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Finish what is in flight and return.
    stop: AtomicBool,
    /// From now on a broken connection is what the test did, not a failure.
    may_break: AtomicBool,
    acknowledged: AtomicU64,
}

impl Shared {
    fn excuse(&self, error: &std::io::Error) {
        assert!(
            self.may_break.load(Ordering::SeqCst),
            "the node broke a connection while it should be serving: {error}"
        );
    }
}

impl Load {
    /// One writer per element of `units`: the even ones use the entry port, the odd ones send each
    /// key to its own shard's port. Two observers read through the entry port.
    pub fn start(entry: u16, units: Vec<Vec<Unit>>, rng: &mut Rng) -> Self {
        let shared = Arc::new(Shared::default());
        let watched: Arc<Vec<Unit>> = Arc::new(units.iter().flatten().cloned().collect());
        let observers = (0..2)
            .map(|_| {
                let (watched, shared, rng) = (watched.clone(), shared.clone(), rng.fork());
                std::thread::spawn(move || observe(entry, &watched, &shared, rng))
            })
            .collect();
        let writers = units
            .into_iter()
            .enumerate()
            .map(|(index, units)| {
                let (shared, rng) = (shared.clone(), rng.fork());
                std::thread::spawn(move || write(entry, index % 2 == 1, units, &shared, rng))
            })
            .collect();
        Self {
            writers,
            observers,
            shared,
        }
    }

    /// Call before killing the node.
    pub fn expect_break(&self) {
        self.shared.may_break.store(true, Ordering::SeqCst);
    }

    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::SeqCst)
    }

    /// Ends the load and returns the units with what was acknowledged and observed.
    pub fn finish(self) -> Vec<Vec<Unit>> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let mut units: Vec<Vec<Unit>> = self.writers.into_iter().map(join).collect();
        for observer in self.observers {
            let seen = join(observer);
            for unit in units.iter_mut().flatten() {
                if let Some(&write) = seen.get(&unit.id()) {
                    unit.observed(write);
                }
            }
        }
        units
    }
}

fn join<T>(handle: JoinHandle<T>) -> T {
    handle
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Connections and, for each slot, which of them serves it.
struct Routes {
    clients: Vec<Client>,
    owner: Vec<usize>,
}

impl Routes {
    fn open(entry: u16, direct: bool) -> std::io::Result<Self> {
        let mut client = Client::connect(entry)?;
        if !direct {
            return Ok(Self {
                clients: vec![client],
                owner: vec![0; usize::from(SLOTS)],
            });
        }
        let mut routes = Self {
            clients: Vec::new(),
            owner: vec![usize::MAX; usize::from(SLOTS)],
        };
        let mut ports: Vec<u16> = Vec::new();
        for range in client.try_call(&["CLUSTER", "SLOTS"])?.items() {
            let range = range.items();
            let port = range[2].items()[1].integer() as u16;
            let index = match ports.iter().position(|&known| known == port) {
                Some(index) => index,
                None => {
                    ports.push(port);
                    routes.clients.push(Client::connect(port)?);
                    ports.len() - 1
                }
            };
            routes.owner[range[0].integer() as usize..=range[1].integer() as usize].fill(index);
        }
        assert!(
            !routes.owner.contains(&usize::MAX),
            "CLUSTER SLOTS leaves slots without an owner"
        );
        Ok(routes)
    }
}

fn write(
    entry: u16,
    direct: bool,
    mut units: Vec<Unit>,
    shared: &Shared,
    mut rng: Rng,
) -> Vec<Unit> {
    let mut routes = match Routes::open(entry, direct) {
        Ok(routes) => routes,
        Err(error) => {
            shared.excuse(&error);
            return units;
        }
    };
    let mut broken = vec![false; routes.clients.len()];
    while !shared.stop.load(Ordering::SeqCst) && !broken.contains(&true) {
        let mut outgoing = vec![Vec::new(); routes.clients.len()];
        let mut waiting: Vec<(usize, usize, Expected)> = Vec::new();
        for _ in 0..=rng.below(DEPTH) {
            let index = rng.below(units.len() as u64) as usize;
            let route = routes.owner[usize::from(units[index].slot())];
            let (request, expected) = units[index].next_request(&mut rng);
            encode(&request, &mut outgoing[route]);
            waiting.push((route, index, expected));
        }
        for (route, bytes) in outgoing.iter().enumerate() {
            if let Err(error) = routes.clients[route].send_raw(bytes) {
                shared.excuse(&error);
                broken[route] = true;
            }
        }
        for (route, index, expected) in waiting {
            // Even where sending broke, earlier answers may still be in the receive buffer; after
            // the first failed receive every further one fails as well.
            match routes.clients[route].receive() {
                Ok(reply) => {
                    expected.check(&reply, &units[index]);
                    units[index].acknowledge();
                    shared.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    shared.excuse(&error);
                    broken[route] = true;
                }
            }
        }
    }
    units
}

/// The newest write seen of each unit.
fn observe(entry: u16, units: &[Unit], shared: &Shared, mut rng: Rng) -> HashMap<u64, u64> {
    let mut seen: HashMap<u64, u64> = HashMap::new();
    let mut look = || -> std::io::Result<()> {
        let mut client = Client::connect(entry)?;
        while !shared.stop.load(Ordering::SeqCst) {
            let chosen: Vec<&Unit> = (0..OBSERVED_AT_ONCE).map(|_| rng.pick(units)).collect();
            let mut bytes = Vec::new();
            for unit in &chosen {
                let key = rng.pick(unit.keys()).as_slice();
                encode(&[b"GET".as_slice(), key], &mut bytes);
            }
            client.send_raw(&bytes)?;
            for unit in chosen {
                match client.receive()? {
                    Reply::Bulk(bytes) => {
                        let write = unit.decode(&bytes);
                        let newest = seen.entry(unit.id()).or_insert(write);
                        *newest = write.max(*newest);
                    }
                    reply if reply.is_nil() => {}
                    other => panic!("GET of {unit} answered {other:?}"),
                }
            }
        }
        Ok(())
    };
    if let Err(error) = look() {
        shared.excuse(&error);
    }
    seen
}
