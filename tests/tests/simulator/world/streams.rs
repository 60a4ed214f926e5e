//! Connections between nodes: in order, and broken at both ends when anything is lost.

use ephesus_wire::MigrationId;

use super::{What, World};
use crate::migration::{Message, SOURCE, Stream, TARGET};
use crate::network::End;

/// One message in so many breaks its connection, while things go wrong.
const BREAKS: u64 = 120;

impl World {
    pub(super) fn open_stream(
        &mut self,
        migration: MigrationId,
        source: usize,
        target: usize,
    ) -> u64 {
        let stream = self.number();
        let ends = [source, target].map(|node| (node, self.nodes[node].life));
        let opened = Stream {
            migration,
            ends,
            arrives: [0, 0],
            is_broken: false,
        };
        self.streams.insert(stream, opened);
        stream
    }

    /// Sends a message towards an end.
    pub(super) fn send_stream(&mut self, id: u64, to: usize, message: Message) {
        let delay = self.network.delay_ms(&mut self.rng);
        let breaks = self.is_rough && self.rng.one_in(BREAKS);
        let now = self.now;
        let Some(stream) = self.streams.get_mut(&id).filter(|s| !s.is_broken) else {
            return;
        };
        if breaks {
            self.break_stream(id);
            return;
        }
        let at = (now + delay).max(stream.arrives[to]);
        stream.arrives[to] = at;
        self.after(at - now, What::OnStream(id, to, message));
    }

    /// A message arrives at an end.
    pub(super) fn on_stream(
        &mut self,
        id: u64,
        to: usize,
        message: &Message,
    ) -> Result<(), String> {
        let Some(stream) = self.streams.get(&id).filter(|s| !s.is_broken).cloned() else {
            return Ok(());
        };
        let (node, life) = stream.ends[to];
        let (from, _) = stream.ends[SOURCE + TARGET - to];
        let process = &self.nodes[node];
        let is_there = process.life == life && process.running.is_some();
        if !is_there || self.network.is_cut(End::Node(from), End::Node(node)) {
            self.break_stream(id);
            return Ok(());
        }
        let paused_until = process.paused_until;
        if paused_until > self.now {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.arrives[to] = stream.arrives[to].max(paused_until);
            }
            let wait = paused_until - self.now;
            self.after(wait, What::OnStream(id, to, message.clone()));
            return Ok(());
        }
        if to == SOURCE {
            self.source_told(node, stream.migration, id, message)
        } else {
            self.target_told(node, stream.migration, id, message)
        }
    }

    /// Both ends learn of it, the ones that are still there.
    pub(super) fn break_stream(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| !s.is_broken) else {
            return;
        };
        stream.is_broken = true;
        let (migration, ends) = (stream.migration, stream.ends);
        for (node, life) in ends {
            let delay = self.network.delay_ms(&mut self.rng);
            self.after(delay, What::StreamLost(id, migration, node, life));
        }
    }

    pub(super) fn break_streams_of(&mut self, node: usize, migration: MigrationId) {
        let own = self.streams.iter();
        let own = own.filter(|(_, s)| s.migration == migration && s.ends[SOURCE].0 == node);
        let own: Vec<u64> = own.map(|(id, _)| *id).collect();
        for id in own {
            self.break_stream(id);
        }
    }

    /// The process at an end has died.
    pub(super) fn lose_streams(&mut self, node: usize) {
        let lost = self.streams.iter();
        let lost = lost.filter(|(_, s)| s.ends.iter().any(|(end, _)| *end == node));
        let lost: Vec<u64> = lost.map(|(id, _)| *id).collect();
        for id in lost {
            self.break_stream(id);
        }
    }

    pub(super) fn stream_is_lost(
        &mut self,
        id: u64,
        migration: MigrationId,
        node: usize,
        life: u64,
    ) {
        let process = &self.nodes[node];
        if process.life != life || process.running.is_none() {
            return;
        }
        if process.paused_until > self.now {
            let wait = process.paused_until - self.now;
            self.after(wait, What::StreamLost(id, migration, node, life));
            return;
        }
        self.stream_lost(node, migration, id);
    }
}
