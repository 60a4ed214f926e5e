use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ephesus_coordinator::ask::ask;
use ephesus_coordinator::report::{CoordinatorRow, Query, Report, StatusReport};
use tempfile::TempDir;

use crate::affinity;
use crate::error::{BenchError, Result};
use crate::interrupt::{self, wait_for};
use crate::locate;
use crate::process::Process;
use crate::procfs::Pid;
use crate::resp::Connection;
use crate::server::ports;

/// Of a cluster whose layout does not say otherwise.
pub(crate) const PARTITIONS: u16 = 1024;

/// Nodes of the cluster whose changes and idle costs are measured.
pub(crate) const NODES: u16 = 10;

/// Of a node: the entry port, and the direct port of its one shard.
const PORTS: u16 = 2;

/// How long a cluster may take to be what is waited for.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(20);
/// How long a leader is looked for.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) coordinators: u16,
    pub(crate) nodes: u16,
    pub(crate) partitions: u16,
    /// The first node is given every partition, the others join without any.
    pub(crate) first_owns_all: bool,
    /// `--durability`.
    pub(crate) durability: &'static str,
    /// One for each node; empty: anywhere.
    pub(crate) cpus: Vec<usize>,
}

impl Layout {
    /// Three coordinators, and nodes of one shard each, on any CPU.
    pub(crate) fn of_nodes(nodes: u16, durability: &'static str) -> Self {
        Layout {
            coordinators: 3,
            nodes,
            partitions: PARTITIONS,
            first_owns_all: false,
            durability,
            cpus: Vec::new(),
        }
    }
}

/// A cluster that runs; killed when dropped.
#[derive(Debug)]
pub(crate) struct Bed {
    layout: Layout,
    program: PathBuf,
    all_cpus: Vec<usize>,
    base: u16,
    coordinators: Vec<Option<Process>>,
    nodes: Vec<Option<Process>>,
    dir: TempDir,
}

impl Bed {
    /// Starts it, with data below `root`, and waits until every partition is online.
    pub(crate) fn start(program: &Path, root: &Path, layout: Layout) -> Result<Self> {
        let dir = locate::dir_in(root, "case-")?;
        let ports = layout.coordinators + layout.nodes * PORTS;
        let mut bed = Bed {
            program: program.to_owned(),
            all_cpus: affinity::allowed()?,
            base: ports::free_block(ports)?,
            coordinators: Vec::new(),
            nodes: Vec::new(),
            dir,
            layout,
        };
        for index in 0..bed.layout.coordinators {
            let process = bed.start_coordinator(index, true)?;
            bed.coordinators.push(Some(process));
        }
        for index in 0..bed.layout.nodes {
            let process = bed.start_node(index)?;
            bed.nodes.push(Some(process));
            if bed.layout.first_owns_all {
                bed.wait_healthy()?;
            }
        }
        bed.wait_healthy()?;
        Ok(bed)
    }

