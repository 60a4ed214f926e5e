/// When batches are due: a fixed interval from time zero, independent of replies.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Between two batches of one executor; none: the loop is closed.
    interval_ns: Option<f64>,
    /// Of all intervals, so that the executors' batches are evenly spread.
    offset: f64,
    issued: u64,
}

impl Schedule {
    /// `rate` commands per second in batches of `pipeline`, of which one of so many executors sends its share; rate
    /// 0 is never due.
    pub(super) fn new(rate: u64, pipeline: u32, (executor, executors): (usize, usize)) -> Self {
        let interval = |rate: u64| 1e9 * f64::from(pipeline.max(1)) / rate as f64;
        Schedule {
            interval_ns: (rate > 0).then(|| interval(rate) * executors as f64),
            offset: executor as f64 / executors as f64,
            issued: 0,
        }
    }

    /// Whether the loop is closed: nothing is ever due by time.
    pub(super) fn is_closed(&self) -> bool {
        self.interval_ns.is_none()
    }

    /// When the next batch is due, in nanoseconds from the start.
    pub(super) fn next_due_ns(&self) -> u64 {
        let due = |interval_ns| ((self.issued as f64 + self.offset) * interval_ns) as u64;
        self.interval_ns.map_or(u64::MAX, due)
    }

    /// Batches that are still to be taken before then.
    pub(super) fn due_before(&self, end_ns: u64) -> u64 {
        let left_ns = end_ns.saturating_sub(self.next_due_ns()) as f64;
        self.interval_ns
            .map_or(0, |interval_ns| (left_ns / interval_ns).ceil() as u64)
    }

    /// Takes the next batch when its time has come, and says when that was.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_due_ns();
        (due_ns <= now_ns).then(|| {
            self.issued += 1;
            due_ns
        })
    }
}
