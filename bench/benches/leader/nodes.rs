//! All simulated nodes, and what a frame of the leader means to those that get it.

use std::collections::BTreeMap;

use ephesus_coordinator::coordinator::SessionId;
use ephesus_coordinator::migration::Migration;
use ephesus_coordinator::protocol::{Answer, Request};
use ephesus_coordinator::view::TableUpdate;
use ephesus_wire::table::{PartitionEntry, PartitionStatus};
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};

use ephesus_bench::error::Result;

use super::node::Node;
use super::{Size, wrong};

/// Shards of each node.
pub const SHARDS: u16 = 4;

pub(super) struct Nodes {
    nodes: Vec<Node>,
    /// Where migrations that are not over leave from.
    sources: BTreeMap<MigrationId, usize>,
}

/// An update of the table, by whom it is about.
struct News {
    from: Option<u64>,
    to: u64,
    /// By partition.
    entries: BTreeMap<PartitionId, PartitionEntry>,
    /// New copies of nodes.
    assigned: BTreeMap<NodeId, Vec<(PartitionId, Epoch)>>,
    migrations: BTreeMap<MigrationId, Option<Migration>>,
    /// Those that leave a node, by its number.
    leaving: BTreeMap<usize, Vec<MigrationId>>,
}

impl Nodes {
    pub(super) fn new(size: Size) -> Nodes {
        Nodes {
            nodes: (0..size.nodes).map(Node::new).collect(),
            sources: BTreeMap::new(),
        }
    }

    pub(super) fn registrations(&self) -> Vec<(SessionId, Request)> {
        let numbered = (0..).zip(&self.nodes);
        numbered
            .map(|(number, node)| (node.session, node.registration(number)))
            .collect()
    }

    /// What all of them say now.
    pub(super) fn speak(&mut self, now_ms: u64) -> Vec<(SessionId, Request)> {
        let mut said = Vec::new();
        for node in &mut self.nodes {
            let session = node.session;
            let requests = node.speak(now_ms);
            said.extend(requests.into_iter().map(|request| (session, request)));
        }
        said
    }

    /// So many of them are gone, one in so many; their sessions and names.
    pub(super) fn kill(&mut self, count: usize) -> Vec<(SessionId, String)> {
        let step = self.nodes.len() / count;
        let killed = self.nodes.iter_mut().step_by(step).take(count);
        killed
            .map(|node| {
                node.is_alive = false;
                (node.session, node.name.clone())
            })
            .collect()
    }

    /// Whether all that are alive have this version of the table.
    pub(super) fn have(&self, version: u64) -> bool {
        let mut alive = self.nodes.iter().filter(|node| node.is_alive);
        alive.all(|node| node.held == version)
    }

    /// Takes a frame that the leader has sent to these.
    pub(super) fn take(&mut self, to: &[SessionId], frame: &[u8], now_ms: u64) -> Result<()> {
        match Answer::decode(frame).map_err(|e| wrong("an answer", e))? {
            Answer::Registered { .. } => {
                for number in self.numbers(to) {
                    self.nodes[number].joined(number as u16, now_ms);
                }
            }
            Answer::Heartbeat(answer) => {
                for number in self.numbers(to) {
                    self.nodes[number].heard(answer.status);
                }
            }
            Answer::Table(update) => {
                let news = self.read(*update);
                for number in self.numbers(to) {
                    self.learn(number, &news, now_ms);
                }
                let over = news.migrations.iter().filter(|(_, m)| m.is_none());
                for (id, _) in over {
                    self.sources.remove(id);
                }
            }
            Answer::StartNoted(_) | Answer::TellHotKeys => {}
            answer @ (Answer::Refused(_) | Answer::NotLeader(_) | Answer::Operator { .. }) => {
                return Err(wrong("what the leader says", format!("{answer:?}")));
            }
        }
        Ok(())
    }

    fn numbers(&self, sessions: &[SessionId]) -> Vec<usize> {
        let numbers = sessions.iter().map(|session| session.0 as usize - 1);
        numbers.filter(|n| self.nodes[*n].is_alive).collect()
    }

    fn read(&mut self, update: TableUpdate) -> News {
        let (from, to, entries, migrations) = match update {
            TableUpdate::Full(view) => {
                let to = view.version();
                let entries = (0..).map(PartitionId).zip(view.table.entries).collect();
                let active = view.migrations.active.into_iter();
                let active = active.map(|(id, migration)| (id, Some(migration)));
                (None, to, entries, active.collect())
            }
            TableUpdate::Delta(delta) => (
                Some(delta.from),
                delta.to,
                delta.partitions.into_iter().collect(),
                delta.migrations.into_iter().collect(),
            ),
        };
        let mut news = News {
            from,
            to,
            entries,
            migrations,
            assigned: BTreeMap::new(),
            leaving: BTreeMap::new(),
        };
        for (partition, entry) in &news.entries {
            if let Some(owner) = entry.primary()
                && entry.status == PartitionStatus::Assigned
            {
                let assigned = news.assigned.entry(owner.node).or_default();
                assigned.push((*partition, entry.epoch));
            }
        }
        for (id, migration) in &news.migrations {
            if let Some(migration) = migration {
                let bytes = migration.source.node.0;
                let number = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
                self.sources.insert(*id, number);
            }
            if let Some(number) = self.sources.get(id) {
                news.leaving.entry(*number).or_default().push(*id);
            }
        }
        news
    }

    fn learn(&mut self, number: usize, news: &News, now_ms: u64) {
        let node = &mut self.nodes[number];
        let fits = news.from.is_none_or(|from| from == node.held);
        if !fits || news.to <= node.held {
            return;
        }
        let entries = &news.entries;
        node.unconfirmed.retain(|(p, _)| !entries.contains_key(p));
        let assigned = news.assigned.get(&node.id).into_iter().flatten();
        node.unconfirmed.extend(assigned.copied());
        if news.from.is_none() {
            node.keep(|id| news.migrations.contains_key(id));
        }
        for id in news.leaving.get(&number).into_iter().flatten() {
            let migration = news.migrations.get(id).and_then(Option::as_ref);
            node.leaves(*id, migration.map(|migration| &migration.phase), now_ms);
        }
        node.has_table(news.to, now_ms);
    }
}
