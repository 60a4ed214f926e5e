//! Copies that leave: their images go, then what the keyspace has left of them.
//!
//! ```text
//! FROM      TO        [by]
//! (none)    Waiting   [begin]     the layout does not name the copy any more
//! Waiting   Asked     [advance]   no image of it is under way: the store is asked to remove them all
//! Waiting   Removed   [advance]   it never had an image, or is not here
//! Waiting   Refused   [advance]   its store has no room for a request
//! Refused   Waiting   [has_room]  its store has room again
//! Asked     Removed   [removed]   they are gone, durably: the keyspace forgets the copy
//! ```
//!
//! A crash on the way leaves images of a copy that the layout does not name: the next start removes them. The
//! log may name them until then, and later too: that counts for copies that the layout names, from
//! the record on that began them.

use ephesus_wire::{Epoch, PartitionId};

use super::StoreLink;
use crate::image::{DbId, Generation, StoreRequest, TrySendError};
use crate::keyspace::Keyspace;

type Copy = (PartitionId, Epoch);

/// The copies of one shard that leave.
#[derive(Debug, Default)]
pub(super) struct Removals {
    waiting: Vec<Copy>,
    /// Not looked at before their store tells of room: every turn looks at those that wait.
    refused: Vec<(DbId, Copy)>,
    asked: Vec<Copy>,
    removed: Vec<Copy>,
}

impl Removals {
    /// A copy is to go; nothing happens if it is going already.
    pub(super) fn begin(&mut self, partition: PartitionId, epoch: Epoch) {
        let copy = (partition, epoch);
        let is_refused = self.refused.iter().any(|(_, refused)| *refused == copy);
        if !is_refused && !self.waiting.contains(&copy) && !self.asked.contains(&copy) {
            self.waiting.push(copy);
        }
    }

    /// A store has room again.
    pub(super) fn has_room(&mut self, db: DbId) {
        let again = self.refused.extract_if(.., |(of, _)| *of == db);
        self.waiting.extend(again.map(|(_, copy)| copy));
    }

    /// Goes on with those for which nothing is left to wait for.
    ///
    /// # Errors
    /// A store thread has ended.
    #[expect(clippy::indexing_slicing, reason = "a partition has one of the stores")]
    pub(super) fn advance<L: StoreLink>(
        &mut self,
        keyspace: &mut Keyspace,
        links: &[L],
    ) -> Result<(), String> {
        for (partition, epoch) in std::mem::take(&mut self.waiting) {
            let copy = keyspace.partition(partition).filter(|p| p.epoch == epoch);
            let Some(copy) = copy else {
                self.removed.push((partition, epoch));
                continue;
            };
            if !copy.is_empty_remnant() {
                tracing::warn!(%partition, %epoch, "a copy that is in use was to be removed");
                continue;
            }
            if copy.is_imaging() {
                self.waiting.push((partition, epoch));
                continue;
            }
            if copy.generation == Generation(0) {
                self.forget(partition, epoch, keyspace);
                continue;
            }
            let db = DbId::of(partition, links.len() as u16);
            if self.refused.iter().any(|(full, _)| *full == db) {
                self.refused.push((db, (partition, epoch)));
                continue;
            }
            let request = StoreRequest::DropCopy(partition, epoch);
            match links[usize::from(db.0)].try_send(request) {
                Ok(()) => self.asked.push((partition, epoch)),
                Err(TrySendError::Full(_)) => self.refused.push((db, (partition, epoch))),
                Err(stopped) => return Err(stopped.to_string()),
            }
        }
        Ok(())
    }

    /// The store has removed the images of a copy.
    pub(super) fn removed(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        keyspace: &mut Keyspace,
    ) {
        self.asked.retain(|asked| *asked != (partition, epoch));
        self.forget(partition, epoch, keyspace);
    }

    /// A removal, of those whose partition `may` be meant, that its store does not answer.
    pub(super) fn awaited(&self, may: impl Fn(PartitionId) -> bool) -> Option<Copy> {
        let mut asked = self.asked.iter();
        asked.find(|(id, _)| may(*id)).copied()
    }

    pub(super) fn take_removed(&mut self) -> Vec<Copy> {
        std::mem::take(&mut self.removed)
    }

    fn forget(&mut self, partition: PartitionId, epoch: Epoch, keyspace: &mut Keyspace) {
        assert!(
            keyspace.forget(partition),
            "a copy that leaves is not used again before it is forgotten"
        );
        self.removed.push((partition, epoch));
    }
}
