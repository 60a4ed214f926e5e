//! Functions: libraries of Lua that a node keeps, and that FCALL calls by name.
//!
//! ```text
//! FUNCTION LOAD ─> thread: header, trial, file, SharedLibraries ─> reply
//! FCALL ─> Functions::find ─> Script          its library is loaded here when it is needed first
//! ```
//!
//! Libraries are those of one node, as in Redis Cluster, and all of its shards know them. One thread changes them: it loads
//! what is new into a state of its own, where it can harm nobody, has it durable, and only then shows it. Every shard has
//! its own state, beside that of scripts: what a library keeps in its local variables is one shard's, and is gone when a
//! function of it was stopped.

mod error;
mod file;
mod header;
mod libraries;
mod list;
mod payload;
mod repeated;
mod thread;
mod trial;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::limits::{MEMORY_BYTES_MAX, Stop};
use super::state::{NotLoaded, Purpose, Registered, State};
use super::{Host, NotDone, RunLimits, Script, new_state};
use crate::command::error::ClientError;
pub use error::FunctionError;
pub use file::{FunctionsFileError, check};
use libraries::folded;
pub use libraries::{BYTES_MAX, FunctionLibrary, Libraries, OVERHEAD_BYTES, SharedLibraries};
pub use list::{write_list, write_stats};
pub use payload::{Policy, write as dump};
pub use thread::{Asked, Change, FunctionsThread};

/// How long a library may take to register its functions, as in Redis.
const LOAD_TIME_MAX: Duration = Duration::from_millis(500);

/// Memory of a state that all libraries of a node together may take once they are loaded: as much is left for what they
/// keep, until a state is given up for another one.
const LOADED_BYTES_MAX: usize = MEMORY_BYTES_MAX / 4;

/// The functions of one shard.
#[derive(Default)]
pub(super) struct Functions {
    state: Option<Box<State>>,
    libraries: Arc<Libraries>,
    /// What was loaded here.
    loaded: Vec<Arc<FunctionLibrary>>,
    /// By their names as they are looked for.
    by_name: HashMap<Box<[u8]>, Rc<Script>, ahash::RandomState>,
}

impl Functions {
    /// Forgets what has changed.
    fn review(&mut self, shared: &SharedLibraries) {
        if self.libraries.version() == shared.version() {
            return;
        }
        self.libraries = shared.newest();
        let (newest, by_name) = (&self.libraries, &mut self.by_name);
        self.loaded.retain(|library| {
            let stays = newest.has(library);
            if !stays {
                library.functions().iter().for_each(|function| {
                    by_name.remove(&*folded(&function.name));
                });
            }
            stays
        });
        if self.loaded.is_empty() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.by_name.clear();
        self.loaded.clear();
        self.state = None;
    }

    /// The function of a name.
    ///
    /// # Errors
    /// There is none, or its library cannot be loaded.
    pub(super) fn find(
        &mut self,
        shared: &SharedLibraries,
        name: &[u8],
        time_max: Duration,
    ) -> Result<Rc<Script>, ClientError> {
        self.review(shared);
        let name = &*folded(name);
        if let Some(script) = self.by_name.get(name) {
            return Ok(Rc::clone(script));
        }
        let library = self.libraries.of_function(name).map(Arc::clone);
        let library = library.ok_or(FunctionError::NoFunction)?;
        self.load(library, time_max)?;
        let script = self.by_name.get(name).map(Rc::clone);
        Ok(script.ok_or(FunctionError::NoFunction)?)
    }

    fn load(
        &mut self,
        library: Arc<FunctionLibrary>,
        time_max: Duration,
    ) -> Result<(), ClientError> {
        let time_max = time_max.min(LOAD_TIME_MAX);
        let mut outcome = self.loaded_here(&library, time_max);
        // Others may have the memory.
        if matches!(outcome, Err(NotLoaded::Stopped(Stop::Memory))) && !self.loaded.is_empty() {
            self.forget();
            outcome = self.loaded_here(&library, time_max);
        }
        let registered = match outcome {
            Ok(registered) => registered,
            Err(why) => {
                self.forget();
                return Err(not_loaded(why));
            }
        };
        for function in registered {
            let script = Script {
                name: String::from_utf8_lossy(&function.name).into(),
                flags: function.flags,
                function: function.function,
                is_of_library: true,
            };
            self.by_name
                .insert(folded(&function.name).into(), Rc::new(script));
        }
        self.loaded.push(library);
        Ok(())
    }

    fn loaded_here(
        &mut self,
        library: &FunctionLibrary,
        time_max: Duration,
    ) -> Result<Vec<Registered>, NotLoaded> {
        let state = match &mut self.state {
            Some(state) => state,
            none => none.insert(
                new_state(Purpose::Functions).map_err(|_| NotLoaded::Stopped(Stop::Memory))?,
            ),
        };
        state.load(header::code_of(library.text()), time_max)
    }

    /// Carries out a function, as [`super::Scripts::run`] does.
    pub(super) fn run(
        &mut self,
        script: &Script,
        given: (&[&[u8]], &[&[u8]]),
        host: &mut dyn Host,
        limits: RunLimits,
        out: &mut Vec<u8>,
    ) -> Result<(), NotDone> {
        let Some(state) = &mut self.state else {
            return Err(NotDone::Stopped(Stop::Memory));
        };
        let outcome = state.run(script, given, host, limits, out);
        let is_broken = matches!(outcome, Err(NotDone::Stopped(_)));
        if is_broken || !state.settle() {
            self.forget();
        }
        outcome
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.memory_bytes())
    }
}

fn not_loaded(why: NotLoaded) -> ClientError {
    match why {
        NotLoaded::Compiling(text) => FunctionError::Compiling(text.into()).into(),
        NotLoaded::Registering(text) => FunctionError::Registering(text.into()).into(),
        NotLoaded::Stopped(Stop::Time) => FunctionError::LoadTime.into(),
        NotLoaded::Stopped(_) => ClientError::ScriptMemory(MEMORY_BYTES_MAX),
    }
}

#[cfg(test)]
mod tests;
