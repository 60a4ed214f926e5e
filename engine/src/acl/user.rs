//! One user: how it proves who it is, and what it may do.

use super::denied::Denied;
use super::password::PasswordHash;
use super::permissions::Permissions;
use crate::command::parse::ArgList;
use crate::command::spec::Spec;

/// The user that every connection is at first.
pub const DEFAULT_USER: &[u8] = b"default";

/// A user; never changed once connections are it.
#[derive(Clone, Debug)]
pub struct User {
    name: Box<[u8]>,
    /// Tells it from an earlier user of that name.
    id: u64,
    /// Whether anybody can become it; those who are it already stay so.
    pub is_on: bool,
    /// Whether any password will do.
    pub needs_no_password: bool,
    pub passwords: Vec<PasswordHash>,
    pub permissions: Permissions,
    /// How often it was left with fewer channels than before.
    channel_losses: u64,
}

impl User {
    /// A user that is off, has no password, and may do nothing.
    #[must_use]
    pub fn new(name: &[u8], id: u64) -> User {
        User {
            name: name.into(),
            id,
            is_on: false,
            needs_no_password: false,
            passwords: Vec::new(),
            permissions: Permissions::new(false),
            channel_losses: 0,
        }
    }

    /// The default user where nobody has said anything: it needs no password and may do everything.
    #[must_use]
    pub fn default_of(id: u64) -> User {
        User {
            is_on: true,
            needs_no_password: true,
            permissions: Permissions::new(true),
            ..User::new(DEFAULT_USER, id)
        }
    }

    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The same user under another id.
    #[must_use]
    pub fn with_id(self, id: u64) -> User {
        User { id, ..self }
    }

    /// Who had subscribed as this user as it was, where this differs, may have subscribed to what it may not any more.
    #[must_use]
    pub fn channel_losses(&self) -> u64 {
        self.channel_losses
    }

    /// Counts if it has not all channels that it had.
    pub(super) fn note_losses(&mut self, before: &User) {
        let keeps = self.permissions.have_channels_of(&before.permissions);
        self.channel_losses = before.channel_losses + u64::from(!keeps);
    }

    /// Whether a connection is this user without having said a password: the default user's are.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Whether that password makes somebody this user; takes the same time whatever is wrong with it.
    #[must_use]
    pub fn accepts(&self, password: &PasswordHash) -> bool {
        let is_known = password.is_among(&self.passwords);
        self.is_on && (self.needs_no_password || is_known)
    }

    /// Looks at a command with its keys and channels; takes what comparing them takes from `steps`, of which there are
    /// [`STEPS_MAX`](super::permissions::STEPS_MAX) for a command.
    ///
    /// # Errors
    /// What of it is not allowed.
    pub fn check<A: ArgList + ?Sized>(
        &self,
        spec: &'static Spec,
        args: &A,
        steps: &mut usize,
    ) -> Result<(), Denied> {
        match self.permissions.are_unlimited() {
            true => Ok(()),
            false => self.permissions.check(spec, args, steps),
        }
    }

    /// Its line of ACL LIST and of an ACL file.
    #[must_use]
    pub fn describe(&self) -> Vec<u8> {
        let mut line = [b"user ", &*self.name].concat();
        line.extend_from_slice(if self.is_on { b" on" } else { b" off" });
        if self.needs_no_password {
            line.extend_from_slice(b" nopass");
        }
        for password in &self.passwords {
            line.extend_from_slice(format!(" #{password}").as_bytes());
        }
        let permissions = &self.permissions;
        let keys = permissions.describe_keys();
        if !keys.is_empty() {
            line.push(b' ');
            line.extend_from_slice(&keys);
        }
        if !permissions.are_all_channels() {
            line.extend_from_slice(b" resetchannels");
        }
        let channels = permissions.describe_channels();
        if !channels.is_empty() {
            line.push(b' ');
            line.extend_from_slice(&channels);
        }
        line.push(b' ');
        line.extend_from_slice(&permissions.commands.describe());
        line
    }

    /// How many rules [`User::describe`] takes.
    #[must_use]
    pub fn rules(&self) -> usize {
        let first = 1 + usize::from(self.needs_no_password);
        first + self.passwords.len() + self.permissions.rules()
    }

    /// Memory that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let passwords = self.passwords.len() * size_of::<PasswordHash>();
        size_of::<User>() + self.name.len() + passwords + self.permissions.bytes()
    }
}
