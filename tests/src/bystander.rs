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

/// How the bystander fared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    pub requests: u64,
    pub slowest: Duration,
}

impl Bystander {
    pub fn watch(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut client = Client::connect(port).expect("the bystander connects");
            let mut served = Served::default();
            while !stopped.load(Ordering::SeqCst) || served.requests < 100 {
                let key = format!("bystander:{}", served.requests % 64);
                let value = served.requests.to_string();
                let begun = Instant::now();
                assert_eq!(client.call(&["SET", &key, &value]), Reply::ok());
                assert_eq!(client.call(&["GET", &key]), Reply::bulk(&value));
                served.slowest = served.slowest.max(begun.elapsed());
                served.requests += 1;
            }
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
