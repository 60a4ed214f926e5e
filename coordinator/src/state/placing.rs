//! The policy by which partitions find their shards, and how far a change of it is.
//!
//! ```text
//! follows --[set_policy]--> changes --[end_change]--> follows
//!    ^                         |
//!    |                         v
//!    +--[plan_moves]------- rests <--[cancel_moves] any
//! ```
//!
//! `plan_moves` is what an operator wants; `plan_own`, what a leader wants by itself, is refused while it rests.
//!
//! While it changes, the leader plans one step after another until there is nothing to move. While it rests, nothing is
//! moved unless somebody asks.

use serde::{Deserialize, Serialize};

use super::{Effects, Refusal, State};
use crate::migration::{AbortReason, Migration, Phase, Purpose};
use crate::placement::Policy;

/// What a leader does about the policy of its own accord.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Course {
    /// What automatic balancing says.
    #[default]
    Follows,
    /// It moves everything to where the policy says.
    Changes,
    /// Nothing: an operator has stopped what was moving.
    Rests,
}

impl State {
    /// The policy that was set, or else the one that the cluster was founded with.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let founded = || self.options().map(|options| options.policy);
        self.placing.policy.or_else(founded).unwrap_or_default()
    }

    /// The policy by which a cluster is balanced: what is moved for it when nodes join and leave is little.
    #[must_use]
    pub fn standing_policy(&self) -> Policy {
        match self.policy() {
            // A node more or less would move nearly everything.
            Policy::Contiguous | Policy::RoundRobin => Policy::Sticky,
            policy => policy,
        }
    }

    /// What a leader does about it.
    #[must_use]
    pub fn course(&self) -> Course {
        self.placing.course
    }

    /// Another policy; what waits for the former one is dropped, and what is under way is not.
    pub(super) fn set_policy(&mut self, policy: Policy) -> Result<Effects, Refusal> {
        if self.cluster.is_none() {
            return Err(Refusal::NotBootstrapped);
        }
        policy
            .check()
            .map_err(|error| Refusal::Policy(error.to_string()))?;
        let mut effects = Effects::default();
        if self.placing.policy == Some(policy) && self.course() == Course::Changes {
            return Ok(effects);
        }
        (self.placing.policy, self.placing.course) = (Some(policy), Course::Changes);
        self.migrations.retries.clear();
        let waits = |migration: &Migration| migration.phase == Phase::Waiting;
        self.abort_of(AbortReason::Cancelled, waits, &mut effects);
        Ok(effects)
    }

    /// The table is what the policy says, as far as that can be.
    pub(super) fn end_change(&mut self, policy: Policy) -> Effects {
        if self.goes_on(Some(policy)) {
            self.placing.course = Course::Follows;
        }
        Effects::default()
    }

    /// Nothing moves any more that is part of a rebalance, a drain or a change of the policy.
    pub(super) fn cancel_moves(&mut self) -> Effects {
        let mut effects = Effects::default();
        self.placing.course = Course::Rests;
        self.migrations.retries.clear();
        let is_meant = |migration: &Migration| migration.purpose == Purpose::Rebalance;
        self.abort_of(AbortReason::Cancelled, is_meant, &mut effects);
        effects
    }

    /// Whether what a leader has planned of its own accord is still to be: to change to this policy, or else to follow
    /// the one that holds.
    #[must_use]
    pub fn goes_on(&self, change: Option<Policy>) -> bool {
        match change {
            Some(policy) => self.course() == Course::Changes && self.policy() == policy,
            None => self.course() == Course::Follows,
        }
    }

    /// An operator wants moves again.
    pub(super) fn end_rest(&mut self, purpose: Purpose) {
        if purpose == Purpose::Rebalance && self.course() == Course::Rests {
            self.placing.course = Course::Follows;
        }
    }
}

#[cfg(test)]
mod tests;
