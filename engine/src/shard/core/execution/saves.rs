//! SAVE, BGSAVE and BGREWRITEAOF, which have images written of what the log holds, and WAITAOF, which waits for the log.
//!
//! What was acknowledged is in the log already; images only let a start replay less.

use ephesus_wire::Lsn;
use ephesus_wire::resp::reply;

use crate::command::client::timeout_ms;
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Request, integer};
use crate::command::spec::Cmd;
use crate::keyspace::large_replies::Room;
use crate::shard::core::replies::promised::Promised;
use crate::shard::core::{Answer, Asker, Core};
use crate::shard::mesh::Scope;
use crate::shard::stats::ShardStats;

/// Images that clients have asked for.
#[derive(Default)]
pub(crate) struct Saves {
    /// Whoever writes images was not told yet.
    is_wanted: bool,
    is_running: bool,
    /// Those that wait for all of them.
    waiting: Vec<Promised>,
    /// Somebody has asked while they were written: they are written once more, for those.
    is_wanted_again: bool,
    next: Vec<Promised>,
}

/// Somebody who waits until the device has what the log has.
struct DurabilityWait {
    promised: Promised,
    lsn: Lsn,
    /// `u64::MAX`: for ever.
    until_ms: u64,
}

/// Those who wait for the device.
#[derive(Default)]
pub(crate) struct DurabilityWaits(Vec<DurabilityWait>);

impl DurabilityWaits {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the log should be synced now rather than at its next turn.
    pub(crate) fn wait_beyond(&self, durable: Lsn) -> bool {
        self.0.iter().any(|wait| wait.lsn > durable)
    }
}

impl Saves {
    fn begin(&mut self) {
        match self.is_running {
            true => self.is_wanted_again = true,
            false => (self.is_wanted, self.is_running) = (true, true),
        }
    }

    fn wait(&mut self, promised: Promised) {
        match self.is_running {
            true => self.next.push(promised),
            false => self.waiting.push(promised),
        }
    }

    /// The images are written; those who have waited for them.
    fn end(&mut self) -> Vec<Promised> {
        let over = std::mem::take(&mut self.waiting);
        self.is_running = false;
        self.waiting = std::mem::take(&mut self.next);
        if std::mem::take(&mut self.is_wanted_again) {
            self.begin();
        }
        over
    }

    /// Whether images of everything are to be written, which were not asked for before.
    pub(crate) fn take_wanted(&mut self) -> bool {
        std::mem::take(&mut self.is_wanted)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }
}

impl Core {
    /// Refuses SAVE and its like while images are written that were asked for, by this shard or by any of the node.
    ///
    /// # Errors
    /// They are being written.
    pub(crate) fn check_saves(&self, cmd: Cmd, is_of_node: bool) -> Result<(), ClientError> {
        let saving = |stats: &ShardStats| stats.saving.get() != 0;
        let is_running = match is_of_node {
            true => self.node.stats.iter().any(saving),
            false => saving(self.stats()),
        };
        match cmd {
            _ if !is_running => Ok(()),
            Cmd::Bgrewriteaof => Err(ClientError::RewriteInProgress),
            _ => Err(ClientError::SaveInProgress),
        }
    }

    /// Has images written of all that the log holds now. A shard that does so for another client already, who has asked the
    /// whole node, does it once more.
    ///
    /// # Errors
    /// SAVE in a transaction.
    pub(crate) fn save(&mut self, asker: &mut Asker<'_>, cmd: Cmd) -> Result<(), ClientError> {
        let text = match cmd {
            Cmd::Bgsave => "Background saving started",
            Cmd::Bgrewriteaof => "Background append only file rewriting started",
            _ => {
                let promised = self.promise(asker).ok_or(ClientError::NotInTransaction)?;
                self.execution.saves.wait(promised);
                self.begin_save();
                return Ok(());
            }
        };
        self.begin_save();
        self.respond(asker, |_, reply| {
            reply::simple(reply.out, text);
            Ok(())
        })
    }

    fn begin_save(&mut self) {
        self.execution.saves.begin();
        self.stats().saving.set(1);
    }

