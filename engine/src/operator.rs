//! What operators do from a shell: asks the coordinators, prints tables or JSON, ends with an exit
//! code.
//!
//! ```text
//! 0   done, and the cluster is healthy
//! 1   not done, nobody answers, or the cluster is not healthy: stderr says why
//! 2   a bad flag
//! ```

pub mod following;
pub mod json;
pub mod table;
pub mod text;
pub mod units;

mod confirm;
pub mod force;
mod hot;
mod member;
mod migrations;
mod node;
mod placement;
mod waiting;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use ephesus_coordinator::ask::{AskError, ask};
use ephesus_coordinator::link::load_secret;
use ephesus_coordinator::report::{
    CoordinatorRow, MigrationsReport, NodeRow, PartitionRow, Problem, Query, Report, StatusReport,
};
use ephesus_coordinator::state::Refusal;
use ephesus_wire::handshake::Secret;

use crate::cli::operator::migrations::MigrationCommand;
use crate::cli::operator::placement::PlacementCommand;
use crate::cli::operator::{Asking, By, Look, LookAtPartitions, MemberCommand, NodeCommand};
use crate::cli::{Command, EXIT_USAGE};

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// Correct the flag that it names.
    #[error("{0}")]
    Usage(String),
    /// See there.
    #[error("{}", explain(.0))]
    Ask(#[from] AskError),
    /// See there; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Look with `ephesus nodes` who there is.
    #[error("there is no node {0}: `ephesus nodes` lists them")]
    NoSuchNode(String),
    /// Say which by its id.
    #[error("{} nodes are called {name}: name one by its id, {}", ids.len(), ids.join(" or "))]
    SeveralNodes {
        /// As it was given.
        name: String,
        /// Of the nodes.
        ids: Vec<String>,
    },
    /// Stop it first, and wait until it has failed.
    #[error(
        "node {name} is {status} and owns {partitions} partitions: only a failed node can be given \
         up with its data"
    )]
    NotFailed {
        /// Its name.
        name: String,
        /// What it is instead.
        status: String,
        /// What would be lost.
        partitions: u64,
    },
    /// Look with `ephesus migrations` what became of each, remove the cause, and repeat the command.
    #[error("not everything was moved:{}", lines(.0))]
    NotMoved(Vec<String>),
    /// Start it again and repeat the command, or give it up; that it is to be emptied is kept meanwhile.
    #[error(
        "node {name} has failed and owns {partitions} partitions, which nobody else has: start it again and \
         repeat this, or give it up with its data with `ephesus node remove {name}`"
    )]
    DrainsFailed {
        /// Its name.
        name: String,
        /// What it owns.
        partitions: u64,
    },
    /// Start more nodes, or found the cluster; nothing has an owner yet.
    #[error(transparent)]
    NothingAssigned(Problem),
    /// Bring the other nodes back, or add one, and repeat the command.
    #[error("node {name} still owns {partitions} partitions, and no move of them is planned")]
    StillOwns {
        /// Its name.
        name: String,
        /// What it owns.
        partitions: u64,
    },
    /// Correct the address, or mend the way to it; nothing was changed.
    #[error("the coordinator that was asked has no way to {address}: {reason}")]
    Unreachable {
        /// As it was given.
        address: String,
        /// Why.
        reason: String,
    },
    /// Repeat it to change something.
    #[error("nothing was changed")]
    Declined,
    /// Run the release that the coordinators run.
    #[error("the coordinator has answered something else")]
    Unexpected,
}

/// One sentence, and one line for each coordinator that was asked in vain.
fn explain(error: &AskError) -> String {
    let mut text = error.to_string();
    for (address, failure) in error.attempts() {
        text += &format!("\n  {address} {failure}");
    }
    text
}

/// Each on a line of its own.
fn lines(sentences: &[String]) -> String {
    let lines = sentences.iter().map(|sentence| format!("\n  {sentence}"));
    lines.collect()
}

