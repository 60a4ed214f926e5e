//! A whole cluster: coordinators and named nodes, as processes on loopback.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::coordinator::Core;
use crate::node::{Node, Options};
use crate::paths;
use crate::resp::Client;
use crate::roaming::Roaming;

/// The coordinators of a cluster.
const COORDINATORS: u16 = 3;

/// One partition, as `ephesus partitions` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub partition: u16,
    /// Inclusive.
    pub slots: (u16, u16),
    pub status: String,
    pub epoch: u64,
    /// Name of the owner; empty: none.
    pub node: String,
    pub shard: u16,
}

/// One line of CLUSTER NODES.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    pub id: String,
    pub address: String,
    /// Without `myself`.
    pub flags: String,
    pub link: String,
    /// Inclusive ranges.
    pub slots: Vec<(u16, u16)>,
}

/// Coordinators and nodes; all of them end when it is dropped.
#[derive(Debug)]
pub struct TestCluster {
    pub nodes: Vec<Node>,
    pub core: Core,
}

impl TestCluster {
    /// Three coordinators with a cluster, and no node yet; `flags` are for the coordinators.
    pub fn founded(flags: &[&str]) -> Self {
        Self {
            core: Core::founded(COORDINATORS, flags),
            nodes: Vec::new(),
        }
    }

    /// The same with nodes of `shards` shards each, once every partition is online.
    pub fn started(flags: &[&str], names: &[&str], shards: u16) -> Self {
        Self::started_with(flags, names, |whole, name| whole.options(name, shards))
    }

    /// The same with nodes that have options of the test's own.
    pub fn started_with(
        flags: &[&str],
        names: &[&str],
        options: impl Fn(&Self, &str) -> Options,
    ) -> Self {
        let count = names.len().to_string();
        let mut whole = Self::founded(&[flags, &["--min-nodes", &count]].concat());
        for name in names {
            let options = options(&whole, name);
            whole.add_with(options).spawn();
        }
        whole.until_healthy();
        for node in &mut whole.nodes {
            node.wait_ready().expect("a node that is live");
        }
        whole
    }

    /// What a node of this cluster is started with.
    pub fn options(&self, name: &str, shards: u16) -> Options {
        let addresses = self.core.addresses();
        Options {
            shards,
            partitions: None,
            coordinators: addresses.split(',').map(str::to_owned).collect(),
            name: Some(name.to_owned()),
            ..Options::default()
        }
    }

    /// The node that has stopped at a failpoint, if one has.
    pub fn stopped(&self) -> Option<usize> {
        self.nodes.iter().position(Node::is_stopped)
    }

