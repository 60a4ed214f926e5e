//! Commands that wait while it is being decided who serves their keys.
//!
//! ```text
//! FROM       TO         [by]
//! -          Deciding   [hold]                   the source is about to end a stream
//! Deciding   -          [resume]                 the move is off: executed here
//! Deciding   Rerouting  [reroute]                the move is done, the routes do not say so yet
//! Rerouting  -          [set_routes]             executed, passed on or answered MOVED, as the routes say
//! -          unserved   [review_unserved]        routes lead here and no copy is served (yet, or any more)
//! unserved   -          [review_unserved]        it is, or the routes lead elsewhere
//! ```
//!
//! Commands for a prepared staging copy wait in the same way, whatever the routes say.
//!
//! What waits: of a connection of this shard its next command, and with it all behind; of what other shards
//! have forwarded all of a client's from the first command on that has to wait
//! ([`Deferred`](super::deferred::Deferred)). So
//! commands of a connection never overtake each other. None of them has been executed, and after
//! [`HELD_MAX`] each is refused; the hold itself goes on.
//!
//! Both are bounded: a connection's input by [`BLOCKED_INPUT_BYTES`](crate::shard::connection::BLOCKED_INPUT_BYTES),
//! what is forwarded by [`ASKED_BYTES_MAX`](crate::shard::connection::ASKED_BYTES_MAX) per connection and by
//! [`UNANSWERED_BYTES_MAX`](crate::shard::mesh::UNANSWERED_BYTES_MAX) per shard.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ephesus_wire::{PartitionId, slot_of};

use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Request};
use crate::command::spec::Spec;
use crate::migration::{Incoming, StagingState};
use crate::net::ConnToken;
use crate::planted::Bug;
use crate::shard::connection::{Blocked, Connection};
use crate::shard::core::Core;
use crate::shard::core::Step;

/// How long a command waits for the decision before it is refused.
pub(crate) const HELD_MAX: Duration = Duration::from_secs(1);

/// What the commands of a held partition wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldUntil {
    Decision,
    Routes,
}

/// A connection whose next command is held.
pub(super) struct HeldConnection {
    token: ConnToken,
    /// When that command was first tried.
    since: Instant,
    /// Bytes of input that have waited since then; `None` in the turn that it began.
    input_bytes: Option<usize>,
}

/// What this shard holds and who waits for it.
#[derive(Default)]
pub(crate) struct Holds {
    held: BTreeMap<PartitionId, HeldUntil>,
    /// Partitions that the routes lead here and that are not served here.
    unserved: Vec<PartitionId>,
    pub(super) waiting: Vec<HeldConnection>,
    /// Nothing is held by [`Core::hold`] or unserved: what a command looks at.
    is_idle: bool,
    /// Some of what waits may be able to go on.
    pub(super) changed: bool,
    /// How often the routes have followed a decision that this shard had acted on.
    caught_up: u64,
    /// The copies' changes of role that `unserved` was made of.
    role_changes: u64,
    /// No later than the first of what waits is to be refused.
    due: Option<Instant>,
    /// Held commands are refused instead of held: they have waited long enough.
    refusing: bool,
}

impl Holds {
    /// Whether no command has to be looked at. A copy that has been prepared in this turn may be missed: the
    /// routes do not lead to it, and [`Core::place`] knows.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle
    }

    fn note_idle(&mut self) {
        self.is_idle = self.held.is_empty() && self.unserved.is_empty();
    }

    /// Some of what waits may be able to go on.
    pub(crate) fn note_changed(&mut self) {
        self.changed = true;
    }

    fn note_due(&mut self, since: Instant) {
        let due = since + HELD_MAX;
        self.due = Some(self.due.map_or(due, |first| first.min(due)));
    }

    /// Whether a command that writes to every partition has to wait: a stream that has ended takes no
    /// more writes.
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// What becomes of a connection's command that cannot be executed before a decision.
    pub(crate) fn step_of_held(&self) -> Result<Step, ClientError> {
        if self.refusing {
            Err(ClientError::MoveUndecided)
        } else {
            Ok(Step::Held)
        }
    }

    /// Notes that something was deferred in this turn.
    pub(crate) fn note_deferred(&mut self, now: Instant) {
        self.note_due(now);
        self.note_idle();
    }
}

