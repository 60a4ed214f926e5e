//! Two threads that pass one worker between them, so that its priority can go down *and up again*.
//!
//! Leaving SCHED_IDLE needs CAP_SYS_NICE or an RLIMIT_NICE of 20 (`sched(7)`), which services rarely
//! have. So a worker runs on an idle-class thread or on a normal one, and changing its priority means
//! handing it over between two pieces of work. Exactly one thread has the worker at any time. On a busy
//! CPU an idle-class thread needs up to a second for the rest of a piece: where the process may, it gets
//! normal priority for that.
//!
//! ```text
//! FROM           TO             [by]
//! Free           Taken          [take]   by the thread whose class is wanted
//! Taken          Free           [give]   the wanted class changed
//! Free, Taken    Closed         [close]  the worker stopped or its thread panicked
//! ```

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ephesus_coordinator::scheduling::set_policy;

/// A thread's scheduling class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Runs only when nothing else wants the CPU.
    Idle,
    /// As any other thread.
    Normal,
}

enum WorkerSlot<W> {
    Free(W),
    Taken,
    Closed,
}

struct Shared<W> {
    slot: WorkerSlot<W>,
    wanted: Class,
    /// The idle-class thread, while it has the worker.
    idle: Option<libc::pid_t>,
    /// It was given normal priority for the rest of its piece of work.
    is_hurried: bool,
}

impl<W> Shared<W> {
    fn want(&mut self, class: Class) {
        self.wanted = class;
        if let Some(thread) = self.idle {
            self.hurry(thread, class == Class::Normal);
        }
    }

    /// Gives the idle-class thread normal priority, or takes it back. Where the process may not, it stays as it
    /// is: slow, no more.
    fn hurry(&mut self, thread: libc::pid_t, wanted: bool) {
        if wanted == self.is_hurried {
            return;
        }
        let policy = if wanted {
            libc::SCHED_OTHER
        } else {
            libc::SCHED_IDLE
        };
        if set_policy(thread, policy).is_ok() {
            self.is_hurried = wanted;
        }
    }

    /// The calling thread, of this class, has the worker now.
    fn enter(&mut self, class: Class) {
        if class == Class::Idle {
            // SAFETY: no arguments, cannot fail.
            let thread = unsafe { libc::gettid() };
            self.hurry(thread, false);
            self.idle = Some(thread);
        }
    }

    /// It has not any more.
    fn leave(&mut self, slot: WorkerSlot<W>) {
        self.slot = slot;
        self.idle = None;
    }
}

/// Where the worker waits for the thread of the wanted class.
pub(super) struct Relay<W> {
    shared: Mutex<Shared<W>>,
    changed: Condvar,
}

impl<W> Relay<W> {
    pub(super) fn new(worker: W, wanted: Class) -> Relay<W> {
        Relay {
            shared: Mutex::new(Shared {
                slot: WorkerSlot::Free(worker),
                wanted,
                idle: None,
                is_hurried: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// The class the worker should have; takes effect when it next looks.
    pub(super) fn want(&self, class: Class) {
        self.lock().want(class);
        self.changed.notify_all();
    }

    pub(super) fn wanted(&self) -> Class {
        self.lock().wanted
    }

    /// Waits until a thread of `class` should have the worker; `None` once it has stopped.
    fn take(&self, class: Class) -> Option<W> {
        let mut shared = self.lock();
        loop {
            if matches!(shared.slot, WorkerSlot::Closed) {
                return None;
            }
            if shared.wanted == class {
                match std::mem::replace(&mut shared.slot, WorkerSlot::Taken) {
                    WorkerSlot::Free(worker) => {
                        shared.enter(class);
                        return Some(worker);
                    }
                    other => shared.slot = other,
                }
            }
            shared = self
                .changed
                .wait(shared)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs the worker on the calling thread whenever `class` is wanted, until `work` returns `None`.
    pub(super) fn serve(&self, class: Class, work: impl Fn(W) -> Option<W>) {
        let _closer = Closer(self);
        while let Some(worker) = self.take(class) {
            let Some(worker) = work(worker) else { return };
            self.lock().leave(WorkerSlot::Free(worker));
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared<W>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the other thread as well, also when this one panics.
struct Closer<'a, W>(&'a Relay<W>);

impl<W> Drop for Closer<'_, W> {
    fn drop(&mut self) {
        self.0.lock().leave(WorkerSlot::Closed);
        self.0.changed.notify_all();
    }
}

/// Puts the calling thread into SCHED_IDLE; threads it starts (sled's I/O pool) stay normal.
///
/// # Errors
/// The kernel's answer, for instance when a seccomp filter forbids the call.
pub(super) fn become_idle() -> io::Result<()> {
    set_policy(0, libc::SCHED_IDLE)
}

/// Whether this process may take a thread out of SCHED_IDLE; tries it with the calling one.
#[cfg(test)]
pub(super) fn may_leave_idle() -> bool {
    become_idle().is_ok() && set_policy(0, libc::SCHED_OTHER).is_ok()
}

/// The calling thread's class.
#[cfg(test)]
pub(super) fn current_class() -> Class {
    // SAFETY: no pointers; thread 0 is the calling one.
    match unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_IDLE => Class::Idle,
        _ => Class::Normal,
    }
}
