//! When the disk is left to what clients wait for.
//!
//! A shard asks for it while commands are held that a move has to decide on: every write of the decision would wait
//! behind a piece of zeroes and its sync. Any number of shards may ask at a time; nobody takes a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Between two looks of a thread that waits, and how many of them it takes at most: a shard asks for no longer by
/// itself, and zeroes are needed some time.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS_MAX: usize = 50;

/// Shared by the shards of a node and the threads that write what can wait.
#[derive(Clone, Debug, Default)]
pub struct Quiet(Arc<AtomicUsize>);

/// One shard's wish, until it is dropped.
#[derive(Debug)]
pub struct Asked(Quiet);

impl Quiet {
    /// Asks for it.
    #[must_use]
    pub fn ask(&self) -> Asked {
        self.0.fetch_add(1, Ordering::Relaxed);
        Asked(self.clone())
    }

    /// Whether any shard asks for it.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Blocks while any shard asks for it, but not for long, and no more once it `is_over`.
    pub(super) fn wait(&self, is_over: impl Fn() -> bool) {
        for _ in 0..LOOKS_MAX {
            if !self.is_asked() || is_over() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn whoever_waits_goes_on_once_nobody_asks() {
        let quiet = Quiet::default();
        quiet.wait(|| false);
        let asked = [quiet.ask(), quiet.ask()];
        let waits = quiet.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            waits.wait(|| false);
            waits.is_asked()
        });
        let [first, second] = asked;
        drop(first);
        assert!(quiet.is_asked());
        drop(second);
        let goes_on = thread.expect("starts").join().expect("ends");
        assert!(!goes_on, "nobody asks");
    }

    #[test]
    fn nobody_waits_for_ever() {
        let quiet = Quiet::default();
        let asked = quiet.ask();
        quiet.wait(|| false);
        let looks = Cell::new(0);
        quiet.wait(|| looks.replace(looks.get() + 1) == 3);
        assert_eq!(looks.get(), 4, "it ends when the other reason says so");
        drop(asked);
    }
}
