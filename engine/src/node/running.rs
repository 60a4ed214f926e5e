//! A node while it serves: it follows its cluster, its disk and its logs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ephesus_coordinator::membership::MembershipEvent;
use ephesus_coordinator::report::Figures;
use ephesus_coordinator::state::Refusal;
use ephesus_coordinator::view::View;
use ephesus_wire::{Epoch, PartitionId};

use super::environment;
use super::joining::is_final;
use super::recovery::Plan;
use super::routes::{Me, Routes};
use super::shared::NodeShared;
use super::stamp::Layout;
use super::start::Node;
use crate::shard::mesh::Message;

/// How often the node looks at its disk and at the length of its logs.
const MONITOR_EVERY: Duration = Duration::from_millis(100);

/// Free space that must remain for sled's own files.
const FREE_FLOOR_BYTES: u64 = 64 << 20;

impl Node {
    /// The copies that are here.
    pub(super) fn hosted(&self) -> BTreeMap<PartitionId, Epoch> {
        let copies = self.layout.copies();
        copies
            .map(|(partition, _, epoch)| (partition, epoch))
            .collect()
    }

    /// Acts on a table: hosts what it newly gives to this node, and tells the shards who has what.
    pub(super) fn follow(&mut self, view: &View) {
        self.joining.note_coordinators(&self.data_dir, view);
        let plan = Plan::of(&view.table, self.shared.id, self.shared.shards());
        let added = self.layout.add_copies(&plan.copies);
        if !added.is_empty() {
            // Named durably before anything is written to them.
            if let Err(error) = self.data_dir.write_layout(&self.layout) {
                tracing::error!(%error, "stopping, restart to recover what was acknowledged");
                std::process::exit(1);
            }
            let mut by_shard = vec![Vec::new(); self.shared.peers.len()];
            for (partition, shard, epoch) in added {
                by_shard[usize::from(shard.0)].push((partition, epoch));
            }
            for (peer, copies) in self.shared.peers.iter().zip(by_shard) {
                peer.send(Message::Host(copies));
            }
            self.joining.set_hosted(self.hosted());
        }
        let routes = Arc::new(routes(&self.shared, &self.layout, view));
        for peer in &self.shared.peers {
            peer.send(Message::Routes(Arc::clone(&routes)));
        }
    }

    /// Follows the cluster, free space and log lengths until `is_over` says so, or all shards have
    /// ended.
    ///
    /// # Errors
    /// The cluster has no place for this node any more.
    pub fn supervise(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), Refusal> {
        while !is_over() && self.running.load(Ordering::Acquire) > 0 {
            let first = self.joining.events().recv_timeout(MONITOR_EVERY).ok();
            let rest = self.joining.events().try_iter();
            let mut newest = None;
            for event in first.into_iter().chain(rest).collect::<Vec<_>>() {
                match event {
                    MembershipEvent::Table(view) => newest = Some(view),
                    MembershipEvent::Refused(refusal) if is_final(&refusal) => return Err(refusal),
                    MembershipEvent::Refused(refusal) => tracing::warn!("not let in: {refusal}"),
                    MembershipEvent::Registered(_) | MembershipEvent::Mismatch { .. } => {}
                }
            }
            if let Some(view) = newest {
                self.slot_moves.follow(Arc::clone(&view));
                self.follow(&view);
            }
            self.monitor();
        }
        Ok(())
    }

    pub(super) fn monitor(&mut self) {
        let shared = &self.shared;
        #[expect(
            clippy::disallowed_methods,
            reason = "rates are for people, not for decisions"
        )]
        self.rates.sample(Instant::now(), &shared.stats);
        let figures = Figures {
            keys: shared.stats.iter().map(|stats| stats.keys.get()).sum(),
            bytes: shared.memory_bytes(),
        };
        if figures != self.figures {
            self.figures = figures;
            self.joining.set_figures(figures);
        }
        let segments = 2 * self.segment_bytes * u64::from(shared.shards());
        let largest_image =
            2 * shared.memory_bytes() / u64::from(shared.partitioning.count()) + FREE_FLOOR_BYTES;
        if let Some(free) = environment::free_bytes(self.data_dir.path()) {
            let is_full = free < segments + largest_image;
            if shared.set_disk_full(is_full) {
                if is_full {
                    tracing::warn!(
                        free,
                        floor = segments + largest_image,
                        "free space is below the floor: writes are refused, reads go on"
                    );
                } else {
                    tracing::info!(free, "free space is back: writes go on");
                }
            }
        }
        let is_urgent = shared.stats.iter().any(|s| s.images_urgent.get() != 0);
        if is_urgent != self.raised {
            self.raised = is_urgent;
            for store in &self.stores {
                if is_urgent {
                    store.raise()
                } else {
                    store.lower()
                }
            }
        }
    }

    /// Answers what was executed, makes it durable, and ends.
    pub fn stop(self) {
        for peer in &self.shared.peers {
            peer.send(Message::Stop);
        }
        for executor in self.executors {
            if executor.join().is_err() {
                tracing::error!("a shard ended in a panic");
            }
        }
        drop(self.segment_jobs);
        if self.segment_thread.join().is_err() {
            tracing::error!("the segment thread ended in a panic");
        }
        for store in self.stores {
            store.stop();
        }
        self.slot_moves.stop();
        self.peer_port.stop();
        self.joining.stop();
    }
}

/// Where keys lead by the newest table, as far as the copies are here.
pub(super) fn routes(shared: &NodeShared, layout: &Layout, view: &View) -> Routes {
    let me = Me {
        node: shared.id,
        shards: shared.shards(),
        port: shared.settings.listen.port(),
    };
    let has = |partition: PartitionId, shard, epoch| {
        layout.partitions[usize::from(partition.0)] == (shard, epoch)
    };
    Routes::new(shared.partitioning, Some(view), me, has)
}
