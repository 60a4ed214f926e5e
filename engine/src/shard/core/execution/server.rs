//! Commands about the server and the connection that clients send seldom.

use ephesus_wire::resp::reply;

use crate::command::client::{self, ReplyMode};
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Request, integer};
use crate::command::spec::{Cmd, Spec};
use crate::command::{help, introspect, lolwut, tracking};
use crate::shard::connection::Connection;
use crate::shard::core::Core;
use crate::shard::core::replies::outbox::Mute;

/// Appends the reply to TIME.
pub(crate) fn write_time(out: &mut Vec<u8>, now_usec: u64) {
    reply::array(out, 2);
    reply::bulk_integer(out, (now_usec / 1_000_000) as i64);
    reply::bulk_integer(out, (now_usec % 1_000_000) as i64);
}

impl Core {
    /// Writes the reply of a command without keys about the server, or about this connection.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(crate) fn about_server_seldom(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        let protocol = connection.protocol;
        match spec.cmd {
            Cmd::Time => {
                write_time(out, self.node.time.usec());
            }
            Cmd::Role => {
                reply::array(out, 3);
                reply::bulk(out, b"master");
                reply::integer(out, 0);
                reply::array(out, 0);
            }
            Cmd::Wait => {
                integer(request.arg(1))?;
                client::timeout_ms(request.arg(2))?;
                // There are no replicas, so that waiting for them would end in the same.
                reply::integer(out, 0);
            }
            Cmd::Swapdb => return Err(ClientError::NoSwapdb),
            Cmd::Replicaof | Cmd::Slaveof => return Err(ClientError::NoReplicaof),
            Cmd::Failover => return Err(ClientError::NoFailover),
            Cmd::ModuleList => reply::array(out, 0),
            Cmd::ModuleLoad | Cmd::ModuleLoadex | Cmd::ModuleUnload => {
                return Err(ClientError::NoModules);
            }
            Cmd::Lastsave => reply::integer(out, self.last_save_seconds().cast_signed()),
            Cmd::Monitor => {
                self.begin_monitoring(connection);
                out.extend_from_slice(reply::OK);
            }
            Cmd::Lolwut => lolwut::write(out, protocol, request)?,
            Cmd::Shutdown => {
                check_shutdown(request)?;
                tracing::info!(client = %connection.remote, "SHUTDOWN");
                self.node.ask_to_stop();
                connection.drain();
            }
            Cmd::ClientReply => match ReplyMode::parse(request)? {
                ReplyMode::On => {
                    connection.outbox.set_mute(Mute::No);
                    out.extend_from_slice(reply::OK);
                }
                ReplyMode::Off => connection.outbox.set_mute(Mute::All),
                ReplyMode::Skip if connection.outbox.mute() == Mute::All => {}
                ReplyMode::Skip => connection.outbox.set_mute(Mute::Next),
            },
            Cmd::ClientNoevict => {
                connection.no_evict = client::on_or_off(request.arg(2))?;
                out.extend_from_slice(reply::OK);
            }
            Cmd::ClientNotouch => {
                connection.no_touch = client::on_or_off(request.arg(2))?;
                out.extend_from_slice(reply::OK);
            }
            Cmd::ClientGetredir => {
                reply::integer(out, tracking::redirect(connection.tracker.as_deref()));
            }
            Cmd::ClientTrackinginfo => {
                tracking::write_info(out, protocol, connection.tracker.as_deref());
            }
            Cmd::ClientCaching => {
                tracking::note_caching(connection.tracker.as_deref_mut(), request)?;
                out.extend_from_slice(reply::OK);
            }
            Cmd::ClientUnblock => {
                client::check_unblock(request)?;
                // No command blocks its client.
                reply::integer(out, 0);
            }
            other => match help::lines(other) {
                Some(lines) => help::write(out, lines),
                None => introspect::reply(out, protocol, other, request)?,
            },
        }
        Ok(())
    }

    /// When the last image was complete, or the node began; Unix seconds.
    fn last_save_seconds(&self) -> u64 {
        let images = self.node.stats.iter();
        let last = images.map(|stats| stats.image_last_time_s.get()).max();
        let began = self.now.saturating_duration_since(self.node.started);
        let began = (self.keyspace.now_ms() / 1000).saturating_sub(began.as_secs());
        last.unwrap_or(0).max(began)
    }
}

/// Checks `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]`. All of them but ABORT end in the same: what was executed is
/// answered and durable.
fn check_shutdown<A: ArgList + ?Sized>(args: &A) -> Result<(), ClientError> {
    let has = |word: &[u8]| (1..args.len()).any(|at| args.arg(at).eq_ignore_ascii_case(word));
    let known = [&b"nosave"[..], b"save", b"now", b"force", b"abort"];
    let is_known = |at: usize| {
        known
            .iter()
            .any(|word| args.arg(at).eq_ignore_ascii_case(word))
    };
    let is_torn = has(b"save") && has(b"nosave") || has(b"abort") && args.len() > 2;
    match () {
        () if is_torn || !(1..args.len()).all(is_known) => Err(ClientError::Syntax),
        () if has(b"abort") => Err(ClientError::NoShutdown),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_shutdown_are_checked_as_redis_checks_them() {
        for (line, expected) in [
            ("shutdown", Ok(())),
            ("shutdown NOSAVE", Ok(())),
            ("shutdown save now force", Ok(())),
            ("shutdown foo", Err(ClientError::Syntax)),
            ("shutdown nosave save", Err(ClientError::Syntax)),
            ("shutdown abort", Err(ClientError::NoShutdown)),
            ("shutdown abort now", Err(ClientError::Syntax)),
        ] {
            let args: Vec<&str> = line.split(' ').collect();
            assert_eq!(check_shutdown(&args[..]), expected, "{line}");
        }
    }
}
