//! What commands say about their connection itself, which EXEC takes back with all else that does not happen.

use ephesus_wire::Database;
use ephesus_wire::resp::reply::Protocol;

use super::{Attributes, Connection};
use crate::acl::Identity;
use crate::command::spec::Cmd;
use crate::shard::core::replies::outbox::{Mute, Ticket};

/// What commands say about their connection itself.
pub struct Session {
    protocol: Protocol,
    identity: Identity,
    database: Database,
    readonly: bool,
    no_evict: bool,
    no_touch: bool,
    mute: Mute,
    attributes: Option<Box<Attributes>>,
}

/// Whether a command of a transaction changes its [`Session`].
#[must_use]
pub fn changes_session(cmd: Cmd) -> bool {
    matches!(
        cmd,
        Cmd::Select
            | Cmd::Hello
            | Cmd::Auth
            | Cmd::Readonly
            | Cmd::Readwrite
            | Cmd::ClientNoevict
            | Cmd::ClientNotouch
            | Cmd::ClientReply
            | Cmd::ClientSetname
            | Cmd::ClientSetinfo
    )
}

impl Session {
    /// Memory that it takes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Session>() + self.attributes.as_deref().map_or(0, Attributes::bytes)
    }
}

impl Connection {
    /// What commands have said about it so far.
    #[must_use]
    pub fn session(&self) -> Session {
        Session {
            protocol: self.protocol,
            identity: self.identity.clone(),
            database: self.database,
            readonly: self.readonly,
            no_evict: self.no_evict,
            no_touch: self.no_touch,
            mute: self.outbox.mute(),
            attributes: self.attributes.clone(),
        }
    }

    /// What commands have said since then has not happened.
    pub fn take_back(&mut self, before: Session) {
        let Session {
            protocol,
            identity,
            database,
            readonly,
            no_evict,
            no_touch,
            mute,
            attributes,
        } = before;
        (self.protocol, self.identity, self.database) = (protocol, identity, database);
        (self.readonly, self.no_evict, self.no_touch) = (readonly, no_evict, no_touch);
        self.outbox.set_mute(mute);
        self.attributes = attributes;
    }

    /// A reply has come that the connection was promised: the one to EXEC tells whether that has happened.
    pub fn note_reply(&mut self, ticket: Ticket, reply: &[u8]) {
        let is_of_exec = |undecided: &mut Box<(Ticket, Session)>| undecided.0 == ticket;
        let has_happened = reply.starts_with(b"*") && !reply.starts_with(b"*-");
        if let Some(undecided) = self.undecided.take_if(is_of_exec)
            && !has_happened
        {
            self.take_back(undecided.1);
        }
    }
}
