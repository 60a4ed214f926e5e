//! The shard's I/O ring: sockets and log writes of one executor, without a syscall each.

pub mod buffers;
pub mod listen;
pub mod ring;
mod sent;
pub mod waker;

pub use listen::{bind, probe};
pub use ring::{Completion, ConnToken, ListenerKind, Port, Received, Ring, StreamId, StreamIo};
pub use sent::acknowledged_bytes;
pub use waker::Waker;
