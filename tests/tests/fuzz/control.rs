//! What coordinators and nodes tell each other: requests, answers with tables, messages of raft.

use std::collections::BTreeMap;

use ephesus_coordinator::protocol::{self, Answer, Heartbeat, Refusals, Request};
use ephesus_wire::{Epoch, NodeId, PartitionId};

use super::mutations::fuzz;

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
        Request::Steps {
            node,
            incarnation: 1,
            steps: Vec::new(),
        },
        Request::Progress {
            node,
            incarnation: 1,
            progress: Vec::new(),
        },
    ];
    let encode = |request: &Request| request.encode().expect("a short request");
    requests.iter().map(encode).collect()
}

#[test]
fn requests_to_a_coordinator() {
    fuzz("control-requests", requests(), |bytes| {
        let _ = Request::decode(bytes);
    });
}

#[test]
fn answers_of_a_coordinator() {
    let seeds = [Answer::NotLeader(None)];
    let encode = |answer: &Answer| answer.encode().expect("a short answer");
    fuzz("answers", seeds.iter().map(encode).collect(), |bytes| {
        let _ = Answer::decode(bytes);
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
    let seeds = vec![refusals.encode().expect("short"), raft, long];
    fuzz("raft", seeds, |bytes| {
        let _ = Refusals::decode(bytes);
        let _ = protocol::decode_raft(bytes);
    });
}

/// A heartbeat is small, or its decoding would have to be bounded.
const _: () = assert!(size_of::<Heartbeat>() <= 256);
