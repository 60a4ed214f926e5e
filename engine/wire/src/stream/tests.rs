use proptest::prelude::*;

use super::*;
use crate::frame;
use crate::record::{OpsBuilder, Prepared, Record, RecordMeta, Source};

const MIGRATION: MigrationId = MigrationId(77);

const OPEN: Open = Open {
    partition: PartitionId(0x0102),
    epoch: Epoch(3),
    source: NodeId([9; 16]),
    source_shard: ShardId(4),
    target_shard: ShardId(5),
};

fn encoded(message: Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(MIGRATION, 11, &mut out);
    out
}

fn decoded(buf: &[u8]) -> Result<(MigrationId, Message<'_>), WireError> {
    let (frame, len) = frame::decode(buf)?.expect("complete");
    assert_eq!(len, buf.len());
    Message::decode(&frame)
}

fn decode_payload(kind: u16, payload: &[u8]) -> Result<(MigrationId, Message<'_>), WireError> {
    Message::decode(&Frame {
        kind,
        stream: 1,
        sequence: 0,
        payload,
    })
}

#[test]
fn kinds_and_layouts_are_fixed() {
    let contents = Contents {
        count: 6,
        digest: [7, 8],
    };
    let last = Final {
        contents,
        clock_ms: 9,
        last_seq: 10,
    };
    #[rustfmt::skip]
    let expected: [(Message<'_>, &[u8]); 10] = [
        (Message::Open(OPEN), b"\x02\x01\0\0\x04\0\x05\0\x03\0\0\0\0\0\0\0\
            \x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09"),
        (Message::Accepted, b""),
        (Message::Refused("no"), b"no"),
        (Message::Data(b"records"), b"records"),
        (Message::Final(last), b"\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\
            \x09\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0"),
        (Message::Window { seq: 0x0304, credit: 0x0708 }, b"\x04\x03\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0"),
        (Message::Prepared(contents), b"\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0"),
        (Message::End("over"), b"over"),
        (Message::Keys(0x0506), b"\x06\x05\0\0\0\0\0\0"),
        (Message::Opens(16), b"\x10\0\0\0\0\0\0\0"),
    ];
    for (number, (message, payload)) in (1..).zip(expected) {
        let buf = encoded(message);
        let (frame, _) = frame::decode(&buf).unwrap().unwrap();
        assert_eq!((frame.kind, frame.stream, frame.sequence), (number, 77, 11));
        assert_eq!(frame.payload, payload);
        assert_eq!(decoded(&buf), Ok((MIGRATION, message)));
    }
}

#[test]
fn numbers_without_a_meaning_are_refused() {
    let frame = Frame {
        kind: kind::ACCEPTED,
        stream: 0,
        sequence: 0,
        payload: &[],
    };
    assert!(Message::decode(&frame).is_err(), "no migration");
    let open = encoded(Message::Open(OPEN));
    let open = &open[FRAME_HEADER_BYTES..];
    assert!(decode_payload(kind::OPEN, open).is_ok());
    for (at, byte) in [(1, 0x40), (2, 1), (8, 0)] {
        let mut damaged = open.to_vec();
        damaged[at] = byte;
        assert!(decode_payload(kind::OPEN, &damaged).is_err(), "byte {at}");
    }
    let words = |words: &[u64]| bytemuck::cast_slice(words).to_vec();
    for (kind, body) in [
        (0, vec![]),
        (11, vec![]),
        (kind::OPENS, words(&[0])),
        (kind::OPENS, words(&[STREAM_OPENS_MAX + 1])),
        (kind::KEYS, vec![]),
        (kind::KEYS, words(&[1, 2])),
        (kind::ACCEPTED, vec![0]),
        (kind::WINDOW, words(&[0, 1])),
        (kind::WINDOW, words(&[1])),
        (kind::WINDOW, words(&[1, 2, 3])),
        (kind::PREPARED, words(&[0, 1, 0])),
        (kind::PREPARED, words(&[1, 1])),
        (kind::FINAL, words(&[0, 0, 0, 0, 0])),
        (kind::FINAL, words(&[1, 1, 1, 0, 1])),
        (kind::FINAL, words(&[0, 0, 1, 0, 2])),
        (kind::FINAL, words(&[1, 1, 1, 0])),
        (kind::END, vec![0xFF]),
        (kind::END, vec![b'x'; STREAM_REASON_BYTES_MAX + 1]),
    ] {
        assert!(decode_payload(kind, &body).is_err(), "{kind} {body:?}");
    }
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let long = "ä".repeat(STREAM_REASON_BYTES_MAX);
    let long = format!("x{long}");
    let buf = encoded(Message::End(&long));
    let (_, Message::End(reason)) = decoded(&buf).unwrap() else {
        panic!("another message");
    };
    assert_eq!(reason.len(), STREAM_REASON_BYTES_MAX - 1);
    assert!(long.starts_with(reason));
}

#[test]
fn a_stream_carries_changes_and_blocks_only() {
    let meta = RecordMeta {
        partition: PartitionId(1),
        epoch: Epoch(2),
        seq: 3,
    };
    let mut ops = OpsBuilder::new();
    ops.delete(meta, b"a");
    ops.delete(meta, b"b");
    let refused = [
        Record::Created {
            source: Source::NONE,
        },
        Record::Prepared(Prepared::default()),
        Record::Activated { start_seq: 1 },
        Record::Dropped,
        Record::StagingWiped,
        Record::Mark,
    ];
    let refused = refused.map(|record| record.to_vec(meta));
    for record in refused.iter().map(Vec::as_slice).chain([ops.finish()]) {
        let mut records = Records::new(record);
        assert!(records.next().expect("a record").is_err());
        assert!(records.next().is_none(), "nothing after an error");
    }
}

fn message() -> impl Strategy<Value = (u8, [u64; 5], Vec<u8>, String)> {
    (
        0..10u8,
        any::<[u64; 5]>(),
        any::<Vec<u8>>(),
        any::<String>(),
    )
}

proptest! {
    #[test]
    fn messages_come_back((which, words, bytes, reason) in message()) {
        let contents = match words[0] % 7 {
            0 => Contents::default(),
            count => Contents { count, digest: [words[1], words[2]] },
        };
        let message = match which {
            0 => Message::Open(Open {
                partition: PartitionId((words[0] % u64::from(SLOTS)) as u16),
                epoch: Epoch(words[1].max(1)),
                source: NodeId(bytemuck::cast([words[2], words[3]])),
                source_shard: ShardId(words[4] as u16),
                target_shard: ShardId((words[4] >> 16) as u16),
            }),
            1 => Message::Accepted,
            2 => Message::Refused(cut(&reason)),
            3 => Message::Data(&bytes),
            4 => Message::Final(Final { contents, clock_ms: words[3], last_seq: words[4].max(2) }),
            5 => Message::Window { seq: words[0].max(1), credit: words[1] },
            6 => Message::Prepared(contents),
            7 => Message::Keys(words[0]),
            8 => Message::Opens(words[0] % STREAM_OPENS_MAX + 1),
            _ => Message::End(cut(&reason)),
        };
        let buf = encoded(message);
        prop_assert_eq!(decoded(&buf), Ok((MIGRATION, message)));
        if let Message::Data(records) = message {
            prop_assert_eq!(&buf[..FRAME_HEADER_BYTES], &data_header(MIGRATION, 11, records)[..]);
        }
    }

    #[test]
    fn any_payload_never_panics(kind in 0..13u16, stream: u64, payload: Vec<u8>) {
        let frame = Frame { kind, stream, sequence: 0, payload: &payload };
        let _ = Message::decode(&frame);
        let _ = Records::new(&payload).count();
    }

    #[test]
    fn bodies_of_the_right_length_never_panic(kind in 1..11u16, words: [u64; 5], len in 0..6usize) {
        let _ = decode_payload(kind, bytemuck::cast_slice(&words[..len.min(5)]));
    }

    #[test]
    fn records_come_back_with_their_bytes(
        entries in prop::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>(), any::<u64>()), 0..9),
        cut_off in 1..40usize,
    ) {
        let mut payload = Vec::new();
        let mut expected = Vec::new();
        for (seq, (key, value, expire_at_ms)) in (FIRST_SEQ..).zip(&entries) {
            let meta = RecordMeta { partition: PartitionId(5), epoch: Epoch(6), seq };
            let record = match seq % 4 {
                0 => Record::Put { key, value, expire_at_ms: *expire_at_ms },
                1 => Record::Delete { key },
                2 => Record::Block(value),
                _ => Record::SetExpiry { key, expire_at_ms: *expire_at_ms },
            };
            payload.extend_from_slice(&record.to_vec(meta));
            expected.push((meta, record));
        }
        let mut bytes = Vec::new();
        let mut found = Vec::new();
        for record in Records::new(&payload) {
            let (meta, record, own) = record.unwrap();
            bytes.extend_from_slice(own);
            found.push((meta, record));
        }
        prop_assert_eq!(&bytes, &payload);
        prop_assert_eq!(&found, &expected);
        let mut padded = payload.clone();
        padded.resize(payload.len() + cut_off % DATA_ALIGN_BYTES, 0);
        prop_assert_eq!(Records::new(&padded).count(), expected.len());
        prop_assert!(Records::new(&padded).all(|record| record.is_ok()));
        padded.push(1);
        prop_assert!(Records::new(&padded).last().is_some_and(|record| record.is_err()));
        padded.pop();
        padded.resize(payload.len() + DATA_ALIGN_BYTES, 0);
        prop_assert!(Records::new(&padded).last().is_some_and(|record| record.is_err()));
        if let Some(last) = payload.len().checked_sub(cut_off).filter(|&len| len > 0) {
            let found: Vec<_> = Records::new(&payload[..last]).collect();
            prop_assert_eq!(found.len(), expected.len());
            prop_assert!(found.last().is_some_and(Result::is_err), "the last record is cut");
        }
    }
}
