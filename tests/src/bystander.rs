//! A well-behaved client that must be served whatever others do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::resp::{Client, Reply};

/// A thread that sets and gets without a pause and measures how long it had to wait.
#[derive(Debug)]
pub struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Served>,
}

/// Keys of a bystander.
const KEYS: u64 = 64;

/// What its keys begin with: all over the node, or where the port serves only a shard, a hash tag of
/// that shard.
fn prefix_here(client: &mut Client) -> String {
    let tags = (0..1000).map(|tag| format!("{{bystander:{tag}}}:"));
    let mut prefixes = std::iter::once("bystander:".to_owned()).chain(tags);
    let mut is_here = |prefix: &String| {
        (0..KEYS).all(|n| {
            let reply = client.call(&["GET", &format!("{prefix}{n}")]);
            !reply.error().is_some_and(|text| text.starts_with("MOVED"))
        })
    };
    let found = prefixes.find(|prefix| is_here(prefix));
    found.expect("some hash tag lies in the shard")
}

/// How the bystander fared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    pub requests: u64,
    /// How long a SET and a GET together took, in 99 of 100 cases at most.
    pub p99: Duration,
    pub slowest: Duration,
}

impl Bystander {
    /// On an entry port or a direct one.
    pub fn watch(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut client = Client::connect(port).expect("the bystander connects");
            let prefix = prefix_here(&mut client);
            let mut served = Served::default();
            let mut waits = Vec::new();
            while !stopped.load(Ordering::SeqCst) || served.requests < 100 {
                let key = format!("{prefix}{}", served.requests % KEYS);
                let value = served.requests.to_string();
                let begun = Instant::now();
                assert_eq!(client.call(&["SET", &key, &value]), Reply::ok());
                assert_eq!(client.call(&["GET", &key]), Reply::bulk(&value));
                waits.push(begun.elapsed());
                served.requests += 1;
            }
            waits.sort_unstable();
            served.p99 = waits[waits.len() * 99 / 100];
            served.slowest = waits[waits.len() - 1];
            served
        });
        Self { stop, thread }
    }

    /// Stops it.
    ///
    /// # Panics
    /// When it got a wrong answer, lost its connection, or once waited longer than `at_most`.
    pub fn assert_served(self, at_most: Duration) -> Served {
        self.stop.store(true, Ordering::SeqCst);
        let served = self
            .thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(
            served.slowest <= at_most,
            "a well-behaved client waited {:?} (limit {at_most:?})",
            served.slowest
        );
        served
    }
}
