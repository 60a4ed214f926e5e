//! The shards of one node without I/O, and tables that say who has what: for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ephesus_coordinator::command::{Addresses, ClusterId, ClusterOptions};
use ephesus_coordinator::lease::Lease;
use ephesus_coordinator::migration::MigrationTable;
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::state::{Member, MemberStatus};
use ephesus_coordinator::view::View;
use ephesus_wal::Durability;
use ephesus_wire::record::Source;
use ephesus_wire::resp::reply;
use ephesus_wire::table::{PartitionEntry, PartitionStatus, PartitionTable, Replica, Role};
use ephesus_wire::{Epoch, Lsn, MigrationId, NodeId, PartitionId, Partitioning, ShardId, slot_of};

use super::connection::{Connection, Life};
use super::mesh::{Message, Peer};
use crate::keyspace::tests::tape::{Taped, execute_valid, take_down};
use crate::keyspace::{Keyspace, Partition};
use crate::migration::{Outbound, Records};
use crate::net::{ConnToken, ListenerKind, Waker};
use crate::node::Routes;
use crate::node::routes::Me;
use crate::node::shared::{NodeShared, Settings};
use crate::node::time::{NodeTime, WallClock};
use crate::shard::core::Core;
use crate::shard::core::replies::outbox::Front;

pub(crate) const PARTITIONS: u16 = 8;

/// The node whose shards these are, and another one, which is nothing but an address.
pub(crate) const ATHENS: NodeId = NodeId([1; 16]);
pub(crate) const BYZANTIUM: NodeId = NodeId([2; 16]);

pub(crate) const CLIENT_MEMORY: u64 = 64 << 20;
pub(crate) const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);

const PORT: u16 = 7000;
const START_MS: u64 = 1_700_000_000_000;

/// An instant to count from.
#[expect(clippy::disallowed_methods, reason = "any instant does")]
pub(crate) fn start() -> Instant {
    Instant::now()
}

/// Where a partition is.
pub(crate) type Home = (NodeId, ShardId);

/// One shard.
pub(crate) struct BedShard {
    pub(crate) core: Core,
    inbox: flume::Receiver<Message>,
    /// Connections, and what they were sent.
    sent: BTreeMap<ConnToken, Vec<u8>>,
    /// Connections whose clients do not read.
    not_reading: BTreeSet<ConnToken>,
}

/// A node of some shards.
pub(crate) struct Bed {
    pub(crate) shards: Vec<BedShard>,
    pub(crate) homes: Vec<Home>,
    epochs: Vec<Epoch>,
    /// Where the node has staging copies.
    pub(crate) staged: Vec<(PartitionId, ShardId)>,
    /// Slices of walks in one turn.
    pub(crate) slices_max: usize,
    now: Instant,
    now_ms: u64,
    /// The lease runs out in the next turn, between execution and replies.
    stands_still: bool,
    /// Whether logs are written.
    commits: bool,
    migrations: u64,
    last_routes: Option<Arc<Routes>>,
}

impl Bed {
    /// A node of `shards` shards that has partition p on shard p mod `shards`, as far as `elsewhere` does not name it.
    pub(crate) fn new(shards: u16, elsewhere: &[u16]) -> Bed {
        Bed::of_node(shards, elsewhere, |_| {})
    }

