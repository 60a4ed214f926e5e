//! A node while it serves: it follows its cluster, its moves, its disk and its logs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ephesus_coordinator::membership::{MembershipEvent, boottime_ms};
use ephesus_coordinator::report::Figures;
use ephesus_coordinator::scheduling::prefer_short_slices;
use ephesus_coordinator::state::{MemberStatus, Refusal};
use ephesus_coordinator::view::View;
use ephesus_wal::is_no_room;
use ephesus_wire::{Epoch, PartitionId, ShardId};

use super::data_dir::{DataDir, Layout};
use super::environment::{self, Environment};
use super::freed_memory::FreedMemoryThread;
use super::joining::{Joining, is_final};
use super::layout_writer::LayoutWriter;
use super::peers::PeerPort;
use super::process;
use super::rates::Rates;
use super::reserve::Reserve;
use super::routes::{Me, Routes};
use super::segment_threads::SegmentThreads;
use super::shared::NodeShared;
use super::time::AheadNotice;
use crate::acl::thread::AclFileThread;
use crate::by_shard::ByShard;
use crate::failpoint;
use crate::image::{StoreThread, wait_for_room, waits_for_room};
use crate::migration::node::{Event, NodeMigrations};
use crate::migration::slots::thread::SlotMigrations;
use crate::migration::{Order, Report};
use crate::script::functions::FunctionsThread;
use crate::shard::mesh::Message;
use crate::shard::segments::Jobs;
use crate::tls::ServerTls;

/// How often the node looks at its disk and at the length of its logs.
const MONITOR_EVERY: Duration = Duration::from_millis(100);

/// How often the memory is looked at that the node takes without keys and clients.
const WEIGH_EVERY: Duration = Duration::from_secs(1);

/// Free space that must remain for sled's own files.
const FREE_FLOOR_BYTES: u64 = 64 << 20;

/// A node that serves.
pub struct Node {
    pub shared: Arc<NodeShared>,
    pub environment: Environment,
    pub recovery_ms: u64,
    pub sync_latency: Option<Duration>,
    pub is_new: bool,
    pub(super) data_dir: Arc<DataDir>,
    pub(super) reserve: Reserve,
    pub(super) segment_bytes: u64,
    pub(super) executors: Vec<JoinHandle<()>>,
    pub(super) stores: Vec<StoreThread>,
    pub(super) running: Arc<AtomicUsize>,
    pub(super) segment_jobs: Jobs,
    pub(super) segment_threads: SegmentThreads,
    pub(super) raised: bool,
    pub(super) rates: Rates,
    pub(super) joining: Joining,
    pub(super) peer_port: PeerPort,
    pub(super) slot_migrations: SlotMigrations,
    pub(super) acl_file: Option<AclFileThread>,
    pub(super) functions: FunctionsThread,
    pub(super) freed_memory: FreedMemoryThread,
    /// What shards say about migrations; the sender is for their starts.
    pub(super) reports: (flume::Sender<Vec<Report>>, flume::Receiver<Vec<Report>>),
    pub(super) layout: Layout,
    pub(super) view: Arc<View>,
    /// What shards were given last.
    pub(super) routes: Arc<Routes>,
    pub(super) migrations: NodeMigrations,
    pub(super) layout_writer: LayoutWriter,
    pub(super) figures: Figures,
    pub(super) ahead_notice: AheadNotice,
    /// Whether it was there when it was looked at last.
    pub(super) has_lease: bool,
    /// Whether partitions had owners when that was looked at last.
    pub(super) is_assigned: bool,
}

impl Node {
    /// The copies that are served here.
    pub(super) fn hosted(&self) -> BTreeMap<PartitionId, Epoch> {
        hosted(&self.layout, &self.migrations)
    }

