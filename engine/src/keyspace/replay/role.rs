//! What a copy is, as its records tell it one after the other.
//!
//! ```text
//! FROM                          RECORD          TO
//! new, receiving, wiped         Created         receiving, or serving without a source
//! receiving                     Block           receiving
//! receiving, prepared           Prepared        prepared
//! receiving, prepared           StagingWiped    wiped
//! prepared                      Created         receiving, by another migration
//! prepared                      Activated       serving
//! serving                       Dropped         dropped
//! serving, receiving            Put, Delete, SetExpiry, Flush
//! ```
//!
//! A start removes copies that it finds void without a record. A later copy of the same epoch then begins
//! behind whatever they have left in the log, with `Created`, or without it when it begins empty: it is served then.
//!
//! An image does not say what its copy was; the records that it covers do, as far as the log has them. Without
//! any, until the first record behind the image that tells it, a copy may therefore turn out to be receiving
//! or prepared.

use ephesus_wire::Lsn;
use ephesus_wire::block::Assembler;
use ephesus_wire::record::{Prepared, Record, RecordMeta, Source};
use ephesus_wire::stream::Contents;

use crate::keyspace::Partition;
use crate::keyspace::partition::Role;
use crate::migration::{Incoming, StagingState};

/// What the records so far have made of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replayed {
    Serving,
    Receiving(Source),
    Prepared(Source, Prepared, Lsn),
    Wiped(Source),
    Dropped,
}

/// A copy's part in migrations while its log is replayed.
pub(super) struct Part {
    role: Replayed,
    /// What the layout says the copy is.
    named: Replayed,
    /// There is an image, and no record behind it has told the role.
    is_midway: bool,
    /// The last record that has told the role.
    told: Option<Lsn>,
    /// Puts received fragments together.
    pub(super) assembler: Assembler,
}

/// The record cannot follow.
pub(super) struct Impossible;

impl Part {
    /// Begins with what the layout says. Whose the first records are is not known: an earlier migration
    /// may have left some under the same epoch.
    pub(super) fn new(named: Replayed) -> Part {
        let role = match named {
            Replayed::Receiving(_) => Replayed::Receiving(Source::NONE),
            other => other,
        };
        Part {
            role,
            named,
            is_midway: false,
            told: None,
            assembler: Assembler::new(),
        }
    }

    /// The copy begins with an image.
    pub(super) fn begins_midway(&mut self) {
        self.is_midway = true;
    }

    /// Whether the records so far are of a copy that a migration was to bring, and that was not activated.
    pub(super) fn is_of_migration(&self) -> bool {
        matches!(
            self.role,
            Replayed::Receiving(_) | Replayed::Prepared(..) | Replayed::Wiped(_)
        )
    }

    /// The next record is the first one of a copy that has begun empty.
    pub(super) fn begins_empty(&mut self) {
        self.role = Replayed::Serving;
        self.told = None;
        self.assembler = Assembler::new();
    }

    /// Takes note of a record that the image covers, but for what it says of the copy.
    pub(super) fn recall(&mut self, lsn: Lsn, record: &Record<'_>) {
        let source = match self.role {
            Replayed::Receiving(source)
            | Replayed::Prepared(source, ..)
            | Replayed::Wiped(source) => source,
            Replayed::Serving | Replayed::Dropped => Source::NONE,
        };
        self.role = match record {
            Record::Created { source } if *source == Source::NONE => Replayed::Serving,
            Record::Created { source } => Replayed::Receiving(*source),
            Record::Block(_) => Replayed::Receiving(source),
            Record::Prepared(prepared) => Replayed::Prepared(source, *prepared, lsn),
            Record::StagingWiped => Replayed::Wiped(source),
            Record::Activated { .. } => Replayed::Serving,
            Record::Dropped => Replayed::Dropped,
            _ => return,
        };
        self.is_midway = false;
        self.told = Some(lsn);
    }

