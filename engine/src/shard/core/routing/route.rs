//! Where a command with keys goes: executed here, held, forwarded, split over shards, or redirected.

use ephesus_wire::resp::reply;
use ephesus_wire::{Lsn, ShardId, Slot, slot_of};

use super::relay::Place;
use crate::command::error::{self, ClientError};
use crate::command::parse::{self, ArgList, Request};
use crate::command::spec::{Cmd, Spec};
use crate::node::routes::Owner;
use crate::shard::connection::{Connection, KEYLESS_BYTES};
use crate::shard::core::execution::scripts::Caller;
use crate::shard::core::replies::gather::{Combine, Gather};
use crate::shard::core::replies::outbox::Delivered;
use crate::shard::core::{Asker, Core, Step};
use crate::shard::mesh::{Kind, Scope};

/// Where the keys of a command lead.
pub(crate) enum Route {
    Here(Slot),
    /// Some of them are here, and it is being decided whether they stay.
    Held,
    /// Another shard of this node.
    Shard(ShardId),
    /// Several shards of this node.
    Split,
    /// Another primary, of this node or another.
    Moved(Slot, Owner),
}

impl Core {
    pub(crate) fn keyed(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<Step, ClientError> {
        if spec.names_keys() && spec.keys_of(request).next().is_none() {
            self.migrate_keys(&mut Asker::Connection(connection), request)?;
            return Ok(Step::Done);
        }
        self.router.check_serving()?;
        match self.route(scope, spec, request)? {
            Route::Here(_) if spec.names_keys() => {
                self.migrate_keys(&mut Asker::Connection(connection), request)?;
                Ok(Step::Done)
            }
            Route::Here(slot) => {
                self.execute_here(&mut Asker::Connection(connection), spec, request, slot)?;
                Ok(Step::Done)
            }
            elsewhere => self.execute_elsewhere(connection, elsewhere, spec, request, source),
        }
    }

    /// [`Core::keyed`] of a command whose keys are counted by an argument, perhaps none.
    pub(crate) fn keyed_by_count(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<Step, ClientError> {
        connection.note_executed(KEYLESS_BYTES);
        let count = match parse::count_of_keys(request) {
            // What is no function is refused before its keys are counted.
            Err(_) if matches!(spec.cmd, Cmd::Fcall | Cmd::FcallRo) => 0,
            count => count?,
        };
        if count > 0 {
            self.router.check_serving()?;
            let route = self.route(scope, spec, request)?;
            if !matches!(route, Route::Here(_)) {
                return self.execute_elsewhere(connection, route, spec, request, source);
            }
        }
        let caller = Caller {
            user: self.limited_user(connection),
            time_max: self.node.settings.lua_time_limit,
        };
        self.execute_script(&mut Asker::Connection(connection), spec, request, &caller)?;
        Ok(Step::Done)
    }

    /// Has others execute a command, or tells the client who does.
    fn execute_elsewhere(
        &mut self,
        connection: &mut Connection,
        route: Route,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<Step, ClientError> {
        match route {
            Route::Here(_) => {}
            Route::Held => return self.admission.holds.step_of_held(),
            Route::Moved(slot, owner) => {
                let moved = self.moved(connection, slot, owner)?;
                connection.outbox.write(self.turn, |out| {
                    out.extend_from_slice(&moved);
                    Lsn::ZERO
                });
                return Ok(Step::Redirected);
            }
            Route::Shard(shard) => {
                let ticket = connection.outbox.await_reply(None);
                let protocol = connection.protocol;
                let user = match spec.counts_keys() {
                    true => self.limited_user(connection),
                    false => None,
                };
                let kind = user.map_or(Kind::Command, |user| Kind::CommandOf(user.id()));
                let whole = request.as_array(source);
                self.forward_as(kind, shard, connection, (ticket, 0), protocol, &whole);
            }
            Route::Split => self.split(connection, spec, request)?,
        }
        Ok(Step::Done)
    }

    /// The reply that sends a client to the primary of a slot.
    pub(crate) fn moved(
        &self,
        connection: &Connection,
        slot: Slot,
        owner: Owner,
    ) -> Result<Vec<u8>, ClientError> {
        let primary = self.router.routes.primary(owner);
        let primary = primary.ok_or(ClientError::SlotNotServed)?;
        let host = self.host_of(primary, connection.local);
        let mut moved = Vec::new();
        let port = primary.port_for(connection.tls.is_some());
        error::write_moved(&mut moved, slot, &host, port);
        Ok(moved)
    }

    /// Sends a client to the owner of a slot that is not served here.
    pub(crate) fn lead_away(
        &self,
        connection: &mut Connection,
        slot: Slot,
    ) -> Result<(), ClientError> {
        let owner = self.router.routes.owner(slot);
        let moved = self.moved(connection, slot, owner)?;
        connection.outbox.write(self.turn, |out| {
            out.extend_from_slice(&moved);
            Lsn::ZERO
        });
        Ok(())
    }

    pub(crate) fn route(
        &self,
        scope: Scope,
        spec: &Spec,
        request: &Request<'_>,
    ) -> Result<Route, ClientError> {
        let first_key = match spec.names_keys() {
            true => spec.keys_of(request).next().unwrap_or_default(),
            false => spec.first_key_at(),
        };
        let slot = match request.located() {
            Some(located) if first_key == 1 => located.slot,
            _ => slot_of(request.arg(first_key)),
        };
        let owner = self.router.routes.owner(slot);
        if owner.is_nobody() {
            return Err(ClientError::SlotNotServed);
        }
        let mut is_split = false;
        if spec.may_have_many_keys() {
            for index in spec.keys_of(request).skip(1) {
                let other = slot_of(request.arg(index));
                if other != slot {
                    let other = self.router.routes.owner(other);
                    let is_here = owner.local().is_some() && other.local().is_some();
                    // What cannot be divided may have keys of one shard.
                    let may_span = can_be_divided(spec.cmd) || other == owner;
                    if scope == Scope::Shard || !may_span || !is_here {
                        return Err(ClientError::CrossSlot);
                    }
                    is_split |= other != owner;
                }
            }
        }
        // Behind the slots, as in Redis.
        check_pairs(spec, request)?;
        let is_here = is_split || owner.is(self.id);
        if is_here && !self.admission.holds.is_idle() && self.has_held_key(spec, request) {
            return Ok(Route::Held);
        }
        Ok(match (scope, owner.local()) {
            _ if is_split => Route::Split,
            _ if owner.is(self.id) => Route::Here(slot),
            (Scope::Node | Scope::Part, Some(shard)) => Route::Shard(shard),
            _ => self.route_away(scope, slot, owner),
        })
    }

    /// The way of a command whose slot is another primary's: the copy that is about to replace that one may
    /// be here already.
    fn route_away(&self, scope: Scope, slot: Slot, owner: Owner) -> Route {
        match self.place(slot) {
            Place::Here => Route::Here(slot),
            Place::Held => Route::Held,
            Place::Shard(shard) if scope == Scope::Node => Route::Shard(shard),
            Place::Shard(_) | Place::Away(_) => Route::Moved(slot, owner),
        }
    }

    /// Sends every shard the part of the command that concerns its keys.
    fn split(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        self.refuse_if_full(spec)?;
        let shard_of = |slot| self.router.routes.owner(slot).local();
        let Parts { parts, combine } = self.parts(spec, request, shard_of)?;
        let protocol = connection.protocol;
        let gather = Gather::new(combine, protocol, parts.len(), self.reply_bytes_max());
        let gather = gather.writing(spec.is_write());
        let tracks = connection.tracks_reads();
        connection.is_remembered |= tracks;
        let tracker = ((self.id, connection.token), tracks);
        let mut own = self.execute_own_part(spec, &parts, protocol, tracker)?;
        let ticket = connection.outbox.await_reply(Some(Box::new(gather)));
        for (part, (shard, args)) in (0..).zip(&parts) {
            if *shard == self.id {
                if let Some((out, gate)) = own.take() {
                    let delivered = connection.outbox.deliver(ticket, part, out, gate);
                    debug_assert_eq!(delivered, Delivered::Kept, "others have a part");
                }
            } else {
                let mut encoded = Vec::new();
                reply::command(&mut encoded, args);
                self.forward(*shard, connection, (ticket, part), protocol, &encoded);
            }
        }
        Ok(())
    }

    /// Divides a command by the shards that its keys lead to.
    ///
    /// # Errors
    /// [`ClientError::CrossSlot`] where a key leads to none; what keeps a part from being executed.
    #[expect(
        clippy::indexing_slicing,
        reason = "keys lead to shards of this node here"
    )]
    pub(crate) fn parts<'a>(
        &self,
        spec: &Spec,
        request: &'a Request<'_>,
        shard_of: impl Fn(Slot) -> Option<ShardId>,
    ) -> Result<Parts<'a>, ClientError> {
        let mut places: Vec<Vec<u32>> = vec![Vec::new(); self.router.peers.count()];
        for (place, index) in (0..).zip(spec.keys_of(request)) {
            let shard = shard_of(slot_of(request.arg(index))).ok_or(ClientError::CrossSlot)?;
            places[usize::from(shard.0)].push(place);
        }
        let (first_key, step) = (usize::from(spec.first_key()), usize::from(spec.step()));
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
        Ok(Parts { parts, combine })
    }
}

/// A command divided by shards, and how the parts become one reply.
pub(crate) struct Parts<'a> {
    /// The arguments of each part, its name included.
    pub(crate) parts: Vec<(ShardId, Vec<&'a [u8]>)>,
    pub(crate) combine: Combine,
}

/// Refuses keys that lack their values.
pub(crate) fn check_pairs(spec: &Spec, request: &Request<'_>) -> Result<(), ClientError> {
    let (first_key, step) = (usize::from(spec.first_key()), usize::from(spec.step()));
    if step > 1 && !(request.len() - first_key).is_multiple_of(step) {
        return Err(ClientError::WrongArity(spec.name));
    }
    Ok(())
}

/// Commands whose keys may be on different shards of the node, through the entry port.
pub(crate) fn can_be_divided(cmd: Cmd) -> bool {
    matches!(
        cmd,
        Cmd::Mget | Cmd::Mset | Cmd::Del | Cmd::Unlink | Cmd::Exists | Cmd::Touch | Cmd::Watch
    )
}
