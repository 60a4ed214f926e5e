//! What nodes, coordinators and operators say to each other: the payloads of frames.
//!
//! ```text
//! node, operator -> coordinator   Request in postcard's encoding
//! coordinator -> node, operator   Answer in postcard's encoding
//! coordinator <-> coordinator     raft-rs's Message in protobuf's, Refusals and Coordinators in postcard's
//! ```
//!
//! Variants are numbered in order: new ones go to the end, and neither order nor fields of the old
//! ones change without a new [`PROTOCOL_VERSION`], which the ends agree on before they talk. All
//! messages survive being lost, repeated and overtaken by others.

use std::collections::BTreeMap;

use ephesus_wire::handshake::{Identity, LinkRole, Versions};
use ephesus_wire::limits::FRAME_PAYLOAD_BYTES_MAX;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};
use protobuf::Message as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command::{ClusterId, Nonce, RaftId, Registration, StartProof};
use crate::load::{HotKeys, LoadReport};
use crate::migration::{Progress, Step};
use crate::report::{Figures, Query, Report};
use crate::state::{ADDRESS_BYTES_MAX, COORDINATORS_MAX, MemberStatus, Refusal};
use crate::view::TableUpdate;

pub(crate) mod bounded;

use bounded::by_partition;

/// Version of these messages.
pub const PROTOCOL_VERSION: u16 = 9;

/// What this release speaks: no other version, so that nothing is said that the other end does not know.
pub const VERSIONS: Versions = Versions {
    min: PROTOCOL_VERSION,
    max: PROTOCOL_VERSION,
};

/// Who a side of a link is, before it belongs to a cluster.
#[must_use]
pub fn identity(role: LinkRole, node: NodeId) -> Identity {
    Identity {
        versions: VERSIONS,
        features: 0,
        role,
        cluster: None,
        node,
        raft_id: 0,
    }
}

/// Kinds of frames.
pub mod kind {
    /// A [`Request`](super::Request).
    pub const REQUEST: u16 = 1;
    /// An [`Answer`](super::Answer).
    pub const ANSWER: u16 = 2;
    /// A message of raft.
    pub const RAFT: u16 = 3;
    /// Nothing: the sender is still there.
    pub const ALIVE: u16 = 4;
    /// What a coordinator has [refused](super::Refusals) at its port, for the one that leads.
    pub const REFUSALS: u16 = 5;
    /// Where the [coordinators](super::Coordinators) are, for one that does not hear the leader.
    pub const COORDINATORS: u16 = 6;
}

/// What a coordinator is told or asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first message of a node on every connection.
    Register(Registration),
    /// The node is there, and what it does.
    Heartbeat(Heartbeat, LoadReport),
    /// It has recovered its data.
    Started {
        /// The node.
        node: NodeId,
        /// The start this is about.
        incarnation: u64,
    },
    /// It hosts these copies.
    Hosting {
        /// The node.
        node: NodeId,
        /// The copies.
        #[serde(deserialize_with = "by_partition")]
        copies: Vec<(PartitionId, Epoch)>,
    },
    /// From an operator.
    Operator {
        /// Comes back with the answer.
        id: u64,
        /// What is wanted.
        query: Query,
    },
    /// What a node wants to have decided about migrations; only of its current start.
    Steps {
        /// The node, source or target of each.
        node: NodeId,
        /// The start this is about.
        incarnation: u64,
        /// The steps.
        #[serde(deserialize_with = "by_partition")]
        steps: Vec<(MigrationId, Step)>,
    },
    /// How far the migrations are that this node is the source of; only of its current start.
    Progress {
        /// The node.
        node: NodeId,
        /// The start this is about.
        incarnation: u64,
        /// How far.
        #[serde(deserialize_with = "by_partition")]
        progress: Vec<(MigrationId, Progress)>,
    },
    /// As [`Request::Register`], of a node whose directory proves which it is.
    RegisterStart {
        /// What the node says about itself.
        registration: Registration,
        /// What its directory says.
        start: StartProof,
    },
    /// To [`Answer::TellHotKeys`].
    HotKeys {
        /// The node.
        node: NodeId,
        /// Its hottest keys.
        keys: HotKeys,
    },
}

