//! A node's side of the coordinator, without sockets, clock and threads: it registers, heartbeats,
//! counts its lease and keeps the table.
//!
//! ```text
//! waiting -> connecting -> registering <-> joined
//!    ^___________|______________|____________|      refused, closed, silent, not the leader
//! ```
//!
//! A lease counts from when the heartbeat it answers was *sent*, by the node's own clock; that has to
//! be CLOCK_BOOTTIME, which goes on while the machine is suspended.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use ephesus_wire::rng::Rng;
use ephesus_wire::{Epoch, MigrationId, PartitionId};

use crate::command::{ClusterId, Nonce, Registration, StartProof};
use crate::load::{Board, HotKeys, LoadReport};
use crate::migration::{Progress, Step};
use crate::planted::{Bug, Planted};
use crate::protocol::{Answer, HeartbeatAnswer, Request};
use crate::report::Figures;
use crate::state::{HEARTBEAT_TIMEOUT_MS_MIN, MemberStatus, Refusal};
use crate::view::{TableUpdate, View};

mod telling;
mod views;

use views::Views;

/// A coordinator that has not answered for so long is left for another, ms.
pub const ANSWER_MS_MAX: u64 = 300;

/// The same while a connection is opened and no lease would run out meanwhile, ms.
const OPENING_MS_MAX: u64 = 1_500;

/// A node of which a shard has stood still for longer does not register again, ms: with the shortest timeout it gets
/// no lease.
const IDLE_MS_MAX: u64 = HEARTBEAT_TIMEOUT_MS_MIN as u64 / 2;

/// The first and the longest wait before what the table does not show yet is said again, ms; drawn
/// between half of it and all of it, and doubled each time.
const REPEAT_MS: (u64, u64) = (500, 4_000);

/// Between two reports of how far migrations are, ms.
pub const PROGRESS_MS: u64 = 1_000;

/// The first and the longest wait before another coordinator is tried, ms; drawn between half of it
/// and all of it, and doubled once every coordinator was tried.
const BACKOFF_MS: (u64, u64) = (25, 1_000);

/// One connection to a coordinator, as the agent numbers it; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum AgentEvent {
    /// The connection stands, handshake included.
    Connected(ConnectionId),
    /// The connection is gone, or could not be made.
    Closed(ConnectionId),
    /// The coordinator says this.
    Answer(ConnectionId, Answer),
}

/// Something that is to be done.
#[derive(Clone, Debug)]
pub enum AgentAction {
    /// Connect to a coordinator; the outcome is an event.
    Connect {
        /// What the events about it will name.
        connection: ConnectionId,
        /// `host:port`.
        address: String,
    },
    /// Close a connection; no event about it matters any more.
    Close(ConnectionId),
    /// Send this.
    Send(ConnectionId, Request),
    /// The node is a member of this cluster: note that durably before anything is hosted.
    Registered(ClusterId),
    /// This start was accepted: note that durably.
    StartNoted(Nonce),
    /// A heartbeat was answered for the first time: what the coordinator says of the registration itself has come
    /// before, [`AgentAction::StartNoted`] among it.
    Confirmed,
    /// The node is not taken, and tries again. Stop where the refusal says that this is for ever.
    Refused(Refusal),
    /// [`Agent::view`] is a newer one.
    Table,
}

/// What an agent is made with.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// What the node says about itself.
    pub registration: Registration,
    /// What its directory says about its starts, if it does.
    pub start: Option<StartProof>,
    /// Where coordinators are reached, each as `host:port`; more are learned from the table.
    pub coordinators: Vec<String>,
    /// Of the jitter of its retries.
    pub seed: u64,
    /// No earlier start of the node runs any more.
    pub is_sole: bool,
}

/// What all shards of a node have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// They act on this version of the table, or a newer one.
    pub table_version: u64,
    /// Each has begun a turn then or later, ms of the clock of [`Agent::turn`]; none: none serves yet.
    pub turn_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Link {
    Waiting {
        until_ms: u64,
    },
    Connecting {
        connection: ConnectionId,
        since_ms: u64,
    },
    Registering {
        connection: ConnectionId,
        since_ms: u64,
    },
    Joined {
        connection: ConnectionId,
        heartbeat_at_ms: u64,
        /// When the oldest heartbeat without an answer since was sent.
        unanswered_ms: Option<u64>,
    },
}

