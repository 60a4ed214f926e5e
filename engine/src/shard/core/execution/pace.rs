//! How long scripts and transactions take: their shard does nothing else meanwhile.
//!
//! What they take counts as work of the client that has sent them, and of the turn, which begins no more of them after
//! about a millisecond.

use std::time::{Duration, Instant};

use crate::command::error::ClientError;
use crate::node::time::NodeTime;
use crate::shard::core::Core;

/// How long one transaction may take.
const TIME_MAX: Duration = Duration::from_secs(1);

/// A transaction has taken longer.
pub(crate) const TIME_IS_OVER: ClientError =
    ClientError::TransactionTime(TIME_MAX.as_millis() as u64);

/// Steps between two looks at the clock.
const STEPS_PER_LOOK: usize = 32;

/// Work between two looks at the clock, as bytes of input that take as long.
const WORK_PER_LOOK: usize = 64 << 10;

/// Input that is executed in a microsecond, about.
const BYTES_PER_USEC: u128 = 256;

/// Input that takes as long.
pub(crate) fn as_input(took: Duration) -> usize {
    (took.as_micros() * BYTES_PER_USEC) as usize
}

/// How long the commands of a transaction take, which are looked at now and then.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    /// How long they had taken at the last look.
    took: Duration,
    steps: usize,
    work: usize,
}

impl Pace {
    fn look(&mut self, work: usize, time: &NodeTime) -> Result<(), ClientError> {
        self.work = work;
        self.took = time.instant().saturating_duration_since(self.since);
        match self.took > TIME_MAX {
            true => Err(TIME_IS_OVER),
            false => Ok(()),
        }
    }
}

impl Core {
    /// Begins a transaction.
    pub(crate) fn begin_pace(&mut self) {
        let since = match self.execution.timing.since() {
            Some(since) => since,
            None => {
                let now = self.node.time.instant();
                self.execution.timing.begin(now);
                now
            }
        };
        self.execution.pace = Some(Pace {
            since,
            took: Duration::ZERO,
            steps: 0,
            work: self.keyspace.work(),
        });
    }

    /// One more command of a transaction was executed.
    ///
    /// # Errors
    /// [`ClientError::TransactionTime`].
    pub(crate) fn step(&mut self) -> Result<(), ClientError> {
        let (work, time) = (self.keyspace.work(), &self.node.time);
        let Some(pace) = &mut self.execution.pace else {
            return Ok(());
        };
        pace.steps += 1;
        let is_long = work >= pace.work + WORK_PER_LOOK;
        match is_long || pace.steps.is_multiple_of(STEPS_PER_LOOK) {
            true => pace.look(work, time),
            false => Ok(()),
        }
    }

    /// How much longer a transaction may take.
    ///
    /// # Errors
    /// [`ClientError::TransactionTime`].
    pub(crate) fn time_left(&mut self) -> Result<Duration, ClientError> {
        let (work, time) = (self.keyspace.work(), &self.node.time);
        let Some(pace) = &mut self.execution.pace else {
            return Ok(TIME_MAX);
        };
        pace.look(work, time)?;
        Ok(TIME_MAX.saturating_sub(pace.took))
    }

    /// Looks in the middle of a transaction's command whether it may go on.
    ///
    /// # Errors
    /// [`ClientError::TransactionTime`], or what [`Keyspace::atomic_overflow`](crate::keyspace::Keyspace::atomic_overflow)
    /// says.
    pub(crate) fn look_within(&mut self) -> Result<(), ClientError> {
        if let Some(pace) = &mut self.execution.pace {
            pace.look(self.keyspace.work(), &self.node.time)?;
        }
        self.keyspace.atomic_overflow().map_or(Ok(()), Err)
    }

    /// The transaction is over.
    pub(crate) fn end_pace(&mut self) {
        if let Some(pace) = self.execution.pace.take() {
            self.keyspace.add_work(as_input(pace.took));
        }
    }
}

#[cfg(test)]
mod tests;
