//! Packs entries into blocks.

use super::{
    BLOCK_BODY_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, ENTRY_HEADER_BYTES, KIND_FRAGMENT,
    KIND_WHOLE, MAGIC, VALUE_STRING, entry_len,
};
use crate::copy;
use crate::limits::{BLOCK_BYTES, STORED_KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Packs entries into blocks and hands each full one to the caller.
#[derive(Clone, Debug)]
pub struct BlockBuilder {
    /// Room for a header, then the entries that are not handed out yet.
    block: Vec<u8>,
    count: u16,
}

impl Default for BlockBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BlockBuilder {
    /// A builder with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        block.resize(BLOCK_HEADER_BYTES, 0);
        Self { block, count: 0 }
    }

    /// Whether no entry waits to be handed out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an entry; `full` gets every block this completes, in order.
    ///
    /// # Panics
    /// When key or value are longer than the limits.
    pub fn push(
        &mut self,
        key: &[u8],
        value: &[u8],
        expire_at_ms: u64,
        mut full: impl FnMut(&[u8]),
    ) {
        assert!(
            key.len() <= STORED_KEY_BYTES_MAX,
            "key of {} bytes",
            key.len()
        );
        assert!(
            value.len() <= VALUE_BYTES_MAX,
            "value of {} bytes",
            value.len()
        );
        let len = entry_len(key, value);
        if self.block.len() + len > BLOCK_BYTES {
            self.finish(&mut full);
        }
        let head = entry_header(key, value, expire_at_ms);
        if len > BLOCK_BODY_BYTES_MAX {
            self.fragments([&head, key, value], len, full);
            return;
        }
        for part in [&head, key, value] {
            copy::append(&mut self.block, part);
        }
        self.count += 1;
    }

    /// Hands out the block that is not full yet, if any; the builder is as new afterwards.
    pub fn finish(&mut self, mut full: impl FnMut(&[u8])) {
        if self.count > 0 {
            let count = self.count;
            self.emit(KIND_WHOLE, count, 0, 0, &mut full);
        }
    }

    fn fragments(&mut self, parts: [&[u8]; 3], total: usize, mut full: impl FnMut(&[u8])) {
        let mut index = 0;
        for mut part in parts {
            while !part.is_empty() {
                let room = BLOCK_BYTES - self.block.len();
                let (fits, rest) = part.split_at(part.len().min(room));
                copy::append(&mut self.block, fits);
                part = rest;
                if self.block.len() == BLOCK_BYTES {
                    self.emit(KIND_FRAGMENT, 1, index, total, &mut full);
                    index += 1;
                }
            }
        }
        if self.block.len() > BLOCK_HEADER_BYTES {
            self.emit(KIND_FRAGMENT, 1, index, total, &mut full);
        }
    }

    fn emit(
        &mut self,
        kind: u8,
        count: u16,
        index: u32,
        total: usize,
        full: &mut impl FnMut(&[u8]),
    ) {
        let (head, body) = self.block.split_at_mut(BLOCK_HEADER_BYTES);
        let mut header = BlockHeader {
            magic: MAGIC,
            crc: 0,
            kind,
            zero: 0,
            count,
            length: body.len() as u32,
            index,
            total: total as u32,
            reserved: [0; 2],
        };
        header.crc = header.checksum(body);
        head.copy_from_slice(bytemuck::bytes_of(&header));
        full(&self.block);
        self.block.truncate(BLOCK_HEADER_BYTES);
        self.count = 0;
    }
}

fn entry_header(key: &[u8], value: &[u8], expire_at_ms: u64) -> [u8; ENTRY_HEADER_BYTES] {
    let mut head = [0; ENTRY_HEADER_BYTES];
    head[..4].copy_from_slice(&(key.len() as u32).to_le_bytes());
    head[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
    head[8..16].copy_from_slice(&expire_at_ms.to_le_bytes());
    head[16] = VALUE_STRING;
    head
}
