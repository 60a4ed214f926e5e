//! Walks of commands over many keys (KEYS, keys of a slot), in slices between turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ephesus_wire::{Database, Lsn};

use crate::command::error::ClientError;
use crate::keyspace::{Walk, WalkFilter};
use crate::net::ConnToken;
use crate::shard::connection::{Connection, Life};
use crate::shard::core::replies::promised::Promised;
use crate::shard::core::{Answer, Asker, Core};
use crate::shard::mesh::Client;

/// Walks of a shard that go on in turn, and hold what they have found; others wait.
const WALKS_MAX: usize = 8;

/// Whether a client still waits for what it has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    #[default]
    Here,
    /// It has sent its last byte: it has left, or it only reads.
    Ended,
    Gone,
}

/// A walk that was asked for.
struct Asked {
    promised: Promised,
    database: Database,
    filter: WalkFilter,
    presence: Presence,
}

/// The walks of a shard.
#[derive(Default)]
pub(crate) struct Walks {
    running: VecDeque<(Asked, Walk)>,
    waiting: VecDeque<Asked>,
    /// Memory of those that wait.
    waiting_bytes: usize,
}

impl Asked {
    fn bytes(&self) -> usize {
        let pattern = match &self.filter {
            WalkFilter::Matching(pattern) => pattern.capacity(),
            WalkFilter::InSlot(..)
            | WalkFilter::CountInSlot(_)
            | WalkFilter::SlotStats(..)
            | WalkFilter::Remove
            | WalkFilter::Random(..) => 0,
        };
        size_of::<Asked>() + pattern
    }

    /// Whether it goes on without anybody who waits for it: a flush is a write, which is not left half done.
    fn is_write(&self) -> bool {
        matches!(self.filter, WalkFilter::Remove)
    }
}

impl Walks {
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Memory of all walks.
    fn bytes(&self) -> usize {
        let running = self.running.iter().map(|(_, walk)| walk.bytes());
        running.sum::<usize>() + self.waiting_bytes
    }

    /// Memory of the walk that has found most.
    #[must_use]
    pub(crate) fn largest_bytes(&self) -> usize {
        let running = self.running.iter().map(|(_, walk)| walk.bytes());
        running.max().unwrap_or(0)
    }

    fn wait(&mut self, asked: Asked) {
        self.waiting_bytes += asked.bytes();
        self.waiting.push_back(asked);
    }

    fn next_waiting(&mut self) -> Option<Asked> {
        let asked = self.waiting.pop_front()?;
        self.waiting_bytes -= asked.bytes();
        Some(asked)
    }

    fn asked_mut(&mut self) -> impl Iterator<Item = &mut Asked> {
        let running = self.running.iter_mut().map(|(asked, _)| asked);
        running.chain(&mut self.waiting)
    }

