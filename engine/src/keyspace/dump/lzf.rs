//! LZF, in which Redis packs longer strings of a dump.
//!
//! ```text
//! 000nnnnn                        n + 1 bytes follow as they are
//! nnnooooo oooooooo               n + 2 bytes (n from 1 to 6) from o + 1 bytes before
//! 111ooooo nnnnnnnn oooooooo      n + 9 bytes from o + 1 bytes before
//! ```

/// Unpacks a string of exactly `len` bytes; `None` if it is anything else.
pub(super) fn unpack(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    // A packed byte stands for at most 88 others, so that the length cannot be made up.
    let mut out = Vec::with_capacity(len.min(packed.len().saturating_mul(88)));
    let mut rest = packed;
    while let Some((&control, behind)) = rest.split_first() {
        rest = behind;
        if control < 0x20 {
            let (literal, behind) = rest.split_at_checked(usize::from(control) + 1)?;
            out.extend_from_slice(literal);
            rest = behind;
        } else {
            let mut count = usize::from(control >> 5) + 2;
            if count == 9 {
                let (&more, behind) = rest.split_first()?;
                count += usize::from(more);
                rest = behind;
            }
            let (&low, behind) = rest.split_first()?;
            rest = behind;
            let back = usize::from(control & 0x1F) << 8 | usize::from(low);
            let mut from = out.len().checked_sub(back + 1)?;
            if out.len() + count > len {
                return None;
            }
            // What is copied may reach into itself.
            while count > 0 {
                let part = out.get(from..)?;
                let taken = part.len().min(count);
                out.extend_from_within(from..from + taken);
                from += taken;
                count -= taken;
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn copies_reach_back_and_into_themselves() {
        assert_eq!(unpack(b"\x01ab\x20\x01", 5), Some(b"ababa".to_vec()));
        assert_eq!(unpack(b"\x00a\xE0\x02\x00", 12), Some(vec![b'a'; 12]));
        assert_eq!(unpack(b"", 0), Some(Vec::new()));
    }

    #[test]
    fn what_does_not_come_to_its_length_is_refused() {
        for (packed, len) in [
            (&b"\x01ab\x20\x01"[..], 4),
            (b"\x01ab\x20\x01", 6),
            (b"\x01ab\x20\x02", 5),
            (b"\x05ab", 6),
            (b"\x20", 3),
            (b"\xE0\x01", 10),
            (b"\x20\x00", 3),
            (b"", 1),
        ] {
            assert_eq!(unpack(packed, len), None, "{packed:?} as {len}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_unpacked_or_refused(
            packed in proptest::collection::vec(any::<u8>(), 0..200), len in 0..5000usize,
        ) {
            if let Some(unpacked) = unpack(&packed, len) {
                prop_assert_eq!(unpacked.len(), len);
            }
        }
    }
}
