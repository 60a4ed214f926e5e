//! Settings that CONFIG SET changes while the node runs, for all of its shards at once.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::command::config::{Change, Memory};
use crate::keyspace::events::EventClasses;

#[derive(Debug)]
pub struct LiveSettings {
    max_memory: AtomicU64,
    slower_than_usec: AtomicI64,
    slow_log_len: AtomicU64,
    latency_threshold_ms: AtomicU64,
    tracks_latency: AtomicBool,
    slot_stats: AtomicBool,
    /// Of [`EventClasses`].
    events: AtomicU32,
}

impl LiveSettings {
    /// Those that Redis starts with.
    #[must_use]
    pub fn new(max_memory: u64, events: EventClasses) -> LiveSettings {
        LiveSettings {
            max_memory: AtomicU64::new(max_memory),
            slower_than_usec: AtomicI64::new(10_000),
            slow_log_len: AtomicU64::new(128),
            latency_threshold_ms: AtomicU64::new(0),
            tracks_latency: AtomicBool::new(true),
            slot_stats: AtomicBool::new(false),
            events: AtomicU32::new(events.to_bits()),
        }
    }

    pub fn apply(&self, change: Change) {
        match change {
            Change::MaxMemory(Memory(bytes)) => self.max_memory.store(bytes, Ordering::Relaxed),
            Change::SlowerThan(usec) => self.slower_than_usec.store(usec, Ordering::Relaxed),
            Change::SlowLogLen(len) => self.slow_log_len.store(len, Ordering::Relaxed),
            Change::LatencyThreshold(ms) => {
                self.latency_threshold_ms.store(ms, Ordering::Relaxed);
            }
            Change::LatencyTracking(is_on) => self.tracks_latency.store(is_on, Ordering::Relaxed),
            Change::SlotStats(is_on) => self.slot_stats.store(is_on, Ordering::Relaxed),
            Change::Events(events) => self.events.store(events.to_bits(), Ordering::Relaxed),
            Change::Nothing => {}
        }
    }

    /// Bytes; 0 is no limit.
    #[must_use]
    pub fn max_memory(&self) -> u64 {
        self.max_memory.load(Ordering::Relaxed)
    }

    /// Microseconds from which on a command is in the slow log; negative for never.
    #[must_use]
    pub fn slower_than_usec(&self) -> i64 {
        self.slower_than_usec.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn slow_log_len(&self) -> u64 {
        self.slow_log_len.load(Ordering::Relaxed)
    }

    /// Milliseconds from which on LATENCY knows of a command; 0 for never.
    #[must_use]
    pub fn latency_threshold_ms(&self) -> u64 {
        self.latency_threshold_ms.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn tracks_latency(&self) -> bool {
        self.tracks_latency.load(Ordering::Relaxed)
    }

    /// Whether use is counted by slot.
    #[must_use]
    pub fn slot_stats(&self) -> bool {
        self.slot_stats.load(Ordering::Relaxed)
    }

    /// Of which events of keys there are messages.
    #[must_use]
    pub fn events(&self) -> EventClasses {
        EventClasses::from_bits(self.events.load(Ordering::Relaxed))
    }

    /// What CONFIG GET says of them.
    #[must_use]
    pub fn parameters(&self) -> [(&'static str, String); 7] {
        let word = |is_on| if is_on { "yes" } else { "no" }.to_owned();
        [
            ("cluster-slot-stats-enabled", word(self.slot_stats())),
            (
                "latency-monitor-threshold",
                self.latency_threshold_ms().to_string(),
            ),
            ("latency-tracking", word(self.tracks_latency())),
            ("maxmemory", self.max_memory().to_string()),
            ("notify-keyspace-events", self.events().text()),
            (
                "slowlog-log-slower-than",
                self.slower_than_usec().to_string(),
            ),
            ("slowlog-max-len", self.slow_log_len().to_string()),
        ]
    }
}
