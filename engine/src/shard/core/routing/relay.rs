//! Forwarded commands whose keys are not here, or not all of them: their partitions have moved while the
//! commands were under way, or are about to.
//!
//! A command of another shard's entry connection is executed where its keys are served, not where the
//! asking shard has thought: it is passed on, or divided again, or answered MOVED. Whoever executes it answers the asking shard
//! directly. A command that is divided here is answered from here, once the parts are ([`Relays`]).
//!
//! What a client sends keeps its order as long as a partition does not move within the node a second time
//! before all shards have taken the routes of the first move: a move takes many turns of every shard.

use std::collections::BTreeMap;

use ephesus_wire::resp::reply;
use ephesus_wire::{Lsn, PartitionId, ShardId, Slot, slot_of};

use crate::command::error::{self, ClientError};
use crate::command::parse::{self, ArgList, Request};
use crate::command::spec::{Cmd, Spec};
use crate::net::ConnToken;
use crate::node::routes::Owner;
use crate::planted::Bug;
use crate::shard::core::admission::waiting::needs_lease;
use crate::shard::core::execution::scripts::Caller;
use crate::shard::core::replies::gather::Gather;
use crate::shard::core::routing::forwarding::Answers;
use crate::shard::core::routing::route::{Parts, can_be_divided};
use crate::shard::core::{Answer, Asker, Core};
use crate::shard::mesh::{Forwarded, Kind, Origin, Replies, Scope};

/// Shards that one command is passed on by, at most. Routes come to all shards within a moment, so that one is
/// the rule; more than a few are a bug, which shall not go round for ever.
const HOPS_MAX: u8 = 8;

/// Where replies to parts of a relayed command go; no connection has this place.
pub(crate) const RELAY: ConnToken = ConnToken {
    index: u32::MAX,
    generation: 0,
};

/// Who sends what shards tell each other of keys that clients may have cached; no connection has this place.
pub(crate) const TRACKING: ConnToken = ConnToken {
    index: u32::MAX,
    generation: 1,
};

/// Where a slot's commands are executed, as far as this shard knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    /// Here or elsewhere: it is being decided.
    Held,
    /// Another shard of this node, or it knows better.
    Shard(ShardId),
    /// Not on this node.
    Away(Owner),
}

/// Where all keys of a forwarded command, or of a transaction, lead.
pub(crate) enum Lead {
    All(Place),
    /// To several shards of this node.
    Divided,
    /// Some to another node.
    Torn,
}

/// Forwarded commands that were divided here, and parts of whose replies are missing.
#[derive(Default)]
pub(crate) struct Relays {
    next: u64,
    by_number: BTreeMap<u64, Relay>,
}

struct Relay {
    forwarded: Forwarded,
    gather: Gather,
}

impl Relays {
    /// Memory of the parts that have come.
    pub(crate) fn held_bytes(&self) -> usize {
        let relays = self.by_number.values();
        relays.map(|relay| relay.gather.held_bytes()).sum()
    }
}

impl Core {
    /// Whether commands on keys of the partition may be executed here, for all that the routes say: see
    /// [`Routes::lets_serve`](crate::node::Routes::lets_serve).
    #[inline]
    pub(crate) fn serves(&self, partition: PartitionId) -> bool {
        let copy = self.keyspace.served(partition);
        copy.is_some_and(|copy| {
            self.router
                .routes
                .lets_serve(partition, copy.epoch, self.id)
                || self.keyspace.planted.has(Bug::HeldIsStronger)
        })
    }

    /// Where commands on a slot are executed. What may be served here counts, then where the routes lead.
    pub(crate) fn place(&self, slot: Slot) -> Place {
        let partition = self.router.routes.partitioning().partition_of(slot);
        if self.is_waited_for(partition) {
            return Place::Held;
        }
        if self.serves(partition) {
            return Place::Here;
        }
        let owner = self.router.routes.owner_of(partition);
        let shard = owner
            .local()
            .or_else(|| self.router.routes.staged(partition));
        match shard {
            Some(shard) if shard != self.id => Place::Shard(shard),
            _ => Place::Away(owner),
        }
    }

