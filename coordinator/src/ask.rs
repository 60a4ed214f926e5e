//! Asking the coordinators, for commands that people and scripts run: finds the leader, follows hints,
//! asks again while a change is under way.

use std::time::{Duration, Instant};

use ephesus_wire::NodeId;
use ephesus_wire::handshake::{LinkRole, Secret};

use crate::link::LinkError;
use crate::link::blocking::{CallError, Client};
use crate::protocol::{self, Answer, ProtocolError, Request, kind};
use crate::report::{Query, Report};

/// One coordinator is waited for no longer than this, which is longer than it waits for an outcome
/// itself, and no longer than its share of the whole time: the others have to be asked, too.
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// The last call has so much time, however little is left.
const CALL_LIMIT_MIN: Duration = Duration::from_millis(100);

/// Between two rounds over all coordinators.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// Look at what each of them has to say.
    #[error("no coordinator that leads has answered within {} s", .limit.as_secs_f32())]
    NoAnswer {
        /// How long they were asked.
        limit: Duration,
        /// Who was asked, as `host:port`, and what came of it the last time.
        attempts: Vec<(String, Failure)>,
    },
    /// Do as each of them says: asking again changes nothing.
    #[error("every coordinator has refused the connection")]
    Refused {
        /// Who was asked, as `host:port`, and why it refused.
        attempts: Vec<(String, Failure)>,
    },
    /// The coordinator speaks another release's protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Run a release that fits the coordinators'.
    #[error("a coordinator has answered with a message of kind {0}")]
    Unexpected(u16),
    /// Look with `ephesus status` whether it was done; asking again changes nothing if it was.
    #[error("it is not known yet whether it was done")]
    Undecided,
}

impl AskError {
    /// Who was asked in vain, as `host:port`, and what came of it.
    #[must_use]
    pub fn attempts(&self) -> &[(String, Failure)] {
        match self {
            AskError::NoAnswer { attempts, .. } | AskError::Refused { attempts } => attempts,
            AskError::Protocol(_) | AskError::Unexpected(_) | AskError::Undecided => &[],
        }
    }
}

/// What came of asking one coordinator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Start it, or correct the address.
    #[error("cannot be reached: {0}")]
    Unreachable(std::io::ErrorKind),
    /// It is stopped, overloaded, or no coordinator.
    #[error("does not answer in time")]
    Silent,
    /// Start more coordinators: most of them have to be there.
    #[error("does not lead and knows no leader: are most coordinators there, and connected?")]
    NoLeader,
    /// See there.
    #[error("names {0} as the leader")]
    Names(String),
    /// Ask again.
    #[error("is busy with another change")]
    Busy,
    /// See there.
    #[error(transparent)]
    Call(CallError),
}

impl Failure {
    /// Whether the two do not belong together, however often they try.
    fn is_final(&self) -> bool {
        matches!(
            self,
            Failure::Call(CallError::Link(LinkError::Handshake(_)))
        )
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        match error {
            CallError::Link(LinkError::Unreachable { kind, .. }) => Failure::Unreachable(kind),
            CallError::Deadline { .. } => Failure::Silent,
            error => Failure::Call(error),
        }
    }
}

/// Asks the leader among `coordinators` (each `host:port`) within `limit`.
///
/// # Errors
/// [`AskError`].
#[expect(clippy::indexing_slicing, reason = "there is at least one coordinator")]
pub fn ask(
    coordinators: &[String],
    secret: Option<&Secret>,
    query: &Query,
    limit: Duration,
) -> Result<Report, AskError> {
    let mut attempts: Vec<(String, Failure)> = Vec::new();
    if coordinators.is_empty() {
        return Err(AskError::NoAnswer { limit, attempts });
    }
    let deadline = now() + limit;
    let share = limit / coordinators.len() as u32;
    let patience = share.clamp(CALL_LIMIT_MIN, CALL_LIMIT);
    let mut hint: Option<String> = None;
    let mut left = coordinators.to_vec();
    let mut turn = 0;
    loop {
        let address = hint.take().unwrap_or_else(|| {
            turn += 1;
            left[(turn - 1) % left.len()].clone()
        });
        let (failure, undecided) =
            match call(&address, secret, query, deadline.min(now() + patience))? {
                Ok(Report::NotLeader(Some((_, leader)))) => {
                    hint = Some(leader.clone());
                    (Failure::Names(leader), false)
                }
                Ok(Report::NotLeader(None)) => (Failure::NoLeader, false),
                Ok(Report::Busy | Report::TimedOut) => (Failure::Busy, true),
                Ok(report) => return Ok(report),
                Err(error) => (error.into(), false),
            };
        if failure.is_final() {
            left.retain(|asked| *asked != address);
        }
        attempts.retain(|(asked, _)| *asked != address);
        attempts.push((address, failure));
        if left.is_empty() {
            return Err(AskError::Refused { attempts });
        }
        if now() >= deadline {
            return Err(if undecided {
                AskError::Undecided
            } else {
                AskError::NoAnswer { limit, attempts }
            });
        }
        if hint.is_none() && turn % left.len() == 0 {
            std::thread::sleep(AGAIN_AFTER);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a shell: a command's deadline is kept here"
)]
fn now() -> Instant {
    Instant::now()
}

/// One question to one coordinator: what it answers, or why it does not.
fn call(
    address: &str,
    secret: Option<&Secret>,
    query: &Query,
    deadline: Instant,
) -> Result<Result<Report, CallError>, AskError> {
    let identity = protocol::identity(LinkRole::Operator, NodeId([0; 16]));
    let request = Request::Operator {
        id: 1,
        query: query.clone(),
    };
    let payload = request.encode()?;
    let left = || {
        let left = deadline.saturating_duration_since(now());
        left.max(CALL_LIMIT_MIN)
    };
    let client = Client::dial(address, identity, secret.cloned(), left());
    let answer = client.and_then(|mut client| client.request(kind::REQUEST, &payload, left()));
    let message = match answer {
        Ok(message) => message,
        Err(error) => return Ok(Err(error)),
    };
    if message.kind != kind::ANSWER {
        return Err(AskError::Unexpected(message.kind));
    }
    match Answer::decode(&message.payload)? {
        Answer::Operator { report, .. } => Ok(Ok(*report)),
        Answer::NotLeader(leader) => Ok(Ok(Report::NotLeader(leader))),
        _ => Err(AskError::Unexpected(message.kind)),
    }
}

#[cfg(test)]
mod tests;
