//! Reads a log back: which records survived, and where it ends.
//!
//! Segments are walked in the order of their numbers, incarnation by incarnation. Every
//! incarnation but the last must be complete up to what its successors recorded as its end. The
//! last one ends where the next group in LSN order is bad or missing; that is a torn tail if no
//! good group behind it claims a durable LSN at or beyond the first one lost, else it is damage.

use std::collections::BTreeMap;

use ephesus_wire::Lsn;

use crate::disk::Disk;
use crate::error::{GroupFault, WalError};
use crate::files;
use crate::group::FLAG_RELAXED;
use crate::mapped::{self, Owner};
use crate::options::{LogId, LogOptions, OnDamage, RELAXED_LSN_GAP};
use crate::planted::Bug;
use crate::scan::{Found, SegmentReader};
use crate::segment::{SegmentId, SegmentSummary};

mod walk;

#[cfg(test)]
mod tests;

use walk::Walk;

/// Why a visitor refuses a record.
pub type VisitError = Box<dyn std::error::Error + Send + Sync>;

/// Called with every record in LSN order.
pub type Visit<'a> = &'a mut dyn FnMut(Lsn, &[u8]) -> Result<(), VisitError>;

/// Records of a group that [`Visitor::ahead`] is told of before the first of them is visited.
pub(crate) const AHEAD_RECORDS: usize = 20;

/// Takes the records of a log, in LSN order.
pub trait Visitor {
    /// This record will be visited soon: what that needs may be loaded already.
    fn ahead(&mut self, lsn: Lsn, record: &[u8]);

    /// Takes the next record.
    ///
    /// # Errors
    /// Any error ends the recovery.
    fn visit(&mut self, lsn: Lsn, record: &[u8]) -> Result<(), VisitError>;
}

/// A visitor that needs nothing loaded ahead.
pub(crate) struct Each<'a>(pub(crate) Visit<'a>);

impl Visitor for Each<'_> {
    fn ahead(&mut self, _: Lsn, _: &[u8]) {}

    fn visit(&mut self, lsn: Lsn, record: &[u8]) -> Result<(), VisitError> {
        (self.0)(lsn, record)
    }
}

/// What a log holds; turn it into a writer with [`crate::open_writer`].
#[derive(Clone, Debug)]
pub struct Recovered {
    /// LSN of the oldest record that is there; the one after `last_lsn` if there is none.
    pub first_lsn: Lsn,
    /// LSN of the last record; of the last one ever known if they have all been given up.
    pub last_lsn: Lsn,
    /// Records that were visited.
    pub records: u64,
    /// The live segments, oldest first; the last one holds a record.
    pub segments: Vec<SegmentSummary>,
    /// Records that a relaxed incarnation has published and not written ([`crate::mapped`]), in order: they were
    /// visited behind the log's own, under the LSNs that they had. The next opening logs them under new ones.
    pub published: Vec<Box<[u8]>>,
    /// Segment files that hold nothing the log needs; the next opening removes them.
    pub free: Vec<SegmentId>,
    /// The wall clock of the last group, 0 if there is none: time goes on from there, unless whoever opens the log
    /// sets another one.
    pub wall_clock_ms: u64,
    /// The last incarnation; 0 if the log is new.
    pub incarnation: u64,
    /// The torn tail that was cut, if there was one.
    pub torn: Option<Torn>,
    /// Damage that was skipped or cut, as [`LogOptions::on_damage`] asked for.
    pub damage: Vec<Damage>,
    pub(crate) unfinished: Vec<String>,
    /// Of those that are free, the ones without any group of the log.
    pub(crate) unused: Vec<SegmentId>,
    /// LSN of the record that would continue the last incarnation.
    pub(crate) continues_at: Lsn,
    pub(crate) next_lsn: Lsn,
    pub(crate) next_segment: SegmentId,
    pub(crate) groups: BTreeMap<SegmentId, u64>,
}

impl Recovered {
    /// No record up to this LSN can be missing at the log's end: its last one, or where the last opening has begun,
    /// which knew of all images and of every loss that was accepted.
    #[must_use]
    pub fn reach(&self) -> Lsn {
        self.last_lsn
            .max(Lsn(self.continues_at.0.saturating_sub(1)))
    }
}

/// A tail that was in flight when the log's process or machine died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Where the log ends.
    pub segment: SegmentId,
    /// Where in the segment, bytes.
    pub offset: u64,
    /// The first LSN that is lost.
    pub lsn: Lsn,
    /// Good groups behind the tear, which are discarded: they were never committed.
    pub groups_discarded: u64,
}

/// A place that is bad although it was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: SegmentId,
    /// Where in it, bytes.
    pub offset: u64,
    /// The first LSN that is lost; 0 if unknown.
    pub lsn: Lsn,
    /// What is wrong.
    pub fault: GroupFault,
}

impl From<Damage> for WalError {
    fn from(damage: Damage) -> WalError {
        let Damage {
            segment,
            offset,
            lsn,
            fault,
        } = damage;
        WalError::Damage {
            file: segment.file_name(),
            offset,
            lsn,
            fault,
        }
    }
}

