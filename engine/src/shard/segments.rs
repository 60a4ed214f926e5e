//! The files of a shard's log: prepared ahead, recycled and removed by the segment threads.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ephesus_wal::disk::std::StdFile;
use ephesus_wal::{
    LogFiles, LogOptions, LogWriter, SegmentHandle, SegmentId, SegmentInfo, StdDisk, WalError,
};

use crate::net::Waker;

/// The next segment is prepared once this part (an eighth) of the one before is used: a node that is started for a few
/// keys does not fill the disk with zeroes.
const SPARE_AFTER_PART: u64 = 8;

/// What has failed because the system lacks space, descriptors or memory is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What a shard asks of the segment threads; the shard has one at a time under way.
pub struct Job {
    /// Come back with the answer.
    pub files: LogFiles<StdDisk>,
    pub options: LogOptions,
    pub work: Work,
    /// The log waits for the segment: no more of it is filled.
    pub is_late: Arc<AtomicBool>,
    pub done: flume::Sender<Answer>,
    /// Rung once the answer is there.
    pub waker: Arc<Waker>,
}

/// Where all shards of a node ask for it.
pub type Jobs = flume::Sender<Job>;

/// One change of a log's directory.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    Prepare(SegmentId),
    Recycle { from: SegmentInfo, to: SegmentId },
    Shelve(SegmentInfo),
    Reuse { shelved: SegmentInfo, to: SegmentId },
    Remove(SegmentInfo),
}

/// What a segment thread has done.
pub enum Done {
    Ready(SegmentHandle<StdFile>),
    Shelved(SegmentInfo),
    Removed,
}

type Answer = (LogFiles<StdDisk>, Result<Done, WalError>);
type Answers = (flume::Sender<Answer>, flume::Receiver<Answer>);

/// Keeps prepared segments ahead of the log's writer.
pub struct Segments {
    jobs: Jobs,
    /// `None`: a thread has them, and works.
    files: Option<LogFiles<StdDisk>>,
    options: LogOptions,
    waker: Arc<Waker>,
    open: Vec<SegmentHandle<StdFile>>,
    /// Truncated segments, oldest first: to be recycled, shelved or removed in this order.
    truncated: VecDeque<SegmentInfo>,
    /// Truncated segments whose files were put aside.
    shelved: Vec<SegmentInfo>,
    /// Truncated files are kept while all files of the log together are not larger.
    keep_bytes: u64,
    answers: Answers,
    /// What a thread is asked for, or was asked for and could not do yet.
    under_way: Option<Work>,
    /// What has failed is tried again from then on.
    again: Option<Instant>,
    /// Whether the log waits for what a thread is busy with.
    is_late: Arc<AtomicBool>,
}

impl Segments {
    /// `files` are those of a log that was opened with the segment `first`; truncated ones are kept for later
    /// use while the log has no more than `keep_bytes` of files.
    #[must_use]
    pub fn new(
        jobs: Jobs,
        files: LogFiles<StdDisk>,
        options: LogOptions,
        waker: Arc<Waker>,
        first: SegmentHandle<StdFile>,
        keep_bytes: u64,
    ) -> Segments {
        Segments {
            jobs,
            files: Some(files),
            options,
            waker,
            open: vec![first],
            truncated: VecDeque::new(),
            shelved: Vec::new(),
            keep_bytes,
            answers: flume::bounded(1),
            under_way: None,
            again: None,
            is_late: Arc::default(),
        }
    }

