use super::*;
use crate::options::LogId;

fn writer(change: impl FnOnce(&mut LogOptions)) -> LogWriter {
    let mut opts = LogOptions {
        segment_bytes: 64 << 10,
        ..LogOptions::new(LogId([1; 16]))
    };
    opts.group_bytes_max = 8 << 10;
    opts.in_flight_group_bytes = 8 << 10;
    change(&mut opts);
    let origin = Origin {
        incarnation: 1,
        prev_end: Lsn::ZERO,
        first_lsn: Lsn(1),
        wall_clock_ms: 0,
    };
    let mut writer = LogWriter::start(opts, origin, [], &[]);
    add_segment(&mut writer);
    let opening = writer.next_write(5).unwrap();
    complete(&mut writer, opening);
    writer
}

fn add_segment(writer: &mut LogWriter) {
    let id = writer.allocate_segment();
    let bytes = writer.options().segment_bytes;
    writer.add_segment(SegmentInfo { id, bytes }).unwrap();
}

fn complete(writer: &mut LogWriter, op: WriteOp) -> Lsn {
    let bytes = op.buf.len();
    writer.complete(op, Ok(bytes)).unwrap()
}

#[test]
fn commits_the_contiguous_prefix_only() {
    let mut writer = writer(|_| {});
    for _ in 0..3 {
        writer.append(&[1; 8000]);
    }
    let first = writer.next_write(5).unwrap();
    let second = writer.next_write(5).unwrap();
    assert_eq!(second.offset - first.offset, 8 << 10);
    assert_eq!(complete(&mut writer, second), Lsn(0));
    assert_eq!(complete(&mut writer, first), Lsn(2));
    assert_eq!(writer.unwritten_bytes(), 8004);
}

#[test]
fn lets_the_open_group_grow_while_a_write_is_in_flight() {
    let mut writer = writer(|_| {});
    writer.append(b"a");
    let op = writer.next_write(5).unwrap();
    writer.append(b"b");
    assert!(writer.next_write(5).is_none());
    writer.append(&[0; 8100]);
    let sealed = writer.next_write(5).unwrap();
    assert_eq!(sealed.buf.len(), BLOCK, "only the full group leaves");
    complete(&mut writer, op);
    complete(&mut writer, sealed);
    assert_eq!(writer.next_write(5).unwrap().buf.len(), 3 * BLOCK);
}

const BLOCK: usize = crate::aligned::BLOCK_BYTES;

#[test]
fn a_failed_or_short_write_poisons_for_ever() {
    for result in [Err(io::Error::other("x")), Ok(512)] {
        let mut writer = writer(|_| {});
        writer.append(&[1; 8000]);
        writer.append(&[1; 8000]);
        let first = writer.next_write(5).unwrap();
        writer.append(&[1; 8000]);
        let second = writer.next_write(5).unwrap();
        assert!(matches!(
            writer.complete(first, result),
            Err(WalError::Io { .. })
        ));
        let bytes = second.buf.len();
        assert!(matches!(
            writer.complete(second, Ok(bytes)),
            Err(WalError::Poisoned)
        ));
        assert!(writer.next_write(5).is_none() && writer.is_poisoned());
        assert_eq!(writer.committed(), Lsn(0));
    }
}

#[test]
fn stalls_without_a_segment_and_goes_on_with_one() {
    let mut writer = writer(|_| {});
    writer.append(&vec![1; writer.max_record_bytes()]);
    assert!(writer.next_write(5).is_none());
    assert!(writer.is_starved());
    add_segment(&mut writer);
    assert!(!writer.is_starved());
    let op = writer.next_write(5).unwrap();
    assert_eq!(
        (op.segment, op.offset, op.buf.len()),
        (SegmentId(2), 0, 64 << 10)
    );
    assert_eq!(complete(&mut writer, op), Lsn(1));
    let given_back = writer.truncate_before(Lsn(1));
    assert_eq!(given_back.len(), 1, "the opening's segment has no record");
    assert!(
        writer.truncate_before(Lsn(99)).is_empty(),
        "the current one stays"
    );
    assert!(writer.check_record(writer.max_record_bytes() + 1).is_err());
}