/// Replays the records from LSN `from` on (0: all) and finds where the log ends. Records that were published and
/// not written come last.
///
/// Everything that the log's files seem to hold is synced first, so that what is visited cannot be
/// lost by a later crash. Nothing else is changed: a crash meanwhile leaves the log as it was.
///
/// # Errors
/// See [`WalError`]; records may have been visited before it is returned.
pub async fn recover<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    from: Lsn,
    visit: Visit<'_>,
) -> Result<Recovered, WalError> {
    recover_with(disk, opts, from, &mut Each(visit)).await
}

/// [`recover`](recover()) for a visitor that loads ahead what it needs.
///
/// # Errors
/// As there.
pub async fn recover_with<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    from: Lsn,
    visitor: &mut dyn Visitor,
) -> Result<Recovered, WalError> {
    read(disk, opts, from, visitor, true).await
}

pub(crate) async fn read<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    from: Lsn,
    visitor: &mut dyn Visitor,
    to_recover: bool,
) -> Result<Recovered, WalError> {
    if to_recover && !opts.planted(Bug::NoRecoverySync) {
        disk.sync_dir()
            .await
            .map_err(WalError::unsynced("of the log"))?;
    }
    let names = disk.list().await.map_err(WalError::io("list", "the log"))?;
    let mut ids: Vec<_> = names
        .iter()
        .filter_map(|n| SegmentId::from_file_name(n))
        .collect();
    ids.sort_unstable();
    let free_ids = names.iter().filter_map(|n| SegmentId::from_free_name(n));
    let last_id = ids
        .iter()
        .copied()
        .chain(free_ids)
        .map(|id| id.0)
        .max()
        .unwrap_or(0);
    let unfinished = names
        .iter()
        .filter(|n| SegmentId::from_free_name(n).is_some())
        .cloned();

    let mut segments = Vec::with_capacity(ids.len());
    for id in ids {
        segments.push(open_segment(disk, opts, id, to_recover).await?);
    }
    let mut walk = Walk::new(opts, segments, from, &mut *visitor);
    if opts.on_damage == OnDamage::Refuse {
        walk.check_chain()?;
        files::check(disk, opts, &names).await?;
    }
    walk.run().await?;
    let mut recovered = walk.finish()?;
    recovered.unfinished = unfinished.collect();
    recovered.next_segment = SegmentId(last_id + 1);
    let found = published(disk, opts, &recovered, visitor, to_recover).await?;
    let clock = &mut recovered.wall_clock_ms;
    *clock = (*clock).max(found.wall_clock_ms);
    recovered.published = found
        .records
        .into_iter()
        .map(|(_, record)| record)
        .collect();
    Ok(recovered)
}

/// Visits the records behind the log's end that were published and not written.
async fn published<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    recovered: &Recovered,
    visitor: &mut dyn Visitor,
    to_recover: bool,
) -> Result<mapped::Found, WalError> {
    let owner = Owner {
        log_id: opts.log_id,
        incarnation: recovered.incarnation,
    };
    let next = recovered.continues_at;
    if opts.planted(Bug::ForgetPublished) || recovered.incarnation == 0 {
        return Ok(mapped::Found::default());
    }
    let found = mapped::find(disk, owner, next, to_recover).await?;
    for (lsn, record) in &found.records {
        let visited = visitor.visit(*lsn, record);
        visited.map_err(|source| WalError::Visit { lsn: *lsn, source })?;
    }
    Ok(found)
}

/// A segment and the first good group in it.
struct Segment<F> {
    reader: SegmentReader<F>,
    head: Option<Found>,
}

async fn open_segment<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    id: SegmentId,
    to_recover: bool,
) -> Result<Segment<D::File>, WalError> {
    let mut reader = SegmentReader::open(disk, opts, id, to_recover).await?;
    let head = match reader.group_at(0).await? {
        Ok(header) => Some(Found { offset: 0, header }),
        Err(GroupFault::Log(found)) => {
            let (file, expected) = (id.file_name(), opts.log_id);
            return Err(WalError::ForeignLog {
                file,
                found,
                expected,
            });
        }
        Err(_) => {
            let head = reader.next_group(0).await?;
            reader.forget();
            head
        }
    };
    Ok(Segment { reader, head })
}

/// The identity of the log in this directory, if it has any good group.
///
/// # Errors
/// [`WalError::Io`].
pub async fn peek_log_id<D: Disk>(disk: &D) -> Result<Option<LogId>, WalError> {
    let names = disk.list().await.map_err(WalError::io("list", "the log"))?;
    let any = LogOptions::new(LogId::default());
    for id in names
        .iter()
        .filter_map(|name| SegmentId::from_file_name(name))
    {
        let mut reader = SegmentReader::open(disk, &any, id, false).await?;
        match reader.group_at(0).await? {
            Ok(header) => return Ok(Some(LogId(header.log_id))),
            Err(GroupFault::Log(found)) => return Ok(Some(found)),
            Err(_) => {}
        }
    }
    Ok(None)
}
