//! A store and the way to it: requests wait in a queue and are carried out one by one, whenever the
//! run says so.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use ephesus_wire::{Epoch, PartitionId};

use crate::image::fault::FaultStore;
use crate::image::{
    DbId, ImageId, ImageStore, ImageWriter, ReadError, StoreReply, StoreRequest, TrySendError,
    drop_copy,
};
use crate::shard::StoreLink;

/// Requests that wait at most.
const QUEUE_MAX: usize = 6;

/// Each block so many after the last such one finds no room.
const BLOCKS_BEFORE_FULL: u64 = 31;

pub(super) struct SimStore {
    pub(super) store: FaultStore,
    writers: BTreeMap<(PartitionId, Epoch), ImageWriter>,
    requests: VecDeque<(usize, StoreRequest)>,
    replies: Vec<VecDeque<StoreReply>>,
    refused: Vec<bool>,
    /// Put so far.
    blocks: u64,
}

pub(super) struct SimLink {
    store: Rc<RefCell<SimStore>>,
    shard: usize,
}

impl SimStore {
    pub(super) fn new(store: FaultStore, shards: usize) -> SimStore {
        SimStore {
            store,
            writers: BTreeMap::new(),
            requests: VecDeque::new(),
            replies: vec![VecDeque::new(); shards],
            refused: vec![false; shards],
            blocks: 0,
        }
    }

    pub(super) fn link(store: &Rc<RefCell<SimStore>>, shard: usize) -> SimLink {
        SimLink {
            store: Rc::clone(store),
            shard,
        }
    }

    /// Carries out the next request, if there is one.
    pub(super) fn work(&mut self) -> Result<(), ReadError> {
        let Some((shard, request)) = self.requests.pop_front() else {
            return Ok(());
        };
        match request {
            StoreRequest::Begin { image, .. } => {
                let writer = ImageWriter::begin(&mut self.store, image)?;
                self.writers.insert(copy(image), writer);
            }
            // What comes of an image that was given up is passed over.
            StoreRequest::Block(image, _) | StoreRequest::Seal(image)
                if !self.writers.contains_key(&copy(image)) => {}
            StoreRequest::Block(image, block) => {
                let writer = self.writers.get_mut(&copy(image)).expect("begun");
                writer.put(&mut self.store, &block)?;
                self.blocks += 1;
                if self.blocks.is_multiple_of(BLOCKS_BEFORE_FULL) {
                    let writer = self.writers.remove(&copy(image)).expect("begun");
                    writer.abort(&mut self.store)?;
                    let replies = &mut self.replies[shard];
                    replies.push_back(StoreReply::NoRoom(image));
                    replies.push_back(StoreReply::Aborted(image));
                }
            }
            StoreRequest::Seal(image) => {
                let writer = self.writers.get_mut(&copy(image)).expect("begun");
                writer.seal(&mut self.store)?;
                let (blocks, bytes) = writer.written();
                self.replies[shard].push_back(StoreReply::Sealed {
                    image,
                    blocks,
                    bytes,
                });
            }
            StoreRequest::Switch(manifest) => {
                let image = manifest.image;
                let mut writer = self.writers.remove(&copy(image)).expect("begun");
                writer.switch(&mut self.store, &manifest)?;
                self.replies[shard].push_back(StoreReply::Switched(image));
                writer.sweep(&mut self.store)?;
            }
            StoreRequest::DropCopy(partition, epoch) => {
                drop_copy(&mut self.store, partition, epoch)?;
                self.replies[shard].push_back(StoreReply::Dropped { partition, epoch });
            }
            other => unreachable!("a checkpointer does not ask for {other:?}"),
        }
        if self.requests.len() <= QUEUE_MAX / 2 {
            let db = self.store.db();
            for (refused, replies) in self.refused.iter_mut().zip(&mut self.replies) {
                if std::mem::take(refused) {
                    replies.push_back(StoreReply::Capacity(db));
                }
            }
        }
        Ok(())
    }
}

impl StoreLink for SimLink {
    fn try_send(&self, request: StoreRequest) -> Result<(), TrySendError> {
        let mut store = self.store.borrow_mut();
        if store.requests.len() >= QUEUE_MAX {
            store.refused[self.shard] = true;
            return Err(TrySendError::Full(request));
        }
        store.requests.push_back((self.shard, request));
        Ok(())
    }

    fn try_recv(&self) -> Option<StoreReply> {
        self.store.borrow_mut().replies[self.shard].pop_front()
    }

    fn has_reply(&self) -> bool {
        !self.store.borrow().replies[self.shard].is_empty()
    }

    fn steps(&self) -> u64 {
        0
    }
}

fn copy(image: ImageId) -> (PartitionId, Epoch) {
    (image.partition, image.epoch)
}

/// New, empty stores.
pub(super) fn empty(count: u16) -> Vec<FaultStore> {
    (0..count).map(|db| FaultStore::new(DbId(db))).collect()
}
