//! Links: what coordinators, nodes and operators speak to each other over.
//!
//! ```text
//! Dialer::dial  --\                                     Sender::send -> queue -> socket
//!                  >-- Handshake (ephesus-wire) --> Link
//! Listener::accept /                                    Link::recv <- frames <- socket
//! ```
//!
//! A link is TCP cut into frames, opened by [`ephesus_wire::handshake`]; with a secret, what follows the handshake is
//! [sealed](ephesus_wire::seal). It belongs to the glommio
//! executor it was opened on. One task per link writes what is queued and watches for silence; what
//! reads is whoever awaits [`Link::recv`], a future that may be dropped at any time.
//!
//! 1. A link that has ended stays so, for one reason, which is counted.
//! 2. What was queued before a link was dropped is written, unless the peer does not take it within
//!    [`LINGER`].
//! 3. Nothing a stranger does to a listener, silence and garbage included, keeps others from it.

pub mod backoff;
pub mod blocking;
mod connection;
pub mod counters;
pub mod dialer;
pub mod error;
mod inbound;
pub mod keep_alive;
pub mod listener;
mod opening;
mod outbound;
mod peer_stream;
pub mod secret_file;
mod socket;

use std::time::Duration;

pub use backoff::Backoff;
pub use connection::{Link, Sender};
pub use counters::{Counters, Reason};
pub use dialer::{Dialer, reach};
pub use error::LinkError;
pub use listener::{Faults, ListenOptions, Listener};
pub use outbound::SharedFrame;
pub use peer_stream::PeerStream;
pub use secret_file::load_secret;

/// How long a link that was dropped keeps trying to hand over what is queued.
pub const LINGER: Duration = Duration::from_secs(3);

/// What came in over a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What the payload is; below [`ephesus_wire::handshake::HANDSHAKE_KIND_MIN`].
    pub kind: u16,
    /// The request it belongs to, if the two ends number them.
    pub stream: u64,
    /// Up to 16 MiB.
    pub payload: Vec<u8>,
}

/// Bounds of one link.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// Finding the address and connecting.
    pub dial_timeout: Duration,
    /// From the connection to the open link.
    pub handshake_timeout: Duration,
    /// Longest silence of the peer; it is noticed up to a quarter later. Have both ends send
    /// something more often.
    pub idle_timeout: Duration,
    /// Most bytes that wait to be written; a link whose peer reads too slowly for that is closed.
    pub queue_bytes_max: usize,
    /// Most bytes that all links of the thread hold, of what has come and what waits; beyond it the one that holds
    /// most is closed.
    pub all_bytes_max: usize,
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions {
            dial_timeout: Duration::from_secs(2),
            handshake_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(10),
            queue_bytes_max: 64 << 20,
            all_bytes_max: 256 << 20,
        }
    }
}

#[cfg(test)]
mod tests;
