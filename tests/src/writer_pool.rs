//! Load on a whole cluster: writers that remember what was acknowledged, whatever happens to whom.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Rng;
use crate::ledger::Unit;
use crate::resp::Reply;
use crate::roaming::Roaming;

/// How long a patient writer waits for a node.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often [`WriterPool::goes_on`] looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Once in so many writes the unit is read back.
const READ_ONE_IN: u64 = 4;

/// What a writer makes of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// There must not be any.
    Strict,
    /// Connections may break and nodes may be without a lease: then it waits until the unit can be
    /// read, and goes on from what it finds.
    Patient,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    acknowledged: AtomicU64,
    errors: AtomicU64,
}

/// Writers at work, each with units of its own.
#[derive(Debug)]
pub struct WriterPool {
    writers: Vec<JoinHandle<Vec<Unit>>>,
    shared: Arc<Shared>,
}

impl WriterPool {
    /// One writer per element of `units`, which write as fast as they are answered.
    pub fn start(
        seeds: &[SocketAddr],
        units: Vec<Vec<Unit>>,
        tolerance: Tolerance,
        rng: &mut Rng,
    ) -> Self {
        Self::start_resting(seeds, units, (tolerance, Duration::ZERO), rng)
    }

    /// The same; each writer rests for so long after each write.
    pub fn start_resting(
        seeds: &[SocketAddr],
        units: Vec<Vec<Unit>>,
        (tolerance, rest): (Tolerance, Duration),
        rng: &mut Rng,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let writer = |units: Vec<Unit>| {
            let (client, shared, rng) = (
                Roaming::new(seeds.to_vec()),
                Arc::clone(&shared),
                rng.fork(),
            );
            std::thread::spawn(move || write(client, units, (tolerance, rest), &shared, rng))
        };
        Self {
            writers: units.into_iter().map(writer).collect(),
            shared,
        }
    }

    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::SeqCst)
    }

    /// Waits until so many more writes were acknowledged: however slow the machine is, so much is done.
    ///
    /// # Panics
    /// When a writer ends, or it takes too long.
    pub fn goes_on(&self, more: u64, at_most: Duration) {
        let (before, began) = (self.acknowledged(), Instant::now());
        while self.acknowledged() < before + more {
            assert!(!self.is_broken(), "a writer has given up");
            let done = self.acknowledged() - before;
            assert!(
                began.elapsed() < at_most,
                "{done} of {more} writes within {at_most:?}"
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Errors and broken connections that patient writers have met.
    pub fn errors(&self) -> u64 {
        self.shared.errors.load(Ordering::SeqCst)
    }

    /// Whether a writer has ended before it was told to, which is in a panic.
    pub fn is_broken(&self) -> bool {
        self.writers.iter().any(JoinHandle::is_finished)
    }

    /// Ends the load; the units know what was acknowledged.
    ///
    /// # Panics
    /// With what a writer has met.
    pub fn finish(self) -> Vec<Vec<Unit>> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let writers = self.writers.into_iter();
        let ended: Vec<_> = writers.map(JoinHandle::join).collect();
        let units = ended.into_iter();
        units
            .map(|units| units.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    }
}

fn write(
    mut client: Roaming,
    mut units: Vec<Unit>,
    (tolerance, rest): (Tolerance, Duration),
    shared: &Shared,
    mut rng: Rng,
) -> Vec<Unit> {
    while !shared.stop.load(Ordering::SeqCst) {
        let index = rng.below(units.len() as u64) as usize;
        let unit = &mut units[index];
        let (request, expected) = unit.next_request(&mut rng);
        let trouble = match client.try_call(&request) {
            Ok(reply) if tolerance == Tolerance::Strict || !is_down(&reply) => {
                expected.check(&reply, unit);
                unit.acknowledge();
                shared.acknowledged.fetch_add(1, Ordering::Relaxed);
                None
            }
            Ok(reply) => Some(format!("{reply:?}")),
            Err(error) => Some(error.to_string()),
        };
        if let Some(trouble) = &trouble {
            assert!(
                tolerance == Tolerance::Patient,
                "a write to {unit}: {trouble}"
            );
            shared.errors.fetch_add(1, Ordering::Relaxed);
        }
        if trouble.is_some() || rng.one_in(READ_ONE_IN) {
            settle(&mut client, unit, tolerance);
        }
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
    units
}

/// Whether a node says that it, or its cluster, cannot serve now.
fn is_down(reply: &Reply) -> bool {
    let error = reply.error();
    error.is_some_and(|text| text.starts_with("CLUSTERDOWN "))
}

/// Reads the unit back, and takes what is found for its state.
///
/// # Panics
/// When it is none of the states the unit may be in; on an error unless patient.
fn settle(client: &mut Roaming, unit: &mut Unit, tolerance: Tolerance) {
    let request = unit.read_request();
    unit.settle_reply(match tolerance {
        Tolerance::Strict => client.call(&request),
        Tolerance::Patient => client.insist(&request, PATIENCE),
    });
}

/// Reads every unit back over the cluster and settles it; returns how many keys exist.
///
/// # Panics
/// When a unit is in a state it may not be in, or a node does not answer.
pub fn verify<'a>(client: &mut Roaming, units: impl Iterator<Item = &'a mut Unit>) -> usize {
    units
        .map(|unit| {
            settle(client, unit, Tolerance::Strict);
            unit.present()
        })
        .sum()
}
