//! What is refused at the coordinator's port, for operators and for its log.

use std::sync::Arc;

use crate::link::Counters;
use crate::protocol::Refusals;

/// Between two times that the leader is told, ms.
const TELL_EVERY_MS: u64 = 1_000;

/// The log gets a line in this time, ms, while there are more.
const LOG_EVERY_MS: u64 = 60_000;

/// When it was said last, and what.
#[derive(Debug)]
pub(super) struct RefusalReport {
    counters: Arc<Counters>,
    told_ms: Option<u64>,
    logged_ms: Option<u64>,
    logged: u64,
}

impl RefusalReport {
    pub(super) fn new(counters: Arc<Counters>) -> RefusalReport {
        RefusalReport {
            counters,
            told_ms: None,
            logged_ms: None,
            logged: 0,
        }
    }

    /// What was refused so far, if it is time to say so.
    pub(super) fn due(&mut self, now_ms: u64) -> Option<Refusals> {
        let is_recent = |at: Option<u64>, every| at.is_some_and(|at| now_ms - at < every);
        if is_recent(self.told_ms, TELL_EVERY_MS) {
            return None;
        }
        self.told_ms = Some(now_ms);
        let refusals = Refusals(self.counters.refusals());
        if refusals.total() > self.logged && !is_recent(self.logged_ms, LOG_EVERY_MS) {
            self.logged_ms = Some(now_ms);
            self.log(&refusals);
        }
        Some(refusals)
    }

    /// Says what the log has not heard of yet.
    pub(super) fn finish(&mut self) {
        let refusals = Refusals(self.counters.refusals());
        if refusals.total() > self.logged {
            self.log(&refusals);
        }
    }

    fn log(&mut self, refusals: &Refusals) {
        self.logged = refusals.total();
        let counts = refusals.0.iter();
        let reasons: Vec<String> = counts.map(|(name, n)| format!("{name}: {n}")).collect();
        let (total, reasons) = (self.logged, reasons.join(", "));
        tracing::info!(total, %reasons, "connections refused at the port since the start");
    }
}
