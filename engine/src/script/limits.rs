//! How much a script may take, and that it has taken too much.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::cjson::JsonSettings;
use super::random::Random;

/// Memory of one state: what scripts compiled to, and what the one that runs has allocated.
pub const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Instructions between two looks at the clock: few, as one of them may copy a string of megabytes.
pub const INSTRUCTIONS_BETWEEN_LOOKS: u32 = 128;

/// Work of functions of Rust between two looks at the clock: bytes written or gone over, elements, steps of a matcher.
const WORK_BETWEEN_LOOKS: usize = 16 << 10;

/// Bytes of the thread's stack that scripts may have taken when another coroutine is resumed. Each takes at most what
/// Lua's 200 nested C calls do.
const STACK_BYTES_MAX: usize = 256 << 10;

/// Lines that one script may write into the log.
const LOG_LINES_MAX: u32 = 100;

/// Coroutines that may have resumed each other.
const COROUTINES_MAX: u32 = 100;

/// Why a script was ended; nothing of it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Time,
    Memory,
    /// Its effects do not fit one record.
    Effects,
    /// There is no room for the reply of one of its commands now.
    Room,
}

/// What the functions of one state look at.
#[derive(Debug)]
pub struct Limits {
    deadline: Cell<Option<Instant>>,
    stopped: Cell<Option<Stop>>,
    /// Work that may be done before the next look.
    work: Cell<usize>,
    /// Where the stack was when the script began.
    stack: Cell<usize>,
    coroutines: Cell<u32>,
    log_lines: Cell<u32>,
    /// Whether replies are given to the script as RESP3 has them.
    pub is_resp3: Cell<bool>,
    pub random: Cell<Random>,
    pub json: RefCell<JsonSettings>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            deadline: Cell::new(None),
            stopped: Cell::new(None),
            work: Cell::new(0),
            stack: Cell::new(0),
            coroutines: Cell::new(0),
            log_lines: Cell::new(0),
            is_resp3: Cell::new(false),
            random: Cell::new(Random::seeded(0)),
            json: RefCell::default(),
        }
    }
}

impl Limits {
    /// A script begins.
    pub fn begin(&self, time_limit: Duration) {
        self.deadline.set(now().checked_add(time_limit));
        self.stopped.set(None);
        self.work.set(WORK_BETWEEN_LOOKS);
        self.stack.set(stack_pointer());
        self.coroutines.set(0);
        self.log_lines.set(0);
        self.is_resp3.set(false);
        self.random.set(Random::seeded(0));
        *self.json.borrow_mut() = JsonSettings::default();
    }

    /// Why the script has to end, if it has to.
    #[must_use]
    pub fn stopped(&self) -> Option<Stop> {
        self.stopped.get()
    }

    /// Has the script end.
    #[must_use]
    pub fn stop(&self, why: Stop) -> mlua::Error {
        self.stopped.set(Some(why));
        mlua::Error::runtime("the script was stopped")
    }

    /// Whether the script has to end, or has taken its time by now.
    #[must_use]
    pub fn is_over(&self) -> bool {
        if self.stopped.get().is_some() {
            return true;
        }
        let is_late = self
            .deadline
            .get()
            .is_some_and(|deadline| now() >= deadline);
        if is_late {
            self.stopped.set(Some(Stop::Time));
        }
        is_late
    }

    /// Ends the script if its time is over.
    ///
    /// # Errors
    /// It is.
    pub fn look(&self) -> mlua::Result<()> {
        if self.is_over() {
            return Err(self.stop(self.stopped.get().unwrap_or(Stop::Time)));
        }
        Ok(())
    }

    /// Counts work that no instruction of the script stands for, and ends the script if its time is over.
    ///
    /// # Errors
    /// It is.
    pub fn work(&self, units: usize) -> mlua::Result<()> {
        match self.work.get().checked_sub(units) {
            Some(left) => self.work.set(left),
            None => {
                self.work.set(WORK_BETWEEN_LOOKS);
                self.look()?;
            }
        }
        Ok(())
    }

    /// Counts what is about to be written behind so many bytes, and ends the script if together they are too many.
    ///
    /// # Errors
    /// They are, or its time is over.
    pub fn write(&self, written: usize, more: usize) -> mlua::Result<()> {
        self.check_bytes(written.saturating_add(more))?;
        self.work(more.saturating_add(1))
    }

    /// Ends the script if so many bytes at once are too many.
    ///
    /// # Errors
    /// They are.
    pub fn check_bytes(&self, bytes: usize) -> mlua::Result<()> {
        if bytes > MEMORY_BYTES_MAX {
            return Err(self.stop(Stop::Memory));
        }
        Ok(())
    }

    /// Whether one more coroutine may be resumed; [`Limits::leave`] once it yields or ends. Each has a count of
    /// instructions of its own, so the clock is looked at here.
    ///
    /// # Errors
    /// The script's time is over.
    pub fn enter(&self) -> mlua::Result<bool> {
        self.look()?;
        let count = self.coroutines.get();
        let used = self.stack.get().saturating_sub(stack_pointer());
        if count >= COROUTINES_MAX || used > STACK_BYTES_MAX {
            return Ok(false);
        }
        self.coroutines.set(count + 1);
        Ok(true)
    }

    /// Whether one more line may be written into the log.
    #[must_use]
    pub fn may_log(&self) -> bool {
        let lines = self.log_lines.get();
        self.log_lines.set(lines.saturating_add(1));
        lines < LOG_LINES_MAX
    }

    pub fn leave(&self) {
        self.coroutines.set(self.coroutines.get().saturating_sub(1));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a script that takes too long is stopped, which it and its client see as an error, and nothing else"
)]
fn now() -> Instant {
    Instant::now()
}

/// About where the stack of this thread ends by now; it grows downwards.
#[inline(never)]
fn stack_pointer() -> usize {
    let here = 0u8;
    (&raw const here).addr()
}
