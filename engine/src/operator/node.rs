//! `ephesus node remove`.

use std::io::IsTerminal;
use std::process::ExitCode;

use ephesus_coordinator::report::{NodeRow, Query, Report};

use super::confirm::confirm;
use super::{Coordinators, OperatorError, say, units};
use crate::cli::operator::RemoveNode;

/// Says what is lost, asks, and removes the node.
pub(super) fn remove(command: &RemoveNode) -> Result<ExitCode, OperatorError> {
    let input = std::io::stdin();
    if !command.yes && !input.is_terminal() {
        let text =
            "node remove asks before it gives a node up, and there is no terminal: add --yes";
        return Err(OperatorError::Usage(text.to_owned()));
    }
    let coordinators = Coordinators::of(&command.asking)?;
    let rows = coordinators.nodes()?;
    let node = find(&rows, &command.name)?;
    if node.partitions > 0 && node.status != "failed" {
        return Err(OperatorError::NotFailed {
            name: node.name.clone(),
            status: node.status.clone(),
            partitions: node.partitions,
        });
    }
    eprintln!("{}", loss(node));
    let question = format!("Remove node {}?", node.name);
    if !command.yes && !confirm(&question, input.lock(), std::io::stderr()) {
        return Err(OperatorError::Declined);
    }
    // By its id: another node may have taken the name over. What was not said to be lost is not lost.
    let query = Query::RemoveNode {
        node: node.id.clone(),
        lose_data: node.partitions > 0,
    };
    match coordinators.ask(&query)? {
        Report::NodeRemoved { .. } => say(&format!("node {} is removed\n", node.name)),
        _ => return Err(OperatorError::Unexpected),
    }
    Ok(ExitCode::SUCCESS)
}

/// The node of that name or id.
pub(super) fn find<'a>(rows: &'a [NodeRow], name: &str) -> Result<&'a NodeRow, OperatorError> {
    if let Some(row) = rows.iter().find(|row| row.id == name) {
        return Ok(row);
    }
    // A failed node's name may be another's now.
    let named: Vec<&NodeRow> = rows.iter().filter(|row| row.name == name).collect();
    match named[..] {
        [row] => Ok(row),
        [] => Err(OperatorError::NoSuchNode(name.to_owned())),
        _ => Err(OperatorError::SeveralNodes {
            name: name.to_owned(),
            ids: named.iter().map(|row| row.id.clone()).collect(),
        }),
    }
}

/// What removing the node means.
fn loss(node: &NodeRow) -> String {
    let NodeRow {
        name, id, status, ..
    } = node;
    if node.partitions == 0 {
        return format!(
            "node {name} ({id}) is {status} and owns no partitions: no keys are lost, and its data \
             directory cannot be used in this cluster again"
        );
    }
    let (keys, silent) = match node.last_heartbeat_ms {
        Some(ms) => (
            format!(
                "{} ({})",
                units::count(node.keys, "key"),
                units::bytes(node.bytes)
            ),
            format!("it was last heard of {}", units::ago(ms)),
        ),
        None => (
            "a number of keys that is not known".to_owned(),
            "the coordinator that leads now has not heard of it".to_owned(),
        ),
    };
    format!(
        "node {name} ({id}) is {status} and owns {} with {keys}; {silent}\n\
         these keys are lost for good: their partitions begin empty on other nodes, and the node's \
         data directory cannot be used in this cluster again",
        units::count(node.partitions, "partition")
    )
}

#[cfg(test)]
mod tests;
