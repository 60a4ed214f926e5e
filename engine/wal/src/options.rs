//! What a log is opened with.

use std::fmt;

use crate::aligned::BLOCK_BYTES;
use crate::planted::Bug;

/// LSNs skipped when an incarnation follows one that ran [`Durability::Relaxed`].
pub const RELAXED_LSN_GAP: u64 = 1 << 32;

/// Default for [`LogOptions::group_bytes_max`]. A synced write costs a virtual machine two exits whatever
/// its size: with a quarter of this a partition that comes in costs a fifth more CPU.
pub const GROUP_BYTES_MAX: usize = 1 << 20;

/// Default for [`LogOptions::segment_bytes`].
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Default for [`LogOptions::in_flight_max`]. Devices that flush complete the writes under way together: with half
/// as many, groups of the largest size wait for those before them while a partition comes in.
pub const IN_FLIGHT_MAX: usize = 8;

/// Default for [`LogOptions::mapped_groups`].
pub const MAPPED_GROUPS: usize = 8;

/// Default for [`LogOptions::mapped_group_bytes`]: large enough that a write's fixed cost does not count.
pub const MAPPED_GROUP_BYTES: usize = 256 << 10;

/// Identity of one log (a UUID), in every group: a file of another log is refused.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId(pub [u8; 16]);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogId({self})")
    }
}

/// What "committed" promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On the device: segments are written with `O_DSYNC`.
    #[default]
    Strict,
    /// The operating system has it, so it survives the process; the owner syncs at least once a second.
    Relaxed,
}

/// What recovery does with damage (a torn tail is not damage: it is always cut).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// Refuses the log, naming file and offset.
    #[default]
    Refuse,
    /// Goes on with the next good group; the lost LSNs are listed in the result.
    Skip,
    /// Ends the log in front of the damage; everything behind it is discarded.
    Cut,
}

/// Options of one log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Identity; for an existing log see [`crate::peek_log_id`].
    pub log_id: LogId,
    /// What "committed" means.
    pub durability: Durability,
    /// Size of new segments, a multiple of 4 KiB; bounds the largest record.
    pub segment_bytes: u64,
    /// What the segment that an incarnation begins with has at least: it may be smaller than the others when the disk
    /// has no room for more. By default it is not.
    pub opening_bytes_min: u64,
    /// The next incarnation begins with such a segment in any case: others need the room.
    pub opens_small: bool,
    /// A group with more than one record has at most this many bytes, header included.
    pub group_bytes_max: usize,
    /// Writes issued and not yet completed at any time.
    pub in_flight_max: usize,
    /// While writes are in flight, the open group is issued only once it has this many bytes;
    /// smaller values cut latency under load and cost CPU and 4 KiB padding per group. With
    /// nothing in flight a group is issued at once, whatever its size.
    pub in_flight_group_bytes: usize,
    /// With relaxed durability, groups that the kernel keeps when the process dies, see
    /// [`crate::LogWriter::publish`]; 0 for none. Fewer, if one segment would not take all of them.
    pub mapped_groups: usize,
    /// Size of each of these, header included, a multiple of 4 KiB.
    pub mapped_group_bytes: usize,
    /// Prepared segments to keep ahead of the current one.
    pub spare_segments: usize,
    /// What to do with damage.
    pub on_damage: OnDamage,
    /// The log was begun in its directory ([`crate::files::begin`]): an empty one has lost it.
    pub is_begun: bool,
    #[cfg(test)]
    pub(crate) bug: Option<Bug>,
}

impl LogOptions {
    /// The defaults for the log `log_id`.
    #[must_use]
    pub fn new(log_id: LogId) -> LogOptions {
        LogOptions {
            log_id,
            durability: Durability::Strict,
            segment_bytes: SEGMENT_BYTES,
            opening_bytes_min: u64::MAX,
            opens_small: false,
            group_bytes_max: GROUP_BYTES_MAX,
            in_flight_max: IN_FLIGHT_MAX,
            in_flight_group_bytes: GROUP_BYTES_MAX,
            mapped_groups: MAPPED_GROUPS,
            mapped_group_bytes: MAPPED_GROUP_BYTES,
            spare_segments: 2,
            on_damage: OnDamage::Refuse,
            is_begun: false,
            #[cfg(test)]
            bug: None,
        }
    }

    /// Checks the sizes against each other.
    ///
    /// # Panics
    /// If a size is not a multiple of 4 KiB, zero, or a group does not fit a segment.
    pub fn assert_valid(&self) {
        let block = BLOCK_BYTES as u64;
        assert!(
            self.segment_bytes.is_multiple_of(block),
            "segments are whole blocks"
        );
        assert!(
            self.group_bytes_max.is_multiple_of(BLOCK_BYTES),
            "groups are whole blocks"
        );
        assert!(self.group_bytes_max > 0 && self.in_flight_max > 0);
        assert!(
            self.mapped_group_bytes.is_multiple_of(BLOCK_BYTES),
            "groups are whole blocks"
        );
        assert!(
            self.group_bytes_max as u64 <= self.segment_bytes,
            "a group fits a segment"
        );
        assert!(
            self.segment_bytes <= u64::from(u32::MAX),
            "a group's length fits 32 bits"
        );
    }

    /// Slots of the mapped file: the next opening logs all that they hold as one group.
    pub(crate) fn mapped_slots(&self) -> usize {
        let room = self.segment_bytes / self.mapped_group_bytes as u64;
        self.mapped_groups.min(room as usize)
    }

    #[cfg(test)]
    pub(crate) fn planted(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(test))]
    pub(crate) const fn planted(&self, _bug: Bug) -> bool {
        false
    }
}
