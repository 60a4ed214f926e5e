//! What keeps a connection from executing its next command, and how it goes on.

use ephesus_wire::{ShardId, slot_of};

use crate::command::parse::{ArgList, Request};
use crate::command::spec::{Cmd, Spec};
use crate::net::{ConnToken, ListenerKind};
use crate::shard::connection::{Blocked, Connection};
use crate::shard::core::Core;
use crate::shard::core::execution::pubsub::is_published;

/// Bytes of commands that every connection may have other shards owe it answers to, whatever others have taken:
/// clients that do not read keep a queue full for long.
const SHARE_BYTES_MIN: usize = 16 << 10;

impl Core {
    /// Why a command cannot be executed yet.
    pub(crate) fn must_wait(
        &self,
        connection: &Connection,
        spec: &Spec,
        request: &Request<'_>,
    ) -> Option<Blocked> {
        if let Some(pause) = &self.admission.pause
            && (pause.is_all || spec.is_paused_with_writes())
        {
            return Some(Blocked::Pause {
                writes: spec.is_paused_with_writes(),
            });
        }
        if spec.counts_keys() && self.has_long_before() {
            return Some(Blocked::LongTurn);
        }
        if spec.may_write()
            && let Some(behind) = self.log_to_wait_for(connection, spec, request)
        {
            return Some(Blocked::Log(behind));
        }
        if connection.settling && connection.outbox.awaited() > 0 {
            return Some(Blocked::Settling);
        }
        if is_published(spec.cmd) && self.has_uncommitted(connection) {
            return Some(Blocked::Commit);
        }
        let is_any_full =
            self.router.peers.is_any_full() || self.admission.client_budget.is_much_asked_by_gone();
        if !is_any_full || connection.kind == ListenerKind::Direct {
            return None;
        }
        let has_keys = spec.first_key() > 0 || spec.counts_keys();
        let goes_there = |shard: ShardId| shard != self.id || !has_keys;
        let full = self.first_wanted(spec, request, |shard| {
            goes_there(shard) && !self.may_forward(connection, shard)
        });
        full.map(Blocked::Peer)
    }

    /// Whether a connection's script or transaction has to wait for others.
    pub(crate) fn has_long_before(&self) -> bool {
        self.admission.long_turn.is_over(self.turn) || self.admission.blocked.has_long()
    }

    /// A connection's script or transaction was executed: what it has taken is work of its client, and of the turn.
    pub(crate) fn note_long(&mut self, connection: &mut Connection) {
        let work = self.keyspace.take_work();
        connection.note_executed(work);
        self.admission.long_turn.add(self.turn, work);
    }

    /// Whether something that was executed for the connection is not committed, as far as is known here.
    pub(crate) fn has_uncommitted(&self, connection: &Connection) -> bool {
        !connection
            .outbox
            .is_committed(self.keyspace.log.committed())
    }

    /// Whether a connection may have that shard owe it more.
    fn may_forward(&self, connection: &Connection, to: ShardId) -> bool {
        let has_share = connection.asked_bytes < SHARE_BYTES_MIN;
        !self.admission.client_budget.is_much_asked_by_gone()
            && (has_share || !self.router.peers[to].is_full())
    }

    /// Whether a connection has to wait before it has that shard owe it more.
    pub(crate) fn must_not_forward(&self, connection: &Connection, to: ShardId) -> bool {
        let is_any_full =
            self.router.peers.is_any_full() || self.admission.client_budget.is_much_asked_by_gone();
        is_any_full && !self.may_forward(connection, to)
    }

    /// The first shard that a write goes to and whose log is behind.
    fn log_to_wait_for(
        &self,
        connection: &Connection,
        spec: &Spec,
        request: &Request<'_>,
    ) -> Option<ShardId> {
        if connection.kind == ListenerKind::Direct || self.router.peers.count() == 1 {
            return self.is_log_behind(self.id).then_some(self.id);
        }
        self.first_wanted(spec, request, |shard| self.is_log_behind(shard))
    }