    /// Goes on with the copy's next record, its first one if `is_first`.
    pub(super) fn follow(
        &mut self,
        lsn: Lsn,
        meta: RecordMeta,
        record: &Record<'_>,
        is_first: bool,
    ) -> Result<(), Impossible> {
        use Replayed::{Dropped, Prepared, Receiving, Serving, Wiped};
        let unknown = self.is_midway;
        let source = match self.role {
            Receiving(source) | Prepared(source, ..) | Wiped(source) => source,
            Serving | Dropped => Source::NONE,
        };
        let next = match (record, self.role) {
            (Record::Mark, _) => return Ok(()),
            (
                Record::Put { .. }
                | Record::Delete { .. }
                | Record::SetExpiry { .. }
                | Record::Flush,
                Serving | Receiving(_),
            ) if self.assembler.is_complete() => return Ok(()),
            (Record::Created { source }, role) if meta.seq == 1 => {
                let may_begin = match role {
                    Serving => is_first || unknown,
                    Receiving(_) | Wiped(_) => true,
                    Prepared(_, prepared, _) => prepared.migration != source.migration,
                    Dropped => false,
                };
                if !may_begin {
                    return Err(Impossible);
                }
                self.assembler = Assembler::new();
                if *source == Source::NONE {
                    Serving
                } else {
                    Receiving(*source)
                }
            }
            (Record::Block(_), Receiving(_)) => Receiving(source),
            (Record::Block(_), Serving) if unknown => Receiving(source),
            (Record::Prepared(prepared), Receiving(_) | Prepared(..))
                if self.assembler.is_complete() && is_of(source, prepared) =>
            {
                Prepared(source, *prepared, lsn)
            }
            (Record::Prepared(prepared), Serving) if unknown => Prepared(source, *prepared, lsn),
            (Record::StagingWiped, Receiving(_) | Prepared(..)) => {
                self.assembler = Assembler::new();
                Wiped(source)
            }
            (Record::StagingWiped, Serving) if unknown => Wiped(source),
            (Record::Activated { start_seq }, role) if *start_seq == meta.seq + 1 => match role {
                Prepared(..) => Serving,
                Serving | Receiving(_) if unknown => Serving,
                _ => return Err(Impossible),
            },
            (Record::Dropped, Serving) => Dropped,
            _ => return Err(Impossible),
        };
        self.role = next;
        self.is_midway = false;
        self.told = Some(lsn);
        Ok(())
    }

    /// Whether the layout names the copy as staging.
    pub(super) fn is_named_staging(&self) -> bool {
        matches!(self.named, Replayed::Receiving(_))
    }

    /// Whether the record says that all of a copy was durable by then, which the layout names as staging:
    /// that the migration which it names has prepared it.
    pub(super) fn vouches(&self, record: &Record<'_>) -> bool {
        match (record, self.named) {
            (Record::Activated { .. }, _) => true,
            (Record::Prepared(prepared), Replayed::Receiving(named)) => {
                named.migration == prepared.migration
            }
            _ => false,
        }
    }

    /// Makes the rebuilt copy what its records say, but for what a migration has left that the layout
    /// does not name: that is broken.
    pub(super) fn give(self, partition: &mut Partition) {
        let staging = |source, state| Role::Staging(Box::new(Incoming::new(source, state)));
        let replayed = match (self.named, self.role) {
            (Replayed::Receiving(named), Replayed::Prepared(_, prepared, lsn))
                if named.migration == prepared.migration =>
            {
                Replayed::Prepared(named, prepared, lsn)
            }
            (Replayed::Receiving(named), Replayed::Receiving(_) | Replayed::Prepared(..)) => {
                Replayed::Receiving(named)
            }
            (_, role) => role,
        };
        let role = match replayed {
            Replayed::Serving => Role::Serving,
            Replayed::Receiving(source) => staging(source, StagingState::Broken),
            Replayed::Wiped(source) => staging(source, StagingState::Wiped),
            Replayed::Prepared(source, prepared, lsn) => {
                let contents = Contents {
                    count: prepared.count,
                    digest: prepared.digest,
                };
                let source = Source {
                    migration: prepared.migration,
                    ..source
                };
                staging(source, StagingState::Prepared(contents, lsn))
            }
            Replayed::Dropped => Role::Leaving,
        };
        let needs_log = match replayed {
            Replayed::Serving => self.named != Replayed::Serving,
            Replayed::Prepared(..) | Replayed::Dropped => true,
            Replayed::Receiving(_) | Replayed::Wiped(_) => false,
        };
        if let Some(lsn) = self.told.filter(|_| needs_log) {
            partition.keep_from(lsn);
        }
        partition.set_role(role);
    }
}

/// Whether a copy from `source`, if that is known, was prepared by its migration.
fn is_of(source: Source, prepared: &Prepared) -> bool {
    source == Source::NONE || source.migration == prepared.migration
}
