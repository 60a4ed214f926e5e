//! Two nodes, their disks, and the replicated state between them.

use std::net::{TcpListener, TcpStream};

use ephesus_coordinator::command::{
    Addresses, ClusterId, ClusterOptions, Command, RaftId, Registration,
};
use ephesus_coordinator::migration::{Abort, Phase, Purpose};
use ephesus_coordinator::placement::{Move, Place, Policy};
use ephesus_coordinator::state::State;
use ephesus_wal::LogId;
use ephesus_wire::stream::{Contents, Open};
use ephesus_wire::table::PartitionStatus;

use super::super::*;
use crate::migration::Batch;

pub(super) const A: NodeId = NodeId([1; 16]);
pub(super) const B: NodeId = NodeId([2; 16]);
pub(super) const PARTITIONS: u16 = 130;
pub(super) const CONTENTS: Contents = Contents {
    count: 3,
    digest: [4, 5],
};

/// What one node has: its moves, and what its disk says.
pub(super) struct Node {
    pub(super) migrations: NodeMigrations,
    pub(super) layout: Layout,
    pub(super) incarnation: u64,
}

/// Nodes A and B with two shards each, of which A has all partitions: the even ones on shard 0.
pub(super) struct Bed {
    pub(super) state: State,
    pub(super) a: Node,
    pub(super) b: Node,
    pub(super) now_ms: u64,
}

pub(super) fn place(node: NodeId, shard: u16) -> Place {
    Place {
        node,
        shard: ShardId(shard),
    }
}

pub(super) fn registration(node: NodeId, incarnation: u64) -> Command {
    let name = format!("node-{}", node.0[0]);
    Command::Register(Registration {
        node,
        cluster: Some(ClusterId([9; 16])),
        addresses: Addresses {
            entry: format!("{name}:7379"),
            tls_port: None,
            peer: format!("{name}:17379"),
            rack: String::new(),
        },
        name,
        incarnation,
        shards: 2,
        capacity: 100,
        speaks: ephesus_coordinator::protocol::VERSIONS,
    })
}

impl Bed {
    pub(super) fn new() -> Bed {
        let mut state = State::default();
        let bootstrap = Command::Bootstrap {
            cluster: ClusterId([9; 16]),
            options: ClusterOptions {
                partitions: PARTITIONS,
                min_nodes: 1,
                policy: Policy::RoundRobin,
                heartbeat_timeout_ms: 2_000,
            },
            coordinators: BTreeMap::from([(RaftId(1), "c:1".to_owned())]),
        };
        state.apply(&bootstrap).expect("founded");
        let speaks = Command::CoordinatorSpeaks {
            id: RaftId(1),
            speaks: ephesus_coordinator::protocol::VERSIONS,
        };
        state.apply(&speaks).expect("founded");
        let started = |node| Command::Started {
            node,
            incarnation: 1,
        };
        for node in [A, B] {
            state.apply(&registration(node, 1)).expect("a member");
            state.apply(&started(node)).expect("a member");
        }
        let view = Arc::new(View::of(&state).expect("founded"));
        let node = |id| Node {
            migrations: NodeMigrations::new(
                id,
                Arc::clone(&view),
                (0..PARTITIONS).map(|_| Counter::default()).collect(),
            ),
            layout: Layout::empty(PARTITIONS, [LogId([0; 16]), LogId([1; 16])].into_iter()),
            incarnation: 1,
        };
        let (a, b) = (node(A), node(B));
        let mut bed = Bed {
            state,
            a,
            b,
            now_ms: 1_000,
        };
        let begun = bed.turn(A, []).begun;
        assert_eq!(begun.len(), usize::from(PARTITIONS), "all begin empty at A");
        let copies = begun.iter().map(|(p, _, epoch)| (*p, *epoch)).collect();
        let hosting = Command::Hosting { node: A, copies };
        bed.state.apply(&hosting).expect("a member");
        bed
    }

    pub(super) fn node(&mut self, id: NodeId) -> &mut Node {
        if id == A { &mut self.a } else { &mut self.b }
    }

