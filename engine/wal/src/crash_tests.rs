//! Random workloads on a [`FaultDisk`], ended at random operations, against a model of what a log
//! owes its caller; and proof that the same harness catches planted bugs.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ephesus_wire::Lsn;
use futures_lite::future::block_on;

use crate::disk::DiskFile;
use crate::disk::fault::{FaultDisk, FaultFile};
use crate::error::WalError;
use crate::files::LogFiles;
use crate::open::open_writer;
use crate::options::{Durability, LogId, LogOptions};
use crate::planted::Bug;
use crate::recover::recover;
use crate::segment::{SegmentId, SegmentInfo};
use crate::writer::{LogWriter, WriteOp};
use ephesus_wire::rng::Rng;

mod bit_flips;

const LIVES: u64 = 4;

type Records = BTreeMap<u64, Vec<u8>>;
type Writing = Pin<Box<dyn Future<Output = (WriteOp, io::Result<usize>)>>>;

/// What the log owes.
#[derive(Default)]
struct Model {
    /// Every record that may still be found.
    alive: Records,
    /// Every LSN up to this one must be found, unless given up.
    promised: u64,
    /// What of it a power loss must leave.
    durable: u64,
    /// LSNs below this one are given up.
    given_up: u64,
    /// LSNs that were committed or served at any time.
    seen: BTreeSet<u64>,
    /// LSNs under which an opening may have logged again what was published, and the LSNs it had before.
    logged_again: BTreeMap<u64, u64>,
}

impl Model {
    fn append(&mut self, lsn: Lsn, record: &[u8]) -> Result<(), String> {
        if self.seen.contains(&lsn.0) {
            return Err(format!(
                "LSN {lsn} was committed or served before and is given out again"
            ));
        }
        self.alive.insert(lsn.0, record.to_vec());
        Ok(())
    }

    fn commit(&mut self, committed: Lsn) {
        self.seen
            .extend(self.alive.range(..=committed.0).map(|(lsn, _)| *lsn));
    }

    /// The `published` last of the records `found` will be logged again, from `first` on.
    fn log_again(&mut self, found: &Records, published: usize, first: u64) {
        let before = found.keys().rev().take(published).rev();
        for (before, lsn) in before.copied().collect::<Vec<_>>().into_iter().zip(first..) {
            let before = *self.logged_again.get(&before).unwrap_or(&before);
            self.logged_again.insert(lsn, before);
        }
    }

    /// The log is open; the `published` last of what was found are in it from `first` on.
    fn opened(&mut self, published: usize, first: u64) {
        let last = self.alive.keys().rev().take(published).copied();
        for (before, lsn) in last.collect::<Vec<_>>().into_iter().rev().zip(first..) {
            let record = self.alive.remove(&before).expect("listed");
            self.alive.insert(lsn, record);
            self.seen.insert(lsn);
            (self.promised, self.durable) = (lsn, lsn);
        }
        self.logged_again.clear();
    }

    fn check(&mut self, found: Records) -> Result<(), String> {
        let mut known = Records::new();
        for (lsn, record) in &found {
            let lsn = self.logged_again.get(lsn).unwrap_or(lsn);
            if known.insert(*lsn, record.clone()).is_some() {
                return Err(format!("record {lsn} is found twice"));
            }
        }
        let (found, known) = (known, found);
        for (lsn, record) in &found {
            match self.alive.get(lsn) {
                None => return Err(format!("record {lsn} was never appended, or was discarded")),
                Some(right) if right != record => return Err(format!("record {lsn} has changed")),
                Some(_) => {}
            }
        }
        let last = found.keys().next_back().copied().unwrap_or(0);
        let required = self.promised.max(last);
        for lsn in self.alive.range(self.given_up..).map(|(lsn, _)| *lsn) {
            if lsn <= required && !found.contains_key(&lsn) {
                let promised = self.promised;
                return Err(format!(
                    "record {lsn} is lost (promised {promised}, found to {last})"
                ));
            }
        }
        // What is logged again is found under a higher LSN than it was promised under.
        let required = required.max(known.keys().next_back().copied().unwrap_or(0));
        self.promised = required;
        self.durable = required;
        self.seen.extend(known.keys());
        self.alive = known;
        Ok(())
    }
}

