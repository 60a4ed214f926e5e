use bytemuck::Zeroable;
use proptest::prelude::*;

use super::*;

const PLACE: Place = Place {
    log_id: LogId([3; 16]),
    segment: Some(SegmentId(9)),
};

fn header(first_lsn: u64) -> GroupHeader {
    GroupHeader {
        magic: MAGIC,
        version: VERSION,
        log_id: [3; 16],
        incarnation: 7,
        segment: 9,
        first_lsn,
        wall_clock_ms: 1,
        durable_lsn: first_lsn - 1,
        incarnation_first: 1,
        prev_segment: 8,
        start_segment: 2,
        ..GroupHeader::zeroed()
    }
}

/// Encodes without the writer: an independent reading of the layout.
fn encode(first_lsn: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let mut group = vec![0; HEADER_BYTES];
    for record in records {
        group.extend((record.len() as u32).to_le_bytes());
        group.extend(record);
    }
    let (record_count, byte_len) = (records.len() as u32, group.len() as u32);
    encode_header(
        GroupHeader {
            record_count,
            byte_len,
            ..header(first_lsn)
        },
        &mut group,
    );
    group
}

proptest! {
    #[test]
    fn records_come_back(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        first_lsn in 1u64..1 << 60,
        trailing in 0usize..5000,
    ) {
        let mut bytes = encode(first_lsn, &records);
        bytes.resize(bytes.len() + trailing, 0xee);
        let group = decode_group(&bytes, PLACE).unwrap();
        let found: Vec<_> = group.records().map(|(lsn, record)| (lsn.0, record.to_vec())).collect();
        let expected: Vec<_> = (first_lsn..).zip(records.iter().cloned()).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(group.header.last_lsn().0, first_lsn + records.len() as u64 - 1);
    }

    #[test]
    fn any_flipped_bit_is_noticed(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..5),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut bytes = encode(5, &records);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(decode_group(&bytes, PLACE).is_err());
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode_group(&bytes, PLACE).is_err());
    }
}

#[test]
fn zeroes_are_no_group() {
    assert_eq!(
        decode_group(&[0; 4096], PLACE).unwrap_err(),
        GroupFault::Magic
    );
}

#[test]
fn every_field_is_checked() {
    let faulty = |change: &dyn Fn(&mut GroupHeader)| {
        let mut group = encode(5, &[b"abcde".to_vec()]);
        let mut changed = bytemuck::pod_read_unaligned::<GroupHeader>(&group[..HEADER_BYTES]);
        change(&mut changed);
        if changed.byte_len as usize == group.len() {
            encode_header(changed, &mut group);
        } else {
            group[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&changed));
        }
        decode_group(&group, PLACE).unwrap_err()
    };
    assert_eq!(faulty(&|h| h.magic = 1), GroupFault::Magic);
    assert_eq!(faulty(&|h| h.version = 9), GroupFault::Version(9));
    assert_eq!(faulty(&|h| h.flags = 4), GroupFault::Field("flags"));
    assert_eq!(
        faulty(&|h| h.flags = FLAG_OPENING),
        GroupFault::Field("opening")
    );
    assert_eq!(
        faulty(&|h| h.log_id = [4; 16]),
        GroupFault::Log(LogId([4; 16]))
    );
    assert_eq!(
        faulty(&|h| h.incarnation = 10),
        GroupFault::Field("incarnation")
    );
    assert_eq!(faulty(&|h| h.segment = 8), GroupFault::Segment(8));
    assert_eq!(faulty(&|h| h.first_lsn = 0), GroupFault::Field("first LSN"));
    assert_eq!(
        faulty(&|h| h.first_lsn = u64::MAX),
        GroupFault::Field("record count")
    );
    assert_eq!(faulty(&|h| h.record_count = 2), GroupFault::Framing);
    assert_eq!(faulty(&|h| h.record_count = 0), GroupFault::Framing);
    assert_eq!(
        faulty(&|h| h.record_count = 99),
        GroupFault::Field("byte length")
    );
    assert_eq!(
        faulty(&|h| h.byte_len = 1),
        GroupFault::Field("byte length")
    );
    assert_eq!(faulty(&|h| h.byte_len = u32::MAX), GroupFault::Short);
    assert_eq!(
        faulty(&|h| h.durable_lsn = 5),
        GroupFault::Field("durable LSN")
    );
    assert_eq!(
        faulty(&|h| h.incarnation_first = 6),
        GroupFault::Field("incarnation's first LSN")
    );
    assert_eq!(
        faulty(&|h| h.prev_end = 1),
        GroupFault::Field("previous end")
    );
    assert_eq!(
        faulty(&|h| h.prev_segment = 9),
        GroupFault::Field("previous segment")
    );
    assert_eq!(
        faulty(&|h| h.start_segment = 10),
        GroupFault::Field("start segment")
    );
    assert_eq!(
        faulty(&|h| h.reserved[1] = 1),
        GroupFault::Field("reserved bytes")
    );
}
