//! Deliberate bugs that the simulator must catch; without the feature `planted` none can be planted.

/// One deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "planted")),
    allow(dead_code, reason = "only tests can plant a bug")
)]
pub enum Bug {
    /// Votes and appends without writing anything down.
    NoPersist,
    /// Votes and says that it has entries before that is on the device.
    AnswerBeforeSync,
    /// Votes without writing the vote down.
    ForgottenVote,
    /// Grants leases of twice the heartbeat timeout.
    LongLease,
    /// Grants leases as soon as a heartbeat arrives.
    NoReadRound,
    /// Carries commands out when they are written, not when they are decided.
    ApplyBeforeCommit,
    /// Carries a delta of the table out whatever version it is for.
    WrongBase,
    /// A new leader counts the time before it led as silence.
    HastyLeader,
}

/// The bug planted here, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(any(test, feature = "planted"))]
    bug: Option<Bug>,
}

impl Planted {
    #[cfg(any(test, feature = "planted"))]
    pub(crate) const fn new(bug: Bug) -> Planted {
        Planted { bug: Some(bug) }
    }

    #[cfg(any(test, feature = "planted"))]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(any(test, feature = "planted")))]
    pub(crate) const fn has(self, _bug: Bug) -> bool {
        false
    }
}
