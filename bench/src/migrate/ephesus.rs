use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ephesus_coordinator::agent::PROGRESS_MS;
use ephesus_coordinator::report::{
    MigrationRow, MigrationState, MoveRow, NodeRow, PartitionRow, Query, Report,
};
use ephesus_engine::operator::following::Following;
use ephesus_wire::handshake::Secret;

use crate::cluster::bed::{Bed, Layout};
use crate::error::{BenchError, During, Result};
use crate::operator::{Operator, answer};
use crate::record::ServerRecord;
use crate::server;

use super::round::{Ends, Pair, Said, Stage};

/// How long nodes may take to tell how long commands were held: they say so once a second.
const FIGURES_MAX: Duration = Duration::from_millis(2 * PROGRESS_MS);
const FIGURES_POLL: Duration = Duration::from_millis(50);

/// A cluster, and the names of its nodes that give and get.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) coordinators: Vec<String>,
    pub(super) nodes: [String; 2],
    pub(super) secret: Option<Secret>,
}

/// Two nodes of a cluster, the first of which gives half of its partitions to the other.
pub(super) struct EphesusPair {
    cluster: Cluster,
    /// None: the cluster was there before.
    bed: Option<Bed>,
    /// A link that nobody uses for a while is closed, so each order has its own.
    operator: Operator,
    ends: Ends,
    /// What moves, and the shard that had it at first.
    partitions: BTreeMap<u16, u16>,
    target_shards: u16,
    following: Following,
    /// The first of our migrations, and all of them as the leader last told.
    first_id: u64,
    rows: Vec<MigrationRow>,
    /// When the leader was asked last, and when partitions were first seen to have arrived, seconds since the order.
    looked_s: f64,
    arrived_s: BTreeMap<u16, f64>,
}

impl EphesusPair {
    /// Starts a coordinator and two nodes of one shard; the first has every partition.
    pub(super) fn start(program: &Path, root: &Path, cpus: [usize; 2]) -> Result<Self> {
        let layout = Layout {
            coordinators: 1,
            nodes: 2,
            first_owns_all: true,
            durability: "strict",
            cpus: cpus.to_vec(),
        };
        let bed = Bed::start(program, root, layout)?;
        let cluster = Cluster {
            coordinators: bed.coordinators(),
            nodes: [0, 1].map(|index| format!("node-{index}")),
            secret: None,
        };
        Self::of(cluster, Some(bed))
    }

    pub(super) fn of(cluster: Cluster, bed: Option<Bed>) -> Result<Self> {
        let mut operator = Operator::of_leader(&cluster.coordinators, cluster.secret.as_ref())?;
        let nodes = answer!(operator.ask(&Query::Nodes)?, Report::Nodes)?;
        let [source, target] = &cluster.nodes;
        let (source, target) = (named(&nodes, source)?, named(&nodes, target)?);
        let pids = bed.as_ref().and_then(|bed| bed.node_pids().try_into().ok());
        let mut ends = Ends::new([entry(source)?, entry(target)?], pids);
        let mut owned = partitions(&mut operator)?;
        owned.retain(|row| row.node.as_ref() == Some(&source.name));
        // Moves of a rebalance are tried again; it would move the partitions of other nodes, too.
        let moving: BTreeSet<u16> = match &bed {
            Some(_) => {
                let rows = planned(&mut operator, Query::Rebalance { dry_run: true })?;
                rows.into_iter().map(|row| row.partition).collect()
            }
            None => {
                let half = owned[..owned.len().div_ceil(2)].iter();
                half.map(|row| row.partition).collect()
            }
        };
        for row in &owned {
            let moves = moving.contains(&row.partition);
            ends.add(row.first_slot, row.last_slot, moves);
        }
        if moving.is_empty() {
            return Err(BenchError::failed(&source.name, "it has nothing to give"));
        }
        owned.retain(|row| moving.contains(&row.partition));
        Ok(EphesusPair {
            partitions: (owned.iter())
                .filter_map(|row| Some((row.partition, row.shard?)))
                .collect(),
            target_shards: target.shards,
            cluster,
            bed,
            operator,
            ends,
            following: Following::default(),
            first_id: 0,
            rows: Vec::new(),
            looked_s: 0.0,
            arrived_s: BTreeMap::new(),
        })
    }

    fn begin(&mut self, order: Query) -> Result<()> {
        self.arrived_s.clear();
        self.following = Following::default();
        let rows = planned(&mut self.operator, order)?;
        let ids = rows.iter().filter_map(|row| Some((row, row.migration?)));
        self.first_id = ids.clone().map(|(_, id)| id).min().unwrap_or(0);
        for (row, id) in ids {
            let to = (&*row.to_node, row.to_shard);
            self.following.add(row.partition, id, to, 0);
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        let cluster = &self.cluster;
        self.operator = Operator::of_leader(&cluster.coordinators, cluster.secret.as_ref())?;
        Ok(())
    }
}

fn named<'a>(rows: &'a [NodeRow], name: &str) -> Result<&'a NodeRow> {
    let row = rows.iter().find(|row| row.name == name);
    row.ok_or_else(|| BenchError::failed(name, "there is no node of this name"))
}

