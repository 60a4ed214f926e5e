//! What other shards have forwarded and was not executed yet: each turn executes a bounded part of it.

use std::collections::VecDeque;

use crate::shard::core::admission::deferred::{Awaits, STOPPED_BYTES};
use crate::shard::core::execution::walks::Presence;
use crate::shard::core::routing::forwarding::Answers;
use crate::shard::core::{Answer, Core};
use crate::shard::mesh::{Client, Requests};

/// Bytes of requests that are executed in one turn.
pub(crate) const REQUESTS_BYTES_MAX: usize = 256 << 10;

/// Bytes of replies that are made in one turn.
const REPLIES_BYTES_MAX: usize = 1 << 20;

/// Batches in the order they came.
#[derive(Default)]
pub(crate) struct Backlog {
    batches: VecDeque<Requests>,
    /// Commands of the first batch that were executed, and their bytes.
    executed: usize,
    executed_bytes: usize,
    /// The turn in which something was executed last.
    turn: u64,
    requests_bytes: usize,
    replies_bytes: usize,
    /// The next turn can go on.
    is_runnable: bool,
}

impl Backlog {
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    #[must_use]
    pub(crate) fn is_runnable(&self) -> bool {
        self.is_runnable
    }

    /// A command counts as that much more input.
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.requests_bytes += bytes;
    }

    /// What was executed in this turn.
    pub(crate) fn charged(&self) -> usize {
        self.requests_bytes
    }

    /// Whether this turn executes more.
    fn has_turn(&mut self, turn: u64) -> bool {
        if self.turn != turn {
            self.turn = turn;
            self.requests_bytes = 0;
            self.replies_bytes = 0;
        }
        self.requests_bytes < REQUESTS_BYTES_MAX && self.replies_bytes < REPLIES_BYTES_MAX
    }
}

impl Core {
    /// Executes what another shard has forwarded, behind what came before.
    pub fn requested(&mut self, requests: Requests) {
        self.review_prefixes();
        self.resume_clients(&requests.resumed);
        self.admission.backlog.batches.push_back(requests);
        if self.admission.backlog.batches.len() == 1 {
            self.go_on_with_backlog();
        }
    }

    /// Executes what was forwarded, as far as this turn and those that asked have room for it.
    pub(crate) fn go_on_with_backlog(&mut self) {
        self.admission.backlog.is_runnable = false;
        while let Some(batch) = self.admission.backlog.batches.pop_front() {
            if !self.execute_batch(&batch) {
                self.admission.backlog.batches.push_front(batch);
                return;
            }
            self.admission.backlog.executed = 0;
            self.admission.backlog.executed_bytes = 0;
            for (client, presence) in &batch.leaving {
                if *presence == Presence::Gone {
                    self.drop_deferred(*client);
                    self.keyspace.unwatch(*client);
                    self.keyspace.untrack(*client);
                }
            }
            self.stop_walks(&batch.leaving);
        }
    }

    /// Executes the rest of the first batch; false when something is left of it.
    #[expect(
        clippy::indexing_slicing,
        reason = "a batch has the bytes of its commands"
    )]
    fn execute_batch(&mut self, batch: &Requests) -> bool {
        let mut args = std::mem::take(&mut self.execution.args);
        let mut answers = Answers::default();
        let mut from = None;
        // Replies of this batch to one client, whose commands follow each other.
        let mut made: Option<(Client, usize)> = None;
        let executed = self.admission.backlog.executed;
        for forwarded in batch.commands.iter().skip(executed) {
            let (asking, client) = (forwarded.origin.shard, forwarded.client);
            self.admission.backlog.is_runnable = !self.admission.backlog.has_turn(self.turn);
            if self.admission.backlog.is_runnable || self.router.peers[asking].is_behind() {
                break;
            }
            // What was passed on comes in one batch with what the peer itself has forwarded.
            if let Some(other) = from.filter(|from| *from != asking) {
                self.answer_once_committed(other, std::mem::take(&mut answers));
            }
            from = Some(asking);
            let at = self.admission.backlog.executed_bytes;
            let source = &batch.bytes[at..at + forwarded.len];
            let before = answers.bytes();
            if self.admission.deferred.has(&client) {
                self.defer(forwarded, source, Awaits::Read);
            } else {
                match self.forwarded(forwarded, source, &mut args, &mut answers) {
                    Answer::Held => self.defer(forwarded, source, Awaits::Decision),
                    Answer::LogBehind => self.defer(forwarded, source, Awaits::Log),
                    Answer::NoRoom => self.defer(forwarded, source, Awaits::Room),
                    Answer::Written | Answer::Later => {}
                }
            }
            let bytes = answers.bytes() - before;
            let made_before = made.filter(|(other, _)| *other == client);
            let made_now = made_before.map_or(0, |(_, bytes)| bytes) + bytes;
            made = Some((client, made_now));
            if bytes > 0 && made_now >= STOPPED_BYTES {
                self.stop_client(client);
            }
            self.admission.backlog.executed += 1;
            self.admission.backlog.executed_bytes += forwarded.len;
            self.admission.backlog.requests_bytes += forwarded.len;
            self.admission.backlog.replies_bytes += bytes;
        }
        self.execution.args = args;
        self.end_timing();
        self.execution.timing.stop();
        if let Some(from) = from {
            self.answer_once_committed(from, answers);
        }
        self.admission.backlog.executed == batch.commands.len()
    }
}

#[cfg(test)]
mod tests;
