//! What a data directory holds: groups of logs, layouts, manifests, stamps.

use ephesus_coordinator::command::ClusterId;
use ephesus_engine::image::{Generation, ImageId, manifest::Manifest};
use ephesus_engine::node::data_dir::{DataDir, Joined, Layout, StagingPlace, Stamp};
use ephesus_wal::group::{Place, decode_group, decode_header, encode_header};
use ephesus_wal::{FaultDisk, LogId, LogOptions};
use ephesus_wire::record::Source;
use ephesus_wire::{Epoch, Lsn, MigrationId, NodeId, PartitionId, ShardId};

use super::mutations::fuzz;

/// With the right checksum, which layouts and manifests have at the same place.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some((head, covered)) = bytes.split_first_chunk_mut::<8>() {
        head[4..].copy_from_slice(&crc32fast::hash(covered).to_le_bytes());
    }
    bytes
}

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
            ephesus_wal::recover(&disk, &options, Lsn::ZERO, &mut |_, _| Ok(())).await?;
        ephesus_wal::open_writer(&disk, &options, &recovered, Lsn::ZERO, 5).await
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
    let source = Source {
        migration: MigrationId(7),
        node: NodeId([7; 16]),
        shard: ShardId(1),
    };
    let logs = (0..3).map(|n| LogId([n; 16]));
    let mut layout = Layout::empty(16, logs);
    let empty = layout.encode();
    for (index, place) in layout.partitions.iter_mut().enumerate() {
        *place = (ShardId(index as u16 % 3), Epoch(2));
    }
    let served = layout.encode();
    for partition in [3, 5].map(PartitionId) {
        let shard = ShardId((partition.0 + 1) % 3);
        let epoch = Epoch(3);
        let staging = StagingPlace {
            partition,
            shard,
            epoch,
            source,
        };
        layout.add_staging(staging).expect("another shard");
    }
    let seeds = vec![empty, served, layout.encode()];
    fuzz("layouts", seeds, |bytes| {
        for bytes in [bytes.to_vec(), sealed(bytes)] {
            let Ok(layout) = Layout::decode(&bytes) else {
                continue;
            };
            let again = Layout::decode(&layout.encode()).expect("what was read can be written");
            assert!(again == layout);
            for (partition, shard, epoch) in layout.copies().take(20_000) {
                assert!(layout.names(partition, epoch));
                let _ = layout.log(shard);
            }
            let mut settled = layout.clone();
            for staging in layout.staging() {
                let _ = layout.log(staging.shard);
                assert!(settled.promote(staging.partition, staging.epoch));
            }
        }
    });
}

#[test]
fn manifests() {
    let manifest = |n: u64| Manifest {
        image: ImageId {
            partition: PartitionId(n as u16),
            epoch: Epoch(n + 1),
            generation: Generation(n + 2),
        },
        log: [n as u8; 16],
        lsn_start: Lsn(n << 20),
        lsn_end: Lsn((n << 20) + 9),
        seq_start: n,
        count: n * 3,
        digest: [n, n << 40],
        blocks: n,
        bytes: n << 12,
        created_ms: 1_700_000_000_000,
    };
    let seeds = (0..4).map(|n| manifest(n).encode().to_vec());
    fuzz("manifests", seeds.collect(), |bytes| {
        for bytes in [bytes.to_vec(), sealed(bytes)] {
            if let Ok(manifest) = Manifest::decode(&bytes) {
                assert_eq!(manifest.encode()[..], bytes);
                let _ = manifest.image.generation.next();
            }
        }
    });
}

#[test]
fn stamps() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("data");
    let dir = DataDir::lock(&path).expect("a new data directory");
    let joined = Joined {
        cluster: ClusterId([7; 16]),
        partitions: 64,
    };
    let stamps = [None, Some(joined)].map(|joined| Stamp {
        node: NodeId([9; 16]),
        stores: 2,
        joined,
    });
    let body = |stamp: &Stamp| {
        dir.write_stamp(stamp).expect("a file");
        let text = std::fs::read(path.join("stamp")).expect("a stamp");
        let sum = text.windows(6).position(|word| word == b"crc32=");
        text[..sum.expect("a checksum")].to_vec()
    };
    let seeds: Vec<_> = stamps.iter().map(body).collect();
    let mut count = 0;
    fuzz("stamps", seeds, |bytes| {
        // Files are slow.
        count += 1;
        if count % 8 == 0 {
            let sum = format!("crc32={:08x}\n", crc32fast::hash(bytes));
            let text = [bytes, sum.as_bytes()].concat();
            std::fs::write(path.join("stamp"), text).expect("a file");
            match dir.stamp() {
                Ok(stamp) => assert!(stamp.is_some_and(|stamp| stamp.stores > 0)),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    });
}
