//! What all stores together say about the images of copies.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::{Epoch, PartitionId};

use super::store::Findings;
use crate::image::{DbId, Manifest};
use crate::node::recovery::Known;

/// The images of a data directory.
#[derive(Debug)]
pub struct Images {
    stores: u16,
    /// Of the stores that can be read.
    manifests: BTreeMap<(PartitionId, Epoch), Manifest>,
    unreadable: Vec<DbId>,
    unlisted: BTreeSet<PartitionId>,
}

impl Images {
    /// Of so many stores, nothing is known yet.
    #[must_use]
    pub fn of(stores: u16) -> Images {
        Images {
            stores,
            manifests: BTreeMap::new(),
            unreadable: Vec::new(),
            unlisted: BTreeSet::new(),
        }
    }

    /// Takes in what one store holds; `None`: it cannot be read.
    pub fn add(&mut self, db: DbId, findings: Option<&Findings>) {
        let Some(findings) = findings else {
            return self.unreadable.push(db);
        };
        for manifest in findings.images.iter().map(|image| image.manifest()) {
            let copy = (manifest.image.partition, manifest.image.epoch);
            self.manifests.insert(copy, manifest);
        }
        let unlisted = findings.unlisted.iter();
        self.unlisted
            .extend(unlisted.map(|(id, _)| PartitionId(*id)));
    }

    /// What is known of a copy's image.
    #[must_use]
    pub fn known(&self, partition: PartitionId, epoch: Epoch) -> Known {
        let db = DbId::of(partition, self.stores);
        if self.unreadable.contains(&db) || self.unlisted.contains(&partition) {
            return Known::Nothing;
        }
        let manifest = self.manifests.get(&(partition, epoch));
        manifest.copied().map_or(Known::NoImage, Known::Image)
    }
}
