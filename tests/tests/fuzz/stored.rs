//! What a data directory holds: groups of logs, layouts, manifests, stamps.

use ephesus_engine::image::manifest::Manifest;
use ephesus_engine::node::stamp::{DataDir, Layout};
use ephesus_wal::group::{Place, decode_group, decode_header, encode_header};
use ephesus_wal::{FaultDisk, LogId, LogOptions};

use super::mutations::fuzz;

const LOG: LogId = LogId([9; 16]);

/// Groups as a log writes them.
fn groups() -> Vec<Vec<u8>> {
    let options = LogOptions {
        segment_bytes: 32 << 10,
        group_bytes_max: 8 << 10,
        ..LogOptions::new(LOG)
    };
    let disk = FaultDisk::new(1);
    let opened = futures_lite::future::block_on(async {
        let recovered =
            ephesus_wal::recover(&disk, &options, ephesus_wire::Lsn::ZERO, &mut |_, _| Ok(()))
                .await?;
        ephesus_wal::open_writer(&disk, &options, &recovered, ephesus_wire::Lsn::ZERO, 5).await
    });
    let mut writer = opened.expect("a disk without faults").writer;
    let mut groups = Vec::new();
    for n in 0..5u8 {
        writer.append(&vec![n; usize::from(n) * 100 + 1]);
        while let Some(op) = writer.next_write(7) {
            groups.push(op.buf.to_vec());
            let len = op.buf.len();
            writer.complete(op, Ok(len)).expect("written");
        }
    }
    groups
}

#[test]
fn groups_of_a_log() {
    let place = Place {
        log_id: LOG,
        segment: None,
    };
    let look = |bytes: &[u8]| {
        if let Ok(group) = decode_group(bytes, place) {
            for (_, record) in group.records() {
                assert!(record.len() <= bytes.len());
            }
        }
    };
    fuzz("groups", groups(), |bytes| {
        look(bytes);
        // The same with a right checksum.
        if let Ok(header) = decode_header(bytes, place)
            && let Some(group) = bytes.get(..header.byte_len as usize)
        {
            let mut group = group.to_vec();
            encode_header(header, &mut group);
            look(&group);
        }
    });
}

#[test]
fn layouts() {
    let logs = (0..3).map(|n| LogId([n; 16]));
    let mut layout = Layout::empty(16, logs);
    let empty = layout.encode();
    for (index, place) in layout.partitions.iter_mut().enumerate() {
        *place = (
            ephesus_wire::ShardId(index as u16 % 3),
            ephesus_wire::Epoch(2),
        );
    }
    fuzz("layouts", vec![empty, layout.encode()], |bytes| {
        if let Ok(layout) = Layout::decode(bytes) {
            let again = Layout::decode(&layout.encode()).expect("what was read can be written");
            assert!(again == layout);
            for copy in layout.copies().take(20_000) {
                let _ = copy;
            }
        }
    });
}

#[test]
fn manifests() {
    let seeds = vec![vec![0; 160], b"EPHM".repeat(40)];
    fuzz("manifests", seeds, |bytes| {
        if let Ok(manifest) = Manifest::decode(bytes) {
            assert_eq!(manifest.encode(), bytes);
        }
    });
}

#[test]
fn stamps() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("data");
    let dir = DataDir::lock(&path).expect("a new data directory");
    let joined = "cluster=00112233445566778899aabbccddeeff\npartitions=64\n";
    let alone = "format=3\nnode=00112233445566778899aabbccddeeff\nstores=2\n";
    let seeds = [alone.to_owned(), format!("{alone}{joined}"), String::new()];
    let seeds = seeds.map(String::into_bytes).to_vec();
    let mut count = 0;
    fuzz("stamps", seeds, |bytes| {
        // Files are slow.
        count += 1;
        if count % 8 == 0 {
            let sum = format!("crc32={:08x}\n", crc32fast::hash(bytes));
            let text = [bytes, sum.as_bytes()].concat();
            std::fs::write(path.join("stamp"), text).expect("a file");
            if let Err(error) = dir.stamp() {
                assert!(!error.to_string().is_empty());
            }
        }
    });
}
