//! What a client has sent and what was not executed of it.

use memmap2::{MmapMut, RemapOptions};

/// Buffers up to this size are kept by a connection between requests.
pub const KEPT_BYTES: usize = 1024;

/// A buffer of which less than one part of so many is in use gives memory back.
const USED_PARTS: usize = 4;

/// From this size on a buffer has a mapping of its own: it grows without a copy of it beside it, and leaves nothing
/// with the allocator.
const LARGE_BYTES: usize = 1 << 20;

/// Bytes that grow.
#[derive(Debug)]
enum Buffer {
    Heap(Vec<u8>),
    /// The first `len` bytes of the mapping.
    Mapped {
        map: MmapMut,
        len: usize,
    },
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Heap(bytes) => bytes,
            Buffer::Mapped { map, len } => map.get(..*len).unwrap_or_default(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Buffer::Heap(bytes) => bytes.len(),
            Buffer::Mapped { len, .. } => *len,
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Buffer::Heap(bytes) => bytes.capacity(),
            Buffer::Mapped { map, .. } => map.len(),
        }
    }

    fn push(&mut self, more: &[u8]) {
        if let Buffer::Heap(bytes) = self
            && bytes.len() + more.len() >= LARGE_BYTES
            && let Ok(map) = MmapMut::map_anon(2 * LARGE_BYTES + more.len())
        {
            let mut mapped = Buffer::Mapped { map, len: 0 };
            mapped.push(bytes);
            *self = mapped;
        }
        match self {
            Buffer::Heap(bytes) => bytes.extend_from_slice(more),
            Buffer::Mapped { map, len } => {
                let end = *len + more.len();
                if end > map.len() && !grow(map, end) {
                    // The system has no room for another mapping; the allocator may have.
                    let bytes = [self.bytes(), more].concat();
                    *self = Buffer::Heap(bytes);
                    return;
                }
                if let Some(room) = map.get_mut(*len..end) {
                    room.copy_from_slice(more);
                    *len = end;
                }
            }
        }
    }

    /// Removes bytes in front.
    fn drain(&mut self, count: usize) {
        match self {
            Buffer::Heap(bytes) => drop(bytes.drain(..count)),
            Buffer::Mapped { map, len } => {
                map.copy_within(count..*len, 0);
                *len -= count;
            }
        }
    }
}

/// Has the mapping hold so many bytes, and some more; false when the system refuses.
fn grow(map: &mut MmapMut, bytes: usize) -> bool {
    let options = RemapOptions::new().may_move(true);
    // SAFETY: the mapping is anonymous, so every byte of a longer one can be accessed.
    unsafe { map.remap(bytes + LARGE_BYTES, options) }.is_ok()
}

/// Bytes in the order they came; executed ones leave in front.
#[derive(Debug)]
pub struct Input {
    buffer: Buffer,
    /// Executed bytes at the start of it.
    executed: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            buffer: Buffer::Heap(Vec::new()),
            executed: 0,
        }
    }
}

impl Input {
    /// What was not executed yet.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.buffer.bytes().get(self.executed..).unwrap_or_default()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len() - self.executed
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that is allocated here.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Adds what has come.
    pub fn push(&mut self, bytes: &[u8]) {
        let is_full = self.buffer.len() + bytes.len() > self.buffer.capacity();
        if is_full && self.executed >= self.len() {
            self.buffer.drain(self.executed);
            self.executed = 0;
        }
        self.buffer.push(bytes);
    }

    /// Removes executed bytes in front. Each byte is moved only a few times, however long the rest.
    pub fn remove(&mut self, executed: usize) {
        self.executed += executed;
        let len = self.len();
        let is_large = self.held_bytes() > KEPT_BYTES.max(USED_PARTS * len);
        if len == 0 && !is_large {
            self.buffer.drain(self.executed);
            self.executed = 0;
        } else if is_large {
            let mut rest = Input::default();
            rest.push(self.rest());
            *self = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_leaves_in_order() {
        let mut input = Input::default();
        let mut expected = Vec::new();
        for n in 0..2_000_usize {
            let bytes: Vec<u8> = (0..n % 97).map(|at| (at * n) as u8).collect();
            input.push(&bytes);
            expected.extend_from_slice(&bytes);
            let executed = (n * 31 % 113).min(input.len());
            input.remove(executed);
            expected.drain(..executed);
            assert_eq!(input.rest(), expected);
            assert_eq!(
                (input.len(), input.is_empty()),
                (expected.len(), expected.is_empty())
            );
        }
    }

    #[test]
    fn the_room_of_a_large_request_is_given_back_also_when_a_byte_is_behind_it() {
        let mut input = Input::default();
        input.push(&vec![b'x'; 8 << 20]);
        input.push(b"y");
        input.remove(8 << 20);
        assert_eq!(input.rest(), b"y");
        assert!(input.held_bytes() <= KEPT_BYTES, "{}", input.held_bytes());
        input.remove(1);
        assert!(input.held_bytes() <= KEPT_BYTES);
    }

    #[test]
    fn a_large_input_grows_and_shrinks_without_losing_a_byte() {
        let mut input = Input::default();
        let mut expected = Vec::new();
        for n in 0..40_usize {
            let bytes: Vec<u8> = (0..300_000 + n).map(|at| (at * (n + 1)) as u8).collect();
            input.push(&bytes);
            expected.extend_from_slice(&bytes);
            if n % 5 == 4 {
                let executed = 1_000_000.min(input.len());
                input.remove(executed);
                expected.drain(..executed);
            }
            assert!(input.rest() == expected, "after {n}");
        }
        let held = input.held_bytes();
        assert!(held <= USED_PARTS * expected.len(), "{held} bytes");
        input.remove(expected.len() - 3);
        assert_eq!(input.rest(), &expected[expected.len() - 3..]);
        assert!(input.held_bytes() <= KEPT_BYTES);
    }
}
