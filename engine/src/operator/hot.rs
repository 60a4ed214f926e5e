//! `ephesus hot`: what is used the most.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use ephesus_coordinator::report::{HotKeysReport, Query, Report};

use super::{Coordinators, OperatorError, json, say, text};
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
    load.partitions
        .retain(|row| row.cpu_us_per_s > Some(0) || row.ops_per_s > Some(0));
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
    let missing = keys.map(|keys| keys.missing).unwrap_or_default();
    for node in &missing {
        eprintln!("node {node} has not told its keys");
    }
    Ok(match missing.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
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
