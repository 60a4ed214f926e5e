/// When batches are due: a fixed interval from time zero, independent of replies.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Batches per second; `None` closes the loop.
    batches_per_s: Option<f64>,
    issued: u64,
}

impl Schedule {
    /// `rate` commands per second in batches of `pipeline`; rate 0 is never due.
    pub(super) fn new(rate: u64, pipeline: u32) -> Self {
        let batches_per_s = (rate > 0).then(|| rate as f64 / f64::from(pipeline.max(1)));
        Schedule {
            batches_per_s,
            issued: 0,
        }
    }

    /// Whether the loop is closed: nothing is ever due by time.
    pub(super) fn is_closed(&self) -> bool {
        self.batches_per_s.is_none()
    }

    /// When the next batch is due, in nanoseconds from the start.
    pub(super) fn next_due_ns(&self) -> u64 {
        match self.batches_per_s {
            Some(rate) => (self.issued as f64 * 1e9 / rate) as u64,
            None => u64::MAX,
        }
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
