//! What coordinators and nodes tell each other: requests, answers with tables, messages of raft.

use std::collections::BTreeMap;

use ephesus_coordinator::command::{ClusterId, RaftId};
use ephesus_coordinator::load::{Amount, Board, Counted, LoadReport};
use ephesus_coordinator::migration::{Progress, Step};
use ephesus_coordinator::protocol::{
    self, Answer, Coordinators, Heartbeat, HeartbeatAnswer, Refusals, Request,
};
use ephesus_coordinator::report::{Figures, Query};
use ephesus_coordinator::view::TableUpdate;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};

use super::decisions::{registration, tables};
use super::mutations::fuzz;

/// Of two shards and nine partitions, one of which is hot.
fn load_report() -> LoadReport {
    let amount = Amount {
        ops: 1_000,
        bytes_in: 30_000,
        bytes_out: 5_000,
        cpu_ns: 1_000_000,
    };
    let counted = |partition| Counted {
        amount: if partition == 3 {
            amount
        } else {
            Amount::default()
        },
        bytes: 1u64 << partition,
    };
    let mut board = Board::new(2, 9, 0);
    let none = (0..9).map(|_| Some(Counted::default()));
    board.look(200, [Amount::default(); 2].into_iter(), none);
    let partitions = (0..9).map(|partition| (partition != 5).then(|| counted(partition)));
    board.look(400, [amount; 2].into_iter(), partitions);
    board.report()
}

fn requests() -> Vec<Vec<u8>> {
    let node = NodeId([7; 16]);
    let requests = [
        Request::Started {
            node,
            incarnation: 3,
        },
        Request::Hosting {
            node,
            copies: vec![(PartitionId(3), Epoch(2)); 5],
        },
        Request::Register(registration(7)),
        Request::Heartbeat(
            Heartbeat {
                node,
                incarnation: 1,
                sent_ms: 5_000,
                table_version: 9,
                acted_version: 3,
                idle_ms: 0,
                is_sole: false,
                figures: Figures::default(),
            },
            load_report(),
        ),
        Request::Operator {
            id: 4,
            query: Query::RemoveNode {
                node: "athens".to_owned(),
                lose_data: true,
            },
        },
        Request::Steps {
            node,
            incarnation: 1,
            steps: vec![
                (MigrationId(1), Step::Begin),
                (MigrationId(2), Step::Abort("no room".to_owned())),
            ],
        },
        Request::Progress {
            node,
            incarnation: 1,
            progress: vec![(MigrationId(1), Progress::default())],
        },
    ];
    let encode = |request: &Request| request.encode().expect("a short request");
    requests.iter().map(encode).collect()
}

#[test]
fn requests_to_a_coordinator() {
    fuzz("control-requests", requests(), |bytes| {
        if let Ok(Request::Heartbeat(_, load)) = Request::decode(bytes) {
            let _ = load.read();
        }
    });
}

#[test]
fn answers_of_a_coordinator() {
    let mut seeds = vec![
        Answer::NotLeader(Some((RaftId(2), "10.0.1.2:27379".to_owned()))),
        Answer::Registered {
            cluster: ClusterId([7; 16]),
            incarnation: 3,
        },
        Answer::Heartbeat(HeartbeatAnswer {
            incarnation: 1,
            sent_ms: 5_000,
            lease_ms: 1_000,
            table_version: 9,
            status: None,
        }),
    ];
    let tables = tables();
    for (view, delta) in &tables {
        let updates = [
            Some(TableUpdate::Full(view.clone())),
            delta.clone().map(TableUpdate::Delta),
        ];
        seeds.extend(
            updates
                .into_iter()
                .flatten()
                .map(|update| Answer::Table(Box::new(update))),
        );
    }
    let encode = |answer: &Answer| answer.encode().expect("a short answer");
    fuzz("answers", seeds.iter().map(encode).collect(), |bytes| {
        if let Ok(Answer::Table(update)) = Answer::decode(bytes) {
            match *update {
                // Nobody takes one that is not right.
                TableUpdate::Full(view) => drop(view.check()),
                TableUpdate::Delta(delta) => {
                    let held = tables.iter().find(|(view, _)| view.version() == delta.from);
                    if let Some((held, _)) = held {
                        let mut view = held.clone();
                        match view.update(delta) {
                            Ok(()) => view.check().expect("it was right before"),
                            Err(_) => assert!(view == *held, "nothing has changed"),
                        }
                    }
                }
            }
        }
        // Every kind of answer.
        for tag in 0..8 {
            let mut other = bytes.to_vec();
            if let Some(first) = other.first_mut() {
                *first = tag;
            }
            let _ = Answer::decode(&other);
        }
    });
}

#[test]
fn refusals_and_messages_of_raft() {
    let refusals = Refusals(BTreeMap::from([("secret".to_owned(), 3)]));
    let raft = protocol::encode_raft(&Default::default()).expect("a short message");
    let mut long = raft.clone();
    long.extend_from_slice(&[0x3a, 0x05, 1, 2, 3, 4, 5, 0x52, 0x02, 8, 1]);
    let coordinators = Coordinators(BTreeMap::from([(RaftId(4), "d:1".to_owned())]));
    let seeds = vec![
        refusals.encode().expect("short"),
        coordinators.encode().expect("short"),
        raft,
        long,
    ];
    fuzz("raft", seeds, |bytes| {
        let _ = Refusals::decode(bytes);
        let _ = Coordinators::decode(bytes);
        let _ = protocol::decode_raft(bytes);
    });
}

/// A heartbeat is small, or its decoding would have to be bounded.
const _: () = assert!(size_of::<Heartbeat>() <= 256);
