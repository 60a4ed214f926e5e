//! Who a connection is.

use std::sync::Arc;

use super::user::{DEFAULT_USER, User};
use super::users::Users;

/// Who a connection is, by the newest users that it was looked up in. A new one is looked up with its first command.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    user: Option<Arc<User>>,
    /// Version of those users; 0: none yet.
    version: u64,
    /// The version at which it may do everything; 0: each of its commands is looked at.
    free_at: u64,
    is_authenticated: bool,
}

impl Identity {
    /// Whether nothing has to be asked while the users have that version.
    #[inline]
    #[must_use]
    pub fn may_do_everything_at(&self, version: u64) -> bool {
        self.free_at == version
    }

    /// Whether it has said a password, or needed none when it was first looked up.
    #[inline]
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Whether a password is to be said before anything else.
    #[must_use]
    pub fn needs_password(&self, users: &Users) -> bool {
        !self.is_authenticated && !users.default_user().is_open()
    }

    /// Follows the users; false if its own is gone.
    #[must_use]
    pub fn follow(&mut self, users: &Users) -> bool {
        if self.version == users.version() {
            return true;
        }
        let Some(user) = &self.user else {
            self.begin(users);
            return true;
        };
        let found = users.get(user.name());
        let found = found.filter(|found| found.id() == user.id());
        let found = found.map(Arc::clone);
        let is_there = found.is_some();
        if is_there {
            self.user = found;
            self.note(users);
        }
        is_there
    }

    /// Becomes what a new connection is.
    pub fn begin(&mut self, users: &Users) {
        let user = users.default_user();
        self.is_authenticated = user.is_open();
        self.user = Some(Arc::clone(user));
        self.note(users);
    }

    /// Becomes a user of those.
    pub fn become_user(&mut self, user: &Arc<User>, users: &Users) {
        self.is_authenticated = true;
        self.user = Some(Arc::clone(user));
        self.note(users);
    }

    fn note(&mut self, users: &Users) {
        self.version = users.version();
        let user = self.user.as_deref();
        let is_free = user.is_some_and(|user| user.permissions.are_unlimited());
        self.free_at = match is_free && !self.needs_password(users) {
            true => self.version,
            false => 0,
        };
    }

    #[must_use]
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.user.as_ref().map_or(DEFAULT_USER, |user| user.name())
    }
}
