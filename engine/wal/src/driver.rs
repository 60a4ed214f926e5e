//! A writer coupled with a disk, one write at a time: for logs with a low rate.

use std::collections::BTreeMap;

use ephesus_wire::Lsn;

use crate::disk::{Disk, DiskFile};
use crate::error::WalError;
use crate::open::open_writer;
use crate::options::{Durability, LogOptions};
use crate::recover::{Recovered, Visit, recover};
use crate::segment::{SegmentHandle, SegmentId, SegmentInfo, SegmentSummary, prepare, recycle};
use crate::writer::LogWriter;

/// A log on a disk; dropping it is as safe as a crash.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: D,
    writer: LogWriter,
    files: BTreeMap<SegmentId, D::File>,
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
        let files = BTreeMap::from([(opened.segment.info.id, opened.segment.file)]);
        let log = Log {
            disk,
            writer: opened.writer,
            files,
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
                let Some(file) = self.files.get(id) else {
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
            self.files.remove(&oldest.id);
            let fits = oldest.bytes == self.writer.options().segment_bytes;
            if fits && self.writer.wants_segments() > 0 {
                let to = self.writer.allocate_segment();
                let handle = recycle(&self.disk, self.writer.options(), oldest, to).await?;
                self.add(handle);
            } else {
                let name = oldest.id.file_name();
                self.disk
                    .remove(&name)
                    .await
                    .map_err(WalError::io("remove", &name))?;
                let synced = self.disk.sync_dir().await;
                synced.map_err(WalError::io("sync the directory of", &name))?;
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

    async fn write_all(&mut self, wall_clock_ms: u64) -> Result<(), WalError> {
        loop {
            while let Some(op) = self.writer.next_write(wall_clock_ms) {
                let file = &self.files[&op.segment];
                let result = file
                    .write_at(&op.buf, op.offset)
                    .await
                    .map(|()| op.buf.len());
                self.writer.complete(op, result)?;
            }
            if self.writer.is_poisoned() {
                return Err(WalError::Poisoned);
            }
            if !self.writer.is_starved() {
                return Ok(());
            }
            let id = self.writer.allocate_segment();
            let handle = prepare(&self.disk, self.writer.options(), id).await?;
            self.add(handle);
        }
    }

    fn add(&mut self, handle: SegmentHandle<D::File>) {
        self.writer.add_segment(handle.info);
        self.files.insert(handle.info.id, handle.file);
    }
}
