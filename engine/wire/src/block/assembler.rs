//! Reads blocks in the order they were built and puts fragmented entries together again.

use super::{
    BLOCK_BODY_BYTES_MAX, BlockHeader, ENTRY_HEADER_BYTES, Entry, KIND_FRAGMENT, KIND_WHOLE, check,
    entries, entry, open,
};
use crate::copy;
use crate::error::WireError;
use crate::limits::{BUFFER_KEPT_BYTES, STORED_KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Is fed blocks in order and hands out their entries.
///
/// After an error it has lost the thread: start over with a new one.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    /// The pieces of an entry that is not complete yet.
    pieces: Vec<u8>,
    /// The length of that entry; 0 when there is none.
    total: usize,
    next_index: u32,
}

impl Assembler {
    /// An assembler that has seen no block.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pieces: Vec::new(),
            total: 0,
            next_index: 0,
        }
    }

    /// Whether no entry is left half assembled, as it must be after the last block.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.total == 0
    }

    /// Checks a block, then gives `each` the entries it completes.
    ///
    /// # Errors
    /// When the block is damaged or does not follow the one before; `each` has then seen none of
    /// its entries.
    pub fn feed(&mut self, block: &[u8], mut each: impl FnMut(Entry<'_>)) -> Result<(), WireError> {
        let (header, body) = open(block)?;
        match header.kind {
            KIND_WHOLE => self.whole(&header, body, each),
            KIND_FRAGMENT => {
                self.fragment(&header, body)?;
                if self.pieces.len() == self.total {
                    let (whole, len) = entry(&self.pieces)?;
                    check("fragmented entry", len, self.total, self.total)?;
                    each(whole);
                    self.pieces.clear();
                    self.pieces.shrink_to(BUFFER_KEPT_BYTES);
                    self.total = 0;
                }
                Ok(())
            }
            other => Err(WireError::Unknown {
                what: "block kind",
                found: other.into(),
            }),
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "an entry was taken from the front of the rest"
    )]
    fn whole(
        &self,
        header: &BlockHeader,
        body: &[u8],
        each: impl FnMut(Entry<'_>),
    ) -> Result<(), WireError> {
        if self.total != 0 {
            return Err(WireError::Malformed(
                "a fragment is missing before a whole block",
            ));
        }
        if header.index != 0 || header.total != 0 {
            return Err(WireError::Malformed(
                "a whole block with fields of a fragment",
            ));
        }
        let mut rest = body;
        for _ in 0..header.count {
            let (_, len) = entry(rest)?;
            rest = &rest[len..];
        }
        if !rest.is_empty() {
            return Err(WireError::Malformed(
                "bytes after the last entry of a block",
            ));
        }
        entries(body).for_each(each);
        Ok(())
    }

    fn fragment(&mut self, header: &BlockHeader, body: &[u8]) -> Result<(), WireError> {
        const MAX: usize = ENTRY_HEADER_BYTES + STORED_KEY_BYTES_MAX + VALUE_BYTES_MAX;
        let total = header.total as usize;
        check("fragmented entry", total, BLOCK_BODY_BYTES_MAX + 1, MAX)?;
        if header.count != 1 {
            return Err(WireError::Malformed("a fragment is of one entry"));
        }
        if self.total == 0 {
            if header.index != 0 {
                return Err(WireError::Malformed(
                    "the first fragment of an entry is missing",
                ));
            }
            self.total = total;
            self.next_index = 0;
        }
        if header.index != self.next_index || total != self.total {
            return Err(WireError::Malformed("a fragment of an entry is missing"));
        }
        let expected = (total - self.pieces.len()).min(BLOCK_BODY_BYTES_MAX);
        check("fragment", body.len(), expected, expected)?;
        copy::append(&mut self.pieces, body);
        self.next_index += 1;
        Ok(())
    }
}
