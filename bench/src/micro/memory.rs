//! Parts that only need memory, with the limits of memory. Every function answers how much it has done.

use std::hint::black_box;

use ephesus_engine::net::ConnToken;
use ephesus_engine::shard::LogGates;
use ephesus_engine::table::{KeyHasher, Table};
use ephesus_wire::block::{Assembler, BlockBuilder};
use ephesus_wire::resp::{Args, Parsed, RequestLimits, parse, reply};
use ephesus_wire::slot::{Partitioning, slot_of};
use ephesus_wire::{Lsn, rng::Rng};

use crate::error::{BenchError, Result};

pub(super) const KEY_BYTES: usize = 16;
pub(super) const VALUE_BYTES: usize = 100;
/// Keys between two looks at the clock.
const BATCH: usize = 4096;
const COPY_BYTES: usize = 64 << 20;

fn key(index: usize) -> Vec<u8> {
    format!("key:{index:012}").into_bytes()
}

fn wrong(what: &str) -> BenchError {
    BenchError::failed(what, "is not what it was made of")
}

/// Bytes in the forms in which a node has them.
pub(super) struct Bytes {
    from: Vec<u8>,
    to: Vec<u8>,
    requests: Vec<u8>,
    blocks: Vec<Vec<u8>>,
    args: Args,
    out: Vec<u8>,
}

impl Bytes {
    pub(super) fn new() -> Self {
        let (mut requests, mut blocks) = (Vec::new(), Vec::new());
        let mut builder = BlockBuilder::new();
        let value = vec![b'x'; VALUE_BYTES];
        for index in 0..BATCH {
            let set: [&[u8]; 3] = [b"SET", &key(index), &value];
            reply::command(&mut requests, &set);
            builder.push(&key(index), &value, 0, |block| blocks.push(block.to_vec()));
        }
        builder.finish(|block| blocks.push(block.to_vec()));
        Bytes {
            from: vec![1; COPY_BYTES],
            to: vec![0; COPY_BYTES],
            requests,
            blocks,
            args: Args::default(),
            out: Vec::new(),
        }
    }

    pub(super) fn copy(&mut self) -> usize {
        self.to.copy_from_slice(black_box(&self.from));
        black_box(&self.to).len()
    }

    pub(super) fn decode_requests(&mut self) -> Result<usize> {
        let mut rest = &self.requests[..];
        while !rest.is_empty() {
            match parse(rest, &RequestLimits::DEFAULT, &mut self.args) {
                Ok(Parsed::Command { consumed }) if self.args.len() == 3 => {
                    rest = &rest[consumed..]
                }
                _ => return Err(wrong("a request")),
            }
        }
        Ok(self.requests.len())
    }

    pub(super) fn encode_replies(&mut self) -> usize {
        self.out.clear();
        for _ in 0..BATCH {
            reply::bulk(&mut self.out, black_box(&self.from[..VALUE_BYTES]));
        }
        self.out.len()
    }

    pub(super) fn encode_blocks(&mut self) -> usize {
        let (mut builder, mut bytes) = (BlockBuilder::new(), 0);
        for entry in black_box(&self.from[..BATCH * (KEY_BYTES + VALUE_BYTES)])
            .chunks_exact(KEY_BYTES + VALUE_BYTES)
        {
            let (key, value) = entry.split_at(KEY_BYTES);
            builder.push(key, value, 0, |block| bytes += block.len());
        }
        builder.finish(|block| bytes += block.len());
        bytes
    }

    pub(super) fn decode_blocks(&mut self) -> Result<usize> {
        let (mut assembler, mut entries) = (Assembler::new(), 0);
        for block in &self.blocks {
            let fed = assembler.feed(block, |entry| {
                entries += usize::from(entry.key.len() == KEY_BYTES)
            });
            fed.map_err(|error| BenchError::failed("a block", error))?;
        }
        if entries != BATCH {
            return Err(wrong("a block"));
        }
        Ok(self.blocks.iter().map(Vec::len).sum())
    }
}

/// Reads each of which says where the next one is.
pub(super) struct Chase(Vec<u32>);

impl Chase {
    /// One round through `count` places, a power of two.
    pub(super) fn new(count: u32) -> Self {
        // A full-period generator modulo a power of two (Hull and Dobell) visits every place once.
        let next = |at: u32| at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) & (count - 1);
        Chase((0..count).map(next).collect())
    }

    pub(super) fn run(&self) -> usize {
        const STEPS: usize = 1 << 16;
        let mut at = 0;
        for _ in 0..STEPS {
            at = self.0[at as usize];
        }
        black_box(at);
        STEPS
    }
}

/// Keys with their hashes.
pub(super) struct Keys {
    keys: Vec<(u64, Vec<u8>)>,
    random: std::cell::RefCell<Rng>,
    partitioning: Partitioning,
}

impl Keys {
    pub(super) fn new(count: usize) -> Self {
        let hasher = KeyHasher::with_seeds([1, 2, 3, 4]);
        let hashed = |index| {
            let key = key(index);
            (hasher.hash(&key), key)
        };
        Keys {
            keys: (0..count).map(hashed).collect(),
            random: Rng::new(1).into(),
            partitioning: Partitioning::new(1024).expect("a count"),
        }
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        for (hash, key) in &self.keys {
            table.put(*hash, key, &[1; VALUE_BYTES], 0);
        }
        table
    }

    /// Keys that lie side by side: only where a table has them is random.
    fn some(&self) -> impl Iterator<Item = &(u64, Vec<u8>)> {
        let mut random = self.random.borrow_mut();
        let from = random.below((self.keys.len() - BATCH) as u64 + 1) as usize;
        self.keys[from..from + BATCH].iter()
    }

    pub(super) fn route(&self) -> usize {
        for (_, key) in self.some() {
            black_box(self.partitioning.partition_of(slot_of(key)));
        }
        BATCH
    }

    pub(super) fn get(&self, table: &Table) -> Result<usize> {
        for (hash, key) in self.some() {
            let found = table.get(*hash, key).ok_or_else(|| wrong("the table"))?;
            black_box(found);
        }
        Ok(BATCH)
    }

    pub(super) fn put(&self, table: &mut Table) -> usize {
        for (hash, key) in self.some() {
            table.put(*hash, key, &[2; VALUE_BYTES], 0);
        }
        BATCH
    }
}

/// Connections that wait for the log, as many as a busy shard has.
#[derive(Default)]
pub(super) struct Gates {
    gates: LogGates,
    lsn: u64,
}

impl Gates {
    pub(super) fn pass(&mut self) -> usize {
        const CONNECTIONS: u32 = 1000;
        for index in 0..CONNECTIONS {
            self.lsn += 1;
            let token = ConnToken {
                index,
                generation: 0,
            };
            self.gates.add_connection(token, Lsn(self.lsn));
        }
        let mut passed = 0;
        while let Some(committed) = self.gates.pop(Lsn(self.lsn)) {
            black_box(committed);
            passed += 1;
        }
        passed
    }
}
