//! `ephesus hot`: what is used the most.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use ephesus_coordinator::report::{HotKeysReport, PartitionLoadRow, Query, Report};

use super::{Coordinators, OperatorError, json, say, text, units};
use crate::cli::operator::Hot;

/// How long nodes are waited for that have not told their keys.
const TOLD_MAX: Duration = Duration::from_secs(3);

const POLL: Duration = Duration::from_millis(100);

/// Partitions that are shown.
const PARTITIONS: usize = 16;

pub(super) fn hot(command: &Hot) -> Result<ExitCode, OperatorError> {
    let coordinators = Coordinators::of(&command.look.asking)?;
    let Report::Load(mut load) = coordinators.ask(&Query::Load)? else {
        return Err(OperatorError::Unexpected);
    };
    let untold = keep_busy(&mut load.partitions);
    load.partitions.truncate(PARTITIONS);
    let keys = match command.keys {
        true => Some(keys(&coordinators)?),
        false => None,
    };
    let printed = match command.look.json {
        true => json::hot(&load.partitions, keys.as_ref()),
        false => text::load::hot(&load.partitions, keys.as_ref()),
    };
    say(&printed);
    if untold > 0 {
        let partitions = units::count(untold, "partition");
        eprintln!("load of {partitions} not told yet");
    }
    let missing = keys.map(|keys| keys.missing).unwrap_or_default();
    for node in &missing {
        eprintln!("node {node} has not told its keys");
    }
    Ok(match missing.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Leaves those that something is done in; answers of how many that is not known.
fn keep_busy(rows: &mut Vec<PartitionLoadRow>) -> u64 {
    let untold = rows.iter().filter(|row| row.cpu_us_per_s.is_none());
    let untold = untold.count() as u64;
    rows.retain(|row| row.cpu_us_per_s > Some(0) || row.ops_per_s > Some(0));
    untold
}

#[expect(clippy::disallowed_methods, reason = "an operator waits in real time")]
fn keys(coordinators: &Coordinators) -> Result<HotKeysReport, OperatorError> {
    let began = Instant::now();
    loop {
        let Report::HotKeys(report) = coordinators.ask(&Query::HotKeys)? else {
            return Err(OperatorError::Unexpected);
        };
        if report.missing.is_empty() || began.elapsed() >= TOLD_MAX {
            return Ok(report);
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::text::load::tests::load_report;

    #[test]
    fn partitions_that_nobody_has_told_of_are_counted() {
        let mut rows = load_report().partitions;
        assert_eq!(keep_busy(&mut rows), 1);
        let busy: Vec<u16> = rows.iter().map(|row| row.partition).collect();
        assert_eq!(busy, [2, 0]);
    }
}
