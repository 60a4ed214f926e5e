//! Copying around the caches, into memory that only the device reads.
//!
//! A store to a line that is in no cache waits for the line first, and log buffers are in none: the device has read
//! them since. With values of 1 and 16 KiB that came in, copies into groups took 70 to 435 ns per KiB, by what else used
//! the memory, and around the caches 31 to 94, in turn within the same runs (AMD EPYC, virtual machine).

/// Shorter copies are not worth the fence behind them.
pub(crate) const STREAMED_BYTES_MIN: usize = 2 << 10;

/// As [`<[u8]>::copy_from_slice`](slice::copy_from_slice); `to` is in no cache afterwards.
///
/// # Panics
/// When the two are not of the same length.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LINE_BYTES: usize = 64;
    const PART_BYTES: usize = size_of::<__m128i>();

    assert_eq!(to.len(), from.len(), "a copy is as long as what it is of");
    let head = to.as_ptr().align_offset(LINE_BYTES).min(to.len());
    let (to_head, to) = to.split_at_mut(head);
    let (from_head, from) = from.split_at(head);
    to_head.copy_from_slice(from_head);
    let mut to = to.chunks_exact_mut(LINE_BYTES);
    let mut from = from.chunks_exact(LINE_BYTES);
    for (to, from) in to.by_ref().zip(from.by_ref()) {
        for (to, from) in to
            .chunks_exact_mut(PART_BYTES)
            .zip(from.chunks_exact(PART_BYTES))
        {
            // SAFETY: both are of 16 bytes, and `to` is at a multiple of 16. SSE2 is part of x86-64.
            unsafe {
                _mm_stream_si128(
                    to.as_mut_ptr().cast(),
                    _mm_loadu_si128(from.as_ptr().cast()),
                )
            };
        }
    }
    to.into_remainder().copy_from_slice(from.remainder());
    // SAFETY: part of x86-64. Behind it the stores are in order with what tells the device of them.
    unsafe { _mm_sfence() };
}

/// As [`<[u8]>::copy_from_slice`](slice::copy_from_slice).
///
/// # Panics
/// When the two are not of the same length.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    ephesus_wire::copy::copy(to, from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_whole_wherever_they_begin() {
        let from: Vec<u8> = (0..20_000_usize).map(|n| (n % 251) as u8).collect();
        let lens = [0, 1, 15, 16, 63, 64, 65, 4_136, 16_421];
        for (len, start) in lens.into_iter().zip([0, 1, 3, 0, 15, 16, 7, 63, 64]) {
            for first in [0, 1, 16, 63, 64, 100] {
                let from = &from[start..start + len];
                let mut to = vec![0xee; len + 200];
                copy(&mut to[first..first + len], from);
                assert_eq!(&to[first..first + len], from, "{len} at {first}");
                assert!(to[..first].iter().all(|b| *b == 0xee));
                assert!(to[first + len..].iter().all(|b| *b == 0xee));
            }
        }
    }

    #[test]
    #[should_panic(expected = "as long as")]
    fn a_copy_of_another_length_panics() {
        copy(&mut [0; 3_000], &[0; 2_999]);
    }
}
