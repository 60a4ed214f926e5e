//! MONITOR: clients that see what all clients of the node send.
//!
//! A line is made where a command is executed for its client, and goes to all shards with monitors as messages do, with
//! their bounds. Commands of administrators are not shown, nor are passwords.

use std::fmt::Write;
use std::ops::Range;

use ephesus_wire::ShardId;
use ephesus_wire::database;
use ephesus_wire::resp::reply;

use super::PubSub;
use super::delivery::{Audience, Delivery};
use crate::command::parse::{ArgList, Request, migrate};
use crate::command::spec::{Cmd, Spec};
use crate::net::ConnToken;
use crate::shard::connection::Connection;
use crate::shard::core::Core;
use crate::shard::mesh;

/// Longest line; arguments behind are left out.
const LINE_BYTES_MAX: usize = 16 << 10;

/// The arguments that are secret.
fn secrets(cmd: Cmd, request: &Request<'_>) -> Range<usize> {
    let is_auth = |at: &usize| request.arg(*at).eq_ignore_ascii_case(b"auth");
    let first = match cmd {
        Cmd::Migrate => return migrate::secrets(request),
        Cmd::Hello => (1..request.len()).find(is_auth).map(|at| at + 1),
        _ if request.arg(0).eq_ignore_ascii_case(b"auth") => Some(1),
        _ => None,
    };
    first.unwrap_or(request.len())..request.len()
}

/// Appends an argument between quotes, as Redis escapes it.
fn write_quoted(line: &mut String, arg: &[u8]) {
    line.push('"');
    for &byte in arg {
        match byte {
            b'\\' | b'"' => line.extend(['\\', char::from(byte)]),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            0x07 => line.push_str("\\a"),
            0x08 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
        if line.len() >= LINE_BYTES_MAX {
            line.push_str("...");
            break;
        }
    }
    line.push('"');
}

/// The line of one command.
fn line(connection: &Connection, spec: &Spec, request: &Request<'_>, now_usec: u64) -> String {
    let (seconds, usec) = (now_usec / 1_000_000, now_usec % 1_000_000);
    let (selected, client) = (connection.database, connection.remote);
    let mut line = format!("{seconds}.{usec:06} [{selected} {client}]");
    let secrets = secrets(spec.cmd, request);
    for index in 0..request.len() {
        line.push(' ');
        if line.len() >= LINE_BYTES_MAX {
            line.push_str("...");
            break;
        }
        match secrets.contains(&index) {
            true => line.push_str("\"(redacted)\""),
            // Keys of other databases than 0 as their clients name them.
            false => write_quoted(&mut line, database::split(request.arg(index)).1),
        }
    }
    line
}

impl Core {
    /// The connection sees from now on what clients send.
    pub(crate) fn begin_monitoring(&mut self, connection: &mut Connection) {
        if self.execution.pubsub.monitors.insert(connection.token) {
            connection.is_monitor = true;
            self.node.monitors_changed(1);
        }
    }

    pub(crate) fn end_monitoring(&mut self, token: ConnToken) {
        if self.execution.pubsub.monitors.remove(&token) {
            self.node.monitors_changed(-1);
        }
    }

    /// Shows a command to all monitors.
    #[cold]
    pub(crate) fn show_to_monitors(
        &mut self,
        connection: &mut Connection,
        spec: &Spec,
        request: &Request<'_>,
    ) {
        if spec.flags.contains(&"admin") {
            return;
        }
        let line = line(connection, spec, request, self.node.time.usec());
        connection.note_executed(line.len());
        self.show_line(line.as_bytes(), Some(connection));
        for shard in (0..self.node.shards()).map(ShardId) {
            if shard != self.id && !self.router.peers[shard].is_full() {
                let mut request = Vec::new();
                reply::command(&mut request, &[line.as_bytes()]);
                self.forward_unawaited(shard, mesh::Kind::Monitored, &request);
            }
        }
    }

    /// Shows a line to this shard's monitors.
    pub(crate) fn show_line(&mut self, line: &[u8], executing: Option<&mut Connection>) {
        let has_enough = self.has_enough_deliveries();
        let PubSub {
            monitors,
            deliveries,
            ..
        } = &mut self.execution.pubsub;
        if monitors.is_empty() || has_enough {
            return;
        }
        let bytes = [b"+", line, b"\r\n"].concat();
        deliveries.push(Delivery {
            audience: Audience::Monitors,
            resp2: bytes.clone(),
            resp3: bytes,
            subscribers: monitors.iter().copied().collect(),
            done: 0,
            gate: ephesus_wire::Lsn::ZERO,
            turn: self.turn,
        });
        self.go_on_delivering(executing);
    }
}
