//! What each end of a link says about itself first.
//!
//! ```text
//!  0             2             4      5       6   8          16        32     48        56      88
//!  +-------------+-------------+------+-------+---+----------+---------+------+---------+-------+
//!  | version min | version max | role | flags | 0 | features | cluster | uuid | raft id | nonce |
//!  |     u16     |     u16     |  u8  |  u8   |   |   u64    |   16    |  16  |   u64   |  32   |
//!  +-------------+-------------+------+-------+---+----------+---------+------+---------+-------+
//!  flags: 1 the cluster is known, 2 a secret is configured
//! ```
//!
//! Integers are little-endian. A later release may append fields and set more flags: what a reader
//! does not know it ignores, but a proof covers all bytes as they came.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use super::error::HandshakeError;
use crate::ids::NodeId;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;

/// Bytes of the hello of this release, and the fewest of any.
pub const HELLO_BYTES: usize = 88;

const FLAG_CLUSTER: u8 = 1;
const FLAG_SECRET: u8 = 2;

/// The protocol versions one side speaks, all from `min` to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Versions {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

/// What a side of a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkRole {
    /// A member of the coordinator.
    Coordinator,
    /// A node.
    Node,
    /// A command that a person or a script runs.
    Operator,
}

/// Who one side of a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The protocol versions it speaks.
    pub versions: Versions,
    /// A bit for each optional ability.
    pub features: u64,
    /// What it is.
    pub role: LinkRole,
    /// UUID of its cluster; none while it has not been in any.
    pub cluster: Option<[u8; 16]>,
    /// Its own UUID; zero for an operator.
    pub node: NodeId,
    /// Its number within raft; zero unless it is a coordinator.
    pub raft_id: u64,
}

/// An identity and what makes this one handshake unlike all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who speaks.
    pub identity: Identity,
    /// From the operating system's random numbers, anew for every handshake: replays of old
    /// handshakes are told apart by nothing else.
    pub nonce: [u8; NONCE_BYTES],
}

/// A hello as its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) hello: Hello,
    pub(super) has_secret: bool,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Layout {
    version_min: u16,
    version_max: u16,
    role: u8,
    flags: u8,
    zero: u16,
    features: u64,
    cluster: [u8; 16],
    node: [u8; 16],
    raft_id: u64,
    nonce: [u8; NONCE_BYTES],
}

const _: () = assert!(size_of::<Layout>() == HELLO_BYTES);

impl Versions {
    /// The newest version of both; none if there is none.
    #[must_use]
    pub fn newest_common(self, other: Versions) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl LinkRole {
    fn to_byte(self) -> u8 {
        match self {
            LinkRole::Coordinator => 1,
            LinkRole::Node => 2,
            LinkRole::Operator => 3,
        }
    }

    fn from_byte(byte: u8) -> Option<LinkRole> {
        match byte {
            1 => Some(LinkRole::Coordinator),
            2 => Some(LinkRole::Node),
            3 => Some(LinkRole::Operator),
            _ => None,
        }
    }
}

impl Hello {
    pub(super) fn encode(&self, has_secret: bool) -> Vec<u8> {
        let Identity {
            versions,
            features,
            role,
            cluster,
            node,
            raft_id,
        } = self.identity;
        let known = if cluster.is_some() { FLAG_CLUSTER } else { 0 };
        let secret = if has_secret { FLAG_SECRET } else { 0 };
        let layout = Layout {
            version_min: versions.min,
            version_max: versions.max,
            role: role.to_byte(),
            flags: known | secret,
            zero: 0,
            features,
            cluster: cluster.unwrap_or_default(),
            node: node.0,
            raft_id,
            nonce: self.nonce,
        };
        bytemuck::bytes_of(&layout).to_vec()
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Received, HandshakeError> {
        let Some(known) = payload.get(..HELLO_BYTES) else {
            return Err(HandshakeError::Malformed("hello is too short"));
        };
        let layout: Layout = bytemuck::pod_read_unaligned(known);
        let role =
            LinkRole::from_byte(layout.role).ok_or(HandshakeError::Role { found: layout.role })?;
        let versions = Versions {
            min: layout.version_min,
            max: layout.version_max,
        };
        let hello = Hello {
            identity: Identity {
                versions,
                features: layout.features,
                role,
                cluster: (layout.flags & FLAG_CLUSTER != 0).then_some(layout.cluster),
                node: NodeId(layout.node),
                raft_id: layout.raft_id,
            },
            nonce: layout.nonce,
        };
        Ok(Received {
            hello,
            has_secret: layout.flags & FLAG_SECRET != 0,
        })
    }
}
