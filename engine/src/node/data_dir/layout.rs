//! Which copies a node has, on which shard, and which log each shard writes.
//!
//! ```text
//!  0      4      8         9
//!  +------+------+---------+----------------------------+
//!  | LAYO | crc  | version | postcard of a Layout       |
//!  | 4 B  | u32  |  u8     |                            |
//!  +------+------+---------+----------------------------+
//!  crc: of all that follows it, little-endian
//! ```
//!
//! Version 1 had neither the first word nor the version, and no staging copies.
//!
//! A copy is here if and only if it is named: what logs and images hold of other copies is void. So a copy is
//! named durably before anything of it is written, and its images go only once it is not named any more.
//!
//! ```text
//! FROM      TO        [call]
//! (none)    served    [add_copies]      the table gives it here, empty
//! (none)    staging   [add_staging]     a stream is about to fill it
//! staging   served    [promote]         its activation is durable, or decided and found at a start
//! staging   (none)    [remove_staging]  wiped, or void at a start
//! served    (none)    [remove_copy]     given up
//! ```

use ephesus_wal::LogId;
use ephesus_wire::limits::SLOTS;
use ephesus_wire::record::Source;
use ephesus_wire::{Epoch, PartitionId, ShardId};
use serde::{Deserialize, Serialize};

/// Begins the file.
const MAGIC: [u8; 4] = *b"LAYO";

/// What [`Layout::encode`] writes.
const VERSION: u8 = 2;

/// Where a partition's copy is; with [`NO_COPY`], there is none.
pub type Place = (ShardId, Epoch);

/// The epoch of a partition of which there is no copy.
pub const NO_COPY: Epoch = Epoch(0);

/// Which shard has which partition, and which log each shard writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// One log per shard.
    pub logs: Vec<[u8; 16]>,
    /// By partition: the copy that is served.
    pub partitions: Vec<Place>,
    /// By partition: whether it began with an image, because another layout had its records.
    pub has_image: Vec<bool>,
    /// Copies that streams fill, at most one of each partition, sorted by partition.
    staging: Vec<StagingPlace>,
}

/// A staging copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagingPlace {
    /// What it is a copy of.
    pub partition: PartitionId,
    /// Which shard of this node has it.
    pub shard: ShardId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Who fills it.
    pub source: Source,
}

/// A copy that another one cannot be beside: refuse the stream with this text, or wait until this copy is
/// forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("partition {partition} has a copy of epoch {epoch} on shard {shard} already")]
pub struct Occupied {
    /// Of the copy that is here.
    pub partition: PartitionId,
    /// Of the copy that is here.
    pub shard: ShardId,
    /// Of the copy that is here.
    pub epoch: Epoch,
}

/// Why bytes are no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Shorter than any layout.
    #[error("it is cut off")]
    CutOff,
    /// Not what was written.
    #[error("its checksum is wrong")]
    Checksum,
    /// A later release wrote it: use that one.
    #[error("it has version {0}, this release reads up to {VERSION}")]
    Version(u8),
    /// Its checksum is right: report this.
    #[error("{0}")]
    Body(postcard::Error),
    /// It contradicts itself although its checksum is right: report this.
    #[error("it names shards or partitions that it does not have")]
    Inconsistent,
}

impl Layout {
    /// A layout without copies.
    #[must_use]
    pub fn empty(partitions: u16, logs: impl Iterator<Item = LogId>) -> Layout {
        Layout {
            logs: logs.map(|log| log.0).collect(),
            partitions: vec![(ShardId(0), NO_COPY); usize::from(partitions)],
            has_image: vec![false; usize::from(partitions)],
            staging: Vec::new(),
        }
    }

