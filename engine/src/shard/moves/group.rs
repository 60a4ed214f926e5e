//! Migrations whose commands are held, and which are decided, together.
//!
//! The walks of a group end one after the other. Who is ready goes on capturing until the rest of its group
//! is, within bounds; then all are held in one turn, and what a decision costs, syncs, tables and layouts, is
//! there once for all of them.
//!
//! While there are clients one group is walked at a time, so late that its walk ends when holds may begin
//! again: what is written behind a walk is captured, sent and logged a second time until the copy is held.

use std::time::{Duration, Instant};

/// How long a copy waits whose walk is over for others of its group that are still walked.
const WALKING_MAX: Duration = Duration::from_secs(1);

/// How long it waits for others whose streams are not accepted yet: with clients those of a group are opened
/// 10 ms apart.
const OPENING_MAX: Duration = Duration::from_millis(250);

/// How long it waits until it is calm: another group may come first, and rests are counted in seconds.
const CALM_WITHIN: Duration = Duration::from_secs(10);

/// How far one migration is that has not held commands yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Standing {
    Opening,
    /// Its walk may have begun.
    Walking {
        has_begun: bool,
    },
    /// Its walk is over, and this is its backlog.
    Walked {
        backlog_bytes: usize,
    },
}

/// How far a group is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Group {
    is_opening: bool,
    is_walking: bool,
    has_begun: bool,
    /// Of those that are walked.
    backlog_bytes: usize,
}

impl Group {
    fn add(&mut self, standing: Standing) {
        match standing {
            Standing::Opening => self.is_opening = true,
            Standing::Walking { has_begun } => {
                self.is_walking = true;
                self.has_begun |= has_begun;
            }
            Standing::Walked { backlog_bytes } => {
                self.has_begun = true;
                self.backlog_bytes += backlog_bytes;
            }
        }
    }

    /// Whether one of it is walked or was.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether one that has been walked for so long and has this backlog is to hold commands now, if one of
    /// so many bytes is small and it `is_calm`. After a while it does not look at the others, as writes to
    /// all of them may be more than their targets keep up with, and in the end not at whether it is calm.
    pub(super) fn is_ready(
        &self,
        waited: Duration,
        backlog_bytes: usize,
        backlog_bytes_max: usize,
        is_calm: bool,
    ) -> bool {
        if !is_calm && waited < CALM_WITHIN {
            return false;
        }
        if waited >= WALKING_MAX {
            return backlog_bytes <= backlog_bytes_max;
        }
        let waits = self.is_walking || self.is_opening && waited < OPENING_MAX;
        !waits && self.backlog_bytes <= backlog_bytes_max
    }

    /// After how long of waiting [`Group::is_ready`] may be so although nothing has happened, if there is
    /// still such a time for one that has waited so long.
    pub(super) fn next(waited: Duration) -> Option<Duration> {
        [OPENING_MAX, WALKING_MAX, CALM_WITHIN]
            .into_iter()
            .find(|at| *at > waited)
    }
}

/// All groups of a shard that have not held commands yet.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<(u64, Group)>,
    walk: Walk,
}

/// The walk of a group, which is measured.
#[derive(Debug, Default)]
struct Walk {
    /// The group, and since when it is walked.
    of: Option<(u64, Instant)>,
    is_over: bool,
    /// How long the last one took that is over.
    took: Duration,
}

impl Groups {
    /// Counts anew.
    pub(super) fn count(&mut self, standings: impl Iterator<Item = (u64, Standing)>, now: Instant) {
        self.groups.clear();
        for (number, standing) in standings {
            let at = self.groups.iter().position(|(found, _)| *found == number);
            let at = at.unwrap_or_else(|| {
                self.groups.push((number, Group::default()));
                self.groups.len() - 1
            });
            self.groups[at].1.add(standing);
        }
        let begun = self.begun().map(|number| (number, self.get(number)));
        self.walk.look(begun, now);
    }

    /// How far the group of this number was when it was counted.
    pub(super) fn get(&self, number: u64) -> Group {
        let found = self.groups.iter().find(|(found, _)| *found == number);
        found.map_or_else(Group::default, |(_, group)| *group)
    }

    /// The first group of those that are walked or were.
    fn begun(&self) -> Option<u64> {
        let mut groups = self.groups.iter();
        let begun = groups.find(|(_, group)| group.has_begun);
        begun.map(|(number, _)| *number)
    }