    /// Waits until one has.
    ///
    /// # Panics
    /// When none does.
    pub fn until_stopped(&self, at_most: Duration) -> usize {
        let began = Instant::now();
        loop {
            if let Some(at) = self.stopped() {
                return at;
            }
            assert!(
                began.elapsed() < at_most,
                "no node has stopped at a failpoint"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Another node, which has not been started yet.
    pub fn add(&mut self, name: &str, shards: u16) -> &mut Node {
        let options = self.options(name, shards);
        self.add_with(options)
    }

    /// The same at an address, run by the command that runs programs there.
    pub fn add_at(
        &mut self,
        name: &str,
        shards: u16,
        (host, wrapper): (Ipv4Addr, Vec<String>),
    ) -> &mut Node {
        let options = Options {
            host: host.into(),
            wrapper,
            ..self.options(name, shards)
        };
        self.add_with(options)
    }

    /// The same with options of the test's own.
    pub fn add_with(&mut self, options: Options) -> &mut Node {
        let directory = format!("node-{}", self.nodes.len() + 1);
        let data = self.core.home().join(directory);
        let node = Node::stopped_at(options, paths::scratch(), data);
        self.nodes.push(node);
        self.nodes.last_mut().expect("the node just added")
    }

    /// The newest node of that name.
    ///
    /// # Panics
    /// When there is none.
    pub fn node(&mut self, name: &str) -> &mut Node {
        let mut nodes = self.nodes.iter_mut().rev();
        nodes
            .find(|node| node.options.name.as_deref() == Some(name))
            .unwrap_or_else(|| panic!("no node {name}"))
    }

    /// Entry ports of all nodes.
    pub fn entries(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::entry).collect()
    }

    /// A cluster client that begins at the nodes that run.
    pub fn client(&self) -> Roaming {
        let running = self.nodes.iter().filter(|node| node.is_running());
        Roaming::new(running.map(Node::entry).collect())
    }

    /// How many keys the nodes that run have, all together.
    pub fn count_keys(&self) -> u64 {
        let running = self.nodes.iter().filter(|node| node.is_running());
        let keys = running.map(|node| node.client().say("DBSIZE").integer());
        keys.map(|keys| keys as u64).sum()
    }

    /// Sends a signal to every coordinator.
    pub fn signal_coordinators(&self, signal: i32) {
        for coordinator in &self.core.coordinators {
            coordinator.signal(signal);
        }
    }

    /// Waits until `ephesus status` has nothing to complain of but silent coordinators.
    ///
    /// # Panics
    /// When it never is so.
    pub fn until_healthy(&self) {
        let mut last = None;
        self.core.until("every partition is online", |core| {
            last = core.try_status();
            last.as_ref().is_some_and(|status| {
                let problems = status["problems"].as_array().expect("problems");
                let kinds = problems.iter().map(|problem| &problem["kind"]);
                kinds.into_iter().all(|kind| kind == "coordinator_silent")
            })
        });
    }

    /// The partition table, as the coordinators have it.
    pub fn table(&self) -> Vec<Row> {
        let rows = self.core.json("partitions");
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let rows = rows.as_array().expect("rows").iter();
        rows.map(|row| Row {
            partition: number(&row["partition"]) as u16,
            slots: (
                number(&row["first_slot"]) as u16,
                number(&row["last_slot"]) as u16,
            ),
            status: text(&row["status"]),
            epoch: number(&row["epoch"]),
            node: text(&row["node"]),
            shard: number(&row["shard"]) as u16,
        })
        .collect()
    }

    /// The status of every node, by name.
    pub fn statuses(&self) -> BTreeMap<String, String> {
        let rows = self.core.json("nodes");
        let rows = rows.as_array().expect("rows").iter();
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        rows.map(|row| (text(&row["name"]), text(&row["status"])))
            .collect()
    }

    /// Waits until all coordinators take part and the leader has heard of every node, so that the
    /// next leader may be lost.
    ///
    /// # Panics
    /// When it never is so.
    pub fn until_settled(&self) {
        self.core.until("everybody is heard of", |core| {
            let nodes = core.json("nodes");
            let mut nodes = nodes.as_array().expect("rows").iter();
            let is_heard = |node: &serde_json::Value| node["last_heartbeat_ms"].is_u64();
            nodes.all(is_heard) && core.is_complete()
        });
    }

    /// Waits until the coordinators count the node as this.
    ///
    /// # Panics
    /// When they never do.
    pub fn until_node_is(&self, name: &str, status: &str) {
        self.core.until(&format!("{name} is {status}"), |_| {
            self.statuses().get(name).is_some_and(|now| now == status)
        });
    }

    /// Waits until something is so, looking every few milliseconds.
    ///
    /// # Panics
    /// When it is not within `at_most`.
    pub fn within(&self, at_most: Duration, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let began = std::time::Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < at_most, "{what}: not within {at_most:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether a slot is in one of the ranges.
pub fn covers(ranges: &[(u16, u16)], slot: u16) -> bool {
    ranges
        .iter()
        .any(|&(first, last)| (first..=last).contains(&slot))
}

/// How many slots the ranges have.
pub fn count(ranges: &[(u16, u16)]) -> u64 {
    ranges
        .iter()
        .map(|&(first, last)| u64::from(last - first) + 1)
        .sum()
}

/// What CLUSTER NODES lists, sorted; and how many lines say `myself`.
pub fn listed(client: &mut Client) -> (Vec<Listed>, usize) {
    let text = client.say("CLUSTER NODES").text();
    let mut myself = 0;
    let mut all: Vec<Listed> = text
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let flags = fields[2].strip_prefix("myself,").unwrap_or_else(|| {
                assert!(!fields[2].contains("myself"), "{line}");
                fields[2]
            });
            myself += usize::from(flags != fields[2]);
            let range = |text: &&str| {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let number = |text: &str| text.parse().expect("a slot");
                (number(first), number(last))
            };
            let (address, _) = fields[1].split_once('@').expect("host:port@port");
            Listed {
                id: fields[0].to_owned(),
                address: address.to_owned(),
                flags: flags.to_owned(),
                link: fields[7].to_owned(),
                slots: fields[8..].iter().map(range).collect(),
            }
        })
        .collect();
    all.sort();
    (all, myself)
}

/// A line of CLUSTER INFO.
pub fn info(client: &mut Client, name: &str) -> String {
    let text = client.say("CLUSTER INFO").text();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}
