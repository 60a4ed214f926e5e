//! What the state of the log lets writes, moves and removals do.

use ephesus_wal::LogWriter;

/// Bytes of records that may wait for the log; beyond it connections that write have to wait.
const UNWRITTEN_BYTES_MAX: usize = 16 << 20;

/// Whether there is room in a shard's log, as it was found once in this turn.
#[derive(Debug)]
pub(crate) struct LogRoom {
    /// The log is over its budget.
    is_full: bool,
    /// It is, or has too much that is not committed: writes wait.
    is_behind: bool,
    /// What moves here may be sent: there is room for more than clients write.
    pub has_room_for_moves: bool,
    /// Each time that there is room again, this shard's connections come first, or what other shards have
    /// forwarded, in turn: either could take all of it.
    pub own_come_first: bool,
}

/// What has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogNews {
    pub is_full_now: bool,
    /// Whether writes wait, if they have not before, or do not any more.
    pub is_behind: Option<bool>,
}

impl Default for LogRoom {
    fn default() -> LogRoom {
        LogRoom {
            is_full: false,
            is_behind: false,
            has_room_for_moves: true,
            own_come_first: false,
        }
    }
}

impl LogRoom {
    /// Looks at the log, once a turn. Writes that have waited go on when half of what may wait is written.
    pub fn look(&mut self, log: &LogWriter, is_over_budget: bool) -> LogNews {
        let bytes_max = UNWRITTEN_BYTES_MAX >> u32::from(self.is_behind);
        let is_behind = is_over_budget || log.unwritten_bytes() > bytes_max;
        let news = LogNews {
            is_full_now: is_over_budget && !self.is_full,
            is_behind: (is_behind != self.is_behind).then_some(is_behind),
        };
        self.is_full = is_over_budget;
        if news.is_behind.is_some() {
            self.is_behind = is_behind;
            self.own_come_first ^= !is_behind;
        }
        news
    }

    /// Whether writes have to wait: also when this turn alone has written too much.
    pub fn makes_wait(&self, log: &LogWriter) -> bool {
        self.is_behind || log.unwritten_bytes() > UNWRITTEN_BYTES_MAX
    }

    /// Whether writes had to wait when the turn began.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }
}
