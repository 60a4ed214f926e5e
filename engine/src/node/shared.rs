//! What all shards of a node see: who owns what, settings, counters.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ephesus_wal::Durability;
use ephesus_wire::table::shard_id_hex;
use ephesus_wire::{Epoch, NodeId, PartitionId, Partitioning, ShardId, Slot};

use crate::command::cluster::{ClusterView, ViewNode};
use crate::shard::ShardStats;
use crate::shard::mesh::Peer;

/// Distance from a client port to its bus port, as Redis Cluster has it.
const BUS_PORT_OFFSET: u16 = 10_000;

/// Which shard of this node owns which partition, and since which epoch; never changes while the
/// process runs.
#[derive(Clone, Debug)]
pub struct Ownership {
    partitioning: Partitioning,
    /// By partition, as are the epochs: 2 KiB, so that a look per command stays in the first cache.
    shards: Box<[ShardId]>,
    epochs: Box<[Epoch]>,
}

impl Ownership {
    /// # Panics
    /// When there is not one owner per partition.
    #[must_use]
    pub fn new(partitioning: Partitioning, by_partition: Vec<(ShardId, Epoch)>) -> Ownership {
        assert_eq!(by_partition.len(), usize::from(partitioning.count()));
        Ownership {
            partitioning,
            shards: by_partition.iter().map(|&(shard, _)| shard).collect(),
            epochs: by_partition.iter().map(|&(_, epoch)| epoch).collect(),
        }
    }

    #[must_use]
    pub fn partitioning(&self) -> Partitioning {
        self.partitioning
    }

    #[inline]
    #[must_use]
    pub fn shard_of_slot(&self, slot: Slot) -> ShardId {
        self.shard_of(self.partitioning.partition_of(slot))
    }

    #[inline]
    #[must_use]
    pub fn shard_of(&self, partition: PartitionId) -> ShardId {
        self.shards[usize::from(partition.0)]
    }

    #[must_use]
    pub fn epoch_of(&self, partition: PartitionId) -> Epoch {
        self.epochs[usize::from(partition.0)]
    }

    /// Slot ranges of a shard, ascending, neighbours merged.
    #[must_use]
    pub fn ranges(&self, shard: ShardId) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for partition in self.partitioning.partitions() {
            if self.shard_of(partition) == shard {
                let (first, last) = self.partitioning.slots_of(partition).into_inner();
                match ranges.last_mut() {
                    Some((_, end)) if *end + 1 == first => *end = last,
                    _ => ranges.push((first, last)),
                }
            }
        }
        ranges
    }
}

/// Settings that shards and replies need.
#[derive(Clone, Debug)]
pub struct Settings {
    pub name: String,
    pub listen: SocketAddr,
    pub durability: Durability,
    /// Bytes; 0 is no limit.
    pub max_memory: u64,
    /// Bytes of all logs of the node.
    pub wal_budget: u64,
    pub max_clients: usize,
    /// CONFIG GET's answers.
    pub parameters: Vec<(&'static str, String)>,
}

/// One node, as its shards share it.
#[derive(Debug)]
pub struct NodeShared {
    pub id: NodeId,
    pub settings: Settings,
    pub ownership: Ownership,
    pub peers: Vec<Peer>,
    pub stats: Vec<ShardStats>,
    pub started: Instant,
    /// 40 hex digits, new for every start.
    pub run_id: String,
    /// Free space is below the floor: writes are refused.
    disk_full: AtomicBool,
}

impl NodeShared {
    #[must_use]
    pub fn new(id: NodeId, settings: Settings, ownership: Ownership, peers: Vec<Peer>) -> Self {
        let stats = peers.iter().map(|_| ShardStats::default()).collect();
        #[expect(
            clippy::disallowed_methods,
            reason = "uptime is for people, not for decisions"
        )]
        let started = Instant::now();
        let disk_full = AtomicBool::new(false);
        let run_id = format!(
            "{}{:08x}",
            uuid::Uuid::new_v4().simple(),
            std::process::id()
        );
        NodeShared {
            id,
            settings,
            ownership,
            peers,
            stats,
            started,
            run_id,
            disk_full,
        }
    }

    #[must_use]
    pub fn shards(&self) -> u16 {
        self.peers.len() as u16
    }

    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Answers whether that is news.
    pub fn set_disk_full(&self, full: bool) -> bool {
        self.disk_full.swap(full, Ordering::Relaxed) != full
    }

    /// Memory that counts against `--max-memory`.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.stats
            .iter()
            .map(|stats| stats.memory_bytes.get())
            .sum()
    }

    #[must_use]
    pub fn is_memory_full(&self) -> bool {
        self.settings.max_memory != 0 && self.memory_bytes() >= self.settings.max_memory
    }

    /// The port that is one shard.
    #[must_use]
    pub fn direct_port(&self, shard: ShardId) -> u16 {
        self.settings.listen.port() + 1 + shard.0
    }

    /// The address to show a client that reached this node at `local`.
    #[must_use]
    pub fn announced(&self, local: SocketAddr) -> String {
        let ip = match self.settings.listen.ip() {
            ip if ip.is_unspecified() => local.ip(),
            ip => ip,
        };
        match ip {
            IpAddr::V6(ip) => ip
                .to_ipv4_mapped()
                .map_or_else(|| ip.to_string(), |ip| ip.to_string()),
            IpAddr::V4(ip) => ip.to_string(),
        }
    }

    /// The node's shards as a cluster's primaries; `myself` is the one that answers.
    #[must_use]
    pub fn cluster_view(&self, myself: ShardId, local: SocketAddr) -> ClusterView {
        let host = self.announced(local);
        let nodes = (0..self.shards())
            .map(ShardId)
            .map(|shard| ViewNode {
                id: shard_id_hex(&self.id, shard),
                host: host.clone(),
                port: self.direct_port(shard),
                bus_port: self.direct_port(shard).saturating_add(BUS_PORT_OFFSET),
                slots: self.ownership.ranges(shard),
                failed: false,
                epoch: self.highest_epoch(shard),
            })
            .collect();
        ClusterView {
            myself: usize::from(myself.0),
            nodes,
            serving: true,
            messages_sent: 0,
            messages_received: 0,
        }
    }

    fn highest_epoch(&self, shard: ShardId) -> u64 {
        let ownership = &self.ownership;
        let owners = ownership.shards.iter().zip(&ownership.epochs);
        let owned = owners.filter(|&(&owner, _)| owner == shard);
        owned.map(|(_, epoch)| epoch.0).max().unwrap_or(0)
    }
}
