//! Migrations whose commands are held, and which are decided, together.
//!
//! The walks of a group end one after the other. Who is ready goes on capturing until the rest of its group
//! is, within bounds; then all are held in one turn, and what a decision costs, syncs, tables and layouts, is
//! there once for all of them.

use std::time::Duration;

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
    Walking,
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
    /// Of those that are walked.
    backlog_bytes: usize,
}

impl Group {
    fn add(&mut self, standing: Standing) {
        match standing {
            Standing::Opening => self.is_opening = true,
            Standing::Walking => self.is_walking = true,
            Standing::Walked { backlog_bytes } => self.backlog_bytes += backlog_bytes,
        }
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
pub(super) struct Groups(Vec<(u64, Group)>);

impl Groups {
    /// Counts anew.
    pub(super) fn count(&mut self, standings: impl Iterator<Item = (u64, Standing)>) {
        self.0.clear();
        for (number, standing) in standings {
            let at = self.0.iter().position(|(found, _)| *found == number);
            let at = at.unwrap_or_else(|| {
                self.0.push((number, Group::default()));
                self.0.len() - 1
            });
            self.0[at].1.add(standing);
        }
    }

    /// How far the group of this number was when it was counted.
    pub(super) fn get(&self, number: u64) -> Group {
        let found = self.0.iter().find(|(found, _)| *found == number);
        found.map_or_else(Group::default, |(_, group)| *group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn groups(standings: &[(u64, Standing)]) -> Groups {
        let mut groups = Groups::default();
        groups.count([(7, Standing::Opening)].into_iter());
        groups.count(standings.iter().copied());
        groups
    }

    #[test]
    fn who_is_walked_waits_for_its_own_group() {
        let walked = Standing::Walked { backlog_bytes: 10 };
        let groups = groups(&[(1, walked), (2, Standing::Walking), (1, walked)]);
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
        let walked = Standing::Walked { backlog_bytes: 10 };
        let walking = groups(&[(1, walked), (1, Standing::Walking)]).get(1);
        assert!(!walking.is_ready(WALKING_MAX - MS, 10, 20, true));
        assert!(walking.is_ready(WALKING_MAX, 10, 10, true));
        assert!(!walking.is_ready(WALKING_MAX, 10, 9, true));
        for standings in [&[(1, walked)][..], &[(1, walked), (1, Standing::Walking)]] {
            let restless = groups(standings).get(1);
            assert!(!restless.is_ready(CALM_WITHIN - MS, 10, 20, false));
            assert!(restless.is_ready(CALM_WITHIN, 10, 20, false));
        }
        let opening = groups(&[(1, Standing::Opening), (1, walked)]).get(1);
        assert!(!opening.is_ready(OPENING_MAX - MS, 10, 20, true));
        assert!(opening.is_ready(OPENING_MAX, 10, 20, true));
    }
}