fn entry(row: &NodeRow) -> Result<SocketAddr> {
    let what = format!("the entry port {} of node {}", row.entry, row.name);
    let found = row.entry.to_socket_addrs().during(&what)?.next();
    found.ok_or_else(|| BenchError::failed(what, "it has no address"))
}

/// What was planned, or would be.
fn planned(operator: &mut Operator, order: Query) -> Result<Vec<MoveRow>> {
    let rows = answer!(operator.ask(&order)?, Report::Planned)?;
    match rows.iter().find_map(|row| row.refusal.as_ref()) {
        None => Ok(rows),
        Some(refusal) => Err(BenchError::failed("a move", format_args!("{refusal:?}"))),
    }
}

fn partitions(operator: &mut Operator) -> Result<Vec<PartitionRow>> {
    answer!(operator.ask(&Query::Partitions)?, Report::Partitions)
}

impl Pair for EphesusPair {
    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn settle(&self) -> Result<()> {
        let mut entries = self.ends.entries.into_iter();
        entries.try_for_each(server::wait_imaged)
    }

    fn order(&mut self) -> Result<()> {
        self.connect()?;
        if self.bed.is_some() {
            return self.begin(Query::Rebalance { dry_run: false });
        }
        let [_, target] = &self.cluster.nodes;
        let moves = self.partitions.keys().zip((0..self.target_shards).cycle());
        let moves = moves.map(|(partition, shard)| (*partition, target.clone(), shard));
        let moves = moves.collect();
        self.begin(Query::MoveAll { moves })
    }

    fn look(&mut self, at_s: f64) -> Result<(Stage, u64)> {
        let report = answer!(self.operator.ask(&Query::Migrations)?, Report::Migrations)?;
        self.looked_s = at_s;
        let at = Duration::from_secs_f64(at_s);
        let gone = self.following.note(&report, at);
        if !gone.is_empty() {
            // They ended between two looks, and the leader does not know of them any more.
            let rows = partitions(&mut self.operator)?;
            for partition in gone {
                let row = rows.get(usize::from(partition));
                let owner = row.and_then(|row| Some((row.node.as_deref()?, row.shard?)));
                self.following.resolve(partition, owner);
            }
        }
        for (partition, _) in self.following.arrived() {
            self.arrived_s.entry(partition).or_insert(at_s);
        }
        let is_ours = |row: &MigrationRow| {
            row.id >= self.first_id && self.partitions.contains_key(&row.partition)
        };
        self.rows = report.migrations.into_iter().filter(is_ours).collect();
        let is_planned = |row: &MigrationRow| {
            matches!(row.state, MigrationState::Waiting | MigrationState::Planned)
        };
        let stage = match self.following.failures().as_slice() {
            [only] => Stage::Failed(only.clone()),
            [first, more @ ..] => Stage::Failed(format!("{first}; and {} more", more.len())),
            [] if self.following.is_over() => Stage::Done,
            [] if self.arrived_s.is_empty() && self.rows.iter().all(is_planned) => Stage::Waiting,
            [] => Stage::Copying,
        };
        Ok((stage, self.arrived_s.len() as u64))
    }

    fn said(&mut self) -> Result<Said> {
        let (began, ended_s) = (Instant::now(), self.looked_s);
        while self.following.lacks_figures() && began.elapsed() < FIGURES_MAX {
            thread::sleep(FIGURES_POLL);
            self.look(ended_s + began.elapsed().as_secs_f64())?;
        }
        let hold = |(partition, us)| Some([*self.arrived_s.get(&partition)?, us as f64 / 1e3]);
        let is_done = |row: &&MigrationRow| row.state == MigrationState::Committed;
        let attempts = self.rows.iter().filter(is_done).map(|row| row.attempt);
        Ok(Said {
            holds: self.following.arrived().filter_map(hold).collect(),
            retries: attempts.map(|n| u64::from(n.saturating_sub(1))).sum(),
            forked_bytes: 0,
        })
    }

    fn order_back(&mut self) -> Result<bool> {
        if self.bed.is_some() {
            return Ok(false);
        }
        self.connect()?;
        let [source, target] = &self.cluster.nodes;
        let rows = partitions(&mut self.operator)?.into_iter();
        let arrived = rows.filter(|row| row.node.as_ref() == Some(target));
        let back = |row: PartitionRow| {
            let shard = self.partitions.get(&row.partition)?;
            Some((row.partition, source.clone(), *shard))
        };
        let moves: Vec<_> = arrived.filter_map(back).collect();
        self.following = Following::default();
        if !moves.is_empty() {
            self.begin(Query::MoveAll { moves })?;
        }
        Ok(true)
    }

    fn described(&self) -> Vec<ServerRecord> {
        let beds = self.bed.iter();
        beds.flat_map(|bed| [0, 1].map(|index| bed.describe(index)))
            .collect()
    }
}
