//! `ephesus placement`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::report::{PlacementReport, PlacementState, Query, Report};

use super::confirm::confirm;
use super::{Coordinators, OperatorError, json, say, text, units};
use crate::cli::operator::placement::SetPlacement;
use crate::cli::operator::{Asking, Look};

/// Between two questions, each of which has two whole plans made.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Shows the policy and where the table stands.
pub(super) fn show(look: &Look) -> Result<ExitCode, OperatorError> {
    let report = Coordinators::of(&look.asking)?.placement(None)?;
    let report = Report::Placement(Box::new(report));
    let printed = match look.json {
        true => json::render(&report),
        false => text::render(&report),
    };
    say(&printed.ok_or(OperatorError::Unexpected)?);
    Ok(ExitCode::SUCCESS)
}

/// Says what a change costs, asks, and changes the policy.
pub(super) fn set(command: &SetPlacement) -> Result<ExitCode, OperatorError> {
    let input = std::io::stdin();
    if !command.yes && !command.dry_run && !input.is_terminal() {
        let text =
            "placement set asks before it moves partitions, and there is no terminal: add --yes";
        return Err(OperatorError::Usage(text.to_owned()));
    }
    let coordinators = Coordinators::of(&command.asking)?;
    let policy = command.policy;
    let report = coordinators.placement(Some(policy))?;
    if command.dry_run {
        if !report.plan.is_empty() {
            say(&text::plan(&report.plan));
        }
        say(&text::placement::cost(&report));
        return Ok(ExitCode::SUCCESS);
    }
    say(&text::placement::cost(&report));
    let question = format!("Change the policy to {policy}?");
    if !command.yes && !confirm(&question, input.lock(), std::io::stderr()) {
        return Err(OperatorError::Declined);
    }
    match coordinators.ask(&Query::SetPlacement { policy })? {
        Report::PlacementSet => {}
        _ => return Err(OperatorError::Unexpected),
    }
    if command.wait {
        return wait(&coordinators, policy);
    }
    let how_far = match report.moves {
        0 => "",
        _ => "; `ephesus placement show` says how far it is, `ephesus placement cancel` stops it",
    };
    say(&format!("the policy is {policy}{how_far}\n"));
    Ok(ExitCode::SUCCESS)
}

/// Waits until nothing is left to move.
fn wait(coordinators: &Coordinators, policy: Policy) -> Result<ExitCode, OperatorError> {
    let mut last = None;
    loop {
        let report = coordinators.placement(None)?;
        let PlacementReport {
            state,
            under_way,
            waiting,
            moves,
            ..
        } = report;
        if report.current != policy.to_string() || state == PlacementState::Rests {
            let text = "the change was stopped, or another policy was set".to_owned();
            return Err(OperatorError::NotMoved(vec![text]));
        }
        if state == PlacementState::Follows && under_way + waiting == 0 {
            let stays = match moves {
                0 => String::new(),
                moves => format!(": {} stay where they are", units::count(moves, "partition")),
            };
            say(&format!("the policy is {policy}{stays}\n"));
            return Ok(ExitCode::SUCCESS);
        }
        let mut left = format!("{under_way} under way, {waiting} waiting, {moves} to come");
        for unmet in &report.unmet {
            left += &format!("\nnot met: {unmet}");
        }
        if last.as_ref() != Some(&left) {
            eprintln!("{left}");
            last = Some(left);
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Stops what moves.
pub(super) fn cancel(asking: &Asking) -> Result<ExitCode, OperatorError> {
    match Coordinators::of(asking)?.ask(&Query::CancelPlacement)? {
        Report::PlacementCancelled { migrations } => say(&format!(
            "{} cancelled; nothing is moved before a rebalance, a drain or another policy is asked for\n",
            units::count(migrations, "migration")
        )),
        _ => return Err(OperatorError::Unexpected),
    }
    Ok(ExitCode::SUCCESS)
}

impl Coordinators {
    /// Where the table stands against a policy; none: the one that holds.
    fn placement(&self, policy: Option<Policy>) -> Result<PlacementReport, OperatorError> {
        match self.ask(&Query::Placement { policy })? {
            Report::Placement(report) => Ok(*report),
            _ => Err(OperatorError::Unexpected),
        }
    }
}
