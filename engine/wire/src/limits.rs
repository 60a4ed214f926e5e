//! Every bound of the protocols and formats, named once.

/// Slots of the Redis Cluster protocol.
pub const SLOTS: u16 = 16_384;

/// Longest key.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Longest key as it is stored: with its database in front.
pub const STORED_KEY_BYTES_MAX: usize = KEY_BYTES_MAX + crate::database::PREFIX_BYTES;

/// Longest value.
pub const VALUE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest request a client may send, and so the most one connection can make a shard buffer.
pub const QUERY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Longest name of a connection, of its client library, and of that library's version.
pub const CLIENT_NAME_BYTES_MAX: usize = 1024;

/// Longest glob pattern.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// Most input of one connection that was not executed yet.
pub const INPUT_BYTES_MAX: usize = 2 * QUERY_BYTES_MAX;

/// Longest reply of one command; half of the memory for clients, if that is less.
pub const ONE_REPLY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Least memory for the clients of a node: a request and a reply of the largest value fit it.
pub const CLIENT_MEMORY_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Longest inline (plain text line) request.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Most arguments of one request.
pub const ARGS_MAX: usize = 1024 * 1024;

/// Most arguments of a request sent before AUTH.
pub const PREAUTH_ARGS_MAX: usize = 10;

/// Longest request, and longest argument, sent before AUTH.
pub const PREAUTH_QUERY_BYTES_MAX: usize = 16 * 1024;

/// Client connections of one shard.
pub const CLIENTS_PER_SHARD: usize = 10_000;

/// Deepest nesting of a RESP reply the decoder follows.
pub const RESP_DEPTH_MAX: usize = 32;

/// Longest block of an image or of a migration stream, header included.
pub const BLOCK_BYTES: usize = 4096;

/// Room that a buffer keeps after something larger has passed through it.
pub const BUFFER_KEPT_BYTES: usize = 256 * 1024;

/// Longest log record: a request of [`QUERY_BYTES_MAX`] made of [`ARGS_MAX`] arguments, each of
/// which became a record of its own, fits with room to spare.
pub const RECORD_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Longest payload of a frame between peers.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Records after which a message of a migration's stream is full, bytes; a longer record makes a longer
/// message.
pub const STREAM_DATA_BYTES: usize = 64 * 1024;

/// Migrations whose streams share a connection.
pub const STREAM_OPENS_MAX: u64 = 64;

/// Longest reason that a migration's stream gives.
pub const STREAM_REASON_BYTES_MAX: usize = 512;
