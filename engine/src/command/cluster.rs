//! The cluster as clients see it: every shard is one primary, without replicas.
//!
//! `CLUSTER SLOTS`, `SHARDS` and `NODES` describe the same nodes under the same ids.

use std::fmt::Write;

use ephesus_wire::limits;
use ephesus_wire::resp::reply::{self, Protocol};

/// One primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewNode {
    /// 40 lower-case hex digits, stable over restarts.
    pub id: [u8; 40],
    /// What clients connect to; never empty.
    pub host: String,
    pub port: u16,
    pub tls_port: Option<u16>,
    /// Of the two, that which a client is to connect to that comes as the one which asks.
    pub client_port: u16,
    pub bus_port: u16,
    /// Inclusive slot ranges, ascending.
    pub slots: Vec<(u16, u16)>,
    /// The coordinator counts its node as failed; its slots stay listed.
    pub failed: bool,
    pub epoch: u64,
}

impl ViewNode {
    fn slot_count(&self) -> u64 {
        self.slots
            .iter()
            .map(|&(first, last)| u64::from(last) - u64::from(first) + 1)
            .sum()
    }

    fn health(&self) -> &'static str {
        if self.failed { "fail" } else { "online" }
    }
}

/// The primaries of the cluster, seen from one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// Index of the primary that answers.
    pub myself: usize,
    pub nodes: Vec<ViewNode>,
    /// This node may answer for its slots (its lease is valid).
    pub serving: bool,
    pub messages_sent: u64,
    pub messages_received: u64,
}

impl ClusterView {
    /// Appends the reply to `CLUSTER SLOTS`: first slot, last slot, `[host, port, id, metadata]` per
    /// range, ascending.
    pub fn write_slots(&self, out: &mut Vec<u8>, protocol: Protocol) {
        let mut ranges: Vec<(u16, u16, &ViewNode)> = self
            .nodes
            .iter()
            .flat_map(|node| {
                node.slots
                    .iter()
                    .map(move |&(first, last)| (first, last, node))
            })
            .collect();
        ranges.sort_unstable_by_key(|&(first, ..)| first);
        reply::array(out, ranges.len());
        for (first, last, node) in ranges {
            reply::array(out, 3);
            reply::integer(out, i64::from(first));
            reply::integer(out, i64::from(last));
            reply::array(out, 4);
            reply::bulk(out, node.host.as_bytes());
            reply::integer(out, i64::from(node.client_port));
            reply::bulk(out, &node.id);
            reply::map(out, protocol, 0);
        }
    }

    /// Appends the reply to `CLUSTER SHARDS`: a map of slots and nodes per shard.
    pub fn write_shards(&self, out: &mut Vec<u8>, protocol: Protocol) {
        reply::array(out, self.nodes.len());
        for node in &self.nodes {
            reply::map(out, protocol, 2);
            reply::bulk(out, b"slots");
            reply::array(out, node.slots.len() * 2);
            for &(first, last) in &node.slots {
                reply::integer(out, i64::from(first));
                reply::integer(out, i64::from(last));
            }
            reply::bulk(out, b"nodes");
            reply::array(out, 1);
            reply::map(out, protocol, 7 + usize::from(node.tls_port.is_some()));
            field(out, "id", &node.id);
            reply::bulk(out, b"port");
            reply::integer(out, i64::from(node.port));
            if let Some(port) = node.tls_port {
                reply::bulk(out, b"tls-port");
                reply::integer(out, i64::from(port));
            }
            field(out, "ip", node.host.as_bytes());
            field(out, "endpoint", node.host.as_bytes());
            field(out, "role", b"master");
            reply::bulk(out, b"replication-offset");
            reply::integer(out, 0);
            field(out, "health", node.health().as_bytes());
        }
    }

    /// Appends the reply to `CLUSTER NODES`.
    pub fn write_nodes(&self, out: &mut Vec<u8>, protocol: Protocol) {
        reply::verbatim(out, protocol, "txt", self.nodes_text().as_bytes());
    }

    /// Appends the reply to `CLUSTER INFO`.
    pub fn write_info(&self, out: &mut Vec<u8>, protocol: Protocol) {
        reply::verbatim(out, protocol, "txt", self.info_text().as_bytes());
    }

    /// Appends the reply to `CLUSTER MYID`; zeros while the primary that answers is in no table.
    pub fn write_my_id(&self, out: &mut Vec<u8>) {
        let myself = self.nodes.get(self.myself);
        reply::bulk(out, myself.map_or(&[b'0'; 40], |node| &node.id));
    }

    /// One line per node:
    /// `id host:port@bus-port flags master ping pong epoch link-state slots...`.
    fn nodes_text(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let is_myself = index == self.myself;
            let flags = match (is_myself, node.failed) {
                (true, _) => "myself,master",
                (false, false) => "master",
                (false, true) => "master,fail",
            };
            let link = if node.failed && !is_myself {
                "disconnected"
            } else {
                "connected"
            };
            for &digit in &node.id {
                text.push(char::from(digit));
            }
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                " {}:{}@{} {flags} - 0 0 {} {link}",
                node.host, node.client_port, node.bus_port, node.epoch
            );
            for &(first, last) in &node.slots {
                let _ = match first == last {
                    true => write!(text, " {first}"),
                    false => write!(text, " {first}-{last}"),
                };
            }
            text.push('\n');
        }
        text
    }

    /// A partial outage stays partial: slots of failed nodes count as failed, the state stays ok.
    fn info_text(&self) -> String {
        let assigned: u64 = self.nodes.iter().map(ViewNode::slot_count).sum();
        let failed: u64 = self
            .nodes
            .iter()
            .filter(|node| node.failed)
            .map(ViewNode::slot_count)
            .sum();
        let state = if self.serving && assigned == u64::from(limits::SLOTS) {
            "ok"
        } else {
            "fail"
        };
        let size = self
            .nodes
            .iter()
            .filter(|node| !node.slots.is_empty())
            .count();
        let current_epoch = self.nodes.iter().map(|node| node.epoch).max().unwrap_or(0);
        let my_epoch = self.nodes.get(self.myself).map_or(0, |node| node.epoch);
        let mut text = String::new();
        let mut line = |name: &str, value: u64| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{name}:{value}\r\n");
        };
        line("cluster_slots_assigned", assigned);
        line("cluster_slots_ok", assigned - failed);
        line("cluster_slots_pfail", 0);
        line("cluster_slots_fail", failed);
        line("cluster_known_nodes", self.nodes.len() as u64);
        line("cluster_size", size as u64);
        line("cluster_current_epoch", current_epoch);
        line("cluster_my_epoch", my_epoch);
        line("cluster_stats_messages_sent", self.messages_sent);
        line("cluster_stats_messages_received", self.messages_received);
        line("total_cluster_links_buffer_limit_exceeded", 0);
        format!("cluster_state:{state}\r\n{text}")
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    reply::bulk(out, name.as_bytes());
    reply::bulk(out, value);
}

#[cfg(test)]
mod tests;
