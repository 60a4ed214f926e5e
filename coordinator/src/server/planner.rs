//! The thread that makes a coordinator's plans, so that its turns stay short.

use std::thread::JoinHandle;

use crate::coordinator::{Event, PlanJob};

/// Makes one plan after another, on a thread that begins with the first.
#[derive(Debug)]
pub(super) struct Planner {
    made: flume::Sender<Event>,
    running: Option<(flume::Sender<PlanJob>, JoinHandle<()>)>,
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
        let is_over = |(_, thread): &(_, JoinHandle<()>)| thread.is_finished();
        if self.running.as_ref().is_none_or(is_over) {
            let (jobs, waiting) = flume::unbounded::<PlanJob>();
            let made = self.made.clone();
            let run = move || {
                for job in waiting {
                    if made.send(Event::Planned(Box::new(job.run()))).is_err() {
                        return;
                    }
                }
            };
            match std::thread::Builder::new()
                .name("planner".into())
                .spawn(run)
            {
                Ok(thread) => self.running = Some((jobs, thread)),
                Err(error) => tracing::error!(%error, "no thread for plans: nothing is planned"),
            }
        }
        if let Some((jobs, _)) = &self.running {
            // It ends with the inbox.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.running.take() {
            drop(jobs);
            // It has panicked if this fails, and said so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn another_thread_plans_after_one_that_has_panicked() {
        let (made, plans) = flume::unbounded();
        let mut planner = Planner::new(made);
        let (jobs, _) = flume::unbounded();
        let builder = thread::Builder::new().name("panics".into());
        let panicked = builder.spawn(|| panic!("as one that plans may"));
        let panicked = panicked.expect("a thread");
        while !panicked.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        planner.running = Some((jobs, panicked));
        planner.make(PlanJob::of_nothing());
        let event = plans.recv_timeout(Duration::from_secs(10));
        assert!(matches!(event, Ok(Event::Planned(_))), "{event:?}");
    }
}
