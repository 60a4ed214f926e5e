//! The end of a coordinator that may be waiting for its disk.

use std::time::Duration;

/// How long what is under way may still take once the process is to stop: a log without room waits until there is some,
/// and what is not durable by then nobody was told of.
const LAST_MAX: Duration = Duration::from_secs(5);

/// Whether the process is to stop.
pub(super) struct Stop<F> {
    told: F,
    is_told: bool,
}

impl<F: Future<Output = ()> + Unpin> Stop<F> {
    pub(super) fn new(told: F) -> Stop<F> {
        Stop {
            told,
            is_told: false,
        }
    }

    /// Waits until it is.
    pub(super) async fn told(&mut self) {
        if !self.is_told {
            (&mut self.told).await;
            self.is_told = true;
        }
    }

    /// What `work` comes to; `None` when the process was to stop and it has gone on for too long since.
    pub(super) async fn bound<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let late = async {
            self.told().await;
            glommio::timer::sleep(LAST_MAX).await;
            None
        };
        futures_lite::future::or(async { Some(work.await) }, late).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::super::executor;
    use super::*;

    #[test]
    fn what_waits_for_the_disk_keeps_no_coordinator_from_its_end() {
        executor().make().expect("an executor").run(async {
            let mut never = Stop::new(pending());
            assert_eq!(never.bound(ready(1)).await, Some(1));
            let mut told = Stop::new(ready(()));
            told.told().await;
            assert_eq!(told.bound(ready(2)).await, Some(2));
            let short = async {
                glommio::timer::sleep(Duration::from_millis(20)).await;
                3
            };
            assert_eq!(told.bound(short).await, Some(3), "a turn goes to its end");
            assert_eq!(told.bound(pending::<u8>()).await, None);
        });
    }
}
