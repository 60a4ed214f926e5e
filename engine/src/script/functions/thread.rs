//! What changes libraries: a thread, so that no shard waits for Lua or for the disk. What it has answered is durable, and
//! every shard knows it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ephesus_wire::resp::reply;

use super::libraries::Clash;
use super::repeated::Repeated;
use super::{FunctionError, LOAD_TIME_MAX, Libraries, Policy, SharedLibraries};
use super::{header, payload, trial};
use crate::by_shard::ByShard;
use crate::command::error::{ClientError, Quoted};
use crate::shard::mesh::{Message, Origin, Peer};

/// Commands that wait; those beyond are refused.
const QUEUED_MAX: usize = 4;

/// How long all libraries of one FUNCTION RESTORE may take together.
const RESTORE_TIME_MAX: Duration = LOAD_TIME_MAX.saturating_mul(8);

/// A change that a client asks for.
#[derive(Debug)]
pub struct Asked {
    /// Where the reply goes.
    pub origin: Origin,
    /// It came by the direct port of its shard.
    pub is_direct: bool,
    pub change: Change,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// A library's text, and whether it may take another's place.
    Load(Box<[u8]>, bool),
    Delete(Box<[u8]>),
    Flush,
    Restore(Box<[u8]>, Policy),
}

/// The thread, as the node has it.
#[derive(Debug)]
pub struct FunctionsThread {
    /// Nothing is ever sent: the thread ends with it.
    running: flume::Sender<()>,
    thread: JoinHandle<()>,
}

impl FunctionsThread {
    /// Starts the thread over the libraries of a data directory, and answers these as it shares them with the shards.
    ///
    /// # Errors
    /// No thread.
    pub fn start(
        dir: PathBuf,
        libraries: Libraries,
        peers: ByShard<Peer>,
    ) -> io::Result<(FunctionsThread, Arc<SharedLibraries>)> {
        let (queue, asked) = flume::bounded::<Asked>(QUEUED_MAX);
        let (running, is_over) = flume::bounded::<()>(0);
        let shared = Arc::new(SharedLibraries::new(libraries, queue));
        let libraries = Arc::clone(&shared);
        let next = move || {
            let next = flume::Selector::new().recv(&asked, Result::ok);
            next.recv(&is_over, |_| None).wait()
        };
        let thread = std::thread::Builder::new()
            .name("functions".to_owned())
            .spawn(move || {
                let mut repeated = Repeated::default();
                while let Some(asked) = next() {
                    let (origin, mut bytes) = (asked.origin, Vec::new());
                    match carry_out(&libraries, &dir, &mut repeated, &asked) {
                        Ok(Some(name)) => reply::bulk(&mut bytes, &name),
                        Ok(None) => bytes.extend_from_slice(reply::OK),
                        Err(error) => error.write(&mut bytes),
                    }
                    peers[origin.shard].send(Message::Reply { origin, bytes });
                }
            })?;
        Ok((FunctionsThread { running, thread }, shared))
    }

    /// Ends the thread; commands that wait get no reply.
    pub fn stop(self) {
        drop(self.running);
        if self.thread.join().is_err() {
            tracing::error!("the thread of functions ended in a panic");
        }
    }
}

/// Has a change happen; answers the name of a library that was loaded.
fn carry_out(
    shared: &SharedLibraries,
    dir: &Path,
    repeated: &mut Repeated,
    asked: &Asked,
) -> Result<Option<Box<[u8]>>, ClientError> {
    let newest = shared.newest();
    let shard = asked.is_direct.then_some(asked.origin.shard);
    match &asked.change {
        Change::Load(text, _) => {
            let name = header::name_of(text)?;
            if repeated.is_done(shard, &newest, &name, Some(text)) {
                return Ok(Some(name));
            }
        }
        Change::Delete(name) if repeated.is_done(shard, &newest, name, None) => return Ok(None),
        _ => {}
    }
    let is_done = |name: &[u8], text: &[u8]| repeated.is_done(shard, &newest, name, Some(text));
    let Changed { libraries, names } = changed(&newest, &asked.change, is_done)?;
    if !names.is_empty() && !matches!(asked.change, Change::Delete(_)) {
        libraries.check_loaded()?;
    }
    libraries.save(dir).map_err(|error| {
        tracing::error!(%error, "the libraries were not written");
        FunctionError::NotSaved
    })?;
    shared.show(libraries);
    if asked.change == Change::Flush {
        repeated.clear();
    }
    names.iter().for_each(|name| repeated.note(name, shard));
    Ok(match asked.change {
        Change::Load(..) => names.into_iter().next(),
        _ => None,
    })
}

/// The libraries after a change, and the names of those that have changed.
struct Changed {
    libraries: Libraries,
    names: Vec<Box<[u8]>>,
}

/// The libraries that a change makes of others; `is_done` says of a library that is restored whether it is there, and
/// that is as it should be.
fn changed(
    newest: &Libraries,
    change: &Change,
    mut is_done: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<Changed, ClientError> {
    let mut libraries = newest.clone();
    let mut names = Vec::new();
    match change {
        Change::Load(text, replaces) => {
            let name = header::name_of(text)?;
            if !replaces && libraries.text_of(&name).is_some() {
                return Err(FunctionError::LibraryExists(Quoted::new(&name)).into());
            }
            let library = trial::library_of(name.clone(), text, LOAD_TIME_MAX)?;
            libraries.add(Arc::new(library), Clash::Replaced)?;
            names.push(name);
        }
        Change::Delete(name) => {
            if !libraries.remove(name) {
                return Err(FunctionError::NoLibrary.into());
            }
            names.push(name.clone());
        }
        Change::Flush => libraries = Libraries::default(),
        Change::Restore(payload, policy) => {
            let restored = trial::libraries_of(&payload::read(payload)?, RESTORE_TIME_MAX)?;
            match policy {
                Policy::Flush => libraries = Libraries::default(),
                Policy::Append => {}
                // All of them first: a function may go from one library to another.
                Policy::Replace => restored.all().for_each(|library| {
                    libraries.remove(library.name());
                }),
            }
            for library in restored.all() {
                if *policy == Policy::Append && is_done(library.name(), library.text()) {
                    continue;
                }
                libraries.add(Arc::clone(library), Clash::RefusedRestored)?;
                names.push(library.name().into());
            }
        }
    }
    Ok(Changed { libraries, names })
}
