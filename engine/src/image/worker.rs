//! What a store thread does: requests first, one by one, and in between the removal of blocks that nobody counts any
//! more, a slice at a time.
//!
//! Whoever waits for the store waits for one request, one sync or one slice at most, and each of them is a step that
//! clients can see. Nothing is written unless the store has room for it: an image for which there is none is given
//! up, and what is to be removed waits until there is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephesus_wire::{Epoch, PartitionId};

use super::manifest::{Generation, ImageId};
use super::reader::{ReadError, load};
use super::removal::{self, Removal, What};
use super::request::{StoreFault, StoreReply, StoreRequest};
use super::store::{DbId, IMAGE_ROOM, ImageStore, ROOM, StoreError};
use super::thread::{REQUESTS_MAX, Wake};
use super::writer::ImageWriter;

/// Refused clients are told to go on once the channel has drained to this many requests.
const RESUME_AT: usize = REQUESTS_MAX / 2;

/// They are told at least every this many requests, so that a busy neighbour cannot starve them.
const RESUME_EVERY: u32 = 32;

/// Most images that share one sync.
const SHARED_SYNC_MAX: usize = 32;

/// A slice of a removal follows so many requests at the latest: as many blocks go as may have come.
const REQUESTS_PER_SLICE: u32 = 64;

/// How often a removal without room is tried again.
const ROOM_RETRY: Duration = Duration::from_secs(1);

pub(super) enum Command {
    Request(StoreRequest, Arc<Port>),
    /// Makes a waiting worker look at its wanted class.
    Nudge,
}

/// One client's way back.
pub(super) struct Port {
    replies: flume::Sender<StoreReply>,
    wake: Wake,
    pub(super) refused: AtomicBool,
}

impl Port {
    pub(super) fn new(replies: flume::Sender<StoreReply>, wake: Wake) -> Port {
        Port {
            replies,
            wake,
            refused: AtomicBool::new(false),
        }
    }

    fn send(&self, reply: StoreReply) {
        // A client that is gone needs no answer.
        if self.replies.send(reply).is_ok() {
            (self.wake)();
        }
    }
}

type Copy = (PartitionId, Epoch);

/// The state that moves between the two threads.
pub(super) struct Worker {
    db: DbId,
    store: Box<dyn ImageStore>,
    writers: BTreeMap<Copy, ImageWriter>,
    requests: flume::Receiver<Command>,
    waiting: flume::Receiver<Arc<Port>>,
    ports: Arc<Mutex<Vec<Arc<Port>>>>,
    steps: Arc<AtomicU64>,
    since_resume: u32,
    /// What waits for the next sync, and who is told.
    unsynced: Vec<(Unsynced, Arc<Port>)>,
    /// Copies that leave and whose manifest is still there, and who is told.
    leaving: VecDeque<(Copy, Arc<Port>)>,
    /// What is to be removed, the oldest first.
    removals: VecDeque<Queued>,
    since_slice: u32,
    /// There was no room for the next slice.
    is_cramped: bool,
    /// By copy: the last image that there was no room for. What its shard had sent by then is passed over.
    given_up: BTreeMap<Copy, Generation>,
    fault: Option<StoreFault>,
}

/// A removal and who is told once it is done.
struct Queued {
    removal: Removal,
    told: Option<(StoreReply, Arc<Port>)>,
}

/// What the next sync of the store makes true.
#[derive(Clone, Copy, Debug)]
enum Unsynced {
    Sealed(ImageId),
    Switched(ImageId),
    /// The manifest of a copy is gone: its blocks, so many, may go.
    Unnamed(PartitionId, Epoch, u64),
}

/// Every client is gone.
struct Abandoned;

impl Worker {
    pub(super) fn new(
        store: Box<dyn ImageStore>,
        requests: flume::Receiver<Command>,
        waiting: flume::Receiver<Arc<Port>>,
        ports: Arc<Mutex<Vec<Arc<Port>>>>,
        steps: Arc<AtomicU64>,
    ) -> Worker {
        Worker {
            db: store.db(),
            store,
            writers: BTreeMap::new(),
            requests,
            waiting,
            ports,
            steps,
            since_resume: 0,
            unsynced: Vec::new(),
            leaving: VecDeque::new(),
            removals: VecDeque::new(),
            since_slice: 0,
            is_cramped: false,
            given_up: BTreeMap::new(),
            fault: None,
        }
    }

