//! Scripts at work on the keyspace: each within one section, whose effects are one record.

use std::borrow::Cow;
use std::collections::HashSet;
use std::rc::Rc;

use ephesus_wire::database::{self, is_marked};
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{Database, Lsn, slot_of};

use crate::command::error::{ClientError, Quoted};
use crate::command::parse::{self, ArgList, Request};
use crate::command::spec::{self, Cmd, Spec};
use crate::keyspace::large_replies::LARGE_REPLY_BYTES;
use crate::keyspace::{Keyspace, Reply};
use crate::node::NodeShared;
use crate::script::{
    Host, MEMORY_BYTES_MAX, NotDone, RunLimits, Script, Scripts, Stop, hex, parse_sha,
};
use crate::shard::core::execution::server;
use crate::shard::core::routing::databases;
use crate::shard::core::{Asker, Core};
use crate::shard::stats::ShardStats;

/// What a script may write, as a record in the log.
const EFFECTS_BYTES_MAX: usize = 8 << 20;

/// Keys that are looked for one after the other.
const FEW_KEYS: usize = 8;

/// The commands that a script calls.
struct Calls<'a> {
    keyspace: &'a mut Keyspace,
    node: &'a NodeShared,
    stats: &'a ShardStats,
    database: Database,
    databases: u16,
    /// KEYS, as the client names them.
    keys: &'a [&'a [u8]],
    /// The keys, where they are many.
    named: Option<HashSet<&'a [u8], ahash::RandomState>>,
    may_write: bool,
    may_fill_memory: bool,
    /// What the replies have to wait for.
    gate: Lsn,
}

impl Calls<'_> {
    fn names(&self, key: &[u8]) -> bool {
        match &self.named {
            Some(named) => named.contains(key),
            None => self.keys.contains(&key),
        }
    }

    fn stores_as_named(&self, spec: &Spec, args: &[&[u8]]) -> bool {
        let mut keys = spec.keys_of(args);
        let names_another = spec.cmd == Cmd::Copy && args.len() > 3;
        self.database == Database::ZERO
            && !names_another
            && !keys.any(|index| is_marked(args.arg(index)))
    }

    /// The arguments with keys as they are stored.
    fn stored<'b>(&self, spec: &Spec, args: &[&'b [u8]]) -> Vec<Cow<'b, [u8]>> {
        let mut stored: Vec<Cow<'b, [u8]>> = args.iter().map(|arg| Cow::Borrowed(*arg)).collect();
        let target = databases::target(self.databases, spec, args);
        for (place, index) in spec.keys_of(args).enumerate() {
            let database = target.filter(|_| place == 1).unwrap_or(self.database);
            if let (Some(arg), Some(place)) = (args.get(index), stored.get_mut(index)) {
                *place = database.stored(arg);
            }
        }
        stored
    }

    /// Why a command is not executed.
    fn refusal(&self, spec: &Spec, args: &[&[u8]]) -> Option<ClientError> {
        if spec.is_forbidden_in_scripts() {
            return Some(ClientError::NotInScripts);
        }
        if spec.is_write() {
            if !self.may_write {
                return Some(ClientError::ScriptReadOnly);
            }
            if self.node.disk.is_full() {
                return Some(ClientError::DiskFull);
            }
            let fills = spec.is_denied_on_oom() && !self.may_fill_memory;
            if fills && self.node.is_memory_full() {
                return Some(ClientError::OutOfMemory);
            }
        }
        let first_key = usize::from(spec.first_key());
        if first_key > 0
            && spec.step() > 1
            && !(args.len() - first_key).is_multiple_of(usize::from(spec.step()))
        {
            return Some(ClientError::WrongArity(spec.name));
        }
        let mut keys = spec.keys_of(args).map(|index| args.arg(index));
        let unnamed = keys.find(|key| !self.names(key));
        unnamed.map(|key| ClientError::ScriptKey(Quoted::new(key)))
    }

    fn keyless(
        spec: &Spec,
        args: &[&[u8]],
        now_ms: u64,
        reply: &mut Reply<'_>,
    ) -> Result<(), ClientError> {
        match spec.cmd {
            Cmd::Ping => match args {
                [_] => reply.out.extend_from_slice(reply::PONG),
                [_, text] => reply::bulk(reply.out, text),
                _ => return Err(ClientError::WrongArity(spec.name)),
            },
            Cmd::Echo => reply::bulk(reply.out, args.arg(1)),
            Cmd::Time => server::write_time(reply.out, now_ms),
            _ => return Err(ClientError::KeylessInScripts(spec.name)),
        }
        Ok(())
    }
}

