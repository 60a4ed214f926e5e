//! Clients of a world's nodes: they write, delete and read through the ports of nodes, wherever they take a partition's
//! owner to be.

use ephesus_engine::net::ListenerKind;
use ephesus_engine::shard::simulated::Answered;
use ephesus_wire::PartitionId;

use super::{What, World};
use crate::clients::{Asked, Conn, KEYS, Op, key_name, number};

/// Clients ask so often, ms.
const ASK_MS: u64 = 6;

/// Commands of one connection that are under way at most.
const WAITING_MAX: usize = 3;

/// What a node answers.
enum Reply {
    Done,
    Found(Option<u64>),
    Error,
}

impl World {
    /// Some clients ask something.
    pub(super) fn ask_nodes(&mut self) {
        self.after(ASK_MS, What::Ask);
        for _ in 0..2 {
            let partitions = u64::from(self.shape.options.partitions);
            let partition = PartitionId(self.rng.below(partitions) as u16);
            if let Some((node, shard, is_entry)) = self.any_port(partition) {
                let name = (partition, self.rng.below(KEYS) as u8);
                let deletes = self.rng.one_in(4);
                let op = match self.rng.one_in(2) {
                    true => self.clients.begin_write(name, deletes, self.now),
                    false => Some(self.clients.begin_read(name)),
                };
                if let Some(op) = op {
                    self.send_command(node, shard, is_entry, op);
                }
            }
        }
    }

    /// Where a client asks for a partition: mostly at its owner, at others by an old map.
    fn any_port(&mut self, partition: PartitionId) -> Option<(usize, usize, bool)> {
        let count = self.nodes.len();
        let is_up = |world: &World, node: usize| world.nodes[node].process.is_some();
        let place = match self.rng.below(10) {
            0..=5 => {
                let entry = self.checks.latest()?.table.entry(partition)?;
                let primary = entry.primary()?;
                let node = self.nodes.iter().position(|n| n.disk.id == primary.node)?;
                (node, usize::from(primary.shard.0), false)
            }
            6 | 7 => {
                let first = self.rng.below(count as u64) as usize;
                let mut nodes = (0..count).map(|n| (first + n) % count);
                let node = nodes.find(|node| is_up(self, *node))?;
                let shards = self.nodes[node].phases.len() as u64;
                (node, self.rng.below(shards) as usize, true)
            }
            _ => {
                // Whoever has a copy of it.
                let first = self.rng.below(count as u64) as usize;
                let nodes = (0..count).map(|n| (first + n) % count);
                let mut has = nodes.filter_map(|node| {
                    let process = self.nodes[node].process.as_ref()?;
                    let mut copies = process.copies();
                    let (_, copy) = copies.find(|(id, _)| *id == partition)?;
                    Some((node, usize::from(copy.shard.0), false))
                });
                has.next()?
            }
        };
        let (node, shard, _) = place;
        (is_up(self, node) && shard < self.nodes[node].phases.len()).then_some(place)
    }

    fn send_command(&mut self, node: usize, shard: usize, is_entry: bool, op: Op) {
        let partitions = self.shape.options.partitions;
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let kind = match is_entry {
            true => ListenerKind::Entry,
            false => ListenerKind::Direct,
        };
        let conns = self.clients.conns.entry((node, shard, is_entry));
        let conn = conns.or_insert_with(|| Conn {
            token: process.shard(shard).connect(kind),
            waiting: Default::default(),
            unread: Vec::new(),
        });
        if conn.waiting.len() >= WAITING_MAX {
            if let Op::Write(name, value, resets) = op {
                self.clients.wrote(name, value, resets, false);
            }
            return;
        }
        let bytes = match &op {
            Op::Write(name, Some(value), _) => {
                let value = value.to_string();
                command(&[b"SET", &key_name(partitions, *name), value.as_bytes()])
            }
            Op::Write(name, None, _) => command(&[b"DEL", &key_name(partitions, *name)]),
            Op::Read(name, ..) => command(&[b"GET", &key_name(partitions, *name)]),
        };
        process.shard(shard).receive(conn.token, bytes);
        let had_lease = None;
        conn.waiting.push_back(Asked { op, had_lease });
        let later = self.rng.below(3);
        self.wake_shard(node, shard, later);
    }

    /// A shard comes to what clients have asked it, and its node holds a lease or not.
    pub(super) fn come_to(&mut self, node: usize, shard: usize, holds_lease: bool) {
        // What goes to the entry port may be executed by another shard.
        if let Some(conn) = self.clients.conns.get_mut(&(node, shard, false)) {
            for asked in &mut conn.waiting {
                asked.had_lease.get_or_insert(holds_lease);
            }
        }
    }

    /// What a turn has not answered waits for the log or is held: it may leave when that is over.
    pub(super) fn forget_turn(&mut self, node: usize, shard: usize) {
        if let Some(conn) = self.clients.conns.get_mut(&(node, shard, false)) {
            for asked in &mut conn.waiting {
                asked.had_lease = asked.had_lease.map(|_| true);
            }
        }
    }

