//! A link to a coordinator that stays open: asking costs it next to nothing.

use std::time::Duration;

use ephesus_coordinator::ask::ask;
use ephesus_coordinator::link::blocking::Client;
use ephesus_coordinator::protocol::{self, Answer, Request, kind};
use ephesus_coordinator::report::{Query, Report};
use ephesus_wire::NodeId;
use ephesus_wire::handshake::{LinkRole, Secret};

use crate::error::{BenchError, Result};

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a leader is looked for.
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// An operator's link to one coordinator, which closes it when nothing is asked for a while.
pub struct Operator {
    client: Client,
    address: String,
    secret: Option<Secret>,
}

impl Operator {
    /// Connects to a coordinator, `host:port`, with the cluster's secret if it has one.
    ///
    /// # Errors
    /// When nothing of this release answers there.
    pub fn open(address: &str, secret: Option<&Secret>) -> Result<Self> {
        let identity = protocol::identity(LinkRole::Operator, NodeId([0; 16]));
        let client = Client::dial(address, identity, secret.cloned(), ANSWER_TIMEOUT);
        let wrong = |error| BenchError::failed(format!("connecting to {address}"), error);
        Ok(Operator {
            client: client.map_err(wrong)?,
            address: address.to_owned(),
            secret: secret.cloned(),
        })
    }

    /// Connects to the same one anew.
    ///
    /// # Errors
    /// As [`Operator::open`].
    pub fn reopen(&mut self) -> Result<()> {
        *self = Self::open(&self.address, self.secret.as_ref())?;
        Ok(())
    }

    /// Connects to the one of `coordinators` that leads.
    ///
    /// # Errors
    /// When none does.
    pub fn of_leader(coordinators: &[String], secret: Option<&Secret>) -> Result<Self> {
        let wrong = |problem: String| BenchError::failed("asking who leads", problem);
        let report = ask(coordinators, secret, &Query::Coordinators, LEADER_TIMEOUT);
        match report.map_err(|error| wrong(error.to_string()))? {
            Report::Coordinators(rows) => match rows.iter().find(|row| row.leader) {
                Some(leader) => Self::open(&leader.address, secret),
                None => Err(wrong("nobody".to_owned())),
            },
            other => Err(wrong(format!("{other:?}"))),
        }
    }

    /// Asks it, and nobody else.
    ///
    /// # Errors
    /// When there is no answer of the known form.
    pub fn ask(&mut self, query: &Query) -> Result<Report> {
        let wrong = |problem: String| BenchError::failed(format!("{query:?}"), problem);
        let request = Request::Operator {
            id: 1,
            query: query.clone(),
        };
        let payload = request.encode().map_err(|error| wrong(error.to_string()))?;
        let answer = self.client.request(kind::REQUEST, &payload, ANSWER_TIMEOUT);
        let message = answer.map_err(|error| wrong(error.to_string()))?;
        match Answer::decode(&message.payload).map_err(|error| wrong(error.to_string()))? {
            Answer::Operator { report, .. } => Ok(*report),
            other => Err(wrong(format!("{other:?}"))),
        }
    }
}
