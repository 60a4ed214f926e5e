//! Moments in a migration's life at which somebody may die.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The source sees the plan.
    Planned,
    /// The source says that it begins.
    Begun,
    /// The source sees that this is decided, and dials.
    Dialled,
    /// The target has an empty staging copy.
    Staged,
    /// The target has its first entries.
    Filled,
    /// The source has begun to walk.
    HalfWalked,
    /// The source holds, and has sent everything.
    Held,
    /// The target has prepared.
    Prepared,
    /// The source has said commit.
    Confirmed,
    /// The source has given its copy up.
    GivenUp,
    /// The target serves.
    Activated,
}

impl Moment {
    pub(crate) const ALL: [Moment; 11] = [
        Moment::Planned,
        Moment::Begun,
        Moment::Dialled,
        Moment::Staged,
        Moment::Filled,
        Moment::HalfWalked,
        Moment::Held,
        Moment::Prepared,
        Moment::Confirmed,
        Moment::GivenUp,
        Moment::Activated,
    ];
}
