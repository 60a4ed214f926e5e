//! What the shard has to tell its node, at the end of its turn or when its log is durable so far.
//!
//! All of a turn goes together: the node is waked up once, and what follows from it, steps for the coordinator, layouts
//! and routes, is there once for all of it.

use ephesus_wal::LogWriter;
use ephesus_wire::Lsn;

use crate::migration::Report;

/// The way to the node.
#[derive(Debug)]
pub(super) struct Reports {
    node: flume::Sender<Vec<Report>>,
    told: Vec<Report>,
    waiting: Vec<(Lsn, Report)>,
}

impl Reports {
    pub(super) fn new(node: flume::Sender<Vec<Report>>) -> Reports {
        Reports {
            node,
            told: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Tells it with [`Reports::send`].
    pub(super) fn tell(&mut self, report: Report) {
        self.told.push(report);
    }

    /// Sends what was told, and what is durable now.
    pub(super) fn send(&mut self, log: &LogWriter) {
        let is_durable = |(lsn, _): &mut (Lsn, Report)| *lsn <= log.durable();
        let durable = self.waiting.extract_if(.., is_durable);
        self.told.extend(durable.map(|(_, report)| report));
        if !self.told.is_empty() {
            // A node that stops hears nothing any more.
            let _ = self.node.send(std::mem::take(&mut self.told));
        }
    }

    /// Tells it when the log is durable up to `lsn`: only then does a restart find it so.
    pub(super) fn once_durable(&mut self, lsn: Lsn, report: Report) {
        self.waiting.push((lsn, report));
    }

    /// Whether a sync would let something be told.
    pub(super) fn wait_for_sync(&self, log: &LogWriter) -> bool {
        let waits = |lsn: Lsn| lsn > log.durable() && lsn <= log.committed();
        self.waiting.iter().any(|(lsn, _)| waits(*lsn))
    }
}
