//! The store thread: the only one that writes a store, fed by shards that must never wait for it.
//!
//! A shard hands over requests with [`StoreClient::try_send`], which never blocks. When the channel is
//! full it gets its request back, and later [`StoreReply::Capacity`] when it is worth trying again.
//! After every reply the client's [`Wake`] is called, so that an event loop notices. The thread is of
//! the idle class until [`StoreThread::raise`].

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::request::{StoreReply, StoreRequest, TrySendError};
use super::scheduling::{Class, Relay, become_idle};
use super::store::{DbId, ImageStore};
use super::waiting;
use super::worker::{Command, Port, Worker};

/// Requests a store thread's channel holds: at most this many blocks (256 KiB) are in flight.
pub const REQUESTS_MAX: usize = 64;

/// Called after each reply was put into the client's queue, from the store thread.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What handle, clients and worker share.
struct Exchange {
    commands: flume::Sender<Command>,
    refused: flume::Sender<Arc<Port>>,
    ports: Arc<Mutex<Vec<Arc<Port>>>>,
    steps: Arc<AtomicU64>,
}

/// A shard's end: sends requests without blocking, receives replies without blocking.
pub struct StoreClient {
    db: DbId,
    commands: flume::Sender<Command>,
    refused: flume::Sender<Arc<Port>>,
    port: Arc<Port>,
    replies: flume::Receiver<StoreReply>,
    steps: Arc<AtomicU64>,
}

impl StoreClient {
    /// The store at the other end.
    #[must_use]
    pub fn db(&self) -> DbId {
        self.db
    }

    /// Grows with each step of the store thread's work, whoever it is for, and while it waits for room on the disk: it
    /// does not while the thread hangs.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed) + waiting::tries()
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
        let steps = Arc::<AtomicU64>::default();
        let worker = Worker::new(
            store,
            requests,
            waiting,
            Arc::clone(&ports),
            Arc::clone(&steps),
        );
        let relay = Arc::new(Relay::new(worker, Class::Idle));
        let mut thread = StoreThread {
            db,
            exchange: Exchange {
                commands,
                refused,
                ports,
                steps,
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
        let port = Arc::new(Port::new(sender, wake));
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
            steps: Arc::clone(&self.exchange.steps),
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
    #[expect(clippy::expect_used, reason = "a panic goes on")]
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