/// Carries a command of an operator out.
///
/// # Panics
/// With a command that is none of an operator's.
#[must_use]
#[expect(
    clippy::unreachable,
    reason = "other commands are carried out elsewhere"
)]
pub fn main(command: Command) -> ExitCode {
    let done = match command {
        Command::Status(look) => look_at(&look, &Query::Status),
        Command::Nodes(look) => look_at(&look, &Query::Nodes),
        Command::Partitions(LookAtPartitions { by, look }) => match by {
            None => look_at(&look, &Query::Partitions),
            Some(By::Load) => look_at(&look, &Query::Load),
        },
        Command::Hot(command) => hot::hot(&command),
        Command::Coordinators(look) => look_at(&look, &Query::Coordinators),
        Command::Rebalance(command) => migrations::rebalance(&command),
        Command::Move(command) => migrations::move_one(&command),
        Command::Drain(command) => migrations::drain(&command),
        Command::Migrations(command) => migrations::migrations(&command),
        Command::Migration(MigrationCommand::Cancel { id, asking }) => {
            migrations::cancel(id, &asking)
        }
        Command::Placement(PlacementCommand::Show(look)) => placement::show(&look),
        Command::Placement(PlacementCommand::Set(set)) => placement::set(&set),
        Command::Placement(PlacementCommand::Cancel(asking)) => placement::cancel(&asking),
        Command::Node(NodeCommand::Remove(remove)) => node::remove(&remove),
        Command::CoordinatorMember(MemberCommand::Add { address, asking }) => {
            member::add(&address, &asking)
        }
        Command::CoordinatorMember(MemberCommand::Remove { id, asking }) => {
            member::remove(id, &asking)
        }
        Command::Serve(_) | Command::Check(_) | Command::Coordinator(_) => {
            unreachable!("not a command of an operator")
        }
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            match error {
                OperatorError::Usage(_) => ExitCode::from(EXIT_USAGE),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Prints what is asked for, and says whether the cluster is healthy.
fn look_at(look: &Look, query: &Query) -> Result<ExitCode, OperatorError> {
    let coordinators = Coordinators::of(&look.asking)?;
    let status = coordinators.status()?;
    let report = match query {
        Query::Status => Report::Status(status.clone()),
        query => coordinators.ask(query)?,
    };
    let printed = if look.json {
        json::render(&report)
    } else {
        text::render(&report)
    };
    say(&printed.ok_or(OperatorError::Unexpected)?);
    for problem in &status.problems {
        eprintln!("not healthy: {problem}");
    }
    Ok(if status.healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// To stdout; that nobody reads it is no error.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// The coordinators that are asked.
struct Coordinators {
    addresses: Vec<String>,
    secret: Option<Secret>,
    limit: Duration,
}

impl Coordinators {
    fn of(asking: &Asking) -> Result<Coordinators, OperatorError> {
        let secret = asking.cluster_secret_file.as_deref().map(load_secret);
        let secret = secret
            .transpose()
            .map_err(|error| OperatorError::Usage(format!("--cluster-secret-file: {error}")))?;
        Ok(Coordinators {
            addresses: asking.coordinator.clone(),
            secret,
            limit: asking.limit(),
        })
    }

    fn ask(&self, query: &Query) -> Result<Report, OperatorError> {
        match ask(&self.addresses, self.secret.as_ref(), query, self.limit)? {
            Report::Refused(refusal) => Err(refusal.into()),
            Report::NoSuchNode(name) => Err(OperatorError::NoSuchNode(name)),
            report => Ok(report),
        }
    }

    fn status(&self) -> Result<StatusReport, OperatorError> {
        match self.ask(&Query::Status)? {
            Report::Status(status) => Ok(status),
            _ => Err(OperatorError::Unexpected),
        }
    }

    /// Says so where nothing has an owner yet.
    fn must_be_assigned(&self) -> Result<(), OperatorError> {
        let is_before = |problem: &Problem| {
            matches!(
                problem,
                Problem::NotBootstrapped | Problem::NotEnoughNodes { .. }
            )
        };
        match self.status()?.problems.into_iter().find(is_before) {
            Some(problem) => Err(OperatorError::NothingAssigned(problem)),
            None => Ok(()),
        }
    }

    fn nodes(&self) -> Result<Vec<NodeRow>, OperatorError> {
        match self.ask(&Query::Nodes)? {
            Report::Nodes(rows) => Ok(rows),
            _ => Err(OperatorError::Unexpected),
        }
    }

    fn partitions(&self) -> Result<Vec<PartitionRow>, OperatorError> {
        match self.ask(&Query::Partitions)? {
            Report::Partitions(rows) => Ok(rows),
            _ => Err(OperatorError::Unexpected),
        }
    }

    fn migrations(&self) -> Result<MigrationsReport, OperatorError> {
        match self.ask(&Query::Migrations)? {
            Report::Migrations(report) => Ok(report),
            _ => Err(OperatorError::Unexpected),
        }
    }

    fn coordinators(&self) -> Result<Vec<CoordinatorRow>, OperatorError> {
        match self.ask(&Query::Coordinators)? {
            Report::Coordinators(rows) => Ok(rows),
            _ => Err(OperatorError::Unexpected),
        }
    }
}

#[cfg(test)]
mod tests;
