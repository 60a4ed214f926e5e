use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What happens while commands are sent.
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
    zero: Instant,
    begins_ns: [AtomicU64; Phase::COUNT],
    end_ns: AtomicU64,
}

impl Timetable {
    /// Begins now with the warm-up, and does not end.
    pub(crate) fn new() -> Self {
        let begins_ns = Phase::ALL
            .map(|phase| AtomicU64::new(if phase == Phase::WarmUp { 0 } else { u64::MAX }));
        Timetable {
            zero: Instant::now(),
            begins_ns,
            end_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// One phase, [`Phase::Before`], behind a warm-up; it ends after so long, if it says so.
    pub(super) fn of(warmup: Duration, duration: Option<Duration>) -> Self {
        let table = Timetable::new();
        let ns = |time: Duration| time.as_nanos() as u64;
        table.begins_ns[Phase::Before as usize].store(ns(warmup), Ordering::Relaxed);
        let end_ns = duration.map_or(u64::MAX, |duration| ns(warmup + duration));
        table.end_ns.store(end_ns, Ordering::Relaxed);
        table
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.zero.elapsed().as_nanos() as u64
    }

    /// What is due from now on belongs to this phase.
    pub(crate) fn enter(&self, phase: Phase) {
        self.begins_ns[phase as usize].store(self.now_ns(), Ordering::Relaxed);
    }

    /// Nothing is due from now on.
    pub(crate) fn end(&self) {
        self.end_ns.fetch_min(self.now_ns(), Ordering::Relaxed);
    }

    pub(super) fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Relaxed)
    }

    pub(super) fn begin_ns(&self, phase: Phase) -> u64 {
        self.begins_ns[phase as usize].load(Ordering::Relaxed)
    }

    /// The phase that a moment belongs to.
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