    /// The descriptor to write to.
    ///
    /// # Panics
    /// When the segment is not one that was handed to the log.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "the log writes to segments that it was given"
    )]
    pub fn descriptor(&self, id: SegmentId) -> RawFd {
        let file = self.open.iter().find(|segment| segment.info.id == id);
        file.expect("the log writes to segments it was given")
            .as_raw_fd()
    }

    /// Whether a segment thread has answered something that was not taken yet.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        !self.answers.1.is_empty()
    }

    /// Bytes of segment files that the log does not use: prepared, or to be recycled or removed.
    #[must_use]
    pub fn spare_bytes(&self, log: &LogWriter) -> u64 {
        let given_back = self.truncated.iter().chain(&self.shelved);
        let given_back: u64 = given_back.map(|segment| segment.bytes).sum();
        let under_way = self.under_way.map_or(0, |work| match work {
            Work::Prepare(_) => self.options.segment_bytes,
            Work::Recycle { from: old, .. }
            | Work::Reuse { shelved: old, .. }
            | Work::Shelve(old)
            | Work::Remove(old) => old.bytes,
        });
        log.ready_bytes() + given_back + under_way
    }

    /// Takes segments the log has given back.
    pub fn give_back(&mut self, segments: Vec<SegmentInfo>) {
        self.truncated.extend(segments);
    }

    /// Hands finished segments to the log and asks for the next piece of work.
    ///
    /// # Errors
    /// A segment cannot be prepared; what [`WalError::passes`] is tried again, other errors are final.
    pub fn tend(&mut self, log: &mut LogWriter, now: Instant) -> Result<(), WalError> {
        if let Ok((files, answer)) = self.answers.1.try_recv() {
            self.files = Some(files);
            self.again = None;
            match answer {
                Ok(Done::Ready(segment)) => {
                    log.add_segment(segment.info)?;
                    self.open.push(segment);
                }
                Ok(Done::Shelved(old)) => self.shelved.push(old),
                Ok(Done::Removed) => {}
                Err(error) => {
                    self.take_back();
                    self.again = Some(now + AGAIN_AFTER);
                    return Err(error);
                }
            }
            self.under_way = None;
        }
        self.open.retain(|segment| log.is_in_use(segment.info.id));
        if self.again.is_some_and(|at| now < at) {
            return Ok(());
        }
        if self.files.is_none() {
            if log.is_starved() {
                self.is_late.store(true, Ordering::Relaxed);
            }
            return Ok(());
        }
        if let Some(work) = self.next_work(log) {
            self.ask(work, log);
        }
        Ok(())
    }

    /// Whether the system lacks what the next piece of work needs; it is tried again by itself.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.again.is_some()
    }

    /// What could not be done yet is to be done as before: files go in the order in which they were given back.
    fn take_back(&mut self) {
        match self.under_way.take() {
            Some(Work::Recycle { from: old, .. } | Work::Shelve(old) | Work::Remove(old)) => {
                self.truncated.push_front(old);
            }
            Some(Work::Reuse { shelved, .. }) => self.shelved.push(shelved),
            Some(Work::Prepare(_)) | None => {}
        }
    }

    /// What is to be done with the log's files next.
    fn next_work(&mut self, log: &mut LogWriter) -> Option<Work> {
        let oldest = self.truncated.front().copied();
        let oldest_fits = oldest.is_none_or(|oldest| log.is_reusable(oldest));
        if let Some(oldest) = oldest.filter(|_| !oldest_fits) {
            self.truncated.pop_front();
            return Some(Work::Remove(oldest));
        }
        let wants_spare = log.wants_segments() > 0 && self.is_needed(log);
        if wants_spare || log.is_starved() {
            let to = log.allocate_segment();
            if let Some(from) = self.truncated.pop_front() {
                return Some(Work::Recycle { from, to });
            }
            if let Some(shelved) = self.shelved.pop() {
                return Some(Work::Reuse { shelved, to });
            }
            return Some(Work::Prepare(to));
        }
        let oldest = oldest?;
        let keeps = log.log_bytes() + self.spare_bytes(log) <= self.keep_bytes;
        self.truncated.pop_front();
        Some(match keeps {
            true => Work::Shelve(oldest),
            false => Work::Remove(oldest),
        })
    }

    fn ask(&mut self, work: Work, log: &LogWriter) {
        let Some(files) = self.files.take() else {
            return;
        };
        self.is_late = Arc::new(AtomicBool::new(log.is_starved()));
        let job = Job {
            files,
            options: self.options.clone(),
            work,
            is_late: Arc::clone(&self.is_late),
            done: self.answers.0.clone(),
            waker: Arc::clone(&self.waker),
        };
        self.under_way = Some(work);
        // The thread ends only after the shards.
        let _ = self.jobs.send(job);
    }

    /// Whether the log is used so much that it will need another segment.
    fn is_needed(&self, log: &LogWriter) -> bool {
        let least = self.options.segment_bytes / SPARE_AFTER_PART;
        log.unused_bytes() + least <= self.options.segment_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use ephesus_wal::{Durability, LogId, open_writer, recover};
    use ephesus_wire::Lsn;
    use futures_lite::future::block_on;

    use super::*;

    /// A log whose segments nobody prepares, and what is asked of who would.
    struct Bed {
        _temp: tempfile::TempDir,
        log: LogWriter,
        segments: Segments,
        jobs: flume::Receiver<Job>,
        started: Instant,
    }

    impl Bed {
        fn new() -> Bed {
            Bed::keeping(0)
        }

        /// Files are kept while there are no more bytes of them.
        #[expect(clippy::disallowed_methods, reason = "any instant does")]
        fn keeping(keep_bytes: u64) -> Bed {
            let temp = tempfile::tempdir().expect("temp dir");
            let options = LogOptions {
                segment_bytes: 1 << 20,
                ..LogOptions::new(LogId([9; 16]))
            };
            let opened = block_on(async {
                let disk = StdDisk::new(temp.path(), Durability::Strict).expect("a directory");
                let recovered = recover(&disk, &options, Lsn::ZERO, &mut |_, _| Ok(())).await?;
                open_writer(&disk, &options, &recovered, Lsn::ZERO, 0).await
            });
            let opened = opened.expect("a log");
            let (sender, jobs) = flume::unbounded();
            let waker = Arc::new(Waker::new().expect("an eventfd"));
            let (files, first) = (opened.files, opened.segment);
            Bed {
                _temp: temp,
                segments: Segments::new(sender, files, options, waker, first, keep_bytes),
                log: opened.writer,
                jobs,
                started: Instant::now(),
            }
        }

        /// What is asked for next, and then answered so.
        fn answer(&mut self, answer: impl FnOnce(Work) -> Result<Done, WalError>) -> Option<Work> {
            let now = self.started;
            let tended = self.segments.tend(&mut self.log, now);
            tended.expect("no error");
            let job = self.jobs.try_recv().ok()?;
            let answer = (job.files, answer(job.work));
            job.done.send(answer).expect("it waits");
            Some(job.work)
        }
    }

    #[test]
    fn the_next_segment_is_prepared_once_an_eighth_of_one_is_used_and_not_filled_once_the_log_waits()
     {
        let mut bed = Bed::new();
        let mut tend = |kib: usize| {
            bed.log.append(&vec![7; kib << 10]);
            if let Some(op) = bed.log.next_write(0) {
                let len = op.buf.len();
                bed.log.complete(op, Ok(len)).expect("it succeeded");
            }
            let tended = bed.segments.tend(&mut bed.log, bed.started);
            tended.expect("no error");
            bed.jobs.try_recv().ok()
        };
        assert!(tend(100).is_none());
        let is_late = tend(50).expect("an eighth is used").is_late;
        assert!(tend(600).is_none(), "one at a time");
        assert!(!is_late.load(Ordering::Relaxed));
        assert!(tend(600).is_none());
        assert!(is_late.load(Ordering::Relaxed), "it does not fit any more");
    }

    #[test]
    fn a_segment_that_the_log_waits_for_gets_no_zeroes() {
        let mut bed = Bed::new();
        bed.log.append(&vec![7; 600 << 10]);
        let op = bed.log.next_write(0).expect("it fits");
        let len = op.buf.len();
        bed.log.complete(op, Ok(len)).expect("it succeeded");
        bed.log.append(&vec![7; 600 << 10]);
        assert!(bed.log.next_write(0).is_none());
        let tended = bed.segments.tend(&mut bed.log, bed.started);
        tended.expect("no error");
        let job = bed.jobs.try_recv().expect("a segment");
        assert!(job.is_late.load(Ordering::Relaxed));
    }

    fn old(id: u64, bytes: u64) -> SegmentInfo {
        SegmentInfo {
            id: SegmentId(id),
            bytes,
        }
    }

    #[test]
    fn files_of_another_size_are_removed_first_and_counted_by_their_size() {
        let mut bed = Bed::keeping(100 << 20);
        let others = [old(1, 512 << 10), old(2, 4 << 20)];
        bed.segments.give_back(others.to_vec());
        bed.segments.give_back(vec![old(3, 1 << 20)]);
        let bytes = bed.segments.spare_bytes(&bed.log);
        assert_eq!(bytes, (512 << 10) + (4 << 20) + (1 << 20));
        for other in others {
            let work = bed.answer(|_| Ok(Done::Removed));
            assert!(
                matches!(work, Some(Work::Remove(removed)) if removed == other),
                "{work:?}"
            );
        }
        let work = bed.answer(|_| Ok(Done::Shelved(old(3, 1 << 20))));
        assert!(matches!(work, Some(Work::Shelve(_))), "{work:?}");
        assert!(bed.answer(|_| Ok(Done::Removed)).is_none());
        assert_eq!(bed.segments.spare_bytes(&bed.log), 1 << 20);
    }

    #[test]
    fn what_the_system_lacks_room_for_is_tried_again_in_the_same_order() {
        let lacks = [
            libc::ENOSPC,
            libc::EDQUOT,
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOMEM,
        ];
        for code in lacks {
            let mut bed = Bed::new();
            bed.segments
                .give_back(vec![old(1, 1 << 20), old(2, 1 << 20)]);
            let failed = |_| {
                let (op, file) = ("rename to", "seg".to_owned());
                let source = io::Error::from_raw_os_error(code);
                Err(WalError::Io { op, file, source })
            };
            let work = bed.answer(failed);
            assert!(matches!(
                work,
                Some(Work::Remove(SegmentInfo {
                    id: SegmentId(1),
                    ..
                }))
            ));
            let mut now = bed.started;
            let error = bed.segments.tend(&mut bed.log, now).expect_err("it failed");
            assert!(error.passes() && bed.segments.waits(), "{error}");
            assert!(bed.answer(failed).is_none(), "not at once");
            now += AGAIN_AFTER;
            bed.started = now;
            let work = bed.answer(|_| Ok(Done::Removed));
            assert!(matches!(
                work,
                Some(Work::Remove(SegmentInfo {
                    id: SegmentId(1),
                    ..
                }))
            ));
            let work = bed.answer(|_| Ok(Done::Removed));
            assert!(matches!(
                work,
                Some(Work::Remove(SegmentInfo {
                    id: SegmentId(2),
                    ..
                }))
            ));
            assert!(!bed.segments.waits());
        }
    }
}
