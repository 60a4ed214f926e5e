//! What a log and the images of its copies say about each other.

use ephesus_wal::LogId;
use ephesus_wire::Lsn;

use super::RecoveryError;
use super::one_log::Copy;
use crate::image::{DbId, Generation, ImageId, Manifest};
use crate::keyspace::replay::Replay;

/// The images that one log belongs to.
pub(super) struct Vouching {
    log: LogId,
    /// Of the data directory.
    stores: u16,
    /// Of the images that were made with this log, the one that reaches furthest.
    last: Option<Manifest>,
}

impl Vouching {
    pub(super) fn new(log: LogId, stores: u16) -> Vouching {
        Vouching {
            log,
            stores,
            last: None,
        }
    }

    /// Takes note of a copy's image, or that it has none.
    ///
    /// # Errors
    /// [`RecoveryError::ForeignImage`] and [`RecoveryError::LostImage`].
    pub(super) fn image(
        &mut self,
        copy: &Copy,
        manifest: Option<&Manifest>,
    ) -> Result<(), RecoveryError> {
        let Some(manifest) = manifest else {
            return match copy.has_image {
                true => Err(self.lost(copy, Generation(1), Generation(0))),
                false => Ok(()),
            };
        };
        if manifest.log == self.log.0 {
            if self.last.is_none_or(|last| last.lsn_end < manifest.lsn_end) {
                self.last = Some(*manifest);
            }
        } else if !manifest.is_self_contained() {
            let (image, log) = (manifest.image, LogId(manifest.log));
            return Err(RecoveryError::ForeignImage { image, log });
        }
        Ok(())
    }

    /// Checks that all images are there which the log names.
    ///
    /// # Errors
    /// [`RecoveryError::LostImage`].
    pub(super) fn check_images(&self, replay: &Replay) -> Result<(), RecoveryError> {
        let Some((entry, found)) = replay.lost_image() else {
            return Ok(());
        };
        let copy = Copy {
            partition: entry.partition,
            epoch: entry.epoch,
            has_image: true,
            source: None,
        };
        Err(self.lost(&copy, Generation(entry.generation), found))
    }

    /// Checks that the log, which reaches `last`, has what the images were completed at, which was durable by then.
    ///
    /// # Errors
    /// [`RecoveryError::ShortLog`].
    pub(super) fn check_end(&self, last: Lsn) -> Result<(), RecoveryError> {
        match self.last {
            Some(Manifest { image, lsn_end, .. }) if last < lsn_end => {
                Err(RecoveryError::ShortLog {
                    log: self.log,
                    last,
                    image,
                    lsn_end,
                })
            }
            _ => Ok(()),
        }
    }

    /// No LSN up to this one may be given out again.
    pub(super) fn floor(&self) -> Lsn {
        self.last.map_or(Lsn::ZERO, |last| last.lsn_end)
    }

    fn lost(&self, copy: &Copy, needed: Generation, found: Generation) -> RecoveryError {
        RecoveryError::LostImage {
            needed: ImageId {
                partition: copy.partition,
                epoch: copy.epoch,
                generation: needed,
            },
            found,
            store: DbId::of(copy.partition, self.stores),
        }
    }
}
