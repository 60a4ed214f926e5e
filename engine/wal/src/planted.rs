//! Deliberate bugs that the crash tests must catch; all of them are absent outside this crate's
//! own tests.

/// One deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests can plant a bug"))]
pub(crate) enum Bug {
    /// Reports records committed when their write is issued.
    CommitAtIssue,
    /// Reports everything up to a completed write committed, though earlier ones are in flight.
    CommitOutOfOrder,
    /// Rewrites the last group in place, with the new records added to it.
    RewriteTail,
    /// Writes into a segment whose name is not yet durable.
    NoDirSync,
    /// Opens without recording where the log ended, and counts on from there.
    ForgetEnd,
    /// Serves what it recovered without syncing it first.
    NoRecoverySync,
    /// Takes a failed write for a completed one.
    IgnoreWriteError,
    /// Reads groups of a recycled file's earlier life.
    AcceptStale,
    /// Skips lost groups and replays what lies behind them.
    JumpHoles,
    /// Gives segments back that hold records at or after the truncation point.
    TruncateTooMuch,
    /// Takes a record for committed that is stored, though nothing vouches for it yet.
    CommitUnpublished,
    /// Forgets a published group when its write begins.
    ForgetAtIssue,
    /// Forgets a published group when its write has completed, though not those before it.
    ForgetOutOfOrder,
    /// Recovers without what was published and not written.
    ForgetPublished,
    /// Serves what was published without logging it.
    PublishedNotLogged,
    /// Writes one slot of two.
    OneTwin,
    /// Writes both slots at once.
    TwinsTogether,
}
