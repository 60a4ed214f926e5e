use proptest::prelude::*;

use super::*;

fn encoded(frame: Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

/// CRC-32 as gzip's, one bit at a time.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| {
            (crc >> 1) ^ (0xEDB8_8320 * (crc & 1))
        })
    })
}

/// A frame as the drawing has it, field by field.
fn by_hand(frame: Frame<'_>) -> Vec<u8> {
    let mut bytes = [
        b"EphF".as_slice(),
        &frame.kind.to_le_bytes(),
        &1u16.to_le_bytes(),
        &(frame.payload.len() as u32).to_le_bytes(),
        &[0; 4],
        &frame.stream.to_le_bytes(),
        &frame.sequence.to_le_bytes(),
        frame.payload,
    ]
    .concat();
    let crc = crc32(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn the_checksum_is_that_of_gzip() {
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
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
    fn a_frame_is_encoded_and_read_as_drawn(
        kind: u16, stream: u64, sequence: u64, payload: Vec<u8>,
    ) {
        let frame = Frame { kind, stream, sequence, payload: &payload };
        let drawn = by_hand(frame);
        prop_assert_eq!(&encoded(frame), &drawn);
        prop_assert_eq!(decode(&drawn), Ok(Some((frame, drawn.len()))));
    }

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
