//! A coordinator that has a follower and a leader beside it, and takes messages that neither has sent.

use ephesus_coordinator::member::{ELECTION_TICKS, Input, Ticket, founding};
use ephesus_coordinator::protocol::{decode_raft, encode_raft};
use ephesus_coordinator::{Member, RaftLog, command::RaftId};
use ephesus_wal::{FaultDisk, LogId, LogOptions};
use futures_lite::future::block_on;

use super::decisions::history;
use super::mutations::fuzz;

const MEMBERS: u64 = 3;

/// Ticks until they have a leader and have decided something.
const TICKS: usize = 60;

/// Inputs that a member takes before it is made anew.
const INPUTS_MAX: usize = 100;

fn member(id: u64) -> Member<FaultDisk> {
    let options = LogOptions {
        segment_bytes: 64 << 10,
        group_bytes_max: 16 << 10,
        ..LogOptions::new(LogId([id as u8; 16]))
    };
    let voters: Vec<RaftId> = (1..=MEMBERS).map(RaftId).collect();
    let log = block_on(async {
        let mut log = RaftLog::open(FaultDisk::new(id), &options, 0).await?;
        log.persist(&founding(&voters), 0).await?;
        Ok::<_, ephesus_coordinator::storage::StorageError>(log)
    });
    let patience = ELECTION_TICKS + 5 * id as usize;
    let log = log.expect("a disk without faults");
    Member::new(RaftId(id), log, Some(patience), id).expect("a member")
}

/// Three members, of which the first leads, and what they have said to each other.
fn members() -> (Vec<Member<FaultDisk>>, Vec<Vec<u8>>) {
    let mut members: Vec<_> = (1..=MEMBERS).map(member).collect();
    let (mut said, mut under_way) = (Vec::new(), Vec::new());
    let mut commands = history().into_iter().zip((1..).map(Ticket));
    for _ in 0..TICKS {
        let mut arriving: Vec<(u64, _)> = std::mem::take(&mut under_way);
        for member in &mut members {
            let own = arriving.extract_if(.., |(to, _)| *to == member.id().0);
            let mut inputs = vec![Input::Tick];
            inputs.extend(own.map(|(_, message)| Input::Message(message)));
            if member.is_settled() {
                let next = commands.next();
                inputs.extend(next.map(|(command, ticket)| Input::Propose(ticket, command)));
            }
            let turn = member.turn(inputs, 0, |_, message| {
                said.push(encode_raft(&message).expect("short"));
                under_way.push((message.to, Box::new(message)));
            });
            block_on(turn).expect("a turn");
        }
    }
    assert!(members[0].is_settled() && members[2].applied() > 10);
    (members, said)
}

#[test]
fn messages_to_a_member() {
    let (mut all, said) = members();
    let mut taken = 0;
    fuzz("messages-to-members", said, |bytes| {
        let Ok(mut message) = decode_raft(bytes) else {
            return;
        };
        taken += 1;
        // The leader's turn, or a follower's; whose message it is, the link says.
        let to = taken % 2;
        (message.to, message.from) = (
            to as u64 + 1,
            MEMBERS - (taken as u64 / 2) % 2 * (1 - to as u64),
        );
        let member = &mut all[to];
        let inputs = [Input::Message(Box::new(message)), Input::Tick];
        let turn = block_on(member.turn(inputs, 0, |_, _| {}));
        if turn.is_err() || taken % INPUTS_MAX == 0 {
            (all, _) = members();
        }
    });
}
