//! Forwarded commands that wait for a decision about their partition.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use ephesus_wire::ShardId;
use ephesus_wire::resp::request::Args;

use super::core::{Answer, Core};
use super::forwarding::Answers;
use super::holds::HELD_MAX;
use super::mesh::{Forwarded, Origin};
use crate::command::error::ClientError;
use crate::net::ConnToken;

/// A connection of this node, as seen from any shard.
type Asking = (ShardId, ConnToken);

/// A command that waits.
struct Waiting {
    forwarded: Forwarded,
    request: Box<[u8]>,
    since: Instant,
}

/// Commands that wait, each connection's in order.
#[derive(Default)]
pub(super) struct Parked {
    by_connection: BTreeMap<Asking, VecDeque<Waiting>>,
    len: usize,
}

impl Parked {
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.by_connection.is_empty()
    }

    /// Whether commands of that connection wait, so that its next one has to as well.
    #[must_use]
    pub(super) fn has(&self, origin: &Origin) -> bool {
        self.by_connection
            .contains_key(&(origin.shard, origin.conn))
    }

    /// When the first command of each connection came.
    pub(super) fn fronts(&self) -> impl Iterator<Item = Instant> {
        let fronts = self.by_connection.values().map(|queue| queue.front());
        fronts.flatten().map(|waiting| waiting.since)
    }

    fn push(&mut self, forwarded: Forwarded, request: &[u8], since: Instant) {
        let asking = (forwarded.origin.shard, forwarded.origin.conn);
        let queue = self.by_connection.entry(asking).or_default();
        queue.push_back(Waiting {
            forwarded,
            request: request.into(),
            since,
        });
        self.len += 1;
    }
}

impl Core {
    /// Keeps a forwarded command until it can be executed.
    pub(super) fn park(&mut self, forwarded: &Forwarded, request: &[u8]) {
        self.holds.parked.push(*forwarded, request, self.now);
        self.note_parked();
    }

    /// Executes what waits, of each connection up to the first command that still has to.
    pub(super) fn go_on_with_parked(&mut self) {
        let queues = std::mem::take(&mut self.holds.parked).by_connection;
        let mut args = Args::new();
        for (asking, mut queue) in queues {
            self.go_on_with_queue(asking, &mut queue, &mut args);
            if !queue.is_empty() {
                self.holds.parked.len += queue.len();
                self.holds.parked.by_connection.insert(asking, queue);
            }
        }
    }

    fn go_on_with_queue(
        &mut self,
        (shard, _): Asking,
        queue: &mut VecDeque<Waiting>,
        args: &mut Args,
    ) {
        let mut answers = Answers::default();
        while let Some(first) = queue.front() {
            let (forwarded, request) = (&first.forwarded, &first.request);
            if self.forwarded(forwarded, request, args, &mut answers) == Answer::Held {
                if self.now.saturating_duration_since(first.since) < HELD_MAX {
                    break;
                }
                answers.refuse(forwarded, &ClientError::MoveUndecided);
            }
            queue.pop_front();
        }
        self.answer_once_committed(shard, answers);
    }
}
