//! `ephesus coordinator-member`.

use std::net::SocketAddr;
use std::process::ExitCode;

use ephesus_coordinator::command::RaftId;
use ephesus_coordinator::report::{CoordinatorRow, Query, Report};

use super::{Coordinators, OperatorError, say};
use crate::cli::operator::Asking;

/// Adds a coordinator and says how to start it.
pub(super) fn add(address: &str, asking: &Asking) -> Result<ExitCode, OperatorError> {
    let coordinators = Coordinators::of(asking)?;
    let rows = coordinators.coordinators()?;
    let query = Query::AddCoordinator {
        address: address.to_owned(),
    };
    let id = match coordinators.ask(&query)? {
        Report::CoordinatorAdded { id } => id,
        Report::Unreachable { address, reason } => {
            return Err(OperatorError::Unreachable { address, reason });
        }
        _ => return Err(OperatorError::Unexpected),
    };
    let added = if rows.iter().any(|row| row.id == id) {
        format!("coordinator {id} was added before; it is started with")
    } else {
        format!("coordinator {id} is added, and votes once it has the log; start it with")
    };
    let start = command(id, address, &rows, asking);
    say(&format!("{added}\n\n  {start}\n\n"));
    Ok(ExitCode::SUCCESS)
}

/// Removes a coordinator.
pub(super) fn remove(id: RaftId, asking: &Asking) -> Result<ExitCode, OperatorError> {
    match Coordinators::of(asking)?.ask(&Query::RemoveCoordinator { id })? {
        Report::CoordinatorRemoved { .. } => say(&format!(
            "coordinator {id} is removed; its process ends when it hears of that, and neither its \
             number nor its data directory is of use any more\n"
        )),
        _ => return Err(OperatorError::Unexpected),
    }
    Ok(ExitCode::SUCCESS)
}

/// The command that starts the coordinator that was added.
fn command(id: RaftId, address: &str, others: &[CoordinatorRow], asking: &Asking) -> String {
    let mut peers: Vec<String> = others
        .iter()
        .filter(|row| row.id != id)
        .map(|row| format!("{}@{}", row.id, row.address))
        .collect();
    peers.push(format!("{id}@{address}"));
    // It listens at addresses, not at names.
    let listen = address.parse::<SocketAddr>().unwrap_or_else(|_| {
        let port = address
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        SocketAddr::from(([0, 0, 0, 0], port.unwrap_or(0)))
    });
    let mut words = vec![format!(
        "ephesus coordinator --id {id} --listen {listen} --peers {} \
         --data-dir ./ephesus-coordinator-{id} --join",
        peers.join(",")
    )];
    if let Some(path) = &asking.cluster_secret_file {
        words.push(format!(
            "--cluster-secret-file {}",
            quoted(&path.display().to_string())
        ));
    } else if !listen.ip().is_loopback() {
        words.push("--cluster-secret-file FILE".to_owned());
    }
    words.join(" ")
}

/// One word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests;
