//! How a node finds its cluster: its own coordinator or others', and the table that it acts on.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ephesus_coordinator::agent::AgentOptions;
use ephesus_coordinator::command::{Addresses, ClusterOptions, Nonce, RaftId, Registration};
use ephesus_coordinator::lease::Lease;
use ephesus_coordinator::load::Board;
use ephesus_coordinator::membership::{Membership, MembershipEvent};
use ephesus_coordinator::migration::{Progress, Step};
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::protocol::VERSIONS;
use ephesus_coordinator::report::Figures;
use ephesus_coordinator::server::{Empty, ServerOptions};
use ephesus_coordinator::state::{HEARTBEAT_TIMEOUT_MS, Refusal};
use ephesus_coordinator::view::View;
use ephesus_wire::handshake::{self, HandshakeError, Secret};
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};

use super::data_dir::{DataDir, DataDirError, Stamp, starts};
use super::embedded::Embedded;
use super::error::StartError;
use super::options::{PARTITIONS_DEFAULT, ServeOptions};
use super::ports::Announced;

/// The number of the coordinator that a node embeds.
const EMBEDDED_ID: RaftId = RaftId(1);

/// How often a waiting node says what it waits for.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// How soon a waiting node notices that it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A node's side of its cluster.
#[derive(Debug)]
pub struct Joining {
    membership: Membership,
    embedded: Option<Embedded>,
    node: NodeId,
    incarnation: u64,
    shards: u16,
    data_dir: PathBuf,
    /// Those that the node was started with.
    given: Vec<String>,
    /// For messages to people.
    coordinators: Vec<String>,
    /// Where they are reached, as the directory says.
    noted: Vec<String>,
    /// [`MembershipEvent::Confirmed`] came.
    is_confirmed: Cell<bool>,
}

/// Whether the node runs a coordinator of its own.
#[must_use]
pub fn embeds(options: &ServeOptions, dir: &DataDir, stamp: &Stamp) -> bool {
    let is_first = stamp.joined.is_none();
    options.coordinators.is_empty() && (is_first || dir.coordinator_dir().exists())
}

