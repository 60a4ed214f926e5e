//! The thread that makes a coordinator's plans, so that its turns stay short.

use std::thread::JoinHandle;

use crate::coordinator::{Event, PlanJob};

/// Makes one plan after another, on a thread that begins with the first.
#[derive(Debug)]
pub(super) struct Planner {
    made: flume::Sender<Event>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    jobs: flume::Sender<PlanJob>,
    /// The same ones, as long as the thread has not begun them.
    queued: flume::Receiver<PlanJob>,
    thread: JoinHandle<()>,
}

impl Planner {
    /// One whose plans go to `made`.
    pub(super) fn new(made: flume::Sender<Event>) -> Planner {
        Planner {
            made,
            running: None,
        }
    }

    /// Has a plan made. One that is lost is given up by the coordinator after a while.
    pub(super) fn make(&mut self, job: PlanJob) {
        // It may have panicked, and said so: that is the end of one plan only.
        let is_over = |running: &Running| running.thread.is_finished();
        if self.running.as_ref().is_none_or(is_over) {
            let (jobs, queued) = flume::unbounded::<PlanJob>();
            let (made, waiting) = (self.made.clone(), queued.clone());
            let run = move || {
                for job in waiting.into_iter().filter(PlanJob::is_waited_for) {
                    if made.send(Event::Planned(Box::new(job.run()))).is_err() {
                        return;
                    }
                }
            };
            match std::thread::Builder::new()
                .name("planner".into())
                .spawn(run)
            {
                Ok(thread) => {
                    self.running = Some(Running {
                        jobs,
                        queued,
                        thread,
                    });
                }
                Err(error) => tracing::error!(%error, "no thread for plans: nothing is planned"),
            }
        }
        if let Some(Running { jobs, queued, .. }) = &self.running {
            // What is waited for is bounded, so all that is queued is.
            let queued: Vec<PlanJob> = queued.drain().filter(PlanJob::is_waited_for).collect();
            for job in queued.into_iter().chain([job]) {
                // It ends with the inbox.
                let _ = jobs.send(job);
            }
        }
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        if let Some(Running { jobs, thread, .. }) = self.running.take() {
            drop(jobs);
            // It has panicked if this fails, and said so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn running(run: impl FnOnce() + Send + 'static) -> Running {
        let (jobs, queued) = flume::unbounded();
        let thread = thread::Builder::new().name("test".into()).spawn(run);
        Running {
            jobs,
            queued,
            thread: thread.expect("a thread"),
        }
    }

    #[test]
    fn another_thread_plans_after_one_that_has_panicked() {
        let (made, plans) = flume::unbounded();
        let mut planner = Planner::new(made);
        let panicked = running(|| panic!("as one that plans may"));
        while !panicked.thread.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        planner.running = Some(panicked);
        let waits = Arc::new(());
        planner.make(PlanJob::of_nothing(&waits));
        let event = plans.recv_timeout(Duration::from_secs(10));
        assert!(matches!(event, Ok(Event::Planned(_))), "{event:?}");
    }

    #[test]
    fn what_nobody_waits_for_is_neither_kept_nor_made() {
        let (made, plans) = flume::unbounded();
        let mut planner = Planner::new(made);
        let (go_on, long) = flume::bounded::<()>(1);
        planner.running = Some(running(move || {
            let _ = long.recv();
        }));
        let waits = Arc::new(());
        for _ in 0..100 {
            planner.make(PlanJob::of_nothing(&waits));
            planner.make(PlanJob::of_nothing(&Arc::new(())));
        }
        let queued = |planner: &Planner| planner.running.as_ref().map(|one| one.queued.len());
        assert_eq!(queued(&planner), Some(101), "and the last one");
        drop(waits);
        planner.make(PlanJob::of_nothing(&Arc::new(())));
        assert_eq!(queued(&planner), Some(1));
        go_on.send(()).expect("it runs");
        drop(planner);
        assert!(plans.is_empty());
    }
}
