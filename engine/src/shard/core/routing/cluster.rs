//! The cluster as this shard shows it to clients, kept ready until the table changes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ephesus_wire::ShardId;
use ephesus_wire::resp::reply::Protocol;

use crate::command::cluster::{ClusterView, ViewNode};
use crate::command::spec::Cmd;
use crate::node::Routes;
use crate::node::routes::Primary;
use crate::shard::core::Core;
use crate::shard::mesh::Scope;

/// Distance from a client port to its bus port, as Redis Cluster has it.
const BUS_PORT_OFFSET: u16 = 10_000;

/// Replies that are kept: a few commands, two protocols, the addresses of one machine.
const KEPT_MAX: usize = 32;

/// What a kept reply depends on besides the table: the address at which a client came in, whether it did over TLS, and
/// the shard that it is shown as `myself`.
type Asked = (Cmd, Protocol, (IpAddr, bool), ShardId);

/// Replies about one table.
#[derive(Default)]
pub(crate) struct ClusterReplies(Vec<(Asked, Vec<u8>)>);

impl Core {
    /// Follows another table.
    pub fn set_routes(&mut self, routes: Arc<Routes>) {
        if self.router.routes.turns_within_node(&routes, self.id) {
            self.settle_connections();
        }
        let was_between = self.is_between_routes();
        self.router.routes = routes;
        self.router.cluster_replies.0.clear();
        self.review_holds(was_between);
        self.review_sharded_channels();
        // Orders that follow from the table come before its routes.
        self.node
            .lease
            .acts_on(self.id, self.router.routes.version());
    }

    /// Lets no connection execute a command until the ones before have been answered: those may be on their
    /// way to a shard that keys have left, and would be overtaken.
    fn settle_connections(&mut self) {
        for connection in self.connections.iter_mut() {
            connection.settling |= connection.outbox.awaited() > 0;
        }
    }

    /// Appends the reply to one of the CLUSTER commands about the whole cluster.
    pub(crate) fn write_cluster(
        &mut self,
        cmd: Cmd,
        scope: Scope,
        protocol: Protocol,
        (local, is_tls): (SocketAddr, bool),
        out: &mut Vec<u8>,
    ) {
        let myself = match scope {
            // Which shard has a connection of the entry port is the kernel's choice.
            Scope::Node => ShardId(0),
            Scope::Shard | Scope::Part => self.id,
        };
        let asked = (cmd, protocol, (local.ip(), is_tls), myself);
        if let Some((_, reply)) = self
            .router
            .cluster_replies
            .0
            .iter()
            .find(|(a, _)| *a == asked)
        {
            out.extend_from_slice(reply);
            return;
        }
        let view = self.cluster_view((local, is_tls), myself);
        let mut reply = Vec::new();
        match cmd {
            Cmd::ClusterSlots => view.write_slots(&mut reply, protocol),
            Cmd::ClusterShards => view.write_shards(&mut reply, protocol),
            Cmd::ClusterNodes => view.write_nodes(&mut reply, protocol),
            Cmd::ClusterMyid => view.write_my_id(&mut reply),
            // Depends on the lease as well.
            _ => return view.write_info(out, protocol),
        }
        out.extend_from_slice(&reply);
        if self.router.cluster_replies.0.len() < KEPT_MAX {
            self.router.cluster_replies.0.push((asked, reply));
        }
    }

    /// The host under which clients that came in at `local` are shown a primary.
    pub(crate) fn host_of(&self, primary: &Primary, local: SocketAddr) -> String {
        let announced = || self.node.announced(local);
        primary.host.clone().unwrap_or_else(announced)
    }

    fn cluster_view(&self, (local, is_tls): (SocketAddr, bool), myself: ShardId) -> ClusterView {
        let primaries = self.router.routes.primaries().iter();
        let owned = primaries.zip(self.router.routes.holdings());
        let nodes = owned.map(|(primary, holding)| ViewNode {
            id: primary.id,
            host: self.host_of(primary, local),
            port: primary.port,
            tls_port: primary.tls_port,
            client_port: primary.port_for(is_tls),
            bus_port: primary.port.saturating_add(BUS_PORT_OFFSET),
            slots: holding.slots.clone(),
            failed: primary.failed,
            epoch: holding.epoch.0,
        });
        ClusterView {
            myself: usize::from(myself.0),
            nodes: nodes.collect(),
            serving: self.router.serving,
            messages_sent: 0,
            messages_received: 0,
        }
    }
}
