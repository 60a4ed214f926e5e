//! Load that is uneven: each partition has one long value, whose bits clients count, more often in some than in others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::roaming::Roaming;
use crate::slots::{SLOTS, slot};
use crate::{Reply, Rng, TestCluster};

/// Half of its bits are set.
const BYTE: u8 = 0b0101_1010;

/// A thread that meets a broken connection says so.
type Worker = JoinHandle<()>;

/// Clients at work, each of whose answers is checked.
#[derive(Debug)]
pub struct Uneven {
    workers: Vec<Worker>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    keys: Vec<String>,
    value_bytes: usize,
    /// Sums of weights, by partition.
    until: Mutex<Vec<f64>>,
    is_over: AtomicBool,
    answered: AtomicU64,
}

/// Weights of so many partitions, the first of which is asked for most.
pub fn zipfian(partitions: u16, theta: f64) -> Vec<f64> {
    let weight = |rank: u16| f64::from(rank + 1).powf(-theta);
    (0..partitions).map(weight).collect()
}

/// A key of each partition.
pub fn keys(partitions: u16) -> Vec<String> {
    let of = |partition: u16| {
        let mut keys = (0..).map(|n| format!("key:{n}"));
        let is_there = |key: &String| {
            let slot = u32::from(slot(key.as_bytes()));
            slot * u32::from(partitions) / u32::from(SLOTS) == u32::from(partition)
        };
        keys.find(is_there).expect("there is always another key")
    };
    (0..partitions).map(of).collect()
}

fn sums(weights: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let sums = weights.iter().map(|weight| {
        sum += weight;
        sum
    });
    sums.collect()
}

impl Uneven {
    /// Writes values of so many bytes, and has so many clients count their bits; `weights` has one for each partition.
    pub fn start(
        whole: &TestCluster,
        weights: &[f64],
        (value_bytes, clients): (usize, usize),
        rng: &mut Rng,
    ) -> Self {
        let shared = Arc::new(Shared {
            keys: keys(weights.len() as u16),
            value_bytes,
            until: Mutex::new(sums(weights)),
            is_over: AtomicBool::new(false),
            answered: AtomicU64::new(0),
        });
        let mut client = whole.client();
        for key in &shared.keys {
            let value = vec![BYTE; value_bytes];
            let reply = client.call(&[b"SET".as_slice(), key.as_bytes(), &value]);
            assert_eq!(reply, Reply::ok(), "{key}");
        }
        let workers = (0..clients).map(|_| {
            let (client, shared, rng) = (whole.client(), Arc::clone(&shared), rng.fork());
            std::thread::spawn(move || shared.work(client, rng))
        });
        Self {
            workers: workers.collect(),
            shared,
        }
    }

    /// From now on partitions are asked for by other weights.
    pub fn turn_to(&self, weights: &[f64]) {
        let mut until = self.shared.until.lock();
        let until = until.as_deref_mut();
        *until.unwrap_or_else(|_| panic!("a client has failed")) = sums(weights);
    }

    /// How many answers there were by now, all of them right.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::SeqCst)
    }

    /// Ends it.
    ///
    /// # Panics
    /// When a client has seen an error, or a wrong answer.
    pub fn finish(self) -> u64 {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for worker in self.workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        self.shared.answered.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn work(&self, mut client: Roaming, mut rng: Rng) {
        let set = i64::from(BYTE.count_ones()) * self.value_bytes as i64;
        while !self.is_over.load(Ordering::SeqCst) {
            let key = {
                let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
                let all = until.last().copied().unwrap_or(0.0);
                let at = rng.below(1 << 32) as f64 / (1u64 << 32) as f64 * all;
                let partition = until.partition_point(|sum| *sum <= at);
                &self.keys[partition.min(self.keys.len() - 1)]
            };
            assert_eq!(
                client.call(&["BITCOUNT", key]),
                Reply::Integer(set),
                "{key}"
            );
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// What `ephesus partitions --by load` says.
pub fn figures(whole: &TestCluster) -> Value {
    let told = whole.core.ask(&["partitions", "--by", "load", "--json"]);
    told.assert(0, &[]);
    serde_json::from_str(&told.out).expect("JSON")
}

/// The CPU time of each shard over so long, us per second: of its commands and of all else that its thread does.
pub fn cpu_of_shards(whole: &TestCluster, during: Duration) -> BTreeMap<String, f64> {
    let began = Instant::now();
    let (mut sums, mut looks) = (BTreeMap::<String, f64>::new(), 0.0);
    while began.elapsed() < during {
        std::thread::sleep(Duration::from_secs(1));
        looks += 1.0;
        for row in figures(whole)["shards"].as_array().expect("rows") {
            let name = format!("{}/{}", row["node"].as_str().unwrap_or("?"), row["shard"]);
            *sums.entry(name).or_default() +=
                row["last_1s"]["cpu_us_per_s"].as_f64().unwrap_or(0.0);
        }
    }
    sums.values_mut().for_each(|sum| *sum /= looks);
    sums
}

/// What the busiest shard takes, against the mean.
pub fn hottest(cpu: &BTreeMap<String, f64>) -> f64 {
    let mean = cpu.values().sum::<f64>() / cpu.len() as f64;
    cpu.values().copied().fold(0.0, f64::max) / mean
}
