//! Two shards with their rings, one partition that moves, and a model of what it should hold.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ephesus_wal::Durability;
use ephesus_wire::rng::Rng;
use ephesus_wire::stream::Open;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId, Partitioning, ShardId};

use super::sealed::sealed;
use crate::keyspace::Partition;
use crate::keyspace::tests::model::Model;
use crate::keyspace::tests::tape::{Taped, complete, contents, execute};
use crate::migration::ends::tests::workload::{Args, command, words};
use crate::migration::shard::ShardMigrations;
use crate::migration::{Batch, Order, Report, Way};
use crate::net::{Completion, Ring, Waker};
use crate::node::Routes;
use crate::node::routes::Me;
use crate::node::shared::{NodeShared, Settings};
use crate::node::time::{NodeTime, WallClock};
use crate::shard::core::Core;
use crate::shard::mesh::{Message, Peer};

pub(super) const MOVING: PartitionId = PartitionId(0);
/// Also of the source, in a bed of two.
pub(super) const OTHER: PartitionId = PartitionId(1);
pub(super) const EPOCH: Epoch = Epoch(2);

/// The copy that moves is void.
pub(super) const GIVE_UP: Order = Order::Drop {
    partition: MOVING,
    epoch: Epoch(1),
};

pub(super) const FROM: ShardId = ShardId(0);
pub(super) const TO: ShardId = ShardId(1);
pub(super) const NODE: NodeId = NodeId([7; 16]);
const START_MS: u64 = 1_700_000_000_000;

/// How a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Inboxes,
    Sockets,
    Sealed,
}

impl Wire {
    /// Where a new stream goes, for its source and for its target.
    pub(super) fn ways(self) -> [Way; 2] {
        match self {
            Wire::Inboxes => [Way::Shard(TO), Way::Shard(FROM)],
            Wire::Sockets => sockets().map(|end| Way::Node(end.into())),
            Wire::Sealed => sealed(sockets()).map(Way::Node),
        }
    }
}

pub(super) const WIRES: [Wire; 3] = [Wire::Inboxes, Wire::Sockets, Wire::Sealed];

#[expect(clippy::disallowed_methods, reason = "slices are bounded by real time")]
pub(super) fn clock() -> Instant {
    Instant::now()
}

/// One shard.
pub(super) struct Half {
    pub(super) core: Core,
    pub(super) migrations: ShardMigrations,
    ring: Ring,
    completions: Vec<Completion>,
    inbox: flume::Receiver<Message>,
    reports: flume::Receiver<Vec<Report>>,
    /// What the node was told.
    pub(super) told: Vec<Report>,
    /// In messages of so many.
    pub(super) messages: Vec<usize>,
    /// Whether the disk completes writes.
    pub(super) commits: bool,
    /// Whether the shard gets to run.
    pub(super) runs: bool,
}

pub(super) struct Bed {
    pub(super) source: Half,
    pub(super) target: Half,
    pub(super) model: Model,
    pub(super) rng: Rng,
    pub(super) now: Instant,
    /// What the wall clock of both shows.
    pub(super) now_ms: u64,
    /// Commands that came while the partition was held.
    held: Vec<Args>,
    pub(super) migration: MigrationId,
}

pub(super) fn settings() -> Settings {
    Settings {
        lua_time_limit: std::time::Duration::from_secs(1),
        debug_command: crate::node::shared::DebugCommand::No,
        allow_slot_commands: false,
        events: crate::keyspace::events::EventClasses::default(),
        name: "node".into(),
        listen: SocketAddr::from(([127, 0, 0, 1], 7000)),
        announce_host: None,
        durability: Durability::Strict,
        max_memory: 0,
        max_client_memory: 1 << 30,
        client_timeout_output: std::time::Duration::from_secs(60),
        wal_budget: 1 << 30,
        max_clients: 10,
        databases: crate::keyspace::databases::DEFAULT,
        parameters: Vec::new(),
    }
}

/// Routes that lead nowhere: commands are executed by the tests.
pub(super) fn empty_routes(partitions: u16) -> Arc<Routes> {
    let me = Me {
        node: NODE,
        shards: 2,
        port: 7000,
        tls_port: None,
    };
    let partitioning = Partitioning::new(partitions).expect("a valid number");
    Arc::new(Routes::new(
        partitioning,
        None,
        me,
        |_, _, _| false,
        [],
        None,
    ))
}

/// What a migration moves here.
pub(super) fn open() -> Open {
    Open {
        partition: MOVING,
        epoch: EPOCH,
        source: NODE,
        source_shard: FROM,
        target_shard: TO,
    }
}

/// What a migration of [`OTHER`] moves.
pub(super) fn open_other() -> Open {
    Open {
        partition: OTHER,
        ..open()
    }
}