/// A node's side of the coordinator.
#[derive(Debug)]
pub struct Agent {
    options: AgentOptions,
    rng: Rng,
    link: Link,
    connections: u64,
    /// Where the next connection goes, unless there is a hint.
    turn_of: usize,
    hint: Option<String>,
    /// Where the current connection goes.
    address: String,
    /// The coordinator that was left because it was silent, and when: for a moment others may still
    /// call it the leader.
    silent: Option<(String, u64)>,
    /// Connections since the last success.
    attempts: u32,
    is_started: bool,
    status: Option<MemberStatus>,
    hosted: BTreeMap<PartitionId, Epoch>,
    steps: BTreeMap<MigrationId, Step>,
    /// When it is said next; 0: at once.
    tell_at_ms: u64,
    /// How often it was said since it has changed.
    tellings: u32,
    progress: BTreeMap<MigrationId, Progress>,
    progress_at_ms: u64,
    figures: Figures,
    /// Where heartbeats have the node's load from; none: nowhere yet.
    load: Option<Arc<Mutex<Board>>>,
    pulse: Pulse,
    /// What the last heartbeat said that shards act on.
    told_acted: u64,
    /// The last answer, if there was one, has given no lease.
    is_refused: bool,
    views: Views,
    lease_until_ms: u64,
    /// A heartbeat of this start was answered.
    is_confirmed: bool,
    planted: Planted,
}

impl Agent {
    /// An agent that connects at its first turn.
    ///
    /// # Panics
    /// Without any coordinator.
    #[must_use]
    pub fn new(options: AgentOptions) -> Agent {
        assert!(!options.coordinators.is_empty(), "a coordinator to ask");
        let mut rng = Rng::new(options.seed);
        let turn_of = rng.below(options.coordinators.len() as u64) as usize;
        Agent {
            options,
            rng,
            link: Link::Waiting { until_ms: 0 },
            connections: 0,
            turn_of,
            hint: None,
            address: String::new(),
            silent: None,
            attempts: 0,
            is_started: false,
            status: None,
            hosted: BTreeMap::new(),
            steps: BTreeMap::new(),
            tell_at_ms: 0,
            tellings: 0,
            progress: BTreeMap::new(),
            progress_at_ms: 0,
            figures: Figures::default(),
            load: None,
            pulse: Pulse::default(),
            told_acted: 0,
            is_refused: false,
            views: Views::default(),
            lease_until_ms: 0,
            is_confirmed: false,
            planted: Planted::default(),
        }
    }

    /// Plants a bug, for tests that have to find it.
    #[cfg(any(test, feature = "planted"))]
    pub fn plant(&mut self, bug: Bug) {
        self.planted = Planted::new(bug);
    }

    /// Whether the node may serve what the table says is its own.
    #[must_use]
    pub fn holds_lease(&self, now_ms: u64) -> bool {
        now_ms < self.lease_until_ms
    }

    /// Until when, ms of the clock of [`Agent::turn`].
    #[must_use]
    pub fn lease_until_ms(&self) -> u64 {
        self.lease_until_ms
    }

    /// Members and table, as far as this node knows.
    #[must_use]
    pub fn view(&self) -> Option<&Arc<View>> {
        self.views.newest()
    }

    /// What the coordinator takes this node for; none: not known yet.
    #[must_use]
    pub fn status(&self) -> Option<MemberStatus> {
        self.status
    }

    /// What the coordinator does not know yet may have changed.
    fn tell_anew(&mut self) {
        (self.tell_at_ms, self.tellings) = (0, 0);
    }

    /// The node has recovered its data; said from the next turn on, until it is known.
    pub fn started(&mut self) {
        self.is_started = true;
        self.tell_anew();
    }

    /// The copies that the node hosts, all of them; said from the next turn on, until the table
    /// shows it.
    pub fn set_hosted(&mut self, hosted: BTreeMap<PartitionId, Epoch>) {
        self.hosted = hosted;
        self.tell_anew();
    }

