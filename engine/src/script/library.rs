//! The scripts that a node knows, whichever of its shards was told of them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::command::error::ClientError;

/// Bytes of all scripts of a node.
const BYTES_MAX: usize = 32 << 20;

/// What one counts beside its text.
const OVERHEAD_BYTES: usize = 256;

/// Longest script.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// SHA-1 of a script's text.
pub type Sha = [u8; 20];

/// Shards look here when they are asked for a script for the first time, and never on the way of other commands.
#[derive(Debug, Default)]
pub struct Library {
    scripts: Mutex<Scripts>,
    /// How often all scripts were forgotten.
    flushes: AtomicU64,
}

#[derive(Debug, Default)]
struct Scripts {
    by_sha: HashMap<Sha, Known, ahash::RandomState>,
    /// Those that EVAL has brought, the oldest first: the first to go.
    passing: VecDeque<Sha>,
    bytes: usize,
}

#[derive(Debug)]
struct Known {
    body: Arc<[u8]>,
    is_loaded: bool,
}

impl Library {
    fn lock(&self) -> MutexGuard<'_, Scripts> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often [`Library::flush`] was called: what shards have compiled before is void.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Keeps a script. One that was loaded stays until a flush; others go when there is no room, or are not kept.
    ///
    /// # Errors
    /// [`ClientError::ScriptsTooLarge`]: it is to be loaded, and those that were take all room.
    pub fn add(&self, sha: Sha, body: &[u8], is_loaded: bool) -> Result<(), ClientError> {
        let mut guard = self.lock();
        let scripts = &mut *guard;
        if let Some(known) = scripts.by_sha.get_mut(&sha) {
            if is_loaded && !known.is_loaded {
                known.is_loaded = true;
                scripts.passing.retain(|other| *other != sha);
            }
            return Ok(());
        }
        let bytes = body.len() + OVERHEAD_BYTES;
        while scripts.bytes + bytes > BYTES_MAX {
            let oldest = scripts.passing.pop_front();
            let Some(oldest) = oldest.and_then(|sha| scripts.by_sha.remove(&sha)) else {
                return match is_loaded {
                    true => Err(ClientError::ScriptsTooLarge(BYTES_MAX)),
                    false => Ok(()),
                };
            };
            scripts.bytes -= oldest.body.len() + OVERHEAD_BYTES;
        }
        scripts.bytes += bytes;
        if !is_loaded {
            scripts.passing.push_back(sha);
        }
        let body = body.into();
        scripts.by_sha.insert(sha, Known { body, is_loaded });
        Ok(())
    }

    #[must_use]
    pub fn get(&self, sha: &Sha) -> Option<Arc<[u8]>> {
        let scripts = self.lock();
        scripts.by_sha.get(sha).map(|known| Arc::clone(&known.body))
    }

    #[must_use]
    pub fn has(&self, sha: &Sha) -> bool {
        self.lock().by_sha.contains_key(sha)
    }

    /// Forgets all scripts.
    pub fn flush(&self) {
        let forgotten = std::mem::take(&mut *self.lock());
        self.flushes.fetch_add(1, Ordering::Release);
        // That takes long where there are many, and shards wait for the lock.
        drop(forgotten);
    }

    /// How many there are, and their bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let scripts = self.lock();
        (scripts.by_sha.len(), scripts.bytes)
    }
}
