//! FUNCTION: what it tells, and what it has a thread change.

use ephesus_wire::Lsn;
use ephesus_wire::resp::reply;

use crate::command::error::{ClientError, Quoted};
use crate::command::parse::{ArgList, Request};
use crate::command::spec::{Cmd, Spec};
use crate::net::ListenerKind;
use crate::script::functions::{
    self, Asked, BYTES_MAX, Change, FunctionError, Policy, write_list, write_stats,
};
use crate::script::library::SCRIPT_BYTES_MAX;
use crate::shard::connection::Connection;
use crate::shard::core::{Core, Step};

/// Commands that change libraries, and wait for the disk.
pub(crate) fn changes_functions(cmd: Cmd) -> bool {
    matches!(
        cmd,
        Cmd::FunctionLoad | Cmd::FunctionDelete | Cmd::FunctionFlush | Cmd::FunctionRestore
    )
}

/// What a command asks for.
///
/// # Errors
/// What is wrong with it.
fn change_of<A: ArgList + ?Sized>(cmd: Cmd, args: &A) -> Result<Change, ClientError> {
    let arity = || ClientError::SubcommandArity {
        container: "FUNCTION",
        name: Quoted::new(args.arg(1)),
    };
    let last = args.len() - 1;
    match cmd {
        Cmd::FunctionLoad => {
            let is_other = |at: &usize| !args.arg(*at).eq_ignore_ascii_case(b"replace");
            if let Some(at) = (2..last).find(is_other) {
                return Err(FunctionError::LoadOption(Quoted::new(args.arg(at))).into());
            }
            let text = args.arg(last);
            if text.len() > SCRIPT_BYTES_MAX {
                return Err(ClientError::ArgumentTooLong("a library", SCRIPT_BYTES_MAX));
            }
            Ok(Change::Load(text.into(), last > 2))
        }
        Cmd::FunctionDelete => Ok(Change::Delete(args.arg(2).into())),
        Cmd::FunctionFlush if last > 2 => Err(arity()),
        Cmd::FunctionFlush => {
            let is = |mode: &[u8]| args.arg(2).eq_ignore_ascii_case(mode);
            match last {
                2 if !is(b"sync") && !is(b"async") => Err(FunctionError::FlushOption.into()),
                _ => Ok(Change::Flush),
            }
        }
        _ if last > 3 => Err(arity()),
        _ => {
            let policy = match last {
                3 => Policy::parse(args.arg(3))?,
                _ => Policy::Append,
            };
            let payload = args.arg(2);
            if payload.len() > 2 * BYTES_MAX {
                return Err(FunctionError::TooLarge(BYTES_MAX).into());
            }
            Ok(Change::Restore(payload.into(), policy))
        }
    }
}

impl Core {
    /// Has the thread of functions change them, which answers the client.
    ///
    /// # Errors
    /// What is wrong with the request, there is no room, or too many wait.
    pub(crate) fn change_functions(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<Step, ClientError> {
        self.refuse_if_full(spec)?;
        let change = change_of(spec.cmd, request)?;
        let origin = self.await_thread(connection);
        let asked = Asked {
            origin,
            is_direct: connection.kind == ListenerKind::Direct,
            change,
        };
        if let Err(error) = self.node.functions.ask(asked) {
            let mut bytes = Vec::new();
            ClientError::from(error).write(&mut bytes);
            connection.outbox.fill(origin.ticket, bytes, Lsn::ZERO);
            connection.settling = false;
        }
        Ok(Step::Done)
    }

    /// FUNCTION LIST, STATS, DUMP and KILL.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(crate) fn about_functions(
        &mut self,
        connection: &mut Connection,
        cmd: Cmd,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        let protocol = connection.protocol;
        let libraries = self.node.functions.newest();
        match cmd {
            Cmd::FunctionStats => write_stats(out, protocol, &libraries),
            Cmd::FunctionKill => return Err(ClientError::NotBusy),
            _ => {
                self.keyspace.room.take(libraries.held_bytes())?;
                // Every name may be compared with a pattern, and every byte is copied and summed.
                let patterns = (2..request.len()).map(|at| request.arg(at).len());
                let compared = libraries.counts().0.saturating_mul(patterns.sum());
                connection.note_executed(libraries.held_bytes().saturating_add(compared));
                match cmd {
                    Cmd::FunctionList => write_list(out, protocol, request, &libraries)?,
                    _ => reply::bulk(out, &functions::dump(&libraries)),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_redis_reads_them() {
        let change = |line: &str| {
            let args: Vec<&str> = line.split(' ').collect();
            let spec = crate::command::spec::resolve(&args[..]).expect("a command");
            change_of(spec.cmd, &args[..]).map_err(|error| error.to_string())
        };
        assert!(matches!(
            change("function load x"),
            Ok(Change::Load(text, false)) if *text == *b"x"
        ));
        assert!(matches!(
            change("function load REPLACE replace x"),
            Ok(Change::Load(_, true))
        ));
        assert!(matches!(change("function flush"), Ok(Change::Flush)));
        assert!(matches!(change("function flush ASYNC"), Ok(Change::Flush)));
        assert!(matches!(
            change("function restore x"),
            Ok(Change::Restore(_, Policy::Append))
        ));
        assert!(matches!(
            change("function restore x Flush"),
            Ok(Change::Restore(_, Policy::Flush))
        ));
        let arity =
            "ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.";
        for (line, error) in [
            ("function load a b", "ERR Unknown option given: a"),
            (
                "function flush x",
                "ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
            ),
            ("function FLUSH x y", arity),
            (
                "function restore x y",
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ),
        ] {
            assert_eq!(change(line).err().as_deref(), Some(error), "{line}");
        }
    }
}
