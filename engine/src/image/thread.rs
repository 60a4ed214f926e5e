//! The store thread: the only one that writes a store, fed by shards that must never wait for it.
//!
//! A shard hands over requests with [`StoreClient::try_send`], which never blocks. When the channel is
//! full it gets its request back, and later [`StoreReply::Capacity`] when it is worth trying again.
//! After every reply the client's [`Wake`] is called, so that an event loop notices. The thread is of
//! the idle class until [`StoreThread::raise`].

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use ephesus_wire::{Epoch, PartitionId};

use super::manifest::ImageId;
use super::removal;
use super::request::{StoreFault, StoreReply, StoreRequest, TrySendError};
use super::scheduling::{Class, Relay, become_idle};
use super::store::{DbId, ImageStore, StoreError};
use super::writer::{ImageWriter, WriterError};

/// Requests a store thread's channel holds: at most this many blocks (256 KiB) are in flight.
pub const REQUESTS_MAX: usize = 64;

/// Refused clients are told to go on once the channel has drained to this many requests.
const RESUME_AT: usize = REQUESTS_MAX / 2;

/// They are told at least every this many requests, so that a busy neighbour cannot starve them.
const RESUME_EVERY: u32 = 32;

/// Most images that share one sync.
const SHARED_SYNC_MAX: usize = 32;

/// Called after each reply was put into the client's queue, from the store thread.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

enum Command {
    Request(StoreRequest, Arc<Port>),
    /// Makes a waiting worker look at its wanted class.
    Nudge,
}

/// One client's way back.
struct Port {
    replies: flume::Sender<StoreReply>,
    wake: Wake,
    refused: AtomicBool,
}

impl Port {
    fn send(&self, reply: StoreReply) {
        // A client that is gone needs no answer.
        if self.replies.send(reply).is_ok() {
            (self.wake)();
        }
    }
}

/// What handle, clients and worker share.
struct Exchange {
    commands: flume::Sender<Command>,
    refused: flume::Sender<Arc<Port>>,
    ports: Arc<Mutex<Vec<Arc<Port>>>>,
}

/// A shard's end: sends requests without blocking, receives replies without blocking.
pub struct StoreClient {
    db: DbId,
    commands: flume::Sender<Command>,
    refused: flume::Sender<Arc<Port>>,
    port: Arc<Port>,
    replies: flume::Receiver<StoreReply>,
}

impl StoreClient {
    /// The store at the other end.
    #[must_use]
    pub fn db(&self) -> DbId {
        self.db
    }

    /// Hands a request over, or returns it.
    ///
    /// # Errors
    /// [`TrySendError::Full`]: [`StoreReply::Capacity`] follows when there is room.
    pub fn try_send(&self, request: StoreRequest) -> Result<(), TrySendError> {
        match self.offer(request) {
            Err(TrySendError::Full(request)) => {
                if !self.port.refused.swap(true, Ordering::AcqRel) {
                    // Cannot fail in a way that matters: a stopped thread shows in the next offer.
                    drop(self.refused.send(Arc::clone(&self.port)));
                }
                // The thread may have drained the channel before it could see the mark; if it is still
                // full, at least one request will be handled after the mark was set.
                self.offer(request)
            }
            other => other,
        }
    }

    fn offer(&self, request: StoreRequest) -> Result<(), TrySendError> {
        let returned = |command| match command {
            Command::Request(request, _) => request,
            Command::Nudge => StoreRequest::SizeOnDisk,
        };
        self.commands
            .try_send(Command::Request(request, Arc::clone(&self.port)))
            .map_err(|e| match e {
                flume::TrySendError::Full(command) => TrySendError::Full(returned(command)),
                flume::TrySendError::Disconnected(command) => {
                    TrySendError::Stopped(returned(command))
                }
            })
    }

    /// The next reply, if there is one.
    #[must_use]
    pub fn try_recv(&self) -> Option<StoreReply> {
        self.replies.try_recv().ok()
    }