    /// The group that may be walked while there are clients, if holds may begin from `calm` on.
    pub(super) fn walkable(&self, calm: Instant, now: Instant) -> Option<u64> {
        self.begun().or_else(|| {
            let walking = self.groups.iter().filter(|(_, group)| group.is_walking);
            let next = walking.map(|(number, _)| *number).min();
            next.filter(|_| now >= self.walk_from(calm))
        })
    }

    /// When a walk is to begin that ends when holds may.
    pub(super) fn walk_from(&self, calm: Instant) -> Instant {
        let ahead = self.walk.took + self.walk.took / 4;
        calm.checked_sub(ahead).unwrap_or(calm)
    }
}

impl Walk {
    /// So far is the group that is walked now.
    fn look(&mut self, begun: Option<(u64, Group)>, now: Instant) {
        let Some((number, group)) = begun else { return };
        match self.of {
            Some((walked, since)) if walked == number => {
                if !self.is_over && !group.is_walking && !group.is_opening {
                    self.is_over = true;
                    self.took = now.saturating_duration_since(since);
                }
            }
            _ => {
                self.of = Some((number, now));
                self.is_over = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const WALKED: Standing = Standing::Walked { backlog_bytes: 10 };
    const WALKING: Standing = Standing::Walking { has_begun: true };
    const AHEAD: Standing = Standing::Walking { has_begun: false };

    #[expect(clippy::disallowed_methods, reason = "any instant does")]
    fn start() -> Instant {
        Instant::now()
    }

    fn groups(standings: &[(u64, Standing)]) -> Groups {
        let now = start();
        let mut groups = Groups::default();
        groups.count([(7, Standing::Opening)].into_iter(), now);
        groups.count(standings.iter().copied(), now);
        groups
    }

    #[test]
    fn who_is_walked_waits_for_its_own_group() {
        let groups = groups(&[(1, WALKED), (2, WALKING), (1, WALKED)]);
        assert!(groups.get(1).is_ready(Duration::ZERO, 10, 20, true));
        assert!(
            !groups.get(1).is_ready(Duration::ZERO, 10, 19, true),
            "of both"
        );
        assert!(
            groups.get(7).is_ready(Duration::ZERO, 0, 0, true),
            "nothing is left of it"
        );
    }

    #[test]
    fn nobody_waits_for_long() {
        let walking = groups(&[(1, WALKED), (1, WALKING)]).get(1);
        assert!(!walking.is_ready(WALKING_MAX - MS, 10, 20, true));
        assert!(walking.is_ready(WALKING_MAX, 10, 10, true));
        assert!(!walking.is_ready(WALKING_MAX, 10, 9, true));
        for standings in [&[(1, WALKED)][..], &[(1, WALKED), (1, WALKING)]] {
            let restless = groups(standings).get(1);
            assert!(!restless.is_ready(CALM_WITHIN - MS, 10, 20, false));
            assert!(restless.is_ready(CALM_WITHIN, 10, 20, false));
        }
        let opening = groups(&[(1, Standing::Opening), (1, WALKED)]).get(1);
        assert!(!opening.is_ready(OPENING_MAX - MS, 10, 20, true));
        assert!(opening.is_ready(OPENING_MAX, 10, 20, true));
    }

    #[test]
    fn one_group_is_walked_after_the_other_in_their_order() {
        let now = start();
        let next = |standings: &[(u64, Standing)]| groups(standings).walkable(now, now);
        assert_eq!(next(&[(4, AHEAD), (3, AHEAD)]), Some(3));
        assert_eq!(next(&[(3, AHEAD), (4, WALKING), (4, AHEAD)]), Some(4));
        assert_eq!(next(&[(3, AHEAD), (4, WALKED)]), Some(4), "it is not held");
        assert_eq!(next(&[(3, Standing::Opening)]), None);
    }

    #[test]
    fn a_walk_begins_as_early_as_the_last_one_took_and_a_quarter() {
        let now = start();
        let mut groups = Groups::default();
        let mut count = |standing, at| {
            groups.count([(3, standing)].into_iter(), at);
            groups.walk_from(now + 900 * MS).duration_since(now)
        };
        assert_eq!(count(AHEAD, now), 900 * MS, "nothing is known");
        assert_eq!(count(WALKING, now), 900 * MS);
        assert_eq!(count(WALKED, now + 200 * MS), 650 * MS);
        assert_eq!(count(WALKED, now + 300 * MS), 650 * MS, "measured once");
        groups.count([(4, AHEAD)].into_iter(), now + 400 * MS);
        let walkable = |ms| groups.walkable(now + 900 * MS, now + ms * MS);
        assert_eq!(walkable(649), None);
        assert_eq!(walkable(650), Some(4));
    }
}
