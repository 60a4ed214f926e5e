//! A node's membership at work: an [`Agent`] with its links and clock, on a thread of its own.
//!
//! The thread is apart from the shards so that a saturated node heartbeats in time; it asks the
//! scheduler for short slices, which lets it run as soon as it wakes (EEVDF, Linux 6.12 on).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ephesus_wire::handshake::{HandshakeError, Identity, LinkRole, Secret};
use ephesus_wire::{Epoch, MigrationId, PartitionId};
use futures_lite::future::{or, pending};
use glommio::{LocalExecutorBuilder, Placement};

use crate::agent::{Agent, AgentAction, AgentEvent, AgentOptions, ConnectionId};
use crate::command::{ClusterId, Nonce};
use crate::lease::Lease;
use crate::link::{Dialer, Link, LinkError, LinkOptions, Sender};
use crate::load::Board;
use crate::migration::{Progress, Step};
use crate::protocol::{self, Answer, Request, kind};
use crate::report::Figures;
use crate::scheduling::{keep_awake, prefer_short_slices};
use crate::server::HEARTBEAT;
use crate::sole_node::SoleNode;
use crate::state::Refusal;
use crate::view::View;

/// Memory that glommio registers for the executor's file I/O, of which there is none.
const IO_BYTES: usize = 128 << 10;

const RING_DEPTH: usize = 64;

/// What the node has to know of.
#[derive(Clone, Debug)]
pub enum MembershipEvent {
    /// The node is a member: note the cluster durably before anything is hosted.
    Registered(ClusterId),
    /// This start of the node was accepted: note that durably.
    StartNoted(Nonce),
    /// All that the coordinators say of this start has been told; once.
    Confirmed,
    /// The node is not taken, and tries again; stop where the refusal says that this is for ever.
    Refused(Refusal),
    /// What is at this address and the node do not belong together, as the error tells; it is tried
    /// again.
    Mismatch {
        /// As it was given, or learned from the table.
        address: String,
        /// What does not fit.
        error: HandshakeError,
    },
    /// There is a newer table.
    Table(Arc<View>),
}

enum Order {
    Started,
    Hosted(BTreeMap<PartitionId, Epoch>),
    Figures(Figures),
    Load(Arc<Mutex<Board>>),
    Steps(BTreeMap<MigrationId, Step>),
    Progress(BTreeMap<MigrationId, Progress>),
}

#[derive(Debug)]
struct Shared {
    lease: Lease,
    view: Mutex<Option<Arc<View>>>,
}

/// A node's membership, as the rest of the node sees it; it ends when this is dropped.
#[derive(Debug)]
pub struct Membership {
    shared: Arc<Shared>,
    orders: Option<flume::Sender<Order>>,
    events: flume::Receiver<MembershipEvent>,
    thread: Option<JoinHandle<()>>,
}

impl Membership {
    /// Starts the thread, which registers the node and keeps it registered; `alone` is of the
    /// coordinator in this process, if there is one.
    ///
    /// # Errors
    /// When the operating system has no more threads.
    pub fn start(
        options: AgentOptions,
        secret: Option<Secret>,
        alone: Option<SoleNode>,
    ) -> io::Result<Membership> {
        let (lease, rings) = Lease::new(options.registration.shards, alone);
        let shared = Arc::new(Shared {
            lease,
            view: Mutex::new(None),
        });
        let (orders, ordered) = flume::unbounded();
        let (events, happened) = flume::unbounded();
        let told = Arc::clone(&shared);
        let builder = LocalExecutorBuilder::new(Placement::Unbound)
            .name("membership")
            .io_memory(IO_BYTES)
            .ring_depth(RING_DEPTH);
        let run = move || match builder.make() {
            Ok(executor) => {
                // Leases have to be renewed in time on a machine that is saturated, too, and clients whose commands are
                // held wait for tables.
                prefer_short_slices();
                executor.run(serve(options, secret, told, (ordered, rings), events));
            }
            Err(error) => {
                tracing::error!(%error, "no executor for heartbeats; stopping");
                std::process::exit(1);
            }
        };
        let thread = std::thread::Builder::new()
            .name("membership".into())
            .spawn(run)?;
        Ok(Membership {
            shared,
            orders: Some(orders),
            events: happened,
            thread: Some(thread),
        })
    }

