//! Messages of a stream that go from shard to shard of one node, not encoded.

use ephesus_wire::MigrationId;
use ephesus_wire::frame::FRAME_HEADER_BYTES;
use ephesus_wire::stream::{Contents, Final, Message, data_header};

use crate::migration::Records;

/// One end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Target,
}

impl End {
    /// The end that it talks to.
    #[must_use]
    pub fn other(self) -> End {
        match self {
            End::Source => End::Target,
            End::Target => End::Source,
        }
    }
}

/// A [`Message`] that owns what it carries; OPEN is never one, as the node says it.
#[derive(Debug, PartialEq, Eq)]
pub enum Mail {
    Accepted,
    Refused(String),
    Keys(u64),
    Data(Records),
    Final(Final),
    Window { seq: u64, credit: u64 },
    Prepared(Contents),
    End(String),
}

impl Mail {
    /// The same message, borrowed.
    #[must_use]
    pub fn as_message(&self) -> Message<'_> {
        match self {
            Mail::Accepted => Message::Accepted,
            Mail::Refused(reason) => Message::Refused(reason),
            Mail::Keys(count) => Message::Keys(*count),
            Mail::Data(records) => Message::Data(&records.bytes),
            Mail::Final(last) => Message::Final(*last),
            Mail::Window { seq, credit } => Message::Window {
                seq: *seq,
                credit: *credit,
            },
            Mail::Prepared(contents) => Message::Prepared(*contents),
            Mail::End(reason) => Message::End(reason),
        }
    }

    /// The message as a frame, in one or two parts; records stay where they are.
    #[must_use]
    pub fn into_frame(self, migration: MigrationId, sequence: u64) -> FrameParts {
        match self {
            Mail::Data(Records { bytes, .. }) => FrameParts {
                header: data_header(migration, sequence, &bytes),
                rest: bytes,
            },
            other => {
                let mut bytes = Vec::new();
                other.as_message().encode(migration, sequence, &mut bytes);
                let (header, rest) = header_of(&bytes);
                FrameParts {
                    header: *header,
                    rest: rest.to_vec(),
                }
            }
        }
    }
}

/// A frame that we have encoded, taken apart.
#[expect(clippy::expect_used, reason = "a frame begins with its header")]
fn header_of(frame: &[u8]) -> (&[u8; FRAME_HEADER_BYTES], &[u8]) {
    frame.split_first_chunk().expect("a header")
}

/// A frame to be sent from two places.
#[derive(Debug)]
pub struct FrameParts {
    pub header: [u8; FRAME_HEADER_BYTES],
    pub rest: Vec<u8>,
}

impl FrameParts {
    /// Bytes of both.
    #[must_use]
    pub fn bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.rest.len()
    }
}
