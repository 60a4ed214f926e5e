//! The thread that makes a coordinator's plans, so that its turns stay short.

use std::thread::JoinHandle;

use super::inbox::Requests;
use crate::coordinator::{Event, PlanJob};

/// Makes one plan after another, on a thread that begins with the first.
#[derive(Debug)]
pub(super) struct Planner {
    made: Requests,
    running: Option<(flume::Sender<PlanJob>, JoinHandle<()>)>,
}

impl Planner {
    /// One whose plans go to `made`.
    pub(super) fn new(made: Requests) -> Planner {
        Planner {
            made,
            running: None,
        }
    }

    /// Has a plan made. One that is lost, also because two are there already, is given up by the coordinator after a while.
    pub(super) fn make(&mut self, job: PlanJob) {
        if self.running.is_none() {
            let (jobs, waiting) = flume::bounded::<PlanJob>(1);
            let made = self.made.clone();
            let run = move || {
                for job in waiting {
                    if made
                        .send_blocking(Event::Planned(Box::new(job.run())))
                        .is_err()
                    {
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
        if let Some((jobs, _)) = &self.running
            && jobs.try_send(job).is_err()
        {
            tracing::warn!("plans take too long: one is not made");
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