impl Host for Calls<'_> {
    fn call(&mut self, args: &[&[u8]], protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Stop> {
        let spec = match spec::resolve(args) {
            Ok(spec) => spec,
            Err(ClientError::WrongArity(_)) => {
                ClientError::ScriptArity.write(out);
                return Ok(());
            }
            Err(_) => {
                ClientError::ScriptUnknown.write(out);
                return Ok(());
            }
        };
        if let Some(refusal) = self.refusal(spec, args) {
            refusal.write(out);
            return Ok(());
        }
        let stored: Vec<Cow<'_, [u8]>>;
        let stored_args: Vec<&[u8]>;
        let args = match self.stores_as_named(spec, args) {
            true => args,
            false => {
                stored = self.stored(spec, args);
                stored_args = stored.iter().map(|arg| &**arg).collect();
                &stored_args[..]
            }
        };
        let mut reply = Reply {
            out,
            protocol,
            gate: Lsn::ZERO,
        };
        let outcome = match usize::from(spec.first_key()) {
            0 => Calls::keyless(spec, args, self.keyspace.now_ms(), &mut reply),
            first => {
                let slot = slot_of(args.arg(first));
                self.keyspace.execute(spec, args, slot, &mut reply)
            }
        };
        self.gate = self.gate.max(reply.gate);
        self.stats.of(spec.cmd).calls.add(1);
        match outcome {
            Ok(()) => {}
            Err(ClientError::LargeReplies) => return Err(Stop::Room),
            Err(error) => {
                reply.out.clear();
                error.write(reply.out);
            }
        }
        match self.keyspace.atomic_overflow() {
            Some(_) => Err(Stop::Effects),
            None => Ok(()),
        }
    }
}

impl Core {
    /// EVAL and its like, whose keys are here.
    pub(crate) fn execute_script(
        &mut self,
        asker: &mut Asker<'_>,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let mut scripts = self.execution.scripts.take().unwrap_or_default();
        let outcome = self.carry_out(&mut scripts, asker, spec, request);
        self.stats().script_bytes.set(scripts.memory_bytes() as u64);
        self.execution.scripts = Some(scripts);
        outcome
    }

