//! A segmented, checksummed, group-committed log; its payloads are opaque bytes.
//!
//! Read in this order: [`group`] is what lies on disk, [`writer`] decides what to write next
//! (without any I/O), [`recover`](recover()) reads it back, [`open_writer`] starts a new incarnation,
//! [`mapped`] is where relaxed groups lie until then, [`segment`] names and makes the files, [`files`] lists and
//! recycles them, [`disk`] performs the I/O, [`driver`] couples all of
//! them for users with a low rate. [`double_buffered`] is apart: a small value beside the logs that is replaced often.
//!
//! # Invariants
//!
//! 1. A group is written once, at a place where no live group is, and never rewritten.
//! 2. A segment file has its name durably in the directory before its first group is written, and
//!    a segment number is used by one file only, for ever. A group whose segment number differs
//!    from its file's is left over from before the file was recycled: it is never read.
//! 3. An incarnation is the number of the segment it opened with, so it is unique and grows. Its
//!    first group, the opening, is durable before any other is issued. Every group repeats what the
//!    opening says: where the log ended before (`prev_end`) and the incarnation's first LSN.
//! 4. A group of incarnation `i` is void if a later incarnation's `prev_end` is below its first
//!    LSN, whatever its checksum says: what one recovery has discarded, no later one brings back.
//! 5. What a recovery accepts is synced before it is read, so a second crash cannot take it away
//!    after it was served.
//! 6. LSNs are dense within an incarnation. The next one starts above every LSN seen on disk, void
//!    groups included, above the caller's floor, and, after a relaxed incarnation (which may have
//!    shown records that a power loss removed without trace), [`RELAXED_LSN_GAP`] further on.
//! 7. The oldest live segment begins with a durable group: a segment is given back only when the
//!    durable prefix has reached a later one.
//! 8. Every segment that the log needs is in a list beside them: one that is gone is missed ([`files`] has more).
//! 9. What a relaxed log has committed and not written is in the mapped file ([`mapped`] has its own list), and
//!    then in the opening of the next incarnation.
//!
//! What files hold ends in an error, never in a panic: what could panic is denied, and an exception names the invariant
//! that it rests on.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

pub mod aligned;
pub mod dir;
pub mod disk;
pub mod double_buffered;
pub mod driver;
pub mod error;
pub mod files;
pub mod group;
pub mod mapped;
pub mod open;
pub mod options;
pub mod recover;
pub mod segment;
pub mod tape;
pub mod verify;
pub mod writer;

mod planted;
mod scan;

#[cfg(test)]
mod crash_tests;

pub use aligned::{AlignedBuf, BLOCK_BYTES};
pub use disk::fault::FaultDisk;
pub use disk::glommio::GlommioDisk;
pub use disk::std::StdDisk;
pub use disk::{Disk, DiskFile};
pub use double_buffered::DoubleBuffered;
pub use driver::Log;
pub use error::{GroupFault, WalError, is_no_room, passes};
pub use files::LogFiles;
pub use open::{Opened, open_writer};
pub use options::{Durability, LogId, LogOptions, OnDamage, RELAXED_LSN_GAP};
pub use recover::{
    Damage, Recovered, Torn, VisitError, Visitor, peek_log_id, recover, recover_with,
};
pub use segment::{SegmentHandle, SegmentId, SegmentInfo, SegmentSummary};
pub use verify::{SegmentReport, VerifyReport, verify, verify_with};
pub use writer::{LogWriter, SyncPoint, WriteOp};
