//! What the shard has to tell its node, at once or when its log is durable so far.

use std::time::{Duration, Instant};

use ephesus_wal::LogWriter;
use ephesus_wire::Lsn;

use crate::migration::Report;

/// How often the node is told how far all moves are: together, for its thread and the coordinator's have to
/// wake up each time.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// The way to the node.
#[derive(Debug)]
pub(super) struct Reports {
    node: flume::Sender<Report>,
    waiting: Vec<(Lsn, Report)>,
    /// When progress is told next, and whether it is in this turn.
    progress: Instant,
    is_progress_due: bool,
}

impl Reports {
    pub(super) fn new(node: flume::Sender<Report>, now: Instant) -> Reports {
        Reports {
            node,
            waiting: Vec::new(),
            progress: now + PROGRESS_EVERY,
            is_progress_due: false,
        }
    }

    /// Once a turn.
    pub(super) fn look(&mut self, now: Instant) {
        self.is_progress_due = now >= self.progress;
        if self.is_progress_due {
            self.progress = now + PROGRESS_EVERY;
        }
    }

    /// Whether each move tells in this turn how far it is.
    pub(super) fn is_progress_due(&self) -> bool {
        self.is_progress_due
    }

    /// When they do so next.
    pub(super) fn next_progress(&self) -> Instant {
        self.progress
    }

    pub(super) fn tell(&self, report: Report) {
        // A node that stops hears nothing any more.
        let _ = self.node.send(report);
    }

    /// Tells it when the log is durable up to `lsn`: only then does a restart find it so.
    pub(super) fn once_durable(&mut self, lsn: Lsn, report: Report) {
        self.waiting.push((lsn, report));
    }

    /// Tells what is durable now.
    pub(super) fn tell_durable(&mut self, log: &LogWriter) {
        let is_durable = |(lsn, _): &mut (Lsn, Report)| *lsn <= log.durable();
        for (_, report) in self.waiting.extract_if(.., is_durable) {
            let _ = self.node.send(report);
        }
    }

    /// Whether a sync would let something be told.
    pub(super) fn wait_for_sync(&self, log: &LogWriter) -> bool {
        let waits = |lsn: Lsn| lsn > log.durable() && lsn <= log.committed();
        self.waiting.iter().any(|(lsn, _)| waits(*lsn))
    }
}