    fn carry_out(
        &mut self,
        scripts: &mut Scripts,
        asker: &mut Asker<'_>,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let script = match spec.cmd {
            Cmd::Eval | Cmd::EvalRo => scripts.of_body(&self.node.scripts, request.arg(1))?,
            _ => scripts.of_name(&self.node.scripts, request.arg(1))?,
        };
        let flags = script.flags;
        if flags.no_cluster {
            return Err(ClientError::ScriptNoCluster);
        }
        let may_write = !flags.no_writes && !matches!(spec.cmd, Cmd::EvalRo | Cmd::EvalshaRo);
        let is_refused = flags.is_declared && may_write && !flags.allow_oom;
        if is_refused && self.node.is_memory_full() {
            return Err(ClientError::ScriptOutOfMemory);
        }
        let first_argument = 3 + parse::count_of_keys(request)?;
        let keys: Vec<&[u8]> = (3..first_argument).map(|at| request.arg(at)).collect();
        // A script names keys as its client does.
        let names: Vec<&[u8]> = keys.iter().map(|key| database::split(key).1).collect();
        let database = keys
            .first()
            .map_or(Database::ZERO, |key| database::split(key).0);
        let arguments = first_argument..request.len();
        let arguments: Vec<&[u8]> = arguments.map(|at| request.arg(at)).collect();
        let limits = RunLimits {
            time: self.node.settings.lua_time_limit,
            reply_bytes: self.reply_bytes_max(),
            protocol: asker.protocol(),
        };
        // A script that has read a large value once reads the next, too, and its reply may be one.
        let joint = self.keyspace.room.begin_joint();
        self.keyspace.begin_atomic(EFFECTS_BYTES_MAX);
        let node = &self.node;
        let mut calls = Calls {
            keyspace: &mut self.keyspace,
            node,
            stats: &node.stats[self.id],
            database,
            databases: node.settings.databases,
            keys: &names,
            named: (names.len() > FEW_KEYS).then(|| names.iter().copied().collect()),
            may_write,
            may_fill_memory: flags.allow_oom,
            gate: Lsn::ZERO,
        };
        let mut out = Vec::new();
        let outcome = scripts.run(&script, (&names, &arguments), &mut calls, limits, &mut out);
        let gate = calls.gate;
        let outcome = self.why_not_done(outcome, &script, out.len());
        self.keyspace.room.end_joint(joint, outcome.is_ok());
        if let Err(error) = outcome {
            self.keyspace.roll_back_atomic();
            return Err(error);
        }
        self.respond(asker, |keyspace, reply| {
            reply.gate = reply.gate.max(gate);
            keyspace.commit_atomic(reply)?;
            reply.out.append(&mut out);
            Ok(())
        })
    }

    /// Why nothing of a script may stay, if that is so.
    fn why_not_done(
        &mut self,
        outcome: Result<(), NotDone>,
        script: &Rc<Script>,
        reply_bytes: usize,
    ) -> Result<(), ClientError> {
        let why = match outcome {
            Ok(()) if reply_bytes >= LARGE_REPLY_BYTES => {
                return self.keyspace.room.take(reply_bytes);
            }
            Ok(()) => return Ok(()),
            Err(NotDone::ReplyTooLong) => {
                return Err(ClientError::ReplyTooLarge(self.reply_bytes_max()));
            }
            Err(NotDone::Stopped(why)) => why,
        };
        if why == Stop::Room {
            return Err(ClientError::LargeReplies);
        }
        let limit = self.node.settings.lua_time_limit.as_millis() as u64;
        let error = match why {
            Stop::Time => ClientError::ScriptTime(limit),
            Stop::Memory => ClientError::ScriptMemory(MEMORY_BYTES_MAX),
            Stop::Effects | Stop::Room => ClientError::CommandTooLarge(EFFECTS_BYTES_MAX),
        };
        if let Some(stopped) = self.told_script.tell(self.now) {
            let script = script.name();
            tracing::warn!(script, stopped, "{error}");
        }
        Err(error)
    }

    /// SCRIPT and what follows it.
    pub(crate) fn about_scripts(
        &mut self,
        cmd: Cmd,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        let library = &self.node.scripts;
        match cmd {
            Cmd::ScriptLoad => {
                let scripts = self.execution.scripts.get_or_insert_default();
                let sha = scripts.load(library, request.arg(2))?;
                reply::bulk(out, hex(&sha).as_bytes());
            }
            Cmd::ScriptExists => {
                reply::array(out, request.len() - 2);
                for at in 2..request.len() {
                    let sha = parse_sha(request.arg(at));
                    let is_known = sha.is_some_and(|sha| library.has(&sha));
                    reply::integer(out, i64::from(is_known));
                }
            }
            Cmd::ScriptFlush => {
                let is_mode = |mode: &[u8]| {
                    mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async")
                };
                match request.len() {
                    2 => {}
                    3 if is_mode(request.arg(2)) => {}
                    _ => return Err(ClientError::ScriptFlushOption),
                }
                library.flush();
                out.extend_from_slice(reply::OK);
            }
            _ => return Err(ClientError::NotBusy),
        }
        Ok(())
    }
}
