//! What happens to a coordinator, and what is to be done because of it.

use ephesus_wire::handshake::Versions;
use ephesus_wire::limits::SLOTS;
use raft::prelude::Message;

use super::{PlanJob, PlanResult, UNDECIDED_MAX};
use crate::command::RaftId;
use crate::protocol::{Answer, Coordinators, Refusals, Request};

/// One connection, as its shell numbers it; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node or operator says this.
    Request(SessionId, Request),
    /// A connection of a node or operator is gone.
    Closed(SessionId),
    /// Another coordinator says this.
    Raft(Box<Message>),
    /// Another coordinator speaks these protocol versions, as it has said on a new link.
    Introduced(RaftId, Versions),
    /// A coordinator, this one or another, has refused so much at its port.
    Refused(RaftId, Refusals),
    /// Another coordinator says where all of them are.
    Coordinators(RaftId, Coordinators),
    /// A link to another coordinator is gone.
    Lost(RaftId),
    /// Plans that this coordinator has asked for are made.
    Planned(Box<PlanResult>),
    /// This coordinator is about to stop: somebody else is to lead.
    StepAside,
}

impl Event {
    /// How much of a turn's [room](Coordinator::room) it takes: as many as have to be decided because of it; the
    /// answer to an operator may name every partition, and so may what a node tells, which fills the room then.
    #[must_use]
    pub fn wants(&self) -> usize {
        match self {
            Event::Request(_, Request::Operator { .. }) => UNDECIDED_MAX / 4,
            Event::Request(_, Request::Steps { steps, .. }) => steps.len().clamp(1, UNDECIDED_MAX),
            Event::Request(_, Request::Hosting { copies, .. }) => told(copies.len()),
            Event::Request(_, Request::Progress { progress, .. }) => told(progress.len()),
            _ => 1,
        }
    }
}

/// What so many partitions that a node tells of take of a turn's room.
fn told(partitions: usize) -> usize {
    (partitions / (usize::from(SLOTS) / UNDECIDED_MAX)).clamp(1, UNDECIDED_MAX)
}

/// Something that is to be done; doing none of it is like a lost message.
#[derive(Clone, Debug)]
pub enum Action {
    /// Send this to a node or operator.
    Answer(SessionId, Answer),
    /// Send this to several nodes.
    AnswerAll(Vec<SessionId>, Answer),
    /// Close a connection of a node: it has a newer one.
    Close(SessionId),
    /// Make plans, and say what came of them: [`Event::Planned`].
    Plan(Box<PlanJob>),
    /// Send this to the coordinator `to`, which is reached at `address`.
    Raft {
        /// Its number.
        to: RaftId,
        /// `host:port`; none: not known yet.
        address: Option<String>,
        /// What to send.
        message: Box<Message>,
    },
    /// Tell the coordinator `to`, which is reached at `address`, where all of them are.
    Coordinators {
        /// Its number.
        to: RaftId,
        /// `host:port`.
        address: String,
        /// What to tell.
        coordinators: Coordinators,
    },
}
