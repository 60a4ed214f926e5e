//! Images of partitions, one at a time per shard, paced by the length of the log.
//!
//! ```text
//! Idle -> Walking [begin] -> Sealing [last block sent] -> Committing [Sealed] -> Switching -> Idle
//!           ^ blocks through a bounded channel   ^ all blocks durable   ^ lsn_end durable
//! ```
//!
//! The image is fuzzy: writes go on while the table is walked, and recovery replays the log from
//! the LSN where the walk began. Its manifest switches only once everything the image may contain
//! is durable in the log. A crash before that leaves the previous image valid.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ephesus_wal::{LogId, SegmentInfo};
use ephesus_wire::block::BlockBuilder;
use ephesus_wire::digest::Digest;
use ephesus_wire::{Lsn, PartitionId};

use crate::image::{DbId, ImageId, Manifest, StoreClient, StoreReply, StoreRequest, TrySendError};
use crate::keyspace::Keyspace;

/// Longest time one slice of a walk holds the shard.
const SLICE: Duration = Duration::from_micros(100);

/// Share of its log budget above which a shard writes images.
const BEGIN_PERCENT: u64 = 50;

/// Share of its log budget above which images get priority.
const URGENT_PERCENT: u64 = 75;

/// Blocks of one walk that may wait for the store thread.
const QUEUE_BLOCKS: usize = 64;

enum State {
    Idle,
    Walking(Box<Walking>),
    Sealing(Box<Manifest>),
    Committing(Box<Manifest>),
    Switching,
}

struct Walking {
    manifest: Manifest,
    cursor: u64,
    is_complete: bool,
    builder: BlockBuilder,
    digest: Digest,
    queue: VecDeque<StoreRequest>,
    /// The store had no room: wait until it says so.
    waits_for_store: bool,
}

/// What a slice of work led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do at once.
    Runnable,
    /// Nothing to do until a reply or a commit.
    Waiting,
}

/// Writes the images of one shard.
pub struct Checkpointer {
    clients: Vec<StoreClient>,
    log_id: LogId,
    /// Bytes of this shard's log.
    budget: u64,
    state: State,
    /// Images switched since the start.
    pub written: u64,
    pub last_ms: u64,
}

impl Checkpointer {
    #[must_use]
    pub fn new(clients: Vec<StoreClient>, log_id: LogId, budget: u64) -> Checkpointer {
        Checkpointer {
            clients,
            log_id,
            budget,
            state: State::Idle,
            written: 0,
            last_ms: 0,
        }
    }

    /// Whether an image is being written.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Whether the log is so long that images come before comfort.
    #[must_use]
    pub fn is_urgent(&self, log_bytes: u64) -> bool {
        log_bytes * 100 > self.budget * URGENT_PERCENT
    }

    /// Whether the log has used up its budget, so that writes have to wait.
    #[must_use]
    pub fn is_over_budget(&self, log_bytes: u64) -> bool {
        log_bytes >= self.budget
    }

    /// Whether a store thread has answered something that was not taken yet.
    #[must_use]
    pub fn has_replies(&self) -> bool {
        self.clients
            .iter()
            .any(|client| !client.replies().is_empty())
    }

    /// Takes the store threads' replies; gives back the log segments that a new image set free.
    ///
    /// # Errors
    /// The store's own words; the process has to stop.
    pub fn take_replies(&mut self, keyspace: &mut Keyspace) -> Result<Vec<SegmentInfo>, String> {
        let mut freed = Vec::new();
        for index in 0..self.clients.len() {
            while let Some(reply) = self.clients[index].try_recv() {
                match reply {
                    StoreReply::Capacity(_) => {
                        if let State::Walking(walking) = &mut self.state {
                            walking.waits_for_store = false;
                        }
                    }
                    StoreReply::Sealed { blocks, bytes, .. } => {
                        let State::Sealing(mut manifest) =
                            std::mem::replace(&mut self.state, State::Idle)
                        else {
                            return Err("an image was sealed that nobody is writing".into());
                        };
                        (manifest.blocks, manifest.bytes) = (blocks, bytes);
                        self.state = State::Committing(manifest);
                    }
                    StoreReply::Switched(image) => {
                        self.state = State::Idle;
                        self.written += 1;
                        self.last_ms = keyspace.now_ms();
                        if let Some(partition) = keyspace.partition_mut(image.partition) {
                            partition.image_switched(image.generation);
                        }
                        tracing::debug!(%image, "image switched");
                        freed.append(&mut truncate(keyspace));
                    }
                    StoreReply::Fatal(fault) => return Err(fault.to_string()),
                    StoreReply::Refused { image, error } => {
                        return Err(format!("image {image} was refused: {error}"));
                    }
                    _ => {}
                }
            }
        }
        Ok(freed)
    }

    /// Goes on with what can be done now.
    ///
    /// # Errors
    /// A store thread has ended.
    pub fn slice(&mut self, keyspace: &mut Keyspace) -> Result<Progress, String> {
        match &mut self.state {
            State::Idle => Ok(self.begin(keyspace)),
            State::Walking(walking) => {
                if walking.queue.len() < QUEUE_BLOCKS && !walking.is_complete {
                    walk(walking, keyspace);
                }
                self.send_blocks(keyspace)
            }
            State::Committing(manifest) => {
                if keyspace.log.durable() >= manifest.lsn_end {
                    let image = manifest.image;
                    let request = StoreRequest::Switch(manifest.clone());
                    match self.client(image.partition).try_send(request) {
                        Ok(()) => self.state = State::Switching,
                        Err(TrySendError::Full(_)) => {}
                        Err(stopped) => return Err(stopped.to_string()),
                    }
                }
                Ok(Progress::Waiting)
            }
            State::Sealing(_) | State::Switching => Ok(Progress::Waiting),
        }
    }

