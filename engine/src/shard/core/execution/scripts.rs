//! Scripts at work on the keyspace: each within one section, whose effects are one record.

use std::borrow::Cow;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ephesus_wire::database::{self, is_marked};
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{Database, Lsn, slot_of};

use crate::acl::permissions::STEPS_MAX;
use crate::acl::{User, log};
use crate::command::error::{ClientError, Quoted};
use crate::command::parse::{self, ArgList, Request};
use crate::command::spec::{self, Cmd, Spec};
use crate::keyspace::Reply;
use crate::keyspace::large_replies::LARGE_REPLY_BYTES;
use crate::script::functions::FunctionError;
use crate::script::{
    Host, MEMORY_BYTES_MAX, NotDone, RunLimits, Script, Scripts, Stop, hex, parse_sha,
};
use crate::shard::core::admission::users;
use crate::shard::core::execution::pace::TIME_IS_OVER;
use crate::shard::core::execution::pubsub::is_published;
use crate::shard::core::execution::server;
use crate::shard::core::routing::databases;
use crate::shard::core::{Asker, Core};
use crate::shard::mesh::{Client, Note, Refused};

/// What a script may write, as a record in the log.
const EFFECTS_BYTES_MAX: usize = 8 << 20;

/// Keys that are looked for one after the other.
const FEW_KEYS: usize = 8;

/// Attempts to do what the user may not, of one script, that are noted.
const REFUSED_MAX: usize = 16;

/// For whom a script is carried out, and how long that may take.
pub(crate) struct Caller {
    /// Whose rights count; `None`: somebody who may do everything.
    pub user: Option<Arc<User>>,
    pub time_max: Duration,
}

