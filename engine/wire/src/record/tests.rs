use proptest::prelude::*;

use super::*;

const META: RecordMeta = RecordMeta {
    partition: PartitionId(761),
    epoch: Epoch(3),
    seq: 258,
};

const IMAGES: [ImageEntry; 2] = [
    ImageEntry {
        partition: PartitionId(3),
        epoch: Epoch(1),
        generation: 7,
    },
    ImageEntry {
        partition: PartitionId(SLOTS - 1),
        epoch: Epoch(u64::MAX),
        generation: 1,
    },
];

#[test]
fn the_layout_is_fixed() {
    let mut buf = [0xFF; 50];
    assert_eq!(write_put(&mut buf, META, b"key", b"value", 0x0102_0304), 48);
    #[rustfmt::skip]
    let expected = [
        48, 0, 0, 0, 1, 0, 0, 0, 0xF9, 2, 0, 0, 3, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0,
        4, 3, 2, 1, 0, 0, 0, 0, b'k', b'e', b'y', b'v', b'a', b'l', b'u', b'e', 0xFF, 0xFF,
    ];
    assert_eq!(buf, expected);
}

#[test]
fn kinds_have_fixed_numbers() {
    let mut ops = OpsBuilder::new();
    ops.delete(META, b"a");
    ops.flush(META);
    let ops = ops.finish().to_vec();
    let (_, ops, _) = decode(&ops).unwrap().unwrap();
    let mut images = Vec::new();
    ImagesIter::encode(IMAGES, &mut images);
    let records = [
        Record::Put {
            key: b"",
            value: b"",
            expire_at_ms: 1,
        },
        Record::Delete { key: b"k" },
        Record::SetExpiry {
            key: b"k",
            expire_at_ms: 0,
        },
        ops,
        Record::Flush,
        Record::Block(b"block"),
        Record::Created {
            source: Source::NONE,
        },
        Record::Prepared(Prepared {
            count: 7,
            ..Prepared::default()
        }),
        Record::Activated { start_seq: 9 },
        Record::Dropped,
        Record::StagingWiped,
        Record::Mark,
        Record::Images(ImagesIter::new(&images).unwrap()),
    ];
    for (number, record) in (1..).zip(records) {
        let buf = record.to_vec(META);
        assert_eq!(buf[4], number);
        assert_eq!(decode(&buf), Ok(Some((META, record, buf.len()))));
    }
}

#[test]
fn a_list_of_one_operation_is_the_operation() {
    let mut ops = OpsBuilder::new();
    assert_eq!((ops.encoded_len(), ops.is_empty()), (0, true));
    ops.put(META, b"k", b"v", 0);
    assert_eq!(ops.encoded_len(), put_len(b"k", b"v"));
    let record = Record::Put {
        key: b"k",
        value: b"v",
        expire_at_ms: 0,
    };
    assert_eq!(decode(ops.finish()), Ok(Some((META, record, 42))));
    ops.clear();
    assert_eq!((ops.encoded_len(), ops.count()), (0, 0));
}

#[test]
fn a_list_is_cut_where_it_was_to_go_on() {
    let mut ops = OpsBuilder::new();
    let start = ops.end();
    assert_eq!(ops.since(start).count(), 0);
    ops.put(META, b"k", b"v", 0);
    let one = (ops.end(), ops.clone().finish().to_vec());
    ops.delete(META, b"k");
    ops.flush(META);
    let behind: Vec<_> = ops.since(one.0).map(|(_, record)| record).collect();
    assert_eq!(behind, [Record::Delete { key: b"k" }, Record::Flush]);
    assert_eq!(ops.since(start).count(), 3);
    ops.cut(one.0);
    assert_eq!((ops.count(), ops.finish()), (1, &one.1[..]));
    ops.cut(start);
    assert_eq!((ops.end(), ops.encoded_len()), (start, 0));
}

#[test]
fn lists_do_not_nest_and_hold_operations_only() {
    let mut inner = OpsBuilder::new();
    inner.delete(META, b"a");
    inner.delete(META, b"b");
    let marks = Record::Mark.to_vec(META);
    for body in [inner.finish(), &marks, &marks[..39]] {
        let mut buf = Record::Mark.to_vec(META);
        buf.extend_from_slice(body);
        buf[0] = buf.len() as u8;
        buf[4] = kind::OPS;
        assert!(decode(&buf).is_err());
    }
}

#[test]
fn damaged_headers_are_refused_before_the_body_arrives() {
    let good = Record::Put {
        key: b"key",
        value: b"value",
        expire_at_ms: 0,
    }
    .to_vec(META);
    let damages: [(usize, u8); 9] = [
        (0, 39),
        (0, 41),
        (3, 0x7F),
        (4, 0),
        (4, 14),
        (5, 1),
        (6, 1),
        (9, 0x40),
        (15, 1),
    ];
    for (at, byte) in damages {
        let mut buf = good[..RECORD_HEADER_BYTES].to_vec();
        buf[at] = byte;
        assert!(decode(&buf).is_err(), "byte {at} = {byte}");
    }
}

