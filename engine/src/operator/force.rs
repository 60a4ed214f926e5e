//! `ephesus coordinator force`: says what may be lost, asks, and makes a stopped coordinator the only one.

use std::io::IsTerminal;
use std::process::ExitCode;

use ephesus_coordinator::server::ServerError;
use ephesus_coordinator::server::force::Stopped;
use futures_lite::future::block_on;

use super::confirm::confirm;
use super::say;
use crate::cli::EXIT_USAGE;
use crate::cli::coordinator::Force;

/// Runs the command.
#[must_use]
pub fn main(command: &Force) -> ExitCode {
    let input = std::io::stdin();
    if !command.yes && !input.is_terminal() {
        eprintln!(
            "error: coordinator force asks before it gives the other coordinators up, and there is no terminal: \
             add --yes"
        );
        return ExitCode::from(EXIT_USAGE);
    }
    let is_agreed = |stopped: &Stopped| {
        eprintln!("{}", loss(stopped));
        let question = format!("Make coordinator {} the only one?", stopped.id);
        command.yes || confirm(&question, input.lock(), std::io::stderr())
    };
    match block_on(force(command, is_agreed)) {
        Ok(true) => {
            say("it is the only coordinator now: start it, and add others\n");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            eprintln!("error: nothing was changed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn force(
    command: &Force,
    is_agreed: impl FnOnce(&Stopped) -> bool,
) -> Result<bool, ServerError> {
    let stopped = Stopped::open(&command.data_dir).await?;
    if !is_agreed(&stopped) {
        return Ok(false);
    }
    stopped.force().await?;
    Ok(true)
}

/// What it means.
fn loss(stopped: &Stopped) -> String {
    let cluster = stopped
        .cluster
        .map_or_else(|| "none".to_owned(), |cluster| cluster.to_string());
    let others = stopped.others.iter();
    let others: Vec<String> = others.map(|(id, at)| format!("{id} at {at}")).collect();
    format!(
        "coordinator {} of cluster {cluster} has the log up to entry {} of term {}\n\
         it gives up coordinators {}: never start these again, remove their directories\n\
         what they have decided beyond that entry is lost: partitions that were moved or assigned since are \
         missing where the old table says they are, and nodes that such a partition has left or reached may not \
         start again; if another one is left, take the one with the higher term, and of the same term the higher \
         entry",
        stopped.id,
        stopped.entry,
        stopped.term,
        if others.is_empty() {
            "none".to_owned()
        } else {
            others.join(", ")
        },
    )
}