impl Core {
    /// From now on no command on a key of the partition is executed, and no FLUSHALL.
    pub(crate) fn hold(&mut self, partition: PartitionId) {
        self.admission
            .holds
            .held
            .insert(partition, HeldUntil::Decision);
        self.admission.holds.note_idle();
    }

    /// The partition stays: what waits for it is executed at the end of the turn.
    pub(crate) fn resume(&mut self, partition: PartitionId) {
        self.admission.holds.held.remove(&partition);
        self.admission.holds.changed = true;
        self.admission.holds.note_idle();
    }

    /// The partition has moved: what waits for it goes where the routes lead as soon as they do not lead
    /// here any more.
    pub(crate) fn reroute(&mut self, partition: PartitionId) {
        if let Some(awaits) = self.admission.holds.held.get_mut(&partition) {
            *awaits = HeldUntil::Routes;
            self.release_rerouted();
        }
    }

    /// Whether [`Core::hold`] is in force.
    #[must_use]
    pub(crate) fn is_held(&self, partition: PartitionId) -> bool {
        self.admission.holds.held.contains_key(&partition)
    }

    /// Whether commands on keys of the partition have to wait.
    pub(crate) fn is_waited_for(&self, partition: PartitionId) -> bool {
        if self.keyspace.planted.has(Bug::ExecutesHeld) && self.keyspace.owns(partition) {
            return false;
        }
        self.is_held(partition)
            || self.admission.holds.unserved.contains(&partition)
            || self.is_prepared(partition)
    }

    /// Whether a copy is here that another shard or node may be about to hand over.
    fn is_prepared(&self, partition: PartitionId) -> bool {
        let copy = self.keyspace.partition(partition);
        let state = copy.and_then(|copy| copy.incoming()).map(Incoming::state);
        matches!(state, Some(StagingState::Prepared(..)))
    }

    /// Whether some key of the command is in a partition that has to be waited for.
    pub(crate) fn has_held_key(&self, spec: &Spec, request: &Request<'_>) -> bool {
        let partitioning = self.router.routes.partitioning();
        spec.keys_of(request)
            .map(|index| partitioning.partition_of(slot_of(request.arg(index))))
            .any(|partition| self.is_waited_for(partition))
    }

    /// Whether a copy was given up or has begun to be served by the decision about a move, and the routes do
    /// not say so yet. The other shard may not know of the decision, so that what covers all shards would
    /// meet the copy twice or not at all.
    pub(crate) fn is_between_routes(&self) -> bool {
        let elsewhere = |partition: &PartitionId| {
            let owner = self.router.routes.owner_of(*partition).local();
            owner.is_some_and(|shard| shard != self.id) && self.serves(*partition)
        };
        let mut awaited = self.admission.holds.held.values();
        awaited.any(|awaits| *awaits == HeldUntil::Routes)
            || !self.admission.holds.unserved.is_empty()
            || self.keyspace.owned().iter().any(elsewhere)
    }

    /// Grows whenever a copy of this shard begins or ceases to be served, and when the routes say so.
    pub(crate) fn own_role_changes(&self) -> u64 {
        self.keyspace.counters.role_changes + self.admission.holds.caught_up
    }

    /// The connection executes nothing until its next command can be.
    pub(crate) fn wait_for_decision(&mut self, connection: &mut Connection) {
        connection.blocked = Some(Blocked::Hold);
        self.admission.holds.waiting.push(HeldConnection {
            token: connection.token,
            since: self.now,
            input_bytes: None,
        });
        self.admission.holds.note_due(self.now);
    }

    /// The routes are new: what they lead elsewhere need not wait here. `was_between`: what
    /// [`Core::is_between_routes`] said before.
    pub(crate) fn review_holds(&mut self, was_between: bool) {
        self.admission.holds.caught_up += u64::from(was_between);
        self.release_rerouted();
        self.review_unserved();
        self.admission.holds.changed = true;
    }

    fn release_rerouted(&mut self) {
        let mut held = std::mem::take(&mut self.admission.holds.held);
        let is_over = |partition: PartitionId| {
            !self.router.routes.owner_of(partition).is(self.id) || self.serves(partition)
        };
        held.retain(|&partition, awaits| *awaits == HeldUntil::Decision || !is_over(partition));
        let holds = &mut self.admission.holds;
        holds.held = held;
        holds.changed = true;
        holds.note_idle();
    }

