//! Writes while data moves, by a client that follows it.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::error::{BenchError, Result};
use crate::load::{Command, Found, Generator, Kind, Phase, Timetable, Traffic};

#[cfg(test)]
mod tests;

/// Writes, on a thread of their own, until it is dropped or ended.
pub(super) struct Load {
    thread: Option<JoinHandle<Result<Found>>>,
    times: Arc<Timetable>,
}

impl Load {
    /// Sets these keys, all of which are there.
    pub(super) fn start(traffic: Traffic, keys: Vec<u32>) -> Result<Self> {
        if keys.is_empty() {
            return Err(BenchError::flag("--keys", "leaves nothing to write"));
        }
        let generator = Generator::open(traffic, move |random, turn| {
            let drawn = random.below(keys.len() as u64);
            Some(Command {
                kind: Kind::Set,
                key: u64::from(keys[drawn as usize]),
                generation: turn.due_ns,
            })
        })?;
        let times = Arc::new(Timetable::new());
        let own = Arc::clone(&times);
        let thread = thread::Builder::new()
            .name("load".to_owned())
            .spawn(move || generator.run(&own))
            .map_err(BenchError::io("starting a thread"))?;
        let thread = Some(thread);
        Ok(Load { thread, times })
    }

    /// What is due from now on belongs to this phase.
    pub(super) fn enter(&self, phase: Phase) {
        self.times.enter(phase);
    }

    /// Fails when it has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            None => Ok(()),
            Some(ended) => match joined(ended) {
                Err(error) => Err(error),
                Ok(_) => Err(BenchError::failed("writes", "they have ended early")),
            },
        }
    }

    /// Ends it and waits for what is not answered yet.
    pub(super) fn finish(mut self) -> Result<Found> {
        self.times.end();
        match self.thread.take() {
            Some(thread) => joined(thread),
            None => Err(BenchError::failed("writes", "they have ended early")),
        }
    }
}

fn joined(thread: JoinHandle<Result<Found>>) -> Result<Found> {
    let panicked = |_| Err(BenchError::failed("writes", "their thread has panicked"));
    thread.join().unwrap_or_else(panicked)
}

impl Drop for Load {
    fn drop(&mut self) {
        self.times.end();
        if let Some(thread) = self.thread.take() {
            // It was an error that dropped this one, which is told already.
            let _ = thread.join();
        }
    }
}