    /// Works while `stay`; returns itself for the other thread, `None` when stopped.
    pub(super) fn run(mut self, stay: impl Fn() -> bool) -> Option<Worker> {
        while stay() {
            match self.next() {
                Err(Abandoned) => return None,
                Ok(Some(Command::Request(StoreRequest::Stop, port))) => {
                    self.stop(&port);
                    return None;
                }
                Ok(Some(Command::Request(request, port))) => {
                    self.since_slice += 1;
                    self.answer(request, &port);
                }
                Ok(Some(Command::Nudge) | None) => {}
            }
            self.step();
            self.let_leave();
            let is_due = self.requests.is_empty() || self.unsynced.len() >= SHARED_SYNC_MAX;
            if is_due && !self.unsynced.is_empty() {
                self.sync_together();
                self.step();
            }
            if self.requests.is_empty() || self.since_slice >= REQUESTS_PER_SLICE {
                self.remove_slice();
                self.step();
            }
            self.resume_refused();
        }
        Some(self)
    }

    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// The next command; `None` when a removal should go on first, or be tried again.
    fn next(&self) -> Result<Option<Command>, Abandoned> {
        if self.leaving.is_empty() && self.removals.is_empty() {
            return self.requests.recv().map(Some).map_err(|_| Abandoned);
        }
        let patience = if self.is_cramped {
            ROOM_RETRY
        } else {
            Duration::ZERO
        };
        match self.requests.recv_timeout(patience) {
            Ok(command) => Ok(Some(command)),
            Err(flume::RecvTimeoutError::Timeout) => Ok(None),
            Err(flume::RecvTimeoutError::Disconnected) => Err(Abandoned),
        }
    }

    fn resume_refused(&mut self) {
        self.since_resume += 1;
        if self.requests.len() <= RESUME_AT || self.since_resume >= RESUME_EVERY {
            self.since_resume = 0;
            // Whoever is told may be refused again before this thread goes on: once a round.
            for port in self.waiting.try_iter().take(self.waiting.len()) {
                port.refused.store(false, Ordering::Release);
                port.send(StoreReply::Capacity(self.db));
            }
        }
    }

    fn stop(mut self, port: &Port) {
        let last = if self.fault.is_none() {
            self.store.sync()
        } else {
            Ok(())
        };
        if let Err(error) = last {
            self.fail(error);
        }
        let Worker {
            db,
            store,
            requests,
            ..
        } = self;
        drop(requests);
        drop(store);
        port.send(StoreReply::Stopped(db));
    }

    fn answer(&mut self, request: StoreRequest, port: &Arc<Port>) {
        if let Some(fault) = &self.fault {
            return port.send(StoreReply::Fatal(fault.clone()));
        }
        let image = image_of(&request);
        if let Some(image) = image {
            let is_given_up = self.given_up.get(&key(image)) == Some(&image.generation);
            if is_given_up && !matches!(request, StoreRequest::Begin { .. }) {
                return;
            }
            if !self.has_room_for(&request) {
                return self.give_up(image, port);
            }
            if matches!(request, StoreRequest::Begin { .. })
                && let Some(left) = self.left_before(image)
            {
                return self.put_off(image, left, port);
            }
        }
        match self.handle(request, port) {
            Ok(None) => {}
            Ok(Some(reply)) => port.send(reply),
            Err(error) => self.fail(error),
        }
    }