    /// Whether the node may serve what the table says is its own.
    #[must_use]
    pub fn holds_lease(&self) -> bool {
        self.shared.lease.holds()
    }

    /// [`Membership::holds_lease`] for another thread.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.shared.lease.clone()
    }

    /// Members and table, as far as this node knows.
    #[must_use]
    pub fn view(&self) -> Option<Arc<View>> {
        let view = self.shared.view.lock();
        view.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What has happened; wait on it or look now and then.
    #[must_use]
    pub fn events(&self) -> &flume::Receiver<MembershipEvent> {
        &self.events
    }

    /// The node has recovered its data.
    pub fn started(&self) {
        self.order(Order::Started);
    }

    /// The copies that the node hosts, all of them.
    pub fn set_hosted(&self, hosted: BTreeMap<PartitionId, Epoch>) {
        self.order(Order::Hosted(hosted));
    }

    /// What the next heartbeats say.
    pub fn set_figures(&self, figures: Figures) {
        self.order(Order::Figures(figures));
    }

    /// Where the next heartbeats have the node's load from.
    pub fn set_load(&self, load: Arc<Mutex<Board>>) {
        self.order(Order::Load(load));
    }

    /// What the node wants to have decided about migrations, all of it; see
    /// [`Agent::set_migration_steps`].
    pub fn set_migration_steps(&self, steps: BTreeMap<MigrationId, Step>) {
        self.order(Order::Steps(steps));
    }

    /// How far the migrations are that this node is the source of, all of them.
    pub fn set_migration_progress(&self, progress: BTreeMap<MigrationId, Progress>) {
        self.order(Order::Progress(progress));
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The thread lives as long as this.
            let _ = orders.send(order);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // It has panicked if this fails, and said so.
            let _ = thread.join();
        }
    }
}

/// Time since the machine has started, suspended or not, ms.
#[must_use]
pub fn boottime_ms() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure, which is this function's own.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Links of the agent.
struct Links {
    dialer: Dialer,
    events: flume::Sender<AgentEvent>,
    senders: RefCell<BTreeMap<ConnectionId, Sender>>,
    /// Closed before they were open.
    unwanted: RefCell<Vec<ConnectionId>>,
    told: flume::Sender<MembershipEvent>,
}

async fn serve(
    options: AgentOptions,
    secret: Option<Secret>,
    shared: Arc<Shared>,
    (orders, rings): (flume::Receiver<Order>, flume::Receiver<()>),
    told: flume::Sender<MembershipEvent>,
) {
    keep_awake(HEARTBEAT).detach();
    let registration = &options.registration;
    let mut identity = Identity {
        cluster: registration.cluster.map(|cluster| cluster.0),
        ..protocol::identity(LinkRole::Node, registration.node)
    };
    let (events, inbox) = flume::unbounded();
    let links = Rc::new(Links {
        dialer: Dialer::new(identity, secret, LinkOptions::default(), Arc::default()),
        events,
        senders: RefCell::default(),
        unwanted: RefCell::default(),
        told: told.clone(),
    });
    let mut agent = Agent::new(options);
    loop {
        let Some((ordered, events)) = next(&agent, &orders, &rings, &inbox).await else {
            return;
        };
        for order in ordered {
            match order {
                Order::Started => agent.started(),
                Order::Hosted(copies) => agent.set_hosted(copies),
                Order::Figures(figures) => agent.set_figures(figures),
                Order::Load(load) => agent.set_load(load),
                Order::Steps(steps) => agent.set_migration_steps(steps),
                Order::Progress(progress) => agent.set_migration_progress(progress),
            }
        }
        agent.set_pulse(shared.lease.pulse());
        for action in agent.turn(events, boottime_ms()) {
            match action {
                AgentAction::Connect {
                    connection,
                    address,
                } => {
                    glommio::spawn_local(Rc::clone(&links).open(connection, address)).detach();
                }
                AgentAction::Close(connection) => links.close(connection),
                AgentAction::Send(connection, request) => links.send(connection, &request),
                AgentAction::Registered(cluster) => {
                    identity.cluster = Some(cluster.0);
                    links.dialer.set_identity(identity);
                    let _ = told.send(MembershipEvent::Registered(cluster));
                }
                AgentAction::StartNoted(nonce) => {
                    let _ = told.send(MembershipEvent::StartNoted(nonce));
                }
                AgentAction::Confirmed => {
                    let _ = told.send(MembershipEvent::Confirmed);
                }
                AgentAction::Refused(refusal) => {
                    let _ = told.send(MembershipEvent::Refused(refusal));
                }
                AgentAction::Table => {
                    if let Some(view) = agent.view() {
                        let current = shared.view.lock();
                        *current.unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(view));
                        let _ = told.send(MembershipEvent::Table(Arc::clone(view)));
                    }
                }
            }
        }
        shared.lease.set_until_ms(agent.lease_until_ms());
    }
}