    /// Follows the cluster, its moves, free space and log lengths until `is_over` says so, or all shards
    /// have ended. Reads its files again when `must_reload` says so.
    ///
    /// # Errors
    /// The cluster has no place for this node any more.
    pub fn supervise(
        &mut self,
        is_over: &dyn Fn() -> bool,
        must_reload: &dyn Fn() -> bool,
    ) -> Result<(), Refusal> {
        // Clients whose commands are held wait for this thread, too.
        prefer_short_slices();
        // What the first table says is done like what the next ones say.
        self.act(vec![Event::Table(Arc::clone(&self.view))]);
        process::give_memory_back_soon();
        let mut monitored_ms = boottime_ms();
        let mut weighed_ms = monitored_ms;
        let shared = Arc::clone(&self.shared);
        let is_over = || is_over() || shared.is_asked_to_stop();
        while !is_over() && self.running.load(Ordering::Acquire) > 0 {
            let events = self.happened()?;
            if !events.is_empty() || self.migrations.is_waiting() {
                self.act(events);
            }
            if must_reload() {
                self.reload();
            }
            let now_ms = boottime_ms();
            if now_ms - monitored_ms >= MONITOR_EVERY.as_millis() as u64 {
                monitored_ms = now_ms;
                self.monitor();
            }
            if now_ms - weighed_ms >= WEIGH_EVERY.as_millis() as u64 {
                weighed_ms = now_ms;
                self.shared.note_startup_bytes(process::anonymous_bytes());
            }
        }
        Ok(())
    }

    /// Reads the files of TLS again. Clients that are connected stay as they are.
    fn reload(&self) {
        match self.shared.tls.as_ref().map(ServerTls::reload) {
            Some(Ok(())) => tracing::info!("SIGHUP: the files of TLS were read again"),
            Some(Err(error)) => {
                tracing::error!(
                    "SIGHUP: the files of TLS are used as they were read before: {error}"
                );
            }
            None => tracing::info!("SIGHUP: there are no files to read again"),
        }
    }

    /// Waits for a while until something happens, and answers all that has; of several tables the newest.
    fn happened(&mut self) -> Result<Vec<Event>, Refusal> {
        enum Happened {
            Member(MembershipEvent),
            Migrations(Event),
            Shard(Vec<Report>),
        }
        let first = flume::Selector::new()
            .recv(self.joining.events(), |event| {
                event.ok().map(Happened::Member)
            })
            .recv(&self.reports.1, |reports| reports.ok().map(Happened::Shard))
            .recv(self.layout_writer.written(), |number| {
                number.ok().map(Event::Written).map(Happened::Migrations)
            })
            .recv(self.peer_port.events(), |event| {
                event.ok().map(Event::from).map(Happened::Migrations)
            })
            .wait_timeout(MONITOR_EVERY);
        let (mut members, mut events) = (Vec::new(), Vec::new());
        match first {
            Ok(Some(Happened::Member(event))) => members.push(event),
            Ok(Some(Happened::Migrations(event))) => events.push(event),
            Ok(Some(Happened::Shard(reports))) => {
                events.extend(reports.into_iter().map(Event::Report));
            }
            Ok(None) | Err(_) => {}
        }
        members.extend(self.joining.events().try_iter());
        let reports = self.reports.1.try_iter().flatten();
        events.extend(reports.map(Event::Report));
        events.extend(self.layout_writer.written().try_iter().map(Event::Written));
        events.extend(self.peer_port.events().try_iter().map(Event::from));
        let mut newest = None;
        for event in members {
            match event {
                MembershipEvent::Table(view) => newest = Some(view),
                MembershipEvent::Refused(refusal) if is_final(&refusal) => return Err(refusal),
                MembershipEvent::Refused(refusal) => tracing::warn!("not let in: {refusal}"),
                MembershipEvent::StartNoted(nonce) => {
                    // It was noted before the node served, unless its coordinators were of an earlier release then.
                    if let Err(error) = self.joining.note_start(nonce) {
                        tracing::warn!(%error, "that this start was accepted is not noted");
                    }
                }
                MembershipEvent::Registered(_)
                | MembershipEvent::Confirmed
                | MembershipEvent::Mismatch { .. } => {}
            }
        }
        if let Some(view) = newest {
            if view.is_forced_since(&self.view) {
                return Err(Refusal::Forced);
            }
            self.slot_migrations.follow(Arc::clone(&view));
            self.joining.note_coordinators(&self.data_dir, &view);
            self.view = Arc::clone(&view);
            self.follow_others();
            events.push(Event::Table(view));
        }
        Ok(events)
    }

