//! What commands cost, noted as they are executed.

use std::time::Duration;

use ephesus_wire::database;

use crate::command::parse::{ArgList, Request, migrate};
use crate::command::spec::{Cmd, Spec};
use crate::node::slow::{self, Sample, SlowCommand};
use crate::shard::connection::Connection;
use crate::shard::core::Core;
use crate::shard::core::execution::pace;
use crate::shard::mesh::{Client, Note};
use crate::shard::timing::Timing;

/// Below this threshold of the slow log every command is timed alone, so that the log tells what each has taken.
const EXACT_BELOW_USEC: i64 = 1_000;

/// Who has sent a command.
#[derive(Clone, Copy)]
pub(crate) enum Asking<'a> {
    Here(&'a Connection),
    /// A client of another shard, which knows more of it.
    There(Client),
}

/// A command that is about to be executed.
#[derive(Clone, Copy)]
pub(crate) struct Timed {
    is_alone: bool,
}

impl Core {
    /// Begins to time a command. One that is pipelined with others has its share of what they take together, unless it
    /// may take long.
    #[inline]
    pub(crate) fn begin_timed(&mut self, spec: &Spec, source: &[u8], is_pipelined: bool) -> Timed {
        let threshold = self.node.live.slower_than_usec();
        let is_exact = (0..EXACT_BELOW_USEC).contains(&threshold);
        let is_alone = !is_pipelined || is_exact || Timing::is_long(spec, source);
        if is_alone {
            self.end_timing();
        }
        if is_alone || !self.execution.timing.has_begun() {
            self.execution.timing.begin(self.node.time.instant());
        }
        self.execution.timing.is_elsewhere = false;
        Timed { is_alone }
    }

    /// The command was executed. One that only other shards do anything for is theirs to note; here it has taken its
    /// part of the time.
    #[inline]
    pub(crate) fn end_timed(
        &mut self,
        timed: Timed,
        asking: Asking<'_>,
        spec: &Spec,
        request: &Request<'_>,
    ) {
        let is_here = !self.execution.timing.is_elsewhere;
        let is_used = self.execution.timing.has_used(self.keyspace.uses());
        let cmd = (is_here || is_used).then_some(spec.cmd);
        let nanos = self.end_command(timed, cmd);
        if timed.is_alone && cmd.is_some() {
            if spec.counts_keys() {
                let took = pace::as_input(Duration::from_nanos(nanos));
                self.keyspace.add_work(took);
            }
            self.note_if_slow(nanos, asking, spec, request);
        }
    }

    /// A command is over that does not count as one that was executed here.
    pub(crate) fn end_uncounted(&mut self, timed: Timed) {
        self.end_command(timed, None);
    }

    #[inline]
    fn end_command(&mut self, timed: Timed, cmd: Option<Cmd>) -> u64 {
        let uses = self.keyspace.uses();
        if !self.execution.timing.has_used(uses) {
            self.keyspace.note_other();
        }
        self.execution.timing.executed(cmd, uses);
        match timed.is_alone {
            true => self.end_timing(),
            false => 0,
        }
    }

    /// Counts what was executed since the clock was read last, so that a timing begins with nothing; answers what each
    /// has taken, ns.
    pub(crate) fn end_timing(&mut self) -> u64 {
        if !self.keyspace.is_untimed() {
            return 0;
        }
        let now = self.node.time.instant();
        let stats = &self.node.stats[self.id];
        let (nanos, each) = self.execution.timing.count(now, stats);
        self.keyspace.note_time(nanos);
        each
    }

    fn note_if_slow(&mut self, nanos: u64, asking: Asking<'_>, spec: &Spec, request: &Request<'_>) {
        let (usec, ms, live) = (nanos / 1000, nanos / 1_000_000, &self.node.live);
        let at_s = self.keyspace.now_ms() / 1000;
        let threshold_ms = live.latency_threshold_ms();
        if threshold_ms > 0 && ms >= threshold_ms {
            self.node.slow.sample(Sample { at_s, ms });
        }
        let threshold_usec = u64::try_from(live.slower_than_usec());
        if threshold_usec.is_ok_and(|threshold| usec >= threshold) {
            let command = SlowCommand {
                id: 0,
                at_s,
                usec,
                args: shown(spec, request),
                address: String::new(),
                name: String::new(),
            };
            match asking {
                Asking::Here(connection) => {
                    let command = SlowCommand {
                        address: connection.remote.to_string(),
                        name: connection.name().to_owned(),
                        ..command
                    };
                    self.node.slow.log(command, live.slow_log_len());
                }
                Asking::There((shard, client)) => {
                    let note = Note::Slow(Box::new(command));
                    self.router.peers[shard].note(client, note);
                }
            }
        }
    }
}

/// The arguments as an administrator may see them: keys as clients name them, and no secrets.
fn shown(spec: &Spec, request: &Request<'_>) -> Vec<Vec<u8>> {
    let may_be_secret = matches!(
        spec.cmd,
        Cmd::Auth | Cmd::Hello | Cmd::ConfigSet | Cmd::AclSetuser
    );
    let secrets = match spec.cmd {
        _ if may_be_secret => 1..request.len(),
        Cmd::Migrate => migrate::secrets(request),
        _ => 0..0,
    };
    let args: Vec<&[u8]> = (0..request.len())
        .map(|index| match database::split(request.arg(index)) {
            _ if secrets.contains(&index) => b"(redacted)",
            (_, arg) => arg,
        })
        .collect();
    slow::kept(args.into_iter())
}

#[cfg(test)]
mod tests;
