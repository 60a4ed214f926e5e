//! Bits that flip on the disks and in the stores of a node that is down.
//!
//! Allowed is a recovery that refuses and names the place; one that finds everything; and one that
//! cuts a log at the bad group if no other group says that it was durable, as if it were torn.

use std::ops::{AddAssign, ControlFlow};

use ephesus_wal::group::{GroupHeader, Place, decode_group};
use ephesus_wal::{Disk, FaultDisk, SegmentId};
use ephesus_wire::{Lsn, PartitionId};
use futures_lite::future::block_on;

use super::*;
use crate::image::ReadError;
use crate::image::manifest::parse_extent_key;
use crate::node::recovery::ReplayedLogs;

/// What became of flips.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Flips {
    pub(in super::super) refused_logs: u64,
    pub(in super::super) refused_images: u64,
    /// A log has lost records for which no group vouched.
    pub(in super::super) cut: u64,
    pub(in super::super) unharmed: u64,
}

impl AddAssign for Flips {
    fn add_assign(&mut self, more: Flips) {
        self.refused_logs += more.refused_logs;
        self.refused_images += more.refused_images;
        self.cut += more.cut;
        self.unharmed += more.unharmed;
    }
}

/// A good group of a log.
#[derive(Clone, Copy, Debug)]
struct Written {
    segment: SegmentId,
    offset: u64,
    header: GroupHeader,
}

impl Written {
    /// Whether this group says that `other` was durable.
    fn vouches_for(&self, other: &Written) -> bool {
        let first_lsn = other.header.first_lsn;
        if self.header.incarnation == other.header.incarnation {
            self.header.durable_lsn >= first_lsn
        } else {
            self.header.incarnation > other.header.incarnation && self.header.prev_end >= first_lsn
        }
    }
}

/// The good groups of a log.
fn written(disk: &FaultDisk, log_id: LogId) -> Vec<Written> {
    let names = block_on(disk.list()).expect("no failures");
    let mut found = Vec::new();
    for segment in names.iter().filter_map(|n| SegmentId::from_file_name(n)) {
        let bytes = disk.contents(&segment.file_name()).expect("listed");
        let place = Place {
            log_id,
            segment: Some(segment),
        };
        let mut offset = 0;
        while offset < bytes.len() as u64 {
            let Ok(group) = decode_group(&bytes[offset as usize..], place) else {
                offset += 4096;
                continue;
            };
            let header = group.header;
            found.push(Written {
                segment,
                offset,
                header,
            });
            offset += header.disk_bytes();
        }
    }
    found
}

/// Whether this is where `hit` is, or where it would have been if a segment had not been full.
fn is_place_of(hit: &Written, file: &str, offset: u64, groups: &[Written]) -> bool {
    let before = groups
        .iter()
        .take_while(|group| group.segment < hit.segment)
        .last();
    let is_end = |group: &Written| {
        let end = group.offset + group.header.disk_bytes();
        hit.offset == 0 && (group.segment.file_name().as_str(), end) == (file, offset)
    };
    (hit.segment.file_name().as_str(), hit.offset) == (file, offset) || before.is_some_and(is_end)
}

impl World {
    /// Lets everything land that was in flight when a process was killed.
    pub(in super::super) fn land(&self) {
        for disk in self.home.logs() {
            disk.land();
        }
    }

    /// Flips so many bits, one at a time, and checks what recovery makes of each; changes nothing.
    pub(in super::super) fn flip_bits(&mut self, count: u64) -> Result<Flips, String> {
        let find = |world: &World| world.find(&mut snapshot(&world.stores));
        let whole = find(self).map_err(|error| format!("cannot be replayed: {error}"))?;
        for history in &self.histories {
            history.check(&whole, self.clock)?;
        }
        let mut flips = Flips::default();
        for _ in 0..count {
            if self.rng.one_in(2) {
                self.flip_log(&whole, &mut flips)?;
            } else {
                self.flip_image(&whole, &mut flips)?;
            }
        }
        match find(self) {
            Ok(found) if found == whole => Ok(flips),
            Ok(_) => Err("recoveries have changed what is there".into()),
            Err(error) => Err(format!("recoveries have broken what is there: {error}")),
        }
    }

    /// What a recovery finds, without opening anything.
    fn find(&self, stores: &mut [FaultStore]) -> Result<Keys, RecoveryError> {
        remove_garbage(stores)?;
        let layout = self.home.layout();
        let progress = Progress::default();
        let ReplayedLogs(replayed) = self.recovery().replay_with(&progress, &layout, stores)?;
        Ok(contents(replayed.iter().flat_map(|log| &log.partitions)))
    }

