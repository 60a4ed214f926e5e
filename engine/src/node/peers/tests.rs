use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ephesus_coordinator::link::Reason;
use ephesus_wire::frame;
use ephesus_wire::stream::Open;
use ephesus_wire::{Epoch, MigrationId, PartitionId, ShardId};

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

struct End {
    port: PeerPort,
    address: SocketAddr,
    node: NodeId,
    counters: Arc<Counters>,
}

fn end(node: u8, cluster: u8) -> End {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (node, cluster) = (NodeId([node; 16]), ClusterId([cluster; 16]));
    let counters = Arc::<Counters>::default();
    let port = PeerPort::start(listener, node, cluster, None, Arc::clone(&counters)).unwrap();
    End {
        port,
        address,
        node,
        counters,
    }
}

fn open() -> Open {
    Open {
        partition: PartitionId(7),
        epoch: Epoch(3),
        source: NodeId([1; 16]),
        source_shard: ShardId(1),
        target_shard: ShardId(2),
    }
}

fn batch(migrations: impl IntoIterator<Item = u64>) -> Batch {
    let moves = migrations.into_iter().map(|id| {
        let partition = PartitionId(id as u16);
        let open = Open {
            partition,
            ..open()
        };
        (MigrationId(id), open)
    });
    Batch::new(moves.collect()).unwrap()
}

fn dial(migration: u64, address: SocketAddr, target: NodeId) -> Dial {
    Dial {
        batch: batch([migration]),
        target,
        address: address.to_string(),
    }
}

impl End {
    fn dial(&self, address: SocketAddr, target: NodeId) -> Result<TcpStream, String> {
        self.port.dial(dial(9, address, target));
        match self.port.events().recv_timeout(LIMIT).unwrap() {
            PeerEvent::Dialled { batch, result } => {
                assert_eq!(batch, MigrationId(9));
                result.map(|stream| stream.tcp)
            }
            PeerEvent::Offered(offer) => panic!("{offer:?}"),
        }
    }

    fn offer(&self) -> Offer {
        match self.port.events().recv_timeout(LIMIT).unwrap() {
            PeerEvent::Offered(offer) => offer,
            PeerEvent::Dialled { result, .. } => panic!("{result:?}"),
        }
    }
}

fn pair() -> (End, End) {
    (end(1, 1), end(2, 1))
}

#[test]
fn a_dialled_stream_arrives_with_what_it_is_for() {
    let (source, target) = pair();
    let mut near = source.dial(target.address, target.node).unwrap();
    let mut offer = target.offer();
    assert_eq!((&offer.batch, offer.from), (&batch([9]), source.node));
    near.set_nonblocking(false).unwrap();
    offer.stream.tcp.set_nonblocking(false).unwrap();
    let mut bytes = [0; 5];
    near.write_all(b"there").unwrap();
    offer.stream.tcp.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"there");
    offer.stream.tcp.write_all(b"and b").unwrap();
    near.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"and b");
    source.port.stop();
    target.port.stop();
    near.write_all(b"still").unwrap();
    offer.stream.tcp.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"still");
}

#[test]
fn a_link_may_be_for_several_migrations() {
    let (source, target) = pair();
    let all = Dial {
        batch: batch(1..=16),
        ..dial(1, target.address, target.node)
    };
    source.port.dial(all.clone());
    assert_eq!(target.offer().batch, all.batch);
    match source.port.events().recv_timeout(LIMIT) {
        Ok(PeerEvent::Dialled { batch, result }) => {
            result.unwrap();
            assert_eq!(batch, MigrationId(1));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn streams_that_are_dialled_together_all_arrive() {
    let (source, target) = pair();
    let all = || (1..=5).map(MigrationId);
    for migration in 1..=5 {
        let dial = dial(migration, target.address, target.node);
        source.port.dial(dial);
    }
    let mut streams = Vec::new();
    let dialled = all().map(|_| match source.port.events().recv_timeout(LIMIT) {
        Ok(PeerEvent::Dialled { batch, result }) => {
            streams.push(result.unwrap());
            batch
        }
        other => panic!("{other:?}"),
    });
    let dialled: BTreeSet<MigrationId> = dialled.collect();
    let offered: BTreeSet<MigrationId> = all().map(|_| target.offer().batch.id()).collect();
    assert_eq!(dialled, all().collect());
    assert_eq!(offered, dialled);
}

#[test]
fn a_refusal_arrives_whole_and_ends_the_stream() {
    let (source, target) = pair();
    let mut near = source.dial(target.address, target.node).unwrap();
    target.offer().refuse("not now");
    near.set_nonblocking(false).unwrap();
    let mut bytes = Vec::new();
    near.read_to_end(&mut bytes).unwrap();
    let (frame, len) = frame::decode_limited(&bytes, 1 << 10).unwrap().unwrap();
    assert_eq!((len, frame.sequence), (bytes.len(), 0));
    let message = Message::decode(&frame).unwrap();
    assert_eq!(message, (MigrationId(9), Message::Refused("not now")));
}

#[test]
fn dials_that_lead_nowhere_say_so() {
    let (source, target) = pair();
    let nobody = {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        port.local_addr().unwrap()
    };
    let error = source.dial(nobody, target.node).unwrap_err();
    assert!(error.contains("cannot reach"), "{error}");
    let error = source.dial(target.address, NodeId([3; 16])).unwrap_err();
    assert!(error.contains("is node"), "{error}");
    let other = end(4, 2);
    let error = source.dial(other.address, other.node).unwrap_err();
    assert!(error.contains("cluster"), "{error}");
}

#[test]
fn a_link_that_says_something_else_is_closed_and_counted() {
    let target = end(2, 1);
    let identity = Identity {
        cluster: Some([1; 16]),
        ..protocol::identity(LinkRole::Node, NodeId([1; 16]))
    };
    let mut client = ephesus_coordinator::link::blocking::Client::dial(
        &target.address.to_string(),
        identity,
        None,
        LIMIT,
    )
    .unwrap();
    let answer = client.request(5, b"no FINAL comes first", LIMIT);
    answer.unwrap_err();
    assert_eq!(target.counters.count(Reason::Framing), 1);
    target.port.events().try_recv().unwrap_err();
}
