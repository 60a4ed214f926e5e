//! From the high bits of a hash to a segment.

use crate::prefetch;

/// Deepest directory: 16M prefixes. With a tag's 16 bits this bounds what a cursor needs.
pub(super) const MAX_DEPTH: u8 = 24;

/// Prefixes a directory may have per segment; skewed hashes grow a segment instead.
const MAX_PREFIXES_PER_SEGMENT: usize = 16;

/// Maps every prefix of `depth` bits to the number of its segment; several may share one.
///
/// Doubling copies 4 bytes per prefix: 64 KiB, about 10 us, when a table reaches 10M keys.
#[derive(Default)]
pub(super) struct Directory {
    /// Empty while there is one segment, number 0.
    segments: Vec<u32>,
    depth: u8,
}

impl Directory {
    pub(super) const fn new() -> Directory {
        Directory {
            segments: Vec::new(),
            depth: 0,
        }
    }

    /// The depth at which there are at least `segments` segments, or the deepest.
    pub(super) fn depth_for(segments: usize) -> u8 {
        let depth = segments.next_power_of_two().ilog2() as u8;
        depth.min(MAX_DEPTH)
    }

    /// A directory in which every prefix of `depth` bits has a segment of its own, in order.
    pub(super) fn of_depth(depth: u8) -> Directory {
        let segments = match depth {
            0 => Vec::new(),
            depth => (0..1 << depth).collect(),
        };
        Directory { segments, depth }
    }

    /// The number of the segment for `hash`.
    pub(super) fn locate(&self, hash: u64) -> usize {
        if self.depth == 0 {
            return 0;
        }
        self.segments[self.prefix(hash)] as usize
    }

    /// The first bits of `hash`, of which there are some.
    fn prefix(&self, hash: u64) -> usize {
        (hash >> (u64::BITS - u32::from(self.depth))) as usize
    }

    /// Asks the CPU to load what [`Directory::locate`] reads.
    pub(super) fn prefetch(&self, hash: u64) {
        if self.depth != 0 {
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
        self.segments[first..first + (1 << below)].fill(upper as u32);
    }

    fn double(&mut self) {
        self.depth += 1;
        let mut doubled = Vec::with_capacity(1 << self.depth);
        if self.segments.is_empty() {
            doubled.extend([0, 0]);
        }
        doubled.extend(self.segments.iter().flat_map(|&segment| [segment, segment]));
        self.segments = doubled;
    }

    /// Bytes of its allocation as requested.
    pub(super) fn bytes(&self) -> usize {
        self.segments.capacity() * size_of::<u32>()
    }
}
