//! Migrations whose commands are held, and which are decided, together.
//!
//! The walks of a group end one after the other. Who is ready goes on capturing until the rest of its group
//! is, within bounds; then all are held in one turn, and what a decision costs, syncs, tables and layouts, is
//! there once for all of them.

use std::time::{Duration, Instant};

/// What of a group may be unacknowledged when its commands are held: they wait until the target has it, and a disk takes
/// a millisecond for that.
const HANDOFF_BACKLOG_BYTES: usize = 64 << 10;

/// How long a copy waits whose walk is over for others of its group.
const GROUP_WAIT_MAX: Duration = Duration::from_secs(1);

/// Captured writes of all sources of a shard that may wait to be sent; above it the one gives up that has most.
const BACKLOG_BYTES_MAX: usize = 32 << 20;

/// Time between the beginnings of two handoffs of a shard, if the first is not decided sooner without a command that has
/// waited: what waits in one is over, with what queues behind it, long before the next.
pub(super) const HANDOFF_INTERVAL_MS: u64 = 100;

/// How far one migration is that has not held commands yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) backlog_bytes: usize,
    /// Its walk is over.
    pub(super) is_walked: bool,
}

/// How far a group is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Group {
    is_walking: bool,
    /// Of those that are walked.
    backlog_bytes: usize,
}

impl Group {
    fn add(&mut self, standing: Standing) {
        match standing.is_walked {
            true => self.backlog_bytes += standing.backlog_bytes,
            false => self.is_walking = true,
        }
    }

    /// Whether one that has been walked for so long and has this backlog may hold commands. After a while it does not
    /// look at the others, as writes to all of them may be more than their targets keep up with.
    pub(super) fn is_ready(&self, waited: Duration, backlog_bytes: usize) -> bool {
        if waited >= GROUP_WAIT_MAX {
            return backlog_bytes <= HANDOFF_BACKLOG_BYTES;
        }
        !self.is_walking && self.backlog_bytes <= HANDOFF_BACKLOG_BYTES
    }

    /// When [`Group::is_ready`] does not look at others any more, for one whose walk was over then.
    pub(super) fn next(since: Instant) -> Instant {
        since + GROUP_WAIT_MAX
    }
}

/// All groups of a shard.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Those that have not held commands yet.
    groups: Vec<(u64, Group)>,
    /// Of all sources, and of the one that has most.
    backlog_bytes: usize,
    largest_backlog_bytes: usize,
}

impl Groups {
    /// Counts anew.
    pub(super) fn count(&mut self, standings: impl Iterator<Item = (u64, Standing)>) {
        self.groups.clear();
        self.backlog_bytes = 0;
        self.largest_backlog_bytes = 0;
        for (number, standing) in standings {
            self.backlog_bytes += standing.backlog_bytes;
            self.largest_backlog_bytes = self.largest_backlog_bytes.max(standing.backlog_bytes);
            let mut groups = self.groups.iter_mut();
            match groups.find(|(found, _)| *found == number) {
                Some((_, group)) => group.add(standing),
                None => {
                    let mut group = Group::default();
                    group.add(standing);
                    self.groups.push((number, group));
                }
            }
        }
    }

    /// Whether a source with this backlog gives up, as more waits than may, and most of it is its own.
    pub(super) fn gives_up(&self, backlog_bytes: usize) -> bool {
        self.backlog_bytes > BACKLOG_BYTES_MAX && backlog_bytes >= self.largest_backlog_bytes
    }

    /// How far the group of this number was when it was counted.
    pub(super) fn get(&self, number: u64) -> Group {
        let found = self.groups.iter().find(|(found, _)| *found == number);
        found.map_or_else(Group::default, |(_, group)| *group)
    }
}

/// The last handoff of a shard, which keeps the next one back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handoff {
    group: u64,
    began: Instant,
    /// No other one begins before.
    until: Instant,
}

