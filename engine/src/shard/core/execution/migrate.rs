//! MIGRATE: keys are given to another server, and removed here once that has them.
//!
//! ```text
//! copied here, once committed --> a thread of the node writes to the target --> what that has taken is removed here
//! ```
//!
//! Meanwhile clients use the keys as ever. One that is written before the target has it stays, and the command says so: no
//! write is lost. The target may be this very node: its RESTORE is a write as any other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ephesus_wire::limits::QUERY_BYTES_MAX;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{Lsn, slot_of};
use zeroize::Zeroizing;

use crate::command::error::ClientError;
use crate::command::parse::migrate::Migrate;
use crate::command::parse::{ArgList, Request};
use crate::command::spec::Cmd;
use crate::keyspace::Reply;
use crate::keyspace::copies::Copied;
use crate::keyspace::large_replies::Room;
use crate::node::copying::{Job, Outcome};
use crate::shard::core::replies::promised::Promised;
use crate::shard::core::routing::relay::Place;
use crate::shard::core::{Answer, Asker, Core};

/// What this shard has others' threads copy.
#[derive(Default)]
pub(crate) struct Copies {
    next: u64,
    under_way: BTreeMap<u64, UnderWay>,
    /// Those whose values are not committed yet, in the order of what they wait for.
    waiting: VecDeque<(Lsn, Job)>,
}

struct UnderWay {
    promised: Promised,
    keys: Arc<[Copied]>,
    /// The keys stay here, whatever happens to them meanwhile.
    stay: bool,
}

fn answered(outcome: &Result<(), ClientError>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match outcome {
        Ok(()) => bytes.extend_from_slice(reply::OK),
        Err(error) => error.write(&mut bytes),
    }
    bytes
}

impl Core {
    /// MIGRATE of keys that are here.
    ///
    /// # Errors
    /// What is wrong with its arguments; there is no room for the values.
    pub(crate) fn migrate_keys(
        &mut self,
        asker: &mut Asker<'_>,
        request: &Request<'_>,
    ) -> Result<Answer, ClientError> {
        let migrate = Migrate::parse(request)?;
        if matches!(asker, Asker::Transaction { .. }) {
            return Err(ClientError::NotInTransaction);
        }
        if !migrate.copies {
            self.refuse_if_full(Cmd::Migrate.spec())?;
        }
        let mut out = Vec::new();
        let mut reply = Reply {
            out: &mut out,
            protocol: Protocol::Resp2,
            gate: Lsn::ZERO,
        };
        let (mut keys, mut bytes) = (Vec::new(), 0);
        for index in Cmd::Migrate.spec().keys_of(request) {
            if let Some(copied) = self.keyspace.copied(request.arg(index), &mut reply) {
                bytes += copied.bytes();
                keys.push(copied);
            }
            if bytes > QUERY_BYTES_MAX {
                return Err(ClientError::ValuesTooLarge(QUERY_BYTES_MAX));
            }
        }
        let gate = reply.gate;
        if keys.is_empty() {
            self.respond(asker, |_, reply| {
                reply.gate = gate;
                reply::simple(reply.out, "NOKEY");
                Ok(())
            })?;
            return Ok(Answer::Written);
        }
        let keys: Arc<[Copied]> = keys.into();
        let port = std::str::from_utf8(request.arg(2)).ok();
        let copies = &mut self.execution.copies;
        let id = copies.next;
        let argument = |index: usize| request.arg(index).to_vec();
        let job = Job {
            id,
            peer: self.node.peers[self.id].clone(),
            host: argument(1),
            port: port.and_then(|port| port.parse().ok()).unwrap_or(0),
            timeout: Duration::from_millis(migrate.timeout_ms),
            database: migrate.database,
            user: migrate.user.map(argument),
            password: migrate.password.map(argument).map(Zeroizing::new),
            replaces: migrate.replaces,
            keys: Arc::clone(&keys),
        };
        if !self.node.copying.reserve(&job) {
            return Err(ClientError::MigratesTooMany);
        }
        if gate <= self.keyspace.log.committed() {
            if !self.node.copying.ask(job) {
                return Err(ClientError::MigratesTooMany);
            }
        } else {
            let at = copies.waiting.partition_point(|(lsn, _)| *lsn <= gate);
            copies.waiting.insert(at, (gate, job));
        }
        copies.next += 1;
        let promised = self.promise(asker).ok_or(ClientError::NotInTransaction)?;
        let stay = migrate.copies;
        if !stay {
            self.keyspace.watch_copies(id, &keys);
        }
        let under_way = UnderWay {
            promised,
            keys,
            stay,
        };
        self.execution.copies.under_way.insert(id, under_way);
        Ok(Answer::Later)
    }

    /// Has values copied that are committed by now.
    pub(crate) fn go_on_copying(&mut self) {
        let committed = self.keyspace.log.committed();
        while let Some((gate, job)) = self.execution.copies.waiting.pop_front() {
            if gate > committed {
                self.execution.copies.waiting.push_front((gate, job));
                return;
            }
            let id = job.id;
            if !self.node.copying.ask(job) {
                let refused = Err(ClientError::MigratesTooMany);
                if let Some(under_way) = self.execution.copies.under_way.remove(&id) {
                    self.keyspace.unwatch_copies(id, &under_way.keys);
                    let bytes = answered(&refused);
                    self.keep_promise(&under_way.promised, bytes, Lsn::ZERO, Room::default());
                }
            }
        }
    }

    /// A target has taken keys, or not.
    pub fn copied(&mut self, id: u64, outcome: Outcome) {
        let Some(under_way) = self.execution.copies.under_way.remove(&id) else {
            return;
        };
        let mut gate = Lsn::ZERO;
        let removed = match under_way.stay {
            true => Ok(()),
            false => {
                let unwritten = self.keyspace.unwatch_copies(id, &under_way.keys);
                let keys: Vec<_> = under_way.keys.iter().zip(unwritten).collect();
                self.remove_taken(&keys, &outcome.taken, &mut gate)
            }
        };
        let failed = outcome.error.map(ClientError::Migrate);
        let answer = answered(&failed.map_or(removed, Err));
        self.keep_promise(&under_way.promised, answer, gate, Room::default());
    }

    /// Removes what a target has taken, but for what was written since; `keys` tells what was not.
    fn remove_taken(
        &mut self,
        keys: &[(&Copied, bool)],
        taken: &[usize],
        gate: &mut Lsn,
    ) -> Result<(), ClientError> {
        if taken.is_empty() {
            return Ok(());
        }
        self.router.check_serving()?;
        let taken = taken.iter().filter_map(|index| keys.get(*index));
        let (mut is_all, mut same) = (true, Vec::new());
        for (copied, is_unwritten) in taken {
            let is_here = self.place(slot_of(&copied.key)) == Place::Here;
            match is_here && *is_unwritten {
                true => same.push(&*copied.key),
                false => is_all = false,
            }
        }
        let mut out = Vec::new();
        let mut reply = Reply {
            out: &mut out,
            protocol: Protocol::Resp2,
            gate: Lsn::ZERO,
        };
        let removed = self.keyspace.remove_copied(&same, &mut reply);
        *gate = reply.gate;
        removed?;
        match is_all {
            true => Ok(()),
            false => Err(ClientError::MigrateChanged),
        }
    }
}
