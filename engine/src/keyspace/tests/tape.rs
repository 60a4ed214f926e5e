//! A keyspace whose log writes are taken down instead of written.

use std::collections::BTreeMap;

use ephesus_wal::tape::Records;
pub(crate) use ephesus_wal::tape::{complete, take_down};
use ephesus_wal::{FaultDisk, LogId, LogOptions, LogWriter, open_writer, recover};
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::{Epoch, Lsn, Partitioning, slot_of};
use futures_lite::future::block_on;

use crate::command::error::ClientError;
use crate::command::spec::lookup;
use crate::keyspace::replay::{Rebuild, Replay};
use crate::keyspace::{Keyspace, Partition, Reply};
use crate::table::KeyHasher;

/// What a table holds: keys with value and expiry.
pub(crate) type Keys = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// A keyspace of all partitions and what its log wrote.
pub(crate) struct Taped {
    pub(crate) keyspace: Keyspace,
    pub(crate) records: Records,
    pub(crate) hasher: KeyHasher,
    pub(crate) partitioning: Partitioning,
}

/// A log that has no spare segment.
pub(crate) fn log(segment_bytes: u64) -> LogWriter {
    let options = LogOptions {
        segment_bytes,
        ..LogOptions::new(LogId([9; 16]))
    };
    let disk = FaultDisk::new(1);
    block_on(async {
        let recovered = recover(&disk, &options, Lsn::ZERO, &mut |_, _| Ok(())).await?;
        open_writer(&disk, &options, &recovered, Lsn::ZERO, 0).await
    })
    .expect("a disk without faults")
    .writer
}

impl Taped {
    pub(crate) fn new(partitions: u16, now_ms: u64) -> Taped {
        let partitioning = Partitioning::new(partitions).expect("a valid number");
        let all = partitioning.partitions();
        let all = all.map(|id| Partition::new(id, Epoch(1))).collect();
        Taped::of(partitions, all, [1, 2, 3, 4], now_ms)
    }

    /// A keyspace with these copies of `partitions` partitions, which hashes keys in its own way.
    pub(crate) fn of(
        partitions: u16,
        copies: Vec<Partition>,
        seeds: [u64; 4],
        now_ms: u64,
    ) -> Taped {
        let partitioning = Partitioning::new(partitions).expect("a valid number");
        let hasher = KeyHasher::with_seeds(seeds);
        let log = log(4 << 20);
        let keyspace = Keyspace::new(partitioning, copies, hasher.clone(), log, now_ms);
        Taped {
            keyspace,
            records: Vec::new(),
            hasher,
            partitioning,
        }
    }

    /// Completes everything that the log wants written, and takes down its records.
    pub(crate) fn commit(&mut self) {
        take_down(&mut self.keyspace.log, &mut self.records);
    }

    /// Replays the records behind `from` over `loaded`.
    pub(crate) fn replay(&self, loaded: Vec<Rebuild>, from: Lsn) -> Vec<Partition> {
        let count = self.partitioning.count();
        let mut replay = Replay::new(self.hasher.clone(), count, loaded);
        for (lsn, record) in self.records.iter().filter(|(lsn, _)| *lsn > from) {
            replay.record(*lsn, record).expect("a good record");
        }
        replay.finish().expect("dense sequences")
    }

    /// Checks that the log alone rebuilds the keyspace to the last byte.
    pub(crate) fn assert_replays(&mut self) {
        self.commit();
        let expected: Vec<u64> = (1..=self.keyspace.log.appended().0).collect();
        let found: Vec<u64> = self.records.iter().map(|(lsn, _)| lsn.0).collect();
        assert_eq!(found, expected, "LSNs are dense");
        let all = self.partitioning.partitions();
        let all = all.map(|id| Rebuild::new(id, Epoch(1))).collect();
        let rebuilt = self.replay(all, Lsn::ZERO);
        for (rebuilt, original) in rebuilt.iter().zip(self.keyspace.partitions()) {
            assert_eq!(rebuilt.seq(), original.seq(), "sequences are dense");
        }
        assert_eq!(
            contents(rebuilt.iter()),
            contents(self.keyspace.partitions())
        );
    }
}

/// Executes a command and answers its reply.
pub(crate) fn execute(keyspace: &mut Keyspace, args: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let (mut out, _, executed) = attempt(keyspace, args);
    if let Err(error) = executed {
        error.write(&mut out);
    }
    out
}

/// Executes a command that has to succeed.
pub(crate) fn execute_valid(keyspace: &mut Keyspace, args: &[impl AsRef<[u8]>]) {
    let (_, _, executed) = attempt(keyspace, args);
    executed.expect("a valid command");
}

/// Executes a command; answers what it has written as its reply, the reply's gate, and whether it was refused.
pub(crate) fn attempt(
    keyspace: &mut Keyspace,
    args: &[impl AsRef<[u8]>],
) -> (Vec<u8>, Lsn, Result<(), ClientError>) {
    let mut out = Vec::new();
    let mut reply = Reply {
        out: &mut out,
        protocol: Protocol::Resp2,
        gate: Lsn::ZERO,
    };
    let spec = lookup(args[0].as_ref()).expect("a command");
    let slot = slot_of(args[1].as_ref());
    let executed = keyspace.execute(spec, args, slot, &mut reply);
    let gate = reply.gate;
    (out, gate, executed)
}

/// Everything in some partitions, expired keys included.
pub(crate) fn contents<'a>(partitions: impl Iterator<Item = &'a Partition>) -> Keys {
    let mut keys = Keys::new();
    for partition in partitions {
        let mut cursor = 0;
        loop {
            cursor = partition.table.scan(cursor, &mut |_, entry| {
                let value = (entry.value.to_vec(), entry.expire_at_ms);
                assert!(keys.insert(entry.key.to_vec(), value).is_none());
            });
            if cursor == 0 {
                break;
            }
        }
    }
    keys
}
