//! One key with its value in one allocation, owned by the slot that points at it.
//!
//! Everything `unsafe` about the table is in this file, and in `slab` for the memory of larger entries.
//!
//! ```text
//! slot   u64:  tag (16 bits) | address (48 bits); 0 = empty
//! entry  0     size class of the allocation
//!        1     flags: bits 0-1 / 2-3 width of key / value length (1 << n bytes), bit 4 expiry present
//!        2..8  low 48 bits of the hash
//!        8..   key length | value length | expiry in ms (8, if present) | key | value | spare
//! ```
//!
//! Allocations are at least 16 bytes and bytes 0..16 are always initialised, so both lengths are
//! read with one load. Entries never leave the process: the layout is no format.

use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};

use ephesus_wire::copy;

use super::size_class::SizeClass;
use super::slab;
use crate::prefetch::{self, LINE_BYTES};

/// The only value type there is (record format: 0 = string).
pub const VALUE_TYPE_STRING: u8 = 0;

/// Bits of the hash kept in the entry; the tag and the segment's prefix supply the others.
pub(super) const STORED_HASH_BITS: u32 = 48;

/// Entries above this size reserve the expiry, so that setting one never moves the value.
const RESERVE_EXPIRY_ABOVE_BYTES: usize = 4 << 10;
/// Spare bytes an append may reserve.
const MAX_APPEND_SPARE_BYTES: usize = 1 << 20;

/// Bytes of an entry that are worth a prefetch: who reads more of it has the CPU load the rest by itself.
const PREFETCH_BYTES: usize = 1024;
/// Of those, what [`Slot::prefetch`] loads.
const PREFETCH_START_BYTES: usize = 2 * LINE_BYTES;

const LENGTHS_AT: usize = 8;
const EXPIRY_BYTES: usize = 8;
/// The allocator is asked for no alignment: see [`size_class`](super::size_class).
const ENTRY_ALIGN: usize = 1;
const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: usize = (1 << ADDRESS_BITS) - 1;
const EXPIRY_FLAG: u64 = 1 << 4;

/// A key as it stands in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// Unix time in milliseconds at which the key becomes invisible; 0 = never.
    pub expire_at_ms: u64,
    pub value_type: u8,
}

/// What one entry adds to the table's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) data_bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) expiring: usize,
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        self.data_bytes += other.data_bytes;
        self.memory_bytes += other.memory_bytes;
        self.expiring += other.expiring;
    }
}

/// Widths of an entry's lengths and whether it has room for an expiry; equal to its flags byte.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape(u64);

impl Shape {
    /// The shape of an entry whose value may grow by `spare` bytes in place.
    fn choose(key_bytes: usize, value_bytes: usize, expire_at_ms: u64, spare: usize) -> Shape {
        let room = value_bytes + spare;
        let expiry = expire_at_ms != 0 || key_bytes + room > RESERVE_EXPIRY_ABOVE_BYTES;
        let expiry = if expiry { EXPIRY_FLAG } else { 0 };
        Shape(width_code(key_bytes) | width_code(room) << 2 | expiry)
    }

    fn key_bits(self) -> u32 {
        8 << (self.0 & 3)
    }

    fn value_bits(self) -> u32 {
        8 << ((self.0 >> 2) & 3)
    }

    fn has_expiry(self) -> bool {
        self.0 & EXPIRY_FLAG != 0
    }

    fn expiry_at(self) -> usize {
        LENGTHS_AT + (self.key_bits() + self.value_bits()) as usize / 8
    }

    fn key_at(self) -> usize {
        self.expiry_at() + if self.has_expiry() { EXPIRY_BYTES } else { 0 }
    }
}

fn width_code(bytes: usize) -> u64 {
    match bytes {
        0..=0xff => 0,
        0x100..=0xffff => 1,
        _ => 2,
    }
}

fn low_bits(word: u64, bits: u32) -> usize {
    (word & ((1 << bits) - 1)) as usize
}

/// Shape and lengths of an entry, decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EntryHeader {
    class: SizeClass,
    shape: Shape,
    stored_hash: u64,
    key_bytes: usize,
    value_bytes: usize,
}

impl EntryHeader {
    fn used_bytes(&self) -> usize {
        self.shape.key_at() + self.key_bytes + self.value_bytes
    }

