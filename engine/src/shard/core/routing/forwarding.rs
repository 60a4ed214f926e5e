//! Commands that shards of one node execute for each other's connections, and the way of their replies.

use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::resp::request::{self, Args, Parsed, RequestLimits};
use ephesus_wire::{Lsn, ShardId};

use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Request};
use crate::command::spec;
use crate::keyspace::large_replies::Room;
use crate::net::ConnToken;
use crate::shard::connection::{Connection, KEYLESS_BYTES, Life, OUTPUT_BYTES_MAX};
use crate::shard::core::execution::timed::Asking;
use crate::shard::core::execution::tracking::redirecting;
use crate::shard::core::execution::walks::Presence;
use crate::shard::core::replies::outbox::Delivered;
use crate::shard::core::routing::relay::RELAY;
use crate::shard::core::{Answer, Asker, Core};
use crate::shard::mesh::{Forwarded, Kind, Note, Origin, REQUEST_OVERHEAD_BYTES, Replies, Stopped};

/// Answers to forwarded commands, and what they have to wait for together.
#[derive(Default)]
pub(crate) struct Answers {
    replies: Replies,
    gate: Lsn,
}

impl Answers {
    /// The answer to one command.
    pub(crate) fn of(forwarded: &Forwarded, bytes: Vec<u8>, gate: Lsn) -> Answers {
        let answers = vec![forwarded.answered(bytes.len())];
        let replies = Replies {
            bytes,
            answers,
            ..Replies::default()
        };
        Answers { replies, gate }
    }

    /// With the room of a large one.
    pub(crate) fn in_room(mut self, room: Room) -> Answers {
        self.replies.room.join(room);
        self
    }

    /// Bytes of the answers.
    pub(crate) fn bytes(&self) -> usize {
        self.replies.bytes.len()
    }

    /// Answers a command that was not executed.
    pub(crate) fn refuse(&mut self, forwarded: &Forwarded, error: &ClientError) {
        let before = self.replies.bytes.len();
        error.write(&mut self.replies.bytes);
        let len = self.replies.bytes.len() - before;
        self.replies.answers.push(forwarded.answered(len));
    }
}

