//! Images of partitions, paced by the length of the log: one is walked at a time, or one per store
//! when they are urgent, and those whose walk is over share the syncs of their store.
//!
//! ```text
//! Walking [begin] -> Sealing [last block sent] -> Committing [Sealed] -> Switching -> (done)
//!   ^ blocks through a bounded channel   ^ all blocks durable   ^ lsn_end durable
//! ```
//!
//! The image is fuzzy: writes go on while the table is walked, and recovery replays the log from
//! the LSN where the walk began. Its manifest switches only once everything the image may contain
//! is durable in the log. A crash before that leaves the previous image valid.

#![expect(
    clippy::indexing_slicing,
    reason = "a partition has one of the stores, and what is walked is found before"
)]

mod link;
mod pace;
mod removal;
mod room;
mod truncation;

pub use link::StoreLink;

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use ephesus_wal::{LogId, SegmentInfo};
use ephesus_wire::block::BlockBuilder;
use ephesus_wire::digest::Digest;
use ephesus_wire::{Epoch, Lsn, PartitionId};

use crate::failpoint;
use crate::image::{DbId, ImageId, Manifest, StoreClient, StoreReply, StoreRequest, TrySendError};
use crate::keyspace::Keyspace;
use crate::planted::{Bug, Planted};
use pace::Pace;
use removal::Removals;
use truncation::Truncation;

/// Longest time one slice of a walk holds the shard.
const SLICE: Duration = Duration::from_micros(100);

/// Blocks of one walk that may wait for the store thread.
const QUEUE_BLOCKS: usize = 64;

/// A store thread that does nothing for so long while an image needs it hangs, as sled 0.34 can.
pub const STORE_SILENCE_MAX: Duration = Duration::from_secs(60);

/// A store thread that an image has waited for so long is given CPU time before others: one of the idle class may have
/// none while clients keep all CPUs busy.
const STORE_WAIT_MAX: Duration = Duration::from_secs(2);

/// After an image for which the disk had no room its store begins none for so long.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(5);

/// Images of one shard that may be under way: those whose walk is over share the syncs of their
/// store, which cost more than their blocks.
const IMAGES_MAX: usize = 32;

/// An image whose walk is over.
struct Walked {
    stage: Stage,
    manifest: Box<Manifest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Sealing,
    Committing,
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

impl Walking {
    /// Part of the table that was walked, about.
    fn done(&self) -> f64 {
        if self.is_complete {
            1.0
        } else {
            self.cursor as f64 / u64::MAX as f64
        }
    }
}

/// What cannot go on before a store answers.
enum Awaited {
    Image(ImageId),
    Removal((PartitionId, Epoch)),
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Awaited::Image(image) => write!(f, "the image of {image}"),
            Awaited::Removal((partition, epoch)) => {
                write!(f, "the removal of partition {partition} epoch {epoch}")
            }
        }
    }
}

/// A store that is waited for.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Since its last answer, or since it is waited for.
    since: Instant,
    /// When it was last seen at work.
    worked: Instant,
    steps: u64,
    /// It is waited for longer than [`STORE_WAIT_MAX`].
    is_late: bool,
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
pub struct Checkpointer<L = StoreClient> {
    links: Vec<L>,
    log_id: LogId,
    /// Bytes of this shard's log.
    budget: u64,
    /// By store.
    walking: Vec<Option<Box<Walking>>>,
    /// The store whose walk had the last slice.
    turn: usize,
    walked: Vec<Walked>,
    removals: Removals,
    truncation: Truncation,
    pace: Pace,
    /// By store: whether it works on while it is waited for.
    watched: Vec<Option<Watched>>,
    /// Images are due of all that was written up to this record, however short the log is.
    asked: Option<Lsn>,
    /// By store: until when it begins no image, as there was no room for the last.
    no_room_until: Vec<Option<Instant>>,
    /// The log says that there is no room for images.
    is_told_of_room: bool,
    pub(crate) planted: Planted,
    /// Longest time one slice of a walk holds the shard.
    pub(crate) slice: Duration,
    /// After an image for which the disk had no room its store begins none for so long.
    pub(crate) no_room_pause: Duration,
    /// Bytes of segment files that are in no use; they count against the budget too.
    pub spare_bytes: u64,
    /// Images switched since the start.
    pub written: u64,
    pub last_ms: u64,
}

