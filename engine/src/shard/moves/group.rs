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

/// What may be under way of those that are still walked when others of their group hold commands. They share a
/// connection, and all of it arrives before the held ones' end: 8 MiB kept clients of small partitions waiting
/// for 100 to 190 ms, because a large one happened to go with them.
const AHEAD_BYTES_MAX: usize = 128 << 10;

/// How long it waits until it is calm: another group may come first, and rests are counted in seconds.
const CALM_WITHIN: Duration = Duration::from_secs(10);

/// After how long the rest of the group is walked on all the same: writes to it may be more than lets what is
/// under way become little.
const PAUSED_WITHIN: Duration = Duration::from_secs(12);

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
    },
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
            } => {
                self.backlog_bytes += backlog_bytes;
                self.waited = self.waited.max(waited);
            }
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
        if !is_calm && waited < CALM_WITHIN || self.pauses_walks(is_calm) {
            return false;
        }
        if waited >= WALKING_MAX {
            return backlog_bytes <= backlog_bytes_max;
        }
        let waits = self.is_walking || self.is_opening && waited < OPENING_MAX;
        !waits && self.backlog_bytes <= backlog_bytes_max
    }

    /// Whether those that are still walked are not to be walked on now: others do not wait for them any more,
    /// and would have to hold commands until all that is under way has arrived.
    pub(super) fn pauses_walks(&self, is_calm: bool) -> bool {
        let holds_come = if is_calm { WALKING_MAX } else { CALM_WITHIN };
        (holds_come..PAUSED_WITHIN).contains(&self.waited) && self.walking_bytes > AHEAD_BYTES_MAX
    }

    /// After how long of waiting [`Group::is_ready`] may be so although nothing has happened, if there is
    /// still such a time for one that has waited so long.
    pub(super) fn next(waited: Duration) -> Option<Duration> {
        [OPENING_MAX, WALKING_MAX, CALM_WITHIN, PAUSED_WITHIN]
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

    const WALKING: Standing = Standing::Walking {
        backlog_bytes: AHEAD_BYTES_MAX,
    };

    fn walked(waited: Duration) -> Standing {
        Standing::Walked {
            backlog_bytes: 10,
            waited,
        }
    }

    fn groups(standings: &[(u64, Standing)]) -> Groups {
        let mut groups = Groups::default();
        groups.count([(7, Standing::Opening)].into_iter());
        groups.count(standings.iter().copied());
        groups
    }

    #[test]
    fn who_is_walked_waits_for_its_own_group() {
        let walked = walked(Duration::ZERO);
        let groups = groups(&[(1, walked), (2, WALKING), (1, walked)]);
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
        let walked = walked(CALM_WITHIN);
        let walking = groups(&[(1, walked), (1, WALKING)]).get(1);
        assert!(!walking.is_ready(WALKING_MAX - MS, 10, 20, true));
        assert!(walking.is_ready(WALKING_MAX, 10, 10, true));
        assert!(!walking.is_ready(WALKING_MAX, 10, 9, true));
        for standings in [&[(1, walked)][..], &[(1, walked), (1, WALKING)]] {
            let restless = groups(standings).get(1);
            assert!(!restless.is_ready(CALM_WITHIN - MS, 10, 20, false));
            assert!(restless.is_ready(CALM_WITHIN, 10, 20, false));
        }
        let opening = groups(&[(1, Standing::Opening), (1, walked)]).get(1);
        assert!(!opening.is_ready(OPENING_MAX - MS, 10, 20, true));
        assert!(opening.is_ready(OPENING_MAX, 10, 20, true));
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
        assert!(!early.pauses_walks(true) && !early.is_ready(WALKING_MAX - MS, 10, 20, true));
        let late = group(WALKING_MAX, &[much, much]);
        assert!(late.pauses_walks(true) && !late.is_ready(WALKING_MAX, 10, 20, true));
        assert!(!late.pauses_walks(false), "nobody is to hold yet");
        assert!(group(CALM_WITHIN, &[much, much]).pauses_walks(false));
        let in_vain = group(PAUSED_WITHIN, &[much, much]);
        assert!(!in_vain.pauses_walks(true) && in_vain.is_ready(PAUSED_WITHIN, 10, 20, true));
        let little = group(WALKING_MAX, &[much]);
        assert!(!little.pauses_walks(true) && little.is_ready(WALKING_MAX, 10, 20, true));
    }
}