    /// The same with a node that is changed before it serves.
    pub(crate) fn of_node(
        shards: u16,
        elsewhere: &[u16],
        change: impl FnOnce(&mut NodeShared),
    ) -> Bed {
        let (inboxes, peers): (Vec<_>, Vec<_>) = (0..shards)
            .map(|_| {
                let (sender, inbox) = flume::unbounded();
                let waker = Arc::new(Waker::new().expect("an eventfd"));
                (inbox, Peer::new(sender, waker))
            })
            .unzip();
        let partitioning = Partitioning::new(PARTITIONS).expect("a valid number");
        let homes: Vec<Home> = (0..PARTITIONS)
            .map(|p| match elsewhere.contains(&p) {
                true => (BYZANTIUM, ShardId(0)),
                false => (ATHENS, ShardId(p % shards)),
            })
            .collect();
        let lease = Lease::default();
        lease.set_until_ms(u64::MAX);
        let time = NodeTime::start(WallClock::default(), 0);
        let mut node = NodeShared::new(ATHENS, settings(), partitioning, lease, peers, time);
        change(&mut node);
        let node = Arc::new(node);
        let epochs = vec![Epoch(1); homes.len()];
        let routes = routes(shards, (&homes, &epochs), &[]);
        let shards = (0..).map(ShardId).zip(inboxes).map(|(id, inbox)| {
            let copies = partitioning.partitions().zip(&homes);
            let copies = copies.filter(|(_, home)| **home == (ATHENS, id));
            let copies = copies.map(|(p, _)| Partition::new(p, Epoch(1))).collect();
            let taped = Taped::of(PARTITIONS, copies, [1, 2, 3, 4], START_MS);
            BedShard {
                core: Core::new(id, Arc::clone(&node), Arc::clone(&routes), taped.keyspace),
                inbox,
                sent: BTreeMap::new(),
                not_reading: BTreeSet::new(),
            }
        });
        let mut bed = Bed {
            shards: shards.collect(),
            now: node.started,
            now_ms: START_MS,
            homes,
            epochs,
            staged: Vec::new(),
            slices_max: usize::MAX,
            stands_still: false,
            commits: true,
            migrations: 0,
            last_routes: None,
        };
        bed.settle();
        bed
    }

    /// A client of one shard.
    pub(crate) fn connect(&mut self, shard: u16, kind: ListenerKind) -> Client {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let shard = usize::from(shard);
        let core = &mut self.shards[shard].core;
        let id = core.next_connection_id();
        let make = |token| Connection::new(token, id, -1, kind, (address, address), START_MS);
        let token = core.connections.insert(make);
        Client { shard, token }
    }

    pub(crate) fn core(&mut self, shard: u16) -> &mut Core {
        &mut self.shards[usize::from(shard)].core
    }

    /// A client sends commands, each of words with a space between.
    pub(crate) fn send(&mut self, client: Client, commands: &[&str]) {
        let bytes = commands.join("\r\n") + "\r\n";
        self.send_bytes(client, bytes.as_bytes());
    }

    /// A client sends bytes.
    pub(crate) fn send_bytes(&mut self, client: Client, bytes: &[u8]) {
        self.begin_turn(client.shard);
        let core = &mut self.shards[client.shard].core;
        core.received(client.token, bytes);
        self.end_turn(client.shard);
    }

    /// Sends commands, lets everything settle, and answers what came.
    pub(crate) fn ask(&mut self, client: Client, commands: &[&str]) -> String {
        self.send(client, commands);
        self.settle();
        self.take(client)
    }

    /// What the client was sent since it was last asked.
    pub(crate) fn take(&mut self, client: Client) -> String {
        let sent = self.shards[client.shard].sent.remove(&client.token);
        String::from_utf8(sent.unwrap_or_default()).expect("only text in tests")
    }

    /// The client takes nothing any more.
    pub(crate) fn stop_reading(&mut self, client: Client) {
        let shard = &mut self.shards[client.shard];
        shard.not_reading.insert(client.token);
    }

    /// The client takes everything from now on.
    pub(crate) fn go_on_reading(&mut self, client: Client) {
        let shard = &mut self.shards[client.shard];
        shard.not_reading.remove(&client.token);
        self.read_once(client);
    }

    /// The client takes what the kernel is sending.
    pub(crate) fn read_once(&mut self, client: Client) {
        let shard = &mut self.shards[client.shard];
        let sent = shard.sent.entry(client.token).or_default();
        if let Some(connection) = shard.core.connections.get_mut(client.token) {
            let bytes = connection.next_to_send();
            sent.extend_from_slice(bytes);
            let len = bytes.len();
            connection.sending_now = false;
            connection.sent(len);
        }
        shard.core.list(client.token);
        self.settle();
    }

