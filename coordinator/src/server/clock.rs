//! The clocks of a coordinator's process.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Counts from the start of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    started: Instant,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a shell: the coordinator's clock"
)]
impl Clock {
    pub(super) fn start() -> Clock {
        Clock {
            started: Instant::now(),
        }
    }

    /// Monotonic, ms.
    pub(super) fn now_ms(self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Since 1970, ms.
    pub(super) fn wall_ms(self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}
