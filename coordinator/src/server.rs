//! A coordinator with its sockets, clock and disk: carries out what [`Coordinator`] decides.
//!
//! ```text
//! Listener -> Sessions -> inbox -> Coordinator::turn -> Sessions (answers), Peers (raft)
//! ```
//!
//! Everything is on one glommio executor: one task turns the coordinator, one per link reads it, one
//! per other coordinator writes to it.

mod clock;
pub mod error;
pub mod force;
mod home;
pub mod inbox;
mod met;
mod peers;
mod planner;
mod refusals;
mod sessions;
mod stop;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ephesus_wal::dir::DirError;
use ephesus_wal::{Durability, GlommioDisk, LogOptions, WalError};
use ephesus_wire::NodeId;
use ephesus_wire::handshake::{Identity, LinkRole, Secret};
use glommio::{LocalExecutorBuilder, Placement};

pub use error::ServerError;
pub use home::{Empty, is_stamp};

use crate::command::{ClusterId, ClusterOptions, RaftId};
use crate::coordinator::{
    Action, Balance, Coordinator, CoordinatorOptions, Event, Founding, TICK_MS,
};
use crate::link::{Counters, Dialer, LinkOptions, ListenOptions, Listener};
use crate::member::{ELECTION_TICKS, founding};
use crate::protocol::{self, encode_raft, kind};
use crate::scheduling::{keep_awake, prefer_short_slices};
use crate::sole_node::SoleNode;
use crate::storage::RaftLog;
use crate::storage::StorageError;
use clock::Clock;
use home::Home;
use inbox::Inbox;
use met::Met;
pub use peers::LETTERS_MAX;
use peers::{Doorbells, Peers};
use planner::Planner;
use refusals::RefusalReport;
use sessions::Sessions;
use stop::Stop;

/// Open links: of a thousand nodes, also while those of before a cut of the network are not noticed to be gone.
const LINKS_MAX: usize = 8192;

/// Connections whose handshake is under way: a thousand nodes dial at the same moment when another one leads, and
/// whoever comes too late may lose its lease.
const HANDSHAKES_MAX: usize = 2048;

/// How long a leader that is to stop waits for its successor, and how often it names one, ms.
const HAND_OVER_MAX_MS: u64 = 1_000;
const HAND_OVER_AGAIN_MS: u64 = (ELECTION_TICKS as u64 + 1) * TICK_MS;

/// Bytes of a segment of the raft log.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Longest time that ready tasks may be overlooked.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(100);

/// Memory that glommio registers for direct I/O: what it takes by itself is more than the usual
/// RLIMIT_MEMLOCK allows.
const EXECUTOR_IO_BYTES: usize = 256 << 10;

const EXECUTOR_RING_DEPTH: usize = 128;

/// What a coordinator's executor is made with: on any CPU.
#[must_use]
pub fn executor() -> LocalExecutorBuilder {
    LocalExecutorBuilder::new(Placement::Unbound)
        .name("coordinator")
        .io_memory(EXECUTOR_IO_BYTES)
        .ring_depth(EXECUTOR_RING_DEPTH)
}

/// The bounds of a coordinator's port.
pub(crate) fn listen_options() -> ListenOptions {
    ListenOptions {
        links_max: LINKS_MAX,
        handshakes_max: HANDSHAKES_MAX,
        ..ListenOptions::default()
    }
}

/// What a coordinator is started with.
#[derive(Debug)]
pub struct ServerOptions {
    /// Its number.
    pub id: RaftId,
    /// Its port.
    pub port: TcpListener,
    /// Where the coordinators are reached, itself included, as `host:port`.
    pub peers: BTreeMap<RaftId, String>,
    /// Its directory.
    pub data_dir: PathBuf,
    /// What an empty directory is to become.
    pub empty: Empty,
    /// The layout of a cluster that it founds.
    pub layout: ClusterOptions,
    /// What all links have to prove.
    pub secret: Option<Secret>,
    /// Whether it balances the cluster of its own accord while it leads, and by what.
    pub auto_rebalance: Option<Balance>,
    /// How many migrations of rebalances and drains may be under way at a time while it leads.
    pub moves_max: u32,
    /// The node in whose process it is, if it is in one.
    pub host: Option<NodeId>,
}

/// Why a coordinator has ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// It is no coordinator any more.
    Removed,
}

/// A coordinator that is ready to run.
pub struct Server {
    coordinator: Coordinator<GlommioDisk>,
    inbox: Inbox,
    planner: Planner,
    sessions: Rc<Sessions>,
    peers: Peers,
    listener: Rc<Listener>,
    dialer: Rc<Dialer>,
    identity: Identity,
    clock: Clock,
    alone: SoleNode,
    met: Rc<Met>,
    refusals: RefusalReport,
    _home: Home,
}

