//! HOTKEYS: a look at the keys that are used, in one shard or in all of a node.

use ephesus_wire::resp::reply;
use ephesus_wire::{ShardId, Slot};

use crate::command::error::ClientError;
use crate::command::hotkeys::{Found, Wanted, ranges};
use crate::command::parse::Request;
use crate::command::spec::Cmd;
use crate::keyspace::hot::tracking::Tracking;
use crate::node::process;
use crate::shard::core::{Asker, Core};
use crate::shard::mesh::Scope;

/// What the shard had taken when its session began, and what it has found in one that is over.
#[derive(Debug, Default)]
pub(crate) struct HotKeys {
    cpu_ms: [u64; 2],
    found: Option<Found>,
}

impl Core {
    /// Decides for all shards that a client means; answers whether there is anything to do.
    ///
    /// # Errors
    /// Why nothing of it is done.
    pub(crate) fn decide_hotkeys(
        &self,
        cmd: Cmd,
        scope: Scope,
        request: &Request<'_>,
    ) -> Result<bool, ClientError> {
        let shards: Vec<ShardId> = match scope {
            Scope::Node => (0..self.node.shards()).map(ShardId).collect(),
            Scope::Shard | Scope::Part => vec![self.id],
        };
        let (sessions, now_ms) = (&self.node.hotkeys, self.keyspace.now_ms());
        match cmd {
            Cmd::HotkeysStart => sessions.start(&shards, now_ms, || {
                let wanted = Wanted::parse(request)?;
                let is_here = |slot: &&u16| {
                    let owner = self.router.routes.owner(Slot(**slot)).local();
                    owner.is_some_and(|shard| shards.contains(&shard))
                };
                let other = wanted.slots.iter().find(|slot| !is_here(slot)).copied();
                other.map_or(Ok(wanted), |slot| Err(ClientError::HotkeysSlot(slot)))
            })?,
            Cmd::HotkeysStop => return Ok(sessions.stop(&shards, now_ms)),
            Cmd::HotkeysReset => sessions.reset(&shards, now_ms)?,
            _ => {}
        }
        Ok(true)
    }

    /// HOTKEYS in this shard.
    pub(crate) fn hotkeys_here(
        &mut self,
        asker: &mut Asker<'_>,
        scope: Scope,
        cmd: Cmd,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let is_done = scope == Scope::Part || self.decide_hotkeys(cmd, scope, request)?;
        let mut out = Vec::new();
        if cmd == Cmd::HotkeysGet {
            self.write_hotkeys(asker, scope, &mut out);
        } else if is_done {
            self.follow_hotkeys();
            out.extend_from_slice(reply::OK);
        } else {
            reply::null(&mut out, asker.protocol());
        }
        self.respond(asker, |_, reply| {
            reply.out.append(&mut out);
            Ok(())
        })
    }

    /// Does what was decided for this shard.
    fn follow_hotkeys(&mut self) {
        let session = self.node.hotkeys.of(self.id);
        let tracked = self.keyspace.tracking.as_ref().map(|t| t.session().number);
        let found = self.execution.hotkeys.found.as_ref().map(|f| f.session);
        let Some(session) = session else {
            self.keyspace.tracking = None;
            self.execution.hotkeys.found = None;
            return;
        };
        let stopped_ms = session.stopped_ms;
        if tracked.or(found) != Some(session.number) {
            let seed = self.execution.random.draw();
            self.keyspace.tracking = Some(Box::new(Tracking::new(session, seed)));
            self.execution.hotkeys = HotKeys {
                cpu_ms: process::thread_cpu_ms(),
                found: None,
            };
        }
        if let Some(stopped_ms) = stopped_ms {
            self.end_hotkeys(stopped_ms);
        }
    }

    /// Ends a session that is over by itself.
    pub(crate) fn review_hotkeys(&mut self) {
        if let Some(tracking) = &self.keyspace.tracking {
            let until_ms = tracking.session().until_ms();
            if self.keyspace.now_ms() >= until_ms {
                self.end_hotkeys(until_ms);
            }
        }
    }

    fn end_hotkeys(&mut self, ended_ms: u64) {
        if let Some(found) = self.found_hotkeys(ended_ms) {
            self.execution.hotkeys.found = Some(found);
        }
        self.keyspace.tracking = None;
    }

    /// What was found by now in a session that is in progress.
    fn found_hotkeys(&self, now_ms: u64) -> Option<Found> {
        let tracking = self.keyspace.tracking.as_ref()?;
        let mut found = tracking.found(now_ms);
        if !found.has_slots {
            let partitioning = self.router.routes.partitioning();
            let owned = self.keyspace.owned().iter();
            let slots = owned.map(|id| partitioning.slots_of(*id).into_inner());
            found.slots = ranges(slots);
        }
        let now = process::thread_cpu_ms().into_iter();
        let before = self.execution.hotkeys.cpu_ms;
        for (cpu_ms, (now, before)) in found.cpu_ms.iter_mut().zip(now.zip(before)) {
            *cpu_ms = now.saturating_sub(before);
        }
        Some(found)
    }

    fn write_hotkeys(&self, asker: &Asker<'_>, scope: Scope, out: &mut Vec<u8>) {
        let running = self
            .found_hotkeys(self.keyspace.now_ms())
            .map(|found| Found {
                is_active: true,
                ..found
            });
        match (
            running.as_ref().or(self.execution.hotkeys.found.as_ref()),
            scope,
        ) {
            (None, _) => reply::null(out, asker.protocol()),
            (Some(found), Scope::Part) => found.write_part(out),
            (Some(found), Scope::Node | Scope::Shard) => found.write(out, asker.protocol()),
        }
    }
}

#[cfg(test)]
mod tests;