#[test]
fn lists_of_images_come_back_and_damaged_ones_are_refused() {
    let mut body = vec![];
    ImagesIter::encode(IMAGES, &mut body);
    assert_eq!(body.len(), 2 * IMAGE_ENTRY_BYTES);
    assert_eq!(body[..8], [3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((body[8], body[16]), (1, 7));
    assert!(ImagesIter::new(&body).unwrap().eq(IMAGES));
    assert!(ImagesIter::new(&body[..30]).is_err());
    for (at, byte) in [(1, 0x40), (2, 1), (5, 1), (28, 1)] {
        let mut damaged = body.clone();
        damaged[at] = byte;
        assert!(ImagesIter::new(&damaged).is_err(), "byte {at} = {byte}");
    }
}

#[test]
fn kinds_without_key_or_expiry_have_none() {
    let mut with_expiry = Record::Delete { key: b"k" }.to_vec(META);
    with_expiry[32] = 1;
    assert!(decode(&with_expiry).is_err());
    let mut with_value = Record::Delete { key: b"k" }.to_vec(META);
    with_value[12] = 0;
    assert!(decode(&with_value).is_err());
    let mut with_key = Record::Block(b"k").to_vec(META);
    with_key[12] = 1;
    assert!(decode(&with_key).is_err());
}

/// An operation that owns its bytes.
#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>, u64),
    Delete(Vec<u8>),
    SetExpiry(Vec<u8>, u64),
    Flush,
}

impl Op {
    fn record(&self) -> Record<'_> {
        match self {
            Self::Put(key, value, at) => Record::Put {
                key,
                value,
                expire_at_ms: *at,
            },
            Self::Delete(key) => Record::Delete { key },
            Self::SetExpiry(key, at) => Record::SetExpiry {
                key,
                expire_at_ms: *at,
            },
            Self::Flush => Record::Flush,
        }
    }

    fn add_to(&self, meta: RecordMeta, ops: &mut OpsBuilder) {
        match self {
            Self::Put(key, value, at) => ops.put(meta, key, value, *at),
            Self::Delete(key) => ops.delete(meta, key),
            Self::SetExpiry(key, at) => ops.set_expiry(meta, key, *at),
            Self::Flush => ops.flush(meta),
        }
    }
}

fn any_meta() -> impl Strategy<Value = RecordMeta> {
    (0..SLOTS, any::<u64>(), any::<u64>()).prop_map(|(partition, epoch, seq)| RecordMeta {
        partition: PartitionId(partition),
        epoch: Epoch(epoch),
        seq,
    })
}

fn any_op() -> impl Strategy<Value = Op> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        (bytes(), bytes(), any::<u64>()).prop_map(|(key, value, at)| Op::Put(key, value, at)),
        bytes().prop_map(Op::Delete),
        (bytes(), any::<u64>()).prop_map(|(key, at)| Op::SetExpiry(key, at)),
        Just(Op::Flush),
    ]
}

proptest! {
    #[test]
    fn records_come_back_and_cut_ones_are_incomplete(meta in any_meta(), op in any_op(), more: Vec<u8>) {
        let record = op.record();
        let mut buf = record.to_vec(meta);
        let len = buf.len();
        prop_assert_eq!(len, record.encoded_len());
        for end in 0..len {
            prop_assert_eq!(decode(&buf[..end]), Ok(None));
        }
        buf.extend_from_slice(&more);
        prop_assert_eq!(decode(&buf), Ok(Some((meta, record, len))));
    }

    #[test]
    fn lists_come_back_in_order(ops in prop::collection::vec((any_meta(), any_op()), 2..20)) {
        let mut builder = OpsBuilder::new();
        for (meta, op) in &ops {
            op.add_to(*meta, &mut builder);
        }
        prop_assert_eq!(builder.count(), ops.len());
        let len = builder.encoded_len();
        let buf = builder.finish();
        prop_assert_eq!(buf.len(), len);
        for end in 0..len {
            prop_assert_eq!(decode(&buf[..end]), Ok(None));
        }
        let Some((meta, Record::Ops(list), consumed)) = decode(buf).unwrap() else {
            panic!("not a list");
        };
        prop_assert_eq!((meta, consumed), (RecordMeta::default(), len));
        prop_assert!(list.eq(ops.iter().map(|(meta, op)| (*meta, op.record()))));
        prop_assert_eq!(Record::Ops(list).to_vec(meta), buf);
    }

    #[test]
    fn what_decodes_encodes_to_the_same_bytes(
        meta in any_meta(),
        ops in prop::collection::vec(any_op(), 1..4),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let mut builder = OpsBuilder::new();
        ops.iter().for_each(|op| op.add_to(meta, &mut builder));
        let mut buf = builder.finish().to_vec();
        let at = at.index(buf.len());
        buf[at] = byte;
        if let Ok(Some((meta, record, len))) = decode(&buf) {
            prop_assert_eq!(record.to_vec(meta), &buf[..len]);
        }
    }

    #[test]
    fn any_bytes_never_panic(mut buf in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..15) {
        let _ = decode(&buf);
        if buf.len() >= RECORD_HEADER_BYTES {
            let len = buf.len() as u32;
            buf[..4].copy_from_slice(&len.to_le_bytes());
            buf[4..12].copy_from_slice(&[kind, 0, 0, 0, 1, 0, 0, 0]);
            buf[12..16].copy_from_slice(&[0; 4]);
            buf[32..40].copy_from_slice(&[0; 8]);
            let _ = decode(&buf);
        }
    }
}
