//! The memory of messages of records: of the heap, or such as a socket sends without copying it.

use std::ops::Deref;

use ephesus_wire::limits::STREAM_DATA_BYTES;
use ephesus_wire::record::{Record, RecordMeta};

use crate::net::{Lent, LentPool};

/// Buffers of the heap that are kept for the next messages.
const KEPT_MAX: usize = 32;

/// Bytes of one message.
#[derive(Debug)]
pub enum Buffer {
    Heap(Vec<u8>),
    Lent(Lent),
}

impl Buffer {
    /// Appends a record, for which there is room or which the heap has room for.
    pub(super) fn append(&mut self, record: &Record<'_>, meta: RecordMeta) {
        match self {
            Buffer::Heap(bytes) => record.append_to(meta, bytes),
            Buffer::Lent(lent) => {
                record.encode_into(meta, lent.grow(record.encoded_len()));
            }
        }
    }

    /// Appends zeroes up to this length.
    pub(super) fn pad(&mut self, len: usize) {
        match self {
            Buffer::Heap(bytes) => bytes.resize(len, 0),
            Buffer::Lent(lent) => lent.grow(len - lent.payload().len()).fill(0),
        }
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::Heap(Vec::new())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Heap(bytes) => bytes,
            Buffer::Lent(lent) => lent.payload(),
        }
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        **self == **other
    }
}

impl Eq for Buffer {}

/// Buffers for the next messages. Their memory is touched already, which costs a short move more than what it moves.
#[derive(Debug, Default)]
pub struct Spare {
    heap: Vec<Vec<u8>>,
    /// Of a socket's.
    lent: Option<LentPool>,
}

impl Spare {
    /// Such as lend memory.
    pub(crate) fn lending() -> Spare {
        let lent = Some(LentPool::default());
        Spare {
            lent,
            ..Spare::default()
        }
    }

    /// Whether those that lend have to wait until the other end has what was sent.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.lent.as_ref().is_some_and(LentPool::is_exhausted)
    }

    /// A buffer for a message of `len` bytes, and of more if that is less than a usual one.
    pub(super) fn take(&mut self, len: usize) -> Buffer {
        if len <= STREAM_DATA_BYTES
            && let Some(lent) = self.lent.as_mut().and_then(LentPool::take)
        {
            return Buffer::Lent(lent);
        }
        match self.heap.pop() {
            Some(spare) if spare.capacity() >= len => Buffer::Heap(spare),
            _ => Buffer::Heap(Vec::with_capacity(len.max(STREAM_DATA_BYTES))),
        }
    }

    /// Keeps a buffer that nobody uses any more, the kernel neither.
    pub(crate) fn keep(&mut self, buffer: Buffer) {
        match buffer {
            Buffer::Lent(lent) => {
                if let Some(pool) = &mut self.lent {
                    pool.give_back(lent);
                }
            }
            Buffer::Heap(mut bytes) => {
                if bytes.capacity() == STREAM_DATA_BYTES && self.heap.len() < KEPT_MAX {
                    bytes.clear();
                    self.heap.push(bytes);
                }
            }
        }
    }
}
