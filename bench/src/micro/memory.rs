//! Parts that only need memory, and the limits of memory.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;

use ephesus_engine::net::ConnToken;
use ephesus_engine::shard::LogGates;
use ephesus_engine::table::{KeyHasher, Table};
use ephesus_wire::block::{Assembler, BlockBuilder};
use ephesus_wire::resp::{Args, Parsed, RequestLimits, parse, reply};
use ephesus_wire::rng::Rng;
use ephesus_wire::slot::{Partitioning, slot_of};
use ephesus_wire::{Lsn, PartitionId};

use crate::error::{BenchError, During};
use crate::prefill::{KEY_BYTES, key};

use super::{VALUE_BYTES, Work};

/// Between two looks at the clock.
const BATCH: usize = 4096;
const COPY_BYTES: usize = 64 << 20;
const PARTITIONS: u16 = 1024;

fn wrong(what: &str) -> BenchError {
    BenchError::failed(what, "is not what it was made of")
}

pub(super) fn copy() -> Work {
    let (from, mut to) = (vec![1u8; COPY_BYTES], vec![0u8; COPY_BYTES]);
    Box::new(move || {
        to.copy_from_slice(black_box(&from));
        Ok(black_box(&to).len())
    })
}

/// Reads each of which says where the next one is, of `count` places, a power of two.
pub(super) fn chase(count: u32) -> Work {
    // A full-period generator modulo a power of two (Hull and Dobell) visits every place once.
    let next = |at: u32| at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) & (count - 1);
    let places: Vec<u32> = (0..count).map(next).collect();
    let mut at = 0;
    Box::new(move || {
        for _ in 0..BATCH {
            at = places[at as usize];
        }
        black_box(at);
        Ok(BATCH)
    })
}

pub(super) fn decode_requests() -> Work {
    let mut requests = Vec::new();
    for index in 0..BATCH as u64 {
        let set: [&[u8]; 3] = [b"SET", &key(index), &[b'x'; VALUE_BYTES]];
        reply::command(&mut requests, &set);
    }
    let mut args = Args::default();
    Box::new(move || {
        let mut rest = &requests[..];
        while !rest.is_empty() {
            match parse(rest, &RequestLimits::DEFAULT, &mut args) {
                Ok(Parsed::Command { consumed }) if args.len() == 3 => rest = &rest[consumed..],
                _ => return Err(wrong("a request")),
            }
        }
        Ok(requests.len())
    })
}

pub(super) fn encode_replies() -> Work {
    let mut out = Vec::new();
    Box::new(move || {
        out.clear();
        for _ in 0..BATCH {
            reply::bulk(&mut out, black_box(&[b'x'; VALUE_BYTES]));
        }
        Ok(out.len())
    })
}

/// Blocks of a batch of entries.
fn blocks(keys: &[[u8; KEY_BYTES]], mut each: impl FnMut(&[u8])) {
    let mut builder = BlockBuilder::new();
    for key in keys {
        builder.push(key, &[b'x'; VALUE_BYTES], 0, &mut each);
    }
    builder.finish(each);
}

pub(super) fn encode_blocks() -> Work {
    let keys: Vec<_> = (0..BATCH as u64).map(key).collect();
    Box::new(move || {
        let mut bytes = 0;
        blocks(&keys, |block| bytes += black_box(block).len());
        Ok(bytes)
    })
}

pub(super) fn decode_blocks() -> Work {
    let keys: Vec<_> = (0..BATCH as u64).map(key).collect();
    let mut encoded = Vec::new();
    blocks(&keys, |block| encoded.push(block.to_vec()));
    Box::new(move || {
        let (mut assembler, mut entries) = (Assembler::new(), 0);
        for block in &encoded {
            let count = |entry: ephesus_wire::block::Entry| {
                entries += usize::from(entry.key.len() == KEY_BYTES);
            };
            assembler.feed(block, count).during("a block")?;
        }
        match entries == BATCH {
            true => Ok(encoded.iter().map(Vec::len).sum()),
            false => Err(wrong("a block")),
        }
    })
}

/// Keys with their hashes.
type Keys = Rc<[(u64, [u8; KEY_BYTES])]>;

/// Routing of keys, and reads and writes of a table that has all of them.
pub(super) fn table(count: usize) -> (Work, Work, Work) {
    let hasher = KeyHasher::with_seeds([1, 2, 3, 4]);
    let hashed = |index| (hasher.hash(&key(index)), key(index));
    let keys: Keys = (0..count as u64).map(hashed).collect();
    let mut table = Table::new();
    for (hash, key) in keys.iter() {
        table.put(*hash, key, &[1; VALUE_BYTES], 0);
    }
    let table = Rc::new(RefCell::new(table));
    let partitioning = Partitioning::new(PARTITIONS).expect("a number of partitions");
    let route = move |_: u64, key: &[u8]| {
        let partition = partitioning.partition_of(slot_of(key));
        black_box(partition) < PartitionId(PARTITIONS)
    };
    let (read, written) = (Rc::clone(&table), table);
    let get = move |hash: u64, key: &[u8]| black_box(read.borrow().get(hash, key)).is_some();
    let put = move |hash: u64, key: &[u8]| {
        black_box(written.borrow_mut().put(hash, key, &[2; VALUE_BYTES], 0));
        true
    };
    (over(&keys, route), over(&keys, get), over(&keys, put))
}

/// Does something with keys that lie side by side: only where a table has them is random.
fn over(keys: &Keys, mut each: impl FnMut(u64, &[u8]) -> bool + 'static) -> Work {
    let (keys, mut random) = (Rc::clone(keys), Rng::new(1));
    Box::new(move || {
        let from = random.below((keys.len() - BATCH) as u64 + 1) as usize;
        let mut some = keys[from..from + BATCH].iter();
        match some.all(|(hash, key)| each(*hash, key)) {
            true => Ok(BATCH),
            false => Err(wrong("the table")),
        }
    })
}

/// Connections that wait for the log, as many as a busy shard has.
pub(super) fn gates() -> Work {
    const CONNECTIONS: u32 = 1000;
    let (mut gates, mut lsn) = (LogGates::default(), 0);
    Box::new(move || {
        for index in 0..CONNECTIONS {
            lsn += 1;
            let generation = 0;
            gates.add_connection(ConnToken { index, generation }, Lsn(lsn));
        }
        Ok(std::iter::from_fn(|| black_box(gates.pop(Lsn(lsn)))).count())
    })
}