    /// What the client makes its shard hold.
    pub(crate) fn held_bytes(&mut self, client: Client) -> usize {
        let connection = self.connection(client);
        connection.map_or(0, |connection| connection.held_bytes())
    }

    /// What the client has sent and was not executed.
    pub(crate) fn input_bytes(&mut self, client: Client) -> usize {
        let connection = self.connection(client);
        connection.map_or(0, |connection| connection.input.len())
    }

    pub(crate) fn wants_input(&mut self, client: Client) -> bool {
        let connection = self.connection(client);
        connection.is_some_and(|connection| connection.wants_input())
    }

    fn connection(&mut self, client: Client) -> Option<&mut Connection> {
        let connections = &mut self.shards[client.shard].core.connections;
        connections.get_mut(client.token)
    }

    pub(crate) fn is_open(&mut self, client: Client) -> bool {
        let core = &mut self.shards[client.shard].core;
        let connection = core.connections.get_mut(client.token);
        connection.is_some_and(|c| c.life == Life::Open)
    }

    /// A client has sent its last byte.
    pub(crate) fn end_input(&mut self, client: Client) {
        let core = &mut self.shards[client.shard].core;
        core.input_ended(client.token);
        core.list(client.token);
    }

    /// A client's connection breaks.
    pub(crate) fn kill(&mut self, client: Client) {
        let core = &mut self.shards[client.shard].core;
        let connection = core.connections.get_mut(client.token);
        connection.expect("connected").kill();
        core.list(client.token);
    }

    fn begin_turn(&mut self, shard: usize) {
        let core = &mut self.shards[shard].core;
        core.begin_turn(self.now, self.now_ms);
        core.look_after_unread();
    }

    /// The process stands still in the next turn, until the lease is over.
    pub(crate) fn stand_still_in_turn(&mut self) {
        self.stands_still = true;
    }

    pub(crate) fn end_lease(&mut self) {
        self.core(0).node.lease.set_until_ms(0);
    }

    pub(crate) fn renew_lease(&mut self) {
        self.core(0).node.lease.set_until_ms(u64::MAX);
    }

    /// Logs are not written until [`Bed::release_log`].
    pub(crate) fn hold_log(&mut self) {
        self.commits = false;
    }

    pub(crate) fn release_log(&mut self) {
        self.commits = true;
        self.settle();
    }

    fn end_turn(&mut self, shard: usize) {
        if std::mem::take(&mut self.stands_still) {
            self.end_lease();
        }
        let commits = self.commits;
        let shard = &mut self.shards[shard];
        let core = &mut shard.core;
        if commits {
            take_down(&mut core.keyspace.log, &mut Vec::new());
        }
        core.committed();
        core.unblock();
        let mut slices = 0..self.slices_max;
        while slices.next().is_some() && core.walk_slice() {}
        core.hold_back_late();
        let committed = core.keyspace.log.committed();
        for token in std::mem::take(&mut core.listed) {
            core.note_presence(token);
            if let Some(connection) = core.connections.get_mut(token) {
                connection.listed = false;
                let sent = shard.sent.entry(token).or_default();
                let is_read = !shard.not_reading.contains(&token);
                match serve(connection, committed, is_read.then_some(sent)) {
                    Front::Gated(lsn) => core.list_once_committed(token, lsn),
                    Front::Empty if connection.life == Life::Draining => connection.kill(),
                    Front::Empty | Front::Taken | Front::Awaited => {}
                }
                core.tend_output(token);
            }
            let connection = core.connections.get(token);
            if connection.is_some_and(|connection| connection.is_finished()) {
                core.remove_connection(token);
            }
        }
        core.end_turn();
    }

