//! A writer coupled with a disk, one write at a time: for logs with a low rate.

use std::collections::BTreeMap;

use ephesus_wire::Lsn;

use crate::disk::{Disk, DiskFile};
use crate::error::{WalError, passes};
use crate::files::LogFiles;
use crate::open::open_writer;
use crate::options::{Durability, LogOptions};
use crate::recover::{Recovered, Visit, recover};
use crate::segment::{SegmentHandle, SegmentId, SegmentInfo, SegmentSummary};
use crate::writer::LogWriter;

/// A log on a disk; dropping it is as safe as a crash.
#[derive(Debug)]
pub struct Log<D: Disk> {
    writer: LogWriter,
    files: LogFiles<D>,
    open: BTreeMap<SegmentId, D::File>,
    disk: D,
    /// The system lacks what the next segment needs, and the log knows.
    waits: bool,
    retired: Vec<SegmentInfo>,
}

impl<D: Disk> Log<D> {
    /// Recovers the log, visiting every record from LSN `from` on (0: all), and opens it; see
    /// [`recover()`] and [`open_writer`].
    ///
    /// # Errors
    /// See [`WalError`].
    pub async fn open(
        disk: D,
        opts: &LogOptions,
        from: Lsn,
        wall_clock_ms: u64,
        visit: Visit<'_>,
    ) -> Result<(Log<D>, Recovered), WalError> {
        let recovered = recover(&disk, opts, from, visit).await?;
        let opened = open_writer(&disk, opts, &recovered, Lsn::ZERO, wall_clock_ms).await?;
        let open = BTreeMap::from([(opened.segment.info.id, opened.segment.file)]);
        let log = Log {
            writer: opened.writer,
            files: opened.files,
            open,
            disk,
            waits: false,
            retired: Vec::new(),
        };
        Ok((log, recovered))
    }

    /// Appends a record; it is neither written nor committed yet.
    ///
    /// # Errors
    /// [`WalError::RecordTooLarge`]; [`WalError::Poisoned`] after a failure.
    pub fn append(&mut self, record: &[u8]) -> Result<Lsn, WalError> {
        if self.writer.is_poisoned() {
            return Err(WalError::Poisoned);
        }
        self.writer.check_record(record.len())?;
        Ok(self.writer.append(record))
    }

    /// Writes everything appended, and syncs it even with relaxed durability.
    ///
    /// # Errors
    /// After any error nothing more is promised: end the process.
    pub async fn commit(&mut self, wall_clock_ms: u64) -> Result<Lsn, WalError> {
        while self.writer.committed() < self.writer.appended() {
            self.write_all(wall_clock_ms).await?;
        }
        if self.writer.options().durability == Durability::Relaxed {
            let point = self.writer.sync_point();
            for id in &point.segments {
                let Some(file) = self.open.get(id) else {
                    continue;
                };
                if let Err(source) = file.sync().await {
                    self.writer.poison();
                    return Err(WalError::Io {
                        op: "sync",
                        file: id.file_name(),
                        source,
                    });
                }
            }
            self.writer.synced(&point);
        }
        Ok(self.writer.committed())
    }

