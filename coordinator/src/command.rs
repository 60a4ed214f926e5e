//! What the coordinator's replicated log holds: every change of membership and partition table.

use std::collections::BTreeMap;
use std::fmt;

use ephesus_wire::handshake::Versions;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use crate::migration::{Abort, Confirmation, Purpose};
use crate::placement::{Move, Policy};

/// The persistent UUID of a cluster, made when it is bootstrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub [u8; 16]);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A coordinator's number within raft, never given twice: a wiped one comes back under another.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RaftId(pub u64);

impl fmt::Display for RaftId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Distance from a node's entry port to that of the coordinator in its process, if it brings one.
pub const EMBEDDED_PORT_OFFSET: u16 = 20_000;

/// Where a node can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenAddresses", into = "WrittenAddresses")]
pub struct Addresses {
    /// Its entry port, for clients, as `host:port`; direct ports follow it.
    pub entry: String,
    /// Its entry port for clients that come over TLS, on the same host; direct ports follow it, too.
    pub tls_port: Option<u16>,
    /// Its port for other nodes, as `host:port`.
    pub peer: String,
    /// The rack it stands in: what may fail together; empty: that is not known.
    pub rack: String,
}

/// [`Addresses`] as they are written: a TLS port follows the text of the entry port, and a rack that of the port for
/// other nodes, so that those without are written as before there were any.
#[derive(Serialize, Deserialize)]
struct WrittenAddresses {
    entry: String,
    peer: String,
}

/// Between an entry port and its TLS port.
const TLS_PORT_MARK: &str = ",tls=";

/// Between a port for other nodes and a rack.
const RACK_MARK: &str = ",rack=";

impl From<Addresses> for WrittenAddresses {
    fn from(addresses: Addresses) -> WrittenAddresses {
        let Addresses {
            mut entry,
            tls_port,
            mut peer,
            rack,
        } = addresses;
        if let Some(port) = tls_port {
            entry = format!("{entry}{TLS_PORT_MARK}{port}");
        }
        if !rack.is_empty() {
            peer = format!("{peer}{RACK_MARK}{rack}");
        }
        WrittenAddresses { entry, peer }
    }
}

impl From<WrittenAddresses> for Addresses {
    fn from(written: WrittenAddresses) -> Addresses {
        let WrittenAddresses {
            mut entry,
            mut peer,
        } = written;
        let marked = entry.rsplit_once(TLS_PORT_MARK);
        let found = marked.and_then(|(before, port)| Some((before.len(), port.parse().ok()?)));
        let tls_port = found.map(|(end, port)| {
            entry.truncate(end);
            port
        });
        let marked = peer.split_once(RACK_MARK);
        let found = marked.map(|(before, rack)| (before.len(), rack.to_owned()));
        let rack = found.map_or_else(String::new, |(end, rack)| {
            peer.truncate(end);
            rack
        });
        Addresses {
            entry,
            tls_port,
            peer,
            rack,
        }
    }
}

impl Addresses {
    /// Where the coordinator in the node's process is reached, if it brings one.
    #[must_use]
    pub fn embedded(&self) -> Option<String> {
        let (host, port) = self.entry.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        Some(format!(
            "{host}:{}",
            port.checked_add(EMBEDDED_PORT_OFFSET)?
        ))
    }
}

/// How a cluster is laid out; fixed when it is bootstrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOptions {
    /// Number of partitions, which never changes.
    pub partitions: u16,
    /// The first assignment waits for so many nodes.
    pub min_nodes: u16,
    /// How the first assignment spreads partitions.
    pub policy: Policy,
    /// A node silent for so long has failed, ms; leases are half of it. The same for every leader:
    /// one that was less patient would give away what another has granted.
    pub heartbeat_timeout_ms: u32,
}

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its UUID, from its data directory.
    pub node: NodeId,
    /// The cluster its data belongs to; none if it has never been in one.
    pub cluster: Option<ClusterId>,
    /// What people call it.
    pub name: String,
    /// Grows with every start of the node.
    pub incarnation: u64,
    /// Where it can be reached.
    pub addresses: Addresses,
    /// Its shards.
    pub shards: u16,
    /// What each of its shards can take, in per cent of a usual one: 1 to
    /// [`CAPACITY_MAX`](crate::state::CAPACITY_MAX).
    pub capacity: u32,
    /// The protocol versions that its binary speaks.
    pub speaks: Versions,
}

/// Random bytes by which one start of a node is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nonce(pub [u8; 16]);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// That a node's directory is the one that its last accepted start has left: an older copy of it names an
/// older start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartProof {
    /// The last start that the directory knows to be accepted; none: none was, by a release that proves it.
    pub previous: Option<Nonce>,
    /// This start; the same as before where it is not known whether that was accepted.
    pub nonce: Nonce,
    /// Whether an operator takes the directory as it is, however old.
    pub accepts_old: bool,
}

