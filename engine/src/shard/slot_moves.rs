//! Commands that the node asks the coordinators for: the answer comes later, in its place.

use ephesus_wire::Lsn;

use super::connection::Connection;
use super::core::Core;
use super::mesh::{Origin, Scope};
use crate::command::parse::{ArgList, Request};
use crate::command::spec::Cmd;
use crate::node::slot_moves::Asked;

/// More of them are under way than the node takes.
const BUSY: &[u8] = b"-ERR too many commands about slots are under way, try again\r\n";

impl Core {
    /// Hands CLUSTER MIGRATESLOTS, GETSLOTMIGRATIONS or CANCELSLOTMIGRATIONS to the node.
    pub(super) fn ask_about_slots(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        cmd: Cmd,
        request: &Request<'_>,
    ) {
        let ticket = connection.outbox.await_reply(None);
        let asked = Asked {
            origin: Origin {
                shard: self.id,
                conn: connection.token,
                ticket,
                part: 0,
            },
            protocol: connection.protocol,
            cmd,
            shard: (scope != Scope::Node).then_some(self.id),
            args: (2..request.len())
                .map(|index| request.arg(index).to_vec())
                .collect(),
        };
        let queue = self.node.slot_moves.as_ref();
        if queue.is_none_or(|queue| queue.try_send(asked).is_err()) {
            connection.outbox.fill(ticket, BUSY.to_vec(), Lsn::ZERO);
        }
    }
}