    /// A node has answered a client.
    pub(super) fn answered(
        &mut self,
        node: usize,
        shard: usize,
        answered: Answered,
    ) -> Result<(), String> {
        let now = self.now;
        let ends = [true, false].map(|is_entry| (node, shard, is_entry));
        let is_it = |key: &&(usize, usize, bool)| {
            let conn = self.clients.conns.get(*key);
            conn.is_some_and(|conn| conn.token == answered.to)
        };
        let Some(key) = ends.iter().find(is_it).copied() else {
            return Ok(());
        };
        if let Some(conn) = self.clients.conns.get_mut(&key) {
            conn.unread.extend(answered.bytes);
        }
        while let Some((Asked { op, had_lease }, reply)) = self.next_reply(key)? {
            let is_error = matches!(reply, Reply::Error);
            if !is_error && had_lease == Some(false) {
                return Err(format!("node {node} answers {op:?} without a lease"));
            }
            self.clients.served += u64::from(!is_error);
            match (&op, reply) {
                (Op::Write(name, value, resets), Reply::Done) => {
                    self.checks.mix(value.unwrap_or(1));
                    self.clients.wrote(*name, *value, *resets, true);
                    let process = self.nodes[node].process.as_ref();
                    let mut copies = process.iter().flat_map(|process| process.copies());
                    let served = copies.find(|(id, copy)| *id == name.0 && copy.incoming.is_none());
                    if let Some((partition, copy)) = served {
                        self.checks.written(partition, copy.epoch);
                    }
                }
                (Op::Write(name, value, resets), Reply::Error) => {
                    self.clients.wrote(*name, *value, *resets, false);
                }
                (Op::Read(name, allowed, changes), Reply::Found(found)) => {
                    let read = (*name, allowed, *changes);
                    let read = self.clients.read(read, found, now);
                    read.map_err(|error| format!("node {node}: {error}"))?;
                }
                (Op::Read(..), Reply::Error) => {}
                (op, _) => return Err(format!("node {node} answers {op:?} with something else")),
            }
        }
        if answered.is_closed {
            self.lose_client(key, true);
        }
        Ok(())
    }

    /// The next complete reply of a connection.
    fn next_reply(&mut self, key: (usize, usize, bool)) -> Result<Option<(Asked, Reply)>, String> {
        let Some(conn) = self.clients.conns.get_mut(&key) else {
            return Ok(None);
        };
        let Some(line) = conn.unread.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&conn.unread[1..line - 1]).into_owned();
        let (reply, len) = match conn.unread[0] {
            b'-' => (Reply::Error, line + 1),
            b'+' | b':' => (Reply::Done, line + 1),
            b'$' if text == "-1" => (Reply::Found(None), line + 1),
            b'$' => {
                let bytes: usize = text.parse().map_err(|_| format!("no length: {text}"))?;
                let end = line + 1 + bytes + 2;
                if conn.unread.len() < end {
                    return Ok(None);
                }
                let value = number(&conn.unread[line + 1..line + 1 + bytes]);
                (Reply::Found(Some(value)), end)
            }
            other => return Err(format!("no reply begins with {other}")),
        };
        conn.unread.drain(..len);
        let asked = conn.waiting.pop_front().ok_or("nobody has asked")?;
        Ok(Some((asked, reply)))
    }

    /// A connection is gone, and what was asked on it is not answered.
    fn lose_client(&mut self, key: (usize, usize, bool), may_happen: bool) {
        let now = self.now;
        let conn = self.clients.conns.remove(&key);
        for asked in conn.into_iter().flat_map(|conn| conn.waiting) {
            if let Op::Write(name, value, _) = asked.op {
                self.clients.unknown(name, value, may_happen, now);
            }
        }
    }

    /// A process has died.
    pub(super) fn lose_clients(&mut self, node: usize) {
        let conns = self.clients.conns.keys();
        let lost: Vec<_> = conns.filter(|(of, ..)| *of == node).copied().collect();
        for key in lost {
            self.lose_client(key, false);
        }
    }

    /// Every partition is served by its owner, with what was acknowledged.
    pub(crate) fn read_everything(&mut self) -> Result<(), String> {
        for partition in (0..self.shape.options.partitions).map(PartitionId) {
            let mut nodes = 0..self.nodes.len();
            let executes = |node: &usize| self.nodes[*node].executing.contains_key(&partition);
            let owner = nodes.find(executes);
            let owner = owner.ok_or(format!("nobody serves partition {partition}"))?;
            let process = self.nodes[owner].process.as_mut();
            let process = process.ok_or(format!("nobody serves partition {partition}"))?;
            let shards = 0..process.shards();
            let mut found = shards.filter_map(|shard| process.shard(shard).contents(partition));
            let contents = found.next().ok_or("a copy that is executed on is gone")?;
            let checked = self
                .clients
                .check(self.shape.options.partitions, partition, &contents);
            checked.map_err(|error| format!("node {owner}: {error}"))?;
        }
        Ok(())
    }
}

fn command(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.len()).into_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
