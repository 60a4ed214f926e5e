//! Recovery of one log over the manifests of its images alone: for `ephesus check`.

use ephesus_wal::{VisitError, Visitor};
use ephesus_wire::digest::Digest;
use ephesus_wire::{Epoch, Lsn, PartitionId, ShardId};

use super::vouching::Vouching;
use super::{RecoveryError, copies_of};
use crate::image::Manifest;
use crate::keyspace::replay::{Rebuild, Replay, ReplayError};
use crate::node::data_dir::Layout;
use crate::table::KeyHasher;

/// What is known of a copy's image.
#[derive(Clone, Copy, Debug)]
pub enum Known {
    Image(Manifest),
    NoImage,
    /// Its store cannot be read.
    Nothing,
}

/// Follows the records of one log as recovery does; in memory is only what the log holds.
pub struct DryRun {
    vouching: Vouching,
    replay: Replay,
    refused: Option<ReplayError>,
    problems: Vec<RecoveryError>,
}

impl DryRun {
    /// Begins with what is known of the images of `shard`'s copies.
    #[must_use]
    pub fn new(
        layout: &Layout,
        shard: ShardId,
        stores: u16,
        known: &dyn Fn(PartitionId, Epoch) -> Known,
    ) -> DryRun {
        let mut vouching = Vouching::new(layout.log(shard), stores);
        let (mut loaded, mut problems) = (Vec::new(), Vec::new());
        for copy in copies_of(layout, shard) {
            let manifest = match known(copy.partition, copy.epoch) {
                Known::Image(manifest) => Ok(Some(manifest)),
                Known::NoImage => Ok(None),
                Known::Nothing => Err(None),
            };
            let vouched = manifest.and_then(|manifest| {
                let vouched = vouching.image(&copy, manifest.as_ref());
                vouched.map(|()| manifest).map_err(Some)
            });
            loaded.push(match vouched {
                Ok(manifest) => stand_in(copy.rebuild(), manifest),
                Err(problem) => {
                    problems.extend(problem);
                    // Passes over its records, which are of a lower epoch, and misses no image.
                    Rebuild::new(copy.partition, Epoch(u64::MAX))
                }
            });
        }
        let partitions = layout.partitions.len() as u16;
        DryRun {
            vouching,
            replay: Replay::new(KeyHasher::random(), partitions, loaded).skipping_others(),
            refused: None,
            problems,
        }
    }

    /// Why a start would refuse the log, which reaches `last`, and its images.
    #[must_use]
    pub fn finish(self, last: Lsn) -> Vec<RecoveryError> {
        let DryRun {
            vouching,
            replay,
            refused,
            mut problems,
        } = self;
        problems.extend(refused.map(RecoveryError::from));
        match vouching.check_images(&replay) {
            Ok(()) => problems.extend(replay.finish().err().map(RecoveryError::from)),
            // It explains the records that are missing besides.
            Err(lost) => problems.push(lost),
        }
        problems.extend(vouching.check_end(last).err());
        problems
    }
}

/// A copy as its image leaves it, but for the keys.
#[expect(
    clippy::expect_used,
    reason = "a copy without keys is what the manifest says"
)]
fn stand_in(mut rebuild: Rebuild, manifest: Option<Manifest>) -> Rebuild {
    if let Some(manifest) = manifest {
        let without_keys = Manifest {
            count: 0,
            digest: Digest::EMPTY.to_words(),
            ..manifest
        };
        let begun = rebuild.image_complete(&without_keys);
        begun.expect("a copy without keys");
    }
    rebuild
}

impl Visitor for DryRun {
    fn ahead(&mut self, _: Lsn, _: &[u8]) {}

    fn visit(&mut self, lsn: Lsn, record: &[u8]) -> Result<(), VisitError> {
        if self.refused.is_none() {
            self.refused = self.replay.record(lsn, record).err();
        }
        Ok(())
    }
}
