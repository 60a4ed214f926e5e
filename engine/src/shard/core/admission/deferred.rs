//! Forwarded commands that wait where they are to be executed: for a decision about their partition, for the log,
//! or until their client has read what it was owed before.
//!
//! A client's replies come from several shards, and the shard of its connection does not know how large they will
//! be. So each shard makes so many bytes of them at once ([`STOPPED_BYTES`]) and then stops, and tells the shard of
//! the connection, which lets it go on when what it owes is due: what was owed before has been sent, and nothing
//! of others comes first.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use ephesus_wire::resp::request::Args;

use crate::command::error::ClientError;
use crate::shard::core::admission::backlog::REQUESTS_BYTES_MAX;
use crate::shard::core::admission::holds::HELD_MAX;
use crate::shard::core::replies::outbox::Ticket;
use crate::shard::core::routing::forwarding::Answers;
use crate::shard::core::{Answer, Core};
use crate::shard::mesh::{Client, Forwarded, Kind, Stopped};

/// Bytes of replies that a shard makes for another shard's client before it has to have read.
pub(crate) const STOPPED_BYTES: usize = 64 << 10;

/// What the first of a client's commands waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// It may be tried again.
    Nothing,
    Decision,
    Log,
    /// Room for its large reply.
    Room,
    /// The client has to read.
    Read,
}

/// A command that waits.
struct Waiting {
    forwarded: Forwarded,
    request: Box<[u8]>,
    since: Instant,
}

/// What waits of one client, in order.
struct Queue {
    awaits: Awaits,
    commands: VecDeque<Waiting>,
    /// When it was told to go on.
    since: Option<Instant>,
    /// What the shard of its connection was told that it is stopped at.
    told: Ticket,
}

/// Commands that wait.
#[derive(Default)]
pub(crate) struct Deferred {
    by_client: BTreeMap<Client, Queue>,
    awaits_log: bool,
    /// Whose commands were executed last; the next to go on are those of the clients behind it.
    last: Option<Client>,
    /// Some could go on, but a shard has to take its replies first.
    is_delayed: bool,
}

impl Queue {
    fn new(awaits: Awaits) -> Queue {
        Queue {
            awaits,
            commands: VecDeque::new(),
            since: None,
            told: 0,
        }
    }

    /// Since when the first command waits for a decision.
    fn since(&self) -> Option<Instant> {
        let first = self.commands.front()?.since;
        Some(self.since.map_or(first, |since| since.max(first)))
    }

    /// The client's first reply that waits, wherever in the queue: what another shard has passed on comes behind later
    /// commands. 0 if there is none, or not all are the connection's own.
    fn ticket(&self, client: Client) -> Ticket {
        let tickets = self.commands.iter();
        let tickets = tickets.map(|waiting| own_ticket(&waiting.forwarded, client));
        tickets.min().unwrap_or(0)
    }
}

/// The place of a command among its connection's replies; 0 if it is a part of what another shard was asked for.
fn own_ticket(forwarded: &Forwarded, client: Client) -> Ticket {
    let origin = &forwarded.origin;
    match (origin.shard, origin.conn) == client {
        true => origin.ticket,
        false => 0,
    }
}

impl Deferred {
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }

    /// Commands that wait for a decision, as their client's first one does.
    #[must_use]
    pub(crate) fn held(&self) -> usize {
        let queues = self.by_client.values();
        let held = queues.filter(|queue| queue.awaits == Awaits::Decision);
        held.map(|queue| queue.commands.len()).sum()
    }

    /// Bytes of the commands.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let waiting = self.by_client.values().flat_map(|queue| &queue.commands);
        waiting.map(|waiting| waiting.request.len()).sum()
    }

    /// Whether something waits of which no message tells that it is over.
    #[must_use]
    pub(crate) fn needs_looks(&self) -> bool {
        let mut queues = self.by_client.values();
        self.is_delayed || queues.any(|queue| queue.awaits != Awaits::Read)
    }

    /// Whether that client is stopped, or commands of it wait, so that its next one has to as well.
    #[must_use]
    pub(crate) fn has(&self, client: &Client) -> bool {
        !self.by_client.is_empty() && self.by_client.contains_key(client)
    }

    /// When the first command of each client came that waits for a decision.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = Instant> {
        let queues = self.by_client.values();
        let held = queues.filter(|queue| queue.awaits == Awaits::Decision);
        held.filter_map(Queue::since)
    }

    /// The clients whose commands do not wait for them to read, the one that went on last at the end: when there is
    /// little room for each, as in the log, all have their turn.
    fn in_turn(&self) -> Vec<Client> {
        let all = self.by_client.iter();
        let going = all.filter(|(_, queue)| queue.awaits != Awaits::Read);
        let mut clients: Vec<Client> = going.map(|(client, _)| *client).collect();
        if let Some(last) = self.last {
            let behind = clients.partition_point(|client| *client <= last);
            clients.rotate_left(behind);
        }
        clients
    }

    /// Whether some may go on although nothing was decided.
    pub(crate) fn take_ready(&mut self, is_log_behind: bool) -> bool {
        let logged = self.awaits_log && !is_log_behind;
        std::mem::take(&mut self.is_delayed) || logged
    }

    /// Puts a command behind those of its client; answers whether that it is stopped here has to be told (again).
    fn push(
        &mut self,
        forwarded: Forwarded,
        request: &[u8],
        since: Instant,
        awaits: Awaits,
    ) -> bool {
        self.awaits_log |= awaits == Awaits::Log;
        let queue = self.by_client.entry(forwarded.client);
        let queue = queue.or_insert_with(|| Queue::new(awaits));
        queue.commands.push_back(Waiting {
            forwarded,
            request: request.into(),
            since,
        });
        let is_earlier = own_ticket(&forwarded, forwarded.client) < queue.told;
        queue.awaits == Awaits::Read && (is_earlier || queue.commands.len() == 1)
    }
}

