//! A store and the way to it: requests wait in a queue and are carried out one by one, whenever the
//! run says so.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::image::fault::FaultStore;
use crate::image::{
    DbId, ImageStore, ImageWriter, StoreReply, StoreRequest, TrySendError, WriterError,
};
use crate::shard::StoreLink;

/// Requests that wait at most.
const QUEUE_MAX: usize = 6;

pub(super) struct SimStore {
    pub(super) store: FaultStore,
    writers: BTreeMap<u16, ImageWriter>,
    requests: VecDeque<(usize, StoreRequest)>,
    replies: Vec<VecDeque<StoreReply>>,
    refused: Vec<bool>,
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
        }
    }

    pub(super) fn link(store: &Rc<RefCell<SimStore>>, shard: usize) -> SimLink {
        SimLink {
            store: Rc::clone(store),
            shard,
        }
    }

    /// Carries out the next request, if there is one.
    pub(super) fn work(&mut self) -> Result<(), WriterError> {
        let Some((shard, request)) = self.requests.pop_front() else {
            return Ok(());
        };
        match request {
            StoreRequest::Begin(image) => {
                let writer = ImageWriter::begin(&mut self.store, image)?;
                self.writers.insert(image.partition.0, writer);
            }
            StoreRequest::Block(image, block) => {
                let writer = self.writers.get_mut(&image.partition.0).expect("begun");
                writer.put(&mut self.store, &block)?;
            }
            StoreRequest::Seal(image) => {
                let writer = self.writers.get_mut(&image.partition.0).expect("begun");
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
                let mut writer = self.writers.remove(&image.partition.0).expect("begun");
                writer.switch(&mut self.store, &manifest)?;
                self.replies[shard].push_back(StoreReply::Switched(image));
                writer.sweep(&mut self.store)?;
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
}

/// New, empty stores.
pub(super) fn empty(count: u16) -> Vec<FaultStore> {
    (0..count).map(|db| FaultStore::new(DbId(db))).collect()
}
