//! Memory that is lent to the kernel: what is sent from it is not copied, so it must not change before the other end
//! has it.
//!
//! ```text
//! region, of pages of its own: | slot 0: frame header, payload | slot 1 | ...
//! free -> Lent, which one message fills -> sent, the kernel refers to its pages -> the other end has it -> free
//!                                       -> dropped: never written again, the kernel keeps the pages that it needs
//! ```

use std::fmt;
use std::sync::Arc;

use ephesus_wire::frame::FRAME_HEADER_BYTES;
use ephesus_wire::limits::STREAM_DATA_BYTES;
#[cfg(not(miri))]
use memmap2::Advice;
use memmap2::MmapMut;

/// Slots are whole pages: no message shares one with another.
const PAGE_BYTES: usize = 4 << 10;

/// A message's header and payload.
const SLOT_BYTES: usize = (FRAME_HEADER_BYTES + STREAM_DATA_BYTES).next_multiple_of(PAGE_BYTES);

/// What is lent at most: a few ms of a fast stream, until the target has taken it. Huge pages make a send cost two
/// thirds of what it costs with small ones.
const REGION_BYTES: usize = 8 << 20;

const SLOTS: usize = REGION_BYTES / SLOT_BYTES;

/// The slots of one shard.
#[derive(Debug, Default)]
pub struct Pool {
    region: Option<Arc<Region>>,
    free: Vec<usize>,
}

/// Memory that goes back to the kernel with the last of its slots; pages that are still sent from stay the kernel's.
#[derive(Debug)]
struct Region(MmapMut);

/// A slot for one message of up to [`STREAM_DATA_BYTES`].
pub struct Lent {
    region: Arc<Region>,
    slot: usize,
    /// Of the payload.
    len: usize,
}

impl Pool {
    /// A slot, if one is free and the system gives the memory.
    pub fn take(&mut self) -> Option<Lent> {
        if self.free.is_empty() && !self.is_exhausted() {
            self.region = Some(Arc::new(Region::map()?));
            self.free = (0..SLOTS).rev().collect();
        }
        let region = Arc::clone(self.region.as_ref()?);
        let slot = self.free.pop()?;
        let len = 0;
        Some(Lent { region, slot, len })
    }

    /// Whether all slots are lent. Those that were dropped instead of given back are not: once no slot is free they
    /// make a new region begin.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        let lent = |region| Arc::strong_count(region) - 1;
        self.region
            .as_ref()
            .is_some_and(|region| lent(region) == SLOTS)
    }

    /// Takes a slot back that the kernel does not need any more: the other end has what was sent, or nothing was.
    pub fn give_back(&mut self, lent: Lent) {
        let is_of = |region| Arc::ptr_eq(region, &lent.region);
        if self.region.as_ref().is_some_and(is_of) {
            self.free.push(lent.slot);
        }
    }
}

impl Region {
    fn map() -> Option<Region> {
        let region = MmapMut::map_anon(REGION_BYTES).ok()?;
        // A matter of speed only. No child may share the pages: it would be given, or leave us, copies.
        #[cfg(not(miri))]
        for advice in [Advice::HugePage, Advice::DontFork] {
            let _ = region.advise(advice);
        }
        Some(Region(region))
    }
}

impl Lent {
    /// The payload.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "a slot is as long as the longest frame"
    )]
    pub fn payload(&self) -> &[u8] {
        &self.bytes()[FRAME_HEADER_BYTES..][..self.len]
    }

    /// The next `len` bytes of the payload, which mean nothing yet.
    ///
    /// # Panics
    /// When there is no room for them.
    #[expect(
        clippy::indexing_slicing,
        reason = "a slot is as long as the longest frame"
    )]
    pub fn grow(&mut self, len: usize) -> &mut [u8] {
        let first = FRAME_HEADER_BYTES + self.len;
        self.len += len;
        &mut self.bytes_mut()[first..first + len]
    }

    /// Puts the frame's header before the payload.
    #[expect(
        clippy::indexing_slicing,
        reason = "a slot is as long as the longest frame"
    )]
    pub fn set_header(&mut self, header: &[u8; FRAME_HEADER_BYTES]) {
        self.bytes_mut()[..FRAME_HEADER_BYTES].copy_from_slice(header);
    }

    /// Header and payload.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "a slot is as long as the longest frame"
    )]
    pub fn frame(&self) -> &[u8] {
        &self.bytes()[..FRAME_HEADER_BYTES + self.len]
    }

    fn first(&self) -> *const u8 {
        // SAFETY: the slot is within the region.
        unsafe { self.region.0.as_ptr().add(self.slot * SLOT_BYTES) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the slot is this one's alone, initialized by the kernel, and stays as long as `region`.
        unsafe { std::slice::from_raw_parts(self.first(), SLOT_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the mapping is a writable one.
        unsafe { std::slice::from_raw_parts_mut(self.first().cast_mut(), SLOT_BYTES) }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({}, {} bytes)", self.slot, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_room_for_the_longest_message_and_comes_back() {
        let mut pool = Pool::default();
        let mut all: Vec<Lent> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all.len(), SLOTS);
        for (n, lent) in (0..).zip(&mut all) {
            assert!(lent.payload().is_empty());
            lent.grow(STREAM_DATA_BYTES - 1).fill(n);
            lent.grow(1).fill(!n);
            lent.set_header(&[n; FRAME_HEADER_BYTES]);
        }
        for (n, lent) in (0..).zip(&all) {
            let payload = lent.payload();
            assert_eq!(payload.len(), STREAM_DATA_BYTES);
            assert!(payload[1..STREAM_DATA_BYTES - 1].iter().all(|b| *b == n));
            assert_eq!(payload.last(), Some(&!n));
            assert_eq!(lent.frame()[..FRAME_HEADER_BYTES], [n; FRAME_HEADER_BYTES]);
            assert_eq!(&lent.frame()[FRAME_HEADER_BYTES..], payload);
        }
        pool.give_back(all.pop().expect("the last one"));
        let again = pool.take().expect("it is free again");
        assert!(again.payload().is_empty());
        assert!(pool.take().is_none());
    }

    #[test]
    fn what_is_dropped_is_never_used_again_before_all_is() {
        let mut pool = Pool::default();
        let first = pool.take().expect("memory");
        drop(pool.take());
        let others: Vec<Lent> = (2..SLOTS).map_while(|_| pool.take()).collect();
        assert_eq!(others.len(), SLOTS - 2);
        assert!(!pool.is_exhausted(), "one was dropped");
        let fresh: Vec<Lent> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(fresh.len(), SLOTS, "a whole new region");
        assert!(pool.is_exhausted());
        pool.give_back(first);
        assert!(pool.take().is_none(), "it is of the old one");
    }
}
