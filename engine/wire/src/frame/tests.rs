use proptest::prelude::*;

use super::*;

fn encoded(frame: Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

#[test]
fn the_layout_is_fixed() {
    let buf = encoded(Frame {
        kind: 0x0102,
        stream: 3,
        sequence: 4,
        payload: b"hi",
    });
    assert_eq!(&buf[..12], b"EphF\x02\x01\x01\0\x02\0\0\0");
    assert_eq!(&buf[16..], b"\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0hi");
    let mut zeroed = buf.clone();
    zeroed[12..16].fill(0);
    assert_eq!(buf[12..16], crc32fast::hash(&zeroed).to_le_bytes());
}

#[test]
fn another_protocol_is_noticed_at_the_first_byte() {
    assert!(matches!(decode(b"G"), Err(WireError::Magic { .. })));
    assert!(matches!(decode(b"EphB"), Err(WireError::Magic { .. })));
    assert_eq!(decode(b"Eph"), Ok(None));
}

#[test]
fn version_and_length_are_checked_before_the_payload_arrives() {
    let buf = encoded(Frame {
        kind: 1,
        stream: 0,
        sequence: 0,
        payload: &[0; 100],
    });
    let mut newer = buf.clone();
    newer[6] = 2;
    assert_eq!(decode(&newer[..32]), Err(WireError::Version { found: 2 }));
    let mut long = buf.clone();
    long[11] = 0xFF;
    assert!(matches!(decode(&long[..32]), Err(WireError::Length { .. })));
    assert!(matches!(
        decode_limited(&buf[..32], 99),
        Err(WireError::Length { max: 99, .. })
    ));
    assert!(matches!(decode_limited(&buf, 100), Ok(Some((_, 132)))));
}

proptest! {
    #[test]
    fn frames_come_back_and_cut_ones_are_incomplete(
        kind: u16, stream: u64, sequence: u64, payload: Vec<u8>, more: Vec<u8>,
    ) {
        let frame = Frame { kind, stream, sequence, payload: &payload };
        let mut buf = encoded(frame);
        let len = frame.encoded_len();
        for end in 0..len {
            prop_assert_eq!(decode(&buf[..end]), Ok(None));
        }
        buf.extend_from_slice(&more);
        prop_assert_eq!(decode(&buf), Ok(Some((frame, len))));
    }

    #[test]
    fn a_flipped_bit_is_never_accepted(payload: Vec<u8>, stream: u64) {
        let mut buf = encoded(Frame { kind: 1, stream, sequence: 2, payload: &payload });
        for bit in 0..buf.len() * 8 {
            buf[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!matches!(decode(&buf), Ok(Some(_))), "bit {bit}");
            buf[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn any_bytes_never_panic(mut buf in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = decode(&buf);
        if buf.len() >= 12 {
            buf[..12].copy_from_slice(b"EphF\x01\0\x01\0\x09\0\0\0");
            prop_assert!(!matches!(decode(&buf), Ok(Some(_))));
        }
    }
}
