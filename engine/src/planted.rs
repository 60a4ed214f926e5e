//! Deliberate bugs that crash tests and simulator must catch; without the feature `planted` none can be planted.

/// One deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "planted")),
    allow(dead_code, reason = "only tests can plant a bug")
)]
pub enum Bug {
    /// Switches the manifest before everything in the image is durable in the log.
    EarlySwitch,
    /// Notes the start of an image one record late.
    LateStart,
    /// Gives segments back as soon as an image is sealed.
    TruncateBeforeSwitch,
    /// Gives segments back without naming the images that replace them.
    NoImagesRecord,
    /// Gives segments back while the record that names the images is still in flight.
    TruncateBeforeNamed,
    /// Sends replies whatever they have to wait for.
    IgnoreGate,
    /// Empties tables without a record.
    FlushNotLogged,
    /// Switches the layout before the copies are imaged.
    EarlyLayout,
    /// Begins to fill a staging copy before the layout names it.
    NamedLate,
    /// Takes a staging copy for prepared before that is durable.
    ConfirmedEarly,
    /// Notes that a copy is served before its activation is durable.
    PromotedEarly,
    /// Removes the images of a copy that the layout still names.
    RemovedEarly,
    /// Keeps copies that have moved elsewhere while the node was down.
    VoidKept,
    /// Captures writes of a partition that moves one turn after the walk has begun.
    LateCapture,
    /// Sends no deletes of keys that a walk has passed.
    DeleteNotCaptured,
    /// Leaves what a broken stream has brought.
    StagingSurvives,
    /// Wipes a prepared copy when its stream breaks.
    PreparedWiped,
    /// Gives a copy up once its target has confirmed, before the table has committed.
    EarlyDelete,
    /// Serves again what its target has confirmed when the table's word is overdue.
    Resumes,
    /// Executes commands of a partition that is held.
    ExecutesHeld,
    /// What is held is stronger than the table: a source learns by its migration's number what has become of it, and a
    /// shard executes on whatever it has.
    HeldIsStronger,
    /// Ends the process when a stream ends in the turn in which its target has confirmed.
    StaleConfirmed,
    /// Begins copies empty at a start that came with a migration.
    EmptyArrival,
    /// Looks at the lease only when a turn begins.
    LeaseAtBegin,
    /// Leaves overwritten entries in the digest of what was sent.
    OverwrittenInDigest,
}

/// The bug planted here, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(any(test, feature = "planted"))]
    bug: Option<Bug>,
}

impl Planted {
    #[cfg(any(test, feature = "planted"))]
    pub(crate) const fn new(bug: Option<Bug>) -> Planted {
        Planted { bug }
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
