//! Coordinators with real sockets, disks and clocks, each on an executor of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::Instant;

use tempfile::TempDir;

use super::*;
use crate::ask::ask;
use crate::command::{Addresses, Registration};
use crate::link::blocking::{CallError, Client};
use crate::placement::Policy;
use crate::protocol::{self, Request, VERSIONS};
use crate::report::{CoordinatorRow, Problem, Query, Report, StatusReport};
use crate::state::MOVES_MAX;

/// Longest time any step of a test may take.
const LIMIT: Duration = Duration::from_secs(30);

#[expect(clippy::disallowed_methods, reason = "a test's patience")]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn layout() -> ClusterOptions {
    ClusterOptions {
        partitions: 9,
        min_nodes: 3,
        policy: Policy::RoundRobin,
        heartbeat_timeout_ms: 2_000,
    }
}

pub(crate) struct Running {
    stop: flume::Sender<()>,
    thread: JoinHandle<Result<Ended, ServerError>>,
}

impl Running {
    fn start(options: ServerOptions) -> Running {
        let (stop, stopped) = flume::bounded(1);
        let thread = std::thread::Builder::new().spawn(move || {
            let executor = executor().make().expect("an executor");
            executor.run(async move {
                let server = Server::start(options).await?;
                server
                    .run(async move {
                        let _ = stopped.recv_async().await;
                    })
                    .await
            })
        });
        let thread = thread.expect("a thread");
        Running { stop, thread }
    }

    fn stop(self) -> Result<Ended, ServerError> {
        drop(self.stop);
        self.thread.join().expect("no panic")
    }
}

/// Coordinators of one cluster on free ports.
pub(crate) struct Cluster {
    home: TempDir,
    peers: BTreeMap<RaftId, String>,
    ports: BTreeMap<RaftId, TcpListener>,
    running: BTreeMap<RaftId, Running>,
}

impl Cluster {
    pub(crate) fn new(count: u64) -> Cluster {
        let bind = |id| {
            (
                RaftId(id),
                TcpListener::bind("127.0.0.1:0").expect("a port"),
            )
        };
        let ports: BTreeMap<_, _> = (1..=count).map(bind).collect();
        let address = |port: &TcpListener| port.local_addr().expect("an address").to_string();
        Cluster {
            home: TempDir::new().expect("a directory"),
            peers: ports
                .iter()
                .map(|(id, port)| (*id, address(port)))
                .collect(),
            ports,
            running: BTreeMap::new(),
        }
    }

    fn options(&mut self, id: RaftId, empty: Empty) -> ServerOptions {
        let port = self.ports.remove(&id).unwrap_or_else(|| {
            TcpListener::bind(&self.peers[&id]).expect("the port of an ended coordinator")
        });
        ServerOptions {
            host: None,
            id,
            port,
            peers: self.peers.clone(),
            data_dir: self.home.path().join(id.to_string()),
            empty,
            layout: layout(),
            secret: None,
            auto_rebalance: None,
            moves_max: MOVES_MAX,
        }
    }

    pub(crate) fn start(&mut self, id: u64, empty: Empty) {
        let options = self.options(RaftId(id), empty);
        self.running.insert(RaftId(id), Running::start(options));
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.peers.values().cloned().collect()
    }

    pub(crate) fn ask(&self, query: &Query) -> Report {
        ask(&self.addresses(), None, query, LIMIT).expect("an answer")
    }

    pub(crate) fn stop(&mut self, id: RaftId) {
        let running = self.running.remove(&id).expect("it runs");
        assert_eq!(running.stop().expect("stopped"), Ended::Stopped);
    }

    pub(crate) fn running_ids(&self) -> Vec<RaftId> {
        self.running.keys().copied().collect()
    }

