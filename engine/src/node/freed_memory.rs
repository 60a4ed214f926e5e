//! Has the allocator give freed memory back to the system.
//!
//! It does so itself when it is asked for more, some time after memory was freed. That is not enough for two reasons. What
//! clients that are closed have made the node hold has to go before others make it hold as much again, however fast
//! they are. And what is freed while another thread gives back may be forgotten (microsoft/mimalloc#1246) until somebody
//! insists. So a thread of its own insists: now and then, and whenever clients have more than they may.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use super::process;

/// How often memory is given back that nobody has asked to be.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

/// Asks the thread; without one nothing happens.
#[derive(Debug, Default)]
pub struct FreedMemory {
    thread: Option<flume::Sender<()>>,
}

impl FreedMemory {
    /// Has what is free be given back soon; does not wait for it.
    pub fn give_back(&self) {
        if let Some(thread) = &self.thread {
            // Asked twice before it has begun is asked once.
            let _ = thread.try_send(());
        }
    }
}

/// The thread that gives back.
#[derive(Debug)]
pub struct FreedMemoryThread {
    /// Nothing is ever sent: the thread ends with it.
    running: flume::Sender<()>,
    thread: JoinHandle<()>,
}

impl FreedMemoryThread {
    /// # Errors
    /// No thread.
    pub fn start() -> io::Result<(FreedMemoryThread, FreedMemory)> {
        let (asked, is_asked) = flume::bounded::<()>(1);
        let (running, is_over) = flume::bounded::<()>(0);
        let goes_on = move || {
            let next = flume::Selector::new().recv(&is_asked, |asked| asked.is_ok());
            let next = next.recv(&is_over, |_| false);
            next.wait_timeout(GIVE_BACK_EVERY).unwrap_or(true)
        };
        let thread = std::thread::Builder::new()
            .name("freed-memory".to_owned())
            .spawn(move || {
                while goes_on() {
                    process::give_memory_back();
                }
            })?;
        let thread = FreedMemoryThread { running, thread };
        Ok((
            thread,
            FreedMemory {
                thread: Some(asked),
            },
        ))
    }

    pub fn stop(self) {
        drop(self.running);
        if self.thread.join().is_err() {
            tracing::error!("the thread of freed memory ended in a panic");
        }
    }
}
