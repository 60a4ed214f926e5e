//! Requests, replies, patterns, frames, messages of streams, records, blocks.

use ephesus_tests::Rng;
use ephesus_wire::block::{Assembler, BlockBuilder};
use ephesus_wire::frame::{self, Frame};
use ephesus_wire::glob::Pattern;
use ephesus_wire::record::{self, OpsBuilder, Prepared, Record, RecordMeta, Source};
use ephesus_wire::resp::request::{Args, Parsed, RequestLimits, parse};
use ephesus_wire::resp::value;
use ephesus_wire::stream::{Contents, Final, Message, Records};
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId, ShardId};

use super::mutations::fuzz;

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn requests() {
    let seeds = texts(&[
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n",
        "*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
        "PING\r\nSET \"a \\x00\\n\" 'b \\' c'\r\n",
        "*0\r\n\r\n*-1\r\n",
        "*1048576\r\n$0\r\n\r\n",
    ]);
    let mut args = Args::new();
    fuzz("requests", seeds, |bytes| {
        for limits in [RequestLimits::DEFAULT, RequestLimits::PREAUTH] {
            let mut at = 0;
            while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
                match parse(rest, &limits, &mut args) {
                    Ok(Parsed::Command { consumed }) => {
                        assert!(consumed > 0 && consumed <= rest.len());
                        for index in 0..args.len() {
                            assert!(args.get(index, rest).len() <= consumed);
                        }
                        at += consumed;
                    }
                    Ok(Parsed::Incomplete { needed }) => {
                        assert!(needed > rest.len());
                        break;
                    }
                    Err(error) => {
                        let _ = error.to_string();
                        break;
                    }
                }
            }
        }
    });
}

#[test]
fn replies() {
    let seeds = texts(&[
        "+OK\r\n",
        "-ERR no\r\n",
        ":-42\r\n",
        "$5\r\nhello\r\n$-1\r\n",
        "*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
        "%1\r\n+a\r\n=7\r\ntxt:abc\r\n",
        "~1\r\n,1.5\r\n#t\r\n_\r\n(123\r\n",
    ]);
    fuzz("replies", seeds, |bytes| {
        if let Ok(Some((_, len))) = value::decode(bytes) {
            assert!(len <= bytes.len());
        }
    });
}

#[test]
fn patterns() {
    let seeds = texts(&[
        "*",
        "a*b?c",
        "[a-z]*",
        "[^\\]x]",
        "h[ae]llo\\*",
        "**[[-]]?",
        "[z-a",
    ]);
    let mut rng = Rng::new(ephesus_tests::seed_of_run("texts"));
    fuzz("patterns", seeds, |bytes| {
        let bytes = &bytes[..bytes.len().min(200)];
        if let Some(pattern) = Pattern::new(bytes) {
            let len = rng.below(60) as usize;
            let text = rng.bytes(len);
            for text in [&text[..], bytes, b""] {
                let _ = pattern.matches(text);
            }
        }
    });
}

#[test]
fn frames() {
    let seeds = (0..3).map(|n| {
        let payload = vec![n as u8; n * 40];
        let frame = Frame {
            kind: n as u16,
            stream: 1,
            sequence: 7,
            payload: &payload,
        };
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        bytes
    });
    fuzz("frames", seeds.collect(), |bytes| {
        for limit in [64, 16 << 20] {
            if let Ok(Some((frame, len))) = frame::decode_limited(bytes, limit) {
                assert!(len <= bytes.len() && frame.payload.len() <= limit);
            }
        }
    });
}

const META: RecordMeta = RecordMeta {
    partition: PartitionId(3),
    epoch: Epoch(9),
    seq: 4,
};

fn source() -> Source {
    Source {
        migration: MigrationId(1),
        node: NodeId([7; 16]),
        shard: ShardId(1),
    }
}

