//! Memory of a file.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

use crate::aligned::BLOCK_BYTES;

/// A file mapped into memory: what is stored here the kernel keeps when the process dies, though not
/// through a power loss.
pub struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: plain memory; who may touch which part of it is up to those who take parts.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The `bytes` bytes at `memory`, which `owner` keeps.
    ///
    /// # Safety
    /// They must be initialized, readable and writable as long as `owner` lives, and nothing else in this
    /// process may touch them while parts of them are in use.
    ///
    /// # Panics
    /// If they do not begin at a 4 KiB boundary.
    pub unsafe fn new(
        memory: NonNull<u8>,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Mapping {
        let is_aligned = memory.addr().get().is_multiple_of(BLOCK_BYTES);
        assert!(is_aligned, "mappings begin with a page");
        Mapping {
            memory,
            bytes,
            _owner: owner,
        }
    }

    /// Its start.
    #[must_use]
    pub fn memory(&self) -> NonNull<u8> {
        self.memory
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.bytes)
    }
}
