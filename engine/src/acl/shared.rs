//! The users as all shards of a node share them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::log::{Attempt, DeniedLog, ENTRIES_MAX_DEFAULT};
use super::thread::Asked;
use super::users::Users;
use crate::newest::{Newest, Versioned};

/// The newest users, and what was refused to them.
#[derive(Debug)]
pub struct SharedUsers {
    users: Newest<Users>,
    denied: Mutex<DeniedLog>,
    file: Option<AclFile>,
}

/// The file that ACL LOAD and ACL SAVE mean.
#[derive(Debug)]
pub struct AclFile {
    pub path: PathBuf,
    /// Who reads and writes it.
    pub queue: flume::Sender<Asked>,
}

impl Versioned for Users {
    fn version(&self) -> u64 {
        Users::version(self)
    }
}

impl Default for SharedUsers {
    fn default() -> SharedUsers {
        SharedUsers::new(Users::default(), None)
    }
}

impl SharedUsers {
    #[must_use]
    pub fn new(users: Users, file: Option<AclFile>) -> SharedUsers {
        SharedUsers {
            users: Newest::new(users),
            denied: Mutex::default(),
            file,
        }
    }

    /// Of the newest users.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.users.version()
    }

    /// The newest users.
    #[must_use]
    pub fn newest(&self) -> Arc<Users> {
        self.users.get()
    }

    /// Makes other users of the newest ones; from then on no shard executes a command by the earlier ones. Those that sleep
    /// have to be woken.
    ///
    /// # Errors
    /// Of `change`: nothing has changed.
    pub fn change<T, E>(&self, change: impl FnOnce(&mut Users) -> Result<T, E>) -> Result<T, E> {
        self.users.change(|newest| {
            let mut users = newest.clone();
            let changed = change(&mut users)?;
            Ok((users, changed))
        })
    }

    /// Puts users of a file in the place of all others.
    pub fn replace(&self, users: Users) {
        let replaced: Result<(), ()> = self.change(|newest| {
            *newest = users.in_place_of(newest);
            Ok(())
        });
        debug_assert!(replaced.is_ok(), "nothing fails");
    }

    /// The file, and who reads and writes it.
    #[must_use]
    pub fn file(&self) -> Option<&AclFile> {
        self.file.as_ref()
    }

    /// What CONFIG GET says of it.
    #[must_use]
    pub fn file_path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| &*file.path)
    }

    /// Notes what was refused at `now_ms`.
    pub fn note_denied(&self, attempt: Attempt<'_>, now_ms: u64) {
        self.denied().add(attempt, now_ms, ENTRIES_MAX_DEFAULT);
    }

    /// What was refused.
    pub fn denied(&self) -> MutexGuard<'_, DeniedLog> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
