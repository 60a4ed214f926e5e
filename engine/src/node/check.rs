//! `ephesus check`: reads every log group and image block of a stopped node and reports.
//!
//! Every log and every store is reported by itself; then each log is held against the images of its
//! copies, with the checks of recovery. Nothing is repaired; only what sled has left of an
//! interrupted snapshot is removed, beside which it opens no store.

mod images;
pub mod store;

use std::fmt::{Display, Write};
use std::path::Path;

use ephesus_wal::{
    Durability, LogId, LogOptions, OnDamage, StdDisk, VerifyReport, VisitError, Visitor,
    verify_with,
};
use ephesus_wire::{Lsn, NodeId, ShardId};

use super::data_dir::{DataDir, DataDirError, FoundLayout, Layout};
use super::recovery::DryRun;
use super::time::{AHEAD_WARN_MS, WallClock};
use crate::image::DbId;
use crate::script::functions;
use images::Images;
use store::{Findings, OneStore, Reader};

/// Why nothing could be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
}

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    /// For people, a line per log and store.
    pub text: String,
    pub problems: u64,
}

impl Report {
    fn problem(&mut self, text: impl Display) {
        self.problems += 1;
        let _ = writeln!(self.text, "DAMAGE {text}");
    }

    /// Something could not be looked at, for a reason that is none of the data's.
    fn unread(&mut self, text: impl Display) {
        self.problems += 1;
        let _ = writeln!(self.text, "NOT READ {text}");
    }

    fn line(&mut self, text: impl Display) {
        let _ = writeln!(self.text, "{text}");
    }
}

/// Checks a data directory; it must not be in use.
///
/// # Errors
/// When there is nothing to check or it cannot be opened.
pub fn check(path: &Path) -> Result<Report, CheckError> {
    if !path.join("stamp").exists() {
        return Err(DataDirError::Missing(path.to_owned()).into());
    }
    let dir = DataDir::lock(path)?;
    let Some(stamp) = dir.stamp()? else {
        return Err(DataDirError::Missing(path.to_owned()).into());
    };
    let mut report = Report::default();
    match stamp.joined {
        None => report.line(format_args!(
            "node {}: no cluster, so no data yet",
            stamp.node
        )),
        Some(joined) => {
            let FoundLayout { layout, is_half } = dir.find_layout()?;
            dir.check_layout(&layout, joined)?;
            report.line(format_args!(
                "node {} of cluster {}: {} of {} partitions, {} logs, {} image stores",
                stamp.node,
                joined.cluster,
                layout.copies().count(),
                joined.partitions,
                layout.shards(),
                stamp.stores
            ));
            if is_half {
                report.line(
                    "layout: one of its two places is not whole, written anew at the next start \
                     (normal after a crash)",
                );
            }
            for staging in layout.staging() {
                report.line(format_args!(
                    "shard {}: a staging copy of partition {} at epoch {}, which migration {} fills \
                     from node {} shard {}",
                    staging.shard,
                    staging.partition,
                    staging.epoch,
                    staging.source.migration,
                    staging.source.node,
                    staging.source.shard
                ));
            }
            check_data(&dir, &layout, stamp.stores, &mut report);
        }
    }
    let noted = dir.last_incarnation().map(drop);
    for problem in [noted, dir.coordinators().map(drop)] {
        if let Err(problem) = problem {
            report.problem(problem);
        }
    }
    match functions::check(dir.path()) {
        Ok(0) => {}
        Ok(count) => report.line(format_args!("functions: {count} libraries")),
        Err(damage) => report.problem(damage),
    }
    check_coordinator(&dir.coordinator_dir(), &mut report);
    if let Err(damage) = dir.last_incarnation() {
        report.problem(damage);
    }
    if let Err(error) = dir.coordinators() {
        report.unread(error);
    }
    Ok(report)
}

fn check_data(dir: &DataDir, layout: &Layout, stores: u16, report: &mut Report) {
    let all = (0..stores).map(|db| OneStore {
        db: DbId(db),
        stores,
    });
    let readers: Vec<_> = all
        .map(|one| (one.db, Reader::start(dir.path(), one)))
        .collect();
    let mut images = Images::of(stores);
    for (db, reader) in readers {
        let findings = match reader.map(Reader::finish) {
            Ok(Ok(Findings {
                unread: Some(reason),
                ..
            })) => {
                report.unread(of_store(db, &reason));
                None
            }
            Ok(Ok(findings)) => {
                report_store(db, &findings, layout, report);
                Some(findings)
            }
            Ok(Err(reason)) => {
                report.problem(of_store(db, &reason));
                None
            }
            Err(error) => {
                report.unread(of_store(db, &error.to_string()));
                None
            }
        };
        images.add(db, findings.as_ref());
    }
    for shard in (0..layout.shards()).map(ShardId) {
        let log = layout.log(shard);
        let name = format!("log {log}");
        let mut dry_run = DryRun::new(layout, shard, stores, &|partition, epoch| {
            images.known(partition, epoch)
        });
        let has_copies = layout.copies().any(|(_, owner, _)| owner == shard)
            || layout.staging().iter().any(|copy| copy.shard == shard);
        let may_lack = !has_copies || dir.may_lack_logs().unwrap_or(false);
        if may_lack && !dir.log_dir(log).exists() {
            report.line(format_args!("{name}: empty"));
            continue;
        }
        let last = check_log(&name, &dir.log_dir(log), log, &mut dry_run, report);
        let Some(Sound { last, time_ms }) = last else {
            report.line(format_args!(
                "{name}: not compared with the images because of its damage"
            ));
            continue;
        };
        for problem in dry_run.finish(last) {
            report.problem(problem);
        }
        let ahead_ms = time_ms.saturating_sub(WallClock::default().now_ms());
        if ahead_ms >= AHEAD_WARN_MS {
            report.line(format_args!(
                "{name}: its time is {ahead_ms} ms ahead of this machine's clock (docs/time.md, ephesus serve \
                 --reset-clock)"
            ));
        }
    }
}

