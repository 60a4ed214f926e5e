//! Commands that are executed together, as one section of the keyspace, and the array of their replies.

use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request::{self, Args, Parsed, RequestLimits};
use ephesus_wire::{Lsn, slot_of};

use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Located, Request};
use crate::command::spec::{self, Cmd, Spec};
use crate::keyspace::Reply;
use crate::keyspace::large_replies::LARGE_REPLY_BYTES;
use crate::shard::connection::Connection;
use crate::shard::core::admission::waiting::covers_shards;
use crate::shard::core::execution::pubsub::is_about_subscriptions;
use crate::shard::core::execution::scripts::Caller;
use crate::shard::core::execution::timed::Asking;
use crate::shard::core::routing::route::check_pairs;
use crate::shard::core::{Asker, Core};
use crate::shard::mesh::{Client, Scope};

/// What is executed together with others.
pub(crate) enum Part<'a> {
    Command {
        /// If that is known.
        spec: Option<&'static Spec>,
        located: Option<Located>,
        source: &'a [u8],
        /// Whose it is, if it is a script of another shard's client who may not do everything.
        user: Option<u64>,
    },
    /// What another shard has answered already, and the protocol from then on.
    Reply(&'a [u8], Protocol),
}

/// Who has what is executed together.
pub(crate) struct Together<'a> {
    pub connection: Option<&'a mut Connection>,
    pub client: Client,
    pub protocol: Protocol,
    /// The client may cache the keys that it reads, as its shard has said; a connection here says so itself.
    pub tracks: bool,
}