    /// Executes a command on keys that another shard has routed here, or leads it on.
    pub(crate) fn keyed_of_peer(
        &mut self,
        asker: &mut Asker<'_>,
        forwarded: &Forwarded,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<Answer, ClientError> {
        self.router.check_serving()?;
        let first_key = spec.keys_of(request).next().unwrap_or(spec.first_key_at());
        let slot = slot_of(request.arg(first_key));
        let is_here = |index| {
            self.router
                .routes
                .owner(slot_of(request.arg(index)))
                .is(self.id)
        };
        let is_settled = self.admission.holds.is_idle() && spec.keys_of(request).all(is_here);
        let lead = if is_settled {
            Lead::All(Place::Here)
        } else {
            self.lead(spec, request)
        };
        match lead {
            Lead::All(Place::Here) if spec.counts_keys() => {
                let caller = Caller {
                    user: match forwarded.kind {
                        Kind::CommandOf(id) => Some(self.user_of(id)?),
                        _ => None,
                    },
                    time_max: self.node.settings.lua_time_limit,
                };
                self.execute_script(asker, spec, request, &caller)?;
                Ok(Answer::Written)
            }
            Lead::All(Place::Here) if spec.names_keys() => self.migrate_keys(asker, request),
            Lead::All(Place::Here) => {
                self.execute_here(asker, spec, request, slot)?;
                Ok(Answer::Written)
            }
            Lead::All(Place::Held) => Ok(Answer::Held),
            Lead::All(Place::Shard(shard)) => self.relay_on(shard, forwarded, source),
            Lead::All(Place::Away(owner)) => {
                if let Asker::Peer { out, .. } = asker {
                    self.write_moved_away(slot, owner, out)?;
                }
                Ok(Answer::Written)
            }
            Lead::Divided if !can_be_divided(spec.cmd) => Err(ClientError::CrossSlot),
            Lead::Divided => self.relay(forwarded, spec, request),
            Lead::Torn => Err(ClientError::CrossSlot),
        }
    }

    /// Sends the client of another shard to the primary of a slot that is not of this node.
    pub(crate) fn write_moved_away(
        &self,
        slot: Slot,
        owner: Owner,
        out: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        // Of this node's primaries only one that is not served yet.
        let primary = self.router.routes.primary(owner).and_then(|primary| {
            let host = primary.host.as_deref()?;
            Some((host, primary.port))
        });
        let (host, port) = primary.ok_or(ClientError::SlotNotServed)?;
        error::write_moved(out, slot, host, port);
        Ok(())
    }

    pub(crate) fn lead(&self, spec: &Spec, request: &Request<'_>) -> Lead {
        let keys = spec.keys_of(request);
        self.lead_of_slots(keys.map(|index| slot_of(request.arg(index))))
    }

    #[expect(clippy::expect_used, reason = "what has no keys goes another way")]
    pub(crate) fn lead_of_slots(&self, mut keys: impl Iterator<Item = Slot>) -> Lead {
        let first_slot = keys.next().expect("a command with keys");
        let first = self.place(first_slot);
        let mut is_divided = false;
        let mut is_torn = false;
        let is_away = |place| matches!(place, Place::Away(_));
        for slot in keys {
            let place = self.place(slot);
            if place == Place::Held {
                return Lead::All(Place::Held);
            }
            is_divided |= place != first;
            is_torn |= slot != first_slot && (is_away(place) || is_away(first));
        }
        match () {
            () if first == Place::Held => Lead::All(Place::Held),
            () if is_torn => Lead::Torn,
            () if is_divided => Lead::Divided,
            () => Lead::All(first),
        }
    }

    /// Forwards a command of another shard's connection to a third one.
    pub(crate) fn relay_on(
        &mut self,
        to: ShardId,
        forwarded: &Forwarded,
        source: &[u8],
    ) -> Result<Answer, ClientError> {
        if forwarded.hops >= HOPS_MAX {
            tracing::error!(shard = %to, "a command goes round between shards");
            return Err(ClientError::SlotNotServed);
        }
        let relayed = Forwarded {
            hops: forwarded.hops + 1,
            ..*forwarded
        };
        self.router.peers[to].relay_on(relayed, source);
        Ok(Answer::Later)
    }

    /// Executes a forwarded command without keys.
    pub(crate) fn keyless_of_peer(
        &mut self,
        asker: &mut Asker<'_>,
        forwarded: &Forwarded,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<Answer, ClientError> {
        if needs_lease(spec.cmd) {
            self.router.check_serving()?;
        }
        let slot = match spec.cmd {
            Cmd::Flushall | Cmd::Flushdb if self.admission.holds.holds_any() => {
                return Ok(Answer::Held);
            }
            Cmd::Flushall | Cmd::Flushdb | Cmd::Dbsize | Cmd::Keys | Cmd::ClusterSlotStats
                if self.is_between_routes() =>
            {
                return Ok(Answer::Held);
            }
            Cmd::ClusterCountkeysinslot => Some(parse::count_keys_in_slot(request)?),
            Cmd::ClusterGetkeysinslot => Some(parse::get_keys_in_slot(request)?.0),
            _ => None,
        };
        if let Some(Place::Shard(shard)) = slot.map(|slot| self.place(slot)) {
            return self.relay_on(shard, forwarded, source);
        }
        self.whole_keyspace(asker, Scope::Part, spec, request)
    }

    /// Divides a forwarded command whose keys are on several shards of the node by now.
    fn relay(
        &mut self,
        forwarded: &Forwarded,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<Answer, ClientError> {
        if forwarded.hops >= HOPS_MAX {
            tracing::error!("a command is divided again and again");
            return Err(ClientError::SlotNotServed);
        }
        self.refuse_if_full(spec)?;
        let shard_of = |slot| match self.place(slot) {
            Place::Here => Some(self.id),
            Place::Shard(shard) => Some(shard),
            Place::Held | Place::Away(_) => None,
        };
        let Parts { parts, combine } = self.parts(spec, request, shard_of)?;
        let protocol = forwarded.protocol;
        let gather = Gather::new(combine, protocol, parts.len(), self.reply_bytes_max());
        let gather = gather.writing(spec.is_write());
        let (client, tracks) = (forwarded.client, forwarded.tracks);
        let mut own = self.execute_own_part(spec, &parts, protocol, (client, tracks))?;
        let number = self.replies.relays.next;
        self.replies.relays.next += 1;
        let relay = Relay {
            forwarded: *forwarded,
            gather,
        };
        self.replies.relays.by_number.insert(number, relay);
        for (part, (shard, args)) in (0..).zip(&parts) {
            let origin = Origin {
                shard: self.id,
                conn: RELAY,
                ticket: number,
                part,
            };
            if *shard == self.id {
                if let Some((out, gate)) = own.take() {
                    self.relay_answered(origin, out, gate);
                }
            } else {
                let mut encoded = Vec::new();
                reply::command(&mut encoded, args);
                let part = Forwarded {
                    origin,
                    client: forwarded.client,
                    kind: Kind::Command,
                    tracks,
                    protocol,
                    database: forwarded.database,
                    len: encoded.len(),
                    asked: *shard,
                    hops: forwarded.hops + 1,
                };
                self.router.peers.forward(*shard, part, &encoded);
            }
        }
        Ok(Answer::Later)
    }

    /// A part of a relayed command was executed too late.
    pub(crate) fn relay_late(&mut self, origin: Origin) {
        if origin.conn == RELAY
            && let Some(relay) = self.replies.relays.by_number.remove(&origin.ticket)
        {
            self.answer_late(&relay.forwarded);
        }
    }

    /// Own parts of relayed commands may have been executed too late.
    pub(crate) fn give_up_relays(&mut self) {
        for relay in std::mem::take(&mut self.replies.relays.by_number).into_values() {
            self.answer_late(&relay.forwarded);
        }
    }

    /// Has the client's connection closed: nothing that could be answered is true.
    fn answer_late(&mut self, forwarded: &Forwarded) {
        let mut late = forwarded.answered(0);
        late.is_late = true;
        let answers = vec![late];
        self.router.peers[forwarded.origin.shard].answer(Replies {
            answers,
            ..Replies::default()
        });
    }

    /// Takes in a part of a relayed command's reply; answers the asking shard when it was the last one.
    pub(crate) fn relay_answered(&mut self, origin: Origin, bytes: Vec<u8>, gate: Lsn) {
        let Origin { ticket, part, .. } = origin;
        let relays = &mut self.replies.relays.by_number;
        let relay = relays.get_mut(&ticket).filter(|_| origin.conn == RELAY);
        let is_complete = relay.is_some_and(|relay| relay.gather.add(part, bytes, gate));
        if let Some(mut relay) = is_complete.then(|| relays.remove(&ticket)).flatten() {
            if relay.gather.is_torn() {
                return self.answer_late(&relay.forwarded);
            }
            let (bytes, gate) = relay.gather.finish();
            let answers = Answers::of(&relay.forwarded, bytes, gate);
            self.answer_once_committed(relay.forwarded.origin.shard, answers);
        }
    }
}

#[cfg(test)]
mod tests;