    /// Has what is published here sent to all other nodes of the newest table that have not failed.
    pub(super) fn follow_others(&self) {
        let others = self.view.members.iter().filter(|(node, member)| {
            **node != self.shared.id && member.status != MemberStatus::Failed
        });
        let others = others.map(|(node, member)| (*node, member.addresses.peer.clone()));
        self.peer_port.follow(others.collect());
    }

    /// Lets what has happened take effect.
    fn act(&mut self, events: Vec<Event>) {
        let effects = self
            .migrations
            .turn(events, &mut self.layout, boottime_ms());
        if let Some(steps) = effects.steps {
            self.joining.set_migration_steps(steps);
        }
        tell_shards(&self.shared, effects.begun, effects.orders);
        if effects.routes {
            self.send_routes();
        }
        if let Some(number) = effects.layout {
            self.layout_writer.write(number, &self.layout);
        }
        if effects.hosted {
            self.joining.set_hosted(self.hosted());
        }
        for dial in effects.dials {
            self.peer_port.dial(dial);
        }
        for (offer, reason) in effects.refusals {
            tracing::info!(batch = %offer.batch.id(), "a stream was refused: {reason}");
            offer.refuse(&reason);
        }
        if let Some(progress) = effects.progress {
            self.joining.set_migration_progress(progress);
        }
    }

    fn send_routes(&mut self) {
        let is_begun = |partition| self.migrations.is_begun(partition);
        let before = Some(&*self.routes);
        let routes = routes(&self.shared, &self.layout, &self.view, is_begun, before);
        self.routes = send_routes(&self.shared, routes);
    }