impl Core {
    /// Executes one forwarded command if it can be now.
    #[expect(
        clippy::unreachable,
        reason = "a shard forwards what it has parsed itself"
    )]
    pub(crate) fn forwarded(
        &mut self,
        forwarded: &Forwarded,
        source: &[u8],
        args: &mut Args,
        answers: &mut Answers,
    ) -> Answer {
        match request::parse(source, &RequestLimits::DEFAULT, args) {
            Ok(Parsed::Command { consumed }) if consumed == source.len() => {}
            other => unreachable!("a peer forwarded {other:?}, not one command"),
        }
        let request = Request::new(args, source);
        let out = &mut answers.replies.bytes;
        let before = out.len();
        let mut asker = Asker::Peer {
            forwarded,
            out,
            gate: &mut answers.gate,
        };
        let resolved = match forwarded.kind {
            Kind::Command | Kind::CommandOf(_) => spec::resolve(&request).map(Some),
            Kind::Transaction
            | Kind::Watch
            | Kind::Unwatch
            | Kind::Monitored
            | Kind::Tracking
            | Kind::Redirect => Ok(None),
        };
        let named = resolved.as_ref().ok().copied().flatten();
        let timed = named.map(|spec| (spec, self.begin_timed(spec, source, true)));
        let outcome = match forwarded.kind {
            Kind::Command | Kind::CommandOf(_) => resolved.and_then(|spec| {
                let Some(spec) = spec else {
                    return Ok(Answer::Written);
                };
                if spec.may_write() && self.is_log_behind(self.id) {
                    Ok(Answer::LogBehind)
                } else if spec.acts_on_keys() || spec.counts_keys() {
                    self.keyed_of_peer(&mut asker, forwarded, spec, &request, source)
                } else {
                    self.admission.backlog.charge(KEYLESS_BYTES);
                    self.keyless_of_peer(&mut asker, forwarded, spec, &request, source)
                }
            }),
            Kind::Monitored => {
                self.show_line(request.arg(0), None);
                Ok(Answer::Written)
            }
            Kind::Tracking => {
                self.told_of_keys(&request);
                Ok(Answer::Written)
            }
            Kind::Redirect => {
                self.redirect_of_peer(&request, &mut answers.replies.bytes);
                Ok(Answer::Written)
            }
            Kind::Transaction => self.exec_of_peer(&mut asker, forwarded, &request, source),
            Kind::Watch => self.watch_of_peer(&mut asker, forwarded, &request),
            Kind::Unwatch => self.unwatch_of_peer(&mut asker, forwarded, &request),
        };
        let answer = match outcome {
            Ok(answer) => answer,
            Err(ClientError::LargeReplies) => Answer::NoRoom,
            Err(error) => {
                self.stats().count_error(error.code());
                if let Some(spec) = named {
                    self.stats().count_failure(spec.cmd, &error);
                }
                error.write(&mut answers.replies.bytes);
                Answer::Written
            }
        };
        if answer == Answer::Written
            && let Some((spec, timed)) = timed
        {
            self.end_timed(timed, Asking::There(forwarded.client), spec, &request);
        }
        let work = self.keyspace.take_work();
        self.admission.backlog.charge(work);
        answers.replies.room.join(self.keyspace.room.hand_over());
        if answer == Answer::Written {
            let len = answers.replies.bytes.len() - before;
            answers.replies.answers.push(forwarded.answered(len));
        }
        answer
    }

    /// Sends answers to a peer once the log has committed what they wait for.
    pub(crate) fn answer_once_committed(&mut self, to: ShardId, answers: Answers) {
        let Answers { replies, gate } = answers;
        if replies.answers.is_empty() {
            return;
        }
        let peer = &mut self.router.peers[to];
        peer.add_replies(replies.bytes.len());
        if gate <= self.keyspace.log.committed() {
            return peer.answer(replies);
        }
        self.replies.gates.add_replies(to, replies, gate, self.turn);
    }

    /// Another shard has answered.
    #[expect(
        clippy::indexing_slicing,
        reason = "replies have the bytes of their answers"
    )]
    pub fn answered(&mut self, mut replies: Replies) {
        if self.node.peers[self.id].take_replies(replies.bytes.len()) {
            // Those that have waited for this may sleep.
            self.node.peers.iter().for_each(|peer| peer.waker().wake());
        }
        let is_one = replies.answers.len() == 1;
        let mut at = 0;
        for answer in &replies.answers {
            let bytes = match is_one {
                true => std::mem::take(&mut replies.bytes),
                false => replies.bytes[at..at + answer.len].to_vec(),
            };
            at += answer.len;
            self.router.peers.answered(answer.asked, answer.request_len);
            let asked = answer.request_len + REQUEST_OVERHEAD_BYTES;
            match self.connections.get_mut(answer.origin.conn) {
                Some(connection) => {
                    connection.asked_bytes = connection.asked_bytes.saturating_sub(asked);
                }
                None if answer.origin.conn != RELAY => {
                    let gone = &mut self.admission.client_budget.asked_by_gone;
                    *gone = gone.saturating_sub(asked);
                }
                None => {}
            }
            if answer.is_late {
                self.deliver_late(answer.origin);
                continue;
            }
            self.deliver(answer.origin, bytes, Lsn::ZERO);
        }
        for stopped in &replies.stopped {
            self.note_stopped(stopped);
        }
        for (client, note) in replies.notes {
            self.take_note(client, note);
        }
        self.admission.client_budget.arrived.join(replies.room);
    }

    /// Another shard executes no more of a connection's commands until its client has read.
    fn note_stopped(&mut self, stopped: &Stopped) {
        let &Stopped {
            shard,
            conn,
            ticket,
        } = stopped;
        match self.connections.get_mut(conn) {
            Some(connection) => {
                connection.stopped.retain(|(other, _)| *other != shard);
                connection.stopped.push((shard, ticket));
                self.list(conn);
            }
            None => self.tell_that_gone(shard, conn),
        }
    }

    /// Another shard has seen something of a client that has to be logged.
    fn take_note(&mut self, client: ConnToken, note: Note) {
        let connection = self.connections.get(client);
        match (note, connection) {
            (Note::Denied(refused), Some(connection)) => {
                self.note_refused_to(connection, &refused);
            }
            (Note::Denied(_), None) => {}
            (Note::Slow(mut slow), connection) => {
                if let Some(connection) = connection {
                    slow.address = connection.remote.to_string();
                    connection.name().clone_into(&mut slow.name);
                }
                self.node.slow.log(*slow, self.node.live.slow_log_len());
            }
        }
    }

    fn tell_that_gone(&mut self, shard: ShardId, conn: ConnToken) {
        let gone = ((self.id, conn), Presence::Gone);
        self.router.peers[shard].tell_who_leaves(&[gone]);
    }

    /// Lets other shards go on with the connection's commands as far as their replies are due.
    pub(crate) fn resume_stopped(&mut self, token: ConnToken) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        if connection.life == Life::Dead {
            for (shard, _) in std::mem::take(&mut connection.stopped) {
                self.tell_that_gone(shard, token);
            }
            return;
        }
        let (bytes, awaited) = connection.outbox.due();
        if bytes + connection.sending.len() - connection.sent >= OUTPUT_BYTES_MAX {
            return;
        }
        let is_due = |ticket| awaited.is_none_or(|awaited| ticket <= awaited);
        let due = connection
            .stopped
            .extract_if(.., |(_, ticket)| is_due(*ticket));
        for (shard, _) in due {
            self.router.peers[shard].resume((self.id, token));
        }
    }

    /// Puts a reply into the place that was reserved for it.
    pub(crate) fn deliver(&mut self, origin: Origin, bytes: Vec<u8>, gate: Lsn) {
        let Some(connection) = self.connections.get_mut(origin.conn) else {
            return self.relay_answered(origin, bytes, gate);
        };
        let taken_back = connection.note_reply(origin.ticket, &bytes);
        let redirecting = redirecting(connection, origin.ticket);
        let is_there = redirecting.is_some() && bytes.starts_with(b"+");
        let delivered = connection
            .outbox
            .deliver(origin.ticket, origin.part, bytes, gate);
        if delivered == Delivered::Complete {
            self.gathered(origin);
        }
        if let Some(connection) = self.connections.get_mut(origin.conn) {
            connection.settling &= connection.outbox.awaited() > 0;
        }
        if let Some(tracker) = redirecting.filter(|_| is_there)
            && let Some(mut connection) = self.connections.take(origin.conn)
        {
            self.set_tracker(&mut connection, tracker);
            self.put_back(connection);
        }
        if let Some(before) = taken_back
            && let Some(mut connection) = self.connections.take(origin.conn)
        {
            self.take_back(&mut connection, before);
            self.put_back(connection);
        }
        self.list(origin.conn);
    }

    /// Forwards a whole request, whose reply becomes part `part` of `ticket`.
    pub(crate) fn forward(
        &mut self,
        to: ShardId,
        connection: &mut Connection,
        place: (u64, u16),
        protocol: Protocol,
        request: &[u8],
    ) {
        self.forward_as(Kind::Command, to, connection, place, protocol, request);
    }

    /// [`Core::forward`] of what is no command as it is.
    pub(crate) fn forward_as(
        &mut self,
        kind: Kind,
        to: ShardId,
        connection: &mut Connection,
        (ticket, part): (u64, u16),
        protocol: Protocol,
        request: &[u8],
    ) {
        let origin = Origin {
            shard: self.id,
            conn: connection.token,
            ticket,
            part,
        };
        let forwarded = Forwarded {
            origin,
            client: (self.id, connection.token),
            kind,
            tracks: connection.tracks_reads(),
            protocol,
            database: connection.database,
            len: request.len(),
            asked: to,
            hops: 0,
        };
        connection.is_remembered |= forwarded.tracks;
        self.execution.timing.is_elsewhere = true;
        connection.asked_bytes += request.len() + REQUEST_OVERHEAD_BYTES;
        self.router.peers.forward(to, forwarded, request);
    }
}
