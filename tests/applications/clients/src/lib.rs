//! What a program asks of whoever has started it, on its output; it goes on once there is a line on its input.

use std::error::Error;
use std::io::BufRead;
use std::time::{Duration, Instant};

pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// How long a node may be away.
const BACK_WITHIN: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(50);

pub const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

pub fn ask(what: &str) {
    println!("{what}");
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    assert!(read.is_ok_and(|bytes| bytes > 0), "{what} has failed");
}

/// [`ask`] beside the other tasks.
pub async fn ask_beside(what: &'static str) {
    tokio::task::spawn_blocking(move || ask(what))
        .await
        .expect("an answer");
}

/// Tries again while connections break.
pub fn patiently<T, E: Error>(mut action: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match action() {
            Ok(value) => return value,
            Err(error) => assert!(began.elapsed() < BACK_WITHIN, "{error}"),
        }
        std::thread::sleep(RETRY);
    }
}

/// The same.
pub async fn patiently_beside<T, E: Error>(mut action: impl AsyncFnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match action().await {
            Ok(value) => return value,
            Err(error) => assert!(began.elapsed() < BACK_WITHIN, "{error}"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The arguments, which are ports.
pub fn ports() -> Vec<u16> {
    let ports = std::env::args().skip(1);
    ports.map(|port| port.parse().expect("a port")).collect()
}
