use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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

    pub(super) fn is_closed(&self) -> bool {
        self.interval_ns.is_none()
    }

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing, and nothing is counted.
    WarmUp,
    Before,
    During,
    After,
}

impl Phase {
    pub(super) const COUNT: usize = 4;

    pub(super) const ALL: [Phase; Phase::COUNT] =
        [Phase::WarmUp, Phase::Before, Phase::During, Phase::After];
}

/// When phases begin and sending ends, in ns; `u64::MAX` until it is known.
#[derive(Debug)]
pub(crate) struct Timetable {
    /// Set once all executors are ready; none: some of them are not, and nothing begins.
    zero: OnceLock<Option<Instant>>,
    begins_ns: [AtomicU64; Phase::COUNT],
    end_ns: AtomicU64,
}

impl Timetable {
    /// Begins with the warm-up, behind which is [`Phase::Before`]; it ends after so long, if it says so.
    pub(super) fn of(warmup: Duration, duration: Option<Duration>) -> Self {
        let ns = |time: Duration| time.as_nanos() as u64;
        let end_ns = duration.map_or(u64::MAX, |duration| ns(warmup + duration));
        Timetable {
            zero: OnceLock::new(),
            begins_ns: [0, ns(warmup), u64::MAX, u64::MAX].map(AtomicU64::new),
            end_ns: AtomicU64::new(end_ns),
        }
    }

    /// Lets executors begin, or not.
    pub(super) fn open(&self, begins: bool) {
        self.zero.get_or_init(|| begins.then(Instant::now));
    }

    /// Waits until that is known.
    pub(super) fn begins(&self) -> bool {
        self.zero.wait().is_some()
    }

    pub(super) fn now_ns(&self) -> u64 {
        let zero = self.zero.get().copied().flatten();
        zero.map_or(0, |zero| zero.elapsed().as_nanos() as u64)
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.begins_ns[phase as usize].store(self.now_ns(), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.end_ns.fetch_min(self.now_ns(), Ordering::Relaxed);
    }

    pub(super) fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Relaxed)
    }

    pub(super) fn begin_ns(&self, phase: Phase) -> u64 {
        self.begins_ns[phase as usize].load(Ordering::Relaxed)
    }

    pub(super) fn phase(&self, at_ns: u64) -> Phase {
        let begun = |phase: &Phase| self.begin_ns(*phase) <= at_ns;
        Phase::ALL.into_iter().rfind(begun).unwrap_or(Phase::WarmUp)
    }

    /// How long a phase was, if it has begun; the last one was over then.
    pub(super) fn seconds(&self, phase: Phase, over_ns: u64) -> f64 {
        let later = Phase::ALL.into_iter().skip(phase as usize + 1);
        let until = later.map(|phase| self.begin_ns(phase)).chain([over_ns]);
        let until = until.min().unwrap_or_default();
        until.saturating_sub(self.begin_ns(phase)) as f64 / 1e9
    }
}