    /// What the node wants to have decided, all of it; said from the next turn on, until the table
    /// shows that it was, or that the migration is over.
    pub fn set_migration_steps(&mut self, steps: BTreeMap<MigrationId, Step>) {
        if self.steps != steps {
            self.steps = steps;
            self.tell_anew();
        }
    }

    /// How far the migrations are that this node is the source of, all of them; said every
    /// [`PROGRESS_MS`].
    pub fn set_migration_progress(&mut self, progress: BTreeMap<MigrationId, Progress>) {
        self.progress = progress;
    }

    /// What the next heartbeats say.
    pub fn set_figures(&mut self, figures: Figures) {
        self.figures = figures;
    }

    /// Where the next heartbeats have the node's load from.
    pub fn set_load(&mut self, load: Arc<Mutex<Board>>) {
        self.load = Some(load);
    }

    /// What the next heartbeat says of the load.
    fn load_report(&self) -> LoadReport {
        let Some(load) = &self.load else {
            return LoadReport::default();
        };
        load.lock().unwrap_or_else(PoisonError::into_inner).report()
    }

    /// The hottest keys, as the coordinator is told them.
    fn hot_keys(&self) -> Request {
        let board = self.load.as_ref();
        let board = board.map(|load| load.lock().unwrap_or_else(PoisonError::into_inner));
        Request::HotKeys {
            node: self.options.registration.node,
            keys: board.map_or_else(HotKeys::default, |board| board.hot_keys().clone()),
        }
    }

    /// What the shards have done, for the next turn.
    pub fn set_pulse(&mut self, pulse: Pulse) {
        self.pulse = pulse;
    }

    /// For how long the shard that is furthest behind has not begun a turn, ms.
    fn idle_ms(&self, now_ms: u64) -> u64 {
        let turn_ms = self.pulse.turn_ms;
        turn_ms.map_or(0, |turn_ms| now_ms.saturating_sub(turn_ms))
    }

    /// When the next turn is due at the latest.
    #[must_use]
    pub fn next_turn_ms(&self) -> u64 {
        match self.link {
            Link::Waiting { until_ms } => until_ms,
            Link::Connecting { since_ms, .. } | Link::Registering { since_ms, .. } => {
                since_ms + self.opening_ms_max(since_ms)
            }
            Link::Joined {
                heartbeat_at_ms,
                unanswered_ms,
                ..
            } => {
                let silent = unanswered_ms.map_or(u64::MAX, |since| since + ANSWER_MS_MAX);
                let repeat = match self.tell_at_ms {
                    0 => 0,
                    _ if self.untold().is_empty() => u64::MAX,
                    at_ms => at_ms,
                };
                let progress = if self.progress.is_empty() {
                    u64::MAX
                } else {
                    self.progress_at_ms
                };
                heartbeat_at_ms.min(silent).min(repeat).min(progress)
            }
        }
    }

    /// Takes what has happened, and answers what to do. `now_ms` is CLOCK_BOOTTIME.
    pub fn turn(
        &mut self,
        events: impl IntoIterator<Item = AgentEvent>,
        now_ms: u64,
    ) -> Vec<AgentAction> {
        let mut actions = Vec::new();
        for event in events {
            self.take(event, now_ms, &mut actions);
        }
        self.pass(now_ms, &mut actions);
        actions
    }

    fn connection(&self) -> Option<ConnectionId> {
        match self.link {
            Link::Waiting { .. } => None,
            Link::Connecting { connection, .. }
            | Link::Registering { connection, .. }
            | Link::Joined { connection, .. } => Some(connection),
        }
    }

    fn take(&mut self, event: AgentEvent, now_ms: u64, actions: &mut Vec<AgentAction>) {
        let (AgentEvent::Connected(connection)
        | AgentEvent::Closed(connection)
        | AgentEvent::Answer(connection, _)) = event;
        if self.connection() != Some(connection) {
            return;
        }
        match event {
            AgentEvent::Connected(_) => {
                if matches!(self.link, Link::Connecting { .. }) {
                    self.register(connection, now_ms, actions);
                }
            }
            AgentEvent::Closed(_) => self.retry(now_ms, actions),
            AgentEvent::Answer(_, answer) => self.answered(connection, answer, now_ms, actions),
        }
    }