    /// One turn of a shard: takes at most `messages` messages.
    pub(crate) fn turn(&mut self, shard: u16, messages: usize) -> bool {
        let shard = usize::from(shard);
        self.begin_turn(shard);
        let mut any = false;
        for _ in 0..messages {
            let Ok(message) = self.shards[shard].inbox.try_recv() else {
                break;
            };
            any = true;
            let core = &mut self.shards[shard].core;
            match message {
                Message::Requests(requests) => core.requested(requests),
                Message::Replies(replies) => core.answered(replies),
                Message::Routes(routes) => core.set_routes(routes),
                other => panic!("{other:?} is not for a bed"),
            }
        }
        self.end_turn(shard);
        any
    }

    /// Turns until nothing happens any more.
    pub(crate) fn settle(&mut self) {
        let count = self.shards.len() as u16;
        let mut idle_rounds = 0;
        while idle_rounds < 3 {
            let mut any = false;
            for shard in 0..count {
                any |= self.turn(shard, usize::MAX);
                any |= self.core(shard).admission.has_released() || self.core(shard).goes_on();
            }
            idle_rounds = if any { 0 } else { idle_rounds + 1 };
        }
    }

    /// Time passes; shards turn.
    pub(crate) fn advance(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.now_ms += ms;
        self.settle();
    }

    /// Puts the table's present state into the inboxes of these shards.
    pub(crate) fn send_routes(&mut self, shards: &[u16]) {
        let table = (&self.homes[..], &self.epochs[..]);
        let routes = routes(self.shards.len() as u16, table, &self.staged);
        self.last_routes = Some(Arc::clone(&routes));
        for &shard in shards {
            let peer = self.core(shard).node.peers[ShardId(shard)].clone();
            peer.send(Message::Routes(Arc::clone(&routes)));
        }
    }

    /// Whether every shard has taken the last routes that were sent.
    pub(crate) fn is_followed(&self) -> bool {
        let routes = self.shards.iter().map(|shard| &shard.core.router.routes);
        let last = self.last_routes.as_ref();
        last.is_none_or(|last| routes.into_iter().all(|routes| Arc::ptr_eq(routes, last)))
    }

    /// All shards follow the table.
    pub(crate) fn follow(&mut self) {
        let all: Vec<u16> = (0..self.shards.len() as u16).collect();
        self.send_routes(&all);
        self.settle();
    }

    /// The table gives a partition to someone else, at the epoch of the copy that is there, or the next one.
    pub(crate) fn give(&mut self, partition: u16, home: Home) {
        self.homes[usize::from(partition)] = home;
        let next = self.epochs[usize::from(partition)].next();
        let (_, shard) = home;
        let is_here = home.0 == ATHENS;
        let copy = is_here.then(|| {
            self.core(shard.0)
                .keyspace
                .partition(PartitionId(partition))
        });
        let epoch = copy.flatten().map_or(next, |copy| copy.epoch.max(next));
        self.epochs[usize::from(partition)] = epoch;
    }

    /// Begins to move a partition to another shard of the node, up to a prepared copy; its commands are
    /// held at the source.
    pub(crate) fn prepare_within(&mut self, partition: u16, to: u16) {
        let (_, from) = self.homes[usize::from(partition)];
        let id = PartitionId(partition);
        let epoch = self.begin_staging(partition, to);
        let migration = MigrationId(self.migrations);
        begin_stream(&mut self.core(from.0).keyspace, id, migration, epoch);
        self.core(from.0).hold(id);
        let messages = end_stream(&mut self.core(from.0).keyspace, id);
        self.take_stream(id, to, &messages);
    }

