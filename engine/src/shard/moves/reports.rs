//! What the shard has to tell its node, at once or when its log is durable so far.

use ephesus_wal::LogWriter;
use ephesus_wire::Lsn;

use crate::migration::Report;

/// The way to the node.
#[derive(Debug)]
pub(super) struct Reports {
    node: flume::Sender<Report>,
    waiting: Vec<(Lsn, Report)>,
}

impl Reports {
    pub(super) fn new(node: flume::Sender<Report>) -> Reports {
        Reports {
            node,
            waiting: Vec::new(),
        }
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
