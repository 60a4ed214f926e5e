//! What a decoder says about bytes that cannot become valid.

/// Bytes no decoder accepts: close the connection or refuse the file they came from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes belong to another format, or framing is lost: nothing after them can be read.
    #[error("bad magic {found:#010x}")]
    Magic {
        /// The four bytes that stand where the magic should be.
        found: u32,
    },
    /// The bytes changed since they were written: do not use any of them.
    #[error("checksum mismatch: stored {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// Written by a release that is too new or too old to be read.
    #[error("unsupported version {found}")]
    Version {
        /// The version in the header.
        found: u16,
    },
    /// A length is outside its bounds: damage, or a peer that ignores the limits.
    #[error("{what} of {len} bytes (allowed: {min} to {max})")]
    Length {
        /// What has this length.
        what: &'static str,
        /// The length found.
        len: u64,
        /// The least length allowed.
        min: u64,
        /// The greatest length allowed.
        max: u64,
    },
    /// A field has a value this release gives no meaning to: damage or a newer release.
    #[error("unknown {what} {found}")]
    Unknown {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
    },
    /// Well-formed parts in an impossible order or combination.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// Nested deeper than any honest sender nests.
    #[error("nested deeper than {max} levels")]
    Depth {
        /// The deepest level followed.
        max: usize,
    },
}