impl<L: StoreLink> Checkpointer<L> {
    #[must_use]
    pub fn new(links: Vec<L>, log_id: LogId, budget: u64) -> Checkpointer<L> {
        Checkpointer {
            watched: vec![None; links.len()],
            no_room_until: vec![None; links.len()],
            asked: None,
            is_told_of_room: false,
            walking: links.iter().map(|_| None).collect(),
            links,
            log_id,
            budget,
            turn: 0,
            walked: Vec::new(),
            removals: Removals::default(),
            truncation: Truncation::default(),
            pace: Pace::default(),
            planted: Planted::default(),
            slice: SLICE,
            no_room_pause: NO_ROOM_PAUSE,
            spare_bytes: 0,
            written: 0,
            last_ms: 0,
        }
    }

    /// How many stores there are.
    #[must_use]
    pub fn stores(&self) -> usize {
        self.links.len()
    }

    /// Whether an image is being written.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.walks() > 0 || !self.walked.is_empty()
    }

    fn walks(&self) -> usize {
        self.walking.iter().flatten().count()
    }

    /// Whether images come before latency: they are behind what the log has grown by.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.pace.is_behind()
    }

    /// Whether a store thread has answered something that was not taken yet.
    #[must_use]
    pub fn has_replies(&self) -> bool {
        self.links.iter().any(StoreLink::has_reply)
    }

    /// Whether an image or a truncation waits for the log to be durable: with relaxed durability the
    /// log should be synced now rather than at its next turn.
    #[must_use]
    pub fn waits_for_log(&self, keyspace: &Keyspace) -> bool {
        let durable = keyspace.log.durable();
        let is_waiting = |walked: &Walked| {
            walked.stage == Stage::Committing && walked.manifest.lsn_end > durable
        };
        self.walked.iter().any(is_waiting)
            || self.truncation.waits_for().is_some_and(|lsn| lsn > durable)
    }

    /// Has images written of all that the log holds now.
    pub fn ask(&mut self, keyspace: &Keyspace) {
        self.asked = Some(keyspace.log.last_record());
    }

    /// Whether images that were asked for are not all written yet.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Images that were asked for are not waited for any longer.
    pub fn ask_no_more(&mut self) {
        self.asked = None;
    }

    /// Whether the disk had no room for an image a moment ago.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.no_room_until.iter().any(Option::is_some)
    }

    /// Whether an image has waited for its store for long.
    #[must_use]
    pub fn is_kept_waiting(&self) -> bool {
        self.watched.iter().flatten().any(|watched| watched.is_late)
    }

    /// Removes the images of a copy that was given up or wiped and that the layout does not name any more,
    /// then what the keyspace has left of it: begins with the next [`Checkpointer::take_replies`], and
    /// [`Checkpointer::take_removed`] tells the end.
    ///
    /// A copy that is not here counts as removed. Nothing happens to one that is in use.
    pub fn remove_copy(&mut self, partition: PartitionId, epoch: Epoch) {
        self.removals.begin(partition, epoch);
    }

    /// The copies of which nothing is left, since the last call.
    pub fn take_removed(&mut self) -> Vec<(PartitionId, Epoch)> {
        self.removals.take_removed()
    }

    /// Takes the store threads' replies; gives back the log segments that images have replaced.
    ///
    /// # Errors
    /// The store's own words, or that it has been silent for too long; the process has to stop.
    pub fn take_replies(
        &mut self,
        keyspace: &mut Keyspace,
        now: Instant,
    ) -> Result<Vec<SegmentInfo>, String> {
        for index in 0..self.links.len() {
            while let Some(reply) = self.links[index].try_recv() {
                self.watched[index] = None;
                self.take_reply(reply, keyspace, now)?;
            }
        }
        self.removals.advance(keyspace, &self.links)?;
        self.watch(now)?;
        Ok(self.truncation.give(keyspace, self.planted))
    }

    fn take_reply(
        &mut self,
        reply: StoreReply,
        keyspace: &mut Keyspace,
        now: Instant,
    ) -> Result<(), String> {
        match reply {
            StoreReply::Capacity(db) => {
                self.removals.has_room(db);
                if let Some(walking) = &mut self.walking[usize::from(db.0)] {
                    walking.waits_for_store = false;
                }
            }
            StoreReply::Sealed {
                image,
                blocks,
                bytes,
            } => {
                let walked = self.find(image, Stage::Sealing)?;
                tracing::debug!(%image, "image sealed");
                failpoint::pass("image-sealed", image);
                let Walked { stage, manifest } = &mut self.walked[walked];
                *stage = Stage::Committing;
                (manifest.blocks, manifest.bytes) = (blocks, bytes);
                if self.planted.has(Bug::TruncateBeforeSwitch) {
                    self.truncation.plan(keyspace, self.planted);
                }
            }
            StoreReply::Switched(image) => {
                let walked = self.find(image, Stage::Switching)?;
                self.walked.swap_remove(walked);
                self.is_told_of_room = false;
                self.written += 1;
                self.last_ms = keyspace.now_ms();
                if let Some(partition) = keyspace.partition_mut(image.partition) {
                    partition.image_switched(image.generation);
                }
                tracing::debug!(%image, "image switched");
                failpoint::pass("image-switched", image);
                self.truncation.plan(keyspace, self.planted);
            }
            StoreReply::NoRoom(image) => self.give_up(image, now),
            StoreReply::Aborted(image) => {
                if let Some(partition) = keyspace.partition_mut(image.partition) {
                    partition.image_given_up();
                }
            }
            StoreReply::Dropped { partition, epoch } => {
                self.removals.removed(partition, epoch, keyspace);
            }
            StoreReply::Fatal(fault) => return Err(fault.to_string()),
            _ => {}
        }
        Ok(())
    }

    /// The disk has no room for an image, which may begin again once the store has removed what there is of it.
    fn give_up(&mut self, image: ImageId, now: Instant) {
        if !std::mem::replace(&mut self.is_told_of_room, true) {
            tracing::warn!(%image, "the disk has no room for an image, which is tried again");
        }
        let store = usize::from(self.db(image.partition).0);
        self.no_room_until[store] = Some(now + self.no_room_pause);
        let walking = &mut self.walking[store];
        if walking
            .as_ref()
            .is_some_and(|walking| walking.manifest.image == image)
        {
            *walking = None;
        }
        self.walked.retain(|walked| walked.manifest.image != image);
    }

    /// The walked image that the store has answered about.
    fn find(&self, image: ImageId, stage: Stage) -> Result<usize, String> {
        let is_it = |walked: &Walked| walked.manifest.image == image && walked.stage == stage;
        let place = self.walked.iter().position(is_it);
        place.ok_or_else(|| format!("the store answered about {image}, which is not {stage:?}"))
    }

    /// Notices a store thread that does nothing any more. One that works on without an answer for whom it keeps
    /// waiting does not hang.
    fn watch(&mut self, now: Instant) -> Result<(), String> {
        for index in 0..self.links.len() {
            let db = DbId(index as u16);
            let Some(awaited) = self.awaited(db) else {
                self.watched[index] = None;
                continue;
            };
            let steps = self.links[index].steps();
            let watched = self.watched[index].get_or_insert(Watched {
                since: now,
                worked: now,
                steps,
                is_late: false,
            });
            let since = now.saturating_duration_since(watched.since);
            watched.is_late = since >= STORE_WAIT_MAX;
            if watched.steps != steps {
                (watched.worked, watched.steps) = (now, steps);
            }
            if now.saturating_duration_since(watched.worked) >= STORE_SILENCE_MAX {
                return Err(format!(
                    "{db} has done nothing for {} s while {awaited} waits for it: the \
                     disk or sled hangs. Nothing acknowledged is lost, the log has it; check the \
                     disk (dmesg, iostat) and start the node again",
                    STORE_SILENCE_MAX.as_secs()
                ));
            }
        }
        Ok(())
    }

    /// What cannot go on before its store says something.
    fn awaited(&self, db: DbId) -> Option<Awaited> {
        let walking = self.walking.iter().flatten();
        let walking = walking.filter(|walking| walking.waits_for_store);
        let walked = self.walked.iter();
        let walked = walked.filter(|walked| walked.stage != Stage::Committing);
        let image = walking
            .map(|walking| walking.manifest.image)
            .chain(walked.map(|walked| walked.manifest.image))
            .find(|image| self.db(image.partition) == db);
        let removal = || self.removals.awaited(|id| self.db(id) == db);
        image
            .map(Awaited::Image)
            .or_else(|| removal().map(Awaited::Removal))
    }

    /// Goes on with what can be done now.
    ///
    /// # Errors
    /// A store thread has ended, or has been silent for too long.
    pub fn slice(&mut self, keyspace: &mut Keyspace, now: Instant) -> Result<Progress, String> {
        let load = self.load(keyspace);
        let mut pace = std::mem::take(&mut self.pace);
        pace.look(now, &load, || self.pinned_bytes(keyspace));
        self.pace = pace;
        for until in &mut self.no_room_until {
            *until = until.filter(|until| *until > now);
        }
        let progress = self.advance(keyspace)?;
        self.asked = self.asked.filter(|asked| {
            let oldest = keyspace.oldest_idle_pin(|_| true);
            self.is_active() || oldest.is_some_and(|(pin, _)| pin <= *asked)
        });
        self.watch(now)?;
        Ok(progress)
    }

    fn advance(&mut self, keyspace: &mut Keyspace) -> Result<Progress, String> {
        self.switch_committed(keyspace)?;
        // A store that gets its images one after the other needs fewer syncs for them.
        let walks_max = if self.is_urgent() {
            self.links.len()
        } else {
            1
        };
        let has_place = self.walks() + self.walked.len() < IMAGES_MAX;
        if has_place && self.walks() < walks_max && self.begin(keyspace) == Progress::Runnable {
            return Ok(Progress::Runnable);
        }
        for _ in 0..self.links.len() {
            self.turn = (self.turn + 1) % self.links.len();
            if self.step(self.turn, keyspace)? == Progress::Runnable {
                return Ok(Progress::Runnable);
            }
        }
        Ok(Progress::Waiting)
    }

    /// Goes on with the walk for one store, if there is one and it can.
    fn step(&mut self, store: usize, keyspace: &Keyspace) -> Result<Progress, String> {
        let Some(walking) = &mut self.walking[store] else {
            return Ok(Progress::Waiting);
        };
        if walking.queue.len() < QUEUE_BLOCKS && !walking.is_complete {
            walk(walking, keyspace, self.slice);
        }
        self.send_blocks(store, keyspace)
    }

    /// Switches the images whose content is durable in the log.
    fn switch_committed(&mut self, keyspace: &Keyspace) -> Result<(), String> {
        let durable = keyspace.log.durable();
        for index in 0..self.walked.len() {
            let Walked { stage, manifest } = &self.walked[index];
            let may_switch = durable >= manifest.lsn_end || self.planted.has(Bug::EarlySwitch);
            if *stage != Stage::Committing || !may_switch {
                continue;
            }
            let request = StoreRequest::Switch(manifest.clone());
            match self.link(manifest.image.partition).try_send(request) {
                Ok(()) => self.walked[index].stage = Stage::Switching,
                Err(TrySendError::Full(_)) => {}
                Err(stopped) => return Err(stopped.to_string()),
            }
        }
        Ok(())
    }

    fn db(&self, partition: PartitionId) -> DbId {
        DbId::of(partition, self.links.len() as u16)
    }

    fn link(&self, partition: PartitionId) -> &L {
        &self.links[usize::from(self.db(partition).0)]
    }

    /// Begins the image that lets go of the oldest log segment, if it is time.
    fn begin(&mut self, keyspace: &mut Keyspace) -> Progress {
        let is_due = self.pace.is_due();
        if !is_due && self.asked.is_none() {
            return Progress::Waiting;
        }
        let oldest = keyspace.log.segments().next().filter(|_| is_due);
        let upto = oldest.map(|segment| segment.last_lsn).max(self.asked);
        let may = |id| {
            let store = usize::from(self.db(id).0);
            self.walking[store].is_none() && self.no_room_until[store].is_none()
        };
        let pinned = keyspace
            .oldest_idle_pin(may)
            .filter(|(pin, _)| upto.is_some_and(|upto| *pin <= upto));
        let Some((_, id)) = pinned else {
            // No copy needs the oldest segment any more, unless its image is under way.
            if self.walks() == 0 && is_due {
                restate_prepared(keyspace);
                self.truncation.plan(keyspace, self.planted);
            }
            return Progress::Waiting;
        };
        let created_ms = keyspace.now_ms();
        let mut lsn_start = keyspace.log.last_record();
        if self.planted.has(Bug::LateStart) {
            lsn_start = lsn_start.next();
        }
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
        let bytes = partition.table.data_bytes();
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
        let store = usize::from(self.db(id).0);
        self.walking[store] = Some(Box::new(Walking {
            manifest,
            cursor: 0,
            is_complete: partition.table.is_empty(),
            builder: BlockBuilder::new(),
            digest: Digest::EMPTY,
            queue: VecDeque::from([StoreRequest::Begin { image, bytes }]),
            waits_for_store: false,
        }));
        Progress::Runnable
    }

    fn send_blocks(&mut self, store: usize, keyspace: &Keyspace) -> Result<Progress, String> {
        let Some(walking) = &mut self.walking[store] else {
            return Ok(Progress::Waiting);
        };
        let link = &self.links[store];
        if walking.is_complete && !matches!(walking.queue.back(), Some(StoreRequest::Seal(_))) {
            walking
                .queue
                .push_back(StoreRequest::Seal(walking.manifest.image));
        }
        while let Some(request) = walking.queue.pop_front() {
            match link.try_send(request) {
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
            manifest.lsn_end = keyspace.log.last_record();
            manifest.digest = walking.digest.to_words();
            self.walking[store] = None;
            self.walked.push(Walked {
                stage: Stage::Sealing,
                manifest: Box::new(manifest),
            });
            return Ok(Progress::Runnable);
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

/// Says once more which copies are prepared, of those that hold on to the oldest segment by nothing but
/// that: they may wait for the coordinator's word for longer than the log has room.
fn restate_prepared(keyspace: &mut Keyspace) {
    let Some(oldest) = keyspace.log.segments().next().map(|s| s.last_lsn) else {
        return;
    };
    if keyspace.log.segments().count() < 2 {
        return;
    }
    let holds = keyspace
        .partitions()
        .filter(|p| p.is_prepared() && p.pin().is_none_or(|lsn| lsn > oldest))
        .filter(|p| p.kept_from().is_some_and(|lsn| lsn <= oldest));
    let holds: Vec<PartitionId> = holds.map(|p| p.id).collect();
    for partition in holds {
        keyspace.restate(partition);
    }
}

/// Walks the table for one slice of time.
#[expect(clippy::expect_used, reason = "an imaged copy stays here")]
fn walk(walking: &mut Walking, keyspace: &Keyspace, slice: Duration) {
    let image = walking.manifest.image;
    let now_ms = keyspace.now_ms();
    let partition = keyspace
        .partition(image.partition)
        .expect("an imaged copy stays here");
    // Nobody but the owner says what has expired: the source may yet give a key of a staging copy more time.
    let expires = partition.is_serving();
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
        let next = partition
            .table
            .scan_values(walking.cursor, &mut |_, entry| {
                if expires && entry.expire_at_ms != 0 && entry.expire_at_ms <= now_ms {
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
        if queue.len() >= QUEUE_BLOCKS || started.elapsed() >= slice {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
