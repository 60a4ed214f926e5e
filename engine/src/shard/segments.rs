//! The files of a shard's log: prepared ahead, recycled and removed by the segment threads.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ephesus_wal::disk::std::StdFile;
use ephesus_wal::{
    LogFiles, LogOptions, LogWriter, SegmentHandle, SegmentId, SegmentInfo, StdDisk, WalError,
    Zeroes,
};

use crate::net::Waker;

/// Spare segments are prepared once this part (an eighth) of the first segment is used.
const SPARE_AFTER_PART: u64 = 8;

/// What has failed because the system lacks space, descriptors or memory is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// While clients wait for the log's writes, zeroes are written in pieces of so many bytes, and behind each the
/// disk is left alone for a while, if there is time for it: one after the other they would keep it busy, with a sync
/// for each piece.
const GENTLE_BYTES: u64 = 256 << 10;

/// All pauses together take this part (a quarter) of the time until the log asks for the next segment, if
/// that is as long as the last time; with less than the least one there is none.
const GENTLE_PART: u32 = 4;
const GENTLE_PAUSE_MIN: Duration = Duration::from_micros(500);
const GENTLE_PAUSE_MAX: Duration = Duration::from_millis(2);

/// What a shard asks of the segment threads; the shard has one at a time under way.
pub struct Job {
    /// Come back with the answer.
    pub files: LogFiles<StdDisk>,
    pub options: LogOptions,
    pub work: Work,
    pub pace: Pace,
    pub done: flume::Sender<Answer>,
    /// Rung once the answer is there.
    pub waker: Arc<Waker>,
}

/// How long the disk is left to others behind each piece of zeroes.
#[derive(Debug)]
pub struct Pace {
    /// So long at least.
    pub pause: Duration,
    /// The log waits for the segment: no more of it is filled.
    pub is_late: Arc<AtomicBool>,
}

impl Pace {
    /// Blocks until the next piece may be written, and whether there is one.
    pub fn rest(&self) -> Zeroes {
        let is_late = || self.is_late.load(Ordering::Relaxed);
        if !is_late() {
            std::thread::sleep(self.pause);
        }
        if is_late() {
            Zeroes::LeaveRest
        } else {
            Zeroes::GoOn
        }
    }
}

/// Where all shards of a node ask for it.
#[derive(Clone, Debug)]
pub struct Jobs {
    sender: flume::Sender<Job>,
}

impl Jobs {
    #[must_use]
    pub fn new(sender: flume::Sender<Job>) -> Jobs {
        Jobs { sender }
    }
}

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
    /// When a segment was asked for that had to be filled.
    prepared: Option<Instant>,
    /// When the first segment was seen half as full as it is when the first spare one is asked for, and its bytes.
    halfway: Option<(Instant, u64)>,
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
            prepared: None,
            halfway: None,
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

    /// Hands finished segments to the log and asks for the next piece of work, which is done gently if
    /// clients wait.
    ///
    /// # Errors
    /// A segment cannot be prepared; what [`WalError::passes`] is tried again, other errors are final.
    pub fn tend(
        &mut self,
        log: &mut LogWriter,
        has_clients: bool,
        now: Instant,
    ) -> Result<(), WalError> {
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
        self.note_halfway(log, now);
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
            self.ask(work, log, has_clients, now);
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

    fn ask(&mut self, work: Work, log: &LogWriter, has_clients: bool, now: Instant) {
        let Some(files) = self.files.take() else {
            return;
        };
        let mut options = self.options.clone();
        let mut pause = Duration::ZERO;
        if matches!(work, Work::Prepare(_)) {
            let since = match self.prepared.replace(now) {
                Some(last) => Some(now - last),
                None => self.first_lasts(log, now),
            };
            pause = set_filling(&mut options, since, has_clients, log.is_starved());
        }
        self.is_late = Arc::default();
        let is_late = Arc::clone(&self.is_late);
        let job = Job {
            files,
            options,
            work,
            pace: Pace { pause, is_late },
            done: self.answers.0.clone(),
            waker: Arc::clone(&self.waker),
        };
        self.under_way = Some(work);
        // The thread ends only after the shards.
        let _ = self.jobs.sender.send(job);
    }

    fn note_halfway(&mut self, log: &LogWriter, now: Instant) {
        let used = log.first_segment_used().unwrap_or(0);
        if self.halfway.is_none() && 2 * used * SPARE_AFTER_PART >= self.options.segment_bytes {
            self.halfway = Some((now, used));
        }
    }

    /// How long the first segment would last if all of it filled as fast as what was used since halfway.
    fn first_lasts(&self, log: &LogWriter, now: Instant) -> Option<Duration> {
        let (noted, noted_bytes) = self.halfway?;
        let filled = log.first_segment_used()?.checked_sub(noted_bytes)?;
        let times = self.options.segment_bytes.checked_div(filled)?;
        Some((now - noted) * u32::try_from(times).ok()?)
    }

    /// Whether the log is used so much that it will need another segment: a node that is started for
    /// a few keys does not fill the disk with zeroes.
    fn is_needed(&self, log: &LogWriter) -> bool {
        log.first_segment_used()
            .is_none_or(|used| used * SPARE_AFTER_PART >= self.options.segment_bytes)
    }
}

