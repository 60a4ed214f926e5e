//! A link to a coordinator that stays open: asking costs it next to nothing.

use std::time::Duration;

use ephesus_coordinator::ask::{AskError, ask};
use ephesus_coordinator::link::blocking::Client;
use ephesus_coordinator::protocol::{self, Answer, Request, kind};
use ephesus_coordinator::report::{Query, Report};
use ephesus_wire::NodeId;
use ephesus_wire::handshake::{LinkRole, Secret};

use crate::error::{BenchError, During, Result};

#[cfg(test)]
mod tests;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a report of one kind has; an error if it is of another.
macro_rules! answer {
    ($report:expr, $kind:path) => {
        match $report {
            $kind(found) => Ok(found),
            other => Err($crate::error::BenchError::unexpected(
                stringify!($kind),
                &format!("{other:?}"),
            )),
        }
    };
}
pub(crate) use answer;

/// An operator's link to one coordinator, which closes it when nothing is asked for a while.
pub struct Operator(Client);

impl Operator {
    /// Connects to a coordinator, `host:port`, with the cluster's secret if it has one.
    pub fn open(address: &str, secret: Option<&Secret>) -> Result<Self> {
        let identity = protocol::identity(LinkRole::Operator, NodeId([0; 16]));
        let client = Client::dial(address, identity, secret.cloned(), ANSWER_TIMEOUT);
        let client = client.during(format_args!("connecting to {address}"))?;
        Ok(Operator(client))
    }

    pub fn of_leader(coordinators: &[String], secret: Option<&Secret>) -> Result<Self> {
        let report = ask_leader(coordinators, secret, &Query::Coordinators)?;
        let rows = answer!(report, Report::Coordinators)?;
        let leader = rows.iter().find(|row| row.leader);
        let nobody = || BenchError::failed("asking who leads", "nobody does");
        Self::open(&leader.ok_or_else(nobody)?.address, secret)
    }

    pub fn ask(&mut self, query: &Query) -> Result<Report> {
        let what = format!("{query:?}");
        let query = query.clone();
        let request = Request::Operator { id: 1, query };
        let payload = request.encode().during(&what)?;
        let answer = self.0.request(kind::REQUEST, &payload, ANSWER_TIMEOUT);
        match Answer::decode(&answer.during(&what)?.payload).during(&what)? {
            Answer::Operator { report, .. } => Ok(*report),
            other => Err(BenchError::unexpected(what, &format!("{other:?}"))),
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
    let told = answer.map_err(|error| reasons(&error));
    told.during(format_args!("{query:?}"))
}

/// In one line why nobody has answered, such as that others speak another version of the protocol.
fn reasons(error: &AskError) -> String {
    let mut text = error.to_string();
    for (who, why) in error.attempts() {
        text += &format!("; {who}: {why}");
    }
    text
}