    /// The copies that are served here.
    pub fn copies(&self) -> impl Iterator<Item = (PartitionId, ShardId, Epoch)> + '_ {
        let places = (0..).map(PartitionId).zip(&self.partitions);
        let copies = places.filter(|(_, (_, epoch))| *epoch != NO_COPY);
        copies.map(|(partition, &(shard, epoch))| (partition, shard, epoch))
    }

    /// The staging copies, sorted by partition.
    #[must_use]
    pub fn staging(&self) -> &[StagingPlace] {
        &self.staging
    }

    /// Where the served copy of a partition is.
    #[must_use]
    pub fn served(&self, partition: PartitionId) -> Option<Place> {
        let place = self.partitions.get(usize::from(partition.0)).copied();
        place.filter(|(_, epoch)| *epoch != NO_COPY)
    }

    /// The staging copy of a partition.
    #[must_use]
    pub fn staging_of(&self, partition: PartitionId) -> Option<&StagingPlace> {
        self.staging.get(self.staging_place(partition).ok()?)
    }

    /// Whether the copy is here, served or staging.
    #[must_use]
    pub fn names(&self, partition: PartitionId, epoch: Epoch) -> bool {
        self.served(partition).is_some_and(|(_, of)| of == epoch)
            || self.staging_of(partition).is_some_and(|s| s.epoch == epoch)
    }

    /// Notes the copies of `plan` that are not here yet, and answers which; a partition of which there is
    /// another copy waits until that one is gone.
    pub fn add_copies(&mut self, plan: &[Place]) -> Vec<(PartitionId, ShardId, Epoch)> {
        let mut added = Vec::new();
        let plan = plan.iter().take(self.partitions.len());
        for (partition, &wanted) in (0..).map(PartitionId).zip(plan) {
            let is_new = self.served(partition).is_none() && self.staging_of(partition).is_none();
            if is_new && wanted.1 != NO_COPY {
                self.set_served(partition, wanted);
                added.push((partition, wanted.0, wanted.1));
            }
        }
        added
    }

    /// Notes a staging copy; another one on the same shard or of no lower epoch is in its way.
    ///
    /// A copy that was named before is in its way too until its shard has forgotten it: its images may
    /// still be there.
    ///
    /// # Errors
    /// The copy that is here; nothing has changed.
    pub fn add_staging(&mut self, new: StagingPlace) -> Result<(), Occupied> {
        let partition = new.partition;
        assert!(
            new.shard.0 < self.shards() && new.epoch != NO_COPY,
            "a staging copy is on a shard of this node and has an epoch"
        );
        if let Some(occupied) = self.in_the_way(partition, new.shard, new.epoch) {
            return Err(occupied);
        }
        if let Err(place) = self.staging_place(partition) {
            self.staging.insert(place, new);
        }
        Ok(())
    }

    /// The copy that is in the way of a staging one of this epoch on this shard.
    pub fn in_the_way(
        &self,
        partition: PartitionId,
        on: ShardId,
        epoch: Epoch,
    ) -> Option<Occupied> {
        let served = self.served(partition);
        let served = served.filter(|&(shard, here)| shard == on || here >= epoch);
        let staging = self.staging_of(partition);
        let staging = staging.map(|staging| (staging.shard, staging.epoch));
        let (shard, epoch) = served.or(staging)?;
        Some(Occupied {
            partition,
            shard,
            epoch,
        })
    }

    /// Names a staging copy no more; `None` when this one is not named.
    pub fn remove_staging(&mut self, partition: PartitionId, epoch: Epoch) -> Option<StagingPlace> {
        let place = self.staging_place(partition).ok()?;
        let is_it = self.staging.get(place)?.epoch == epoch;
        is_it.then(|| self.staging.remove(place))
    }

    /// A staging copy is served now, in place of an older copy that may be here; false when this one is not
    /// a staging copy.
    pub fn promote(&mut self, partition: PartitionId, epoch: Epoch) -> bool {
        let Some(promoted) = self.remove_staging(partition, epoch) else {
            return false;
        };
        self.set_served(partition, (promoted.shard, epoch));
        true
    }

    /// Names a served copy no more; false when this one is not served here, as when a newer copy of the
    /// partition is.
    pub fn remove_copy(&mut self, partition: PartitionId, epoch: Epoch) -> bool {
        let is_it = self.served(partition).is_some_and(|(_, of)| of == epoch);
        if is_it {
            self.set_served(partition, (ShardId(0), NO_COPY));
        }
        is_it
    }

    #[must_use]
    pub fn shards(&self) -> u16 {
        self.logs.len() as u16
    }

    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "whoever asks has a shard of this layout"
    )]
    pub fn log(&self, shard: ShardId) -> LogId {
        LogId(self.logs[usize::from(shard.0)])
    }

    /// As the file holds it.
    #[must_use]
    #[expect(clippy::expect_used, reason = "numbers and lists always encode")]
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_extend(self, vec![VERSION]);
        let body = body.expect("numbers and lists");
        let checksum = crc32fast::hash(&body).to_le_bytes();
        [&MAGIC, &checksum, &body[..]].concat()
    }

    /// Reads what [`Layout::encode`] writes, or what version 1 was.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn decode(bytes: &[u8]) -> Result<Layout, LayoutError> {
        let layout = match bytes.split_first_chunk::<4>() {
            Some((&MAGIC, rest)) => match checked(rest)?.split_first() {
                Some((&VERSION, body)) => postcard::from_bytes(body).map_err(LayoutError::Body)?,
                Some((&version, _)) => return Err(LayoutError::Version(version)),
                None => return Err(LayoutError::CutOff),
            },
            _ => first_version(checked(bytes)?)?,
        };
        match layout.is_consistent() {
            true => Ok(layout),
            false => Err(LayoutError::Inconsistent),
        }
    }

    fn is_consistent(&self) -> bool {
        let (shards, partitions) = (self.shards(), self.partitions.len());
        let mut logs = self.logs.clone();
        logs.sort_unstable();
        let are_logs = logs.is_sorted_by(|one, other| one < other);
        let are_counted = usize::from(shards) == logs.len() && partitions <= usize::from(SLOTS);
        let is_sorted = self.staging.is_sorted_by(|a, b| a.partition < b.partition);
        self.has_image.len() == partitions
            && are_logs
            && are_counted
            && is_sorted
            && self.copies().all(|(_, shard, _)| shard.0 < shards)
            && self.staging.iter().all(|staging| {
                let served = self.served(staging.partition);
                staging.shard.0 < shards
                    && usize::from(staging.partition.0) < partitions
                    && served.is_none_or(|(shard, _)| shard != staging.shard)
            })
    }

    /// Where the staging copy of a partition is in the list, or would be.
    fn staging_place(&self, partition: PartitionId) -> Result<usize, usize> {
        self.staging
            .binary_search_by_key(&partition, |staging| staging.partition)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "partitions are those of the layout"
    )]
    fn set_served(&mut self, partition: PartitionId, place: Place) {
        self.partitions[usize::from(partition.0)] = place;
        self.has_image[usize::from(partition.0)] = false;
    }
}

/// What a checksum in front is of.
fn checked(bytes: &[u8]) -> Result<&[u8], LayoutError> {
    let (checksum, body) = bytes.split_first_chunk::<4>().ok_or(LayoutError::CutOff)?;
    if u32::from_le_bytes(*checksum) != crc32fast::hash(body) {
        return Err(LayoutError::Checksum);
    }
    Ok(body)
}

fn first_version(body: &[u8]) -> Result<Layout, LayoutError> {
    #[derive(Deserialize)]
    struct First {
        logs: Vec<[u8; 16]>,
        partitions: Vec<Place>,
        has_image: Vec<bool>,
    }
    let First {
        logs,
        partitions,
        has_image,
    } = postcard::from_bytes(body).map_err(LayoutError::Body)?;
    Ok(Layout {
        logs,
        partitions,
        has_image,
        staging: Vec::new(),
    })
}

#[cfg(test)]
mod tests;