/// How a thread fills a segment that the log asks for, so long `since` the one before, or as long as its first one
/// lasts: in small pieces while clients wait for the log's writes, and not at all if the log waits itself, or moves
/// alone fill it fast. Answers how long the disk is left alone behind each piece anyway.
fn set_filling(
    options: &mut LogOptions,
    since: Option<Duration>,
    has_clients: bool,
    is_starved: bool,
) -> Duration {
    let pieces = options.segment_bytes.div_ceil(GENTLE_BYTES);
    let part = |since: Duration| since / GENTLE_PART / pieces as u32;
    let pause = since.map_or(GENTLE_PAUSE_MAX, part);
    let fills_fast = pause < GENTLE_PAUSE_MIN;
    if is_starved || (fills_fast && !has_clients) {
        options.fills_segments = false;
    } else if has_clients {
        options.zeroes_bytes = GENTLE_BYTES;
        if !fills_fast {
            return pause.min(GENTLE_PAUSE_MAX);
        }
    }
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use std::io;

    use ephesus_wal::{Durability, LogId, open_writer, recover};
    use ephesus_wire::Lsn;
    use futures_lite::future::block_on;

    use super::*;
    use crate::keyspace::tests::tape;

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
            let jobs_of_node = Jobs::new(sender);
            Bed {
                _temp: temp,
                segments: Segments::new(jobs_of_node, files, options, waker, first, keep_bytes),
                log: opened.writer,
                jobs,
                started: Instant::now(),
            }
        }

        /// What is asked for next, and then answered so.
        fn answer(&mut self, answer: impl FnOnce(Work) -> Result<Done, WalError>) -> Option<Work> {
            let now = self.started;
            let tended = self.segments.tend(&mut self.log, false, now);
            tended.expect("no error");
            let job = self.jobs.try_recv().ok()?;
            let answer = (job.files, answer(job.work));
            job.done.send(answer).expect("it waits");
            Some(job.work)
        }

        /// Writes so many KiB, and tends what is prepared so long after the start; whether a segment that is asked
        /// for then is to be filled.
        fn write(&mut self, kib: usize, at_ms: u64) -> Option<bool> {
            self.log.append(&vec![7; kib << 10]);
            tape::complete(&mut self.log, |_| {});
            let now = self.started + Duration::from_millis(at_ms);
            let tended = self.segments.tend(&mut self.log, false, now);
            tended.expect("no error");
            let job = self.jobs.try_recv().ok()?;
            assert!(matches!(job.work, Work::Prepare(_)));
            Some(job.options.fills_segments)
        }
    }

    #[test]
    fn the_first_spare_segment_gets_no_zeroes_if_moves_fill_the_first_one_fast() {
        let filled_within = |ms: u64| {
            let mut bed = Bed::new();
            assert_eq!(bed.write(40, 1_000), None);
            assert_eq!(bed.write(40, 1_000), None, "halfway to an eighth");
            bed.write(50, 1_000 + ms).expect("an eighth is used")
        };
        assert!(!filled_within(0));
        assert!(
            filled_within(1),
            "1 MiB in 20 ms is slower than zeroes are written"
        );
        assert!(filled_within(5_000));
        assert_eq!(Bed::new().write(200, 1_000), Some(true), "seen only once");
    }

    fn filled(
        since_ms: Option<u64>,
        has_clients: bool,
        is_starved: bool,
    ) -> (LogOptions, Duration) {
        let mut options = LogOptions::new(LogId::default());
        options.segment_bytes = 64 << 20;
        let since = since_ms.map(Duration::from_millis);
        let pause = set_filling(&mut options, since, has_clients, is_starved);
        (options, pause)
    }

    #[test]
    fn zeroes_take_the_time_that_there_is() {
        let gentle = |since_ms, has_clients| {
            let (options, pause) = filled(since_ms, has_clients, false);
            assert!(options.fills_segments);
            (options.zeroes_bytes, pause.as_micros())
        };
        assert_eq!(gentle(None, true), (GENTLE_BYTES, 2_000), "the first one");
        assert_eq!(gentle(Some(60_000), true), (GENTLE_BYTES, 2_000));
        assert_eq!(gentle(Some(1_024), true), (GENTLE_BYTES, 1_000));
        assert_eq!(gentle(Some(512), true), (GENTLE_BYTES, 500));
        assert_eq!(gentle(Some(500), true), (GENTLE_BYTES, 0), "it fills fast");
        assert_eq!(gentle(None, false), (2 << 20, 0), "nobody waits");
    }

    #[test]
    fn no_zeroes_for_moves_and_where_the_log_waits() {
        let fills = |since_ms, has_clients, is_starved| {
            filled(since_ms, has_clients, is_starved).0.fills_segments
        };
        assert!(fills(None, false, false), "the first one");
        assert!(fills(Some(512), false, false), "slowly");
        assert!(!fills(Some(500), false, false), "moves alone, fast");
        assert!(!fills(None, false, true));
        assert!(fills(Some(500), true, false), "clients, fast");
        assert!(!fills(Some(500), true, true), "the log waits");
    }

    #[test]
    fn no_more_zeroes_for_a_segment_that_the_log_waits_for() {
        let mut bed = Bed::new();
        let mut tend = |kib: usize| {
            bed.log.append(&vec![7; kib << 10]);
            if let Some(op) = bed.log.next_write(0) {
                let len = op.buf.len();
                bed.log.complete(op, Ok(len)).expect("it succeeded");
            }
            let now = bed.started;
            let tended = bed.segments.tend(&mut bed.log, true, now);
            tended.expect("no error");
            bed.jobs.try_recv().ok()
        };
        let pace = tend(200).expect("an eighth is used").pace;
        assert!(tend(600).is_none(), "one at a time");
        assert_eq!(pace.rest(), Zeroes::GoOn);
        assert!(tend(600).is_none());
        assert_eq!(pace.rest(), Zeroes::LeaveRest, "it does not fit any more");
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
            let error = bed
                .segments
                .tend(&mut bed.log, false, now)
                .expect_err("it failed");
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
