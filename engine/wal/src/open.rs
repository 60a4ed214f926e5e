//! Starts a new incarnation of a recovered log.

use ephesus_wire::Lsn;

use crate::disk::{Disk, DiskFile};
use crate::error::WalError;
use crate::files::{self, LogFiles};
use crate::mapped::{self, MappedGroups};
use crate::options::{Durability, LogOptions};
use crate::planted::Bug;
use crate::recover::Recovered;
use crate::segment::{self, SegmentHandle, SegmentId};
use crate::writer::{LogWriter, Origin};

/// A log that is ready to be written to.
#[derive(Debug)]
pub struct Opened<D: Disk> {
    /// The writer; it has the segment below and wants spare ones.
    pub writer: LogWriter,
    /// The segment that the first writes go to.
    pub segment: SegmentHandle<D::File>,
    /// Where relaxed groups lie until they are written, if they do: to be synced while they cannot be.
    pub mapped: Option<D::File>,
    /// What prepares those to come.
    pub files: LogFiles<D>,
}

/// Starts a new incarnation in a new segment, durably recording where the log ended, together with the records
/// that were published and not written, and only then removes the files that the log does not need. On a full disk
/// those that have never held a group of it go first.
///
/// Every new LSN is above `lsn_floor`: the highest one that the caller has in durable state of its
/// own, such as an image's end (0 if there is none). The log's clock goes on from
/// [`Recovered::wall_clock_ms`] if `wall_clock_ms` is behind that.
/// After an error, or a crash at any point, recover again.
///
/// # Errors
/// [`WalError::Io`]; [`WalError::RecordTooLarge`] where a segment is too small for what was published.
#[expect(clippy::expect_used, reason = "the opening is due from the start")]
pub async fn open_writer<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    recovered: &Recovered,
    lsn_floor: Lsn,
    wall_clock_ms: u64,
) -> Result<Opened<D>, WalError> {
    let Opening {
        segment,
        is_unlisted,
        freed,
    } = prepare_opening(disk, opts, recovered).await?;
    let id = segment.info.id;
    let name = id.file_name();
    let origin = Origin {
        incarnation: id.0,
        prev_end: recovered.last_lsn,
        first_lsn: recovered.next_lsn.max(lsn_floor.next()),
        wall_clock_ms: recovered.wall_clock_ms,
    };
    let published = match opts.planted(Bug::PublishedNotLogged) {
        true => &[],
        false => &recovered.published[..],
    };
    let segments = recovered.segments.iter().copied();
    let mut writer = LogWriter::start(opts.clone(), origin, segments, published);
    writer.begin_in(segment.info);

    let op = writer
        .next_write(wall_clock_ms)
        .expect("a writer starts with its opening");
    // What was published when segments were larger goes into one group.
    let (bytes, max) = (op.buf.len(), segment.info.bytes as usize);
    if bytes > max {
        return Err(WalError::RecordTooLarge { bytes, max });
    }
    segment
        .file
        .write_at(&op.buf, op.offset)
        .await
        .map_err(WalError::io("open", &name))?;
    segment
        .file
        .sync()
        .await
        .map_err(WalError::io("sync", &name))?;
    let written = op.buf.len();
    writer.complete(op, Ok(written))?;
    let listed: Vec<SegmentId> = writer.segments().map(|live| live.id).collect();
    let list = || LogFiles::listing(disk, opts.durability, listed.iter().copied());
    let free = recovered.free.iter().map(|id: &SegmentId| id.file_name());
    let free = free.chain(recovered.unfinished.iter().cloned());
    let free: Vec<String> = free.filter(|name| !freed.contains(name)).collect();
    let mut files = None;
    if !is_unlisted {
        let listed = list().await;
        if is_out_of_space(&listed) && !free.is_empty() {
            // There is room once these are gone. The segment is there, and so the log is not taken for lost.
            files::unlist(disk).await?;
        } else {
            files = Some(listed?);
        }
    }
    let mut mapped_file = None;
    if opts.durability == Durability::Relaxed {
        let point = writer.sync_point();
        writer.synced(&point);
        match MappedGroups::open(disk, opts, id.0).await {
            Ok(Some(groups)) => {
                let opened = disk.open(mapped::FILE_NAME, false).await;
                mapped_file = Some(opened.map_err(WalError::io("open", mapped::FILE_NAME))?);
                writer.map(groups);
            }
            Ok(None) => {}
            // Records are committed by writes, then.
            Err(error) if error.passes() => {
                tracing::warn!(%error, "the log goes on without a mapped file");
            }
            Err(error) => return Err(error),
        }
    } else {
        mapped::remove(disk).await?;
    }

    for name in &free {
        disk.remove(name)
            .await
            .map_err(WalError::io("remove", name))?;
    }
    if !freed.is_empty() || !free.is_empty() {
        segment::sync_names(disk, &name).await?;
    }
    let mut files = match files {
        Some(files) => files,
        None => list().await?,
    };
    if mapped_file.is_some() {
        files.list_mapped().await?;
    }
    Ok(Opened {
        writer,
        segment,
        mapped: mapped_file,
        files,
    })
}