    fn register(&mut self, connection: ConnectionId, now_ms: u64, actions: &mut Vec<AgentAction>) {
        let registration = self.options.registration.clone();
        let request = match self.options.start {
            Some(start) => Request::RegisterStart {
                registration,
                start,
            },
            None => Request::Register(registration),
        };
        actions.push(AgentAction::Send(connection, request));
        self.link = Link::Registering {
            connection,
            since_ms: now_ms,
        };
    }

    fn answered(
        &mut self,
        connection: ConnectionId,
        answer: Answer,
        now_ms: u64,
        actions: &mut Vec<AgentAction>,
    ) {
        match answer {
            Answer::Registered {
                cluster,
                incarnation,
            } => {
                let is_awaited = matches!(self.link, Link::Registering { .. })
                    && incarnation == self.options.registration.incarnation;
                if is_awaited {
                    if self.options.registration.cluster != Some(cluster) {
                        self.options.registration.cluster = Some(cluster);
                        actions.push(AgentAction::Registered(cluster));
                    }
                    self.attempts = 0;
                    self.tell_anew();
                    self.link = Link::Joined {
                        connection,
                        heartbeat_at_ms: now_ms,
                        unanswered_ms: None,
                    };
                }
            }
            Answer::StartNoted(nonce) => {
                if self.options.start.is_some_and(|start| start.nonce == nonce) {
                    actions.push(AgentAction::StartNoted(nonce));
                }
            }
            Answer::Refused(refusal) => {
                actions.push(AgentAction::Refused(refusal));
                self.retry(now_ms, actions);
            }
            Answer::NotLeader(leader) => {
                let hint = leader.map(|(_, address)| address);
                self.hint = hint.filter(|hint| !self.is_silent(hint, now_ms));
                if now_ms < self.lease_until_ms {
                    // The next leader has to be found before the lease runs out.
                    self.attempts = self.attempts.min(self.addresses().len() as u32);
                }
                self.retry(now_ms, actions);
            }
            Answer::Heartbeat(answer) => self.heard(connection, answer, now_ms, actions),
            Answer::Table(update) => {
                if self.update(*update) {
                    self.tell_anew();
                    // Of several in one turn the newest is enough.
                    if !actions.iter().any(|a| matches!(a, AgentAction::Table)) {
                        actions.push(AgentAction::Table);
                    }
                }
            }
            Answer::TellHotKeys => {
                let request = self.hot_keys();
                actions.push(AgentAction::Send(connection, request));
            }
            Answer::Operator { .. } => {}
        }
    }

    fn heard(
        &mut self,
        connection: ConnectionId,
        answer: HeartbeatAnswer,
        now_ms: u64,
        actions: &mut Vec<AgentAction>,
    ) {
        let is_own = answer.incarnation == self.options.registration.incarnation;
        let Link::Joined { unanswered_ms, .. } = &mut self.link else {
            return;
        };
        if !is_own || answer.sent_ms > now_ms {
            return;
        }
        *unanswered_ms = None;
        self.status = answer.status;
        if answer.status.is_some() && !mem::replace(&mut self.is_confirmed, true) {
            actions.push(AgentAction::Confirmed);
        }
        let until_ms = answer.sent_ms + u64::from(answer.lease_ms);
        self.lease_until_ms = self.lease_until_ms.max(until_ms);
        self.is_refused = answer.lease_ms == 0;
        // One that stands still would be counted as failed again.
        let is_out = matches!(answer.status, None | Some(MemberStatus::Failed));
        if is_out && self.idle_ms(now_ms) < IDLE_MS_MAX {
            self.register(connection, now_ms, actions);
        }
    }

    /// Brings the view up to date; whether there is a newer one.
    ///
    /// An update that does not fit is dropped: heartbeats say which version is there, and the leader
    /// sends what fits it.
    fn update(&mut self, update: TableUpdate) -> bool {
        let held = self.views.version();
        match update {
            TableUpdate::Full(view) => {
                let count = |view: &View| view.table.entries.len();
                let is_other = |held: &Arc<View>| count(held) != count(&view);
                let is_other = self.views.newest().is_some_and(is_other);
                if view.version() <= held || is_other || view.check().is_err() {
                    return false;
                }
                self.views.replace(view);
                true
            }
            TableUpdate::Delta(delta) if delta.to <= held => false,
            TableUpdate::Delta(delta) if self.planted.has(Bug::WrongBase) => {
                self.views.update_unchecked(delta).is_ok()
            }
            TableUpdate::Delta(delta) => self.views.update(delta).is_ok(),
        }
    }

