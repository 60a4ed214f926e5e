//! When captured writes leave: those of all copies together, every so often.
//!
//! Behind the walk each write of a client joins its copy's stream, and nobody waits for it there before
//! commands are held. Sent one by one, it costs both ends a system call, a wake-up and an
//! acknowledgement each, and the target a synced write of its log: as much as its client's own.

use std::time::{Duration, Instant};

/// Captured writes leave so often, if their messages are not full before.
const EVERY: Duration = Duration::from_millis(20);

/// Whether captured writes wait, and for how long.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// When they leave; none when they go at once.
    until: Option<Instant>,
    /// In this turn they wait.
    is_on: bool,
}

impl Gathering {
    /// Once a turn; they wait only if there are clients, whose turns would be shorter.
    pub(super) fn look(&mut self, has_clients: bool, now: Instant) {
        self.is_on = has_clients && self.until.is_some_and(|until| now < until);
        if !self.is_on {
            self.until = has_clients.then(|| now + EVERY);
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// When they leave at the latest, if they wait.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant does")]
    fn they_leave_every_so_often_and_at_once_without_clients() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut gathering = Gathering::default();
        let mut leave = |has_clients: bool, at: u32| {
            gathering.look(has_clients, start + at * ms);
            let waits_until = gathering.until().is_some();
            assert_eq!(waits_until, has_clients);
            !gathering.is_on()
        };
        let left: Vec<u32> = (0..60).filter(|&at| leave(true, at)).collect();
        assert_eq!(left, [0, 20, 40]);
        assert!(leave(true, 500));
        assert!(!leave(true, 501), "it begins anew");
        assert!(leave(false, 502) && leave(false, 503));
        assert!(leave(true, 504));
    }
}
