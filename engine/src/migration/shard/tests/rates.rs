//! How fast two shards move a partition, with their rings, logs and a connection.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ephesus_wal::{Durability, LogId, LogOptions, StdDisk, open_writer, recover};
use ephesus_wire::{Epoch, Lsn, MigrationId, Partitioning, ShardId};
use futures_lite::future::block_on;

use super::bed::{FROM, MOVING, NODE, TO, Wire, clock, empty_routes, open, orders, settings};
use crate::keyspace::{Keyspace, Partition};
use crate::migration::{Order, Report};
use crate::net::Waker;
use crate::node::segment_threads::SegmentThreads;
use crate::node::shared::NodeShared;
use crate::node::time::{NodeTime, WallClock};
use crate::shard::mesh::{Message, Peer};
use crate::shard::segments::Jobs;
use crate::shard::{Checkpointer, Core, Segments, Shard, Start};
use crate::table::KeyHasher;

/// Of each log: more than any of these moves needs, so that nothing is imaged.
const BUDGET: u64 = 64 << 30;

struct Bench {
    node: Arc<NodeShared>,
    inboxes: Vec<flume::Receiver<Message>>,
    jobs: Jobs,
    segments: SegmentThreads,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let (inboxes, peers) = (0..2)
            .map(|_| {
                let (sender, inbox) = flume::unbounded();
                let waker = Arc::new(Waker::new().expect("an eventfd"));
                (inbox, Peer::new(sender, waker))
            })
            .unzip();
        let partitioning = Partitioning::new(1).expect("a valid number");
        let node = NodeShared::new(
            NODE,
            settings(),
            partitioning,
            Default::default(),
            peers,
            NodeTime::start(WallClock::default(), 0),
        );
        let (jobs, segments) = SegmentThreads::start(2).expect("threads");
        let base = std::env::var_os("EPHESUS_TEST_DIR");
        let base = base.map_or_else(
            || env!("CARGO_MANIFEST_DIR").into(),
            std::path::PathBuf::from,
        );
        Bench {
            node: Arc::new(node),
            inboxes,
            jobs,
            segments,
            dir: tempfile::TempDir::new_in(base).expect("a directory"),
        }
    }

    /// Starts a shard with these copies; answers what it reports.
    fn start(
        &self,
        id: ShardId,
        fill: impl FnOnce(&KeyHasher) -> Vec<Partition> + Send + 'static,
    ) -> (flume::Receiver<Vec<Report>>, JoinHandle<()>) {
        let (sender, reports) = flume::unbounded();
        let (started, is_started) = flume::bounded(1);
        let (node, jobs) = (Arc::clone(&self.node), self.jobs.clone());
        let inbox = self.inboxes[usize::from(id.0)].clone();
        let dir = self.dir.path().join(id.to_string());
        let work = move || {
            std::fs::create_dir(&dir).expect("a directory");
            let disk = StdDisk::new(&dir, Durability::Strict).expect("a directory");
            let options = LogOptions {
                segment_bytes: 64 << 20,
                ..LogOptions::new(LogId([9; 16]))
            };
            let opened = block_on(async {
                let recovered = recover(&disk, &options, Lsn::ZERO, &mut |_, _| Ok(())).await?;
                open_writer(&disk, &options, &recovered, Lsn::ZERO, 0).await
            });
            let opened = opened.expect("a log");
            let hasher = KeyHasher::with_seeds([u64::from(id.0) + 1, 2, 3, 4]);
            let copies = fill(&hasher);
            let keyspace = Keyspace::new(node.partitioning, copies, hasher, opened.writer, 0);
            let waker = Arc::clone(node.peers[id].waker());
            let listener = || TcpListener::bind("127.0.0.1:0").expect("a port");
            let start = Start {
                core: Core::new(id, node, empty_routes(1), keyspace),
                segments: Segments::new(
                    jobs,
                    opened.files,
                    options,
                    Arc::clone(&waker),
                    opened.segment,
                    0,
                ),
                mapped: None,
                checkpointer: Checkpointer::new(Vec::new(), LogId([9; 16]), BUDGET),
                inbox,
                waker,
                entry: listener(),
                direct: listener(),
                reports: sender,
            };
            let shard = Shard::new(start).expect("a ring");
            started.send(()).expect("waited for");
            shard.run();
        };
        let thread = std::thread::Builder::new().name(format!("shard-{id}"));
        let thread = thread.spawn(work).expect("a thread");
        is_started.recv().expect("it starts");
        (reports, thread)
    }

    fn order(&self, to: ShardId, order: Order) {
        self.node.peers[to].send(Message::Migrate(vec![order]));
    }
}

/// ShardMigrations keys of 16 bytes; the time until the target has confirmed, and that of the hold.
fn measure(wire: Wire, keys: u64, value_bytes: usize) -> [Duration; 2] {
    let bench = Bench::new();
    let (sent, source) = bench.start(FROM, move |hasher| {
        let mut copy = Partition::new(MOVING, Epoch(1));
        let value = vec![b'v'; value_bytes];
        for n in 0..keys {
            let key = format!("key:{n:012}");
            copy.table
                .put(hasher.hash(key.as_bytes()), key.as_bytes(), &value, 0);
        }
        vec![copy]
    });
    let (received, target) = bench.start(TO, |_| Vec::new());
    let migration = MigrationId(1);
    let [receive, send] = orders(migration, migration.0, open(), wire.ways());
    let started = clock();
    bench.order(TO, receive);
    bench.order(FROM, send);
    let mut hold = Duration::ZERO;
    let mut reports = sent.iter().flatten();
    loop {
        match reports.next().expect("the shard runs") {
            Report::Progress { hold_us, .. } => hold = Duration::from_micros(hold_us),
            Report::Confirmed { held, .. } => {
                assert_eq!(held.count, keys);
                break;
            }
            other => panic!("{other:?}, {:?}", received.try_recv()),
        }
    }
    let took = started.elapsed();
    for peer in &bench.node.peers {
        peer.send(Message::Stop);
    }
    source.join().expect("it ends");
    target.join().expect("it ends");
    drop(bench.jobs);
    bench.segments.join();
    [took, hold]
}

#[test]
#[ignore = "measures: cargo test --release -p ephesus-engine --lib migration::shard::tests::rates -- --ignored --nocapture"]
fn rates_of_two_shards() {
    for wire in [Wire::Sockets, Wire::Inboxes] {
        for (keys, value_bytes) in [(2_000_000, 100), (1_000_000, 1_024), (100_000, 16_384)] {
            let [took, hold] = measure(wire, keys, value_bytes);
            let rate = keys as f64 / took.as_secs_f64();
            let mb = rate * (16 + value_bytes) as f64 / 1e6;
            println!(
                "{wire:?} {value_bytes:>6} B: {rate:>9.0} keys/s, {mb:.0} MB/s, hold {hold:?}"
            );
        }
    }
}
