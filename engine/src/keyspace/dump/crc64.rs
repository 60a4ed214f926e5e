//! CRC-64 as DUMP has it: Jones's polynomial, reflected, nothing inverted; its check value is `e9c6d914c4b8d9ca`.

const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();

/// Bytes that are taken in at once.
const STRIDE: usize = 8;

/// `TABLES[n][byte]`: what a byte with `n` zero bytes behind it comes to.
static TABLES: [[u64; 256]; STRIDE] = tables();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated when the program is built"
)]
const fn tables() -> [[u64; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < STRIDE {
        byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = before >> 8 ^ tables[0][(before & 0xFF) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// The checksum of all bytes.
#[expect(clippy::indexing_slicing, reason = "a byte has 256 values")]
pub(super) fn crc64(bytes: &[u8]) -> u64 {
    let (strides, rest) = bytes.as_chunks::<STRIDE>();
    let mut crc = 0_u64;
    for stride in strides {
        let mixed = (crc ^ u64::from_le_bytes(*stride)).to_le_bytes();
        crc = 0;
        for (table, byte) in TABLES.iter().rev().zip(mixed) {
            crc ^= table[usize::from(byte)];
        }
    }
    for byte in rest {
        crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_redis() {
        assert_eq!(crc64(b""), 0);
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let text = b"This is a test of the emergency broadcast system.";
        let byte_by_byte = text.iter().fold(0_u64, |crc, byte| {
            crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)]
        });
        assert_eq!(crc64(text), byte_by_byte);
    }
}
