//! Every shard of every member, as it is told apart and found: the same as long as the members are.

use ephesus_coordinator::state::MemberStatus;
use ephesus_coordinator::view::View;
use ephesus_wire::table::shard_id_hex;
use ephesus_wire::{NodeId, ShardId};

use super::Me;

/// One shard of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    pub node: NodeId,
    pub shard: ShardId,
    /// 40 hex digits, stable over restarts.
    pub id: [u8; 40],
    /// `None`: this node, which knows by itself how it was reached.
    pub host: Option<String>,
    /// Its direct port.
    pub port: u16,
    /// The same for clients that come over TLS.
    pub tls_port: Option<u16>,
    /// The coordinator counts its node as failed.
    pub failed: bool,
}

/// Every shard of every member.
#[derive(Debug)]
pub(super) struct Directory {
    me: Me,
    /// The other members, ascending.
    others: Vec<Other>,
    /// This node's come first, then those of the others, each in order.
    pub(super) primaries: Box<[Primary]>,
}

#[derive(Debug)]
struct Other {
    node: NodeId,
    entry: String,
    tls_port: Option<u16>,
    failed: bool,
    shards: u16,
    /// Index of its first shard; none: it has no address, and its shards are there for nobody.
    first: Option<u32>,
}

impl Directory {
    pub(super) fn new(view: Option<&View>, me: Me) -> Directory {
        let mut primaries: Vec<Primary> = (0..me.shards)
            .map(|shard| Primary::new(me.node, ShardId(shard), None, (me.port, me.tls_port), false))
            .collect();
        let mut others = Vec::new();
        for other in others_of(view, me) {
            let (node, entry, tls_port, shards, failed) = other;
            let address = split_address(entry);
            let first = address.is_some().then_some(primaries.len() as u32);
            if let Some((host, port)) = address {
                let ports = (port, tls_port);
                primaries.extend((0..shards).map(|shard| {
                    Primary::new(node, ShardId(shard), Some(host.clone()), ports, failed)
                }));
            }
            others.push(Other {
                node,
                entry: entry.to_owned(),
                tls_port,
                failed,
                shards,
                first,
            });
        }
        Directory {
            me,
            others,
            primaries: primaries.into(),
        }
    }

    /// Whether that of this view is the same.
    pub(super) fn is_of(&self, view: Option<&View>, me: Me) -> bool {
        let known = self.others.iter();
        let known = known.map(|other| {
            let Other {
                node,
                entry,
                tls_port,
                shards,
                failed,
                ..
            } = other;
            (*node, &**entry, *tls_port, *shards, *failed)
        });
        self.me == me && known.eq(others_of(view, me))
    }

    /// Index of the primary that a shard is.
    pub(super) fn index(&self, node: NodeId, shard: ShardId) -> Option<u32> {
        let (first, shards) = if node == self.me.node {
            (0, self.me.shards)
        } else {
            let place = self.others.binary_search_by_key(&node, |other| other.node);
            let other = self.others.get(place.ok()?)?;
            (other.first?, other.shards)
        };
        (shard.0 < shards).then(|| first + u32::from(shard.0))
    }
}

/// Node, entry, TLS port, shards and whether it has failed, of all members but this node.
fn others_of(
    view: Option<&View>,
    me: Me,
) -> impl Iterator<Item = (NodeId, &str, Option<u16>, u16, bool)> {
    let members = view.into_iter().flat_map(|view| &view.members);
    let others = members.filter(move |(node, _)| **node != me.node);
    others.map(|(node, member)| {
        let failed = member.status == MemberStatus::Failed;
        let addresses = &member.addresses;
        let (entry, tls_port) = (&*addresses.entry, addresses.tls_port);
        (*node, entry, tls_port, member.shards, failed)
    })
}

impl Primary {
    fn new(
        node: NodeId,
        shard: ShardId,
        host: Option<String>,
        (entry, tls_entry): (u16, Option<u16>),
        failed: bool,
    ) -> Primary {
        let direct = |entry: u16| entry.saturating_add(1).saturating_add(shard.0);
        Primary {
            node,
            shard,
            id: shard_id_hex(&node, shard),
            host,
            port: direct(entry),
            tls_port: tls_entry.map(direct),
            failed,
        }
    }

    /// The port for clients that come as this one does; 0 as in Redis: there is none.
    #[must_use]
    pub fn port_for(&self, is_tls: bool) -> u16 {
        match is_tls {
            true => self.tls_port.unwrap_or(0),
            false => self.port,
        }
    }
}

/// Host and port of `host:port`; an IPv6 host loses its brackets.
fn split_address(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port.parse().ok()?))
}
