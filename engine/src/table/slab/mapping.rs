//! Memory from the kernel.

use std::ptr::{self, NonNull};

/// Size and alignment of a mapping; under Miri small, since there is no kernel that gives pages lazily.
pub(super) const MAPPING_BYTES: usize = if cfg!(miri) { 2 << 20 } else { 32 << 20 };

/// Readable and writable memory of [`MAPPING_BYTES`], aligned to that; zeros where it was not written.
///
/// The one who drops it answers for nobody using the memory any more.
pub(super) struct Mapping(NonNull<u8>);

// SAFETY: memory has no tie to a thread.
unsafe impl Send for Mapping {}

#[cfg(not(miri))]
impl Mapping {
    /// Without any pages yet; `None` when the kernel refuses. With `huge` it may have huge pages.
    pub(super) fn new(huge: bool) -> Option<Mapping> {
        let mapping = Mapping(Mapping::aligned()?);
        let advice = if huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        mapping.advise(0, MAPPING_BYTES, advice);
        Some(mapping)
    }

    /// Makes the kernel provide the pages of `at..at + len` now, in one call instead of a fault for each.
    pub(super) fn populate(&self, at: usize, len: usize) {
        self.advise(at, len, libc::MADV_POPULATE_WRITE);
    }

    /// Gives the pages of `at..at + len` back; they will be zeros.
    ///
    /// # Safety
    /// Nobody has anything there.
    pub(super) unsafe fn give_back(&self, at: usize, len: usize) {
        self.advise(at, len, libc::MADV_DONTNEED);
    }

    /// Without effect where the kernel refuses: how much is resident changes, not what can be used.
    fn advise(&self, at: usize, len: usize, advice: libc::c_int) {
        assert!(at + len <= MAPPING_BYTES);
        // SAFETY: within the mapping; of the kinds of advice used here only `MADV_DONTNEED` changes
        // bytes, for which the caller of `give_back` answers.
        unsafe {
            libc::madvise(self.0.as_ptr().add(at).cast(), len, advice);
        }
    }

    /// New mappings usually follow each other downwards, aligned if the one before was. If not, more is
    /// mapped than needed, and both ends are cut off.
    fn aligned() -> Option<NonNull<u8>> {
        let first = map(MAPPING_BYTES)?;
        if first.addr().get().is_multiple_of(MAPPING_BYTES) {
            return Some(first);
        }
        // SAFETY: the whole of a mapping that nobody has seen.
        unsafe { unmap(first, MAPPING_BYTES) };
        let wide = map(2 * MAPPING_BYTES)?;
        let before = wide.addr().get().wrapping_neg() % MAPPING_BYTES;
        // SAFETY: of a mapping that nobody has seen: what is before, the aligned part, which stays, and
        // what is behind make up its twice MAPPING_BYTES.
        unsafe {
            let aligned = wide.add(before);
            unmap(wide, before);
            unmap(aligned.add(MAPPING_BYTES), MAPPING_BYTES - before);
            Some(aligned)
        }
    }
}

#[cfg(not(miri))]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (address != libc::MAP_FAILED)
        .then(|| NonNull::new(address.cast()))
        .flatten()
}

/// # Safety
/// The pages are of a mapping of this file, and nobody uses them any more.
#[cfg(not(miri))]
unsafe fn unmap(address: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as promised by the caller.
        unsafe { libc::munmap(address.as_ptr().cast(), bytes) };
    }
}

#[cfg(not(miri))]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which `new` has made; whoever drops it answers for the rest.
        unsafe { unmap(self.0, MAPPING_BYTES) }
    }
}

impl Mapping {
    pub(super) fn start(&self) -> NonNull<u8> {
        self.0
    }

    /// Where the mapping starts that `inside` is in.
    pub(super) fn start_of(inside: NonNull<u8>) -> *mut u8 {
        inside
            .as_ptr()
            .map_addr(|address| address & !(MAPPING_BYTES - 1))
    }
}

/// Miri has no such calls: there a mapping is an allocation, which has its pages from the beginning.
#[cfg(miri)]
impl Mapping {
    const LAYOUT: std::alloc::Layout =
        match std::alloc::Layout::from_size_align(MAPPING_BYTES, MAPPING_BYTES) {
            Ok(layout) => layout,
            Err(_) => panic!("a power of two"),
        };

    pub(super) fn new(_huge: bool) -> Option<Mapping> {
        // SAFETY: the size is not 0.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(Mapping::LAYOUT) }).map(Mapping)
    }

    pub(super) fn populate(&self, _at: usize, _len: usize) {}

    /// # Safety
    /// Nobody has anything there.
    pub(super) unsafe fn give_back(&self, at: usize, len: usize) {
        // SAFETY: within the mapping, and nobody has anything there.
        unsafe { ptr::write_bytes(self.0.as_ptr().add(at), 0, len) }
    }
}

#[cfg(miri)]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` has allocated it with this layout; whoever drops it answers for the rest.
        unsafe { std::alloc::dealloc(self.0.as_ptr(), Mapping::LAYOUT) }
    }
}