    /// Whether somebody waits for a place, so that clients that may have left are not walked for.
    fn is_crowded(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Core {
    /// Begins a walk, whose reply is delivered when it is complete; within a transaction it is complete at once.
    ///
    /// # Errors
    /// Those of a walk that is complete.
    pub(crate) fn begin_walk(
        &mut self,
        asker: &mut Asker<'_>,
        filter: WalkFilter,
    ) -> Result<Answer, ClientError> {
        let database = asker.database();
        if let Asker::Transaction { out, gate, .. } = asker {
            if matches!(filter, WalkFilter::Remove) && self.admission.holds.holds_any() {
                // It would not end.
                return Err(ClientError::MoveUndecided);
            }
            let bytes_max = self.reply_bytes_max();
            let mut walk = self.keyspace.walk(database, &filter, bytes_max);
            let walked = loop {
                if let Some(walked) = self.keyspace.walk_slice(&mut walk) {
                    break walked;
                }
                self.look_within()?;
            };
            self.keyspace.room.take(walk.bytes())?;
            out.extend_from_slice(&walk.finish()?);
            **gate = walked.max(**gate);
            return Ok(Answer::Written);
        }
        if let Asker::Connection(connection) = asker {
            connection.walks = true;
        }
        let promised = self.promise(asker).ok_or(ClientError::NotInTransaction)?;
        self.execution.walks.wait(Asked {
            promised,
            database,
            filter,
            presence: Presence::Here,
        });
        self.count_walks();
        Ok(Answer::Later)
    }

    /// Continues one walk by a slice; false when there is none.
    pub fn walk_slice(&mut self) -> bool {
        while self.execution.walks.running.len() < WALKS_MAX
            && let Some(asked) = self.execution.walks.next_waiting()
        {
            let bytes_max = self.reply_bytes_max();
            let walk = self.keyspace.walk(asked.database, &asked.filter, bytes_max);
            self.execution.walks.running.push_back((asked, walk));
        }
        let Some((asked, mut walk)) = self.execution.walks.running.pop_front() else {
            return false;
        };
        let has_left = match asked.presence {
            _ if asked.is_write() => false,
            Presence::Here => false,
            Presence::Ended => self.execution.walks.is_crowded(),
            Presence::Gone => true,
        };
        if has_left {
            drop(walk);
            self.end_walk(&asked, Err(ClientError::ClientHasLeft), Lsn::ZERO);
        } else if walk.removes() && !self.may_remove() {
            self.execution.walks.running.push_back((asked, walk));
            return false;
        } else if let Some(gate) = self.keyspace.walk_slice(&mut walk) {
            if self.keyspace.room.take(walk.bytes()).is_err() {
                self.execution.walks.running.push_back((asked, walk));
                return false;
            }
            let outcome = match self.node.lease.holds() {
                true => walk.finish(),
                false => Err(ClientError::ClusterDown),
            };
            self.end_walk(&asked, outcome, gate);
        } else {
            self.execution.walks.running.push_back((asked, walk));
        }
        self.count_walks();
        true
    }

    /// Whether a walk may write: as other writes it waits for the log and for the lease.
    fn may_remove(&self) -> bool {
        self.router.serving && self.has_room_for_expiry()
    }

    fn count_walks(&mut self) {
        self.admission.client_budget.held_beside = self.execution.walks.bytes();
    }

    /// Gives up the walk that has found most.
    pub(crate) fn give_up_largest_walk(&mut self) {
        let running = self.execution.walks.running.iter().enumerate();
        let largest = running.max_by_key(|(_, (_, walk))| walk.bytes());
        let largest = largest.map(|(index, _)| index);
        if let Some((asked, _)) =
            largest.and_then(|index| self.execution.walks.running.remove(index))
        {
            self.end_walk(&asked, Err(ClientError::ClientMemory), Lsn::ZERO);
        }
        self.count_walks();
    }

    fn end_walk(&mut self, asked: &Asked, outcome: Result<Vec<u8>, ClientError>, gate: Lsn) {
        let bytes = outcome.unwrap_or_else(|error| {
            let mut text = Vec::new();
            error.write(&mut text);
            text
        });
        let room = self.keyspace.room.hand_over();
        self.keep_promise(&asked.promised, bytes, gate, room);
    }

    /// Looks whether a client has left for which shards may be walking, or keep commands; they are told at the end of
    /// the turn.
    pub fn note_presence(&mut self, token: ConnToken) {
        let client = (self.id, token);
        if let Some(connection) = self.connections.get_mut(token)
            && connection.presence() > connection.presence_told
            && connection.must_tell_presence()
        {
            connection.presence_told = connection.presence();
            self.leaving.push((client, connection.presence_told));
        }
    }

    /// Tells all shards which clients have left.
    pub(crate) fn tell_who_leaves(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let leaving = std::mem::take(&mut self.leaving);
        for peer in self.router.peers.iter_mut() {
            peer.tell_who_leaves(&leaving);
        }
    }

    /// Clients have left: their walks stop. Those that still wait do not wait any longer; of flushes one for each database
    /// does.
    pub(crate) fn stop_walks(&mut self, leaving: &[(Client, Presence)]) {
        if leaving.is_empty() {
            return;
        }
        let leaving: BTreeMap<Client, Presence> = leaving.iter().copied().collect();
        for asked in self.execution.walks.asked_mut() {
            let presence = leaving.get(&asked.promised.client()).copied();
            asked.presence = asked.presence.max(presence.unwrap_or_default());
        }
        let mut flushed = BTreeSet::new();
        for _ in 0..self.execution.walks.waiting.len() {
            match self.execution.walks.next_waiting() {
                Some(asked)
                    if asked.presence == Presence::Gone
                        && !(asked.is_write() && flushed.insert(asked.database)) =>
                {
                    self.end_walk(&asked, Err(ClientError::ClientHasLeft), Lsn::ZERO);
                }
                Some(asked) => self.execution.walks.wait(asked),
                None => break,
            }
        }
        self.count_walks();
    }
}

impl Connection {
    /// Whether others do something for its client that ends when it leaves.
    pub(crate) fn must_tell_presence(&self) -> bool {
        let is_gone = self.presence() == Presence::Gone;
        self.walks || (is_gone && (self.asked_bytes > 0 || self.is_remembered))
    }

    fn presence(&self) -> Presence {
        match () {
            () if self.life == Life::Dead => Presence::Gone,
            () if self.ended => Presence::Ended,
            () => Presence::Here,
        }
    }
}

#[cfg(test)]
mod tests;