/// The orders of a batch, the target's first; `ways` as [`Wire::ways`] answers them.
pub(super) fn orders(moves: &[(MigrationId, Open)], [from, to]: [Way; 2]) -> [Order; 2] {
    let batch = Batch::new(moves.to_vec()).expect("a batch");
    let receive = Order::Receive {
        batch: batch.clone(),
        way: to,
    };
    let send = Order::Send {
        batch,
        to: NODE,
        way: from,
    };
    [receive, send]
}

impl Half {
    fn new(
        id: ShardId,
        node: &Arc<NodeShared>,
        inbox: flume::Receiver<Message>,
        (partitions, copies): (u16, Vec<Partition>),
        now: Instant,
    ) -> Half {
        let seeds = [u64::from(id.0) + 1, 2, 3, 4];
        let taped = Taped::of(partitions, copies, seeds, START_MS);
        let (sender, reports) = flume::unbounded();
        Half {
            core: Core::new(
                id,
                Arc::clone(node),
                empty_routes(partitions),
                taped.keyspace,
            ),
            migrations: ShardMigrations::new(sender, now),
            ring: Ring::new().expect("io_uring"),
            completions: Vec::new(),
            inbox,
            reports,
            told: Vec::new(),
            messages: Vec::new(),
            commits: true,
            runs: true,
        }
    }

    fn turn(&mut self, now: Instant, now_ms: u64) {
        if !self.runs {
            return;
        }
        self.core.begin_turn(now, now_ms);
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Migrate(orders) => {
                    for order in orders {
                        self.migrations.order(&mut self.core, order, now);
                    }
                }
                Message::Stream {
                    batch,
                    to,
                    messages,
                } => self.migrations.deliver(batch, to, messages, now),
                other => panic!("unexpected {other:?}"),
            }
        }
        self.ring.collect(&mut self.completions);
        for completion in self.completions.drain(..) {
            match completion {
                Completion::StreamReceived { stream, result } => {
                    self.migrations.received(stream, result);
                }
                Completion::StreamSent { stream, result } => self.migrations.sent(stream, result),
                other => panic!("unexpected {other:?}"),
            }
        }
        if self.commits {
            self.commit();
        }
        for (partition, epoch) in self.migrations.take_leaving() {
            self.remove_copy(partition, epoch);
        }
        self.migrations.tend(&mut self.core, &mut self.ring, now);
        self.core.end_turn();
        let (core, ring) = (&mut self.core, &mut self.ring);
        self.migrations
            .slice(core, ring, (now, false), clock, false);
        self.ring.poll().expect("a ring");
        for reports in self.reports.try_iter() {
            self.messages.push(reports.len());
            self.told.extend(reports);
        }
    }

    /// What the checkpointer does of a copy without images.
    fn remove_copy(&mut self, partition: PartitionId, epoch: Epoch) {
        let keyspace = &mut self.core.keyspace;
        let copy = keyspace.partition(partition).filter(|p| p.epoch == epoch);
        if copy.is_none_or(Partition::is_empty_remnant) {
            let _ = copy.is_some() && keyspace.forget(partition);
            self.migrations.removed(partition, epoch);
        }
    }

    fn commit(&mut self) {
        complete(&mut self.core.keyspace.log, |_| {});
    }

    pub(super) fn has_told(&self, is_it: impl Fn(&Report) -> bool) -> bool {
        self.told.iter().any(is_it)
    }

    /// How often something was told.
    pub(super) fn count(&self, is_it: impl Fn(&Report) -> bool) -> usize {
        self.told.iter().filter(|report| is_it(report)).count()
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.has_told(|report| matches!(report, Report::Confirmed { .. }))
    }

    /// Why the source has given up, or the target has wiped.
    pub(super) fn reason(&self) -> Option<&str> {
        self.told.iter().find_map(|report| match report {
            Report::RolledBack { reason, .. } | Report::Wiped { reason, .. } => Some(&reason[..]),
            _ => None,
        })
    }

    /// Ends the shard as a stopping process does, and goes on with its data.
    pub(super) fn restart(&mut self, now: Instant) {
        self.migrations.stop(now);
        while !self.migrations.is_quiet() {
            self.turn(now, 0);
        }
        let (sender, reports) = flume::unbounded();
        self.migrations = ShardMigrations::new(sender, now);
        self.reports = reports;
    }
}

impl Bed {
    pub(super) fn new(seed: u64) -> Bed {
        Bed::of(1, seed)
    }

