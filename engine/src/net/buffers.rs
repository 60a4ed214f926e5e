//! Receive buffers that the kernel picks from: shared by all connections of a shard, so that an
//! idle connection owns none.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use memmap2::MmapMut;

/// Bytes of one receive buffer.
pub const BUFFER_BYTES: usize = 16 * 1024;

/// Receive buffers of a shard; a power of two.
pub const BUFFERS: u16 = 128;

/// Group number under which the buffers are registered.
pub const GROUP: u16 = 0;

/// A ring of provided buffers (`IORING_REGISTER_PBUF_RING`) and their memory.
pub struct Buffers {
    /// Entries, at the start of a page.
    ring: MmapMut,
    memory: Box<[u8]>,
    tail: u16,
}

impl Buffers {
    /// Allocates the buffers and registers them.
    ///
    /// # Errors
    /// When the kernel is older than 5.19 or memory may not be mapped.
    pub fn register(submitter: &io_uring::Submitter<'_>) -> io::Result<Buffers> {
        let ring = MmapMut::map_anon(usize::from(BUFFERS) * size_of::<BufRingEntry>())?;
        let memory = vec![0; usize::from(BUFFERS) * BUFFER_BYTES].into_boxed_slice();
        let mut buffers = Buffers {
            ring,
            memory,
            tail: 0,
        };
        // SAFETY: the ring memory is page-aligned, large enough for `BUFFERS` entries and lives as
        // long as `Buffers`, which the owner keeps until after the io_uring is closed.
        unsafe {
            let ring = buffers.ring.as_ptr() as u64;
            submitter.register_buf_ring_with_flags(ring, BUFFERS, GROUP, 0)?;
        }
        for id in 0..BUFFERS {
            buffers.give_back(id);
        }
        Ok(buffers)
    }

    /// The first `len` bytes of buffer `id`, which a completion has named.
    #[expect(
        clippy::indexing_slicing,
        reason = "the kernel names buffers that it was given, and fills no more than their length"
    )]
    pub fn filled(&self, id: u16, len: usize) -> &[u8] {
        let start = usize::from(id) * BUFFER_BYTES;
        &self.memory[start..start + len]
    }

    /// Lets the kernel use buffer `id` again.
    #[expect(
        clippy::indexing_slicing,
        reason = "the kernel names buffers that it was given"
    )]
    pub fn give_back(&mut self, id: u16) {
        let at = usize::from(self.tail & (BUFFERS - 1));
        let address = self.memory[usize::from(id) * BUFFER_BYTES..].as_mut_ptr() as u64;
        // SAFETY: `at` is below the number of entries; the kernel reads entries only up to the
        // tail, which is published after the entry with release ordering.
        unsafe {
            let ring = self.ring.as_mut_ptr().cast::<BufRingEntry>();
            let entry = &mut *ring.add(at);
            entry.set_addr(address);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(ring).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}