/// Connections that a coordinator has not let in at its port, or has closed for what came over them,
/// since it was started, by the name of the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals(pub BTreeMap<String, u64>);

/// Where coordinators are reached, as decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordinators(pub BTreeMap<RaftId, String>);

/// Most reasons of one coordinator, and the longest name of one, bytes.
const REASONS_MAX: usize = 64;
const REASON_BYTES_MAX: usize = 64;

/// A node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeId,
    /// Its start.
    pub incarnation: u64,
    /// When it was sent, ms of the node's own clock; comes back with the answer.
    pub sent_ms: u64,
    /// The version of the table the node has; 0: none, or one that needs a full copy.
    pub table_version: u64,
    /// The version that all of its shards act on, or a newer one.
    pub acted_version: u64,
    /// How long before it was sent the shard that is furthest behind had begun its last turn, ms; 0: none serves yet.
    pub idle_ms: u32,
    /// No earlier start of the node can hold a lease: this one had one before, or the earlier ones are known to
    /// be gone.
    pub is_sole: bool,
    /// What it holds.
    pub figures: Figures,
}

/// What a coordinator says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The node is a member.
    Registered {
        /// The cluster; the node notes it in its data directory.
        cluster: ClusterId,
        /// The start this is about.
        incarnation: u64,
    },
    /// The node is no member, and why.
    Refused(Refusal),
    /// Ask the leader, if one is known; otherwise another coordinator.
    NotLeader(Option<(RaftId, String)>),
    /// To [`Request::Heartbeat`].
    Heartbeat(HeartbeatAnswer),
    /// What brings the node's table up to date.
    Table(Box<TableUpdate>),
    /// To [`Request::Operator`].
    Operator {
        /// That of the request.
        id: u64,
        /// The answer.
        report: Box<Report>,
    },
    /// The start of the node is the last that was accepted: it notes that in its data directory.
    StartNoted(Nonce),
    /// An operator wants to know the node's hottest keys.
    TellHotKeys,
}

/// A heartbeat was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    /// The start that the heartbeat came from.
    pub incarnation: u64,
    /// That of the heartbeat.
    pub sent_ms: u64,
    /// How long the node may serve from `sent_ms` on; 0: no longer than it may anyway.
    pub lease_ms: u32,
    /// The newest version of the table.
    pub table_version: u64,
    /// What the node is; none: no member, it has to register.
    pub status: Option<MemberStatus>,
}

/// Why bytes are no message: close the connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Not a message of [`PROTOCOL_VERSION`], or one with more in a list than there can be.
    #[error("no message of protocol {PROTOCOL_VERSION}: {0}")]
    Encoding(#[from] postcard::Error),
    /// A message with something behind it.
    #[error("{0} bytes behind a message")]
    Trailing(usize),
    /// Not a message of raft.
    #[error("no message of raft: {0}")]
    Raft(#[from] protobuf::ProtobufError),
    /// A message of raft with groups, which no release sends and whose decoder may recurse for ever.
    #[error("a message of raft with groups")]
    Groups,
    /// More reasons than there can be, or longer ones.
    #[error("no refusals of a coordinator")]
    Refusals,
    /// More coordinators than there can be, or with longer addresses.
    #[error("no coordinators of a cluster")]
    Coordinators,
    /// Longer than a frame.
    #[error("a message of {0} bytes: a frame holds {FRAME_PAYLOAD_BYTES_MAX}")]
    Length(usize),
}

impl Request {
    /// The node that says it; none: an operator does.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Request::Register(Registration { node, .. })
            | Request::RegisterStart {
                registration: Registration { node, .. },
                ..
            }
            | Request::Heartbeat(Heartbeat { node, .. }, _)
            | Request::Started { node, .. }
            | Request::Hosting { node, .. }
            | Request::Steps { node, .. }
            | Request::Progress { node, .. }
            | Request::HotKeys { node, .. } => Some(*node),
            Request::Operator { .. } => None,
        }
    }

    /// The payload of its frame.
    ///
    /// # Errors
    /// [`ProtocolError::Length`].
    pub fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        encode(self)
    }

    /// The request that `payload` is.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn decode(payload: &[u8]) -> Result<Request, ProtocolError> {
        decode(payload)
    }
}