    /// The replies, for an event loop that waits on a channel itself.
    #[must_use]
    pub fn replies(&self) -> &flume::Receiver<StoreReply> {
        &self.replies
    }
}

/// The owner's end of a store thread.
pub struct StoreThread {
    db: DbId,
    exchange: Exchange,
    relay: Arc<Relay<Worker>>,
    threads: Vec<JoinHandle<()>>,
}

impl StoreThread {
    /// Starts the thread of `store`; call before the calling thread is pinned, it inherits that.
    ///
    /// # Errors
    /// When the operating system has no more threads.
    pub fn start(store: Box<dyn ImageStore>) -> io::Result<StoreThread> {
        let db = store.db();
        let (commands, requests) = flume::bounded(REQUESTS_MAX);
        let (refused, waiting) = flume::unbounded();
        let ports = Arc::new(Mutex::new(Vec::new()));
        let worker = Worker {
            db,
            store,
            writers: BTreeMap::new(),
            requests,
            waiting,
            ports: Arc::clone(&ports),
            since_resume: 0,
            unsynced: Vec::new(),
            fault: None,
        };
        let relay = Arc::new(Relay::new(worker, Class::Idle));
        let mut thread = StoreThread {
            db,
            exchange: Exchange {
                commands,
                refused,
                ports,
            },
            relay,
            threads: Vec::new(),
        };
        for class in [Class::Normal, Class::Idle] {
            thread.threads.push(thread.spawn(class)?);
        }
        Ok(thread)
    }

    fn spawn(&self, class: Class) -> io::Result<JoinHandle<()>> {
        let relay = Arc::clone(&self.relay);
        let db = self.db;
        let suffix = if class == Class::Idle { "idle" } else { "busy" };
        std::thread::Builder::new()
            .name(format!("{db}-{suffix}"))
            .spawn(move || {
                if class == Class::Idle
                    && let Err(error) = become_idle()
                {
                    tracing::warn!(%db, %error, "store thread stays at normal priority");
                }
                relay.serve(class, |worker| worker.run(|| relay.wanted() == class));
            })
    }

    /// A new client; `wake` is called after each of its replies, from the store thread.
    #[must_use]
    pub fn client(&self, wake: Wake) -> StoreClient {
        let (sender, replies) = flume::unbounded();
        let port = Arc::new(Port {
            replies: sender,
            wake,
            refused: AtomicBool::new(false),
        });
        let mut ports = self
            .exchange
            .ports
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        ports.push(Arc::clone(&port));
        StoreClient {
            db: self.db,
            commands: self.exchange.commands.clone(),
            refused: self.exchange.refused.clone(),
            port,
            replies,
        }
    }

    /// Gives the thread normal priority, from the end of the request it is working on.
    pub fn raise(&self) {
        self.set_class(Class::Normal);
    }

    /// Makes the thread run only on otherwise idle CPUs again.
    pub fn lower(&self) {
        self.set_class(Class::Idle);
    }

    fn set_class(&self, class: Class) {
        self.relay.want(class);
        // A full channel means that the worker is not waiting.
        drop(self.exchange.commands.try_send(Command::Nudge));
    }

    /// Waits until the thread has ended, which it does after [`StoreRequest::Stop`].
    ///
    /// # Panics
    /// When the thread panicked.
    pub fn join(self) {
        let StoreThread {
            threads, exchange, ..
        } = self;
        drop(exchange);
        for thread in threads {
            thread.join().expect("store thread panicked");
        }
    }

    /// Closes the store after what is already queued and waits for it; blocks.
    pub fn stop(self) {
        self.raise();
        let port = self.client(Arc::new(|| {})).port;
        // A stopped thread needs no second stop.
        drop(
            self.exchange
                .commands
                .send(Command::Request(StoreRequest::Stop, port)),
        );
        self.join();
    }
}

