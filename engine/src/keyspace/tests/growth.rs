//! SCAN and images while a keyspace grows a thousandfold.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ephesus_wal::LogId;
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::resp::value::{Value, decode};
use ephesus_wire::{Epoch, Lsn, PartitionId, slot_of};

use super::tape::{Taped, contents};
use crate::command::parse::Scan;
use crate::command::spec::lookup;
use crate::image::{StoreReply, StoreRequest, TrySendError};
use crate::keyspace::replay::Rebuild;
use crate::keyspace::{Reply, ScanCursor};
use crate::shard::{Checkpointer, StoreLink};

const PARTITIONS: u16 = 5;

fn execute(taped: &mut Taped, args: &[&[u8]]) {
    let mut out = Vec::new();
    let mut reply = Reply {
        out: &mut out,
        protocol: Protocol::Resp2,
        gate: Lsn::ZERO,
    };
    let spec = lookup(args[0]).expect("a command");
    let executed = taped
        .keyspace
        .execute(spec, args, slot_of(args[1]), &mut reply);
    executed.expect("a valid command");
}

fn number(n: u64) -> Vec<u8> {
    n.to_string().into_bytes()
}

/// One SCAN call; the keys as the numbers they are.
fn scan(taped: &mut Taped, cursor: u64, seen: &mut Vec<u64>) -> u64 {
    let at = ScanCursor::decode(cursor, PARTITIONS).expect("a cursor it gave out");
    let scan = Scan {
        cursor,
        pattern: None,
        count: 500,
        type_name: None,
    };
    let next = |after: PartitionId| (after.0 + 1 < PARTITIONS).then_some(PartitionId(after.0 + 1));
    let mut out = Vec::new();
    let mut reply = Reply {
        out: &mut out,
        protocol: Protocol::Resp2,
        gate: Lsn::ZERO,
    };
    taped.keyspace.scan(at, &scan, &next, &mut reply);
    assert_eq!(reply.gate, taped.keyspace.log.appended());
    let (reply, _) = decode(&out).expect("well-formed").expect("complete");
    let Value::Array(parts) = reply else {
        panic!("not an array")
    };
    let digits = |value: &Value| -> u64 {
        let bytes = value.as_bytes().expect("a string");
        std::str::from_utf8(bytes)
            .expect("text")
            .parse()
            .expect("a number")
    };
    let Value::Array(keys) = &parts[1] else {
        panic!("not an array")
    };
    seen.extend(keys.iter().map(digits));
    digits(&parts[0])
}

/// A store that keeps everything and answers at once.
#[derive(Default)]
struct Keep {
    blocks: RefCell<Vec<Vec<u8>>>,
    manifest: RefCell<Option<crate::image::Manifest>>,
    replies: RefCell<VecDeque<StoreReply>>,
}

impl StoreLink for &Keep {
    fn try_send(&self, request: StoreRequest) -> Result<(), TrySendError> {
        let mut replies = self.replies.borrow_mut();
        match request {
            StoreRequest::Begin(_) => {}
            StoreRequest::Block(_, block) => self.blocks.borrow_mut().push(block.into_vec()),
            StoreRequest::Seal(image) => {
                let blocks = self.blocks.borrow();
                replies.push_back(StoreReply::Sealed {
                    image,
                    blocks: blocks.len() as u64,
                    bytes: blocks.iter().map(|block| block.len() as u64).sum(),
                });
            }
            StoreRequest::Switch(manifest) => {
                replies.push_back(StoreReply::Switched(manifest.image));
                *self.manifest.borrow_mut() = Some(*manifest);
            }
            other => unreachable!("{other:?}"),
        }
        Ok(())
    }

    fn try_recv(&self) -> Option<StoreReply> {
        self.replies.borrow_mut().pop_front()
    }

    fn has_reply(&self) -> bool {
        !self.replies.borrow().is_empty()
    }
}

#[test]
fn scan_visits_every_key_that_stays_while_a_million_are_added() {
    let mut taped = Taped::new(PARTITIONS, 1);
    for n in 0..1_000 {
        execute(&mut taped, &[b"SET", &number(n), b"v"]);
    }
    let (mut added, mut cursor, mut seen) = (1_000, 0, Vec::new());
    loop {
        cursor = scan(&mut taped, cursor, &mut seen);
        if cursor == 0 {
            break;
        }
        // 250 keys for every 500 visited: the scan catches up only once the growth ends.
        for _ in 0..if added < 1_000_000 { 20_000 } else { 0 } {
            execute(&mut taped, &[b"SET", &number(added), b"v"]);
            added += 1;
        }
        taped.commit();
        taped.records.clear();
    }
    assert!(added >= 1_000_000, "only {added} keys");
    let visits = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(visits, seen.len(), "no key is visited twice");
    let first: Vec<u64> = seen.iter().copied().filter(|n| *n < 1_000).collect();
    assert!(first.into_iter().eq(0..1_000), "every key that was there");
}

#[test]
fn an_image_walked_during_growth_and_the_log_make_the_same_table() {
    let mut taped = Taped::new(1, 1);
    for n in 0..1_000 {
        execute(&mut taped, &[b"SET", &number(n), b"first"]);
    }
    for n in 0..40 {
        execute(&mut taped, &[b"SET", &number(1_000 + n), &[b'x'; 30_000]]);
    }
    taped.commit();
    let store = Keep::default();
    let mut checkpointer = Checkpointer::new(vec![&store], LogId([9; 16]), 1);
    checkpointer.slice = Duration::ZERO;
    let start = now();
    let mut added = 2_000;
    let mut step: u64 = 0;
    while store.manifest.borrow().is_none() {
        let taken = checkpointer.take_replies(&mut taped.keyspace, start);
        taken.expect("a store without faults");
        let slice = checkpointer.slice(&mut taped.keyspace, start);
        slice.expect("a store without faults");
        for _ in 0..if added < 1_000_000 { 2_000 } else { 1 } {
            execute(&mut taped, &[b"SET", &number(added), &number(step)]);
            added += 1;
            step += 1;
            let n = number(step * 7919 % added);
            match step % 5 {
                0 => execute(&mut taped, &[b"DEL", &n]),
                1 => execute(&mut taped, &[b"APPEND", &n, b"+"]),
                2 => execute(&mut taped, &[b"PEXPIRE", &n, b"5000"]),
                _ => {}
            }
        }
        if step.is_multiple_of(20) || added >= 1_000_000 {
            taped.commit();
        }
    }
    taped.commit();
    let manifest = store.manifest.borrow_mut().take().expect("switched");
    assert!(manifest.lsn_end > manifest.lsn_start, "writes went on");
    let mut rebuild = Rebuild::new(PartitionId(0), Epoch(1));
    for block in store.blocks.borrow().iter() {
        rebuild.block(block, &taped.hasher).expect("a good block");
    }
    rebuild
        .image_complete(&manifest)
        .expect("what the manifest says");
    let rebuilt = taped.replay(vec![rebuild], manifest.lsn_start);
    assert_eq!(
        rebuilt[0].seq(),
        taped
            .keyspace
            .partition(PartitionId(0))
            .expect("here")
            .seq()
    );
    let (found, expected) = (
        contents(rebuilt.iter()),
        contents(taped.keyspace.partitions()),
    );
    assert_eq!(found.len(), expected.len());
    assert!(found == expected);
}

#[expect(
    clippy::disallowed_methods,
    reason = "any instant does: it only has to stay the same"
)]
fn now() -> Instant {
    Instant::now()
}
