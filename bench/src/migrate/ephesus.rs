use std::collections::BTreeSet;
use std::mem;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ephesus_coordinator::agent::PROGRESS_MS;
use ephesus_coordinator::report::{MigrationRow, MoveRow, NodeRow, PartitionRow, Query, Report};
use ephesus_wire::handshake::Secret;

use crate::cluster::bed::{Bed, Layout};
use crate::error::{BenchError, Result};
use crate::operator::Operator;
use crate::record::ServerRecord;
use crate::server::{self, Product};

use super::pair::{Ends, Pair, Said, Stage};
use super::progress::Progress;
use super::slots::SlotSet;

/// How long nodes may take to tell how long commands were held: they say so once a second.
const FIGURES_MAX: Duration = Duration::from_millis(2 * PROGRESS_MS);
const FIGURES_POLL: Duration = Duration::from_millis(50);

/// Two nodes of a cluster, which gives half of the partitions of the one to the other.
pub(super) struct EphesusPair {
    /// None: a cluster that was there before.
    bed: Option<Bed>,
    operator: Operator,
    source: Node,
    target: Node,
    ends: Ends,
    partitions: BTreeSet<u16>,
    progress: Progress,
}

/// A cluster that runs, and which nodes of it give and get, by name.
#[derive(Debug)]
pub(super) struct Existing {
    pub(super) coordinators: Vec<String>,
    pub(super) nodes: [String; 2],
    pub(super) secret: Option<Secret>,
}

/// One of the two.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    entry: SocketAddr,
}

impl EphesusPair {
    /// Starts a coordinator and two nodes of one shard; the first has every partition.
    pub(super) fn start(
        program: &Path,
        root: &Path,
        partitions: u16,
        cpus: [usize; 2],
    ) -> Result<Self> {
        let layout = Layout {
            coordinators: 1,
            partitions,
            first_owns_all: true,
            cpus: cpus.to_vec(),
            ..Layout::of_nodes(2, "strict")
        };
        let bed = Bed::start(program, root, layout)?;
        let operator = Operator::open(&bed.coordinator(0).to_string(), None)?;
        let node = |index| Node {
            name: format!("node-{index}"),
            entry: bed.entry(index),
        };
        Self::between(operator, node(0), node(1), Some(bed))
    }

    /// Two nodes of a cluster that runs.
    pub(super) fn existing(cluster: &Existing) -> Result<Self> {
        let mut operator = Operator::of_leader(&cluster.coordinators, cluster.secret.as_ref())?;
        let rows = match operator.ask(&Query::Nodes)? {
            Report::Nodes(rows) => rows,
            other => return Err(unexpected("nodes", &other)),
        };
        let [source, target] = &cluster.nodes;
        let (source, target) = (named(&rows, source)?, named(&rows, target)?);
        Self::between(operator, source, target, None)
    }

    fn between(
        mut operator: Operator,
        source: Node,
        target: Node,
        bed: Option<Bed>,
    ) -> Result<Self> {
        let rows = partitions(&mut operator)?;
        let of_source = |row: &&PartitionRow| row.node.as_ref() == Some(&source.name);
        let owned: Vec<&PartitionRow> = rows.iter().filter(of_source).collect();
        let planned: BTreeSet<u16> = match bed.is_some() {
            true => {
                let moves = rebalance(&mut operator, true)?;
                moves.iter().map(|row| row.partition).collect()
            }
            false => {
                let first = &owned[..owned.len().div_ceil(2)];
                first.iter().map(|row| row.partition).collect()
            }
        };
        let moves = |row: &&PartitionRow| planned.contains(&row.partition);
        let moving: Vec<&PartitionRow> = owned.iter().copied().filter(moves).collect();
        if moving.is_empty() {
            let problem = format!("node {} has nothing to give", source.name);
            return Err(BenchError::failed("a move", problem));
        }
        let older = migrations(&mut operator)?;
        let partitions: BTreeSet<u16> = moving.iter().map(|row| row.partition).collect();
        Ok(EphesusPair {
            ends: Ends {
                source: source.entry,
                target: target.entry,
                pids: bed.as_ref().and_then(|bed| bed.node_pids().try_into().ok()),
                owned: slots(&owned),
                moving: slots(&moving),
            },
            bed,
            operator,
            progress: Progress::new(partitions.clone(), &older),
            partitions,
            source,
            target,
        })
    }
}