impl fmt::Debug for StoreThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreThread")
            .field("db", &self.db)
            .finish_non_exhaustive()
    }
}

/// The state that moves between the two threads.
struct Worker {
    db: DbId,
    store: Box<dyn ImageStore>,
    writers: BTreeMap<(PartitionId, Epoch), ImageWriter>,
    requests: flume::Receiver<Command>,
    waiting: flume::Receiver<Arc<Port>>,
    ports: Arc<Mutex<Vec<Arc<Port>>>>,
    since_resume: u32,
    /// What waits for the next sync, and who is told.
    unsynced: Vec<(Unsynced, Arc<Port>)>,
    fault: Option<StoreFault>,
}

/// What the next sync of the store makes true.
#[derive(Clone, Copy, Debug)]
enum Unsynced {
    Sealed(ImageId),
    Switched(ImageId),
    /// The manifest of a copy is gone: its blocks may go.
    Unnamed(PartitionId, Epoch),
}

impl Worker {
    /// Handles requests while `stay`; returns itself for the other thread, `None` when stopped.
    fn run(mut self, stay: impl Fn() -> bool) -> Option<Worker> {
        while stay() {
            match self.requests.recv().ok()? {
                Command::Nudge => {}
                Command::Request(StoreRequest::Stop, port) => {
                    self.stop(&port);
                    return None;
                }
                Command::Request(request, port) => self.answer(request, &port),
            }
            let is_due = self.requests.is_empty() || self.unsynced.len() >= SHARED_SYNC_MAX;
            if is_due && !self.unsynced.is_empty() {
                self.sync_together();
            }
            self.resume_refused();
        }
        Some(self)
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
        match (self.handle(request, port), image) {
            (Ok(None), _) => {}
            (Ok(Some(reply)), _) => port.send(reply),
            (Err(error @ WriterError::Store(StoreError::ValueTooLarge { .. })), Some(image)) => {
                self.refuse(image, error, port);
            }
            (Err(WriterError::Store(error)), _) => self.fail(error),
            (Err(error), Some(image)) => self.refuse(image, error, port),
            (Err(error), None) => unreachable!("only images are refused: {error}"),
        }
    }