impl Server {
    /// Recovers what the directory holds and opens the port; call it on the executor that is to run
    /// the coordinator.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn start(options: ServerOptions) -> Result<Server, ServerError> {
        let (id, peers) = (options.id, &options.peers);
        if !peers.contains_key(&id) {
            return Err(ServerError::NotAmongPeers(id));
        }
        // Votes and leases have to be in time on a machine that is saturated, too, and with them the log, which the
        // executor's other thread writes.
        prefer_short_slices();
        glommio::executor()
            .spawn_blocking(prefer_short_slices)
            .await;
        let clock = Clock::start();
        let home = Home::open(&options.data_dir, id, options.empty)?;
        let log_dir = home.log_dir()?;
        let disk = GlommioDisk::new(&log_dir, Durability::Strict);
        let disk = disk.map_err(DirError::of("read", &log_dir))?;
        let log_options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            is_begun: true,
            ..LogOptions::new(home.log)
        };
        let log = RaftLog::open(disk, &log_options, clock.wall_ms()).await;
        let mut log = log.map_err(|error| match error {
            StorageError::Wal(WalError::LostLog) => ServerError::NoLog(log_dir.clone()),
            error => error.into(),
        })?;
        let is_lost = match options.empty {
            Empty::Refused => true,
            Empty::Founds => home.has_met(),
            Empty::Joins => false,
        };
        if is_lost && log.is_new() {
            return Err(ServerError::NoLog(log_dir));
        }
        if options.empty == Empty::Founds && log.is_new() {
            let voters: Vec<RaftId> = peers.keys().copied().collect();
            log.persist(&founding(&voters), clock.wall_ms()).await?;
        }
        let (mut random, mut cluster_id) = ([[0; 8]; 2], [0; 16]);
        for bytes in [random.as_flattened_mut(), &mut cluster_id] {
            getrandom::fill(bytes).map_err(ServerError::Random)?;
        }
        let [life, seed] = random;
        let founding = (options.empty == Empty::Founds).then_some(Founding {
            cluster: ClusterId(cluster_id),
            options: options.layout,
        });
        let coordinator_options = CoordinatorOptions {
            founding,
            auto_rebalance: options.auto_rebalance,
            moves_max: options.moves_max,
            host: options.host,
            ..CoordinatorOptions::new(id, peers.clone(), u64::from_le_bytes(life))
        };
        let coordinator = Coordinator::new(coordinator_options, log)?;
        let identity = Identity {
            cluster: coordinator.state().cluster().map(|cluster| cluster.0),
            raft_id: id.0,
            ..protocol::identity(LinkRole::Coordinator, home.uuid)
        };
        let counters = Arc::new(Counters::default());
        let listener = Listener::new(
            options.port,
            identity,
            options.secret.clone(),
            listen_options(),
            Arc::clone(&counters),
        );
        let listener = Rc::new(listener.map_err(DirError::of("listen for", &options.data_dir))?);
        let refusals = RefusalReport::new(Arc::clone(&counters));
        let dialer = Dialer::new(identity, options.secret, LinkOptions::default(), counters);
        let dialer = Rc::new(dialer);
        let doorbells = Rc::<Doorbells>::default();
        let (requests, inbox) = inbox::inbox();
        let met = Met::read(home.path(), (id, home.uuid), requests.0.clone())?;
        met.set_known(coordinator.ids());
        let planner = Planner::new(requests.1.clone());
        let sessions = Sessions::new(requests, Rc::clone(&doorbells), Rc::clone(&met));
        let seed = u64::from_le_bytes(seed);
        Ok(Server {
            coordinator,
            inbox,
            planner,
            sessions,
            peers: Peers::new(Rc::clone(&dialer), seed, Rc::clone(&met), doorbells),
            met,
            refusals,
            listener,
            dialer,
            identity,
            clock,
            alone: SoleNode::default(),
            _home: home,
        })
    }

    /// The coordinator inside.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator<GlommioDisk> {
        &self.coordinator
    }

    /// Says whether this is the only coordinator.
    #[must_use]
    pub fn alone(&self) -> SoleNode {
        self.alone.clone()
    }

    /// Runs until `stop` is ready or the coordinator was removed; a leader that is to stop hands over
    /// before.
    ///
    /// # Errors
    /// [`ServerError`]: end the process.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<Ended, ServerError> {
        let heartbeat = keep_awake(HEARTBEAT);
        let accepting = Rc::clone(&self.sessions).accept_all(Rc::clone(&self.listener));
        let accepting = glommio::spawn_local(accepting);
        let ended = self.turns(pin!(stop)).await;
        self.refusals.finish();
        accepting.cancel().await;
        heartbeat.cancel().await;
        ended
    }

    async fn turns(
        &mut self,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Ended, ServerError> {
        let mut stop = Stop::new(stop);
        loop {
            let stopped = async {
                stop.told().await;
                None
            };
            let happened = async { Some(self.next_events().await) };
            // Never in the middle of a turn, unless that waits.
            let turned = match futures_lite::future::or(stopped, happened).await {
                Some(events) => stop.bound(self.turn(events)).await,
                None => {
                    let handed_over = stop.bound(self.hand_over()).await;
                    return handed_over.unwrap_or(Ok(())).map(|()| Ended::Stopped);
                }
            };
            let Some(turned) = turned else {
                tracing::warn!("stopped while the log waited for its disk");
                return Ok(Ended::Stopped);
            };
            turned?;
            if self.coordinator.is_removed() {
                return Ok(Ended::Removed);
            }
        }
    }

    async fn turn(&mut self, mut events: Vec<Event>) -> Result<(), ServerError> {
        let (now_ms, wall_ms) = (self.clock.now_ms(), self.clock.wall_ms());
        events.extend(self.met.introduced());
        events.extend(self.tell_refusals(now_ms));
        let Server {
            coordinator,
            peers,
            sessions,
            planner,
            ..
        } = self;
        let send = |action| carry_out(action, sessions, peers, planner);
        let actions = coordinator.turn(events, now_ms, wall_ms, send).await?;
        for action in actions {
            carry_out(action, &self.sessions, &mut self.peers, &mut self.planner);
        }
        self.introduce();
        // In time where another one votes from now on: it leads only with this one's vote, in a later turn. And where
        // another node has joined: only later turns give it what the first one has.
        let has_one_node = self.coordinator.has_only_its_host();
        self.alone.set(self.coordinator.is_alone() && has_one_node);
        Ok(())
    }

    /// Says now and then what was refused at the port, to the leader as well.
    fn tell_refusals(&mut self, now_ms: u64) -> Option<Event> {
        let refusals = self.refusals.due(now_ms)?;
        let member = self.coordinator.member();
        let own = member.id();
        let leader = member.leader().filter(|id| *id != own);
        let address = leader.and_then(|id| self.coordinator.address(id));
        if let (Some(leader), Some(address)) = (leader, address) {
            match refusals.encode() {
                Ok(payload) => {
                    let address = address.to_owned();
                    self.peers.send(leader, address, kind::REFUSALS, payload);
                }
                Err(error) => tracing::error!(%error, "what was refused cannot be said"),
            }
        }
        Some(Event::Refused(own, refusals))
    }

    /// Waits until another member leads, if this one does and there is another.
    async fn hand_over(&mut self) -> Result<(), ServerError> {
        let member = self.coordinator.member();
        if !member.is_leader() || member.voters().len() == 1 {
            return Ok(());
        }
        let own = member.id();
        let began_ms = self.clock.now_ms();
        let mut asked = 0;
        let mut events = Vec::new();
        loop {
            let waited_ms = self.clock.now_ms() - began_ms;
            if waited_ms >= HAND_OVER_MAX_MS {
                break;
            }
            // Whoever was asked first may have gone as well: raft gives up after a while.
            if waited_ms >= asked * HAND_OVER_AGAIN_MS {
                asked += 1;
                events.push(Event::StepAside);
            }
            self.turn(events).await?;
            let leader = self.coordinator.member().leader();
            if let Some(next) = leader.filter(|id| *id != own) {
                tracing::info!(coordinator = %next, "leads from now on");
                return Ok(());
            }
            events = self.next_events().await;
        }
        tracing::warn!("nobody has taken over the lead");
        Ok(())
    }

    /// What has happened by the next turn.
    async fn next_events(&self) -> Vec<Event> {
        // Whatever is there: what the last turn has sent, and what links have to say, goes in between.
        glommio::executor().yield_now().await;
        let wait_ms = self
            .coordinator
            .next_turn_ms()
            .saturating_sub(self.clock.now_ms());
        let room = self.coordinator.room();
        let mut events = self.inbox.take(room);
        if events.is_empty() && wait_ms > 0 {
            let late = async {
                glommio::timer::sleep(Duration::from_millis(wait_ms)).await;
                None
            };
            events.extend(futures_lite::future::or(self.inbox.first(room), late).await);
            events.append(&mut self.inbox.take(room));
        }
        events
    }

    /// Says on new links which cluster this is, once that is decided, and forgets removed peers.
    fn introduce(&mut self) {
        let cluster = self.coordinator.state().cluster().map(|cluster| cluster.0);
        if self.identity.cluster != cluster {
            self.identity.cluster = cluster;
            self.listener.set_identity(self.identity);
            self.dialer.set_identity(self.identity);
        }
        let coordinator = &self.coordinator;
        self.met.set_known(coordinator.ids());
        self.peers.retain(|id| coordinator.address(id).is_some());
    }
}

fn carry_out(action: Action, sessions: &Sessions, peers: &mut Peers, planner: &mut Planner) {
    match action {
        Action::Plan(job) => planner.make(*job),
        Action::Answer(session, answer) => sessions.answer(session, &answer),
        Action::AnswerAll(to, answer) => sessions.answer_all(&to, &answer),
        Action::Close(session) => sessions.close(session),
        Action::Raft {
            to,
            address: Some(address),
            message,
        } => match encode_raft(&message) {
            Ok(payload) => peers.send(to, address, kind::RAFT, payload),
            Err(error) => tracing::error!(%error, coordinator = %to, "a message is lost"),
        },
        Action::Coordinators {
            to,
            address,
            coordinators,
        } => match coordinators.encode() {
            Ok(payload) => peers.send(to, address, kind::COORDINATORS, payload),
            Err(error) => tracing::error!(%error, "where coordinators are cannot be said"),
        },
        Action::Raft { to, .. } => {
            tracing::debug!(coordinator = %to, "no address is known");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