    fn first_word(&self) -> u64 {
        u64::from(self.class.code()) | self.shape.0 << 8 | self.stored_hash << 16
    }

    fn lengths_word(&self) -> u64 {
        self.key_bytes as u64 | (self.value_bytes as u64) << self.shape.key_bits()
    }
}

/// An owned entry and the 16 hash bits below its segment's prefix, or nothing.
pub(super) struct Slot(*mut u8);

// SAFETY: a slot is the only owner of its allocation, which has no tie to a thread.
unsafe impl Send for Slot {}

impl Slot {
    pub(super) const EMPTY: Slot = Slot(ptr::null_mut());

    /// A new entry; `hash` is the key's full hash.
    pub(super) fn new(hash: u64, key: &[u8], value: &[u8], expire_at_ms: u64) -> Slot {
        let stored_hash = hash & ((1 << STORED_HASH_BITS) - 1);
        Slot::allocate(stored_hash, key, [value, &[]], expire_at_ms, 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    pub(super) fn tag(&self) -> u16 {
        (self.0.addr() >> ADDRESS_BITS) as u16
    }

    pub(super) fn set_tag(&mut self, tag: u16) {
        self.0 = self
            .0
            .map_addr(|address| address & ADDRESS_MASK | usize::from(tag) << ADDRESS_BITS);
    }

    /// The low 48 bits of the hash.
    pub(super) fn stored_hash(&self) -> u64 {
        self.words()[0] >> 16
    }

    pub(super) fn entry(&self) -> EntryRef<'_> {
        let header = self.header();
        EntryRef {
            key: self.bytes(header.shape.key_at(), header.key_bytes),
            value: self.bytes(header.shape.key_at() + header.key_bytes, header.value_bytes),
            expire_at_ms: self.expire_at_ms(&header),
            value_type: VALUE_TYPE_STRING,
        }
    }

    pub(super) fn has_key(&self, key: &[u8]) -> bool {
        let header = self.header();
        header.key_bytes == key.len() && self.bytes(header.shape.key_at(), key.len()) == key
    }

    pub(super) fn weight(&self) -> Weight {
        if self.is_empty() {
            return Weight::default();
        }
        let header = self.header();
        Weight {
            data_bytes: (header.key_bytes + header.value_bytes) as u64,
            memory_bytes: header.class.bytes() as u64,
            expiring: usize::from(self.expire_at_ms(&header) != 0),
        }
    }

    /// Replaces value and expiry, in place when the allocation has about the right size.
    pub(super) fn replace(&mut self, key: &[u8], value: &[u8], expire_at_ms: u64) {
        let old = self.header();
        let shape = Shape::choose(key.len(), value.len(), expire_at_ms, 0);
        let needed = shape.key_at() + key.len() + value.len();
        if old.class.suits(SizeClass::holding(needed)) {
            let new = EntryHeader {
                shape,
                key_bytes: key.len(),
                value_bytes: value.len(),
                ..old
            };
            if new == old {
                self.write_value(&old, value, expire_at_ms);
            } else {
                self.write(&new, key, [value, &[]], expire_at_ms);
            }
        } else {
            let new = Slot::allocate(old.stored_hash, key, [value, &[]], expire_at_ms, 0);
            self.become_entry(new);
        }
    }

    /// Sets the expiry (0 = none); moves key and value only if a small entry has no room for it yet.
    pub(super) fn set_expiry(&mut self, expire_at_ms: u64) {
        let old = self.header();
        if old.shape.has_expiry() {
            self.write_expiry(old.shape, expire_at_ms);
        } else if expire_at_ms != 0 {
            let EntryRef { key, value, .. } = self.entry();
            let new = Slot::allocate(old.stored_hash, key, [value, &[]], expire_at_ms, 0);
            self.become_entry(new);
        }
    }

    /// Appends to the value and returns its new length; a move reserves half the size as spare.
    pub(super) fn append(&mut self, suffix: &[u8]) -> usize {
        let old = self.header();
        let value_bytes = old.value_bytes + suffix.len();
        let fits = old.used_bytes() + suffix.len() <= old.class.bytes();
        if fits && u64::from(old.shape.value_bits()) >= 8 << width_code(value_bytes) {
            self.put_bytes(old.used_bytes(), suffix);
            self.set_header(&EntryHeader { value_bytes, ..old });
        } else {
            let EntryRef {
                key,
                value,
                expire_at_ms,
                ..
            } = self.entry();
            let spare = (value_bytes / 2).min(MAX_APPEND_SPARE_BYTES);
            let new = Slot::allocate(old.stored_hash, key, [value, suffix], expire_at_ms, spare);
            self.become_entry(new);
        }
        value_bytes
    }

    /// Asks the CPU to load the start of the entry, where header and key are.
    pub(super) fn prefetch(&self) {
        prefetch::line(self.address());
        prefetch::line(self.address().wrapping_add(LINE_BYTES));
    }

    /// Asks the CPU to load what is behind the start of the entry; reads the header, so call it when
    /// that was loaded.
    pub(super) fn prefetch_value(&self) {
        if self.is_empty() {
            return;
        }
        let end = self.header().used_bytes().min(PREFETCH_BYTES);
        for at in (PREFETCH_START_BYTES..end).step_by(LINE_BYTES) {
            prefetch::line(self.address().wrapping_add(at));
        }
    }

    /// The region of memory where the entry is, if it may need [`Region::populate`]: slabs see to that
    /// themselves.
    pub(super) fn region(&self) -> Option<Region> {
        let is_in_slab = self.header().class.slab().is_some();
        (!is_in_slab).then(|| Region(self.address().addr() / REGION_BYTES))
    }

    fn become_entry(&mut self, mut new: Slot) {
        new.set_tag(self.tag());
        *self = new;
    }

    /// An entry under tag 0 whose value is both parts of `value`, with room for `spare` bytes more.
    fn allocate(
        stored_hash: u64,
        key: &[u8],
        value: [&[u8]; 2],
        expire_at_ms: u64,
        spare: usize,
    ) -> Slot {
        let value_bytes = value[0].len() + value[1].len();
        let shape = Shape::choose(key.len(), value_bytes, expire_at_ms, spare);
        let class = SizeClass::holding(shape.key_at() + key.len() + value_bytes + spare);
        let address = obtain(class);
        assert!(
            address.addr() & !ADDRESS_MASK == 0,
            "an address above 48 bits"
        );
        let mut slot = Slot(address);
        slot.clear_words();
        let header = EntryHeader {
            class,
            shape,
            stored_hash,
            key_bytes: key.len(),
            value_bytes,
        };
        slot.write(&header, key, value, expire_at_ms);
        slot
    }

    /// Writes a whole entry; the allocation must be of `header.class`.
    fn write(&mut self, header: &EntryHeader, key: &[u8], value: [&[u8]; 2], expire_at_ms: u64) {
        self.set_header(header);
        if header.shape.has_expiry() {
            self.write_expiry(header.shape, expire_at_ms);
        }
        let key_at = header.shape.key_at();
        let value_at = key_at + key.len();
        self.put_bytes(key_at, key);
        self.put_bytes(value_at, value[0]);
        self.put_bytes(value_at + value[0].len(), value[1]);
    }

    /// Replaces value and expiry by others of the same shape and length; leaves the rest alone, which is
    /// about to be read again: a load of bytes that several stores have just written waits for them.
    fn write_value(&mut self, header: &EntryHeader, value: &[u8], expire_at_ms: u64) {
        if header.shape.has_expiry() {
            self.write_expiry(header.shape, expire_at_ms);
        }
        self.put_bytes(header.shape.key_at() + header.key_bytes, value);
    }

    fn write_expiry(&mut self, shape: Shape, expire_at_ms: u64) {
        self.put_bytes(shape.expiry_at(), &expire_at_ms.to_ne_bytes());
    }

    fn expire_at_ms(&self, header: &EntryHeader) -> u64 {
        if !header.shape.has_expiry() {
            return 0;
        }
        let bytes = self.bytes(header.shape.expiry_at(), EXPIRY_BYTES);
        bytes.try_into().map_or(0, u64::from_ne_bytes)
    }

    fn header(&self) -> EntryHeader {
        let [first, lengths] = self.words();
        let lengths = u64::from_le(lengths);
        let shape = Shape((first >> 8) & 0xff);
        EntryHeader {
            class: SizeClass::from_code(first as u8),
            shape,
            stored_hash: first >> 16,
            key_bytes: low_bits(lengths, shape.key_bits()),
            value_bytes: low_bits(lengths >> shape.key_bits(), shape.value_bits()),
        }
    }

    fn address(&self) -> *mut u8 {
        self.0.map_addr(|address| address & ADDRESS_MASK)
    }

    fn words(&self) -> [u64; 2] {
        assert!(!self.is_empty());
        // SAFETY: not empty, so the address is of a live allocation of at least 16 bytes, the
        // first 16 of which `allocate` has initialised.
        unsafe { self.address().cast::<[u64; 2]>().read_unaligned() }
    }

    fn clear_words(&mut self) {
        // SAFETY: `allocate` has just obtained at least 16 bytes.
        unsafe { self.address().cast::<[u64; 2]>().write_unaligned([0; 2]) }
    }

    /// Rewrites class, flags, hash and lengths, and nothing behind them.
    fn set_header(&mut self, header: &EntryHeader) {
        // SAFETY: the address is of a live allocation of at least 16 bytes, and `&mut self` makes
        // the access exclusive.
        unsafe {
            self.address()
                .cast::<u64>()
                .write_unaligned(header.first_word())
        }
        let lengths = header.lengths_word().to_le_bytes();
        self.put_bytes(
            LENGTHS_AT,
            &lengths[..header.shape.expiry_at() - LENGTHS_AT],
        );
    }

    /// Bytes `at..at + len`, which must lie in the written part of the entry.
    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: callers take `at` and `len` from the header, which describes bytes that `write`
        // has initialised; the borrow of the slot keeps the allocation alive and unchanged.
        unsafe { std::slice::from_raw_parts(self.address().add(at), len) }
    }