    /// The first shard that a command of the entry port goes to and for which `is_it` holds.
    fn first_wanted(
        &self,
        spec: &Spec,
        request: &Request<'_>,
        is_it: impl Fn(ShardId) -> bool,
    ) -> Option<ShardId> {
        let mut all = (0..self.router.peers.count() as u16).map(ShardId);
        let any = all.find(|shard| is_it(*shard))?;
        if spec.first_key() == 0 && !spec.counts_keys() {
            return covers_shards(spec.cmd).then_some(any);
        }
        let slot = |index| match request.located() {
            Some(located) if index == 1 => located.slot,
            _ => slot_of(request.arg(index)),
        };
        let keys = spec.keys_of(request);
        let mut shards = keys.filter_map(|index| self.router.routes.owner(slot(index)).local());
        shards.find(|shard| is_it(*shard))
    }

    /// Whether a shard's log has too much that is not written, or is over its budget.
    pub(crate) fn is_log_behind(&self, shard: ShardId) -> bool {
        if shard == self.id {
            self.admission.log_room.makes_wait(&self.keyspace.log)
        } else {
            self.node.stats[shard].log_behind.get() != 0
        }
    }

    /// Looks at the log once a turn, and lets the other shards know.
    pub fn note_log(&mut self, is_over_budget: bool) {
        let news = self
            .admission
            .log_room
            .look(&self.keyspace.log, is_over_budget);
        self.stats().wal_full.add(news.is_full_now.into());
        if let Some(is_behind) = news.is_behind {
            self.stats().log_behind.set(is_behind.into());
        }
    }

    /// The connection executes nothing until its client has read.
    pub(crate) fn block_for_output(&mut self, connection: &mut Connection) {
        connection.blocked = Some(Blocked::Output);
        self.admission.unread.watch(connection, self.now);
    }

    /// The connection goes on in the next turn, after others had theirs and its replies have left.
    pub(crate) fn block_for_turn(&mut self, connection: &mut Connection) {
        self.admission.blocked.block(connection, Blocked::NextTurn);
    }

    /// Replies of the connection have left, or have come: counts what it holds, and lets it go on if its client
    /// has read enough.
    pub(crate) fn tend_output(&mut self, token: ConnToken) {
        self.connections.count(token);
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let is_stopped = !connection.stopped.is_empty();
        if connection.must_read() {
            self.admission.unread.watch(connection, self.now);
        }
        if connection.blocked == Some(Blocked::Output) && !connection.is_owed_much() {
            self.admission.blocked.block(connection, Blocked::NextTurn);
        }
        if is_stopped {
            self.resume_stopped(token);
        }
    }

    /// Lets go on what waited and whose reason is over. Each time that the log has room again, this shard's
    /// connections come first, or what other shards have forwarded, in turn: either could take all of it.
    pub fn unblock(&mut self) {
        self.go_on_publishing();
        let has_room = self.keyspace.room.take_ready();
        if has_room {
            for origin in std::mem::take(&mut self.replies.complete) {
                self.gathered(origin);
            }
        }
        if self.admission.log_room.own_come_first {
            self.unblock_connections();
        }
        self.go_on_with_backlog();
        self.go_on_with_waiting(has_room);
        if !self.admission.log_room.own_come_first {
            self.unblock_connections();
        }
    }

