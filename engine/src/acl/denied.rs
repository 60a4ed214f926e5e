//! Why a user may not do what it asks for.

use std::fmt;

use crate::command::error::Quoted;
use crate::command::parse::ArgList;
use crate::command::spec::Cmd;

/// What a user may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    Command(Cmd),
    /// The argument at that index is a key.
    Key(usize),
    /// The argument at that index is a channel, or a pattern of channels.
    Channel(usize),
    /// To look whether the user may takes too long: the command has too many keys, and the user too many patterns.
    TooLong(Cmd),
}

impl Denied {
    /// Under which the log and INFO count it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Denied::Command(_) | Denied::TooLong(_) => "command",
            Denied::Key(_) => "key",
            Denied::Channel(_) => "channel",
        }
    }

    /// What EXEC tells of a command that was allowed when it was queued.
    #[must_use]
    pub fn reason_at_exec(self) -> &'static str {
        match self {
            Denied::Command(_) | Denied::TooLong(_) => {
                "no permission to execute the command or subcommand"
            }
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => {
                "no permission to access one of the channels used as arguments to the command"
            }
        }
    }

    /// What was denied, of the request that it was.
    #[must_use]
    pub fn object<A: ArgList + ?Sized>(self, args: &A) -> &[u8] {
        match self {
            Denied::Command(cmd) | Denied::TooLong(cmd) => cmd.name().as_bytes(),
            Denied::Key(index) | Denied::Channel(index) => args.arg(index),
        }
    }

    /// What a client is told that does not name the key or the channel.
    #[must_use]
    pub fn told(self, user: &[u8]) -> Refusal {
        Refusal {
            denied: self,
            user: Quoted::new(user),
            object: None,
        }
    }

    /// What ACL DRYRUN tells, of the key or channel as well.
    #[must_use]
    pub fn told_in_full(self, user: &[u8], object: &[u8]) -> Refusal {
        let object = Some(Quoted::new(object));
        Refusal {
            object,
            ..self.told(user)
        }
    }
}

/// A refusal, in Redis's words where Redis has any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    denied: Denied,
    user: Quoted,
    object: Option<Quoted>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = &self.user;
        let what = match self.denied {
            Denied::Command(cmd) => {
                let name = cmd.name();
                return write!(
                    f,
                    "User {user} has no permissions to run the '{name}' command"
                );
            }
            Denied::TooLong(cmd) => {
                let name = cmd.name();
                return write!(
                    f,
                    "What this '{name}' command names takes too long to compare with the patterns of user {user}"
                );
            }
            Denied::Key(_) => "key",
            Denied::Channel(_) => "channel",
        };
        match &self.object {
            Some(object) => {
                write!(
                    f,
                    "User {user} has no permissions to access the '{object}' {what}"
                )
            }
            None => write!(f, "No permissions to access a {what}"),
        }
    }
}