/// One entry of the replicated log.
///
/// Every command may be proposed more than once, also by successive leaders: a repetition changes
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Founds the cluster: the first command that has an effect.
    Bootstrap {
        /// Its UUID.
        cluster: ClusterId,
        /// Its layout.
        options: ClusterOptions,
        /// Where the founding coordinators are reached, each as `host:port`.
        coordinators: BTreeMap<RaftId, String>,
    },
    /// A node has started, or was reached again; it is `starting` until it says otherwise.
    Register(Registration),
    /// The node has recovered its data and serves.
    Started {
        /// The node.
        node: NodeId,
        /// The start this is about.
        incarnation: u64,
    },
    /// The node hosts these copies.
    Hosting {
        /// The node.
        node: NodeId,
        /// The copies; those of an older epoch are ignored.
        copies: Vec<(PartitionId, Epoch)>,
    },
    /// The leader has not heard of the node for the heartbeat timeout.
    Fail {
        /// The node.
        node: NodeId,
        /// The start this is about: a later one is not failed by it.
        incarnation: u64,
    },
    /// An operator gives up a node.
    Remove {
        /// The node.
        node: NodeId,
        /// Also if it owns partitions, whose data is lost; only a failed node.
        lose_data: bool,
    },
    /// Partitions are to go to other shards; each move is taken or refused by itself.
    PlanMoves {
        /// The moves; one that is under way already is taken.
        moves: Vec<Move>,
        /// What they are part of.
        purpose: Purpose,
    },
    /// The source begins to copy.
    BeginMigration {
        /// The migration.
        id: MigrationId,
        /// The source's start that says so: a later one knows nothing of what it has done.
        incarnation: u64,
    },
    /// As [`Command::CommitMigrations`] of one: only in logs of releases that knew no batches.
    CommitMigration {
        /// The migration.
        id: MigrationId,
        /// As for [`Command::BeginMigration`].
        incarnation: u64,
        /// What the target has confirmed.
        confirmation: Confirmation,
    },
    /// The source keeps the partition.
    AbortMigration {
        /// The migration.
        id: MigrationId,
        /// Why.
        abort: Abort,
    },
    /// A migration that was aborted is planned again, under another id.
    RetryMigration {
        /// The one that was aborted.
        id: MigrationId,
    },
    /// A node is to be emptied, or not any more: it gets nothing, and its fair share is nothing.
    Drain {
        /// The node.
        node: NodeId,
        /// Whether it is.
        on: bool,
    },
    /// A coordinator's binary speaks these protocol versions, as its links say.
    CoordinatorSpeaks {
        /// The coordinator.
        id: RaftId,
        /// The versions.
        speaks: Versions,
    },
    /// No node sends more for its migrations, until none is under way any more.
    LimitMoves {
        /// As [`MigrationTable::limit_mb_s`](crate::migration::MigrationTable::limit_mb_s).
        mb_s: u32,
    },
    /// As [`Command::Register`], of a node whose directory proves which it is.
    RegisterStart {
        /// What the node says about itself.
        registration: Registration,
        /// What its directory says.
        start: StartProof,
    },
    /// The target has prepared a batch: its partitions become its own, all of them or none.
    CommitMigrations {
        /// As for [`Command::BeginMigration`].
        incarnation: u64,
        /// What the target has confirmed of each migration.
        confirmations: Vec<(MigrationId, Confirmation)>,
    },
    /// So many migrations of rebalances and drains may be under way at a time.
    MovesMax {
        /// At least 1; 0 is no bound.
        moves: u32,
    },
    /// Another policy: partitions are moved to where it says.
    SetPolicy {
        /// The policy.
        policy: Policy,
    },
    /// They are there, as far as that can be.
    EndChange {
        /// The policy that was set.
        policy: Policy,
    },
    /// What a rebalance, a drain or another policy moves is given up, and what waits is dropped.
    CancelMoves,
    /// As [`Command::PlanMoves`] of what the leader moves of its own accord: refused once an operator has decided
    /// otherwise.
    PlanOwn {
        /// The moves.
        moves: Vec<Move>,
        /// The policy that is changed to; none: the one that holds is followed.
        change: Option<Policy>,
    },
}

/// The protocol that came with migrations.
const MIGRATIONS: u16 = 2;

/// The protocol that came with coordinators that learn before they vote, and with starts that are proved.
const LEARNERS: u16 = 3;
const STARTS: u16 = 3;

/// The protocol that came with a bound on what moves at a time.
const TURNS: u16 = 8;

/// The protocol that came with policies that can be changed.
const POLICIES: u16 = 8;

impl Command {
    /// The protocol that everybody has to speak before this command is proposed or carried out; none
    /// if it is as old as any, or only goes on with what such a command has begun.
    ///
    /// A coordinator that does not know a command stops at it, and a node cannot follow what it
    /// leads to: so a release that adds commands names its protocol here.
    #[must_use]
    pub fn needs(&self) -> Option<u16> {
        match self {
            Command::PlanMoves { .. }
            | Command::RetryMigration { .. }
            | Command::LimitMoves { .. }
            | Command::Drain { on: true, .. } => Some(MIGRATIONS),
            Command::RegisterStart { .. } => Some(STARTS),
            Command::MovesMax { .. } => Some(TURNS),
            Command::SetPolicy { .. }
            | Command::EndChange { .. }
            | Command::CancelMoves
            | Command::PlanOwn { .. } => Some(POLICIES),
            _ => None,
        }
    }
}

/// A change of who the coordinators are; travels inside raft's own entry for it, so that voters and
/// addresses change together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoordinatorChange {
    /// Another one votes, whether it has the log or not: only in logs of releases that knew no learners.
    Add {
        /// Its number, larger than any before.
        id: RaftId,
        /// Where it is reached, as `host:port`.
        address: String,
    },
    /// It votes no more, and its number is never given again.
    Remove {
        /// Its number.
        id: RaftId,
    },
    /// Another one is sent the log, and does not vote yet.
    AddLearner {
        /// Its number, larger than any before.
        id: RaftId,
        /// Where it is reached, as `host:port`.
        address: String,
    },
    /// One that has learned the log votes.
    Promote {
        /// Its number.
        id: RaftId,
    },
}

impl CoordinatorChange {
    /// As [`Command::needs`].
    #[must_use]
    pub fn needs(&self) -> Option<u16> {
        match self {
            CoordinatorChange::AddLearner { .. } | CoordinatorChange::Promote { .. } => {
                Some(LEARNERS)
            }
            CoordinatorChange::Add { .. } | CoordinatorChange::Remove { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