    /// Leaves the current connection, for the one that was hinted at or the next.
    fn retry(&mut self, now_ms: u64, actions: &mut Vec<AgentAction>) {
        if let Some(connection) = self.connection() {
            actions.push(AgentAction::Close(connection));
        }
        let delay_ms = if self.attempts == 0 {
            0
        } else {
            let rounds = (self.attempts / self.addresses().len() as u32).min(16);
            // A hint is most likely right, except for a moment after the leader was lost.
            let rounds = if self.hint.is_some() {
                rounds / 4
            } else {
                rounds
            };
            let longest = (BACKOFF_MS.0 << rounds).min(BACKOFF_MS.1);
            longest / 2 + self.rng.below(longest / 2 + 1)
        };
        self.attempts = self.attempts.saturating_add(1);
        self.link = Link::Waiting {
            until_ms: now_ms + delay_ms,
        };
    }

    /// Where coordinators are reached: what the node was started with, and what the table says.
    fn addresses(&self) -> Vec<String> {
        let known = self
            .view()
            .into_iter()
            .flat_map(|view| view.coordinators.values());
        let mut addresses: Vec<String> = known.cloned().collect();
        for address in &self.options.coordinators {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        addresses
    }

    /// How long a connection that was begun then may take until the node is let in.
    fn opening_ms_max(&self, since_ms: u64) -> u64 {
        if since_ms < self.lease_until_ms {
            ANSWER_MS_MAX
        } else {
            OPENING_MS_MAX
        }
    }

    fn pass(&mut self, now_ms: u64, actions: &mut Vec<AgentAction>) {
        let waits = match self.link {
            Link::Connecting { since_ms, .. } | Link::Registering { since_ms, .. } => {
                Some((since_ms, self.opening_ms_max(since_ms)))
            }
            Link::Joined { unanswered_ms, .. } => unanswered_ms.map(|since| (since, ANSWER_MS_MAX)),
            Link::Waiting { .. } => None,
        };
        if waits.is_some_and(|(since, most)| now_ms.saturating_sub(since) >= most) {
            self.leave(now_ms, actions);
        }
        match self.link {
            Link::Waiting { until_ms } if now_ms >= until_ms => self.connect(now_ms, actions),
            Link::Joined { connection, .. } => self.speak(connection, now_ms, actions),
            _ => {}
        }
    }

    /// Whether a coordinator was left just now because it was silent.
    fn is_silent(&self, address: &str, now_ms: u64) -> bool {
        let is_recent = |at_ms: u64| now_ms.saturating_sub(at_ms) < ANSWER_MS_MAX;
        let silent = self.silent.as_ref();
        silent.is_some_and(|(silent, at_ms)| silent == address && is_recent(*at_ms))
    }

    /// Leaves a coordinator that does not answer.
    fn leave(&mut self, now_ms: u64, actions: &mut Vec<AgentAction>) {
        self.silent = Some((self.address.clone(), now_ms));
        self.retry(now_ms, actions);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "an agent has at least one coordinator to ask"
    )]
    fn connect(&mut self, now_ms: u64, actions: &mut Vec<AgentAction>) {
        let address = self.hint.take().unwrap_or_else(|| {
            let addresses = self.addresses();
            self.turn_of += 1;
            let mut next = &addresses[self.turn_of % addresses.len()];
            if self.is_silent(next, now_ms) {
                self.turn_of += 1;
                next = &addresses[self.turn_of % addresses.len()];
            }
            next.clone()
        });
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.address.clone_from(&address);
        actions.push(AgentAction::Connect {
            connection,
            address,
        });
        self.link = Link::Connecting {
            connection,
            since_ms: now_ms,
        };
    }
}

#[cfg(test)]
mod tests;