    /// Finds the partitions that the routes lead here and that are not served here: a copy that is activated
    /// after a start, one that was given up before the routes have come.
    pub(crate) fn review_unserved(&mut self) {
        let leads_here = |id: &PartitionId| self.router.routes.owner_of(*id).is(self.id);
        let unserved = self.keyspace.unserved().iter().copied();
        self.admission.holds.unserved = unserved.filter(leads_here).collect();
        self.admission.holds.role_changes = self.keyspace.counters.role_changes;
        self.admission.holds.note_idle();
    }

    /// Lets what waits go on as far as it may, and refuses what has waited too long.
    pub(crate) fn go_on_with_waiting(&mut self, has_room: bool) {
        if self.admission.holds.role_changes != self.keyspace.counters.role_changes {
            self.review_unserved();
            self.admission.holds.changed = true;
        }
        if self.admission.holds.waiting.is_empty() && self.admission.deferred.is_empty() {
            self.admission.holds.changed = false;
            self.admission.holds.due = None;
            return;
        }
        self.note_waiting_input();
        let is_due = self.admission.holds.due.is_some_and(|due| due <= self.now);
        let is_log_behind = self.is_log_behind(self.id);
        let is_ready = self.admission.deferred.take_ready(is_log_behind) || has_room;
        if !std::mem::take(&mut self.admission.holds.changed) && !is_due && !is_ready {
            return;
        }
        self.admission.holds.due = None;
        self.go_on_with_deferred();
        for waiting in std::mem::take(&mut self.admission.holds.waiting) {
            self.go_on_with_connection(&waiting);
        }
        self.note_waiting_input();
        self.admission.holds.note_idle();
        for since in self.admission.deferred.fronts().collect::<Vec<_>>() {
            self.admission.holds.note_due(since);
        }
    }

    /// Notes of connections that wait since this turn how much input does.
    fn note_waiting_input(&mut self) {
        let connections = &mut self.connections;
        for waiting in &mut self.admission.holds.waiting {
            if waiting.input_bytes.is_none() {
                let connection = connections.get_mut(waiting.token);
                waiting.input_bytes = Some(connection.map_or(0, |c| c.input.len()));
            }
        }
    }

    fn go_on_with_connection(&mut self, waiting: &HeldConnection) {
        let Some(mut connection) = self.connections.take(waiting.token) else {
            return;
        };
        if connection.blocked == Some(Blocked::Hold) {
            connection.blocked = None;
            if self.now.saturating_duration_since(waiting.since) >= HELD_MAX {
                self.refuse_held(&mut connection, waiting.input_bytes.unwrap_or(0));
            }
            let input_bytes = connection.input.len();
            connection.needed = 1;
            self.execute_input(&mut connection);
            if connection.blocked == Some(Blocked::Hold) && connection.input.len() == input_bytes {
                self.waits_as_before(waiting);
            }
            connection.drain_if_ended();
        }
        self.put_back(connection);
    }

    /// The connection's next command is still the one that it waited for.
    #[expect(clippy::expect_used, reason = "the caller has looked at who waits")]
    fn waits_as_before(&mut self, waiting: &HeldConnection) {
        let again = self
            .admission
            .holds
            .waiting
            .last_mut()
            .expect("it has just begun");
        let is_refused = self.now.saturating_duration_since(waiting.since) >= HELD_MAX;
        if !is_refused {
            again.since = waiting.since;
            again.input_bytes = waiting.input_bytes;
            self.admission.holds.note_due(waiting.since);
        }
    }

    /// Whether more of a connection's input may be executed in this turn, after `executed` bytes that it does not
    /// know of yet: what is refused need not wait for another.
    pub(crate) fn has_bytes_left(&self, connection: &mut Connection, executed: usize) -> bool {
        executed < connection.turn_bytes_left(self.turn) || self.admission.holds.refusing
    }

    /// Executes the first `input_bytes` of a connection's input, which have waited long enough: what is still
    /// held is refused.
    fn refuse_held(&mut self, connection: &mut Connection, input_bytes: usize) {
        let input = std::mem::take(&mut connection.input);
        let waited = input_bytes.min(input.len());
        self.admission.holds.refusing = true;
        let waiting = input.rest().get(..waited).unwrap_or_default();
        let executed = self.execute_all(connection, waiting);
        self.admission.holds.refusing = false;
        connection.keep_rest(input, executed);
    }
}

#[cfg(test)]
mod tests;