    /// Carries a request out; `None`: nothing to say.
    fn handle(
        &mut self,
        request: StoreRequest,
        port: &Arc<Port>,
    ) -> Result<Option<StoreReply>, WriterError> {
        let store = &mut *self.store;
        let reply = match request {
            StoreRequest::Begin(image) => {
                if let Some(other) = self.writers.get(&key(image)) {
                    return Err(illegal(image, "begin", other));
                }
                self.writers
                    .insert(key(image), ImageWriter::begin(store, image)?);
                return Ok(None);
            }
            StoreRequest::Block(image, block) => {
                // Blocks already on their way when an image was refused are dropped.
                if let Some(writer) = writer_of(&mut self.writers, image) {
                    writer.put(store, &block)?;
                }
                return Ok(None);
            }
            StoreRequest::Seal(image) => {
                let writer =
                    writer_of(&mut self.writers, image).ok_or(WriterError::Unknown(image))?;
                writer.close(store)?;
                self.unsynced
                    .push((Unsynced::Sealed(image), Arc::clone(port)));
                return Ok(None);
            }
            StoreRequest::Switch(manifest) => {
                let image = manifest.image;
                let writer =
                    writer_of(&mut self.writers, image).ok_or(WriterError::Unknown(image))?;
                writer.name(store, &manifest)?;
                self.unsynced
                    .push((Unsynced::Switched(image), Arc::clone(port)));
                return Ok(None);
            }
            StoreRequest::Abort(image) => {
                if let Some(writer) = writer_of(&mut self.writers, image) {
                    writer.abort(store)?;
                    self.writers.remove(&key(image));
                }
                StoreReply::Aborted(image)
            }
            StoreRequest::DropCopy(partition, epoch) => {
                self.writers.remove(&(partition, epoch));
                removal::drop_manifest(store, partition, epoch)?;
                let unnamed = Unsynced::Unnamed(partition, epoch);
                self.unsynced.push((unnamed, Arc::clone(port)));
                return Ok(None);
            }
            StoreRequest::DropPartition(partition) => {
                self.writers.retain(|(p, _), _| *p != partition);
                removal::drop_partition(store, partition)?;
                StoreReply::Dropped {
                    partition,
                    epoch: None,
                }
            }
            StoreRequest::SizeOnDisk => StoreReply::Size {
                db: self.db,
                bytes: store.size_on_disk()?,
            },
            StoreRequest::Stop => unreachable!("handled where the worker ends"),
        };
        Ok(Some(reply))
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
                    // An image that was aborted meanwhile was answered already.
                    let Some(writer) = writer_of(&mut self.writers, image) else {
                        continue;
                    };
                    if writer.sealed().is_ok() {
                        let (blocks, bytes) = writer.written();
                        port.send(StoreReply::Sealed {
                            image,
                            blocks,
                            bytes,
                        });
                    }
                }
                Unsynced::Switched(image) => {
                    let Some(writer) = writer_of(&mut self.writers, image) else {
                        continue;
                    };
                    if writer.switched().is_ok() {
                        port.send(StoreReply::Switched(image));
                        self.sweep(image);
                    }
                }
                Unsynced::Unnamed(partition, epoch) => {
                    let dropped = removal::drop_blocks(&mut *self.store, partition, epoch);
                    if let Err(error) = dropped {
                        return self.fail(error);
                    }
                    port.send(StoreReply::Dropped {
                        partition,
                        epoch: Some(epoch),
                    });
                }
            }
        }
    }

    /// Removes what the new image replaced, after its owner was told.
    fn sweep(&mut self, image: ImageId) {
        let Some(mut writer) = self.writers.remove(&key(image)) else {
            return;
        };
        match writer.sweep(&mut *self.store) {
            Ok(removed) => tracing::debug!(db = %self.db, %image, removed, "older images removed"),
            Err(WriterError::Store(error)) => self.fail(error),
            Err(error) => tracing::error!(%error, "older images not removed"),
        }
    }

    /// Gives one image up because of a mistake in its making.
    fn refuse(&mut self, image: ImageId, error: WriterError, port: &Port) {
        tracing::error!(db = %self.db, %image, %error, "image refused");
        if let Some(mut writer) = take_writer(&mut self.writers, image)
            && let Err(WriterError::Store(error)) = writer.abort(&mut *self.store)
        {
            return self.fail(error);
        }
        port.send(StoreReply::Refused {
            image,
            error: Arc::new(error),
        });
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

fn key(image: ImageId) -> (PartitionId, Epoch) {
    (image.partition, image.epoch)
}

fn writer_of(
    writers: &mut BTreeMap<(PartitionId, Epoch), ImageWriter>,
    image: ImageId,
) -> Option<&mut ImageWriter> {
    writers
        .get_mut(&key(image))
        .filter(|writer| writer.image() == image)
}

fn take_writer(
    writers: &mut BTreeMap<(PartitionId, Epoch), ImageWriter>,
    image: ImageId,
) -> Option<ImageWriter> {
    writer_of(writers, image)?;
    writers.remove(&key(image))
}

fn illegal(image: ImageId, call: &'static str, writer: &ImageWriter) -> WriterError {
    WriterError::Illegal {
        image,
        call,
        state: writer.state(),
    }
}

fn image_of(request: &StoreRequest) -> Option<ImageId> {
    match request {
        StoreRequest::Begin(image)
        | StoreRequest::Block(image, _)
        | StoreRequest::Seal(image)
        | StoreRequest::Abort(image) => Some(*image),
        StoreRequest::Switch(manifest) => Some(manifest.image),
        _ => None,
    }
}
