//! Commands that shards of one node execute for each other's connections, and the way of their replies.

use std::cmp::Reverse;

use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::resp::request::{self, Args, Parsed, RequestLimits};
use ephesus_wire::{Lsn, ShardId};

use super::connection::Connection;
use super::core::{Answer, Asker, Core, Gated};
use super::mesh::{Forwarded, Origin, Replies, Requests};
use super::outbox::Delivered;
use crate::command::error::ClientError;
use crate::command::parse::Request;
use crate::command::spec;

/// Replies for a peer that wait for the log.
pub(super) struct Uncommitted {
    pub(super) to: ShardId,
    pub(super) replies: Replies,
    /// When they were made.
    pub(super) turn: u64,
}

/// Answers to forwarded commands, and what they have to wait for together.
#[derive(Default)]
pub(super) struct Answers {
    replies: Replies,
    gate: Lsn,
}

impl Answers {
    /// The answer to one command.
    pub(super) fn of(forwarded: &Forwarded, bytes: Vec<u8>, gate: Lsn) -> Answers {
        let answers = vec![forwarded.answered(bytes.len())];
        let replies = Replies { bytes, answers };
        Answers { replies, gate }
    }

    /// Answers a command that was not executed.
    pub(super) fn refuse(&mut self, forwarded: &Forwarded, error: &ClientError) {
        let before = self.replies.bytes.len();
        error.write(&mut self.replies.bytes);
        let len = self.replies.bytes.len() - before;
        self.replies.answers.push(forwarded.answered(len));
    }
}

impl Core {
    /// Executes what another shard has forwarded.
    pub fn requested(&mut self, requests: &Requests) {
        if !requests.commands.is_empty() {
            self.writers.input(self.now);
        }
        let mut args = std::mem::take(&mut self.args);
        let mut answers = Answers::default();
        let mut at = 0;
        let mut from = None;
        for forwarded in &requests.commands {
            let source = &requests.bytes[at..at + forwarded.len];
            at += forwarded.len;
            let asking = forwarded.origin.shard;
            // What was led on comes in one batch with what the peer itself has forwarded.
            if let Some(other) = from.filter(|from| *from != asking) {
                self.answer_once_committed(other, std::mem::take(&mut answers));
            }
            from = Some(asking);
            let is_behind_others =
                !self.holds.is_idle() && self.holds.parked.has(&forwarded.client);
            if is_behind_others
                || self.forwarded(forwarded, source, &mut args, &mut answers) == Answer::Held
            {
                self.park(forwarded, source);
            }
        }
        self.args = args;
        if let Some(from) = from {
            self.answer_once_committed(from, answers);
        }
        self.stop_walks(&requests.leaving);
    }

    /// Executes one forwarded command if it can be now.
    pub(super) fn forwarded(
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
        let outcome = spec::resolve(&request).and_then(|spec| {
            if spec.first_key > 0 {
                self.keyed_of_peer(&mut asker, forwarded, spec, &request, source)
            } else {
                self.keyless_of_peer(&mut asker, forwarded, spec, &request, source)
            }
        });
        let answer = outcome.unwrap_or_else(|error| {
            error.write(&mut answers.replies.bytes);
            Answer::Written
        });
        if answer == Answer::Written {
            let len = answers.replies.bytes.len() - before;
            answers.replies.answers.push(forwarded.answered(len));
        }
        answer
    }

    /// Sends answers to a peer once the log has committed what they wait for.
    pub(super) fn answer_once_committed(&mut self, to: ShardId, answers: Answers) {
        let Answers { replies, gate } = answers;
        if replies.answers.is_empty() {
            return;
        }
        if gate <= self.keyspace.log.committed() {
            self.peers[usize::from(to.0)].answer(replies.answers, &replies.bytes);
            return;
        }
        let free = self.uncommitted.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.uncommitted.push(None);
            self.uncommitted.len() - 1
        });
        let turn = self.turn;
        self.uncommitted[index] = Some(Uncommitted { to, replies, turn });
        self.gates.push(Reverse((gate, Gated::Replies(index))));
    }

    /// Another shard has answered.
    pub fn answered(&mut self, replies: &Replies) {
        let mut at = 0;
        for answer in &replies.answers {
            let bytes = &replies.bytes[at..at + answer.len];
            at += answer.len;
            self.peers[usize::from(answer.asked.0)].answered(answer.request_len);
            if answer.is_late {
                self.deliver_late(answer.origin);
                continue;
            }
            self.deliver(answer.origin, bytes, Lsn::ZERO);
        }
    }

    /// Puts a reply into the place that was reserved for it.
    pub(super) fn deliver(&mut self, origin: Origin, bytes: &[u8], gate: Lsn) {
        let Some(connection) = self.connections.get_mut(origin.conn) else {
            return self.relay_answered(origin, bytes, gate);
        };
        let delivered = connection
            .outbox
            .deliver(origin.ticket, origin.part, bytes, gate);
        if delivered == Delivered::Complete {
            self.gathered(origin);
        }
        if let Some(connection) = self.connections.get_mut(origin.conn) {
            connection.settling &= connection.outbox.awaited() > 0;
        }
        self.list(origin.conn);
    }

    /// Forwards a whole request, whose reply becomes part `part` of `ticket`.
    pub(super) fn forward(
        &mut self,
        to: ShardId,
        connection: &Connection,
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
            protocol,
            len: request.len(),
            asked: to,
            hops: 0,
        };
        self.peers[usize::from(to.0)].forward(forwarded, request);
    }
}