impl Handoff {
    /// There was none.
    pub(super) fn none(now: Instant) -> Handoff {
        Handoff {
            group: 0,
            began: now,
            until: now,
        }
    }

    /// Whether the commands of a migration of this group may be held: with those of others of it in one turn.
    pub(super) fn may_begin(&self, group: u64, now: Instant) -> bool {
        now >= self.until || (self.group, self.began) == (group, now)
    }

    pub(super) fn begin(&mut self, group: u64, now: Instant) {
        *self = Handoff {
            group,
            began: now,
            until: now + Duration::from_millis(HANDOFF_INTERVAL_MS),
        };
    }

    /// It is decided, and no command waits: nobody needs the distance.
    pub(super) fn unnoticed(&mut self, group: u64, now: Instant) {
        if self.group == group {
            self.until = self.until.min(now);
        }
    }

    /// When the next one may begin, if not now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        (self.until > now).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed::start;

    const MS: Duration = Duration::from_millis(1);

    const WALKING: Standing = Standing {
        backlog_bytes: HANDOFF_BACKLOG_BYTES,
        is_walked: false,
    };

    fn walked(backlog_bytes: usize) -> Standing {
        Standing {
            backlog_bytes,
            is_walked: true,
        }
    }

    fn groups(standings: &[(u64, Standing)]) -> Groups {
        let mut groups = Groups::default();
        groups.count([(7, WALKING)].into_iter());
        groups.count(standings.iter().copied());
        groups
    }

    #[test]
    fn who_is_walked_waits_for_its_own_group() {
        let half = HANDOFF_BACKLOG_BYTES / 2;
        let ready = groups(&[(1, walked(half)), (2, WALKING), (1, walked(half))]);
        assert!(ready.get(1).is_ready(Duration::ZERO, half));
        assert!(
            ready.get(7).is_ready(Duration::ZERO, 0),
            "nothing is left of it"
        );
        let busy = groups(&[(1, walked(half)), (1, walked(half + 1))]);
        assert!(!busy.get(1).is_ready(Duration::ZERO, half), "of both");
    }

    #[test]
    fn above_the_bound_of_the_shard_the_source_gives_up_that_has_most() {
        let half = BACKLOG_BYTES_MAX / 2;
        let walking = |backlog_bytes| Standing {
            backlog_bytes,
            ..WALKING
        };
        let within = groups(&[(1, walking(half)), (2, walking(half))]);
        assert!(!within.gives_up(half), "all of it may wait");
        let above = groups(&[(1, walking(half + 1)), (1, walking(half)), (2, walked(10))]);
        assert!(above.gives_up(half + 1));
        assert!(!above.gives_up(half), "others go on");
    }

    #[test]
    fn nobody_waits_for_long() {
        let walking = groups(&[(1, walked(10)), (1, WALKING)]).get(1);
        assert!(!walking.is_ready(GROUP_WAIT_MAX - MS, 10));
        assert!(walking.is_ready(GROUP_WAIT_MAX, HANDOFF_BACKLOG_BYTES));
        assert!(!walking.is_ready(GROUP_WAIT_MAX, HANDOFF_BACKLOG_BYTES + 1));
    }

    #[test]
    fn groups_hold_one_after_the_other() {
        let (now, interval) = (start(), Duration::from_millis(HANDOFF_INTERVAL_MS));
        let mut handoff = Handoff::none(now);
        assert!(handoff.may_begin(1, now) && handoff.next(now).is_none());
        handoff.begin(1, now);
        assert!(handoff.may_begin(1, now), "all of it");
        assert!(!handoff.may_begin(1, now + MS) && !handoff.may_begin(2, now));
        assert_eq!(handoff.next(now), Some(now + interval));
        assert!(handoff.may_begin(2, now + interval), "decided or not");
        handoff.unnoticed(2, now + MS);
        assert!(!handoff.may_begin(2, now + MS), "it was another one's");
        handoff.unnoticed(1, now + MS);
        assert!(handoff.may_begin(2, now + MS), "no command has waited");
    }
}
