//! CLIENT KILL and CLIENT PAUSE, of all connections of a shard.

use ephesus_wire::resp::reply;

use crate::acl::Users;
use crate::command::client::{Kill, Pause};
use crate::command::error::ClientError;
use crate::command::parse::Request;
use crate::command::spec::Cmd;
use crate::shard::connection::{Connection, Life};
use crate::shard::core::{Asker, Core};
use crate::shard::mesh::Scope;

/// Reads CLIENT KILL.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_kill(request: &Request<'_>, users: &Users) -> Result<Kill, ClientError> {
    Kill::parse(request, |user| users.get(user).is_some())
}

impl Core {
    /// Closes the connections that CLIENT KILL means, and answers how many.
    ///
    /// # Errors
    /// What is wrong with the request, or the old form meets nobody.
    pub(crate) fn kill_clients(
        &mut self,
        asker: &mut Asker<'_>,
        scope: Scope,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let kill = parse_kill(request, &self.node.users.newest())?;
        let me = asker.client(self.id);
        let now_ms = self.keyspace.now_ms();
        let is_meant = |connection: &Connection| {
            let is_alive = connection.life != Life::Dead;
            is_alive && connection.with_info(now_ms, |info| kill.filter.admits(&info))
        };
        let mut killed = 0;
        for token in self.connections.tokens() {
            let is_me = me == (self.id, token);
            let Some(connection) = self.connections.get_mut(token) else {
                continue;
            };
            if is_me && kill.skips_me || !is_meant(connection) {
                continue;
            }
            killed += 1;
            // Who has asked is still answered.
            match is_me {
                true => connection.drain(),
                false => connection.kill(),
            }
            self.list(token);
        }
        // While its command is executed it is not among them.
        let own = match asker {
            Asker::Connection(connection) => Some(&mut **connection),
            Asker::Transaction { connection, .. } => connection.as_deref_mut(),
            Asker::Peer { .. } => None,
        };
        if let Some(connection) = own
            && !kill.skips_me
            && is_meant(connection)
        {
            killed += 1;
            connection.drain();
        }
        let is_whole = kill.is_old_form && scope != Scope::Part;
        if is_whole && killed == 0 {
            return Err(ClientError::NoSuchClient);
        }
        self.respond(asker, |_, reply| {
            match is_whole {
                true => reply.out.extend_from_slice(reply::OK),
                false => reply::integer(reply.out, killed),
            }
            Ok(())
        })
    }

    /// CLIENT PAUSE or CLIENT UNPAUSE.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(crate) fn pause_clients(
        &mut self,
        asker: &mut Asker<'_>,
        cmd: Cmd,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        self.admission.pause = match cmd {
            Cmd::ClientUnpause => None,
            _ => {
                let pause = Pause::parse(request, self.keyspace.now_ms())?;
                let before = self.admission.pause;
                Some(before.map_or(pause, |before| before.joined(pause)))
            }
        };
        self.respond(asker, |_, reply| {
            reply.out.extend_from_slice(reply::OK);
            Ok(())
        })
    }

    /// Lets paused clients go on when it is time.
    pub(crate) fn review_pause(&mut self) {
        let now_ms = self.keyspace.now_ms();
        let pause = &mut self.admission.pause;
        *pause = pause.filter(|pause| pause.until_ms > now_ms);
    }
}
