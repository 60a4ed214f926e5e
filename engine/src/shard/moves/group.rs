//! Migrations whose commands are held, and which are decided, together.
//!
//! The walks of a group end one after the other. Who is ready goes on capturing until the rest of its group
//! is, within bounds; then all are held in one turn, and what a decision costs, syncs, tables and layouts, is
//! there once for all of them.

use std::time::{Duration, Instant};

use super::PAUSED_MAX;

/// How long a copy waits whose walk is over for others of its group that are still walked.
const WALKING_MAX: Duration = Duration::from_secs(1);

/// How long it waits for others whose streams are not accepted yet: with clients those of a group are opened
/// 10 ms apart.
const OPENING_MAX: Duration = Duration::from_millis(250);

/// What may be under way of those that are still walked when others of their group hold commands. They share a
/// connection, and all of it arrives before the held ones' end: 8 MiB kept clients of small partitions waiting
/// for 100 to 190 ms, because a large one happened to go with them.
const AHEAD_BYTES_MAX: usize = 128 << 10;

/// After how long the rest of the group is walked on all the same: writes to it may be more than lets what is
/// under way become little.
const PAUSED_WITHIN: Duration = Duration::from_secs(3);

/// How far one migration is that has not held commands yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Standing {
    Opening,
    /// With this backlog.
    Walking {
        backlog_bytes: usize,
    },
    /// Its walk is over since then.
    Walked {
        backlog_bytes: usize,
        waited: Duration,
        /// Its target has not said yet that commands may be held.
        waits_for_target: bool,
    },
}

/// Captured writes of all sources of a shard that may wait to be sent; above it the one gives up that has most.
const BACKLOG_BYTES_MAX: usize = 64 << 20;

impl Standing {
    fn backlog_bytes(self) -> usize {
        match self {
            Standing::Opening => 0,
            Standing::Walking { backlog_bytes } | Standing::Walked { backlog_bytes, .. } => {
                backlog_bytes
            }
        }
    }
}

/// How far a group is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Group {
    is_opening: bool,
    is_walking: bool,
    /// Of those that are walked.
    backlog_bytes: usize,
    /// Of those that are still walked.
    walking_bytes: usize,
    /// The longest that one waits whose walk is over.
    waited: Duration,
    waits_for_target: bool,
}

impl Group {
    fn add(&mut self, standing: Standing) {
        match standing {
            Standing::Opening => self.is_opening = true,
            Standing::Walking { backlog_bytes } => {
                self.is_walking = true;
                self.walking_bytes += backlog_bytes;
            }
            Standing::Walked {
                backlog_bytes,
                waited,
                waits_for_target,
            } => {
                self.backlog_bytes += backlog_bytes;
                self.waited = self.waited.max(waited);
                self.waits_for_target |= waits_for_target;
            }
        }
    }

    /// Whether one that has been walked for so long and has this backlog is to hold commands now, if one of
    /// so many bytes is small. After a while it does not look at the others, as writes to all of them may be more than
    /// their targets keep up with.
    pub(super) fn is_ready(
        &self,
        waited: Duration,
        backlog_bytes: usize,
        backlog_bytes_max: usize,
    ) -> bool {
        if self.pauses_walks() {
            return false;
        }
        if waited >= WALKING_MAX {
            return backlog_bytes <= backlog_bytes_max;
        }
        let waits = self.is_walking || self.is_opening && waited < OPENING_MAX;
        !waits && self.backlog_bytes <= backlog_bytes_max
    }

    /// Whether one that is ready may hold commands as far as the others are concerned, for whose targets it waits.
    pub(super) fn may_hold(&self, waited: Duration) -> bool {
        !self.waits_for_target || waited >= WALKING_MAX
    }

    /// Whether those that are still walked are not to be walked on now: others do not wait for them any more,
    /// and would have to hold commands until all that is under way has arrived.
    pub(super) fn pauses_walks(&self) -> bool {
        (WALKING_MAX..PAUSED_WITHIN).contains(&self.waited) && self.walking_bytes > AHEAD_BYTES_MAX
    }

