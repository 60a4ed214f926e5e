//! What a shard takes a turn for although nothing happens, and when.

use std::time::{Duration, Instant};

use super::Shard;
use crate::keyspace::large_replies;
use crate::table::NEVER_MS;

/// After this long without a write, a mark makes everything before it durable for recovery.
pub(super) const MARK_AFTER: Duration = Duration::from_millis(50);

/// With relaxed durability the device is synced this often.
pub(super) const SYNC_EVERY: Duration = Duration::from_millis(900);

/// After this time the next round may remove expired keys: it looks at all of a segment in which one is due.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How often a shard takes a turn at least: the node's lease counts from the last one.
const LIFE_EVERY: Duration = Duration::from_millis(100);

/// How often counters that cost something are published, at most.
pub(super) const PUBLISH_EVERY: Duration = Duration::from_millis(20);

/// How often the hottest keys are published, at most.
pub(super) const HOT_KEYS_EVERY: Duration = Duration::from_millis(500);

/// When periodic work was done, or is due.
pub(super) struct Timers {
    pub last_append: Instant,
    pub marked: bool,
    pub sync: Instant,
    /// The next round of the sweep begins no earlier.
    pub sweep: Instant,
    pub publish: Instant,
    pub hot_keys: Instant,
    pub unpublished: bool,
}

impl Timers {
    pub fn new(now: Instant) -> Timers {
        Timers {
            last_append: now,
            marked: true,
            sync: now,
            sweep: now,
            publish: now,
            hot_keys: now,
            unpublished: true,
        }
    }
}

/// A reason to take a turn.
#[derive(Clone, Copy)]
enum Timer {
    /// The lease asks for a turn; images may begin, or their store hang.
    Life,
    /// The last writes get their mark.
    Mark,
    /// The log is synced.
    Sync,
    /// A write of the log has waited for others for as long as one may.
    WriteDelay,
    /// A write of the log that was refused is tried again.
    RefusedWrite,
    /// Keys expire.
    Sweep,
    Migrations,
    Publish,
    /// Clients that do not read may have to be closed.
    Unread,
    /// An accept that was refused is tried again.
    Accept,
    /// A TLS handshake has taken too long.
    Handshake,
    /// There may be room for a large reply.
    ReplyRoom,
    /// What waits for something that no completion tells of.
    Blocked,
}

impl Timer {
    const ALL: [Timer; 13] = [
        Timer::Life,
        Timer::Mark,
        Timer::Sync,
        Timer::WriteDelay,
        Timer::RefusedWrite,
        Timer::Sweep,
        Timer::Migrations,
        Timer::Publish,
        Timer::Unread,
        Timer::Accept,
        Timer::Handshake,
        Timer::ReplyRoom,
        Timer::Blocked,
    ];
}

impl Shard {
    /// How long the shard may sleep.
    pub(super) fn until_next_timer(&self) -> Duration {
        let all = Timer::ALL.into_iter().filter_map(|timer| self.due(timer));
        let next = all.min().unwrap_or(self.now);
        next.saturating_duration_since(self.now)
    }

    /// When a timer is due, if it is set.
    fn due(&self, timer: Timer) -> Option<Instant> {
        let (now, timers, core) = (self.now, &self.timers, &self.core);
        match timer {
            Timer::Life => Some(now + LIFE_EVERY),
            Timer::Mark => (!timers.marked).then(|| timers.last_append + MARK_AFTER),
            Timer::Sync => {
                let is_behind = self.is_unsynced() || self.is_unwritten();
                is_behind.then(|| timers.sync + SYNC_EVERY)
            }
            Timer::WriteDelay => self.write_delay.deadline(),
            Timer::RefusedWrite => self.refused_writes.deadline(),
            Timer::Sweep => {
                let keyspace = &core.keyspace;
                if keyspace.may_have_expired() {
                    return Some(timers.sweep);
                }
                let from_ms = keyspace.expires_from_ms();
                let after_ms = from_ms.saturating_sub(keyspace.now_ms());
                let at = (from_ms != NEVER_MS).then(|| Duration::from_millis(after_ms));
                // What is due beyond the next turn of life needs no exact time, and may be beyond all time.
                at.map(|after| (now + after.min(LIFE_EVERY)).max(timers.sweep))
            }
            Timer::Migrations => self.migrations.next_look(),
            Timer::Publish => timers.unpublished.then(|| timers.publish + PUBLISH_EVERY),
            Timer::Unread => core.admission.unread.next_look(),
            Timer::Accept => self.refused_accepts.iter().map(|(_, at)| *at).min(),
            Timer::Handshake => self.tls_clients.deadline(),
            Timer::ReplyRoom => core
                .looks_for_room()
                .then(|| now + large_replies::LOOK_EVERY),
            Timer::Blocked => {
                let waits = self.stopping.is_some() || core.has_blocked() || self.log_waits;
                waits.then(|| now + PUBLISH_EVERY)
            }
        }
    }
}