    /// The images that were asked for are written, or not: there is no room for them.
    pub(crate) fn saved(&mut self, outcome: &Result<(), ClientError>) {
        let over = self.execution.saves.end();
        let is_running = self.execution.saves.is_running;
        self.stats().saving.set(is_running.into());
        for promised in over {
            let mut bytes = Vec::new();
            match outcome {
                Ok(()) => bytes.extend_from_slice(reply::OK),
                Err(error) => error.write(&mut bytes),
            }
            self.keep_promise(&promised, bytes, Lsn::ZERO, Room::default());
        }
    }

    /// `WAITAOF numlocal numreplicas timeout`: there are no replicas that could be waited for.
    ///
    /// # Errors
    /// What is wrong with its arguments.
    pub(crate) fn wait_for_device(
        &mut self,
        asker: &mut Asker<'_>,
        scope: Scope,
        request: &Request<'_>,
    ) -> Result<Answer, ClientError> {
        let wait = WaitAof::parse(request)?;
        let now_ms = self.keyspace.now_ms();
        let until_ms = match wait.timeout_ms {
            _ if !wait.is_local_wanted => now_ms,
            0 => u64::MAX,
            timeout_ms => now_ms.saturating_add(timeout_ms),
        };
        let lsn = self.keyspace.log.last_record();
        let is_durable = lsn <= self.keyspace.log.durable();
        let may_wait = !is_durable && until_ms > now_ms;
        let promised = may_wait.then(|| self.promise(asker)).flatten();
        let Some(promised) = promised else {
            self.respond(asker, |_, reply| {
                write_local(reply.out, is_durable, scope == Scope::Part);
                Ok(())
            })?;
            return Ok(Answer::Written);
        };
        self.execution.durability_waits.0.push(DurabilityWait {
            promised,
            lsn,
            until_ms,
        });
        Ok(Answer::Later)
    }

    /// Whether somebody waits for what the device does not have yet.
    pub(crate) fn awaits_device(&self) -> bool {
        let durable = self.keyspace.log.durable();
        self.execution.durability_waits.wait_beyond(durable)
    }

    /// Answers those whose writes the device has, and those who do not wait any longer.
    pub(crate) fn tend_durability_waits(&mut self) {
        if self.execution.durability_waits.is_empty() {
            return;
        }
        let (durable, now_ms) = (self.keyspace.log.durable(), self.keyspace.now_ms());
        let waits = &mut self.execution.durability_waits.0;
        let is_over = |wait: &mut DurabilityWait| wait.lsn <= durable || wait.until_ms <= now_ms;
        let over: Vec<DurabilityWait> = waits.extract_if(.., is_over).collect();
        for wait in over {
            let mut bytes = Vec::new();
            write_local(&mut bytes, wait.lsn <= durable, wait.promised.is_part());
            self.keep_promise(&wait.promised, bytes, Lsn::ZERO, Room::default());
        }
    }
}

/// Appends one shard's part of the reply to WAITAOF, or all of it.
fn write_local(out: &mut Vec<u8>, is_durable: bool, is_part: bool) {
    match is_part {
        true => reply::integer(out, is_durable.into()),
        false => write_acknowledged(out, is_durable.into()),
    }
}

/// Appends the reply to WAITAOF: the logs and the replicas that have everything.
pub(crate) fn write_acknowledged(out: &mut Vec<u8>, local: i64) {
    reply::array(out, 2);
    reply::integer(out, local);
    reply::integer(out, 0);
}

/// The arguments of WAITAOF.
pub(crate) struct WaitAof {
    is_local_wanted: bool,
    timeout_ms: u64,
}

impl WaitAof {
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn parse<A: ArgList + ?Sized>(args: &A) -> Result<WaitAof, ClientError> {
        let local = integer(args.arg(1))?;
        if !(0..=1).contains(&local) {
            return Err(ClientError::LocalLogs);
        }
        if !integer(args.arg(2)).is_ok_and(|replicas| replicas >= 0) {
            return Err(ClientError::Replicas);
        }
        Ok(WaitAof {
            is_local_wanted: local == 1,
            timeout_ms: timeout_ms(args.arg(3))?,
        })
    }
}