    /// Carries a request out; `None`: nothing to say.
    #[expect(
        clippy::unreachable,
        clippy::expect_used,
        reason = "a worker ends with its last request, and images are begun first"
    )]
    fn handle(
        &mut self,
        request: StoreRequest,
        port: &Arc<Port>,
    ) -> Result<Option<StoreReply>, StoreError> {
        let store = &mut *self.store;
        let reply = match request {
            StoreRequest::Begin { image, .. } => {
                self.given_up.remove(&key(image));
                let writer = ImageWriter::begin(store, image)
                    .map_err(|error| of_store(error, image, self.db))?;
                let before = self.writers.insert(key(image), writer);
                assert!(before.is_none(), "{image}: one image of a copy at a time");
                return Ok(None);
            }
            StoreRequest::Block(image, block) => {
                let writer = writer_of(&mut self.writers, image).expect("it was begun");
                writer.put(store, &block)?;
                return Ok(None);
            }
            StoreRequest::Seal(image) => {
                let writer = writer_of(&mut self.writers, image).expect("it was begun");
                writer.close(store)?;
                self.unsynced
                    .push((Unsynced::Sealed(image), Arc::clone(port)));
                return Ok(None);
            }
            StoreRequest::Switch(manifest) => {
                let image = manifest.image;
                let writer = writer_of(&mut self.writers, image).expect("it was begun");
                writer.name(store, &manifest)?;
                self.unsynced
                    .push((Unsynced::Switched(image), Arc::clone(port)));
                return Ok(None);
            }
            StoreRequest::DropCopy(partition, epoch) => {
                self.leaving
                    .push_back(((partition, epoch), Arc::clone(port)));
                return Ok(None);
            }
            StoreRequest::SizeOnDisk => StoreReply::Size {
                db: self.db,
                bytes: store.size_on_disk()?,
            },
            StoreRequest::Stop => unreachable!("handled where the worker ends"),
        };
        Ok(Some(reply))
    }

    /// Whether what a request writes surely fits.
    fn has_room_for(&mut self, request: &StoreRequest) -> bool {
        match request {
            StoreRequest::Begin { bytes, .. } => {
                self.store.room() >= IMAGE_ROOM && self.store.has_free(*bytes)
            }
            StoreRequest::Block(..) => self.store.room() >= IMAGE_ROOM,
            StoreRequest::Seal(_) | StoreRequest::Switch(_) => self.store.room() >= ROOM,
            _ => true,
        }
    }

    /// Gives one image up for lack of room; the one before stays valid.
    fn give_up(&mut self, image: ImageId, port: &Arc<Port>) {
        self.given_up.insert(key(image), image.generation);
        port.send(StoreReply::NoRoom(image));
        if take_writer(&mut self.writers, image).is_none() {
            return port.send(StoreReply::Aborted(image));
        }
        let removal = Removal::new(image.partition, image.epoch, What::Only(image.generation));
        self.remove_attempt(image, removal, port);
    }

    /// What an attempt before this one, which is under way no more, has left; errors come up in what follows.
    fn left_before(&self, image: ImageId) -> Option<Removal> {
        let ImageId {
            partition, epoch, ..
        } = image;
        let current = load(&*self.store, partition, epoch).ok()?;
        let is_next = current.is_none_or(|current| current.image.generation < image.generation);
        let is_new = is_next && !self.writers.contains_key(&key(image));
        let left = is_new.then(|| Removal::of_attempt(&*self.store, image));
        left?.ok()?
    }

    /// Has an image begin later: what an attempt before it has left, as a start without room may, goes first.
    fn put_off(&mut self, image: ImageId, left: Removal, port: &Arc<Port>) {
        self.given_up.insert(key(image), image.generation);
        port.send(StoreReply::NoRoom(image));
        self.remove_attempt(image, left, port);
    }

    fn remove_attempt(&mut self, image: ImageId, removal: Removal, port: &Arc<Port>) {
        let told = Some((StoreReply::Aborted(image), Arc::clone(port)));
        self.removals.push_back(Queued { removal, told });
    }

    /// Removes the manifests of copies that leave, as far as there is room.
    fn let_leave(&mut self) {
        while self.unsynced.len() < SHARED_SYNC_MAX
            && let Some(((partition, epoch), port)) = self.leaving.pop_front()
        {
            if self.fault.is_some() {
                continue;
            }
            self.is_cramped = self.store.room() < ROOM;
            if self.is_cramped {
                return self.leaving.push_front(((partition, epoch), port));
            }
            let store = &mut *self.store;
            // What a damaged manifest counts is not known, and goes as well.
            let manifest = load(store, partition, epoch).unwrap_or(None);
            let blocks = manifest.map_or(0, |manifest| manifest.blocks);
            self.writers.remove(&(partition, epoch));
            self.removals.retain(|Queued { removal, told }| {
                told.is_some() || (removal.partition, removal.epoch) != (partition, epoch)
            });
            if let Err(error) = removal::drop_manifest(store, partition, epoch) {
                return self.fail(error);
            }
            let unnamed = Unsynced::Unnamed(partition, epoch, blocks);
            self.unsynced.push((unnamed, port));
        }
    }

    /// Syncs the store once for all that waits for it.
    fn sync_together(&mut self) {
        if self.fault.is_some() {
            return self.unsynced.clear();
        }
        if let Err(error) = self.store.sync() {
            return self.fail(error);
        }
        for (what, port) in std::mem::take(&mut self.unsynced) {
            match what {
                Unsynced::Sealed(image) => {
                    // An image that was given up meanwhile was answered already.
                    let Some(writer) = writer_of(&mut self.writers, image) else {
                        continue;
                    };
                    writer.sealed();
                    let (blocks, bytes) = writer.written();
                    port.send(StoreReply::Sealed {
                        image,
                        blocks,
                        bytes,
                    });
                }
                Unsynced::Switched(image) => {
                    self.writers.remove(&key(image));
                    port.send(StoreReply::Switched(image));
                    self.replaced(image);
                }
                Unsynced::Unnamed(partition, epoch, blocks) => {
                    let removal = Removal::new(partition, epoch, What::All(blocks));
                    let dropped = StoreReply::Dropped { partition, epoch };
                    let told = Some((dropped, port));
                    self.removals.push_back(Queued { removal, told });
                }
            }
        }
    }

    /// The copy's older images are to be removed.
    fn replaced(&mut self, by: ImageId) {
        let ImageId {
            partition,
            epoch,
            generation,
        } = by;
        let what = What::Below(generation);
        let mut removals = self.removals.iter_mut().map(|queued| &mut queued.removal);
        let before = removals.find(|removal| {
            (removal.partition, removal.epoch) == (partition, epoch)
                && matches!(removal.what, What::Below(_))
        });
        match before {
            Some(before) => before.what = what,
            None => self.removals.push_back(Queued {
                removal: Removal::new(partition, epoch, what),
                told: None,
            }),
        }
    }

    /// Goes on with the oldest removal, if there is room.
    fn remove_slice(&mut self) {
        self.since_slice = 0;
        let Some(Queued { removal, .. }) = self.removals.front_mut() else {
            return;
        };
        self.is_cramped = self.store.room() < ROOM;
        if self.is_cramped {
            return;
        }
        match removal.slice(&mut *self.store) {
            Ok(false) => {}
            Ok(true) => {
                let told = self.removals.pop_front().and_then(|queued| queued.told);
                if let Some((reply, port)) = told {
                    port.send(reply);
                }
            }
            Err(error) => self.fail(error),
        }
    }

    /// Ends the store for everyone: nothing more is promised.
    fn fail(&mut self, error: StoreError) {
        tracing::error!(db = %self.db, %error, "image store failed");
        let fault = StoreFault {
            db: self.db,
            error: Arc::new(error),
        };
        self.fault = Some(fault.clone());
        self.writers.clear();
        self.leaving.clear();
        self.removals.clear();
        for port in self
            .ports
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            port.send(StoreReply::Fatal(fault.clone()));
        }
    }
}

fn key(image: ImageId) -> Copy {
    (image.partition, image.epoch)
}

fn writer_of(
    writers: &mut BTreeMap<Copy, ImageWriter>,
    image: ImageId,
) -> Option<&mut ImageWriter> {
    writers
        .get_mut(&key(image))
        .filter(|writer| writer.image() == image)
}

fn take_writer(writers: &mut BTreeMap<Copy, ImageWriter>, image: ImageId) -> Option<ImageWriter> {
    writer_of(writers, image)?;
    writers.remove(&key(image))
}

/// A manifest that is damaged is no better than a store that fails: imaging over it would hide that.
fn of_store(error: ReadError, image: ImageId, db: DbId) -> StoreError {
    match error {
        ReadError::Store(error) => error,
        damage => StoreError::Operation {
            db,
            operation: "begin an image",
            partition: image.partition,
            source: Box::new(damage),
        },
    }
}

fn image_of(request: &StoreRequest) -> Option<ImageId> {
    match request {
        StoreRequest::Begin { image, .. }
        | StoreRequest::Block(image, _)
        | StoreRequest::Seal(image) => Some(*image),
        StoreRequest::Switch(manifest) => Some(manifest.image),
        _ => None,
    }
}
