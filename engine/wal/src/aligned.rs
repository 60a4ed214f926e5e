//! Memory aligned for direct I/O: of the heap, or of a mapped file.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::disk::Mapping;

/// Alignment of groups on disk and of buffers in memory, bytes.
pub const BLOCK_BYTES: usize = 4096;

/// `bytes` rounded up to whole blocks.
#[must_use]
pub const fn align_up(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// A fixed-size, always initialized buffer at a 4 KiB boundary; its length may be set below its
/// capacity.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    capacity: usize,
    len: usize,
    /// What the memory is part of; `None`: the heap.
    mapping: Option<Arc<Mapping>>,
}

// SAFETY: the buffer owns its memory and hands it out only through `&self` and `&mut self`.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above: shared access is read-only.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zero bytes; the capacity is rounded up to whole blocks (at least one).
    #[must_use]
    pub fn zeroed(len: usize) -> AlignedBuf {
        let capacity = align_up(len.max(1));
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is at least one block, never zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        AlignedBuf {
            ptr,
            capacity,
            len,
            mapping: None,
        }
    }

    /// The `len` bytes at `offset` of a mapping, both whole blocks.
    ///
    /// # Safety
    /// Nothing else may use these bytes as long as the buffer lives.
    ///
    /// # Panics
    /// If they are not in it.
    pub(crate) unsafe fn of_mapping(
        mapping: &Arc<Mapping>,
        offset: usize,
        len: usize,
    ) -> AlignedBuf {
        assert!(offset.is_multiple_of(BLOCK_BYTES) && len.is_multiple_of(BLOCK_BYTES));
        assert!(offset + len <= mapping.bytes(), "outside of the mapping");
        AlignedBuf {
            // SAFETY: within the mapping, as was just checked.
            ptr: unsafe { mapping.memory().add(offset) },
            capacity: len,
            len,
            mapping: Some(Arc::clone(mapping)),
        }
    }

    /// Where in `mapping` the buffer lies; `None` if it does not.
    pub(crate) fn offset_in(&self, mapping: &Arc<Mapping>) -> Option<usize> {
        let own = self.mapping.as_ref()?;
        let offset = self.ptr.addr().get() - mapping.memory().addr().get();
        Arc::ptr_eq(own, mapping).then_some(offset)
    }

    /// Whether the kernel keeps what is stored here when the process dies.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Bytes that the buffer can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the length; bytes that come into view hold what was there before.
    ///
    /// # Panics
    /// If `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity,
            "length {len} above capacity {}",
            self.capacity
        );
        self.len = len;
    }

    #[expect(clippy::expect_used, reason = "no caller has that much memory")]
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, BLOCK_BYTES).expect("capacity below isize::MAX")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.mapping.is_none() {
            // SAFETY: allocated in `zeroed` with the same layout.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.capacity)) }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `capacity >= len` bytes are owned and initialized.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} of {} bytes)", self.len, self.capacity)
    }
}