impl Refusals {
    /// How many there were for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        let counts = self.0.values();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The payload of its frame.
    ///
    /// # Errors
    /// [`ProtocolError::Length`].
    pub fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        encode(self)
    }

    /// The refusals that `payload` is.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn decode(payload: &[u8]) -> Result<Refusals, ProtocolError> {
        let refusals: Refusals = decode(payload)?;
        let mut reasons = refusals.0.keys();
        if refusals.0.len() > REASONS_MAX || reasons.any(|name| name.len() > REASON_BYTES_MAX) {
            return Err(ProtocolError::Refusals);
        }
        Ok(refusals)
    }
}

impl Coordinators {
    /// The payload of its frame.
    ///
    /// # Errors
    /// [`ProtocolError::Length`].
    pub fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        encode(self)
    }

    /// The coordinators that `payload` names.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn decode(payload: &[u8]) -> Result<Coordinators, ProtocolError> {
        let coordinators: Coordinators = decode(payload)?;
        let mut addresses = coordinators.0.values();
        let is_long = |address: &String| address.len() > ADDRESS_BYTES_MAX;
        if coordinators.0.len() > COORDINATORS_MAX || addresses.any(is_long) {
            return Err(ProtocolError::Coordinators);
        }
        Ok(coordinators)
    }
}

impl Answer {
    /// The payload of its frame.
    ///
    /// # Errors
    /// [`ProtocolError::Length`].
    pub fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        encode(self)
    }

    /// The answer that `payload` is.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn decode(payload: &[u8]) -> Result<Answer, ProtocolError> {
        decode(payload)
    }
}

/// The payload of the frame of a message between coordinators.
///
/// # Errors
/// [`ProtocolError::Length`].
pub fn encode_raft(message: &raft::prelude::Message) -> Result<Vec<u8>, ProtocolError> {
    limited(message.write_to_bytes()?)
}

/// The message between coordinators that `payload` is; take it only from a coordinator.
///
/// # Errors
/// [`ProtocolError`].
pub fn decode_raft(payload: &[u8]) -> Result<raft::prelude::Message, ProtocolError> {
    if holds_group(payload, 0) {
        return Err(ProtocolError::Groups);
    }
    Ok(raft::prelude::Message::parse_from_bytes(payload)?)
}

fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, ProtocolError> {
    limited(postcard::to_allocvec(message)?)
}

fn limited(payload: Vec<u8>) -> Result<Vec<u8>, ProtocolError> {
    if payload.len() > FRAME_PAYLOAD_BYTES_MAX {
        return Err(ProtocolError::Length(payload.len()));
    }
    Ok(payload)
}

fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, ProtocolError> {
    let (message, rest) = postcard::take_from_bytes(payload)?;
    if !rest.is_empty() {
        return Err(ProtocolError::Trailing(rest.len()));
    }
    Ok(message)
}

/// How deep raft's messages are nested: message, snapshot, metadata, members.
const NESTED_MAX: usize = 4;

/// Whether there is a group at any level that the decoder looks at (RUSTSEC-2024-0437).
///
/// Commands are opaque to it, and may look like one. Bytes that are no message at all are left to
/// the decoder, which refuses them.
fn holds_group(mut bytes: &[u8], depth: usize) -> bool {
    while !bytes.is_empty() {
        let Some(tag) = varint(&mut bytes) else {
            return false;
        };
        let skipped = match tag & 7 {
            0 => varint(&mut bytes).map(|_| 0),
            1 => Some(8),
            2 => varint(&mut bytes),
            5 => Some(4),
            3 => return true,
            _ => return false,
        };
        let split = skipped.and_then(|n| bytes.split_at_checked(usize::try_from(n).ok()?));
        let Some((inner, rest)) = split else {
            return false;
        };
        if tag & 7 == 2 && is_message(tag >> 3, depth) && holds_group(inner, depth + 1) {
            return true;
        }
        bytes = rest;
    }
    false
}

/// Whether a field is a message: `entries` (7) and `snapshot` (9) of a message, `metadata` (2) of a
/// snapshot, `conf_state` (1) of metadata.
fn is_message(field: u64, depth: usize) -> bool {
    depth < NESTED_MAX
        && match depth {
            0 => matches!(field, 7 | 9),
            1 => field == 2,
            2 => field == 1,
            _ => false,
        }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;