/// What an incarnation begins with.
struct Opening<F> {
    segment: SegmentHandle<F>,
    /// The list had to make room, with files that it may have named.
    is_unlisted: bool,
    /// Files that had to make room.
    freed: Vec<String>,
}

/// Prepares the segment that an incarnation begins with. Where there is no room for it, files go that never held a group
/// of the log, and where there is none still, it is a small one.
async fn prepare_opening<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    recovered: &Recovered,
) -> Result<Opening<D::File>, WalError> {
    let mut opts = opts.clone();
    if opts.opens_small {
        opts.segment_bytes = opts.segment_bytes.min(opts.opening_bytes_min);
    }
    // A number for which an attempt has failed must not be used again.
    let mut id = recovered.next_segment;
    let mut freed = Vec::new();
    let mut is_unlisted = false;
    let mut prepared = make(disk, &opts, id).await;
    if is_out_of_space(&prepared) {
        (freed, is_unlisted) = evictable(disk, recovered).await?;
        if is_unlisted {
            files::unlist(disk).await?;
        }
        for name in &freed {
            let removed = disk.remove(name).await;
            removed.map_err(WalError::io("remove", name))?;
        }
        id.0 += 1;
        prepared = make(disk, &opts, id).await;
    }
    if is_out_of_space(&prepared) && opts.opening_bytes_min < opts.segment_bytes {
        opts.segment_bytes = opts.opening_bytes_min;
        id.0 += 1;
        prepared = make(disk, &opts, id).await;
    }
    Ok(Opening {
        segment: prepared?,
        is_unlisted,
        freed,
    })
}

/// Files that may make room for an opening, and whether the list does too: before any that it names.
///
/// Whatever fails from here on, a list or a segment stays: a directory without any of them has lost its log.
async fn evictable<D: Disk>(
    disk: &D,
    recovered: &Recovered,
) -> Result<(Vec<String>, bool), WalError> {
    let names = disk.list().await.map_err(WalError::io("list", "the log"))?;
    let mut segments = names
        .iter()
        .filter_map(|name| SegmentId::from_file_name(name));
    let has_used = segments.clone().any(|id| !recovered.unused.contains(&id));
    let stays = segments.next().is_some() || names.iter().any(|name| name == files::FILE_NAME);
    let mut names = Vec::new();
    if stays {
        names.clone_from(&recovered.unfinished);
    }
    // What is skipped or cut as damage is kept until the opening is durable.
    if has_used && recovered.damage.is_empty() {
        names.extend(recovered.unused.iter().map(|id| id.file_name()));
    }
    Ok((names, has_used))
}

async fn make<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    id: SegmentId,
) -> Result<SegmentHandle<D::File>, WalError> {
    segment::make(disk, opts, id, segment::PIECE_BYTES, || true).await
}

fn is_out_of_space<T>(result: &Result<T, WalError>) -> bool {
    matches!(result, Err(error) if error.is_out_of_space())
}

#[cfg(test)]
mod tests;
