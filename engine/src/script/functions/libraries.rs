//! The libraries of a node.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use super::{FunctionError, LOADED_BYTES_MAX, thread};
use crate::command::error::Quoted;
use crate::newest::{Newest, Versioned};
use crate::script::Flags;

/// Bytes of all libraries of a node.
pub const BYTES_MAX: usize = 8 << 20;

/// What a library and a function count beside their texts.
pub const OVERHEAD_BYTES: usize = 256;

/// A function as FUNCTION LIST tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    pub name: Box<[u8]>,
    pub description: Option<Box<[u8]>>,
    pub flags: Flags,
}

/// A library that was loaded once, at least in a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionLibrary {
    name: Box<[u8]>,
    text: Box<[u8]>,
    functions: Vec<FunctionInfo>,
    /// Memory of a state that it takes once it is loaded.
    loaded_bytes: usize,
}

impl FunctionLibrary {
    #[must_use]
    pub(super) fn new(
        name: Box<[u8]>,
        text: Box<[u8]>,
        functions: Vec<FunctionInfo>,
        loaded_bytes: usize,
    ) -> Self {
        FunctionLibrary {
            name,
            text,
            functions,
            loaded_bytes,
        }
    }

    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// As FUNCTION LOAD has brought it, its first line included.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    #[must_use]
    pub fn functions(&self) -> &[FunctionInfo] {
        &self.functions
    }

    fn held_bytes(&self) -> usize {
        let of_function = |function: &FunctionInfo| {
            let description = function.description.as_ref().map_or(0, |text| text.len());
            OVERHEAD_BYTES + function.name.len() + description
        };
        let functions = self.functions.iter().map(of_function).sum::<usize>();
        OVERHEAD_BYTES + self.name.len() + self.text.len() + functions
    }
}

/// A function's name as it is looked for.
pub(super) fn folded(name: &[u8]) -> Cow<'_, [u8]> {
    match name.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

/// What becomes of a library of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clash {
    Replaced,
    /// It was to be loaded.
    Refused,
    /// It was to be restored.
    RefusedRestored,
}

/// All libraries at one time.
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    version: u64,
    by_name: BTreeMap<Box<[u8]>, Arc<FunctionLibrary>>,
    /// By the names of functions, which are the same in any case.
    by_function: HashMap<Box<[u8]>, Arc<FunctionLibrary>, ahash::RandomState>,
    bytes: usize,
}

impl Libraries {
    /// Other libraries have another one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// In the order of their names.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Arc<FunctionLibrary>> {
        self.by_name.values()
    }

    /// How many libraries and functions there are.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.by_name.len(), self.by_function.len())
    }

    /// Memory that they take.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Looks whether a state has room for all of them.
    ///
    /// # Errors
    /// [`FunctionError::TooLarge`].
    pub(super) fn check_loaded(&self) -> Result<(), FunctionError> {
        let loaded = self.by_name.values().map(|library| library.loaded_bytes);
        match loaded.sum::<usize>() {
            ..=LOADED_BYTES_MAX => Ok(()),
            _ => Err(FunctionError::TooLarge(LOADED_BYTES_MAX)),
        }
    }

    /// The library that has registered a function.
    #[must_use]
    pub fn of_function(&self, name: &[u8]) -> Option<&Arc<FunctionLibrary>> {
        self.by_function.get(&*folded(name))
    }

    /// The text of the library of a name.
    #[must_use]
    pub(super) fn text_of(&self, name: &[u8]) -> Option<&[u8]> {
        self.by_name.get(name).map(|library| library.text())
    }

    /// Whether it is this very library.
    #[must_use]
    pub fn has(&self, library: &Arc<FunctionLibrary>) -> bool {
        let found = self.by_name.get(&library.name);
        found.is_some_and(|found| Arc::ptr_eq(found, library))
    }

    /// Puts a library with others.
    ///
    /// # Errors
    /// A library or a function of that name is there, or there is no room; it may be half done.
    pub(super) fn add(
        &mut self,
        library: Arc<FunctionLibrary>,
        clash: Clash,
    ) -> Result<(), FunctionError> {
        if self.by_name.contains_key(&library.name) {
            let name = Quoted::new(&library.name);
            match clash {
                Clash::Replaced => self.remove(&library.name),
                Clash::Refused => return Err(FunctionError::LibraryExists(name)),
                Clash::RefusedRestored => return Err(FunctionError::RestoredExists(name)),
            };
        }
        for function in &library.functions {
            if self.of_function(&function.name).is_some() {
                return Err(FunctionError::FunctionExists(Quoted::new(&function.name)));
            }
        }
        self.bytes += library.held_bytes();
        if self.bytes > BYTES_MAX {
            return Err(FunctionError::TooLarge(BYTES_MAX));
        }
        for function in &library.functions {
            let name = folded(&function.name).into();
            self.by_function.insert(name, Arc::clone(&library));
        }
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes a library; false if there is none of that name.
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.by_name.remove(name) else {
            return false;
        };
        self.bytes -= library.held_bytes();
        for function in &library.functions {
            self.by_function.remove(&*folded(&function.name));
        }
        true
    }
}

impl Versioned for Libraries {
    fn version(&self) -> u64 {
        self.version
    }
}

/// The newest libraries, and who changes them.
#[derive(Debug, Default)]
pub struct SharedLibraries {
    newest: Newest<Libraries>,
    queue: Option<flume::Sender<thread::Asked>>,
}

impl SharedLibraries {
    pub(super) fn new(mut libraries: Libraries, queue: flume::Sender<thread::Asked>) -> Self {
        // Other than what shards begin with.
        libraries.version = 1;
        SharedLibraries {
            newest: Newest::new(libraries),
            queue: Some(queue),
        }
    }

    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.newest.version()
    }

    #[must_use]
    pub fn newest(&self) -> Arc<Libraries> {
        self.newest.get()
    }

    /// Shows others from now on.
    pub(super) fn show(&self, mut libraries: Libraries) {
        let Ok(()) = self.newest.change(|newest| {
            libraries.version = newest.version + 1;
            Ok::<_, Infallible>((libraries, ()))
        });
    }

    /// Has the thread change them.
    ///
    /// # Errors
    /// [`FunctionError::Busy`]: too many changes wait, or the node stops.
    pub fn ask(&self, asked: thread::Asked) -> Result<(), FunctionError> {
        let queue = self.queue.as_ref().ok_or(FunctionError::Busy)?;
        queue.try_send(asked).map_err(|_| FunctionError::Busy)
    }
}