    fn unblock_connections(&mut self) {
        if self.admission.blocked.is_empty() {
            return;
        }
        let mut waiting = Vec::new();
        for token in self.admission.blocked.take() {
            let Some(connection) = self.connections.get(token) else {
                continue;
            };
            let over = match connection.blocked {
                None | Some(Blocked::Hold | Blocked::Output) => true,
                Some(Blocked::NextTurn) => connection.has_turn(self.turn),
                Some(Blocked::LongTurn) => !self.admission.long_turn.is_over(self.turn),
                // What is awaited may come only when the client reads: it is seen to that it does.
                Some(Blocked::Settling | Blocked::Commit | Blocked::Peer(_))
                    if connection.is_owed_much() =>
                {
                    true
                }
                Some(Blocked::Settling) => connection.outbox.awaited() == 0,
                Some(Blocked::Commit) => !self.has_uncommitted(connection),
                Some(Blocked::Peer(shard)) => self.may_forward(connection, shard),
                Some(Blocked::Log(shard)) => !self.is_log_behind(shard),
                Some(Blocked::ReplyRoom) => self.keyspace.room.is_there(),
                Some(Blocked::Pause { writes }) => {
                    let pause = self.admission.pause;
                    pause.is_none_or(|pause| !pause.is_all && !writes)
                }
            };
            if let Some(why) = connection.blocked.filter(|_| !over) {
                if why == Blocked::ReplyRoom {
                    self.keyspace.room.wait();
                }
                waiting.push((token, why));
            } else if let Some(mut connection) = self.connections.take(token) {
                connection.blocked = None;
                connection.settling &= connection.outbox.awaited() > 0;
                connection.needed = 1;
                self.execute_input(&mut connection);
                connection.drain_if_ended();
                self.put_back(connection);
            }
        }
        self.admission.blocked.put_back(waiting);
    }

    /// Whether something waits for room for a large reply, or room could be given back soon.
    #[must_use]
    pub fn looks_for_room(&self) -> bool {
        self.keyspace.room.is_awaited() || !self.admission.client_budget.arrived.is_empty()
    }

    /// Whether the next turn executes something that this one has left.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let room = &self.keyspace.room;
        let has_room = room.is_awaited() && room.is_there();
        has_room
            || self.has_messages()
            || self.admission.blocked.has_next_turns()
            || self.admission.backlog.is_runnable()
    }

    /// Whether any command waits for something that no completion tells of.
    #[must_use]
    pub fn has_blocked(&self) -> bool {
        !self.admission.blocked.is_empty()
            || !self.admission.backlog.is_empty()
            || !self.execution.durability_waits.is_empty()
            || !self.execution.sleeps.is_empty()
            || self.execution.saves.is_running()
            || self.admission.has_held()
    }
}

/// Commands without keys that go to several shards, or to one of them.
pub(crate) fn covers_shards(cmd: Cmd) -> bool {
    matches!(
        cmd,
        Cmd::Dbsize
            | Cmd::Keys
            | Cmd::Scan
            | Cmd::Randomkey
            | Cmd::Flushall
            | Cmd::Flushdb
            | Cmd::ClientList
            | Cmd::ConfigResetstat
            | Cmd::ClientKill
            | Cmd::ClientPause
            | Cmd::ClientUnpause
            | Cmd::MemoryPurge
            | Cmd::Save
            | Cmd::Bgsave
            | Cmd::Bgrewriteaof
            | Cmd::Waitaof
            | Cmd::Publish
            | Cmd::Spublish
            | Cmd::PubsubChannels
            | Cmd::PubsubNumsub
            | Cmd::PubsubNumpat
            | Cmd::PubsubShardchannels
            | Cmd::PubsubShardnumsub
            | Cmd::ClusterCountkeysinslot
            | Cmd::ClusterSlotStats
            | Cmd::HotkeysStart
            | Cmd::HotkeysStop
            | Cmd::HotkeysGet
            | Cmd::HotkeysReset
            | Cmd::ClusterGetkeysinslot
    )
}

/// Whether a command that covers shards is about keys, which a node without a lease may not tell of.
pub(crate) fn needs_lease(cmd: Cmd) -> bool {
    !matches!(
        cmd,
        Cmd::Debug
            | Cmd::ClientList
            | Cmd::ConfigResetstat
            | Cmd::ClientKill
            | Cmd::ClientPause
            | Cmd::ClientUnpause
            | Cmd::MemoryPurge
            | Cmd::Save
            | Cmd::Bgsave
            | Cmd::Bgrewriteaof
            | Cmd::Waitaof
            | Cmd::Publish
            | Cmd::Spublish
            | Cmd::PubsubChannels
            | Cmd::PubsubNumsub
            | Cmd::PubsubNumpat
            | Cmd::PubsubShardchannels
            | Cmd::PubsubShardnumsub
            | Cmd::HotkeysStart
            | Cmd::HotkeysStop
            | Cmd::HotkeysGet
            | Cmd::HotkeysReset
    )
}
