//! Messages of PUBLISH between nodes, each of which is a [frame](crate::frame).
//!
//! ```text
//! kind          payload, little-endian
//! 11 BEGIN      -                                   the link carries messages, this way alone
//! 12 MESSAGE    length of the channel u32 | channel | message
//! ```
//!
//! They are the first frames of their link, where [`stream`](crate::stream) has OPEN, whose kinds are others.

use crate::limits::FRAME_PAYLOAD_BYTES_MAX;

/// The kind of a link's first frame.
pub const BEGIN: u16 = 11;

/// The kind of all that follow.
pub const MESSAGE: u16 = 12;

/// What was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published<'a> {
    pub channel: &'a [u8],
    pub message: &'a [u8],
}

impl<'a> Published<'a> {
    /// The frame's payload; `None` if it is too long for one.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let channel_len = u32::try_from(self.channel.len()).ok()?;
        let len = 4 + self.channel.len() + self.message.len();
        (len <= FRAME_PAYLOAD_BYTES_MAX)
            .then(|| [&channel_len.to_le_bytes(), self.channel, self.message].concat())
    }

    /// What a payload says; `None` if it says nothing.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Published<'a>> {
        let (len, rest) = payload.split_first_chunk()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (channel, message) = rest.split_at_checked(len)?;
        Some(Published { channel, message })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_layout_is_part_of_the_protocol() {
        let published = Published {
            channel: b"ab",
            message: b"xyz",
        };
        assert_eq!(published.encode().expect("short"), b"\x02\0\0\0abxyz");
        for bad in [&b""[..], b"\0\0\0", b"\x03\0\0\0ab", b"\xff\xff\xff\xffab"] {
            assert_eq!(Published::decode(bad), None);
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(channel: Vec<u8>, message: Vec<u8>) {
            let published = Published { channel: &channel, message: &message };
            let encoded = published.encode().expect("short");
            prop_assert_eq!(Published::decode(&encoded), Some(published));
        }

        #[test]
        fn anything_is_decoded_or_refused(bytes: Vec<u8>) {
            if let Some(published) = Published::decode(&bytes) {
                prop_assert_eq!(published.encode(), Some(bytes));
            }
        }
    }
}
