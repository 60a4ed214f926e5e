//! Commands that name keys: executed here, forwarded, split over shards, or redirected.

use ephesus_wire::resp::reply;
use ephesus_wire::{Lsn, ShardId, Slot, slot_of};

use super::connection::Connection;
use super::core::{Asker, Core};
use super::gather::{Combine, Gather};
use super::mesh::Scope;
use crate::command::error::{self, ClientError};
use crate::command::parse::{ArgList, Request};
use crate::command::spec::{Cmd, Spec};
use crate::keyspace::Reply;
use crate::node::routes::Owner;

/// Where the keys of a command lead.
enum Route {
    Here(Slot),
    /// Another shard of this node.
    Shard(ShardId),
    /// Several shards of this node.
    Split,
    /// Another primary, of this node or another.
    Moved(Slot, Owner),
}

impl Core {
    pub(super) fn keyed(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<(), ClientError> {
        self.check_serving()?;
        match self.route(scope, spec, request)? {
            Route::Here(slot) => {
                self.execute_here(&mut Asker::Connection(connection), spec, request, slot)
            }
            Route::Moved(slot, owner) => {
                let primary = self.routes.primary(owner);
                let primary = primary.ok_or(ClientError::SlotNotServed)?;
                let (host, port) = (self.host_of(primary, connection.local), primary.port);
                connection.outbox.write(self.turn, |out| {
                    error::write_moved(out, slot, &host, port);
                    Lsn::ZERO
                });
                Ok(())
            }
            Route::Shard(shard) => {
                let ticket = connection.outbox.await_reply(None);
                let protocol = connection.protocol;
                if source.first() == Some(&b'*') {
                    self.forward(shard, connection, (ticket, 0), protocol, source);
                } else {
                    let mut encoded = Vec::new();
                    let args: Vec<&[u8]> = (0..request.len()).map(|i| request.arg(i)).collect();
                    reply::command(&mut encoded, &args);
                    self.forward(shard, connection, (ticket, 0), protocol, &encoded);
                }
                Ok(())
            }
            Route::Split => self.split(connection, spec, request),
        }
    }

    fn route(
        &self,
        scope: Scope,
        spec: &Spec,
        request: &Request<'_>,
    ) -> Result<Route, ClientError> {
        let first_key = usize::from(spec.first_key);
        if spec.step > 1 && !(request.len() - first_key).is_multiple_of(usize::from(spec.step)) {
            return Err(ClientError::WrongArity(spec.name));
        }
        let slot = match request.located() {
            Some(located) if first_key == 1 => located.slot,
            _ => slot_of(request.arg(first_key)),
        };
        let owner = self.routes.owner(slot);
        if owner.is_nobody() {
            return Err(ClientError::SlotNotServed);
        }
        let mut is_split = false;
        if spec.last_key != spec.first_key as i8 {
            for index in spec.key_indices(request.len()).skip(1) {
                let other = slot_of(request.arg(index));
                if other != slot {
                    let other = self.routes.owner(other);
                    let is_here = owner.local().is_some() && other.local().is_some();
                    if scope == Scope::Shard || !may_span_slots(spec.cmd) || !is_here {
                        return Err(ClientError::CrossSlot);
                    }
                    is_split |= other != owner;
                }
            }
        }
        Ok(match (scope, owner.local()) {
            _ if is_split => Route::Split,
            _ if owner.is(self.id) => Route::Here(slot),
            (Scope::Node | Scope::Part, Some(shard)) => Route::Shard(shard),
            _ => Route::Moved(slot, owner),
        })
    }

    /// Executes a command that another shard has routed here.
    pub(super) fn keyed_here(
        &mut self,
        asker: &mut Asker<'_>,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        self.check_serving()?;
        let slot = slot_of(request.arg(usize::from(spec.first_key)));
        let is_here = |index| self.routes.owner(slot_of(request.arg(index))).is(self.id);
        if !spec.key_indices(request.len()).all(is_here) {
            return Err(ClientError::SlotNotServed);
        }
        self.execute_here(asker, spec, request, slot)
    }

    #[inline]
    fn execute_here(
        &mut self,
        asker: &mut Asker<'_>,
        spec: &'static Spec,
        request: &Request<'_>,
        slot: Slot,
    ) -> Result<(), ClientError> {
        self.check_room(spec)?;
        self.respond(asker, |keyspace, reply| {
            keyspace.execute(spec, request, slot, reply)
        })
    }

    /// Sends every shard the part of the command that concerns its keys.
    fn split(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        self.check_room(spec)?;
        let mut places: Vec<Vec<u32>> = vec![Vec::new(); self.peers.len()];
        for (place, index) in spec.key_indices(request.len()).enumerate() {
            let owner = self.routes.owner(slot_of(request.arg(index)));
            let shard = owner.local().ok_or(ClientError::CrossSlot)?;
            places[usize::from(shard.0)].push(place as u32);
        }
        let (first_key, step) = (usize::from(spec.first_key), usize::from(spec.step));
        let mut parts = Vec::new();
        for (shard, places) in (0..).map(ShardId).zip(&places) {
            if places.is_empty() {
                continue;
            }
            let mut args = vec![request.arg(0)];
            for &place in places {
                let first = first_key + place as usize * step;
                args.extend((first..first + step).map(|index| request.arg(index)));
            }
            self.keyspace.check_part(spec.cmd, &args[..])?;
            parts.push((shard, args));
        }
        let combine = match spec.cmd {
            Cmd::Mget => {
                Combine::Interleave(places.into_iter().filter(|p| !p.is_empty()).collect())
            }
            Cmd::Mset => Combine::AllOk,
            _ => Combine::Sum,
        };
        let protocol = connection.protocol;
        let gather = Gather::new(combine, protocol, parts.len());
        let ticket = connection.outbox.await_reply(Some(Box::new(gather)));
        for (part, (shard, args)) in parts.iter().enumerate() {
            if *shard == self.id {
                let (mut out, slot) = (Vec::new(), slot_of(args[1]));
                let mut reply = Reply {
                    out: &mut out,
                    protocol,
                    gate: Lsn::ZERO,
                };
                if let Err(error) = self.keyspace.execute(spec, &args[..], slot, &mut reply) {
                    error.write(reply.out);
                }
                let gate = reply.gate;
                connection.outbox.deliver(ticket, part as u16, &out, gate);
            } else {
                let mut encoded = Vec::new();
                reply::command(&mut encoded, args);
                self.forward(
                    *shard,
                    connection,
                    (ticket, part as u16),
                    protocol,
                    &encoded,
                );
            }
        }
        Ok(())
    }
}

/// Commands whose keys may be in different slots of the node, through the entry port.
fn may_span_slots(cmd: Cmd) -> bool {
    matches!(
        cmd,
        Cmd::Mget | Cmd::Mset | Cmd::Del | Cmd::Unlink | Cmd::Exists
    )
}