/// The commands that a script calls.
struct Calls<'a> {
    core: &'a mut Core,
    user: Option<&'a User>,
    /// What the user may not do, and the script has tried.
    refused: Vec<Refused>,
    database: Database,
    databases: u16,
    /// KEYS, as the client names them.
    keys: &'a [&'a [u8]],
    /// The keys, where they are many.
    named: Option<HashSet<&'a [u8], ahash::RandomState>>,
    may_write: bool,
    may_fill_memory: bool,
    /// Who may cache the keys.
    tracker: Option<Client>,
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

    /// Why a command may not be called, whose keys are as the script names them.
    fn denial(&mut self, spec: &'static Spec, args: &[&[u8]]) -> Option<ClientError> {
        if spec.is_forbidden_in_scripts() {
            return Some(ClientError::NotInScripts);
        }
        if spec.cmd == Cmd::Migrate {
            return Some(ClientError::KeylessInScripts(spec.name));
        }
        let user = self.user?;
        let mut steps = STEPS_MAX;
        let checked = user.check(spec, args, &mut steps);
        self.core.keyspace.add_work(users::as_input(steps));
        let denied = checked.err()?;
        let refused = Refused {
            reason: denied.reason(),
            object: log::kept(denied.object(args)).into(),
            user: user.name().into(),
        };
        if self.refused.len() < REFUSED_MAX && !self.refused.contains(&refused) {
            self.refused.push(refused);
        }
        Some(ClientError::ScriptNoPermission(denied.told(user.name())))
    }

    /// Why a command is not executed.
    fn refusal(&self, spec: &Spec, args: &[&[u8]]) -> Option<ClientError> {
        if spec.is_write() {
            let node = &self.core.node;
            if !self.may_write {
                return Some(ClientError::ScriptReadOnly);
            }
            if node.disk.is_full() {
                return Some(ClientError::DiskFull);
            }
            let fills = spec.is_denied_on_oom() && !self.may_fill_memory;
            if fills && node.is_memory_full() {
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
        &mut self,
        spec: &Spec,
        args: &[&[u8]],
        reply: &mut Reply<'_>,
    ) -> Result<(), ClientError> {
        match spec.cmd {
            Cmd::Ping => match args {
                [_] => reply.out.extend_from_slice(reply::PONG),
                [_, text] => reply::bulk(reply.out, text),
                _ => return Err(ClientError::WrongArity(spec.name)),
            },
            Cmd::Echo => reply::bulk(reply.out, args.arg(1)),
            Cmd::Time => server::write_time(reply.out, self.core.node.time.usec()),
            cmd if is_published(cmd) => {
                let receivers = self.core.publish_in_script(cmd, args)?;
                reply::integer(reply.out, receivers as i64);
            }
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
        let refusal = self.denial(spec, args);
        if let Some(refusal) = refusal.or_else(|| self.refusal(spec, args)) {
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
            0 => self.keyless(spec, args, &mut reply),
            first => {
                let slot = slot_of(args.arg(first));
                self.core.keyspace.execute(spec, args, slot, &mut reply)
            }
        };
        if spec.is_read()
            && let Some(client) = self.tracker.take()
        {
            // As in Redis, all that the script was given; what it changes itself is told of behind its reply.
            let keys = self.keys.iter();
            keys.for_each(|key| {
                let stored = self.database.stored(key);
                self.core.keyspace.track(client, &stored);
            });
        }
        self.gate = self.gate.max(reply.gate);
        self.core.stats().of(spec.cmd).calls.add(1);
        match outcome {
            Ok(()) => {}
            Err(ClientError::LargeReplies) => return Err(Stop::Room),
            Err(error) => {
                reply.out.clear();
                error.write(reply.out);
            }
        }
        match self.core.keyspace.atomic_overflow() {
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
        caller: &Caller,
    ) -> Result<(), ClientError> {
        let mut scripts = self.execution.scripts.take().unwrap_or_default();
        let outcome = self.carry_out(&mut scripts, asker, spec, request, caller);
        let (script_bytes, function_bytes) = scripts.memory_bytes();
        self.stats().script_bytes.set(script_bytes as u64);
        self.stats().function_bytes.set(function_bytes as u64);
        self.execution.scripts = Some(scripts);
        match &outcome {
            // What has succeeded has noted it, and what has to wait is executed later.
            Ok(()) | Err(ClientError::LargeReplies) => {}
            Err(error) => {
                if let Some(key) = spec.keys_of(request).next() {
                    let bytes = (request.bytes(), error.reply_len());
                    let slot = slot_of(request.arg(key));
                    self.keyspace.note_use(spec, request, slot, bytes);
                }
            }
        }
        outcome
    }

    fn carry_out(
        &mut self,
        scripts: &mut Scripts,
        asker: &mut Asker<'_>,
        spec: &'static Spec,
        request: &Request<'_>,
        caller: &Caller,
    ) -> Result<(), ClientError> {
        let (script, keys) = self.asked_script(scripts, spec, request, caller)?;
        let first_argument = 3 + keys;
        let flags = script.flags;
        if flags.no_cluster {
            return Err(ClientError::ScriptNoCluster);
        }
        let only_reads = matches!(spec.cmd, Cmd::EvalRo | Cmd::EvalshaRo | Cmd::FcallRo);
        if only_reads && flags.is_declared && !flags.no_writes {
            return Err(ClientError::ScriptWriteFlag);
        }
        let may_write = !flags.no_writes && !only_reads;
        let is_refused = flags.is_declared && may_write && !flags.allow_oom;
        if is_refused && self.node.is_memory_full() {
            return Err(ClientError::OutOfMemory);
        }
        let keys: Vec<&[u8]> = (3..first_argument).map(|at| request.arg(at)).collect();
        // A script names keys as its client does.
        let names: Vec<&[u8]> = keys.iter().map(|key| database::split(key).1).collect();
        let database = keys
            .first()
            .map_or(Database::ZERO, |key| database::split(key).0);
        let arguments = first_argument..request.len();
        let arguments: Vec<&[u8]> = arguments.map(|at| request.arg(at)).collect();
        let limits = RunLimits {
            time: caller.time_max,
            reply_bytes: self.reply_bytes_max(),
            protocol: asker.protocol(),
        };
        // A script that has read a large value once reads the next, too, and its reply may be one.
        let joint = self.keyspace.room.begin_joint();
        let (is_within, messages) = (self.keyspace.is_atomic(), self.undecided_messages());
        self.keyspace.begin_atomic(EFFECTS_BYTES_MAX);
        let databases = self.node.settings.databases;
        let client = asker.client(self.id);
        let tracks = asker.tracks_reads();
        self.keyspace.set_writer(Some(client));
        let mut calls = Calls {
            core: self,
            user: caller.user.as_deref(),
            refused: Vec::new(),
            database,
            databases,
            keys: &names,
            named: (names.len() > FEW_KEYS).then(|| names.iter().copied().collect()),
            may_write,
            may_fill_memory: flags.allow_oom,
            tracker: tracks.then_some(client),
            gate: Lsn::ZERO,
        };
        let mut out = Vec::new();
        let outcome = scripts.run(&script, (&names, &arguments), &mut calls, limits, &mut out);
        let Calls { gate, refused, .. } = calls;
        self.keyspace.set_writer(None);
        if !refused.is_empty() {
            self.note_refused(asker, refused);
        }
        let done = self.why_not_done(outcome, &script, out.len(), caller.time_max);
        self.keyspace.room.end_joint(joint, done.is_ok());
        let done = match done {
            Ok(()) => self.respond(asker, |keyspace, reply| {
                reply.gate = reply.gate.max(gate);
                keyspace.commit_atomic(reply)?;
                if let Some(key) = keys.first() {
                    let bytes = (request.bytes(), out.len());
                    keyspace.note_use(spec, request, slot_of(key), bytes);
                }
                reply.out.append(&mut out);
                Ok(())
            }),
            Err(error) => {
                self.keyspace.roll_back_atomic();
                Err(error)
            }
        };
        match &done {
            Ok(()) if is_within => {}
            Ok(()) => self.publish_joint(true),
            Err(_) => self.forget_messages(messages),
        }
        done
    }

    /// What a command carries out, and with how many keys.
    fn asked_script(
        &self,
        scripts: &mut Scripts,
        spec: &Spec,
        request: &Request<'_>,
        caller: &Caller,
    ) -> Result<(Rc<Script>, usize), ClientError> {
        let (name, keys) = (request.arg(1), parse::count_of_keys(request));
        let node = &self.node;
        let (keys, script) = match spec.cmd {
            Cmd::Fcall | Cmd::FcallRo => {
                let script = scripts.of_library(&node.functions, name, caller.time_max)?;
                let keys = keys.map_err(|error| match error {
                    ClientError::NotAnInteger => FunctionError::KeyCount.into(),
                    other => other,
                })?;
                (keys, script)
            }
            Cmd::Eval | Cmd::EvalRo => (keys?, scripts.of_body(&node.scripts, name)?),
            _ => (keys?, scripts.of_name(&node.scripts, name)?),
        };
        Ok((script, keys))
    }

    /// Why nothing of a script may stay, if that is so.
    fn why_not_done(
        &mut self,
        outcome: Result<(), NotDone>,
        script: &Rc<Script>,
        reply_bytes: usize,
        time_max: Duration,
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
        let limit = self.node.settings.lua_time_limit;
        if why == Stop::Time && time_max < limit {
            return Err(TIME_IS_OVER);
        }
        let error = match why {
            Stop::Time => ClientError::ScriptTime(limit.as_millis() as u64),
            Stop::Memory => ClientError::ScriptMemory(MEMORY_BYTES_MAX),
            Stop::Effects | Stop::Room => ClientError::CommandTooLarge(EFFECTS_BYTES_MAX),
        };
        if let Some(stopped) = self.told_script.tell(self.now) {
            let script = &*script.name;
            tracing::warn!(script, stopped, "{error}");
        }
        Err(error)
    }

    /// Notes what scripts have tried, with the client that has sent them.
    #[cold]
    fn note_refused(&mut self, asker: &Asker<'_>, all: Vec<Refused>) {
        let connection = match asker {
            Asker::Connection(connection) => Some(&**connection),
            Asker::Transaction { connection, .. } => connection.as_deref(),
            Asker::Peer { .. } => None,
        };
        let (shard, client) = asker.client(self.id);
        for refused in all {
            match connection {
                Some(connection) => self.note_refused_to(connection, &refused),
                None => {
                    let note = Note::Denied(Box::new(refused));
                    self.router.peers[shard].note(client, note);
                }
            }
        }
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
            Cmd::ScriptDebug => {
                let is = |mode: &[u8]| request.arg(2).eq_ignore_ascii_case(mode);
                match () {
                    () if is(b"no") => out.extend_from_slice(reply::OK),
                    () if is(b"yes") || is(b"sync") => return Err(ClientError::NoDebugger),
                    () => return Err(ClientError::ScriptDebugMode),
                }
            }
            _ => return Err(ClientError::NotBusy),
        }
        Ok(())
    }
}
