//! Memory that sled has let go of but not freed: its epochs (`crossbeam-epoch`, one collector for all Dbs of a
//! process) keep it until every thread that was inside sled at the time has left.
//!
//! A store thread of the idle class that loses its CPU inside sled stays there for up to a second, while
//! the others go on. Each write buffer of sled is a segment, so that this was hundreds of megabytes. So
//! stores count what they have let go of, and wait for epochs when it is too much.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes of all stores that wait for an epoch.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// So many of them are no reason to wait.
const HELD_MAX: usize = 16 << 20;

/// While there are more, who adds to them waits so long between two looks, and for so many of them at most:
/// memory is no reason to stop for ever.
const PAUSE: Duration = Duration::from_millis(1);
const LOOKS_MAX: u32 = 2000;

/// Says that sled has let go of about `bytes`, helps it to free what it can, and waits while too much
/// is held. The caller is outside of sled.
pub(super) fn let_go(bytes: usize) {
    HELD.fetch_add(bytes, Ordering::Relaxed);
    let guard = sled::pin();
    guard.defer(move || HELD.fetch_sub(bytes, Ordering::Relaxed));
    guard.flush();
    drop(guard);
    for _ in 0..LOOKS_MAX {
        if HELD.load(Ordering::Relaxed) <= HELD_MAX {
            return;
        }
        std::thread::sleep(PAUSE);
        sled::pin().flush();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn waits_for_a_thread_inside_sled_and_goes_on_once_it_has_left() {
        let has_left = AtomicBool::new(false);
        let guard = sled::pin();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let_go(2 * HELD_MAX);
                has_left.load(Ordering::Relaxed)
            });
            thread::sleep(50 * PAUSE);
            has_left.store(true, Ordering::Relaxed);
            drop(guard);
            assert!(waiting.join().expect("no panic"), "went on at once");
        });
    }
}