    /// Commits, and marks everything durable for the torn-tail rule: when idle and before closing.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub async fn mark(&mut self, wall_clock_ms: u64) -> Result<(), WalError> {
        self.commit(wall_clock_ms).await?;
        self.writer.mark();
        self.write_all(wall_clock_ms).await?;
        self.commit(wall_clock_ms).await?;
        Ok(())
    }

    /// Gives up records below `lsn` where a whole segment consists of such; their files are reused.
    ///
    /// # Errors
    /// [`WalError::Io`]: end the process.
    pub async fn truncate_before(&mut self, lsn: Lsn) -> Result<(), WalError> {
        self.retired.extend(self.writer.truncate_before(lsn));
        while let Some(&oldest) = self.retired.first() {
            self.open.remove(&oldest.id);
            let freed = if self.writer.is_reusable(oldest) && self.writer.wants_segments() > 0 {
                let (opts, to) = (
                    self.writer.options().clone(),
                    self.writer.allocate_segment(),
                );
                let recycled = self.files.recycle(&opts, oldest, to).await;
                recycled.and_then(|handle| self.add(handle))
            } else {
                self.files.discard(oldest).await
            };
            match freed {
                // Some other time.
                Err(error) if error.passes() => return Ok(()),
                other => other?,
            }
            self.retired.remove(0);
        }
        Ok(())
    }

    /// The writer's state.
    pub fn writer(&self) -> &LogWriter {
        &self.writer
    }

    /// The live segments, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = SegmentSummary> + '_ {
        self.writer.segments()
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the log writes to segments it was given, which are open"
    )]
    async fn write_all(&mut self, wall_clock_ms: u64) -> Result<(), WalError> {
        loop {
            while let Some(op) = self.writer.next_write(wall_clock_ms) {
                let file = &self.open[&op.segment];
                let result = loop {
                    match file.write_at(&op.buf, op.offset).await {
                        // Nobody was told of what it holds: the same bytes to the same place, once more.
                        Err(error) if passes(&error) => {
                            if !std::mem::replace(&mut self.waits, true) {
                                tracing::error!(%error, "the log cannot be written now: it waits");
                            }
                            self.disk.pause().await;
                        }
                        result => break result.map(|()| op.buf.len()),
                    }
                };
                self.waits &= result.is_err();
                self.writer.complete(op, result)?;
            }
            if self.writer.is_poisoned() {
                return Err(WalError::Poisoned);
            }
            if !self.writer.is_starved() {
                return Ok(());
            }
            let id = self.writer.allocate_segment();
            match self.files.prepare(&self.writer.options().clone(), id).await {
                Ok(handle) => self.add(handle)?,
                Err(error) if error.passes() => {
                    if !std::mem::replace(&mut self.waits, true) {
                        tracing::error!(%error, "no log segment can be prepared: writes wait");
                    }
                    self.disk.pause().await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn add(&mut self, handle: SegmentHandle<D::File>) -> Result<(), WalError> {
        self.waits = false;
        self.writer.add_segment(handle.info)?;
        self.open.insert(handle.info.id, handle.file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;

    use super::*;
    use crate::disk::small::SmallDisk;
    use crate::options::LogId;

    #[test]
    fn a_write_for_which_the_system_lacks_something_is_tried_again() {
        let opts = LogOptions::new(LogId([2; 16]));
        for code in [libc::ENOSPC, libc::EDQUOT, libc::ENOMEM, libc::EAGAIN] {
            let disk = SmallDisk::new(u64::MAX);
            let open = |visit: Visit<'_>| {
                let opening = Log::open(disk.clone(), &opts, Lsn::ZERO, 1, visit);
                block_on(opening).map(|(log, _)| log)
            };
            let mut log = open(&mut |_, _| Ok(())).expect("room");
            for number in 0..3u8 {
                disk.grows_after(9);
                disk.faults().fail_once(0, code);
                log.append(&[number; 3000]).expect("it fits a segment");
                let committed = block_on(log.commit(1)).expect("it waits");
                assert_eq!(committed, log.writer().appended());
                assert_eq!(disk.waits(), Some(8), "it has waited once");
            }
            drop(log);
            disk.faults().crash();
            let mut found: Vec<u8> = Vec::new();
            let visit = &mut |_, record: &[u8]| {
                found.extend(record.first());
                Ok(())
            };
            open(visit).expect("a good log");
            assert_eq!(found, [0, 1, 2]);
        }
    }

    #[test]
    fn a_log_without_room_for_a_segment_waits_and_goes_on_when_there_is_some() {
        let opts = LogOptions {
            segment_bytes: 32 << 10,
            group_bytes_max: 8 << 10,
            ..LogOptions::new(LogId([2; 16]))
        };
        let disk = SmallDisk::new(u64::MAX);
        let open = |visit: Visit<'_>| {
            let opening = Log::open(disk.clone(), &opts, Lsn::ZERO, 1, visit);
            block_on(opening).map(|(log, _)| log)
        };
        let mut log = open(&mut |_, _| Ok(())).expect("room");
        disk.resize(0);
        disk.grows_after(3);
        for number in 0..40u8 {
            log.append(&[number; 3000]).expect("it fits a segment");
            let committed = block_on(log.commit(1)).expect("it waits");
            assert_eq!(committed, log.writer().appended());
        }
        assert_eq!(disk.waits(), None, "it has waited three times");
        // Truncation gives back what it can, whatever room there is.
        disk.resize(0);
        block_on(log.truncate_before(log.writer().durable())).expect("files go");
        drop(log);
        disk.faults().crash();
        disk.resize(u64::MAX);
        let mut last = None;
        let visit = &mut |_, record: &[u8]| {
            last = record.first().copied();
            Ok(())
        };
        open(visit).expect("a good log");
        assert_eq!(last, Some(39));
    }
}