    fn loopback(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// Where a coordinator is reached; the first is 0.
    pub(crate) fn coordinator(&self, index: u16) -> SocketAddr {
        Self::loopback(self.base + index)
    }

    /// The entry port of a node; the first is 0.
    pub(crate) fn entry(&self, index: u16) -> SocketAddr {
        let first = self.base + self.layout.coordinators;
        Self::loopback(first + index * PORTS)
    }

    /// The direct port of a node's shard.
    pub(crate) fn direct(&self, node: u16) -> SocketAddr {
        Self::loopback(self.entry(node).port() + 1)
    }

    /// Where all coordinators are reached.
    pub(crate) fn coordinators(&self) -> Vec<String> {
        (0..self.layout.coordinators)
            .map(|index| self.coordinator(index).to_string())
            .collect()
    }

    /// What nodes and coordinators run.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// How a node was started, for a report.
    pub(crate) fn node_line(&self, index: u16) -> String {
        let program = self.program.display();
        format!("{program} {}", self.node_arguments(index).join(" "))
    }

    pub(crate) fn node_pids(&self) -> Vec<Pid> {
        self.nodes.iter().flatten().map(Process::pid).collect()
    }

    /// Number, from 0, and process of every coordinator.
    pub(crate) fn coordinator_pids(&self) -> Vec<(u16, Pid)> {
        let running = (0..).zip(&self.coordinators);
        running
            .filter_map(|(index, process)| Some((index, process.as_ref()?.pid())))
            .collect()
    }

    fn spawn(&self, name: &str, arguments: &[String], cpus: &[usize]) -> Result<Process> {
        interrupt::check()?;
        let dir: &Path = self.dir.path();
        let log = dir.join(format!("{name}.log"));
        Process::start(name, &self.program, arguments, dir, log, cpus)
    }

    fn start_coordinator(&self, index: u16, founds: bool) -> Result<Process> {
        let peers = (1..).zip(self.coordinators());
        let peers: Vec<String> = peers.map(|(id, at)| format!("{id}@{at}")).collect();
        let line = format!(
            "coordinator --id {} --listen {} --peers {} --data-dir coordinator-{}",
            index + 1,
            self.coordinator(index),
            peers.join(","),
            index + 1,
        );
        let min_nodes = match self.layout.first_owns_all {
            true => 1,
            false => self.layout.nodes,
        };
        let founding = format!(
            " --bootstrap --partitions {} --min-nodes {min_nodes}",
            self.layout.partitions
        );
        let line = if founds { line + &founding } else { line };
        let name = format!("coordinator-{}", index + 1);
        self.spawn(&name, &words(&line), &self.all_cpus)
    }

    /// Arguments of a node.
    fn node_arguments(&self, index: u16) -> Vec<String> {
        let pinned = self.layout.cpus.get(usize::from(index));
        let line = format!(
            "serve --name node-{index} --listen {} --shards 1 --coordinator {} \
             --durability {} --data-dir node-{index}{}",
            self.entry(index),
            self.coordinators().join(","),
            self.layout.durability,
            if pinned.is_some() { "" } else { " --no-pin" },
        );
        words(&line)
    }

    fn start_node(&self, index: u16) -> Result<Process> {
        let pinned = self.layout.cpus.get(usize::from(index));
        let cpus = pinned.map_or(&self.all_cpus[..], std::slice::from_ref);
        let arguments = self.node_arguments(index);
        self.spawn(&format!("node-{index}"), &arguments, cpus)
    }

    /// SIGKILL.
    pub(crate) fn kill_node(&mut self, index: u16) {
        drop(self.nodes[usize::from(index)].take());
    }

    pub(crate) fn restart_node(&mut self, index: u16) -> Result<()> {
        self.nodes[usize::from(index)] = Some(self.start_node(index)?);
        Ok(())
    }

    /// SIGKILL.
    pub(crate) fn kill_coordinator(&mut self, index: u16) {
        drop(self.coordinators[usize::from(index)].take());
    }

    pub(crate) fn restart_coordinator(&mut self, index: u16) -> Result<()> {
        self.coordinators[usize::from(index)] = Some(self.start_coordinator(index, false)?);
        Ok(())
    }

    /// Asks whoever leads.
    pub(crate) fn ask(&self, query: &Query) -> Result<Report> {
        interrupt::check()?;
        let answer = ask(&self.coordinators(), None, query, ASK_TIMEOUT);
        answer.map_err(|error| BenchError::failed(format!("{query:?}"), error))
    }

    pub(crate) fn status(&self) -> Result<StatusReport> {
        match self.ask(&Query::Status)? {
            Report::Status(status) => Ok(status),
            other => Err(BenchError::failed("status", format!("{other:?}"))),
        }
    }

    /// The number, from 0, of the coordinator that leads.
    pub(crate) fn leader(&self) -> Result<u16> {
        Ok((self.status()?.leader.0 - 1) as u16)
    }

    fn coordinator_rows(&self) -> Result<Vec<CoordinatorRow>> {
        match self.ask(&Query::Coordinators)? {
            Report::Coordinators(rows) => Ok(rows),
            other => Err(BenchError::failed("coordinators", format!("{other:?}"))),
        }
    }

    /// Waits until the coordinators have no complaint, all of them are heard of, and every node
    /// serves.
    pub(crate) fn wait_healthy(&mut self) -> Result<()> {
        let state = (
            format!("a cluster of {} nodes", self.layout.nodes),
            "healthy",
        );
        wait_for(state, READY_TIMEOUT, READY_POLL, || {
            let processes = self.coordinators.iter_mut().chain(&mut self.nodes);
            for process in processes.flatten() {
                process.check_running()?;
            }
            self.is_healthy()
        })
    }

    fn is_healthy(&self) -> Result<bool> {
        let serves = |index| {
            let connection = Connection::open(self.entry(index));
            let info = connection.and_then(|mut connection| connection.text(&["CLUSTER", "INFO"]));
            info.is_ok_and(|info| info.contains("cluster_state:ok"))
        };
        let started = self.nodes.len() as u16;
        Ok((0..started).all(serves)
            && self.status()?.healthy
            && self.coordinator_rows()?.iter().all(|row| row.active))
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}
