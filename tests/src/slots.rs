//! The slot of a key, by the Redis Cluster specification and independent of the engine's own code.

pub const SLOTS: u16 = 16384;

/// CRC16-XMODEM of the key, or of its non-empty `{hash tag}`, modulo 16384.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key
        .iter()
        .position(|&byte| byte == b'{')
        .and_then(|open| {
            let inside = &key[open + 1..];
            let close = inside.iter().position(|&byte| byte == b'}')?;
            (close > 0).then(|| &inside[..close])
        })
        .unwrap_or(key);
    crc16(tag) % SLOTS
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
    }
}
