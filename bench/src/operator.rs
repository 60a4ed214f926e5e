//! A link to a coordinator that stays open: asking costs it next to nothing.

use std::time::Duration;

use ephesus_coordinator::ask::{AskError, ask};
use ephesus_coordinator::link::blocking::Client;
use ephesus_coordinator::protocol::{self, Answer, Request, kind};
use ephesus_coordinator::report::{Query, Report};
use ephesus_wire::NodeId;
use ephesus_wire::handshake::{LinkRole, Secret};

use crate::error::{BenchError, Result};

#[cfg(test)]
mod tests;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a leader is looked for.
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// An operator's link to one coordinator, which closes it when nothing is asked for a while.
pub struct Operator(Client);

impl Operator {
    /// Connects to a coordinator, `host:port`, with the cluster's secret if it has one.
    pub fn open(address: &str, secret: Option<&Secret>) -> Result<Self> {
        let identity = protocol::identity(LinkRole::Operator, NodeId([0; 16]));
        let client = Client::dial(address, identity, secret.cloned(), ANSWER_TIMEOUT);
        let wrong = |error| BenchError::failed(format!("connecting to {address}"), error);
        client.map(Operator).map_err(wrong)
    }

    /// Connects to the one of `coordinators` that leads.
    pub fn of_leader(coordinators: &[String], secret: Option<&Secret>) -> Result<Self> {
        let what = "asking who leads";
        let report = ask_leader(coordinators, secret, &Query::Coordinators)?;
        let Report::Coordinators(rows) = &report else {
            return Err(unexpected(what, &report));
        };
        let leader = rows.iter().find(|row| row.leader);
        let leader = leader.ok_or_else(|| unexpected(what, &report))?;
        Self::open(&leader.address, secret)
    }

    /// Asks it, and nobody else.
    pub fn ask(&mut self, query: &Query) -> Result<Report> {
        let wrong = |problem: String| BenchError::failed(format!("{query:?}"), problem);
        let query = query.clone();
        let request = Request::Operator { id: 1, query };
        let payload = request.encode().map_err(|error| wrong(error.to_string()))?;
        let answer = self.0.request(kind::REQUEST, &payload, ANSWER_TIMEOUT);
        let message = answer.map_err(|error| wrong(error.to_string()))?;
        match Answer::decode(&message.payload).map_err(|error| wrong(error.to_string()))? {
            Answer::Operator { report, .. } => Ok(*report),
            other => Err(wrong(format!("{other:?}"))),
        }
    }
}

/// Asks whoever of `coordinators` leads; when none does, each one's own reason is told.
pub fn ask_leader(
    coordinators: &[String],
    secret: Option<&Secret>,
    query: &Query,
) -> Result<Report> {
    let answer = ask(coordinators, secret, query, LEADER_TIMEOUT);
    answer.map_err(|error| BenchError::failed(format!("{query:?}"), reasons(&error)))
}

/// In one line why nobody has answered, such as that others speak another version of the protocol.
fn reasons(error: &AskError) -> String {
    let mut text = error.to_string();
    if let AskError::NoAnswer { attempts, .. } = error {
        for (who, why) in attempts {
            text += &format!("; {who}: {why}");
        }
    }
    text
}

/// An answer to something else.
pub fn unexpected(what: &str, report: &Report) -> BenchError {
    BenchError::failed(what, format!("{report:?}"))
}
