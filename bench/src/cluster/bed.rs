use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ephesus_coordinator::report::{Query, Report, StatusReport};
use tempfile::TempDir;

use crate::error::Result;
use crate::interrupt::{self, wait_for};
use crate::operator::{answer, ask_leader};
use crate::process::Process;
use crate::procfs::Pid;
use crate::record::{EPHESUS, ServerRecord};
use crate::resp::Connection;
use crate::server::{self, ports};
use crate::{affinity, locate};

const PARTITIONS: u16 = 1024;
/// Of a node: the entry port, and the direct port of its one shard.
const PORTS: u16 = 2;
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) coordinators: u16,
    pub(crate) nodes: u16,
    /// The first node is given every partition, the others join without any.
    pub(crate) first_owns_all: bool,
    pub(crate) durability: &'static str,
    /// One for each node; empty: anywhere.
    pub(crate) cpus: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Member {
    Coordinator(u16),
    Node(u16),
}
use Member::{Coordinator, Node};

/// A cluster of coordinators and nodes of one shard that runs; killed when dropped.
#[derive(Debug)]
pub(crate) struct Bed {
    layout: Layout,
    program: PathBuf,
    all_cpus: Vec<usize>,
    base: u16,
    processes: BTreeMap<Member, Process>,
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
            processes: BTreeMap::new(),
            dir,
            layout,
        };
        for index in 0..bed.layout.coordinators {
            bed.run(Coordinator(index), true)?;
        }
        for index in 0..bed.layout.nodes {
            bed.run(Node(index), true)?;
            if bed.layout.first_owns_all {
                bed.wait_healthy()?;
            }
        }
        bed.wait_healthy()?;
        Ok(bed)
    }

    /// Where it listens: the entry port of a node, behind which its direct port is.
    pub(crate) fn address(&self, member: Member) -> SocketAddr {
        let port = match member {
            Coordinator(index) => index,
            Node(index) => self.layout.coordinators + index * PORTS,
        };
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.base + port))
    }

    pub(crate) fn coordinators(&self) -> Vec<String> {
        let all = (0..self.layout.coordinators).map(Coordinator);
        all.map(|one| self.address(one).to_string()).collect()
    }

    pub(crate) fn describe(&self, node: u16) -> ServerRecord {
        server::described(EPHESUS, &self.program, &self.line(Node(node), true))
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = (Member, Pid)> {
        let all = self.processes.iter();
        all.map(|(member, process)| (*member, process.pid()))
    }

    pub(crate) fn node_pids(&self) -> Vec<Pid> {
        let nodes = self.pids().filter(|(member, _)| *member >= Node(0));
        nodes.map(|(_, pid)| pid).collect()
    }

    fn line(&self, member: Member, is_first: bool) -> String {
        let (layout, listen) = (&self.layout, self.address(member));
        match member {
            Coordinator(index) => {
                let id = index + 1;
                let peers = (1..).zip(self.coordinators());
                let peers: Vec<String> = peers.map(|(id, at)| format!("{id}@{at}")).collect();
                let peers = peers.join(",");
                let nodes = if layout.first_owns_all {
                    1
                } else {
                    layout.nodes
                };
                let found = match is_first {
                    true => format!(" --bootstrap --partitions {PARTITIONS} --min-nodes {nodes}"),
                    false => String::new(),
                };
                format!(
                    "coordinator --id {id} --listen {listen} --peers {peers} --data-dir coordinator-{id}{found}"
                )
            }
            Node(index) => {
                let (coordinators, durability) = (self.coordinators().join(","), layout.durability);
                let pin = if layout.cpus.is_empty() {
                    " --no-pin"
                } else {
                    ""
                };
                format!(
                    "serve --name node-{index} --listen {listen} --shards 1 --coordinator {coordinators} --durability \
                     {durability} --data-dir node-{index}{pin}"
                )
            }
        }
    }

    fn run(&mut self, member: Member, is_first: bool) -> Result<()> {
        interrupt::check()?;
        let cpus = &self.layout.cpus;
        let (name, pinned) = match member {
            Coordinator(index) => (format!("coordinator-{index}"), None),
            Node(index) => (format!("node-{index}"), cpus.get(usize::from(index))),
        };
        let cpus = pinned.map_or(&self.all_cpus[..], std::slice::from_ref);
        let line = self.line(member, is_first);
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let dir = self.dir.path();
        let log = dir.join(format!("{name}.log"));
        let process = Process::start(&name, &self.program, &words, dir, log, cpus)?;
        self.processes.insert(member, process);
        Ok(())
    }

    pub(crate) fn kill(&mut self, member: Member) {
        self.processes.remove(&member);
    }

    pub(crate) fn restart(&mut self, member: Member) -> Result<()> {
        self.run(member, false)
    }

    fn ask(&self, query: &Query) -> Result<Report> {
        interrupt::check()?;
        ask_leader(&self.coordinators(), None, query)
    }

    fn status(&self) -> Result<StatusReport> {
        answer!(self.ask(&Query::Status)?, Report::Status)
    }

    pub(crate) fn leader(&self) -> Result<u16> {
        Ok((self.status()?.leader.0 - 1) as u16)
    }

    /// Waits until the coordinators have no complaint, all of them are heard of, and every node
    /// serves.
    pub(crate) fn wait_healthy(&mut self) -> Result<()> {
        let nodes = format!("a cluster of {} nodes", self.layout.nodes);
        let state = (nodes, "healthy");
        wait_for(state, READY_TIMEOUT, READY_POLL, || {
            for process in self.processes.values_mut() {
                process.check_running()?;
            }
            self.is_healthy()
        })
    }

    fn is_healthy(&self) -> Result<bool> {
        let serves = |node: &Member| {
            let connection = Connection::open(self.address(*node));
            let info = connection.and_then(|mut connection| connection.text(&["CLUSTER", "INFO"]));
            info.is_ok_and(|info| info.contains("cluster_state:ok"))
        };
        let mut nodes = self.processes.range(Node(0)..).map(|(node, _)| node);
        if !nodes.all(serves) || !self.status()?.healthy {
            return Ok(false);
        }
        let rows = answer!(self.ask(&Query::Coordinators)?, Report::Coordinators)?;
        Ok(rows.iter().all(|row| row.active))
    }
}
