//! What commands say about their connection itself, which EXEC takes back with all else that does not happen.

use ephesus_wire::Database;
use ephesus_wire::resp::reply::Protocol;

use super::{Attributes, Connection};
use crate::acl::Identity;
use crate::command::spec::Cmd;
use crate::shard::core::execution::pubsub::is_about_subscriptions;
use crate::shard::core::execution::pubsub::subscriptions::Subscriptions;
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
    subscriptions: Option<Box<Subscriptions>>,
}

/// Whether a command of a transaction changes its [`Session`].
#[must_use]
pub fn changes_session(cmd: Cmd) -> bool {
    let is_about_it = matches!(
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
    );
    is_about_it || is_about_subscriptions(cmd)
}

impl Session {
    /// Memory that it takes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let subscriptions = self.subscriptions.as_deref();
        size_of::<Session>()
            + self.attributes.as_deref().map_or(0, Attributes::bytes)
            + subscriptions.map_or(0, Subscriptions::held_bytes)
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
            subscriptions: self.subscriptions.clone(),
        }
    }

    /// What commands have said since then has not happened; answers what it had subscribed to.
    pub fn take_back(&mut self, before: Session) -> Option<Box<Subscriptions>> {
        let Session {
            protocol,
            identity,
            database,
            readonly,
            no_evict,
            no_touch,
            mute,
            attributes,
            subscriptions,
        } = before;
        (self.protocol, self.identity, self.database) = (protocol, identity, database);
        (self.readonly, self.no_evict, self.no_touch) = (readonly, no_evict, no_touch);
        self.outbox.set_mute(mute);
        self.attributes = attributes;
        subscriptions
    }

    /// A reply has come that the connection was promised. The one to EXEC tells whether that has happened: if not, what
    /// is to be taken back.
    pub fn note_reply(&mut self, ticket: Ticket, reply: &[u8]) -> Option<Session> {
        let is_of_exec = |undecided: &mut Box<(Ticket, Session)>| undecided.0 == ticket;
        let undecided = self.undecided.take_if(is_of_exec)?;
        let has_happened = reply.starts_with(b"*") && !reply.starts_with(b"*-");
        (!has_happened).then_some(undecided.1)
    }
}