impl Core {
    /// Executes commands as one: their replies become an array behind `out`, which waits for the LSN that is answered.
    ///
    /// # Errors
    /// Their effects or replies are too much, or, with [`ClientError::LargeReplies`], have to wait. Nothing has happened.
    pub(crate) fn execute_together<'a>(
        &mut self,
        together: Together<'_>,
        parts: impl ExactSizeIterator<Item = Part<'a>>,
        out: &mut Vec<u8>,
    ) -> Result<Lsn, ClientError> {
        let start = out.len();
        let before = self.keyspace.room.begin_joint();
        self.keyspace.begin_atomic(usize::MAX);
        let (protocol, mut gate) = (together.protocol, Lsn::ZERO);
        self.begin_pace();
        let executed = self.execute_parts(together, parts, out, &mut gate);
        self.end_pace();
        let committed = match executed {
            Ok(()) => {
                let mut reply = Reply {
                    out: &mut *out,
                    protocol,
                    gate,
                };
                let committed = self.keyspace.commit_atomic(&mut reply);
                gate = reply.gate;
                committed
            }
            Err(error) => {
                self.keyspace.roll_back_atomic();
                Err(error)
            }
        };
        self.keyspace.room.end_joint(before, committed.is_ok());
        self.publish_joint(committed.is_ok());
        if committed.is_err() {
            out.truncate(start);
        }
        committed.map(|()| gate)
    }

    fn execute_parts<'a>(
        &mut self,
        together: Together<'_>,
        parts: impl ExactSizeIterator<Item = Part<'a>>,
        out: &mut Vec<u8>,
        gate: &mut Lsn,
    ) -> Result<(), ClientError> {
        let start = out.len();
        let mut room_bytes = LARGE_REPLY_BYTES;
        let Together {
            mut connection,
            client,
            mut protocol,
            tracks,
        } = together;
        let mut args = std::mem::take(&mut self.execution.together_args);
        reply::array(out, parts.len());
        for part in parts {
            let before = out.len();
            // HELLO may change it.
            protocol = match (&part, &connection) {
                (Part::Reply(_, protocol), _) => *protocol,
                (_, Some(connection)) => connection.protocol,
                (_, None) => protocol,
            };
            let here = connection.as_deref();
            let mut asker = Asker::Transaction {
                tracks: here.map_or(tracks, Connection::tracks_reads),
                connection: connection.as_deref_mut(),
                client,
                protocol,
                out,
                gate,
            };
            match self.execute_one_part(&mut asker, &part, &mut args) {
                Ok(()) => {}
                Err(error @ (ClientError::LargeReplies | ClientError::TransactionTime(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    self.stats().count_error(error.code());
                    out.truncate(before);
                    error.write(out);
                }
            }
            self.step()?;
            let bytes = out.len() - start;
            self.check_reply(bytes)?;
            if bytes >= room_bytes {
                self.keyspace.room.take(bytes.max(LARGE_REPLY_BYTES))?;
                room_bytes = 2 * bytes;
            }
            if let Some(error) = self.keyspace.atomic_overflow() {
                return Err(error);
            }
        }
        self.execution.together_args = args;
        Ok(())
    }

    #[expect(clippy::unreachable, reason = "what is queued was parsed before")]
    fn execute_one_part(
        &mut self,
        asker: &mut Asker<'_>,
        part: &Part<'_>,
        args: &mut Args,
    ) -> Result<(), ClientError> {
        let (spec, located, source, user) = match *part {
            Part::Command {
                spec,
                located,
                source,
                user,
            } => (spec, located, source, user),
            Part::Reply(bytes, _) => {
                if let Asker::Transaction { out, .. } = asker {
                    out.extend_from_slice(bytes);
                }
                return Ok(());
            }
        };
        match request::parse(source, &RequestLimits::DEFAULT, args) {
            Ok(Parsed::Command { consumed }) if consumed == source.len() => {}
            other => unreachable!("{other:?} was queued, not one command"),
        }
        let request = Request::new(args, source).with_located(located);
        let spec = match spec {
            Some(spec) => spec,
            None => spec::resolve(&request)?,
        };
        if let Asker::Transaction {
            connection: Some(connection),
            ..
        } = asker
        {
            self.check_queued(connection, spec, &request)?;
        }
        if !spec.acts_on_keys() {
            // It cannot be taken back, so nothing behind it may have to wait and begin again.
            self.keyspace.room.take_joint()?;
        }
        let timed = self.begin_timed(spec, source, true);
        let outcome = self.execute_resolved(asker, spec, user, &request);
        if outcome == Err(ClientError::LargeReplies) {
            return outcome;
        }
        let asking = match asker {
            Asker::Transaction {
                connection: Some(connection),
                ..
            } => Asking::Here(connection),
            other => Asking::There(other.client(self.id)),
        };
        self.end_timed(timed, asking, spec, &request);
        self.execution.commands += 1;
        let stats = self.stats().of(spec.cmd);
        stats.calls.add(1);
        stats.failed.add(outcome.is_err().into());
        outcome
    }

    /// Executes a command of which it is known what it is; `user`: whose it is, if it is a script of another shard's
    /// client.
    fn execute_resolved(
        &mut self,
        asker: &mut Asker<'_>,
        spec: &'static Spec,
        user: Option<u64>,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        if spec.acts_on_keys() {
            check_pairs(spec, request)?;
            let slot = match request.located() {
                Some(located) => located.slot,
                None => slot_of(request.arg(usize::from(spec.first_key()))),
            };
            return self.execute_here(asker, spec, request, slot);
        }
        if spec.counts_keys() {
            let user = match (&mut *asker, user) {
                (
                    Asker::Transaction {
                        connection: Some(connection),
                        ..
                    },
                    _,
                ) => self.limited_user(connection),
                (_, None) => None,
                (_, Some(id)) => Some(self.user_of(id)?),
            };
            let time_max = self.time_left()?.min(self.node.settings.lua_time_limit);
            let caller = Caller { user, time_max };
            return self.execute_script(asker, spec, request, &caller);
        }
        match spec.cmd {
            cmd if covers_shards(cmd) => {
                let scope = match asker {
                    Asker::Transaction {
                        connection: Some(connection),
                        ..
                    } => connection.scope(),
                    _ => Scope::Shard,
                };
                self.whole_keyspace(asker, scope, spec, request).map(|_| ())
            }
            Cmd::Unwatch => {
                if let Asker::Transaction { out, .. } = asker {
                    out.extend_from_slice(reply::OK);
                }
                Ok(())
            }
            _ => match asker {
                Asker::Transaction {
                    connection: Some(connection),
                    out,
                    ..
                } => {
                    match spec.cmd {
                        Cmd::Ssubscribe => {
                            return Err(ClientError::DenyBlocking("SSUBSCRIBE", "a "));
                        }
                        Cmd::Monitor => return Err(ClientError::DenyBlocking("MONITOR", "")),
                        cmd if is_about_subscriptions(cmd) => {
                            out.append(&mut self.changed_subscriptions(connection, cmd, request)?);
                            return Ok(());
                        }
                        _ => {}
                    }
                    let scope = connection.scope();
                    self.about_server(connection, scope, spec, request, out)
                }
                _ => Err(ClientError::NotInTransaction),
            },
        }
    }

    /// The reply to a queued command about the connection or the server, for another shard that executes the others.
    pub(crate) fn answer_part(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        source: &[u8],
    ) -> Vec<u8> {
        let (mut out, mut gate) = (Vec::new(), Lsn::ZERO);
        let protocol = connection.protocol;
        let part = Part::Command {
            spec: Some(spec),
            located: None,
            source,
            user: None,
        };
        let mut asker = Asker::Transaction {
            client: (self.id, connection.token),
            tracks: false,
            connection: Some(connection),
            protocol,
            out: &mut out,
            gate: &mut gate,
        };
        if let Err(error) = self.execute_one_part(&mut asker, &part, &mut Args::new()) {
            self.stats().count_error(error.code());
            out.clear();
            error.write(&mut out);
        }
        out
    }
}
