//! MurmurHash3 x64 128 (Austin Appleby, SMHasher, public domain), the hash of Cassandra's tokens.
//!
//! It is here because plans follow from it: what a key hashes to must be the same in every version.

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// The two halves of the hash.
#[must_use]
pub fn x64_128(key: &[u8], seed: u32) -> [u64; 2] {
    let (mut h1, mut h2) = (u64::from(seed), u64::from(seed));
    let (blocks, tail) = key.as_chunks::<16>();
    let halves = |block: &[u8; 16]| {
        let whole = u128::from_le_bytes(*block);
        (whole as u64, (whole >> 64) as u64)
    };
    let mix1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    for block in blocks {
        let (k1, k2) = halves(block);
        h1 = (h1 ^ mix1(k1)).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix2(k2)).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // Zeros mix to nothing: a tail that is filled up with them is as a shorter one.
    let mut last = [0; 16];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    let (k1, k2) = halves(&last);
    let len = key.len() as u64;
    h1 ^= mix1(k1) ^ len;
    h2 ^= mix2(k2) ^ len;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2) = (mix(h1), mix(h2));
    h1 = h1.wrapping_add(h2);
    [h1, h2.wrapping_add(h1)]
}

/// Its last step: each bit of the input changes half of the output's.
#[must_use]
pub fn mix(mut k: u64) -> u64 {
    k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests;