impl Joining {
    /// Starts to register and to heartbeat; before that the embedded coordinator, at `port`, if the
    /// node is to have one.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        options: &ServeOptions,
        dir: &DataDir,
        stamp: &Stamp,
        shards: u16,
        port: Option<TcpListener>,
    ) -> Result<Joining, StartError> {
        let accepts_old = options.accept_old_data;
        let (incarnation, is_sole) = dir.begin_start(accepts_old)?;
        let start = starts::propose(dir.path(), accepts_old)?;
        let noted = dir.coordinators()?;
        let secret = options.secret.clone();
        let announced = Announced::new(options);
        let own = announced.coordinator;
        let mut coordinators = options.coordinators.clone();
        let mut embedded = None;
        if let Some(port) = port {
            embedded = Some(embed(options, dir, stamp, port, &own, secret.clone())?);
            coordinators.push(own.clone());
        }
        for address in &noted {
            let is_own = *address == own;
            if embedded.is_none() && options.coordinators.is_empty() && is_own {
                // Its own, which is gone: it would wait for itself.
                continue;
            }
            if !coordinators.contains(address) {
                coordinators.push(address.clone());
            }
        }
        if coordinators.is_empty() {
            return Err(StartError::NoCoordinators(dir.path().to_owned()));
        }
        let registration = Registration {
            node: stamp.node,
            cluster: stamp.joined.map(|joined| joined.cluster),
            name: options.name.clone(),
            incarnation,
            addresses: Addresses {
                entry: announced.entry,
                tls_port: options.tls.as_ref().map(|tls| tls.port),
                peer: announced.peers,
                rack: options.rack.clone(),
            },
            shards,
            capacity: options.capacity,
            speaks: VERSIONS,
        };
        registration.check().map_err(StartError::Refused)?;
        let agent = AgentOptions {
            registration,
            start: Some(start),
            coordinators: coordinators.clone(),
            seed: (u128::from_le_bytes(stamp.node.0) as u64).wrapping_add(incarnation),
            is_sole,
        };
        let alone = embedded.as_ref().map(|embedded| embedded.alone.clone());
        let membership = Membership::start(agent, secret, alone);
        let membership = membership.map_err(StartError::thread("heartbeats"))?;
        Ok(Joining {
            membership,
            embedded,
            node: stamp.node,
            incarnation,
            shards,
            data_dir: dir.path().to_owned(),
            given: options.coordinators.clone(),
            coordinators,
            noted,
            is_confirmed: Cell::new(false),
        })
    }

    #[must_use]
    pub fn lease(&self) -> Lease {
        self.membership.lease()
    }

    /// What happens; wait on it.
    #[must_use]
    pub fn events(&self) -> &flume::Receiver<MembershipEvent> {
        self.membership.events()
    }

    /// Waits for a table that knows of this start, and for its being noted in the directory: a node that served
    /// before could be killed, and an older copy of its directory be taken for the newest.
    ///
    /// # Errors
    /// [`StartError::Interrupted`] when `is_over`, [`StartError::OtherCluster`], or what the
    /// coordinator refuses for ever.
    pub fn wait_for_table(&self, is_over: &dyn Fn() -> bool) -> Result<Arc<View>, StartError> {
        #[expect(
            clippy::disallowed_methods,
            reason = "what is said to people meanwhile"
        )]
        let clock = Instant::now;
        let (started, mut said) = (clock(), Duration::ZERO);
        let mut reason = None;
        loop {
            let view = self.membership.view().filter(|view| self.is_known(view));
            if let Some(view) = view.filter(|_| self.is_confirmed.get()) {
                return Ok(view);
            }
            if is_over() {
                return Err(StartError::Interrupted);
            }
            match self.events().recv_timeout(LOOK_EVERY) {
                Ok(MembershipEvent::Refused(refusal)) if is_final(&refusal) => {
                    return Err(StartError::Refused(refusal));
                }
                Ok(MembershipEvent::Refused(refusal)) => reason = Some(refusal.to_string()),
                Ok(MembershipEvent::Mismatch { address, error }) => {
                    // At an address that was only noted somebody else may be by now.
                    if is_other_cluster(&error) && self.given.contains(&address) {
                        return Err(StartError::OtherCluster {
                            data_dir: self.data_dir.clone(),
                            address,
                            reason: error,
                        });
                    }
                    reason = Some(format!("{address}: {error}"));
                }
                Ok(MembershipEvent::StartNoted(nonce)) => self.note_start(nonce)?,
                Ok(MembershipEvent::Confirmed) => self.is_confirmed.set(true),
                Ok(_) | Err(_) => {}
            }
            if started.elapsed() >= said + SAY_EVERY {
                said = started.elapsed();
                let coordinators = self.coordinators.join(", ");
                match &reason {
                    Some(reason) => tracing::warn!(%coordinators, "waiting to be let in: {reason}"),
                    None => tracing::warn!("waiting for a coordinator at {coordinators}"),
                }
            }
        }
    }

    /// Notes that this start was accepted: the next one names it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn note_start(&self, nonce: Nonce) -> Result<(), DataDirError> {
        starts::accepted(&self.data_dir, nonce)
    }

    fn is_known(&self, view: &View) -> bool {
        view.members.get(&self.node).is_some_and(|member| {
            (member.incarnation, member.shards) == (self.incarnation, self.shards)
        })
    }

    /// The node has recovered, and hosts these copies.
    pub fn started(&self, hosted: BTreeMap<PartitionId, Epoch>) {
        self.membership.set_hosted(hosted);
        self.membership.started();
    }

    /// The copies that the node hosts, all of them.
    pub fn set_hosted(&self, hosted: BTreeMap<PartitionId, Epoch>) {
        self.membership.set_hosted(hosted);
    }

    /// What the node wants to have decided about migrations, all of it.
    pub fn set_migration_steps(&self, steps: BTreeMap<MigrationId, Step>) {
        self.membership.set_migration_steps(steps);
    }

    /// How far the migrations are that this node is the source of, all of them.
    pub fn set_migration_progress(&self, progress: BTreeMap<MigrationId, Progress>) {
        self.membership.set_migration_progress(progress);
    }

    /// What operators see of the node.
    pub fn set_figures(&self, figures: Figures) {
        self.membership.set_figures(figures);
    }

    /// Where heartbeats have the node's load from.
    pub fn set_load(&self, load: Arc<Mutex<Board>>) {
        self.membership.set_load(load);
    }

    /// Notes in the directory where coordinators are, for a start at which the others have moved.
    pub fn note_coordinators(&mut self, dir: &DataDir, view: &View) {
        let addresses: Vec<String> = view.coordinators.values().cloned().collect();
        if addresses != self.noted {
            match dir.write_coordinators(&addresses) {
                Ok(()) => self.noted = addresses,
                Err(error) => tracing::warn!(%error, "coordinators' addresses were not noted"),
            }
        }
    }

    /// Lets go of the cluster; the node counts as failed after the heartbeat timeout.
    pub fn stop(self) {
        drop(self.membership);
        if let Some(embedded) = self.embedded {
            embedded.stop();
        }
    }
}

fn embed(
    options: &ServeOptions,
    dir: &DataDir,
    stamp: &Stamp,
    port: TcpListener,
    address: &str,
    secret: Option<Secret>,
) -> Result<Embedded, StartError> {
    let partitions = stamp.joined.map(|joined| joined.partitions);
    let layout = ClusterOptions {
        partitions: partitions
            .or(options.partitions)
            .unwrap_or(PARTITIONS_DEFAULT),
        min_nodes: 1,
        policy: Policy::Contiguous,
        heartbeat_timeout_ms: HEARTBEAT_TIMEOUT_MS,
    };
    Embedded::start(ServerOptions {
        auto_rebalance: options.auto_rebalance,
        moves_max: options.moves_max,
        id: EMBEDDED_ID,
        port,
        peers: BTreeMap::from([(EMBEDDED_ID, address.to_owned())]),
        data_dir: dir.coordinator_dir(),
        empty: if stamp.joined.is_none() {
            Empty::Founds
        } else {
            Empty::Refused
        },
        layout,
        secret,
        host: Some(stamp.node),
    })
}

fn is_other_cluster(error: &HandshakeError) -> bool {
    matches!(
        error,
        HandshakeError::Cluster { .. } | HandshakeError::Refused(handshake::Refusal::Cluster)
    )
}

/// Whether waiting does not help.
pub fn is_final(refusal: &Refusal) -> bool {
    !matches!(
        refusal,
        // The start before this one may not be counted as failed yet.
        Refusal::NotBootstrapped | Refusal::NameTaken { .. } | Refusal::TooManyNodes
    )
}