fn report_store(db: DbId, findings: &Findings, layout: &Layout, report: &mut Report) {
    if !findings.is_there {
        return report.line(format_args!("store {db}: not there"));
    }
    let (mut images, mut blocks, mut keys, mut old) = (0u64, 0, 0, 0u64);
    for found in &findings.images {
        let image = found.manifest().image;
        if !layout.names(image.partition, image.epoch) {
            old += 1;
            continue;
        }
        images += 1;
        blocks += found.blocks;
        keys += found.keys;
        if let Some(problem) = &found.problem {
            report.problem(of_store(db, problem));
        }
    }
    for (_, problem) in &findings.unlisted {
        report.problem(of_store(db, problem));
    }
    report.line(format_args!(
        "store {db}: {images} images, {blocks} blocks, {keys} keys"
    ));
    if old > 0 {
        report.line(format_args!(
            "store {db}: {old} images of copies that are here no more, removed at the next start"
        ));
    }
}

/// Names the store, which most problems do by themselves.
fn of_store(db: DbId, problem: &str) -> String {
    let own = format!("{db}: ");
    let rest = problem.strip_prefix(&own).unwrap_or(problem);
    format!("store {db}: {rest}")
}

/// How far a log reaches that can be opened.
struct Sound {
    last: Lsn,
    /// The last time it has seen, Unix ms.
    time_ms: u64,
}

/// Reads a log; answers how far it reaches if it is sound.
fn check_log(
    name: &str,
    path: &Path,
    log: LogId,
    visitor: &mut dyn Visitor,
    report: &mut Report,
) -> Option<Sound> {
    if !path.exists() {
        report.problem(format_args!("{name}: {} is gone", path.display()));
        return None;
    }
    let options = LogOptions {
        on_damage: OnDamage::Skip,
        is_begun: true,
        ..LogOptions::new(log)
    };
    let result = StdDisk::new(path, Durability::Strict)
        .map_err(|e| e.to_string())
        .and_then(|disk| {
            let reading = verify_with(&disk, &options, visitor);
            futures_lite::future::block_on(reading).map_err(|e| e.to_string())
        });
    match result {
        Ok(found) => {
            report_log(name, path, &found, report);
            found.is_sound().then_some(Sound {
                last: found.reach,
                time_ms: found.wall_clock_ms,
            })
        }
        Err(error) => {
            report.problem(format_args!("{name}: {error}"));
            None
        }
    }
}

fn report_log(name: &str, path: &Path, found: &VerifyReport, report: &mut Report) {
    let groups: u64 = found.segments.iter().map(|segment| segment.groups).sum();
    report.line(format_args!(
        "{name}: {} segments, {groups} groups, {} records, last LSN {}",
        found.segments.len(),
        found.records,
        found.last_lsn
    ));
    if let Some(torn) = &found.torn {
        report.line(format_args!(
            "{name}: torn tail at offset {} of {}, cut at the next start (normal after a crash)",
            torn.offset,
            path.join(torn.segment.file_name()).display()
        ));
    }
    if found.published > 0 {
        report.line(format_args!(
            "{name}: behind them {} records that the system has and the log has not, logged at the next \
             start (normal after a crash with relaxed durability)",
            found.published
        ));
    }
    for damage in &found.damage {
        report.problem(format_args!(
            "{name}: {} at offset {}: {}",
            path.join(damage.segment.file_name()).display(),
            damage.offset,
            damage.fault
        ));
    }
    if let Some(refused) = &found.refused {
        report.problem(format_args!("{name}: {refused}"));
    }
}

/// Checks the log of the coordinator that the node brings, if it does.
fn check_coordinator(dir: &Path, report: &mut Report) {
    let stamp = dir.join("stamp");
    let text = match std::fs::read_to_string(&stamp) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !dir.exists() => {
            return;
        }
        Err(error) => {
            return report.problem(format_args!("coordinator: {}: {error}", stamp.display()));
        }
    };
    let log = text.lines().find_map(|line| line.strip_prefix("log "));
    let Some(NodeId(log)) = log.and_then(|log| log.parse().ok()) else {
        return report.problem(format_args!(
            "coordinator: {} names no log",
            stamp.display()
        ));
    };
    check_log(
        "coordinator log",
        &dir.join("log"),
        LogId(log),
        &mut Opaque,
        report,
    );
}

/// Records of which only the coordinator knows the meaning.
struct Opaque;

impl Visitor for Opaque {
    fn ahead(&mut self, _: Lsn, _: &[u8]) {}

    fn visit(&mut self, _: Lsn, _: &[u8]) -> Result<(), VisitError> {
        Ok(())
    }
}