    fn client(&self, partition: PartitionId) -> &StoreClient {
        let db = DbId::of(partition, self.clients.len() as u16);
        &self.clients[usize::from(db.0)]
    }

    /// Begins the image that lets go of the oldest log segment, if the log is long enough.
    fn begin(&mut self, keyspace: &mut Keyspace) -> Progress {
        if keyspace.log.log_bytes() * 100 <= self.budget * BEGIN_PERCENT {
            return Progress::Waiting;
        }
        let Some((pin, id)) = keyspace.oldest_pin() else {
            return Progress::Waiting;
        };
        let oldest = keyspace.log.segments().next();
        if !oldest.is_some_and(|segment| pin <= segment.last_lsn) {
            return Progress::Waiting;
        }
        let (lsn_start, created_ms) = (keyspace.log.appended(), keyspace.now_ms());
        let Some(partition) = keyspace.partition_mut(id) else {
            return Progress::Waiting;
        };
        let generation = partition.generation.next();
        let image = ImageId {
            partition: id,
            epoch: partition.epoch,
            generation,
        };
        partition.image_begins();
        let manifest = Manifest {
            image,
            log: self.log_id.0,
            lsn_start,
            lsn_end: lsn_start,
            seq_start: partition.seq(),
            count: 0,
            digest: [0; 2],
            blocks: 0,
            bytes: 0,
            created_ms,
        };
        self.state = State::Walking(Box::new(Walking {
            manifest,
            cursor: 0,
            is_complete: partition.table.is_empty(),
            builder: BlockBuilder::new(),
            digest: Digest::EMPTY,
            queue: VecDeque::from([StoreRequest::Begin(image)]),
            waits_for_store: false,
        }));
        Progress::Runnable
    }

    fn send_blocks(&mut self, keyspace: &Keyspace) -> Result<Progress, String> {
        let State::Walking(walking) = &mut self.state else {
            return Ok(Progress::Waiting);
        };
        let db = DbId::of(walking.manifest.image.partition, self.clients.len() as u16);
        let client = &self.clients[usize::from(db.0)];
        if walking.is_complete && !matches!(walking.queue.back(), Some(StoreRequest::Seal(_))) {
            walking
                .queue
                .push_back(StoreRequest::Seal(walking.manifest.image));
        }
        while let Some(request) = walking.queue.pop_front() {
            match client.try_send(request) {
                Ok(()) => {}
                Err(TrySendError::Full(request)) => {
                    walking.queue.push_front(request);
                    walking.waits_for_store = true;
                    break;
                }
                Err(stopped) => return Err(stopped.to_string()),
            }
        }
        if walking.is_complete && walking.queue.is_empty() {
            let mut manifest = walking.manifest;
            manifest.lsn_end = keyspace.log.appended();
            manifest.digest = walking.digest.to_words();
            self.state = State::Sealing(Box::new(manifest));
            return Ok(Progress::Waiting);
        }
        let waits =
            walking.waits_for_store && (walking.is_complete || walking.queue.len() >= QUEUE_BLOCKS);
        Ok(if waits {
            Progress::Waiting
        } else {
            Progress::Runnable
        })
    }
}

/// Walks the table for one slice of time.
fn walk(walking: &mut Walking, keyspace: &Keyspace) {
    let image = walking.manifest.image;
    let now_ms = keyspace.now_ms();
    let partition = keyspace
        .partition(image.partition)
        .expect("an imaged copy stays here");
    #[expect(
        clippy::disallowed_methods,
        reason = "bounds the slice, decides nothing else"
    )]
    let clock = Instant::now;
    let started = clock();
    let Walking {
        builder,
        digest,
        queue,
        manifest,
        ..
    } = walking;
    loop {
        let next = partition.table.scan(walking.cursor, &mut |_, entry| {
            if entry.expire_at_ms != 0 && entry.expire_at_ms <= now_ms {
                return;
            }
            builder.push(entry.key, entry.value, entry.expire_at_ms, |block| {
                queue.push_back(StoreRequest::Block(image, block.into()));
            });
            digest.add(entry.key, entry.value, entry.expire_at_ms);
            manifest.count += 1;
        });
        walking.cursor = next;
        if next == 0 {
            walking.is_complete = true;
            builder.finish(|block| queue.push_back(StoreRequest::Block(image, block.into())));
            return;
        }
        if queue.len() >= QUEUE_BLOCKS || started.elapsed() >= SLICE {
            return;
        }
    }
}

/// Gives back the segments that no copy needs any more.
pub fn truncate(keyspace: &mut Keyspace) -> Vec<SegmentInfo> {
    let needed = keyspace
        .oldest_pin()
        .map_or(keyspace.log.appended().next(), |(lsn, _)| lsn);
    let needed: Lsn = needed;
    keyspace.log.truncate_before(needed)
}