    /// A staging copy on a shard here, of a partition that is here or elsewhere; answers its epoch.
    pub(crate) fn begin_staging(&mut self, partition: u16, to: u16) -> Epoch {
        let (node, shard) = self.homes[usize::from(partition)];
        self.migrations += 1;
        let id = PartitionId(partition);
        let source = Source {
            migration: MigrationId(self.migrations),
            node,
            shard,
        };
        let epoch = Epoch(1 + self.migrations);
        // What an earlier move has left.
        self.core(to).keyspace.forget(id);
        let began = self.core(to).keyspace.begin_incoming(id, epoch, source);
        began.expect("nothing is here");
        self.staged.push((id, ShardId(to)));
        epoch
    }

    /// Prepares a staging copy of the other node's partition, which holds one key.
    pub(crate) fn fill_staging(&mut self, partition: u16, to: u16, key: &str, value: &str) {
        let id = PartitionId(partition);
        let copy = Partition::new(id, Epoch(1));
        let mut source = Taped::of(PARTITIONS, vec![copy], [5, 6, 7, 8], START_MS);
        execute_valid(&mut source.keyspace, &["SET", key, value]);
        let epoch = Epoch(1 + self.migrations);
        let migration = MigrationId(self.migrations);
        begin_stream(&mut source.keyspace, id, migration, epoch);
        let messages = end_stream(&mut source.keyspace, id);
        self.take_stream(id, to, &messages);
    }

    fn take_stream(&mut self, partition: PartitionId, to: u16, messages: &[Outbound]) {
        let target = &mut self.core(to).keyspace;
        for message in messages {
            match message {
                Outbound::Data(Records { bytes: payload, .. }) => {
                    let taken = target.import(partition, payload, 0, || true);
                    assert_eq!(taken.expect("good records"), payload.len());
                }
                Outbound::Final(last) => {
                    target.prepare(partition, last).expect("all of it");
                }
            }
        }
        take_down(&mut target.log, &mut Vec::new());
    }

    /// The move of [`Bed::prepare_within`] is committed: both shards act, the table changes, routes are not sent yet.
    pub(crate) fn commit_within(&mut self, partition: u16) {
        let (_, from) = self.homes[usize::from(partition)];
        let id = PartitionId(partition);
        let to = self.end_staging(partition);
        self.core(from.0).keyspace.drop_copy(id).expect("served");
        self.core(from.0).reroute(id);
        self.core(to.0).keyspace.activate(id).expect("prepared");
        self.give(partition, (ATHENS, to));
    }

    /// A partition has moved to a shard of another node: its copy is dropped, and the routes lead there.
    pub(crate) fn move_away(&mut self, partition: u16) {
        let (_, from) = self.homes[usize::from(partition)];
        let id = PartitionId(partition);
        self.core(from.0).keyspace.drop_copy(id).expect("served");
        self.core(from.0).reroute(id);
        self.give(partition, (BYZANTIUM, ShardId(0)));
        self.follow();
    }

    /// The node has no staging copy any more; answers which shard had it.
    pub(crate) fn end_staging(&mut self, partition: u16) -> ShardId {
        let is_it = |(staged, _): &(PartitionId, ShardId)| staged.0 == partition;
        let place = self.staged.iter().position(is_it).expect("a staging copy");
        self.staged.remove(place).1
    }
}

/// Sends what may leave, as far as the client reads: `into`. What the front of the outbox waits for.
fn serve(connection: &mut Connection, committed: Lsn, mut into: Option<&mut Vec<u8>>) -> Front {
    connection.outbox.note_committed(committed);
    while !connection.sending_now {
        if connection.sending.is_empty() {
            let sending = &mut connection.sending;
            let front = connection.outbox.take_ready(committed, sending);
            if front != Front::Taken {
                return front;
            }
        }
        match &mut into {
            Some(into) => {
                let bytes = connection.next_to_send();
                into.extend_from_slice(bytes);
                let sent = bytes.len();
                connection.sent(sent);
            }
            None => connection.sending_now = true,
        }
    }
    Front::Taken
}

fn begin_stream(source: &mut Keyspace, id: PartitionId, migration: MigrationId, epoch: Epoch) {
    let began = source.begin_outgoing(id, migration, epoch);
    began.expect("served and not moving");
    source.outgoing_slice(id, || true);
}

