//! HOTKEYS: a look at the keys that are used, in one shard or in all of a node.

use ephesus_wire::resp::reply;
use ephesus_wire::{ShardId, Slot};

use crate::command::error::ClientError;
use crate::command::hotkeys::{Wanted, ranges};
use crate::command::parse::Request;
use crate::command::spec::Cmd;
use crate::keyspace::hot::tracking::Tracking;
use crate::node::process;
use crate::shard::core::{Asker, Core};
use crate::shard::mesh::Scope;

/// What the shard had taken when the look began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    cpu_ms: [u64; 2],
    net_bytes: u64,
}

impl Core {
    fn is_tracking(&self, shard: ShardId) -> bool {
        self.keyspace.now_ms() < self.node.stats[shard].tracks_until_ms.get()
    }

    /// Whether a client may ask for it now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_hotkeys(
        &self,
        cmd: Cmd,
        scope: Scope,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let is_active = match scope {
            Scope::Node => (0..self.node.shards()).any(|shard| self.is_tracking(ShardId(shard))),
            Scope::Shard | Scope::Part => self.is_tracking(self.id),
        };
        let refused = match cmd {
            Cmd::HotkeysStart if is_active => "hotkey tracking session already in progress",
            Cmd::HotkeysStop if !is_active => "no hotkey tracking session in progress",
            Cmd::HotkeysReset if is_active => {
                "hotkey tracking session in progress, stop tracking first"
            }
            Cmd::HotkeysStart => {
                let is_here = |slot: u16| {
                    let owner = self.router.routes.owner(Slot(slot));
                    match scope {
                        Scope::Node => owner.local().is_some(),
                        Scope::Shard | Scope::Part => owner.is(self.id),
                    }
                };
                let wanted = Wanted::parse(request)?;
                let other = wanted.slots.into_iter().find(|slot| !is_here(*slot));
                return other.map_or(Ok(()), |slot| Err(ClientError::HotkeysSlot(slot)));
            }
            _ => return Ok(()),
        };
        Err(ClientError::Hotkeys(refused))
    }

    fn taken(&self) -> Before {
        let stats = self.stats();
        Before {
            cpu_ms: process::thread_cpu_ms(),
            net_bytes: stats.net_input_bytes.get() + stats.net_output_bytes.get(),
        }
    }

    /// HOTKEYS in this shard.
    pub(crate) fn hotkeys_here(
        &mut self,
        asker: &mut Asker<'_>,
        scope: Scope,
        cmd: Cmd,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        if scope != Scope::Part {
            self.check_hotkeys(cmd, scope, request)?;
        }
        let now_ms = self.keyspace.now_ms();
        let mut out = reply::OK.to_vec();
        match cmd {
            Cmd::HotkeysStart => {
                let seed = self.execution.random.draw();
                let tracking = Tracking::new(Wanted::parse(request)?, now_ms, seed);
                self.stats().tracks_until_ms.set(tracking.until_ms());
                self.keyspace.tracking = Some(Box::new(tracking));
                self.execution.before_tracking = self.taken();
            }
            Cmd::HotkeysStop => {
                self.stats().tracks_until_ms.set(0);
                if let Some(tracking) = &mut self.keyspace.tracking {
                    tracking.stop(now_ms);
                }
            }
            Cmd::HotkeysReset => {
                self.stats().tracks_until_ms.set(0);
                self.keyspace.tracking = None;
            }
            _ => {
                out.clear();
                self.write_hotkeys(asker, scope, now_ms, &mut out);
            }
        }
        self.respond(asker, |_, reply| {
            reply.out.append(&mut out);
            Ok(())
        })
    }

    fn write_hotkeys(&self, asker: &Asker<'_>, scope: Scope, now_ms: u64, out: &mut Vec<u8>) {
        let Some(tracking) = &self.keyspace.tracking else {
            return reply::null(out, asker.protocol());
        };
        let partitioning = self.router.routes.partitioning();
        let owned = self.keyspace.owned().iter();
        let slots = owned.map(|id| partitioning.slots_of(*id).into_inner());
        let (before, taken) = (self.execution.before_tracking, self.taken());
        let mut found = tracking.found(now_ms, slots);
        found.slots = ranges(found.slots.iter().copied());
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let [[user, system], [user_before, system_before]] = [taken.cpu_ms, before.cpu_ms];
        found.cpu_ms = [since(user, user_before), since(system, system_before)];
        found.net_bytes = since(taken.net_bytes, before.net_bytes);
        match scope {
            Scope::Part => found.write_part(out),
            Scope::Node | Scope::Shard => found.write(out, asker.protocol()),
        }
    }
}
