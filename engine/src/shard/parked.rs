//! Forwarded commands that wait for a decision about their partition.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use ephesus_wire::resp::request::Args;

use super::core::{Answer, Core};
use super::forwarding::Answers;
use super::holds::HELD_MAX;
use super::mesh::{Client, Forwarded};
use crate::command::error::ClientError;

/// A command that waits.
struct Waiting {
    forwarded: Forwarded,
    request: Box<[u8]>,
    since: Instant,
}

/// Commands that wait, each client's in order.
#[derive(Default)]
pub(super) struct Parked {
    by_client: BTreeMap<Client, VecDeque<Waiting>>,
    len: usize,
}

impl Parked {
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }

    /// Whether commands of that client wait, so that its next one has to as well.
    #[must_use]
    pub(super) fn has(&self, client: &Client) -> bool {
        self.by_client.contains_key(client)
    }

    /// When the first command of each client came.
    pub(super) fn fronts(&self) -> impl Iterator<Item = Instant> {
        let fronts = self.by_client.values().map(VecDeque::front);
        fronts.flatten().map(|waiting| waiting.since)
    }

    fn push(&mut self, forwarded: Forwarded, request: &[u8], since: Instant) {
        let queue = self.by_client.entry(forwarded.client).or_default();
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

    /// Executes what waits, of each client up to the first command that still has to.
    pub(super) fn go_on_with_parked(&mut self) {
        let queues = std::mem::take(&mut self.holds.parked).by_client;
        let mut args = Args::new();
        for (client, mut queue) in queues {
            self.go_on_with_queue(&mut queue, &mut args);
            if !queue.is_empty() {
                self.holds.parked.len += queue.len();
                self.holds.parked.by_client.insert(client, queue);
            }
        }
    }

    fn go_on_with_queue(&mut self, queue: &mut VecDeque<Waiting>, args: &mut Args) {
        while let Some(first) = queue.front() {
            let (forwarded, request) = (&first.forwarded, &first.request);
            let mut answers = Answers::default();
            if self.forwarded(forwarded, request, args, &mut answers) == Answer::Held {
                if self.now.saturating_duration_since(first.since) < HELD_MAX {
                    break;
                }
                answers.refuse(forwarded, &ClientError::MoveUndecided);
            }
            self.answer_once_committed(forwarded.origin.shard, answers);
            queue.pop_front();
        }
    }
}