fn end_stream(source: &mut Keyspace, id: PartitionId) -> Vec<Outbound> {
    let ended = source.try_finish(id, usize::MAX);
    assert!(ended.expect("a good stream"), "all was walked");
    let outgoing = source.outgoing_mut(id).expect("moving");
    std::iter::from_fn(|| outgoing.next_message(false, true)).collect()
}

impl Core {
    /// Bytes of commands that shards of the node owe answers to.
    pub(crate) fn unanswered(&self) -> usize {
        self.router.peers.unanswered_bytes()
    }
}

/// A client's connection.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    shard: usize,
    pub(crate) token: ConnToken,
}

/// A request of these words.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply::command(&mut bytes, words);
    bytes
}

/// The `n`th key of a partition.
pub(crate) fn key(partition: u16, n: usize) -> String {
    let partitioning = Partitioning::new(PARTITIONS).expect("a valid number");
    let is_in = |key: &String| partitioning.partition_of(slot_of(key.as_bytes())).0 == partition;
    let mut keys = (0..).map(|n| format!("k{n}")).filter(is_in);
    keys.nth(n).expect("there are many")
}

fn settings() -> Settings {
    Settings {
        lua_time_limit: std::time::Duration::from_secs(1),
        debug_command: crate::node::shared::DebugCommand::No,
        allow_slot_commands: false,
        events: crate::keyspace::events::EventClasses::default(),
        name: "athens".into(),
        listen: SocketAddr::from(([127, 0, 0, 1], PORT)),
        announce_host: None,
        durability: Durability::Strict,
        max_memory: 0,
        max_client_memory: CLIENT_MEMORY,
        client_timeout_output: OUTPUT_TIMEOUT,
        wal_budget: 1 << 30,
        max_clients: 1_000,
        databases: crate::keyspace::databases::DEFAULT,
        parameters: Vec::new(),
    }
}

fn member(name: &str, port: u16, shards: u16) -> Member {
    Member {
        name: name.into(),
        incarnation: 1,
        addresses: Addresses {
            entry: format!("{name}:{port}"),
            tls_port: None,
            peer: "peer:1".into(),
            rack: String::new(),
        },
        shards,
        status: MemberStatus::Live,
        capacity: 100,
        speaks: ephesus_coordinator::protocol::VERSIONS,
    }
}

fn routes(
    shards: u16,
    (homes, epochs): (&[Home], &[Epoch]),
    staged: &[(PartitionId, ShardId)],
) -> Arc<Routes> {
    let entry = |(&(node, shard), &epoch): (&Home, &Epoch)| PartitionEntry {
        epoch,
        status: PartitionStatus::Online,
        replicas: vec![Replica {
            node,
            shard,
            role: Role::Primary,
            in_sync: true,
        }],
    };
    let view = View {
        cluster: ClusterId([9; 16]),
        options: ClusterOptions {
            partitions: PARTITIONS,
            min_nodes: 1,
            policy: Policy::RoundRobin,
            heartbeat_timeout_ms: 2_000,
        },
        coordinators: BTreeMap::new(),
        members: BTreeMap::from([
            (ATHENS, member("athens", PORT, shards)),
            (BYZANTIUM, member("byzantium", 8000, 1)),
        ]),
        table: PartitionTable {
            version: 1,
            entries: homes.iter().zip(epochs).map(entry).collect(),
        },
        migrations: MigrationTable::default(),
    };
    let me = Me {
        node: ATHENS,
        shards,
        port: PORT,
        tls_port: None,
    };
    let partitioning = Partitioning::new(PARTITIONS).expect("a valid number");
    let has = |_, _, _| true;
    let staged = staged.iter().copied();
    Arc::new(Routes::new(
        partitioning,
        Some(&view),
        me,
        has,
        staged,
        None,
    ))
}