    /// A turn with the newest table; what it says is decided at once.
    pub(super) fn turn(&mut self, id: NodeId, events: impl IntoIterator<Item = Event>) -> Effects {
        let view = Arc::new(View::of(&self.state).expect("founded"));
        let events: Vec<Event> = events.into_iter().chain([Event::Table(view)]).collect();
        let now_ms = self.now_ms;
        let node = self.node(id);
        let mut effects = node.migrations.turn(events, &mut node.layout, now_ms);
        if let Some(number) = effects.layout {
            // What waits for the layout is in none of these.
            assert!(effects.begun.is_empty() && !effects.hosted);
            let written = [Event::Written(number)];
            let then = node.migrations.turn(written, &mut node.layout, now_ms);
            assert!(then.layout.is_none() && then.steps.is_none());
            effects.begun = then.begun;
            effects.orders.extend(then.orders);
            effects.hosted = then.hosted;
        }
        let incarnation = node.incarnation;
        for (migration, step) in &node.migrations.steps.clone() {
            let command = self.state.command_for(id, incarnation, *migration, step);
            if let Some(command) = command {
                self.state.apply(&command).expect("its turn");
            }
        }
        effects
    }

    pub(super) fn report(&mut self, id: NodeId, report: Report) -> Effects {
        self.turn(id, [Event::Report(report)])
    }

    pub(super) fn plan(&mut self, partition: u16, to: Place) -> MigrationId {
        let partition = PartitionId(partition);
        let planned = self.state.apply(&Command::PlanMoves {
            moves: vec![Move { partition, to }],
            purpose: Purpose::Move,
        });
        planned.expect("planned").planned[0]
            .1
            .clone()
            .expect("taken")
    }

    pub(super) fn owner(&self, partition: u16) -> (Place, Epoch, PartitionStatus) {
        let entry = &self.state.table().entries[usize::from(partition)];
        let owner = entry.primary().expect("an owner");
        let place = place(owner.node, owner.shard.0);
        (place, entry.epoch, entry.status)
    }

    pub(super) fn is_active(&self, id: MigrationId) -> bool {
        self.state.migrations().active.contains_key(&id)
    }

    pub(super) fn abort_of(&self, id: MigrationId) -> Abort {
        let mut ended = self.state.ended_migrations();
        match &ended
            .find(|(other, _)| *other == id)
            .expect("it has ended")
            .1
            .phase
        {
            Phase::Aborted(abort) => abort.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Partition 0 moves from A to shard 1 of B; the stream is open, both shards have their orders.
    pub(super) fn copying(&mut self) -> MigrationId {
        let id = self.plan(0, place(B, 1));
        self.turn(A, []);
        let mut effects = self.turn(A, []);
        let dial = effects.dials.remove(0);
        let (near, offer) = offered(dial.batch, A);
        let effects = self.turn(B, [offer]);
        assert!(matches!(
            effects.orders[..],
            [(ShardId(1), Order::Receive { .. })]
        ));
        let effects = self.turn(A, [dialled(id, Ok(near))]);
        assert!(matches!(
            effects.orders[..],
            [(ShardId(0), Order::Send { .. })]
        ));
        id
    }
}

pub(super) fn pair() -> (TcpStream, TcpStream) {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(port.local_addr().expect("bound")).expect("there");
    (near, port.accept().expect("there").0)
}

/// A stream that `from` opens: its own end, and what the other node is told.
pub(super) fn offered(batch: Batch, from: NodeId) -> (TcpStream, Event) {
    let (near, stream) = pair();
    let offer = Offer {
        batch,
        from,
        stream: stream.into(),
    };
    (near, Event::Offered(offer))
}

pub(super) fn dialled(batch: MigrationId, result: Result<TcpStream, &str>) -> Event {
    let result = result.map(Into::into).map_err(str::to_owned);
    Event::Dialled { batch, result }
}

/// What a source reports that has confirmed a batch of one.
pub(super) fn confirmed(batch: MigrationId) -> Report {
    let contents = vec![(batch, CONTENTS)];
    Report::Confirmed { batch, contents }
}

/// A batch of one.
pub(super) fn single(id: MigrationId, open: Open) -> Batch {
    Batch::new(vec![(id, open)]).expect("one")
}

pub(super) fn open_of(partition: u16, epoch: u64) -> Open {
    Open {
        partition: PartitionId(partition),
        epoch: Epoch(epoch),
        source: A,
        source_shard: ShardId(0),
        target_shard: ShardId(1),
    }
}

pub(super) const P: PartitionId = PartitionId(0);
pub(super) const RESTARTED: &str = "the source has restarted";
