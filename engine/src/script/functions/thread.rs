//! What changes libraries: a thread, so that no shard waits for Lua or for the disk. What it has answered is durable, and
//! every shard knows it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ephesus_wire::resp::reply;

use super::libraries::Clash;
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
    pub change: Change,
}

#[derive(Debug)]
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
                while let Some(Asked { origin, change }) = next() {
                    let mut bytes = Vec::new();
                    match carry_out(&libraries, &dir, &change) {
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
    change: &Change,
) -> Result<Option<Box<[u8]>>, ClientError> {
    let (libraries, name) = changed(&shared.newest(), change)?;
    libraries.save(dir).map_err(|error| {
        tracing::error!(%error, "the libraries were not written");
        FunctionError::NotSaved
    })?;
    shared.show(libraries);
    Ok(name)
}

/// The libraries that a change makes of others.
fn changed(
    newest: &Libraries,
    change: &Change,
) -> Result<(Libraries, Option<Box<[u8]>>), ClientError> {
    let mut libraries = newest.clone();
    match change {
        Change::Load(text, replaces) => {
            let name = header::name_of(text)?;
            if !replaces && libraries.is_named(&name) {
                return Err(FunctionError::LibraryExists(Quoted::new(&name)).into());
            }
            let library = trial::library_of(name.clone(), text, LOAD_TIME_MAX)?;
            libraries.add(Arc::new(library), Clash::Replaced)?;
            return Ok((libraries, Some(name)));
        }
        Change::Delete(name) => {
            if !libraries.remove(name) {
                return Err(FunctionError::NoLibrary.into());
            }
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
                libraries.add(Arc::clone(library), Clash::RefusedRestored)?;
            }
        }
    }
    Ok((libraries, None))
}
