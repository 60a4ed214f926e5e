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
    owes_password: bool,
}

/// What has become of a connection's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    Here,
    /// It may not use all channels that it could.
    WithFewerChannels,
    Gone,
}

impl Identity {
    /// Whether nothing has to be asked while the users have that version.
    #[inline]
    #[must_use]
    pub fn may_do_everything_at(&self, version: u64) -> bool {
        self.free_at == version
    }

    /// Whether a password is to be said before anything else, by the users that it was looked up in.
    #[inline]
    #[must_use]
    pub fn owes_password(&self) -> bool {
        self.owes_password
    }

    /// Follows the users.
    #[must_use]
    pub fn follow(&mut self, users: &Users) -> Followed {
        if self.version == users.version() {
            return Followed::Here;
        }
        let Some(user) = &self.user else {
            self.begin(users);
            return Followed::Here;
        };
        let found = users.get(user.name());
        let Some(found) = found.filter(|found| found.id() == user.id()) else {
            return Followed::Gone;
        };
        let followed = match found.channel_losses() == user.channel_losses() {
            true => Followed::Here,
            false => Followed::WithFewerChannels,
        };
        self.user = Some(Arc::clone(found));
        self.note(users);
        followed
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
        self.owes_password = !self.is_authenticated && !users.default_user().is_open();
        self.free_at = match is_free && !self.owes_password {
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
