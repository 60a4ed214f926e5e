//! What a client has sent and what was not executed of it.

/// Buffers up to this size are kept by a connection between requests.
pub const KEPT_BYTES: usize = 1024;

/// A buffer of which less than one part of so many is in use gives memory back.
const USED_PARTS: usize = 4;

/// From this size on a buffer grows by a quarter instead of twofold.
const LARGE_BYTES: usize = 1 << 20;

/// Bytes in the order they came; executed ones leave in front.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    /// Executed bytes at the start of `bytes`.
    executed: usize,
}

impl Input {
    /// What was not executed yet.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.executed..).unwrap_or_default()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.executed
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that is allocated here.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Adds what has come.
    pub fn push(&mut self, bytes: &[u8]) {
        let is_full = self.bytes.len() + bytes.len() > self.bytes.capacity();
        if is_full && self.executed >= self.len() {
            self.bytes.drain(..self.executed);
            self.executed = 0;
        }
        let len = self.bytes.len();
        if len >= LARGE_BYTES && len + bytes.len() > self.bytes.capacity() {
            self.bytes.reserve_exact(bytes.len().max(len / 4));
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes executed bytes in front. Each byte is moved only a few times, however long the rest.
    pub fn remove(&mut self, executed: usize) {
        self.executed += executed;
        let len = self.len();
        if len == 0 {
            self.executed = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
        } else if self.bytes.capacity() > KEPT_BYTES.max(USED_PARTS * len) {
            self.bytes = self.rest().to_vec();
            self.executed = 0;
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
}
