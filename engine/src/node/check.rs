//! `ephesus check`: reads every log group and image block of a stopped node and reports.

use std::fmt::Write;
use std::path::Path;

use ephesus_wal::{Durability, LogId, LogOptions, OnDamage, StdDisk, verify};
use ephesus_wire::block::Assembler;

use super::stamp::{DataDir, DataDirError};
use crate::image::{self, ImageStore, StoreError, open_stores};

/// Why nothing could be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    /// For people, a line per log and store.
    pub text: String,
    pub problems: u64,
}

impl Report {
    fn problem(&mut self, text: std::fmt::Arguments<'_>) {
        self.problems += 1;
        let _ = writeln!(self.text, "DAMAGE {text}");
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
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
    let Some(joined) = stamp.joined else {
        report.line(format_args!(
            "node {}: no cluster, so no data yet",
            stamp.node
        ));
        return Ok(report);
    };
    let layout = dir.layout()?;
    report.line(format_args!(
        "node {} of cluster {}: {} of {} partitions, {} logs, {} image stores",
        stamp.node,
        joined.cluster,
        layout.copies().count(),
        joined.partitions,
        layout.shards(),
        stamp.stores
    ));
    for &log in &layout.logs {
        check_log(&dir, LogId(log), &mut report);
    }
    for store in open_stores(&dir.image_dir(), stamp.stores)? {
        check_store(&store, &mut report);
    }
    Ok(report)
}

fn check_log(dir: &DataDir, log: LogId, report: &mut Report) {
    let path = dir.log_dir(log);
    if !path.exists() {
        report.line(format_args!("log {log}: empty"));
        return;
    }
    let options = LogOptions {
        on_damage: OnDamage::Skip,
        ..LogOptions::new(log)
    };
    let result = StdDisk::new(&path, Durability::Strict)
        .map_err(|e| e.to_string())
        .and_then(|disk| {
            futures_lite::future::block_on(verify(&disk, &options)).map_err(|e| e.to_string())
        });
    let found = match result {
        Ok(found) => found,
        Err(error) => return report.problem(format_args!("log {log}: {error}")),
    };
    let groups: u64 = found.segments.iter().map(|segment| segment.groups).sum();
    report.line(format_args!(
        "log {log}: {} segments, {groups} groups, {} records, last LSN {}",
        found.segments.len(),
        found.records,
        found.last_lsn
    ));
    if let Some(torn) = &found.torn {
        report.line(format_args!(
            "log {log}: torn tail at offset {} of {}, cut at the next start (normal after a crash)",
            torn.offset,
            path.join(torn.segment.file_name()).display()
        ));
    }
    for damage in &found.damage {
        report.problem(format_args!(
            "log {log}: {} at offset {}: {}",
            path.join(damage.segment.file_name()).display(),
            damage.offset,
            damage.fault
        ));
    }
    if let Some(refused) = &found.refused {
        report.problem(format_args!("log {log}: {refused}"));
    }
}

fn check_store(store: &dyn ImageStore, report: &mut Report) {
    let mut assembler = Assembler::new();
    let (mut blocks, mut images, mut entries) = (0u64, 0u64, 0u64);
    for partition in store.partitions() {
        let manifests = match image::manifests(store, partition) {
            Ok(manifests) => manifests,
            Err(error) => {
                report.problem(format_args!("{error}"));
                continue;
            }
        };
        for manifest in manifests {
            images += 1;
            let mut count = 0;
            let read = image::read(store, &manifest, |_, block| {
                blocks += 1;
                Ok(assembler.feed(block, |_| count += 1)?)
            });
            if let Err(error) = read {
                report.problem(format_args!("{error}"));
                assembler = Assembler::new();
            } else if count != manifest.count {
                report.problem(format_args!(
                    "image {} holds {count} keys, its manifest says {}",
                    manifest.image, manifest.count
                ));
            }
            entries += count;
        }
    }
    report.line(format_args!(
        "store {}: {images} images, {blocks} blocks, {entries} keys",
        store.db()
    ));
}