fn blocks() -> Vec<Vec<u8>> {
    let mut builder = BlockBuilder::new();
    let mut blocks = Vec::new();
    for n in 0..40u8 {
        builder.push(&[n; 10], &vec![n; usize::from(n) * 3], 0, |block| {
            blocks.push(block.to_vec());
        });
    }
    builder.push(b"large", &[1; 9_000], 5, |block| {
        blocks.push(block.to_vec())
    });
    builder.finish(|block| blocks.push(block.to_vec()));
    blocks
}

fn some_records() -> Vec<Vec<u8>> {
    let mut ops = OpsBuilder::new();
    ops.put(META, b"a", b"1", 0);
    ops.delete(META, b"b");
    ops.set_expiry(META, b"c", 77);
    ops.flush(META);
    let mut all = vec![ops.finish().to_vec()];
    let (key, value) = (&b"key"[..], &b"value"[..]);
    let prepared = Prepared {
        migration: MigrationId(1),
        count: 3,
        digest: [1, 2],
    };
    let blocks = blocks();
    for record in [
        Record::Put {
            key,
            value,
            expire_at_ms: 5,
        },
        Record::Delete { key },
        Record::SetExpiry {
            key,
            expire_at_ms: 6,
        },
        Record::Flush,
        Record::Block(&blocks[0]),
        Record::Created { source: source() },
        Record::Prepared(prepared),
        Record::Activated { start_seq: 9 },
        Record::Dropped,
    ] {
        all.push(record.to_vec(META));
    }
    all
}

#[test]
fn records() {
    fuzz("records", some_records(), |bytes| {
        let mut rest = bytes;
        while let Ok(Some((_, record, len))) = record::decode(rest) {
            assert!(len > 0 && len <= rest.len());
            if let Record::Ops(ops) = record {
                ops.take(1_000).for_each(drop);
            }
            rest = &rest[len..];
        }
    });
}

#[test]
fn records_of_a_stream() {
    let joined = some_records().concat();
    let aligned = [joined.clone(), vec![0; joined.len() % 4]].concat();
    fuzz("stream-records", vec![joined, aligned], |bytes| {
        for record in Records::new(bytes).take(1_000) {
            if record.is_err() {
                break;
            }
        }
    });
}

/// Right checksums, or hardly any change would be looked at.
fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(crc) = bytes.get_mut(4..8) {
        crc.fill(0);
        let sum = crc32fast::hash(&bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    if bytes.len() >= 16 {
        // The length of the body, most of the time.
        let body = (bytes.len() as u32).saturating_sub(32);
        bytes[12..16].copy_from_slice(&body.to_le_bytes());
        bytes[4..8].fill(0);
        let sum = crc32fast::hash(&bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

#[test]
fn blocks_of_entries() {
    let seeds = blocks();
    let mut assembler = Assembler::default();
    fuzz("blocks", seeds, |bytes| {
        for bytes in [bytes.to_vec(), with_checksum(bytes)] {
            let fed = assembler.feed(&bytes, |entry| {
                assert!(entry.key.len() <= bytes.len() + (64 << 10))
            });
            if fed.is_err() {
                assembler = Assembler::default();
            }
            ephesus_wire::block::peek(&bytes).take(1_000).for_each(drop);
        }
    });
}

#[test]
fn messages_of_streams() {
    let contents = Contents {
        count: 5,
        digest: [1, 2],
    };
    let last = Final {
        contents,
        clock_ms: 5,
        last_seq: 9,
    };
    let mut seeds = Vec::new();
    for message in [
        Message::Accepted,
        Message::Refused("no"),
        Message::Keys(4),
        Message::Data(b"data"),
        Message::Window { seq: 4, credit: 5 },
        Message::Final(last),
        Message::Prepared(contents),
        Message::End("over"),
    ] {
        let mut bytes = Vec::new();
        message.encode(MigrationId(3), 1, &mut bytes);
        seeds.push(bytes.split_off(32));
    }
    let mut rng = Rng::new(ephesus_tests::seed_of_run("kinds"));
    fuzz("messages", seeds, |payload| {
        for _ in 0..4 {
            let frame = Frame {
                kind: rng.below(40) as u16,
                stream: rng.below(3),
                sequence: 0,
                payload,
            };
            let _ = Message::decode(&frame);
        }
    });
}