    /// With so many partitions, all of which begin empty at the source.
    pub(super) fn of(partitions: u16, seed: u64) -> Bed {
        let now = clock();
        let (inboxes, peers): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (sender, inbox) = flume::unbounded();
                let waker = Arc::new(Waker::new().expect("an eventfd"));
                (inbox, Peer::new(sender, waker))
            })
            .unzip();
        let partitioning = Partitioning::new(partitions).expect("a valid number");
        let lease = ephesus_coordinator::lease::Lease::default();
        let node = NodeShared::new(
            NODE,
            settings(),
            partitioning,
            lease,
            peers,
            NodeTime::start(WallClock::default(), 0),
        );
        let node = Arc::new(node);
        let mut inboxes = inboxes.into_iter();
        let mut half = |id, copies| {
            let inbox = inboxes.next().expect("two of them");
            Half::new(id, &node, inbox, (partitions, copies), now)
        };
        let copies = (0..partitions).map(|id| Partition::new(PartitionId(id), Epoch(1)));
        let mut model = Model::default();
        model.set_now(START_MS.into());
        Bed {
            source: half(FROM, copies.collect()),
            target: half(TO, Vec::new()),
            model,
            rng: Rng::new(seed),
            now,
            now_ms: START_MS,
            held: Vec::new(),
            migration: MigrationId(0),
        }
    }

    /// Sets keys `k0` to `k{count-1}`, and one that takes many blocks.
    pub(super) fn load(&mut self, count: u64) {
        for n in 0..count {
            self.execute(words(&format!("SET k{n} value-{n}")));
        }
        let large = vec![b'x'; 1 << 20];
        self.execute(vec![b"SET".to_vec(), b"large".to_vec(), large]);
    }

    /// Puts so many keys with values of 1000 B into a partition of the source, of which the model knows nothing.
    pub(super) fn fill(&mut self, partition: PartitionId, keys: u64) {
        let copy = self.source.core.keyspace.partition_mut(partition);
        let table = &mut copy.expect("here").table;
        for n in 0..keys {
            let hash = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            table.put(hash, &n.to_le_bytes(), &[7; 1_000], 0);
        }
    }

    /// Executes a command where the partition is served, or holds it back.
    pub(super) fn execute(&mut self, args: Args) {
        let is_moved = self.target.core.keyspace.owns(MOVING);
        let half = match is_moved {
            true => &mut self.target,
            false => &mut self.source,
        };
        let core = &mut half.core;
        if core.is_held(MOVING) || !core.keyspace.owns(MOVING) {
            self.held.push(args);
            return;
        }
        let out = execute(&mut core.keyspace, &args);
        let expected = self.model.run(&args);
        assert!(out == expected, "the reply to {:?}", args[0]);
    }

    /// Executes what was held, now that it is decided.
    pub(super) fn release(&mut self) {
        for args in std::mem::take(&mut self.held) {
            self.execute(args);
        }
        assert!(self.held.is_empty(), "nothing is held any more");
    }

    /// Commands that wait.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn write(&mut self, count: usize) {
        for _ in 0..count {
            let args = command(&mut self.rng, 2_000);
            self.execute(args);
        }
    }

    /// One turn of both shards.
    pub(super) fn turn(&mut self) {
        self.turn_source();
        self.target.turn(self.now, self.now_ms);
    }

    pub(super) fn turn_source(&mut self) {
        self.source.turn(self.now, self.now_ms);
    }

    /// Turns until `is_over`.
    pub(super) fn until(&mut self, what: &str, mut is_over: impl FnMut(&Bed) -> bool) {
        let deadline = clock() + Duration::from_secs(20);
        while !is_over(self) {
            let told = [&self.source.told, &self.target.told];
            assert!(clock() < deadline, "{what} takes too long: {told:?}");
            self.turn();
        }
    }

    /// Where the walk is, unless it is over.
    pub(super) fn walked(&self) -> Option<u64> {
        let copy = self.source.core.keyspace.partition(MOVING)?;
        copy.outgoing().expect("it moves").cursor()
    }

    /// Sequence of the last record that the target has.
    pub(super) fn received(&self) -> u64 {
        let copy = self.target.core.keyspace.partition(MOVING);
        copy.map_or(0, Partition::seq)
    }

    /// Lets everything that is under way arrive.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            self.turn();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    pub(super) fn order_source(&mut self, order: Order) {
        self.order(FROM, order);
    }

    pub(super) fn order_target(&mut self, order: Order) {
        self.order(TO, order);
    }

    fn order(&mut self, to: ShardId, order: Order) {
        let node = &self.source.core.node;
        node.peers[to].send(Message::Migrate(vec![order]));
    }

    /// The orders of a new migration; the target's first.
    pub(super) fn begin(&mut self, wire: Wire) {
        self.begin_over(wire.ways());
    }

    pub(super) fn begin_over(&mut self, ways: [Way; 2]) {
        self.migration = MigrationId(self.migration.0 + 1);
        self.source.told.clear();
        self.target.told.clear();
        let orders = orders(&[(self.migration, open())], ways);
        self.order_both(orders);
    }

    /// The orders of a batch of [`OTHER`], behind those of [`MOVING`]'s.
    pub(super) fn begin_other(&mut self, wire: Wire) {
        let migration = MigrationId(self.migration.0 + 1);
        self.order_both(orders(&[(migration, open_other())], wire.ways()));
    }

    /// The orders of a batch of both.
    pub(super) fn begin_both(&mut self, wire: Wire) {
        self.migration = MigrationId(self.migration.0 + 1);
        let other = MigrationId(self.migration.0 + 1);
        let moves = [(self.migration, open()), (other, open_other())];
        self.order_both(orders(&moves, wire.ways()));
    }

    pub(super) fn order_both(&mut self, [receive, send]: [Order; 2]) {
        self.order_target(receive);
        self.order_source(send);
    }

    pub(super) fn committed(&self) -> Order {
        Order::Committed {
            migration: self.migration,
            partition: MOVING,
            epoch: EPOCH,
        }
    }

    pub(super) fn aborted(&self) -> Order {
        Order::Aborted {
            migration: self.migration,
            partition: MOVING,
            epoch: EPOCH,
        }
    }

    /// The table says that the move is done; everything up to the end of the old copy.
    pub(super) fn commit(&mut self) {
        self.order_source(GIVE_UP);
        self.order_target(self.committed());
        self.until("the change of hands", |bed| {
            let is_given_up = |r: &Report| {
                matches!(
                    r,
                    Report::Dropped {
                        epoch: Epoch(1),
                        ..
                    }
                )
            };
            let is_active = |r: &Report| matches!(r, Report::Activated { epoch: EPOCH, .. });
            bed.source.has_told(is_given_up) && bed.target.has_told(is_active)
        });
        let (partition, old) = (MOVING, Epoch(1));
        self.order_target(Order::Settle {
            partition,
            epoch: EPOCH,
        });
        self.order_source(Order::Forget {
            partition,
            epoch: old,
        });
        self.until("forgetting", |bed| {
            bed.source.has_told(|r| {
                matches!(
                    r,
                    Report::Forgotten {
                        epoch: Epoch(1),
                        ..
                    }
                )
            })
        });
        self.release();
        assert!(self.source.core.keyspace.partition(MOVING).is_none());
        self.until("the end of streams", Bed::is_quiet);
    }

    /// The table says that the move is off; the target's copy goes.
    pub(super) fn abort(&mut self) {
        self.order_source(self.aborted());
        self.order_target(self.aborted());
        self.forget_staging();
        self.release();
        self.until("the end of streams", Bed::is_quiet);
    }

    /// The target has wiped its copy and forgets it.
    pub(super) fn forget_staging(&mut self) {
        self.until("wiping", |bed| {
            bed.target
                .has_told(|r| matches!(r, Report::Wiped { epoch: EPOCH, .. }))
        });
        self.order_target(Order::Forget {
            partition: MOVING,
            epoch: EPOCH,
        });
        self.until("forgetting", |bed| {
            bed.target
                .has_told(|r| matches!(r, Report::Forgotten { epoch: EPOCH, .. }))
        });
        assert!(self.target.core.keyspace.partition(MOVING).is_none());
    }

    /// Whether no shard has anything to do with a migration any more.
    pub(super) fn is_quiet(&self) -> bool {
        let is_quiet =
            |half: &Half| half.migrations.is_quiet() && half.migrations.next_look().is_none();
        is_quiet(&self.source) && is_quiet(&self.target)
    }

    /// Compares what is served with the model.
    pub(super) fn compare(&self) {
        let served = [&self.source, &self.target].map(|half| half.core.keyspace.owns(MOVING));
        assert!(served[0] != served[1], "one of them serves: {served:?}");
        let keyspace = match served[0] {
            true => &self.source.core.keyspace,
            false => &self.target.core.keyspace,
        };
        let found = contents(keyspace.all_served());
        let expected = &self.model.keys;
        assert_eq!(found.len(), expected.len(), "keys");
        for (key, (value, at)) in expected {
            let at = at.map_or(0, |at| u64::try_from(at).expect("a time"));
            assert!(found[key] == (value.clone(), at), "{key:?}");
        }
    }
}

/// Both ends of a connection, non-blocking as links hand them over.
pub(super) fn sockets() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let dialled = TcpStream::connect(address).expect("a connection");
    let (accepted, _) = listener.accept().expect("a connection");
    for stream in [&dialled, &accepted] {
        stream.set_nonblocking(true).expect("a socket");
    }
    [dialled, accepted]
}
