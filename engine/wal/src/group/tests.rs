use bytemuck::Zeroable;
use futures_lite::future::block_on;
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

/// CRC-32 as gzip's, one bit at a time.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| {
            (crc >> 1) ^ (0xEDB8_8320 * (crc & 1))
        })
    })
}

/// A group, field by field, with the counts and the checksum that `records` make; of `header` its
/// magic, version, counts and checksum are ignored.
///
/// ```text
///   0 magic "EPHWALG1"    32 incarnation u64     64 wall_clock_ms u64      96 prev_segment u64
///   8 crc32 u32           40 segment u64         72 durable_lsn u64       104 start_segment u64
///  12 version u16         48 first_lsn u64       80 prev_end u64          112 zero, 16 bytes
///  14 flags u16           56 record_count u32    88 incarnation_first u64
///  16 log_id, 16 bytes    60 byte_len u32                                 128 records
/// ```
fn by_hand(header: &GroupHeader, records: &[Vec<u8>]) -> Vec<u8> {
    let framed: Vec<u8> = records
        .iter()
        .flat_map(|record| [&(record.len() as u32).to_le_bytes(), &record[..]].concat())
        .collect();
    let mut group = [
        b"EPHWALG1".as_slice(),
        &[0; 4],
        &1u16.to_le_bytes(),
        &header.flags.to_le_bytes(),
        &header.log_id,
        &header.incarnation.to_le_bytes(),
        &header.segment.to_le_bytes(),
        &header.first_lsn.to_le_bytes(),
        &(records.len() as u32).to_le_bytes(),
        &(128 + framed.len() as u32).to_le_bytes(),
        &header.wall_clock_ms.to_le_bytes(),
        &header.durable_lsn.to_le_bytes(),
        &header.prev_end.to_le_bytes(),
        &header.incarnation_first.to_le_bytes(),
        &header.prev_segment.to_le_bytes(),
        &header.start_segment.to_le_bytes(),
        &[0; 16],
        &framed,
    ]
    .concat();
    let crc = crc32(&group);
    group[8..12].copy_from_slice(&crc.to_le_bytes());
    group
}

fn encode(first_lsn: u64, records: &[Vec<u8>]) -> Vec<u8> {
    by_hand(&header(first_lsn), records)
}

/// Any header that a writer may write in front of so many records, but for its counts and checksum.
fn any_header(records: usize) -> impl Strategy<Value = GroupHeader> {
    let below = |bound: u64| any::<u64>().prop_map(move |n| n % bound);
    let lsns = (1..=LSN_MAX - records as u64)
        .prop_flat_map(move |first| (Just(first), below(first), 1..=first))
        .prop_flat_map(move |(first, durable, opened)| {
            (Just(first), Just(durable), Just(opened), below(opened))
        });
    let segments = (1..u64::MAX)
        .prop_flat_map(move |segment| (Just(segment), 1..=segment, below(segment), below(segment)));
    let rest = (any::<[u8; 16]>(), any::<u64>(), any::<bool>());
    (lsns, segments, rest).prop_map(move |(lsns, segments, (log_id, wall_clock_ms, relaxed))| {
        let (first_lsn, durable_lsn, incarnation_first, prev_end) = lsns;
        let (segment, incarnation, prev_segment, start_segment) = segments;
        let opens = records == 0 && first_lsn == incarnation_first && segment == incarnation;
        GroupHeader {
            flags: u16::from(opens) | u16::from(relaxed) << 1,
            log_id,
            incarnation,
            segment,
            first_lsn,
            wall_clock_ms,
            durable_lsn,
            prev_end,
            incarnation_first,
            prev_segment,
            start_segment,
            ..header(1)
        }
    })
}

fn any_group() -> impl Strategy<Value = (GroupHeader, Vec<Vec<u8>>)> {
    let records = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..12);
    records.prop_flat_map(|records| (any_header(records.len()), Just(records)))
}

#[test]
fn the_checksum_is_that_of_gzip() {
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
}

#[test]
fn a_log_file_is_as_drawn() {
    let opts = crate::LogOptions {
        segment_bytes: 32 << 10,
        group_bytes_max: 8 << 10,
        ..crate::LogOptions::new(LogId([3; 16]))
    };
    let disk = crate::FaultDisk::new(1);
    let records = [b"first".to_vec(), vec![0xa5; 4500], Vec::new()];
    block_on(async {
        let ignore = &mut |_, _: &[u8]| Ok(());
        let opened = crate::Log::open(disk.clone(), &opts, Lsn::ZERO, 70, ignore).await;
        let (mut log, _) = opened.unwrap();
        for record in &records {
            log.append(record).unwrap();
        }
        log.commit(80).await.unwrap();
        log.mark(90).await.unwrap();
    });
    let base = GroupHeader {
        incarnation: 1,
        segment: 1,
        start_segment: 1,
        prev_segment: 0,
        ..header(1)
    };
    let groups = [
        GroupHeader {
            flags: 1,
            wall_clock_ms: 70,
            ..base
        },
        GroupHeader {
            wall_clock_ms: 80,
            ..base
        },
        GroupHeader {
            first_lsn: 4,
            wall_clock_ms: 90,
            durable_lsn: 3,
            ..base
        },
    ];
    let mut expected = Vec::new();
    for (header, records) in groups.iter().zip([&[][..], &records, &[]]) {
        expected.extend(by_hand(header, records));
        expected.resize(expected.len().next_multiple_of(4096), 0);
    }
    expected.resize(32 << 10, 0);
    assert!(disk.contents("seg-0000000000000001.log").unwrap() == expected);
}

proptest! {
    #[test]
    fn a_group_is_encoded_and_read_as_drawn((fields, records) in any_group()) {
        let drawn = by_hand(&fields, &records);
        let mut header = GroupHeader {
            crc32: 0,
            record_count: records.len() as u32,
            byte_len: drawn.len() as u32,
            ..fields
        };
        let mut encoded = [&[0; HEADER_BYTES], &drawn[HEADER_BYTES..]].concat();
        encode_header(header, &mut encoded);
        prop_assert_eq!(&encoded, &drawn);

        let place = Place {
            log_id: LogId(fields.log_id),
            segment: Some(SegmentId(fields.segment)),
        };
        let group = decode_group(&drawn, place).unwrap();
        header.crc32 = u32::from_le_bytes(*drawn[8..].first_chunk().unwrap());
        prop_assert_eq!(group.header, header);
        let found: Vec<_> = group.records().map(|(lsn, record)| (lsn.0, record.to_vec())).collect();
        let expected: Vec<_> = (fields.first_lsn..).zip(records).collect();
        prop_assert_eq!(found, expected);
    }

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