impl Core {
    /// Keeps a forwarded command until it can be executed.
    pub(crate) fn defer(&mut self, forwarded: &Forwarded, request: &[u8], awaits: Awaits) {
        let deferred = &mut self.admission.deferred;
        let has_to_be_told = deferred.push(*forwarded, request, self.now, awaits);
        if has_to_be_told {
            self.tell_stopped(forwarded.client);
        }
        if awaits == Awaits::Decision {
            self.admission.holds.note_deferred(self.now);
        }
    }

    /// Executes nothing more for the client of another shard until it has read.
    pub(crate) fn stop_client(&mut self, client: Client) {
        let stopped = Queue::new(Awaits::Read);
        self.admission.deferred.by_client.insert(client, stopped);
        self.tell_stopped(client);
    }

    /// Tells the shard of a client's connection what it is stopped at.
    fn tell_stopped(&mut self, client: Client) {
        let Some(queue) = self.admission.deferred.by_client.get_mut(&client) else {
            return;
        };
        queue.told = queue.ticket(client);
        let stopped = Stopped {
            shard: self.id,
            conn: client.1,
            ticket: queue.told,
        };
        self.router.peers[client.0].tell_stopped(stopped);
    }

    /// Clients that were stopped have read.
    pub(crate) fn resume_clients(&mut self, clients: &[Client]) {
        for client in clients {
            if let Some(queue) = self.admission.deferred.by_client.get_mut(client) {
                queue.awaits = Awaits::Nothing;
                queue.since = Some(self.now);
                self.admission.holds.note_changed();
            }
        }
    }

    /// A client has gone: what waits of it is not executed, as nobody is left to hold it for.
    pub(crate) fn drop_deferred(&mut self, client: Client) {
        let queue = self.admission.deferred.by_client.remove(&client);
        for waiting in queue.into_iter().flat_map(|queue| queue.commands) {
            let mut answers = Answers::default();
            answers.refuse(&waiting.forwarded, &ClientError::ClientHasLeft);
            self.answer_once_committed(waiting.forwarded.origin.shard, answers);
        }
    }

    /// Executes what waits, of each client up to the first command that still has to.
    pub(crate) fn go_on_with_deferred(&mut self) {
        let mut args = Args::new();
        self.admission.deferred.awaits_log = false;
        let charged_max = self.admission.backlog.charged() + REQUESTS_BYTES_MAX;
        for client in self.admission.deferred.in_turn() {
            let Some(mut queue) = self.admission.deferred.by_client.remove(&client) else {
                continue;
            };
            if self.router.peers[client.0].is_behind() {
                self.admission.deferred.is_delayed = true;
            } else {
                let waiting = queue.commands.len();
                self.go_on_with_queue(&mut queue, charged_max, &mut args);
                if queue.commands.len() < waiting {
                    self.admission.deferred.last = Some(client);
                }
            }
            let is_stopped = queue.awaits == Awaits::Read;
            self.admission.deferred.awaits_log |= queue.awaits == Awaits::Log;
            if is_stopped || !queue.commands.is_empty() {
                self.admission.deferred.by_client.insert(client, queue);
            }
            if is_stopped {
                self.tell_stopped(client);
            }
        }
        self.end_timing();
        self.execution.timing.stop();
    }

    fn go_on_with_queue(&mut self, queue: &mut Queue, charged_max: usize, args: &mut Args) {
        let mut bytes = 0;
        if queue.awaits == Awaits::Room {
            if !self.keyspace.room.is_there() {
                self.keyspace.room.wait();
                return;
            }
            queue.since = Some(self.now);
        }
        queue.awaits = Awaits::Decision;
        while let (Some(since), Some(first)) = (queue.since(), queue.commands.front()) {
            if self.admission.backlog.charged() >= charged_max {
                queue.awaits = Awaits::Nothing;
                self.admission.deferred.is_delayed = true;
                return;
            }
            let (forwarded, request) = (&first.forwarded, &first.request);
            let mut answers = Answers::default();
            match self.forwarded(forwarded, request, args, &mut answers) {
                Answer::LogBehind => {
                    queue.awaits = Awaits::Log;
                    return;
                }
                Answer::NoRoom => {
                    queue.awaits = Awaits::Room;
                    return;
                }
                Answer::Held if self.now.saturating_duration_since(since) < HELD_MAX => return,
                Answer::Held => {
                    answers.refuse(forwarded, &ClientError::MoveUndecided);
                    if forwarded.kind == Kind::Transaction {
                        self.keyspace.unwatch(forwarded.client);
                    }
                }
                Answer::Written | Answer::Later => {}
            }
            bytes += answers.bytes();
            self.answer_once_committed(forwarded.origin.shard, answers);
            queue.commands.pop_front();
            if bytes >= STOPPED_BYTES {
                queue.awaits = Awaits::Read;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ephesus_wire::ShardId;

    use super::*;
    use crate::net::ConnToken;

    fn client(index: u32) -> Client {
        let generation = 1;
        (ShardId(1), ConnToken { index, generation })
    }

    #[test]
    fn the_client_that_went_on_last_comes_last() {
        for (last, expected) in [
            (None, [0, 1, 2, 3]),
            (Some(2), [3, 0, 1, 2]),
            (Some(9), [0, 1, 2, 3]),
        ] {
            let mut deferred = Deferred::default();
            for index in 0..4 {
                let queue = Queue::new(Awaits::Log);
                deferred.by_client.insert(client(index), queue);
            }
            deferred.last = last.map(client);
            assert_eq!(deferred.in_turn(), expected.map(client), "{last:?}");
        }
    }
}
