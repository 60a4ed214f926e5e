//! The thread of one shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephesus_coordinator::scheduling::prefer_short_slices;
use ephesus_wal::LogOptions;
use ephesus_wire::ShardId;
use glommio::{LocalExecutorBuilder, Placement};

use super::error::StartError;
use super::executor::{self, Starting};
use super::ports::ShardPorts;
use super::recovery::RecoveredShard;
use super::routes::Routes;
use super::shared::NodeShared;
use crate::keyspace::Keyspace;
use crate::migration::Report;
use crate::shard::mesh::Message;
use crate::shard::segments::Jobs;
use crate::shard::{Checkpointer, Core, Segments, Shard, Start};
use crate::table::{KeyHasher, work_for};

/// Memory that glommio registers for each executor's own file I/O.
const IO_BYTES: usize = 128 << 10;

const RING_DEPTH: usize = 128;

/// What the thread is started with.
pub(super) struct ShardThread {
    pub id: ShardId,
    /// The CPU that it is pinned to.
    pub cpu: Option<usize>,
    pub shared: Arc<NodeShared>,
    pub routes: Arc<Routes>,
    pub hasher: KeyHasher,
    pub recovered: RecoveredShard,
    /// Of this shard's log.
    pub log: LogOptions,
    pub segment_jobs: Jobs,
    pub checkpointer: Checkpointer,
    pub inbox: flume::Receiver<Message>,
    pub ports: ShardPorts,
    pub reports: flume::Sender<Vec<Report>>,
    /// Shards that run.
    pub running: Arc<AtomicUsize>,
    /// The shard serves once this lets it through.
    pub gate: flume::Receiver<()>,
}

impl ShardThread {
    /// Starts the thread; it reports when it waits at the gate.
    ///
    /// # Errors
    /// [`StartError`]: there is no thread.
    pub fn spawn(self) -> Result<Starting<()>, StartError> {
        let name = format!("shard-{}", self.id);
        let builder =
            LocalExecutorBuilder::new(self.cpu.map_or(Placement::Unbound, Placement::Fixed))
                .name(&name)
                .io_memory(IO_BYTES)
                .ring_depth(RING_DEPTH);
        executor::spawn((name, "a shard"), builder, move |report| self.run(report))
    }

    async fn run(self, report: executor::Report<()>) {
        let shard = self.id;
        work_for(usize::from(shard.0));
        prefer_short_slices();
        // The first sleep of an executor takes tens of milliseconds: not at a client's cost.
        glommio::timer::sleep(Duration::from_micros(1)).await;
        let (running, gate) = (Arc::clone(&self.running), self.gate.clone());
        match Shard::new(self.parts()) {
            Ok(shard) => {
                running.fetch_add(1, Ordering::AcqRel);
                let _ = report.send(Ok(()));
                if gate.recv().is_ok() {
                    shard.run();
                }
                running.fetch_sub(1, Ordering::AcqRel);
            }
            Err(error) => {
                let reason = error.to_string();
                let _ = report.send(Err(StartError::Shard { shard, reason }));
            }
        }
    }

    fn parts(self) -> Start {
        let RecoveredShard {
            partitions,
            writer,
            segment,
            mapped,
            files,
            wall_clock_ms,
        } = self.recovered;
        let partitioning = self.shared.partitioning;
        let waker = Arc::clone(self.shared.peers[self.id].waker());
        let keyspace = Keyspace::new(partitioning, partitions, self.hasher, writer, wall_clock_ms);
        let segments = Segments::new(
            self.segment_jobs,
            files,
            self.log,
            Arc::clone(&waker),
            segment,
            self.checkpointer.keep_bytes(),
        );
        Start {
            core: Core::new(self.id, self.shared, self.routes, keyspace),
            segments,
            mapped,
            checkpointer: self.checkpointer,
            inbox: self.inbox,
            waker,
            listeners: self.ports.listeners,
            reports: self.reports,
        }
    }
}