    /// After how long of waiting [`Group::is_ready`] may be so although nothing has happened, if there is
    /// still such a time for one that has waited so long.
    pub(super) fn next(waited: Duration) -> Option<Duration> {
        [OPENING_MAX, WALKING_MAX, PAUSED_WITHIN]
            .into_iter()
            .find(|at| *at > waited)
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
    /// The last one that has begun to hold commands and is not decided, and when that was.
    last_hold: Option<(Instant, u64)>,
}

impl Groups {
    /// Counts anew; `holds` are the groups that hold commands, and since when.
    pub(super) fn count(
        &mut self,
        standings: impl Iterator<Item = (u64, Standing)>,
        holds: impl Iterator<Item = (Instant, u64)>,
    ) {
        self.last_hold = holds.max();
        self.groups.clear();
        self.backlog_bytes = 0;
        self.largest_backlog_bytes = 0;
        for (number, standing) in standings {
            let backlog_bytes = standing.backlog_bytes();
            self.backlog_bytes += backlog_bytes;
            self.largest_backlog_bytes = self.largest_backlog_bytes.max(backlog_bytes);
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

    /// Whether commands are held for another group than this one, which would be decided later if it came between; not
    /// for long.
    pub(super) fn another_holds(&self, number: u64, now: Instant) -> bool {
        self.last_hold.is_some_and(|(since, group)| {
            group != number && now.saturating_duration_since(since) < PAUSED_MAX
        })
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::shard::bed::start;

    const MS: Duration = Duration::from_millis(1);

    const WALKING: Standing = Standing::Walking {
        backlog_bytes: AHEAD_BYTES_MAX,
    };

    fn walked(waited: Duration) -> Standing {
        Standing::Walked {
            backlog_bytes: 10,
            waited,
            waits_for_target: false,
        }
    }

    fn groups(standings: &[(u64, Standing)]) -> Groups {
        let mut groups = Groups::default();
        groups.count([(7, Standing::Opening)].into_iter(), iter::empty());
        groups.count(standings.iter().copied(), iter::empty());
        groups
    }

    #[test]
    fn who_is_walked_waits_for_its_own_group() {
        let walked = walked(Duration::ZERO);
        let groups = groups(&[(1, walked), (2, WALKING), (1, walked)]);
        assert!(groups.get(1).is_ready(Duration::ZERO, 10, 20));
        assert!(!groups.get(1).is_ready(Duration::ZERO, 10, 19), "of both");
        assert!(
            groups.get(7).is_ready(Duration::ZERO, 0, 0),
            "nothing is left of it"
        );
    }

    #[test]
    fn a_group_waits_for_the_targets_of_all_of_it() {
        let waiting = Standing::Walked {
            backlog_bytes: 10,
            waited: Duration::ZERO,
            waits_for_target: true,
        };
        let walked = walked(Duration::ZERO);
        let groups = groups(&[(1, walked), (1, waiting), (2, walked)]);
        assert!(!groups.get(1).may_hold(Duration::ZERO));
        assert!(groups.get(1).may_hold(WALKING_MAX));
        assert!(groups.get(2).may_hold(Duration::ZERO));
    }

    #[test]
    fn groups_hold_one_after_the_other() {
        let now = start();
        let mut groups = groups(&[(1, WALKING)]);
        assert!(!groups.another_holds(1, now));
        let holds = [(now, 3), (now + MS, 2), (now + MS, 2)];
        groups.count([(1, WALKING)].into_iter(), holds.into_iter());
        assert!(groups.another_holds(1, now + PAUSED_MAX) && groups.another_holds(3, now + MS));
        assert!(!groups.another_holds(2, now + MS), "its own");
        assert!(!groups.another_holds(1, now + MS + PAUSED_MAX), "too long");
    }

    #[test]
    fn above_the_bound_of_the_shard_the_source_gives_up_that_has_most() {
        let half = BACKLOG_BYTES_MAX / 2;
        let walking = |backlog_bytes| Standing::Walking { backlog_bytes };
        let within = groups(&[(1, walking(half)), (2, walking(half))]);
        assert!(!within.gives_up(half), "all of it may wait");
        let above = groups(&[(1, walking(half + 1)), (1, walking(half)), (2, walked(MS))]);
        assert!(above.gives_up(half + 1));
        assert!(!above.gives_up(half), "others go on");
    }

    #[test]
    fn nobody_waits_for_long() {
        let walked = walked(WALKING_MAX);
        let walking = groups(&[(1, walked), (1, WALKING)]).get(1);
        assert!(!walking.is_ready(WALKING_MAX - MS, 10, 20));
        assert!(walking.is_ready(WALKING_MAX, 10, 10));
        assert!(!walking.is_ready(WALKING_MAX, 10, 9));
        let opening = groups(&[(1, Standing::Opening), (1, walked)]).get(1);
        assert!(!opening.is_ready(OPENING_MAX - MS, 10, 20));
        assert!(opening.is_ready(OPENING_MAX, 10, 20));
    }

    #[test]
    fn walks_let_others_hold_before_they_go_on() {
        let much = Standing::Walking {
            backlog_bytes: AHEAD_BYTES_MAX / 2 + 1,
        };
        let group = |waited, walking: &[Standing]| {
            let walking = walking.iter().map(|standing| (1, *standing));
            let all: Vec<_> = walking.chain([(1, walked(waited))]).collect();
            groups(&all).get(1)
        };
        let early = group(WALKING_MAX - MS, &[much, much]);
        assert!(!early.pauses_walks() && !early.is_ready(WALKING_MAX - MS, 10, 20));
        let late = group(WALKING_MAX, &[much, much]);
        assert!(late.pauses_walks() && !late.is_ready(WALKING_MAX, 10, 20));
        let in_vain = group(PAUSED_WITHIN, &[much, much]);
        assert!(!in_vain.pauses_walks() && in_vain.is_ready(PAUSED_WITHIN, 10, 20));
        let little = group(WALKING_MAX, &[much]);
        assert!(!little.pauses_walks() && little.is_ready(WALKING_MAX, 10, 20));
    }
}