    fn put_bytes(&mut self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= SizeClass::from_code(self.words()[0] as u8).bytes());
        // SAFETY: `write` and `append` only come here with ends within the allocation's class;
        // `bytes` is borrowed from outside this slot, which is borrowed exclusively.
        unsafe {
            let mut to = self.address().add(at);
            for piece in bytes.chunks(copy::PIECE_BYTES) {
                to.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                to = to.add(piece.len());
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.is_empty() {
            let class = self.header().class;
            // SAFETY: `allocate` obtained this address for the class it wrote into the entry;
            // nothing changes that class, and this slot is the only owner.
            unsafe { release(self.address(), class) }
        }
    }
}

/// Memory of `class.bytes()`.
fn obtain(class: SizeClass) -> *mut u8 {
    let layout = layout(class);
    let address = match class.slab() {
        Some(class) => slab::allocate(class).map_or(ptr::null_mut(), NonNull::as_ptr),
        // SAFETY: the layout's size is a class's, never 0.
        None => unsafe { alloc::alloc(layout) },
    };
    if address.is_null() {
        alloc::handle_alloc_error(layout);
    }
    address
}

/// Gives memory back to where it is from.
///
/// # Safety
/// `address` is of [`obtain`] with this class, and nobody uses it any more.
unsafe fn release(address: *mut u8, class: SizeClass) {
    match (class.slab(), NonNull::new(address)) {
        // SAFETY: as promised by the caller.
        (Some(class), Some(object)) => unsafe { slab::free(object, class) },
        // SAFETY: as promised by the caller; it was obtained with this layout.
        _ => unsafe { alloc::dealloc(address, layout(class)) },
    }
}

fn layout(class: SizeClass) -> Layout {
    // SAFETY: 1 is a power of two and no class comes near `isize::MAX`.
    unsafe { Layout::from_size_align_unchecked(class.bytes(), ENTRY_ALIGN) }
}

/// Memory that the allocator fills with small entries before it goes on: mimalloc's slice.
const REGION_BYTES: usize = 64 << 10;

/// An aligned stretch of memory of [`REGION_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Region(usize);

impl Region {
    /// Makes the kernel back all of the region now, in one call instead of a fault per page; without
    /// effect where it refuses.
    pub(super) fn populate(self) {
        if cfg!(miri) {
            return;
        }
        let start = ptr::without_provenance_mut(self.0 * REGION_BYTES);
        // SAFETY: backs pages as a write to them would, and changes no byte that can be read.
        unsafe {
            libc::madvise(start, REGION_BYTES, libc::MADV_POPULATE_WRITE);
        }
    }
}