/// What was ordered and what has happened by the agent's next turn; none when the node has let go.
async fn next(
    agent: &Agent,
    orders: &flume::Receiver<Order>,
    rings: &flume::Receiver<()>,
    inbox: &flume::Receiver<AgentEvent>,
) -> Option<(Vec<Order>, Vec<AgentEvent>)> {
    enum Next {
        Order(Option<Order>),
        Event(Option<AgentEvent>),
        Rung,
        Late,
    }
    let wait_ms = agent.next_turn_ms().saturating_sub(boottime_ms());
    let ordered = async { Next::Order(orders.recv_async().await.ok()) };
    let rung = async {
        match rings.recv_async().await {
            Ok(()) => Next::Rung,
            // The node lets go, as the orders say.
            Err(_) => pending().await,
        }
    };
    let happened = async { Next::Event(inbox.recv_async().await.ok()) };
    let late = async {
        glommio::timer::sleep(Duration::from_millis(wait_ms)).await;
        Next::Late
    };
    let (mut ordered, mut events) = match or(ordered, or(happened, or(rung, late))).await {
        Next::Order(None) => return None,
        Next::Order(Some(order)) => (vec![order], vec![]),
        Next::Event(event) => (vec![], event.into_iter().collect()),
        Next::Rung | Next::Late => (vec![], vec![]),
    };
    ordered.extend(orders.try_iter());
    events.extend(inbox.try_iter());
    Some((ordered, events))
}

impl Links {
    async fn open(self: Rc<Self>, connection: ConnectionId, address: String) {
        let link = self.dialer.dial(&address).await;
        let is_wanted = {
            let mut unwanted = self.unwanted.borrow_mut();
            let before = unwanted.len();
            unwanted.retain(|closed| *closed != connection);
            unwanted.len() == before
        };
        match link {
            Ok(link) if is_wanted => {
                self.senders.borrow_mut().insert(connection, link.sender());
                self.tell(AgentEvent::Connected(connection));
                self.read(connection, link).await;
                self.senders.borrow_mut().remove(&connection);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%address, %error, "no coordinator there");
                if let LinkError::Handshake(error) = error {
                    // The node may have let go.
                    let _ = self.told.send(MembershipEvent::Mismatch { address, error });
                }
            }
        }
        self.tell(AgentEvent::Closed(connection));
    }

    async fn read(&self, connection: ConnectionId, mut link: Link) {
        loop {
            let message = match link.recv().await {
                Ok(message) => message,
                Err(error) => {
                    tracing::debug!(address = %link.address(), %error, "link ended");
                    return;
                }
            };
            match message.kind {
                kind::ALIVE => {}
                kind::ANSWER => match Answer::decode(&message.payload) {
                    Ok(answer) => self.tell(AgentEvent::Answer(connection, answer)),
                    Err(error) => {
                        tracing::warn!(address = %link.address(), %error, "link closed");
                        return;
                    }
                },
                kind => {
                    tracing::warn!(address = %link.address(), kind, "link closed: unknown message");
                    return;
                }
            }
        }
    }

    fn send(&self, connection: ConnectionId, request: &Request) {
        let senders = self.senders.borrow();
        let Some(sender) = senders.get(&connection) else {
            return;
        };
        match request.encode() {
            // Whoever reads the link learns of its end.
            Ok(payload) => drop(sender.send(kind::REQUEST, &payload)),
            Err(error) => tracing::error!(%error, "a message cannot be sent"),
        }
    }

    fn close(&self, connection: ConnectionId) {
        match self.senders.borrow().get(&connection) {
            Some(sender) => sender.close(),
            None => self.unwanted.borrow_mut().push(connection),
        }
    }

    fn tell(&self, event: AgentEvent) {
        // The agent may be gone.
        let _ = self.events.send(event);
    }
}

#[cfg(test)]
mod tests;
