//! DEBUG, where `--enable-debug-command` allows it: SLEEP and OBJECT.

use ephesus_wire::resp::reply;
use ephesus_wire::{Lsn, ShardId, slot_of};

use crate::command::client::Pause;
use crate::command::error::{ClientError, Quoted};
use crate::command::help;
use crate::command::parse::{ArgList, Request};
use crate::command::spec::Cmd;
use crate::keyspace::large_replies::Room;
use crate::node::shared::DebugCommand;
use crate::shard::connection::Connection;
use crate::shard::core::replies::gather::{Combine, Gather};
use crate::shard::core::replies::promised::Promised;
use crate::shard::core::{Answer, Asker, Core};
use crate::shard::mesh::Scope;

/// Clients wait for so long at most.
const SLEEP_MS_MAX: u64 = 60_000;

/// Those who are told when clients have waited long enough.
#[derive(Default)]
pub(crate) struct Sleeps(Vec<(u64, Promised)>);

impl Sleeps {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is asked for.
enum Debug {
    /// So many milliseconds.
    Sleep(u64),
    Object,
    Help,
}

impl Debug {
    fn parse(request: &Request<'_>) -> Result<Debug, ClientError> {
        let name = request.arg(1);
        let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
        match request.len() {
            2 if is(b"help") => Ok(Debug::Help),
            3 if is(b"sleep") => {
                let text = std::str::from_utf8(request.arg(2)).unwrap_or_default();
                let seconds: f64 = text.parse().unwrap_or_default();
                // As a number of what is none, or negative: 0.
                Ok(Debug::Sleep(((seconds * 1000.0) as u64).min(SLEEP_MS_MAX)))
            }
            3 if is(b"object") => Ok(Debug::Object),
            _ => Err(ClientError::SubcommandArity {
                container: "DEBUG",
                name: Quoted::new(name),
            }),
        }
    }
}

impl Core {
    /// Refuses DEBUG to those who may not send it.
    pub(crate) fn check_debug(&self, connection: &Connection) -> Result<(), ClientError> {
        let is_allowed = match self.node.settings.debug_command {
            DebugCommand::No => false,
            DebugCommand::Local => connection.remote.ip().to_canonical().is_loopback(),
            DebugCommand::Yes => true,
        };
        is_allowed.then_some(()).ok_or(ClientError::NoDebug)
    }

    /// DEBUG of a connection.
    ///
    /// # Errors
    /// What the client is told.
    pub(crate) fn debug(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        self.check_debug(connection)?;
        let (protocol, encoded) = (connection.protocol, request.encoded());
        match Debug::parse(request)? {
            Debug::Help => {
                let lines = help::lines(Cmd::Debug).unwrap_or_default();
                connection.outbox.write(self.turn, |out| {
                    help::write(out, lines);
                    Lsn::ZERO
                });
            }
            Debug::Sleep(_) => {
                let shards = self.node.shards();
                let bytes_max = self.reply_bytes_max();
                let gather = Gather::new(Combine::AllOk, protocol, shards.into(), bytes_max);
                let ticket = connection.outbox.await_reply(Some(Box::new(gather)));
                connection.settling = true;
                for shard in 0..shards {
                    self.forward(
                        ShardId(shard),
                        connection,
                        (ticket, shard),
                        protocol,
                        &encoded,
                    );
                }
            }
            Debug::Object => {
                self.router.check_serving()?;
                let slot = slot_of(&connection.database.stored(request.arg(2)));
                match self.router.routes.owner(slot).local() {
                    Some(shard) if shard == self.id => {
                        self.debug_here(&mut Asker::Connection(connection), request)?;
                    }
                    Some(shard) if scope == Scope::Node => {
                        let ticket = connection.outbox.await_reply(None);
                        self.forward(shard, connection, (ticket, 0), protocol, &encoded);
                    }
                    _ => self.lead_away(connection, slot)?,
                }
            }
        }
        Ok(())
    }

    /// This shard's part of DEBUG.
    ///
    /// # Errors
    /// There is no such key.
    pub(crate) fn debug_here(
        &mut self,
        asker: &mut Asker<'_>,
        request: &Request<'_>,
    ) -> Result<Answer, ClientError> {
        match Debug::parse(request)? {
            Debug::Sleep(ms) => {
                let until_ms = self.keyspace.now_ms().saturating_add(ms);
                let pause = Pause {
                    until_ms,
                    is_all: true,
                };
                let before = self.admission.pause;
                self.admission.pause = Some(before.map_or(pause, |before| before.joined(pause)));
                let promised = self.promise(asker).ok_or(ClientError::NotInTransaction)?;
                self.execution.sleeps.0.push((until_ms, promised));
                Ok(Answer::Later)
            }
            Debug::Object => {
                let key = asker.database().stored(request.arg(2));
                self.respond(asker, |keyspace, reply| keyspace.debug_object(&key, reply))?;
                Ok(Answer::Written)
            }
            Debug::Help => Err(ClientError::Syntax),
        }
    }

    /// Tells those whose time is over.
    pub(crate) fn tend_sleeps(&mut self) {
        if self.execution.sleeps.is_empty() {
            return;
        }
        let now_ms = self.keyspace.now_ms();
        let sleeps = &mut self.execution.sleeps.0;
        let over = sleeps.extract_if(.., |(until_ms, _)| *until_ms <= now_ms);
        let over: Vec<(u64, Promised)> = over.collect();
        for (_, promised) in over {
            let bytes = reply::OK.to_vec();
            self.keep_promise(&promised, bytes, Lsn::ZERO, Room::default());
        }
    }
}
