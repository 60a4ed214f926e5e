//! Asking the coordinators, for commands that people and scripts run: finds the leader, follows hints,
//! asks again while a change is under way.

use std::time::{Duration, Instant};

use ephesus_wire::NodeId;
use ephesus_wire::handshake::{LinkRole, Secret};

use crate::link::blocking::{CallError, Client};
use crate::protocol::{self, Answer, ProtocolError, Request, kind};
use crate::report::{Query, Report};

/// One coordinator is waited for no longer than this.
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// Between two rounds over all coordinators.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// See there; the last coordinator that was asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The coordinator speaks another release's protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Run a release that fits the coordinators'.
    #[error("a coordinator has answered with a message of kind {0}")]
    Unexpected(u16),
    /// Start more coordinators: most of them have to be there.
    #[error("no coordinator leads: are most of them running, and can they reach each other?")]
    NoLeader,
    /// Look with `ephesus status` whether it was done; asking again changes nothing if it was.
    #[error("it is not known yet whether it was done")]
    Undecided,
}

/// Asks the leader among `coordinators` (each `host:port`) within `limit`.
///
/// # Errors
/// [`AskError`]: why the last attempt failed.
///
/// # Panics
/// Without any coordinator.
#[expect(
    clippy::disallowed_methods,
    reason = "a shell: a command's deadline is kept here"
)]
pub fn ask(
    coordinators: &[String],
    secret: Option<&Secret>,
    query: &Query,
    limit: Duration,
) -> Result<Report, AskError> {
    assert!(!coordinators.is_empty(), "a coordinator to ask");
    let deadline = Instant::now() + limit;
    let mut hint: Option<String> = None;
    let mut turn = 0;
    loop {
        let address = hint.take().unwrap_or_else(|| {
            turn += 1;
            coordinators[(turn - 1) % coordinators.len()].clone()
        });
        let failure = match call(&address, secret, query) {
            Ok(Report::NotLeader(leader)) => {
                hint = leader.map(|(_, address)| address);
                AskError::NoLeader
            }
            Ok(Report::Busy | Report::TimedOut) => AskError::Undecided,
            Ok(report) => return Ok(report),
            Err(error @ (AskError::Protocol(_) | AskError::Unexpected(_))) => return Err(error),
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return Err(failure);
        }
        if hint.is_none() && turn % coordinators.len() == 0 {
            std::thread::sleep(AGAIN_AFTER);
        }
    }
}

fn call(address: &str, secret: Option<&Secret>, query: &Query) -> Result<Report, AskError> {
    let identity = protocol::identity(LinkRole::Operator, NodeId([0; 16]));
    let mut client = Client::dial(address, identity, secret.cloned(), CALL_LIMIT)?;
    let request = Request::Operator {
        id: 1,
        query: query.clone(),
    };
    let message = client.request(kind::REQUEST, &request.encode()?, CALL_LIMIT)?;
    if message.kind != kind::ANSWER {
        return Err(AskError::Unexpected(message.kind));
    }
    match Answer::decode(&message.payload)? {
        Answer::Operator { report, .. } => Ok(*report),
        Answer::NotLeader(leader) => Ok(Report::NotLeader(leader)),
        _ => Err(AskError::Unexpected(message.kind)),
    }
}
