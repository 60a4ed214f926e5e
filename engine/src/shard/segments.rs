//! The files of a shard's log: prepared ahead, recycled and closed in the background.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use ephesus_wal::{
    GlommioDisk, LogOptions, LogWriter, SegmentId, SegmentInfo, WalError, discard, prepare, recycle,
};
use glommio::TaskQueueHandle;

type File = Box<dyn AsRawFd>;

/// What the background task hands back.
enum Done {
    Ready(SegmentInfo, File),
    Removed,
    Failed(WalError),
}

/// Keeps prepared segments ahead of the log's writer.
pub struct Segments {
    disk: GlommioDisk,
    options: LogOptions,
    queue: TaskQueueHandle,
    files: Vec<(SegmentId, File)>,
    /// Truncated segments, oldest first: to be recycled or removed in this order.
    truncated: VecDeque<SegmentInfo>,
    done: Rc<RefCell<VecDeque<Done>>>,
    busy: bool,
}

impl Segments {
    /// `first` is the segment the log was opened with.
    #[must_use]
    pub fn new(
        disk: GlommioDisk,
        options: LogOptions,
        queue: TaskQueueHandle,
        first: (SegmentId, File),
    ) -> Segments {
        Segments {
            disk,
            options,
            queue,
            files: vec![first],
            truncated: VecDeque::new(),
            done: Rc::default(),
            busy: false,
        }
    }

    /// The descriptor to write to.
    ///
    /// # Panics
    /// When the segment is not one that was handed to the log.
    #[must_use]
    pub fn descriptor(&self, id: SegmentId) -> RawFd {
        let file = self.files.iter().find(|(segment, _)| *segment == id);
        file.expect("the log writes to segments it was given")
            .1
            .as_raw_fd()
    }

    /// Whether a background task is at work, so that the executor has to get its turn.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Takes segments the log has given back.
    pub fn give_back(&mut self, segments: Vec<SegmentInfo>) {
        for segment in segments {
            self.files.retain(|(id, _)| *id != segment.id);
            self.truncated.push_back(segment);
        }
    }

    /// Hands finished segments to the log and starts the next piece of work.
    ///
    /// # Errors
    /// A segment cannot be prepared; [`WalError::Io`] with `ENOSPC` may pass, others do not.
    pub fn tend(&mut self, log: &mut LogWriter) -> Result<(), WalError> {
        let done = self.done.borrow_mut().pop_front();
        if let Some(done) = done {
            self.busy = false;
            match done {
                Done::Ready(info, file) => {
                    self.files.push((info.id, file));
                    log.add_segment(info);
                }
                Done::Removed => {}
                Done::Failed(error) => return Err(error),
            }
        }
        if self.busy {
            return Ok(());
        }
        if log.wants_segments() > 0 {
            let id = log.allocate_segment();
            let old = self.truncated.pop_front();
            self.start(async move |disk, options| {
                let handle = match old {
                    Some(old) => recycle(&disk, &options, old, id).await,
                    None => prepare(&disk, &options, id).await,
                };
                handle.map_or_else(Done::Failed, |handle| {
                    Done::Ready(handle.info, Box::new(handle.file) as File)
                })
            });
        } else if let Some(old) = self.truncated.pop_front() {
            self.start(async move |disk, _| match discard(&disk, old).await {
                Ok(()) => Done::Removed,
                Err(error) => Done::Failed(error),
            });
        }
        Ok(())
    }

    fn start<F>(&mut self, work: F)
    where
        F: AsyncFnOnce(GlommioDisk, LogOptions) -> Done + 'static,
    {
        self.busy = true;
        let done = Rc::clone(&self.done);
        let (disk, options) = (self.disk.clone(), self.options.clone());
        let task = glommio::spawn_local_into(
            async move {
                let result = work(disk, options).await;
                done.borrow_mut().push_back(result);
            },
            self.queue,
        );
        task.expect("the queue lives as long as the executor")
            .detach();
    }
}