struct Life {
    log_files: LogFiles<FaultDisk>,
    writer: LogWriter,
    files: BTreeMap<SegmentId, Rc<FaultFile>>,
    writing: Vec<Writing>,
    retired: Vec<SegmentInfo>,
    shelved: Vec<SegmentInfo>,
    clock: u64,
}

/// Why a life ended before its workload.
enum End {
    Failed,
    Violation(String),
}

impl From<WalError> for End {
    fn from(error: WalError) -> End {
        match error {
            WalError::Io { .. } | WalError::Unsynced { .. } | WalError::Poisoned => End::Failed,
            other => End::Violation(format!("unexpected: {other}")),
        }
    }
}

impl From<String> for End {
    fn from(violation: String) -> End {
        End::Violation(violation)
    }
}

fn poll(writing: &mut Writing) -> Option<(WriteOp, io::Result<usize>)> {
    match writing
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

impl Life {
    fn step(&mut self, rng: &mut Rng, model: &mut Model) -> Result<(), End> {
        self.clock += rng.below(3);
        match rng.below(20) {
            0..=6 => self.append(rng, model)?,
            7..=11 => self.issue()?,
            12..=14 => self.complete_one(rng, model)?,
            15 => model.commit(self.writer.publish(self.clock)),
            16 => self.add_segment()?,
            17 => {
                let below = self.writer.durable().0.saturating_sub(rng.below(30));
                model.given_up = model.given_up.max(below);
                self.retired.extend(self.writer.truncate_before(Lsn(below)));
            }
            18 => self.writer.mark(),
            _ => self.sync()?,
        }
        Ok(())
    }

    fn append(&mut self, rng: &mut Rng, model: &mut Model) -> Result<(), End> {
        for _ in 0..=rng.below(4) {
            let len = match rng.below(20) {
                0 => 9_000 + rng.below(5_000),
                1..=3 => rng.below(4_000),
                _ => rng.below(300),
            };
            let byte = rng.below(256) as u8;
            let record: Vec<u8> = (0..len).map(|at| byte.wrapping_add(at as u8)).collect();
            let lsn = self.writer.append(&record);
            model.append(lsn, &record)?;
        }
        Ok(())
    }

    fn issue(&mut self) -> Result<(), End> {
        if self.writer.is_starved() {
            self.add_segment()?;
        }
        while let Some(op) = self.writer.next_write(self.clock) {
            let file = Rc::clone(&self.files[&op.segment]);
            let mut writing: Writing = Box::pin(async move {
                let result = file
                    .write_at(&op.buf, op.offset)
                    .await
                    .map(|()| op.buf.len());
                (op, result)
            });
            match poll(&mut writing) {
                Some((op, result)) => drop(self.writer.complete(op, result)?),
                None => self.writing.push(writing),
            }
        }
        Ok(())
    }

    fn complete_one(&mut self, rng: &mut Rng, model: &mut Model) -> Result<(), End> {
        if !self.writing.is_empty() {
            let at = rng.below(self.writing.len() as u64) as usize;
            let (op, result) = poll(&mut self.writing.swap_remove(at)).expect("second poll");
            self.writer.complete(op, result)?;
        }
        model.commit(self.writer.committed());
        Ok(())
    }

    fn add_segment(&mut self) -> Result<(), End> {
        let opts = self.writer.options().clone();
        let id = self.writer.allocate_segment();
        while self.retired.len() > 1 {
            let oldest = self.retired.remove(0);
            block_on(self.log_files.shelve(&opts, oldest))?;
            self.shelved.push(oldest);
        }
        let handle = if let Some(oldest) = self.retired.pop() {
            block_on(self.log_files.recycle(&opts, oldest, id))?
        } else if let Some(shelved) = self.shelved.pop() {
            block_on(self.log_files.reuse(&opts, shelved, id))?
        } else {
            block_on(self.log_files.prepare(&opts, id))?
        };
        self.writer.add_segment(handle.info)?;
        self.files.insert(id, Rc::new(handle.file));
        Ok(())
    }

    /// Writes everything, and a mark behind it.
    fn settle(&mut self, rng: &mut Rng, model: &mut Model) -> Result<(), End> {
        for marks in [false, true] {
            if marks {
                self.writer.mark();
            }
            loop {
                self.issue()?;
                if self.writing.is_empty() {
                    break;
                }
                while !self.writing.is_empty() {
                    self.complete_one(rng, model)?;
                }
            }
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), End> {
        if self.writer.options().durability == Durability::Relaxed {
            let point = self.writer.sync_point();
            for id in &point.segments {
                block_on(self.files[id].sync()).map_err(|_| End::Failed)?;
            }
            self.writer.synced(&point);
        }
        Ok(())
    }
}

fn options(seed: u64, bug: Option<Bug>) -> LogOptions {
    LogOptions {
        durability: if seed % 4 == 3 {
            Durability::Relaxed
        } else {
            Durability::Strict
        },
        segment_bytes: 48 << 10,
        group_bytes_max: 8 << 10,
        in_flight_group_bytes: 1 << (seed % 14),
        in_flight_max: 1 + (seed % 4) as usize,
        mapped_groups: [0, 2, 4][(seed / 4 % 3) as usize],
        mapped_group_bytes: 4096 << (seed / 12 % 2),
        bug,
        ..LogOptions::new(LogId([7; 16]))
    }
}

fn set_fault(disk: &FaultDisk, rng: &mut Rng, operations: u64) {
    match rng.below(8) {
        0 => {}
        1 => disk.fail_write(rng.below(operations)),
        2 => disk.fail_sync(rng.below(8)),
        _ => disk.fail_after(rng.below(operations)),
    }
}

/// Opens the log, with failures on the way, until it is open.
fn reopen(
    disk: &FaultDisk,
    opts: &LogOptions,
    rng: &mut Rng,
    model: &mut Model,
) -> Result<Life, String> {
    for attempt in 0.. {
        if attempt < 3 && rng.below(3) == 0 {
            disk.fail_after(rng.below(60));
        }
        let mut found = Records::new();
        let mut published = 0;
        let opened = block_on(async {
            let recovered = recover(disk, opts, Lsn::ZERO, &mut |lsn, record| {
                found.insert(lsn.0, record.to_vec());
                Ok(())
            })
            .await?;
            if rng.below(2) == 0 {
                disk.land();
            }
            let next = recovered.next_lsn.0;
            published = recovered.published.len();
            model.log_again(&found, published, next);
            open_writer(disk, opts, &recovered, Lsn::ZERO, 0).await
        });
        match opened {
            Ok(opened) => {
                disk.land();
                model.check(found)?;
                let first = opened.writer.appended().0 + 1 - published as u64;
                model.opened(published, first);
                let info = opened.segment.info;
                return Ok(Life {
                    log_files: opened.files,
                    clock: 1_000,
                    files: BTreeMap::from([(info.id, Rc::new(opened.segment.file))]),
                    writer: opened.writer,
                    writing: Vec::new(),
                    retired: Vec::new(),
                    shelved: Vec::new(),
                });
            }
            Err(WalError::Io { .. } | WalError::Unsynced { .. }) if attempt < 3 => {
                die(disk, rng, model);
            }
            Err(error) => return Err(format!("cannot be opened: {error}")),
        }
    }
    unreachable!("the last attempts have no failures")
}

fn die(disk: &FaultDisk, rng: &mut Rng, model: &mut Model) {
    if rng.below(3) == 0 {
        disk.kill();
    } else {
        disk.crash();
        model.promised = model.durable;
    }
}

/// Runs one seed; returns its crash points and a digest of all that was found.
fn run(seed: u64, bug: Option<Bug>, first_fault: Option<u64>) -> Result<(u64, u64), String> {
    let opts = options(seed, bug);
    let mut rng = Rng::new(seed);
    let disk = FaultDisk::new(seed).dsync(opts.durability == Durability::Strict);
    let mut model = Model::default();
    let mut digest = crc32fast::Hasher::new();
    let mut crashes = 0;
    for life in 0..LIVES {
        let mut alive = reopen(&disk, &opts, &mut rng, &mut model)?;
        for (lsn, record) in &model.alive {
            digest.update(&lsn.to_le_bytes());
            digest.update(record);
        }
        match first_fault {
            Some(operations) if life == 0 => disk.fail_after(operations),
            _ => set_fault(&disk, &mut rng, 120),
        }
        for _ in 0..rng.below(250) {
            match alive.step(&mut rng, &mut model) {
                Ok(()) => {}
                Err(End::Failed) => break,
                Err(End::Violation(violation)) => return Err(violation),
            }
        }
        model.commit(alive.writer.committed());
        model.promised = alive.writer.committed().0;
        model.durable = alive.writer.durable().0;
        drop(alive);
        die(&disk, &mut rng, &mut model);
        crashes += 1;
    }
    reopen(&disk, &opts, &mut rng, &mut model)?;
    digest.update(&model.promised.to_le_bytes());
    Ok((crashes, u64::from(digest.finalize())))
}

#[test]
fn nothing_promised_is_lost_at_random_crash_points() {
    let mut crashes = 0;
    for seed in 1..=1_500 {
        match run(seed, None, None) {
            Ok((more, _)) => crashes += more,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(crashes >= 1_000, "only {crashes} crash points");
}

#[test]
fn nothing_promised_is_lost_at_any_operation_of_one_workload() {
    for seed in [4, 5, 6, 7] {
        for operations in 0..120 {
            if let Err(violation) = run(seed, None, Some(operations)) {
                panic!("seed {seed}, failing after {operations} operations: {violation}");
            }
        }
    }
}

#[test]
fn a_seed_runs_the_same_way_twice() {
    for seed in [11, 22, 33] {
        assert_eq!(run(seed, None, None), run(seed, None, None));
    }
}

fn assert_caught(bug: Bug) {
    let caught = (1..=1_500).find(|seed| {
        !matches!(
            catch_unwind(AssertUnwindSafe(|| run(*seed, Some(bug), None))),
            Ok(Ok(_))
        )
    });
    assert!(caught.is_some(), "{bug:?} is not caught");
}

macro_rules! planted_bugs_are_caught {
    ($($name:ident: $bug:ident,)*) => {$(
        #[test]
        fn $name() {
            assert_caught(Bug::$bug);
        }
    )*};
}

planted_bugs_are_caught! {
    catches_commit_at_issue: CommitAtIssue,
    catches_commit_out_of_order: CommitOutOfOrder,
    catches_a_rewritten_tail: RewriteTail,
    catches_a_missing_directory_sync: NoDirSync,
    catches_a_forgotten_end_with_reused_lsns: ForgetEnd,
    catches_a_recovery_that_does_not_sync: NoRecoverySync,
    catches_an_ignored_write_error: IgnoreWriteError,
    catches_stale_groups_of_recycled_segments: AcceptStale,
    catches_holes_that_are_jumped: JumpHoles,
    catches_segments_given_back_too_early: TruncateTooMuch,
    catches_a_commit_of_what_is_not_published: CommitUnpublished,
    catches_a_published_group_that_is_forgotten_too_early: ForgetAtIssue,
    catches_a_published_group_that_is_forgotten_out_of_order: ForgetOutOfOrder,
    catches_a_recovery_without_what_was_published: ForgetPublished,
    catches_published_records_that_are_not_logged: PublishedNotLogged,
}
