//! Writes at a fixed rate while data moves, by a client that follows it.
//!
//! A client of a cluster knows where each slot is and learns better from `-MOVED`. Latency counts from
//! when a write was due until it is done, however often it was sent elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::{self, JoinHandle};

use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::load::Latency;

pub(super) use client::Found;

mod client;
mod replies;
#[cfg(test)]
mod tests;

use client::Client;

/// What is written.
#[derive(Clone, Debug)]
pub(super) struct LoadConfig {
    /// Who owns every key at first.
    pub(super) address: SocketAddr,
    /// Writes per second; 0: as many as are answered.
    pub(super) rate: u64,
    /// To each server.
    pub(super) connections: usize,
    /// Writes that are sent together.
    pub(super) pipeline: u32,
    /// Keys, all of which are there.
    pub(super) keys: Vec<u32>,
    pub(super) value_bytes: usize,
}

/// What happens meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing, and nothing is counted.
    WarmUp,
    Before,
    During,
    After,
}

impl Phase {
    pub(super) const ALL: [Phase; 4] = [Phase::WarmUp, Phase::Before, Phase::During, Phase::After];
}

/// What one phase was like for clients.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PhaseReport {
    /// Of writes that were due in it and are done.
    pub(super) latency: Latency,
    /// Done per second.
    pub(super) per_s: f64,
}

/// Writes, on a thread of their own, until it is dropped or ended.
pub(super) struct Load {
    thread: Option<JoinHandle<Result<Found>>>,
    shared: Arc<Shared>,
}

/// What the thread is told.
#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    stop: AtomicBool,
}

impl Load {
    pub(super) fn start(config: LoadConfig) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let client = Client::open(config, Arc::clone(&shared))?;
        let thread = thread::Builder::new()
            .name("load".to_owned())
            .spawn(move || client.run())
            .map_err(BenchError::io("starting a thread"))?;
        Ok(Load {
            thread: Some(thread),
            shared,
        })
    }

    /// What is due from now on belongs to this phase.
    pub(super) fn enter(&self, phase: Phase) {
        self.shared.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Fails when it has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            None => Ok(()),
            Some(ended) => match joined(ended) {
                Err(error) => Err(error),
                Ok(_) => Err(BenchError::cluster("writes", "they have ended early")),
            },
        }
    }

    /// Ends it and waits for what is not answered yet.
    pub(super) fn finish(mut self) -> Result<Found> {
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.take() {
            Some(thread) => joined(thread),
            None => Err(BenchError::cluster("writes", "they have ended early")),
        }
    }
}

fn joined(thread: JoinHandle<Result<Found>>) -> Result<Found> {
    let panicked = |_| Err(BenchError::cluster("writes", "their thread has panicked"));
    thread.join().unwrap_or_else(panicked)
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It was an error that dropped this one, which is told already.
            let _ = thread.join();
        }
    }
}