fn named(rows: &[NodeRow], name: &str) -> Result<Node> {
    let wrong = |problem: &str| BenchError::failed(format!("node {name}"), problem);
    let row = rows.iter().find(|row| row.name == name);
    let row = row.ok_or_else(|| wrong("there is none of this name"))?;
    let mut found = row.entry.to_socket_addrs().map_err(|error| {
        let problem = format!("its entry port {}: {error}", row.entry);
        wrong(&problem)
    })?;
    let entry = found.next().ok_or_else(|| wrong("it has no address"))?;
    Ok(Node {
        name: row.name.clone(),
        entry,
    })
}

fn slots(rows: &[&PartitionRow]) -> SlotSet {
    SlotSet::of_ranges(rows.iter().map(|row| (row.first_slot, row.last_slot)))
}

fn partitions(operator: &mut Operator) -> Result<Vec<PartitionRow>> {
    match operator.ask(&Query::Partitions)? {
        Report::Partitions(rows) => Ok(rows),
        other => Err(unexpected("partitions", &other)),
    }
}

fn migrations(operator: &mut Operator) -> Result<Vec<MigrationRow>> {
    match operator.ask(&Query::Migrations)? {
        Report::Migrations(report) => Ok(report.migrations),
        other => Err(unexpected("migrations", &other)),
    }
}

/// What a rebalance moves, or would.
fn rebalance(operator: &mut Operator, dry_run: bool) -> Result<Vec<MoveRow>> {
    planned(operator, &Query::Rebalance { dry_run })
}

/// What was planned, all of it.
fn planned(operator: &mut Operator, order: &Query) -> Result<Vec<MoveRow>> {
    match operator.ask(order)? {
        Report::Planned(rows) if rows.iter().all(|row| row.refusal.is_none()) => Ok(rows),
        other => Err(unexpected("a move", &other)),
    }
}

fn unexpected(what: &str, report: &Report) -> BenchError {
    BenchError::failed(what, format!("{report:?}"))
}

impl Pair for EphesusPair {
    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn settle(&self) -> Result<()> {
        server::wait_imaged(self.source.entry)?;
        server::wait_imaged(self.target.entry)
    }

    fn order(&mut self) -> Result<()> {
        self.operator.reopen()?;
        if self.bed.is_some() {
            return rebalance(&mut self.operator, false).map(|_| ());
        }
        for &partition in &self.partitions {
            let order = Query::Move {
                partition,
                node: self.target.name.clone(),
                shard: None,
            };
            planned(&mut self.operator, &order)?;
        }
        Ok(())
    }

    fn look(&mut self) -> Result<Stage> {
        let rows = migrations(&mut self.operator)?;
        self.progress.note(&rows);
        if self.progress.may_be_over() {
            // What ended between two looks may be forgotten already.
            let rows = partitions(&mut self.operator)?;
            let arrived = rows
                .iter()
                .filter(|row| row.node.as_ref() == Some(&self.target.name));
            self.progress.arrived(arrived.map(|row| row.partition));
        }
        Ok(self.progress.stage())
    }

    fn said(&mut self) -> Result<Said> {
        let began = Instant::now();
        while !self.progress.knows_holds() && began.elapsed() < FIGURES_MAX {
            thread::sleep(FIGURES_POLL);
            self.look()?;
        }
        Ok(self.progress.said())
    }

    fn turn_back(&mut self) -> Result<bool> {
        if self.bed.is_some() {
            return Ok(false);
        }
        let rows = partitions(&mut self.operator)?;
        let has_moved = |row: &&PartitionRow| {
            row.node.as_ref() == Some(&self.target.name) && self.partitions.contains(&row.partition)
        };
        let moved: Vec<&PartitionRow> = rows.iter().filter(has_moved).collect();
        let older = migrations(&mut self.operator)?;
        let slots = slots(&moved);
        self.ends = Ends {
            source: self.ends.target,
            target: self.ends.source,
            pids: None,
            owned: slots.clone(),
            moving: slots,
        };
        self.partitions = moved.iter().map(|row| row.partition).collect();
        self.progress = Progress::new(self.partitions.clone(), &older);
        mem::swap(&mut self.source, &mut self.target);
        Ok(true)
    }

    fn described(&self) -> Vec<ServerRecord> {
        let Some(bed) = &self.bed else {
            return Vec::new();
        };
        let of = |index| ServerRecord {
            name: Product::Ephesus.to_string(),
            version: server::version(bed.program()),
            command_line: bed.node_line(index),
            configuration: Vec::new(),
        };
        vec![of(0), of(1)]
    }
}
