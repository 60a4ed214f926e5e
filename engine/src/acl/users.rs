//! All users of a node at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::password::PasswordHash;
use super::rule::{self, RuleError};
use super::user::{DEFAULT_USER, User};

/// Memory that all users together may take, bytes.
pub const USERS_BYTES_MAX: usize = 16 << 20;

/// Most rules that one request may have, and that a user may take when it is described.
pub const RULES_MAX: usize = 1024;

/// All users, by name. A change makes another value.
#[derive(Clone, Debug)]
pub struct Users {
    /// Grows with every change.
    version: u64,
    by_name: BTreeMap<Box<[u8]>, Arc<User>>,
    by_id: BTreeMap<u64, Arc<User>>,
    default_user: Arc<User>,
    next_id: u64,
}

/// Why users were not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsersError {
    /// The rule at that index cannot be applied.
    Rule(usize, RuleError),
    /// They would take more than [`USERS_BYTES_MAX`].
    TooLarge,
    /// More than [`RULES_MAX`] at once, or the user would have more.
    TooManyRules,
    /// The default user cannot be removed.
    DefaultUser,
    /// There is a user of that name.
    Duplicate,
    /// A name with spaces or NULs, or none.
    Name,
}

impl Default for Users {
    fn default() -> Users {
        Users::with_default(User::default_of(0))
    }
}

impl Users {
    fn with_default(user: User) -> Users {
        let default_user = Arc::new(user);
        let by_name = BTreeMap::from([(DEFAULT_USER.into(), Arc::clone(&default_user))]);
        let by_id = BTreeMap::from([(default_user.id(), Arc::clone(&default_user))]);
        Users {
            version: 1,
            by_name,
            by_id,
            default_user,
            next_id: 1,
        }
    }

    /// The default user alone, who has that password.
    #[must_use]
    pub fn with_password(password: PasswordHash) -> Users {
        let mut user = User::default_of(0);
        user.needs_no_password = false;
        user.passwords.push(password);
        Users::with_default(user)
    }

    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Who every connection is at first.
    #[must_use]
    pub fn default_user(&self) -> &Arc<User> {
        &self.default_user
    }

    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// The user of that id, as it is by now; `None` once it is gone.
    #[must_use]
    pub fn of_id(&self, id: u64) -> Option<&Arc<User>> {
        self.by_id.get(&id)
    }

    /// By name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// The user whom name and password belong to; takes as long when there is none of that name.
    #[must_use]
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        let password = PasswordHash::of(password)?;
        let user = self.get(name);
        let is_accepted = user.unwrap_or(&self.default_user).accepts(&password);
        user.filter(|_| is_accepted)
    }

    /// Changes a user by rules, all or none; makes it if it is not there.
    ///
    /// # Errors
    /// [`UsersError`]: nothing has changed.
    pub fn set<'a>(
        &mut self,
        name: &[u8],
        rules: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), UsersError> {
        if name.is_empty() || rule::has_spaces(name) {
            return Err(UsersError::Name);
        }
        let before = self.get(name).cloned();
        let mut user = match &before {
            Some(user) => User::clone(user),
            None => User::new(name, self.next_id),
        };
        // What it may grow by while rules are read.
        let taken = before.as_ref().map_or(0, |user| user.bytes());
        let room = USERS_BYTES_MAX.saturating_sub(self.bytes()) + taken;
        for (index, rule) in rules.enumerate() {
            if index >= RULES_MAX {
                return Err(UsersError::TooManyRules);
            }
            rule::apply(&mut user, rule).map_err(|error| UsersError::Rule(index, error))?;
            if index % 64 == 0 && user.bytes() > room {
                return Err(UsersError::TooLarge);
            }
        }
        if user.bytes() > room {
            return Err(UsersError::TooLarge);
        }
        if user.rules() > RULES_MAX {
            return Err(UsersError::TooManyRules);
        }
        if let Some(before) = before {
            user.note_losses(&before);
        }
        self.insert(user);
        Ok(())
    }

    fn insert(&mut self, user: User) {
        self.next_id = self.next_id.max(user.id() + 1);
        let user = Arc::new(user);
        if user.name() == DEFAULT_USER {
            self.default_user = Arc::clone(&user);
        }
        self.by_id.insert(user.id(), Arc::clone(&user));
        if let Some(before) = self.by_name.insert(user.name().into(), Arc::clone(&user))
            && before.id() != user.id()
        {
            self.by_id.remove(&before.id());
        }
        self.version += 1;
    }

    /// Adds a user that an ACL file begins.
    ///
    /// # Errors
    /// [`UsersError`].
    pub(super) fn add<'a>(
        &mut self,
        name: &[u8],
        rules: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), UsersError> {
        match self.by_name.contains_key(name) {
            true => Err(UsersError::Duplicate),
            false => self.set(name, rules),
        }
    }

    /// Nobody, not even the default user: where an ACL file begins.
    pub(super) fn nobody() -> Users {
        Users {
            by_name: BTreeMap::new(),
            by_id: BTreeMap::new(),
            ..Users::default()
        }
    }

    /// With the default user as it is where nobody has said anything, if there is none.
    pub(super) fn completed(mut self) -> Users {
        if !self.by_name.contains_key(DEFAULT_USER) {
            let id = self.next_id;
            self.insert(User::default_of(id));
        }
        self
    }

    /// Removes users and answers how many there were.
    ///
    /// # Errors
    /// [`UsersError::DefaultUser`]: none was removed.
    pub fn remove<'a>(
        &mut self,
        names: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<usize, UsersError> {
        if names.clone().any(|name| name == DEFAULT_USER) {
            return Err(UsersError::DefaultUser);
        }
        let mut removed = 0;
        for name in names {
            if let Some(user) = self.by_name.remove(name) {
                self.by_id.remove(&user.id());
                removed += 1;
            }
        }
        self.version += u64::from(removed > 0);
        Ok(removed)
    }

    /// These users instead of others: who has the name of one of those stays who it was.
    #[must_use]
    pub(super) fn in_place_of(self, others: &Users) -> Users {
        let mut users = Users {
            version: others.version + 1,
            next_id: others.next_id,
            ..Users::nobody()
        };
        for user in self.by_name.into_values() {
            let other = others.get(user.name());
            let id = other.map_or(users.next_id, |other| other.id());
            let mut user = User::clone(&user).with_id(id);
            if let Some(other) = other {
                user.note_losses(other);
            }
            users.insert(user);
        }
        users
    }

    /// Memory that they take, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.iter().map(|user| user.bytes()).sum()
    }
}