    pub(crate) fn status(&self) -> StatusReport {
        match self.ask(&Query::Status) {
            Report::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn founded(&self) -> StatusReport {
        until("a cluster", || !self.status().cluster.is_empty());
        self.status()
    }

    /// Coordinator 1's directory at another port.
    fn options_elsewhere(&mut self) -> ServerOptions {
        ServerOptions {
            host: None,
            id: RaftId(1),
            port: TcpListener::bind("127.0.0.1:0").expect("a port"),
            peers: self.peers.clone(),
            data_dir: self.home.path().join("1"),
            empty: Empty::Refused,
            layout: layout(),
            secret: None,
            auto_rebalance: None,
            moves_max: MOVES_MAX,
        }
    }

    fn rows(&self) -> Vec<CoordinatorRow> {
        match self.ask(&Query::Coordinators) {
            Report::Coordinators(rows) => rows,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the leader knows all coordinators to have the log.
    fn is_complete(&self) -> bool {
        let rows = self.rows();
        rows.iter().all(|row| row.active && row.matched > 0)
    }
}

#[test]
fn three_coordinators_found_one_cluster_and_survive_their_leader() {
    let mut cluster = Cluster::new(3);
    (1..=3).for_each(|id| cluster.start(id, Empty::Founds));
    let founded = cluster.founded();
    let waiting = Problem::NotEnoughNodes {
        present: 0,
        needed: 3,
    };
    until("all take part", || cluster.is_complete());
    assert_eq!(cluster.status().problems, [waiting]);
    assert_eq!(founded.coordinators, 3);

    cluster.stop(founded.leader);
    let after = cluster.status();
    assert_ne!(after.leader, founded.leader);
    assert_eq!(after.cluster, founded.cluster);
    assert!(after.term > founded.term);

    cluster.start(founded.leader.0, Empty::Refused);
    until("the old leader is back", || cluster.is_complete());
    assert_eq!(cluster.status().cluster, founded.cluster);
}

#[test]
fn one_coordinator_is_a_cluster_and_another_can_join_and_replace_it() {
    let mut cluster = Cluster::new(1);
    cluster.start(1, Empty::Founds);
    let founded = cluster.founded();
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("an address").to_string();
    let added = cluster.ask(&Query::AddCoordinator {
        address: address.clone(),
    });
    assert_eq!(added, Report::CoordinatorAdded { id: RaftId(2) });
    cluster.ports.insert(RaftId(2), port);
    cluster.peers.insert(RaftId(2), address);
    cluster.start(2, Empty::Joins);
    until("the second takes part", || cluster.is_complete());
    let removed = cluster.ask(&Query::RemoveCoordinator { id: RaftId(1) });
    assert_eq!(removed, Report::CoordinatorRemoved { id: RaftId(1) });
    let status = cluster.status();
    assert_eq!((status.leader, status.coordinators), (RaftId(2), 1));
    assert_eq!(status.cluster, founded.cluster);
}

#[test]
fn a_directory_is_what_it_was_made_for() {
    let mut cluster = Cluster::new(1);
    let refused = |cluster: &mut Cluster, id: u64, empty| {
        let mut options = cluster.options(RaftId(1), empty);
        options.peers.insert(RaftId(2), "127.0.0.1:1".into());
        options.id = RaftId(id);
        Running::start(options)
            .stop()
            .expect_err("refused")
            .to_string()
    };
    let text = refused(&mut cluster, 1, Empty::Refused);
    assert!(text.contains("--bootstrap"), "{text}");
    cluster.start(1, Empty::Founds);
    cluster.founded();
    let second = cluster.options_elsewhere();
    let text = Running::start(second)
        .stop()
        .expect_err("locked")
        .to_string();
    assert!(text.contains("in use"), "{text}");
    let running = cluster.running.remove(&RaftId(1)).expect("it runs");
    running.stop().expect("stopped");
    let text = refused(&mut cluster, 2, Empty::Refused);
    assert!(
        text.contains("not --id 2") || text.contains("is empty"),
        "{text}"
    );
    let stamp = cluster.home.path().join("1").join("stamp");
    std::fs::write(&stamp, "ephesus-coordinator 9\n").expect("written");
    let text = refused(&mut cluster, 1, Empty::Refused);
    assert!(text.contains("not the format"), "{text}");
}

#[test]
fn a_founder_whose_directory_was_emptied_is_not_let_in_again() {
    let mut cluster = Cluster::new(3);
    (1..=3).for_each(|id| cluster.start(id, Empty::Founds));
    let founded = cluster.founded();
    until("all take part", || cluster.is_complete());
    let lost = RaftId(founded.leader.0 % 3 + 1);
    cluster.stop(lost);
    let home = cluster.home.path().join(lost.to_string());
    std::fs::remove_dir_all(&home).expect("emptied");
    cluster.start(lost.0, Empty::Founds);
    until("it is silent", || {
        let rows = cluster.rows();
        rows.iter().any(|row| row.id == lost && !row.active)
    });
    // It stays so, and the others need no vote of it.
    for _ in 0..40 {
        let rows = cluster.rows();
        let is_shut_out = |row: &CoordinatorRow| row.active == (row.id != lost);
        assert!(rows.iter().all(is_shut_out), "{rows:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(cluster.status().cluster, founded.cluster);
    let removed = cluster.ask(&Query::RemoveCoordinator { id: lost });
    assert_eq!(removed, Report::CoordinatorRemoved { id: lost });
}

#[test]
fn what_each_coordinator_refuses_is_shown_by_the_leader() {
    let mut cluster = Cluster::new(3);
    (1..=3).for_each(|id| cluster.start(id, Empty::Founds));
    cluster.founded();
    for (times, address) in (1..).zip(cluster.addresses()) {
        for _ in 0..times {
            let mut stranger = TcpStream::connect(&address).expect("a port");
            stranger.write_all(&[b'x'; 64]).expect("written");
            // It is closed, with or without a word before.
            let _ = stranger.read_to_end(&mut Vec::new());
        }
    }
    let refused = |rows: Vec<CoordinatorRow>| -> Vec<Option<u64>> {
        let by_reason = |row: &CoordinatorRow| row.refusals.values().sum::<u64>();
        let shown = rows
            .iter()
            .all(|row| row.refused.unwrap_or(0) == by_reason(row));
        assert!(shown, "{rows:?}");
        rows.iter().map(|row| row.refused).collect()
    };
    until("all have told", || {
        refused(cluster.rows()) == [Some(1), Some(2), Some(3)]
    });
}

#[test]
fn a_node_that_speaks_for_another_is_not_heard_and_cut_off() {
    let mut cluster = Cluster::new(1);
    cluster.start(1, Empty::Founds);
    cluster.founded();
    let address = &cluster.addresses()[0];
    let [own, other] = [1, 2].map(|n| NodeId([n; 16]));
    let registration = |node| Registration {
        node,
        cluster: None,
        name: "athens".into(),
        incarnation: 1,
        addresses: Addresses {
            entry: "127.0.0.1:1".into(),
            tls_port: None,
            peer: "127.0.0.1:2".into(),
            rack: String::new(),
        },
        shards: 1,
        capacity: crate::state::CAPACITY_DEFAULT,
        speaks: VERSIONS,
    };
    let register = |node| {
        let identity = protocol::identity(LinkRole::Node, own);
        let mut link = Client::dial(address, identity, None, LIMIT).expect("a link");
        let request = Request::Register(registration(node));
        let payload = request.encode().expect("a request");
        link.request(protocol::kind::REQUEST, &payload, LIMIT)
    };
    for _ in 0..2 {
        let cut_off = register(other).expect_err("no answer");
        assert!(matches!(cut_off, CallError::Link(_)), "{cut_off}");
    }
    until("it is counted", || cluster.rows()[0].refused == Some(2));
    assert_eq!(cluster.status().nodes.values().sum::<u64>(), 0);
    register(own).expect("an answer");
    assert_eq!(cluster.status().nodes.values().sum::<u64>(), 1);
}
