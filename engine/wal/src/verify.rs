//! Checks a log without changing or serving it.

use ephesus_wire::Lsn;

use crate::disk::Disk;
use crate::error::WalError;
use crate::options::{LogOptions, OnDamage};
use crate::recover::{Damage, Each, Torn, Visitor, read};
use crate::segment::SegmentId;

/// What a check found.
#[derive(Clone, Debug)]
pub struct VerifyReport {
    /// The segments of the log, oldest first.
    pub segments: Vec<SegmentReport>,
    /// Segment files that hold nothing the log needs.
    pub unused: Vec<SegmentId>,
    /// LSN where the log ends.
    pub last_lsn: Lsn,
    /// See [`crate::Recovered::reach`].
    pub reach: Lsn,
    /// Good records.
    pub records: u64,
    /// The wall clock of the last group; 0 if there is none.
    pub wall_clock_ms: u64,
    /// Records behind them that were published and not written: the next opening logs them.
    pub published: u64,
    /// The torn tail that the next opening will cut; harmless.
    pub torn: Option<Torn>,
    /// Places that are bad although they were durable; opening is refused if there is any.
    pub damage: Vec<Damage>,
    /// What makes opening fail before any group is read, such as a missing segment.
    pub refused: Option<String>,
}

/// What one segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its number.
    pub id: SegmentId,
    /// Size of its file.
    pub bytes: u64,
    /// Good groups.
    pub groups: u64,
    /// Good records.
    pub records: u64,
    /// LSN of the first good record.
    pub first_lsn: Lsn,
    /// LSN of the last good record.
    pub last_lsn: Lsn,
}

impl VerifyReport {
    /// Whether the log can be opened without losing anything that was durable.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.refused.is_none()
    }
}

/// Reads and checks the whole log.
///
/// # Errors
/// [`WalError::Io`] and [`WalError::ForeignLog`]; damage is reported, not returned.
pub async fn verify<D: Disk>(disk: &D, opts: &LogOptions) -> Result<VerifyReport, WalError> {
    verify_with(disk, opts, &mut Each(&mut |_, _| Ok(()))).await
}

/// [`verify`], showing `visitor` the records in front of the first damage.
///
/// # Errors
/// As there, and [`WalError::Visit`].
pub async fn verify_with<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    visitor: &mut dyn Visitor,
) -> Result<VerifyReport, WalError> {
    let skipping = LogOptions {
        on_damage: OnDamage::Skip,
        ..opts.clone()
    };
    let mut lsns = Vec::new();
    let recovered = read(
        disk,
        &skipping,
        Lsn::ZERO,
        &mut Each(&mut |lsn, _| {
            lsns.push(lsn);
            Ok(())
        }),
        false,
    )
    .await?;
    let refusing = LogOptions {
        on_damage: OnDamage::Refuse,
        ..opts.clone()
    };
    let refused = match read(disk, &refusing, Lsn::ZERO, visitor, false).await {
        Err(
            e @ (WalError::MissingSegment { .. }
            | WalError::LostSegment { .. }
            | WalError::LostLog
            | WalError::DamagedFile { .. }),
        ) => Some(e.to_string()),
        Err(e @ WalError::Damage { .. }) if recovered.damage.is_empty() => Some(e.to_string()),
        Ok(_) | Err(WalError::Damage { .. }) => None,
        Err(e) => return Err(e),
    };
    let segments = recovered.segments.iter().map(|s| {
        let from = lsns.partition_point(|lsn| *lsn < s.first_lsn);
        let to = lsns.partition_point(|lsn| *lsn <= s.last_lsn);
        SegmentReport {
            id: s.id,
            bytes: s.bytes,
            groups: recovered.groups.get(&s.id).copied().unwrap_or(0),
            records: (to - from) as u64,
            first_lsn: s.first_lsn,
            last_lsn: s.last_lsn,
        }
    });
    Ok(VerifyReport {
        segments: segments.collect(),
        reach: recovered.reach(),
        unused: recovered.free,
        last_lsn: recovered.last_lsn,
        records: recovered.records,
        wall_clock_ms: recovered.wall_clock_ms,
        published: recovered.published.len() as u64,
        torn: recovered.torn,
        damage: recovered.damage,
        refused,
    })
}