    pub(super) fn monitor(&mut self) {
        let shared = &self.shared;
        #[expect(
            clippy::disallowed_methods,
            reason = "rates decide about pauses at most"
        )]
        self.rates.sample(Instant::now(), shared.stats.as_slice());
        shared.look_at_load(&self.routes, boottime_ms());
        self.ahead_notice.look(shared.time.ahead_ms());
        let has_lease = shared.lease.holds();
        match (std::mem::replace(&mut self.has_lease, has_lease), has_lease) {
            (true, false) => tracing::warn!(
                "no lease: no coordinator that leads has answered in time; keys get -CLUSTERDOWN until one does"
            ),
            (false, true) => tracing::info!("there is a lease: the keys of this node are served"),
            _ => {}
        }
        let entries = &self.view.table.entries;
        let is_assigned = entries.iter().any(|entry| entry.primary().is_some());
        match (
            std::mem::replace(&mut self.is_assigned, is_assigned),
            is_assigned,
        ) {
            (true, false) => tracing::info!(
                min_nodes = self.view.options.min_nodes,
                "no partition has an owner before so many nodes are there: keys get -CLUSTERDOWN"
            ),
            (false, true) => tracing::info!("partitions have owners"),
            _ => {}
        }
        let figures = Figures {
            keys: shared.stats.iter().map(|stats| stats.keys.get()).sum(),
            bytes: shared.memory_bytes(),
        };
        if figures != self.figures {
            self.figures = figures;
            self.joining.set_figures(figures);
        }
        let floor = self.disk_floor();
        let free = environment::free_bytes(self.data_dir.path()).unwrap_or(u64::MAX);
        // Free space does not tell of quotas: what could not be written does.
        let is_refused = self
            .reserve
            .renew(free)
            .is_err_and(|error| is_no_room(&error))
            || waits_for_room()
            || shared.stats.iter().any(|s| s.lacks_room.get() != 0);
        let is_full = free < floor || is_refused;
        if shared.disk.set(is_full, free, floor) {
            if is_full {
                tracing::warn!(
                    free,
                    floor,
                    is_refused,
                    "free space is below the floor, or refused: writes are refused, reads go on"
                );
            } else {
                tracing::info!(free, "free space is back: writes go on");
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

    /// Free space below which no writes are taken: two segments of each log, all images that may be written at once,
    /// at twice their size, as leaves of sled's may be half empty, and room for sled's other files.
    fn disk_floor(&self) -> u64 {
        let segments = 2 * self.segment_bytes * u64::from(self.shared.shards());
        let images = self.shared.stats.iter().map(|s| s.image_bytes.get());
        segments + 2 * images.sum::<u64>() + FREE_FLOOR_BYTES
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
        self.segment_threads.join();
        // What is not in the images yet is in the logs.
        wait_for_room(false);
        for store in self.stores {
            store.stop();
        }
        self.layout_writer.stop();
        self.slot_migrations.stop();
        if let Some(acl_file) = self.acl_file {
            acl_file.stop();
        }
        self.functions.stop();
        self.freed_memory.stop();
        self.peer_port.stop();
        self.joining.stop();
    }
}

/// The copies of a layout that are served.
pub(super) fn hosted(layout: &Layout, migrations: &NodeMigrations) -> BTreeMap<PartitionId, Epoch> {
    let copies = layout.copies();
    let begun = copies.filter(|(partition, ..)| migrations.is_begun(*partition));
    begun
        .map(|(partition, _, epoch)| (partition, epoch))
        .collect()
}

/// Gives shards the copies that have begun, and then their orders.
pub(super) fn tell_shards(
    shared: &NodeShared,
    begun: Vec<(PartitionId, ShardId, Epoch)>,
    orders: Vec<(ShardId, Order)>,
) {
    if !begun.is_empty() {
        let mut by_shard: ByShard<_> = vec![Vec::new(); shared.peers.len()].into();
        for (partition, shard, epoch) in begun {
            by_shard[shard].push((partition, epoch));
        }
        for (peer, copies) in shared.peers.iter().zip(by_shard) {
            peer.send(Message::Host(copies));
        }
    }
    // Those of one shard that follow each other go together: it is waked up once. Those of several keep their order.
    let mut batches: Vec<(ShardId, Vec<Order>)> = Vec::new();
    for (shard, order) in orders {
        tracing::debug!(%shard, ?order, "a move goes on");
        failpoint::pass(order.name(), shard);
        match batches.last_mut() {
            Some((last, batch)) if *last == shard => batch.push(order),
            _ => batches.push((shard, vec![order])),
        }
    }
    for (shard, batch) in batches {
        shared.peers[shard].send(Message::Migrate(batch));
    }
}

/// Gives all shards new routes, and answers them.
pub(super) fn send_routes(shared: &NodeShared, routes: Routes) -> Arc<Routes> {
    let routes = Arc::new(routes);
    for peer in &shared.peers {
        peer.send(Message::Routes(Arc::clone(&routes)));
    }
    routes
}

/// Where keys lead by the newest table, as far as the copies are here and with their shards.
pub(super) fn routes(
    shared: &NodeShared,
    layout: &Layout,
    view: &View,
    is_begun: impl Fn(PartitionId) -> bool,
    before: Option<&Routes>,
) -> Routes {
    let me = Me {
        node: shared.id,
        shards: shared.shards(),
        port: shared.settings.listen.port(),
        tls_port: shared.tls.as_ref().map(ServerTls::port),
    };
    let has = |partition: PartitionId, shard, epoch| {
        layout.served(partition) == Some((shard, epoch)) && is_begun(partition)
    };
    let staged = layout.staging().iter();
    let staged = staged.map(|copy| (copy.partition, copy.shard));
    Routes::new(shared.partitioning, Some(view), me, has, staged, before)
}
