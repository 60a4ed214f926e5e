//! Bytes that have come in, and the frames in them.

use ephesus_wire::WireError;
use ephesus_wire::frame::{self, Frame};
use ephesus_wire::seal::Opener;

/// An empty buffer larger than this gives its memory back.
const KEEP_BYTES: usize = 16 << 10;

/// What is wrong with a record that cannot be opened.
const FORGED: &str = "what came is not what the other end has sealed";

/// Bytes that have come in and are not taken yet; grows with what has come, not with what was
/// announced.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    bytes: Vec<u8>,
    start: usize,
    sealed: Option<Sealed>,
}

/// What has come and is not opened.
#[derive(Debug)]
struct Sealed {
    opener: Opener,
    /// A record that has not come as a whole.
    bytes: Vec<u8>,
    /// What came is no record: nothing behind it means anything.
    is_broken: bool,
}

impl Inbound {
    /// What comes from now on, and what has not been taken, is sealed.
    pub(super) fn seal(&mut self, opener: Opener) {
        let rest = self.bytes.split_off(self.start);
        self.consume(0);
        self.sealed = Some(Sealed {
            opener,
            bytes: Vec::new(),
            is_broken: false,
        });
        self.push(&rest);
    }

    /// What opens that which comes, for somebody else; nothing is left here.
    pub(super) fn take_opener(&mut self) -> Option<Opener> {
        Some(self.sealed.take()?.opener)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let Some(mut sealed) = self.sealed.take() else {
            return self.push_plain(bytes);
        };
        sealed.bytes.extend_from_slice(bytes);
        let mut at = 0;
        while !sealed.is_broken {
            let rest = sealed.bytes.get_mut(at..).unwrap_or_default();
            match sealed.opener.open(rest) {
                Ok(Some((plain, len))) => {
                    self.push_plain(rest.get(plain).unwrap_or_default());
                    at += len;
                }
                Ok(None) => break,
                Err(_) => sealed.is_broken = true,
            }
        }
        if at == sealed.bytes.len() && sealed.bytes.capacity() > KEEP_BYTES {
            sealed.bytes = Vec::new();
        } else {
            sealed.bytes.drain(..at);
        }
        self.sealed = Some(sealed);
    }

    fn push_plain(&mut self, bytes: &[u8]) {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The first frame and its length, if it is complete.
    pub(super) fn first(
        &self,
        payload_bytes_max: usize,
    ) -> Result<Option<(Frame<'_>, usize)>, WireError> {
        let bytes = self.bytes.get(self.start..).unwrap_or_default();
        match frame::decode_limited(bytes, payload_bytes_max) {
            Ok(None) if self.sealed.as_ref().is_some_and(|sealed| sealed.is_broken) => {
                Err(WireError::Malformed(FORGED))
            }
            first => first,
        }
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        if self.start == self.bytes.len() {
            self.start = 0;
            if self.bytes.capacity() > KEEP_BYTES {
                self.bytes = Vec::new();
            } else {
                self.bytes.clear();
            }
        }
    }

    /// Memory of it.
    pub(super) fn held_bytes(&self) -> usize {
        let sealed = self.sealed.as_ref();
        self.bytes.capacity() + sealed.map_or(0, |sealed| sealed.bytes.capacity())
    }

    pub(super) fn is_empty(&self) -> bool {
        let sealed = self.sealed.as_ref();
        self.start == self.bytes.len() && sealed.is_none_or(|sealed| sealed.bytes.is_empty())
    }
}
