//! From the high bits of a hash to a segment.

use crate::prefetch;

/// Deepest directory: 16M prefixes. With a tag's 16 bits this bounds what a cursor needs.
pub(super) const MAX_DEPTH: u8 = 24;

/// Prefixes a directory may have per segment; skewed hashes grow a segment instead.
const MAX_PREFIXES_PER_SEGMENT: usize = 16;

/// Deepest directory that lies within the table itself: a look-up has one line less to wait for.
const INLINE_DEPTH: u8 = 4;

/// Maps every prefix of `depth` bits to the number of its segment; several may share one.
///
/// Doubling copies 4 bytes per prefix: 64 KiB, about 10 us, when a table reaches 10M keys.
#[derive(Default)]
pub(super) struct Directory {
    depth: u8,
    /// Up to [`INLINE_DEPTH`], where there are no more segments than prefixes.
    inline: [u8; 1 << INLINE_DEPTH],
    /// Beyond it.
    segments: Vec<u32>,
}

impl Directory {
    pub(super) const fn new() -> Directory {
        Directory {
            depth: 0,
            inline: [0; 1 << INLINE_DEPTH],
            segments: Vec::new(),
        }
    }

    /// The depth at which there are at least `segments` segments, or the deepest.
    pub(super) fn depth_for(segments: usize) -> u8 {
        let depth = segments.next_power_of_two().ilog2() as u8;
        depth.min(MAX_DEPTH)
    }

    /// A directory in which every prefix of `depth` bits has a segment of its own, in order.
    pub(super) fn of_depth(depth: u8) -> Directory {
        let mut directory = Directory::new();
        directory.depth = depth;
        if depth <= INLINE_DEPTH {
            for (number, segment) in (0..1 << depth).zip(&mut directory.inline) {
                *segment = number;
            }
        } else {
            directory.segments = (0..1 << depth).collect();
        }
        directory
    }

    /// The number of the segment for `hash`.
    pub(super) fn locate(&self, hash: u64) -> usize {
        let prefix = self.prefix(hash);
        if self.is_inline() {
            usize::from(self.inline[prefix % self.inline.len()])
        } else {
            self.segments[prefix] as usize
        }
    }

    fn is_inline(&self) -> bool {
        self.depth <= INLINE_DEPTH
    }

    /// The first `depth` bits of `hash`.
    fn prefix(&self, hash: u64) -> usize {
        hash.checked_shr(u64::BITS - u32::from(self.depth))
            .unwrap_or(0) as usize
    }

    /// Asks the CPU to load what [`Directory::locate`] reads.
    pub(super) fn prefetch(&self, hash: u64) {
        if !self.is_inline() {
            prefetch::line(self.segments.as_ptr().wrapping_add(self.prefix(hash)));
        }
    }

    /// Whether a segment at `depth` can be split, given how many segments there are.
    pub(super) fn can_split(&self, depth: u8, segments: usize) -> bool {
        let doubled = 2 << self.depth;
        depth < self.depth
            || (self.depth < MAX_DEPTH && doubled <= (segments + 1) * MAX_PREFIXES_PER_SEGMENT)
    }

    /// Records that the segment of `hash` at `depth` was split and its upper half is `upper`.
    pub(super) fn split(&mut self, hash: u64, depth: u8, upper: usize) {
        if depth == self.depth {
            self.double();
        }
        let below = self.depth - depth - 1;
        let prefix = self.prefix(hash) >> below | 1;
        let first = prefix << below;
        let prefixes = first..first + (1 << below);
        if self.is_inline() {
            self.inline[prefixes].fill(upper as u8);
        } else {
            self.segments[prefixes].fill(upper as u32);
        }
    }

    fn double(&mut self) {
        let prefixes = 1 << self.depth;
        let was_inline = self.is_inline();
        self.depth += 1;
        if self.is_inline() {
            for prefix in (0..prefixes).rev() {
                let segment = self.inline[prefix];
                self.inline[2 * prefix..2 * prefix + 2].fill(segment);
            }
        } else {
            let mut doubled = Vec::with_capacity(2 * prefixes);
            if was_inline {
                let inline = self.inline.map(u32::from);
                doubled.extend(inline.iter().flat_map(|&segment| [segment, segment]));
            } else {
                doubled.extend(self.segments.iter().flat_map(|&segment| [segment, segment]));
            }
            self.segments = doubled;
        }
    }

    /// Bytes of its allocation as requested.
    pub(super) fn bytes(&self) -> usize {
        self.segments.capacity() * size_of::<u32>()
    }
}