    fn flip_log(&mut self, whole: &Keys, flips: &mut Flips) -> Result<(), String> {
        let layout = self.home.layout();
        let shard = self.rng.below(u64::from(layout.shards())) as u16;
        let log = layout.log(ShardId(shard));
        let disk = self.home.log(log);
        let groups = written(&disk, log);
        let hit = *self.rng.pick(&groups);
        let bytes = hit.header.disk_bytes();
        // Half of them in the header: most records are longer.
        let within = match self.rng.below(2) {
            0 => self.rng.below(128),
            _ => self.rng.below(bytes),
        };
        let is_padding = within >= u64::from(hit.header.byte_len);
        let (name, offset) = (hit.segment.file_name(), hit.offset + within);
        let bit = self.rng.below(8) as u8;
        disk.flip_bit(&name, offset, bit);
        let result = self.find(&mut snapshot(&self.stores));
        disk.flip_bit(&name, offset, bit);

        let place = format!("log {log}, {name}, byte {offset}, bit {bit}, {hit:?}");
        let found = match result {
            Ok(found) if found == *whole => {
                flips.unharmed += 1;
                return Ok(());
            }
            Ok(found) => found,
            Err(error) => {
                flips.refused_logs += 1;
                let is_named = match &error {
                    RecoveryError::Log {
                        log: named,
                        source: WalError::Damage { file, offset, .. },
                    } => *named == log && is_place_of(&hit, file, *offset, &groups),
                    RecoveryError::ShortLog { log: named, .. } => *named == log,
                    _ => false,
                };
                if is_padding || !is_named {
                    return Err(format!("{place}: refused with: {error}"));
                }
                return Ok(());
            }
        };
        let is_other =
            |group: &&Written| (group.segment, group.offset) != (hit.segment, hit.offset);
        let mut others = groups.iter().filter(is_other);
        if is_padding || others.any(|group| group.vouches_for(&hit)) {
            return Err(format!("{place}: served without what was durable"));
        }
        flips.cut += 1;
        for (number, history) in self.histories.iter().enumerate() {
            let checked = if number == usize::from(shard) {
                history.check_cut(&found, Lsn(hit.header.first_lsn), self.clock)
            } else {
                history.check(&found, self.clock)
            };
            checked.map_err(|violation| format!("{place}: {violation}"))?;
        }
        Ok(())
    }

    fn flip_image(&mut self, whole: &Keys, flips: &mut Flips) -> Result<(), String> {
        let mut values: Vec<(usize, PartitionId, Vec<u8>, Vec<u8>)> = Vec::new();
        for (number, store) in self.stores.iter().enumerate() {
            for partition in store.partitions() {
                let listed = store.scan_prefix(partition, &[], &mut |key, value| {
                    if !value.is_empty() {
                        values.push((number, partition, key.to_vec(), value.to_vec()));
                    }
                    ControlFlow::Continue(())
                });
                listed.expect("no failures");
            }
        }
        if values.is_empty() {
            return Ok(());
        }
        let (number, partition, key, right) = self.rng.pick(&values).clone();
        let bit = self.rng.below(8 * right.len() as u64) as usize;
        let mut wrong = right.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let mut stores = snapshot(&self.stores);
        stores[number].corrupt(partition, &key, &wrong);

        let place = format!("partition {partition}, key {key:02x?}, bit {bit}");
        let error = match self.find(&mut stores) {
            Ok(found) if found == *whole => {
                flips.unharmed += 1;
                return Ok(());
            }
            Ok(_) => return Err(format!("{place}: served without a word")),
            Err(error) => error,
        };
        flips.refused_images += 1;
        let is_named = match (&error, parse_extent_key(&key)) {
            (
                RecoveryError::Image(
                    ReadError::Extent { image, extent, .. }
                    | ReadError::Block { image, extent, .. },
                ),
                Some(flipped),
            ) => {
                (image.partition, (image.epoch, image.generation, *extent)) == (partition, flipped)
            }
            (RecoveryError::Image(ReadError::Manifest { partition: p, .. }), None) => {
                *p == partition
            }
            _ => false,
        };
        if !is_named {
            return Err(format!("{place}: refused with: {error}"));
        }
        // The refusal has removed nothing: with the bit mended everything is there.
        stores[number].corrupt(partition, &key, &right);
        match self.find(&mut stores) {
            Ok(found) if found == *whole => Ok(()),
            Ok(_) => Err(format!("{place}: lost by the refusal")),
            Err(error) => Err(format!("{place}: broken by the refusal: {error}")),
        }
    }
}
