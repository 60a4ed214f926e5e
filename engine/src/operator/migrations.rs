//! `ephesus rebalance`, `move`, `drain`, `migrations` and `migration cancel`.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use ephesus_coordinator::report::{MoveRow, Query, Report};
use ephesus_coordinator::state::Refusal;

use super::node::find;
use super::waiting::wait;
use super::{Coordinators, OperatorError, json, say, text, units};
use crate::cli::BalanceFlag;
use crate::cli::operator::Asking;
use crate::cli::operator::migrations::{Drain, Migrations, MoveOne, Rebalance};

/// Between two looks of `--watch`.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Plans what balances the cluster, or shows what that would be.
pub(super) fn rebalance(command: &Rebalance) -> Result<ExitCode, OperatorError> {
    let coordinators = Coordinators::of(&command.asking)?;
    coordinators.must_be_assigned()?;
    let is_by_load = command.by == BalanceFlag::Load;
    if command.dry_run && !is_by_load {
        let rows = coordinators.plan(&Query::Rebalance { dry_run: true })?;
        show(&rows, "would be planned");
        return Ok(ExitCode::SUCCESS);
    }
    if is_by_load {
        let (rows, bytes) = coordinators.plan_by_load()?;
        if command.dry_run {
            let what = format!("would be planned, {}", units::bytes(bytes));
            show(&rows, &what);
            return Ok(ExitCode::SUCCESS);
        }
    }
    if let Some(mb_s) = command.limit {
        coordinators.limit(mb_s)?;
    }
    let dry_run = false;
    let query = match is_by_load {
        true => Query::RebalanceByLoad { dry_run },
        false => Query::Rebalance { dry_run },
    };
    let rows = coordinators.plan(&query)?;
    show(&rows, "planned");
    let is_moving = if command.wait {
        wait(&coordinators, &rows, |_| true)?
    } else {
        !rows.is_empty() || is_moving(&coordinators)?
    };
    // It would be that of whatever moves next.
    if command.limit.is_some() && !is_moving {
        coordinators.limit(0)?;
    }
    all_planned(&rows)
}

/// Plans one move.
pub(super) fn move_one(command: &MoveOne) -> Result<ExitCode, OperatorError> {
    let coordinators = Coordinators::of(&command.asking)?;
    let nodes = coordinators.nodes()?;
    let (node, shard) = match (find(&nodes, &command.to), command.place()) {
        (Err(OperatorError::NoSuchNode(_)), Some((name, shard))) => {
            (find(&nodes, name)?, Some(shard))
        }
        (found, _) => (found?, None),
    };
    let partition = command.partition;
    let query = Query::Move {
        partition,
        node: node.id.clone(),
        shard,
    };
    let rows = match coordinators.plan(&query) {
        Err(OperatorError::Refused(Refusal::AlreadyThere(_))) => {
            say(&format!("partition {partition} is there already\n"));
            return Ok(ExitCode::SUCCESS);
        }
        rows => rows?,
    };
    show(&rows, "planned");
    if command.wait {
        wait(&coordinators, &rows, |_| false)?;
    }
    all_planned(&rows)
}

/// Plans what empties a node, or lets it get partitions again.
pub(super) fn drain(command: &Drain) -> Result<ExitCode, OperatorError> {
    let coordinators = Coordinators::of(&command.asking)?;
    let nodes = coordinators.nodes()?;
    let node = find(&nodes, &command.name)?;
    let (name, id) = (node.name.clone(), node.id.clone());
    let query = |on| Query::Drain {
        node: id.clone(),
        on,
    };
    if command.end {
        return match coordinators.ask(&query(false))? {
            Report::NotDraining { .. } => {
                say(&format!(
                    "node {name} is not drained: it may get partitions\n"
                ));
                Ok(ExitCode::SUCCESS)
            }
            _ => Err(OperatorError::Unexpected),
        };
    }
    loop {
        let rows = coordinators.plan(&query(true))?;
        if !rows.is_empty() {
            show(&rows, "planned");
        }
        if command.wait && wait(&coordinators, &rows, |row| row.from_node == name)? {
            all_planned(&rows)?;
            // What was on its way to the node, or not planned because of another move.
            continue;
        }
        all_planned(&rows)?;
        let nodes = coordinators.nodes()?;
        let left = nodes.iter().find(|row| row.id == id);
        let has_failed = left.is_some_and(|row| row.status == "failed");
        match left.map_or(0, |row| row.partitions) {
            0 => say(&format!(
                "node {name} owns nothing: `ephesus node remove {name}` takes it out of the cluster\n"
            )),
            partitions if has_failed => {
                return Err(OperatorError::DrainsFailed { name, partitions });
            }
            partitions if rows.is_empty() && !is_moving(&coordinators)? => {
                return Err(OperatorError::StillOwns { name, partitions });
            }
            partitions => say(&format!(
                "node {name} owns {} until that is done; `ephesus migrations` shows how far it is\n",
                units::count(partitions, "partition")
            )),
        }
        return Ok(ExitCode::SUCCESS);
    }
}