#[test]
fn a_segment_stays_until_a_later_one_is_durable() {
    let mut writer = writer(|opts| opts.durability = Durability::Relaxed);
    add_segment(&mut writer);
    writer.append(b"a");
    let op = writer.next_write(5).unwrap();
    complete(&mut writer, op);
    writer.append(&vec![1; writer.max_record_bytes()]);
    let op = writer.next_write(5).unwrap();
    assert!(writer.truncate_before(Lsn(2)).is_empty());
    complete(&mut writer, op);
    assert_eq!((writer.committed(), writer.durable()), (Lsn(2), Lsn(0)));
    assert!(writer.truncate_before(Lsn(2)).is_empty());
    let point = writer.sync_point();
    assert_eq!(point.segments, [SegmentId(1), SegmentId(2)]);
    writer.synced(&point);
    assert_eq!(writer.durable(), Lsn(2));
    assert_eq!(writer.truncate_before(Lsn(2)).len(), 1);
}

#[test]
fn a_mark_claims_everything_once() {
    let mut writer = writer(|_| {});
    writer.mark();
    assert!(writer.next_write(5).is_none(), "nothing to claim");
    writer.append(b"a");
    writer.mark();
    let op = writer.next_write(5).unwrap();
    assert!(writer.next_write(5).is_none());
    complete(&mut writer, op);
    let mark = writer.next_write(5).unwrap();
    let header = bytemuck::pod_read_unaligned::<GroupHeader>(&mark.buf[..HEADER_BYTES]);
    assert_eq!(
        (header.record_count, header.durable_lsn, header.first_lsn),
        (0, 1, 2)
    );
    complete(&mut writer, mark);
    writer.mark();
    assert!(writer.next_write(5).is_none());
}

#[test]
fn the_wall_clock_never_goes_back() {
    let mut writer = writer(|_| {});
    writer.append(b"a");
    let op = writer.next_write(3).unwrap();
    let header = bytemuck::pod_read_unaligned::<GroupHeader>(&op.buf[..HEADER_BYTES]);
    assert_eq!(header.wall_clock_ms, 5);
}

#[test]
fn padding_is_zero_in_recycled_buffers() {
    let mut writer = writer(|_| {});
    for len in [8000, 10] {
        writer.append(&vec![0xff; len]);
        let op = writer.next_write(5).unwrap();
        let used = HEADER_BYTES + RECORD_PREFIX_BYTES + len;
        assert!(op.buf[used..].iter().all(|byte| *byte == 0));
        complete(&mut writer, op);
    }
}

#[test]
fn groups_are_right_whichever_way_their_records_went() {
    let mut writer = writer(|opts| opts.group_bytes_max = 32 << 10);
    // Through the caches, around them, and both in one group.
    let runs: [&[usize]; 4] = [
        &[10, 2_047],
        &[2_048, 5_001, 9_999],
        &[1, 4_096, 0, 3, 4_136, 100],
        &[7, 20_000],
    ];
    for lens in runs {
        let record = |n: usize| {
            let bytes = (0..lens[n]).map(move |at| (at * 7 + n) as u8);
            bytes.collect::<Vec<u8>>()
        };
        for n in 0..lens.len() {
            writer.append(&record(n));
        }
        let op = writer.next_write(5).unwrap();
        let place = crate::group::Place {
            log_id: LogId([1; 16]),
            segment: Some(op.segment),
        };
        let group = crate::group::decode_group(&op.buf, place).unwrap();
        let found: Vec<_> = group.records().map(|(_, bytes)| bytes.to_vec()).collect();
        assert_eq!(found, (0..lens.len()).map(record).collect::<Vec<_>>());
        let padding = &op.buf[group.header.byte_len as usize..];
        assert!(padding.iter().all(|byte| *byte == 0));
        complete(&mut writer, op);
    }
}