/// Shows what moves and what has moved.
pub(super) fn migrations(command: &Migrations) -> Result<ExitCode, OperatorError> {
    let coordinators = Coordinators::of(&command.look.asking)?;
    let mut out = std::io::stdout().lock();
    let clears = out.is_terminal() && !command.look.json;
    let mut last = None;
    loop {
        let report = coordinators.migrations()?;
        let printed = match (command.look.json, command.watch) {
            (true, true) => json::line(&report),
            (true, false) => json::render(&Report::Migrations(report)).unwrap_or_default(),
            (false, _) => text::render(&Report::Migrations(report)).unwrap_or_default(),
        };
        if !command.watch {
            drop(out);
            say(&printed);
            return Ok(ExitCode::SUCCESS);
        }
        if last.as_ref() != Some(&printed) {
            let before = if clears { CLEAR } else { "" };
            let written = write!(out, "{before}{printed}").and_then(|()| out.flush());
            if written.is_err() {
                // Nobody watches any more.
                return Ok(ExitCode::SUCCESS);
            }
            last = Some(printed);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Gives a migration up.
pub(super) fn cancel(id: u64, asking: &Asking) -> Result<ExitCode, OperatorError> {
    match Coordinators::of(asking)?.ask(&Query::CancelMigration { id })? {
        Report::MigrationCancelled { .. } => say(&format!(
            "migration {id} is cancelled: the partition stays where it is\n"
        )),
        _ => return Err(OperatorError::Unexpected),
    }
    Ok(ExitCode::SUCCESS)
}

impl Coordinators {
    fn plan(&self, query: &Query) -> Result<Vec<MoveRow>, OperatorError> {
        match self.ask(query)? {
            Report::Planned(rows) => Ok(rows),
            _ => Err(OperatorError::Unexpected),
        }
    }

    /// What would be moved for the sake of load, and how many bytes that is; says what moves cannot do.
    fn plan_by_load(&self) -> Result<(Vec<MoveRow>, u64), OperatorError> {
        match self.ask(&Query::RebalanceByLoad { dry_run: true })? {
            Report::PlannedByLoad { plan, bytes, unmet } => {
                for sentence in unmet {
                    eprintln!("{sentence}");
                }
                let Report::Status(status) = self.ask(&Query::Status)? else {
                    return Err(OperatorError::Unexpected);
                };
                for key in &status.hot_keys {
                    eprintln!("{}", text::load::saturating(key));
                }
                Ok((plan, bytes))
            }
            _ => Err(OperatorError::Unexpected),
        }
    }

    fn limit(&self, mb_s: u32) -> Result<(), OperatorError> {
        match self.ask(&Query::LimitMoves { mb_s })? {
            Report::MovesLimited => Ok(()),
            _ => Err(OperatorError::Unexpected),
        }
    }
}

/// Whether anything is under way or is going to be tried again.
fn is_moving(coordinators: &Coordinators) -> Result<bool, OperatorError> {
    let report = coordinators.migrations()?;
    let mut rows = report.migrations.iter();
    Ok(rows.any(|row| row.will_retry || row.state.is_active()))
}

/// Prints a plan.
fn show(rows: &[MoveRow], what: &str) {
    if rows.is_empty() {
        say("nothing has to move\n");
        return;
    }
    let planned = rows.iter().filter(|row| row.refusal.is_none()).count();
    let head = units::count(planned as u64, "move");
    say(&format!("{}{head} {what}\n", text::plan(rows)));
}

/// Success, unless moves were refused.
fn all_planned(rows: &[MoveRow]) -> Result<ExitCode, OperatorError> {
    let refused = rows.iter().filter_map(|row| {
        let to = text::place(&row.to_node, row.to_shard);
        let refusal = row.refusal.as_ref()?;
        Some(format!("partition {} to {to}: {refusal}", row.partition))
    });
    let refused: Vec<String> = refused.collect();
    if refused.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(OperatorError::NotMoved(refused))
    }
}
