//! What the server knows about one command, and how a name finds it.
//!
//! `commands.json` describes the commands of this release. Arity, flags, keys and categories are what Redis 7 reports,
//! so that clients which route by `COMMAND` treat both alike; those of `CLIENT SETINFO` are of 7.2.

use std::sync::LazyLock;

use ephesus_wire::resp::request;
use serde::Deserialize;

use super::error::ClientError;
use super::parse::{ArgList, migrate, sort};

/// A command or subcommand, dense from 0 so that it can index per-command counters.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Cmd {
    Get,
    Set,
    Setnx,
    Setex,
    Psetex,
    Getset,
    Getdel,
    Getex,
    Mget,
    Mset,
    Msetnx,
    Strlen,
    Append,
    Getrange,
    Substr,
    Lcs,
    Setrange,
    Setbit,
    Getbit,
    Bitcount,
    Bitpos,
    Bitop,
    Bitfield,
    BitfieldRo,
    Incr,
    Decr,
    Incrby,
    Decrby,
    Incrbyfloat,
    Del,
    Unlink,
    Delifeq,
    Exists,
    Touch,
    Type,
    Rename,
    Renamenx,
    Copy,
    Move,
    Expire,
    Pexpire,
    Expireat,
    Pexpireat,
    Ttl,
    Pttl,
    Expiretime,
    Pexpiretime,
    Persist,
    Sort,
    SortRo,
    Dump,
    Restore,
    Migrate,
    Object,
    ObjectEncoding,
    ObjectFreq,
    ObjectIdletime,
    ObjectRefcount,
    ObjectHelp,
    Scan,
    Keys,
    Randomkey,
    Dbsize,
    Flushall,
    Flushdb,
    Swapdb,
    Ping,
    Echo,
    Time,
    Role,
    Replicaof,
    Slaveof,
    Failover,
    Wait,
    Waitaof,
    Lastsave,
    Save,
    Bgsave,
    Bgrewriteaof,
    Shutdown,
    Monitor,
    Debug,
    Lolwut,
    Auth,
    Hello,
    Select,
    Quit,
    Reset,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Readonly,
    Readwrite,
    Asking,
    Info,
    Memory,
    MemoryUsage,
    MemoryStats,
    MemoryDoctor,
    MemoryMallocstats,
    MemoryPurge,
    MemoryHelp,
    Client,
    ClientId,
    ClientInfo,
    ClientList,
    ClientGetname,
    ClientSetname,
    ClientSetinfo,
    ClientKill,
    ClientReply,
    ClientPause,
    ClientUnpause,
    ClientNoevict,
    ClientGetredir,
    ClientTracking,
    ClientTrackinginfo,
    ClientCaching,
    ClientUnblock,
    ClientHelp,
    ClientNotouch,
    Config,
    ConfigGet,
    ConfigSet,
    ConfigResetstat,
    ConfigRewrite,
    ConfigHelp,
    Acl,
    AclCat,
    AclDeluser,
    AclDryrun,
    AclGenpass,
    AclGetuser,
    AclHelp,
    AclList,
    AclLoad,
    AclLog,
    AclSave,
    AclSetuser,
    AclUsers,
    AclWhoami,
    Slowlog,
    SlowlogGet,
    SlowlogLen,
    SlowlogReset,
    SlowlogHelp,
    Hotkeys,
    HotkeysStart,
    HotkeysStop,
    HotkeysGet,
    HotkeysReset,
    HotkeysHelp,
    Latency,
    LatencyHistogram,
    LatencyLatest,
    LatencyHistory,
    LatencyReset,
    LatencyDoctor,
    LatencyGraph,
    LatencyHelp,
    Module,
    ModuleList,
    ModuleLoad,
    ModuleLoadex,
    ModuleUnload,
    ModuleHelp,
    Cluster,
    ClusterSlots,
    ClusterShards,
    ClusterNodes,
    ClusterInfo,
    ClusterMyid,
    ClusterKeyslot,
    ClusterCountkeysinslot,
    ClusterGetkeysinslot,
    ClusterSlotStats,
    ClusterMigrateslots,
    ClusterGetslotmigrations,
    ClusterCancelslotmigrations,
    ClusterHelp,
    Subscribe,
    Unsubscribe,
    Psubscribe,
    Punsubscribe,
    Ssubscribe,
    Sunsubscribe,
    Publish,
    Spublish,
    Pubsub,
    PubsubChannels,
    PubsubNumsub,
    PubsubNumpat,
    PubsubShardchannels,
    PubsubShardnumsub,
    PubsubHelp,
    Command,
    CommandCount,
    CommandInfo,
    CommandDocs,
    CommandList,
    CommandGetkeys,
    CommandGetkeysandflags,
    CommandHelp,
    Eval,
    EvalRo,
    Evalsha,
    EvalshaRo,
    Script,
    ScriptLoad,
    ScriptExists,
    ScriptFlush,
    ScriptKill,
    ScriptDebug,
    ScriptHelp,
    Function,
    FunctionLoad,
    FunctionDelete,
    FunctionFlush,
    FunctionList,
    FunctionStats,
    FunctionKill,
    FunctionDump,
    FunctionRestore,
    FunctionHelp,
    Fcall,
    FcallRo,
}

impl Cmd {
    /// Number of commands and subcommands: the length of a per-command array.
    pub const COUNT: usize = Cmd::FcallRo as usize + 1;

    /// The command's description.
    #[expect(clippy::indexing_slicing, reason = "every command is described")]
    #[must_use]
    pub fn spec(self) -> &'static Spec {
        TABLE.by_cmd[self as usize]
    }

    /// The full lower-case name, `client|id` for a subcommand.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().name
    }
}

/// Static description of a command, with the values Redis 7 reports for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub cmd: Cmd,
    /// Lower case; `container|sub` for a subcommand.
    pub name: &'static str,
    /// Arguments including the name (and the subcommand's); `-n` means at least n.
    pub arity: i16,
    /// In Redis's order.
    #[serde(borrow)]
    pub flags: Vec<&'static str>,
    /// Of access control lists, each with its `@`; in Redis's order.
    #[serde(borrow)]
    pub categories: Vec<&'static str>,
    #[serde(default)]
    pub keys: Vec<KeySpec>,
    /// Hints for clients and proxies, such as `request_policy:all_shards`.
    #[serde(borrow, default)]
    pub tips: Vec<&'static str>,
    pub group: &'static str,
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    #[serde(default)]
    pub subcommands: Vec<Spec>,
    /// What every request asks, from the fields above.
    #[serde(skip)]
    facts: Facts,
}

#[derive(Debug, Default)]
struct Facts {
    first_key: u8,
    last_key: i8,
    step: u8,
    acts_on_keys: bool,
    is_write: bool,
    is_read: bool,
    is_denied_on_oom: bool,
    is_free_of_auth: bool,
    is_forbidden_in_scripts: bool,
    may_write: bool,
    /// Index of the argument that says how many keys follow it, 0 when none does.
    key_count_at: u8,
    is_paused_with_writes: bool,
    has_underscore: bool,
}

impl Spec {
    fn note_facts(&mut self) {
        let counted = self.keys.iter().find(|keys| keys.is_counted);
        let (first_key, last_key, step) = match self.has_keys() {
            true => self.range(),
            false => (0, 0, 0),
        };
        let is_write = self.flags.contains(&"write");
        let may_write = counted.is_some() && !self.flags.contains(&"readonly");
        self.facts = Facts {
            key_count_at: counted.map_or(0, |keys| keys.begin),
            is_forbidden_in_scripts: self.flags.contains(&"noscript"),
            may_write: is_write || may_write,
            first_key,
            last_key,
            step,
            // WATCH is about its client.
            acts_on_keys: first_key > 0 && self.cmd != Cmd::Watch,
            is_write,
            is_read: self.flags.contains(&"readonly"),
            is_denied_on_oom: self.flags.contains(&"denyoom"),
            is_free_of_auth: self.flags.contains(&"no_auth"),
            is_paused_with_writes: is_write
                || may_write
                || matches!(self.cmd, Cmd::Publish | Cmd::Spublish),
            has_underscore: self.name.contains('_'),
        };
        self.subcommands.iter_mut().for_each(Spec::note_facts);
    }

    /// Whether its arguments are keys where it says so: channels of a slot are not.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        let is_key = |keys: &KeySpec| !keys.flags.contains(&"not_key");
        self.keys.iter().any(is_key)
    }

    /// First, last and distance of what has a slot, as `COMMAND INFO` tells them.
    #[must_use]
    pub fn range(&self) -> (u8, i8, u8) {
        let in_place =
            |keys: &&KeySpec| !keys.is_counted && !keys.is_unknown && keys.keyword.is_none();
        let first = self.keys.first().filter(in_place);
        let last = self.keys.iter().rfind(in_place);
        let last = last.map_or(0, |keys| match keys.last {
            behind if behind < 0 => behind,
            behind => keys.begin as i8 + behind,
        });
        let first_key = first.map_or(0, |keys| keys.begin);
        (first_key, last, first.map_or(0, |keys| keys.step))
    }

    /// Index of the first key argument, 0 when the command has no keys.
    #[must_use]
    pub fn first_key(&self) -> u8 {
        self.facts.first_key
    }

    /// Index of the last key argument, negative when counted from the end.
    #[must_use]
    pub fn last_key(&self) -> i8 {
        self.facts.last_key
    }

    /// Distance between key arguments.
    #[must_use]
    pub fn step(&self) -> u8 {
        self.facts.step
    }

    /// Whether the command is executed on the keys that it names.
    #[must_use]
    pub fn acts_on_keys(&self) -> bool {
        self.facts.acts_on_keys
    }

    /// Whether the command may change data.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.facts.is_write
    }

    /// Whether the command reads data and changes none.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.facts.is_read
    }

    /// Whether the command may change data, itself or by what it carries out.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.facts.may_write
    }

    /// Index of the argument that is the first key, if there is one.
    #[must_use]
    pub fn first_key_at(&self) -> usize {
        match self.facts.key_count_at {
            0 => usize::from(self.first_key()),
            count_at => usize::from(count_at) + 1,
        }
    }

    /// Whether a request may have more than one key.
    #[must_use]
    pub fn may_have_many_keys(&self) -> bool {
        let is_one = self.last_key() == self.first_key() as i8;
        !is_one || self.counts_keys() || self.names_keys() || self.cmd == Cmd::Sort
    }

    /// Whether an argument says how many keys there are.
    #[must_use]
    pub fn counts_keys(&self) -> bool {
        self.facts.key_count_at > 0
    }

    /// Whether a word may stand in front of its keys.
    #[must_use]
    pub fn names_keys(&self) -> bool {
        self.cmd == Cmd::Migrate
    }

    /// Whether scripts may not call the command.
    #[must_use]
    pub fn is_forbidden_in_scripts(&self) -> bool {
        self.facts.is_forbidden_in_scripts
    }

    /// Whether the command is refused when memory is full.
    #[must_use]
    pub fn is_denied_on_oom(&self) -> bool {
        self.facts.is_denied_on_oom
    }

    /// Whether the command waits while `CLIENT PAUSE ... WRITE` holds.
    #[must_use]
    pub fn is_paused_with_writes(&self) -> bool {
        self.facts.is_paused_with_writes
    }

    /// Whether anybody may send the command, before a password as well.
    #[must_use]
    pub fn is_free_of_auth(&self) -> bool {
        self.facts.is_free_of_auth
    }

    /// Whether the command is in the category of that name (without `@`, in any case).
    #[must_use]
    pub fn is_in(&self, category: &[u8]) -> bool {
        let names = self
            .categories
            .iter()
            .filter_map(|name| name.strip_prefix('@'));
        names
            .into_iter()
            .any(|name| name.as_bytes().eq_ignore_ascii_case(category))
    }

    /// The command itself and its subcommands.
    pub fn all(&self) -> impl Iterator<Item = &Spec> {
        std::iter::once(self).chain(&self.subcommands)
    }

    /// Whether `argc` arguments, the name included, are acceptable.
    #[must_use]
    pub fn accepts(&self, argc: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity >= 0 {
            argc == wanted
        } else {
            argc >= wanted
        }
    }

    /// The indices of the key arguments of a request.
    pub fn keys_of<A: ArgList + ?Sized>(&self, args: &A) -> impl Iterator<Item = usize> + use<A> {
        if self.counts_keys() {
            let count_at = usize::from(self.facts.key_count_at);
            let first = count_at + 1;
            let count = match args.len() {
                len if len > count_at => request::integer(args.arg(count_at)),
                _ => None,
            };
            let count = count.and_then(|count| usize::try_from(count).ok());
            let behind = count.and_then(|count| first.checked_add(count));
            let behind = behind.filter(|behind| *behind <= args.len());
            return (first..behind.unwrap_or(first)).step_by(1);
        }
        if self.names_keys()
            && let Some(first) = migrate::first_of_many(args)
        {
            return (first..args.len()).step_by(1);
        }
        if self.cmd == Cmd::Sort
            && let Some(at) = sort::destination(args)
        {
            return (1..at + 1).step_by(at - 1);
        }
        self.keys_in_place(args.len())
    }

    /// The indices of the key arguments of a request with `argc` arguments, of a command whose keys are not counted.
    pub fn key_indices(&self, argc: usize) -> impl Iterator<Item = usize> + use<> {
        self.keys_in_place(argc)
    }

    fn keys_in_place(&self, argc: usize) -> std::iter::StepBy<std::ops::Range<usize>> {
        let first = usize::from(self.first_key());
        let end = match self.last_key() {
            _ if first == 0 => 0,
            last if last < 0 => (argc + 1).saturating_sub(usize::from(last.unsigned_abs())),
            last => (usize::from(last.unsigned_abs()) + 1).min(argc),
        };
        (first..end).step_by(usize::from(self.step().max(1)))
    }

    /// The subcommand of that name, in any case.
    #[must_use]
    pub fn subcommand(&'static self, name: &[u8]) -> Option<&'static Spec> {
        let prefix = self.name.len() + 1;
        self.subcommands.iter().find(|sub| {
            let own = sub.name.as_bytes().get(prefix..);
            own.is_some_and(|own| own.eq_ignore_ascii_case(name))
        })
    }
}

/// Where the keys of a command are and what happens to them, as `COMMAND INFO` reports it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySpec {
    #[serde(default)]
    pub notes: Option<&'static str>,
    #[serde(borrow)]
    pub flags: Vec<&'static str>,
    /// Index of the first key.
    pub begin: u8,
    /// Offset of the last key from `begin`, negative when counted from the end.
    #[serde(default)]
    pub last: i8,
    #[serde(default = "one")]
    pub step: u8,
    /// The argument at `begin` says how many keys follow it.
    #[serde(default)]
    pub is_counted: bool,
    /// They may be anywhere from `begin` on.
    #[serde(default)]
    pub is_unknown: bool,
    /// Keys follow this word, which is looked for from behind; `begin` is the least index of the first.
    #[serde(default)]
    pub keyword: Option<&'static str>,
}

fn one() -> u8 {
    1
}

/// Every command, containers with their subcommands; unknown is what is not here.
#[must_use]
pub fn commands() -> &'static [Spec] {
    TABLE.commands
}

/// Finds a command by its name in any case; one multiplication and usually one comparison.
#[expect(
    clippy::indexing_slicing,
    reason = "buckets are taken modulo their number"
)]
#[must_use]
pub fn lookup(name: &[u8]) -> Option<&'static Spec> {
    let key = Folded::of(name)?;
    let mut at = key.bucket();
    while let Some((found, spec)) = TABLE.buckets[at] {
        if found == key {
            // Folded, an underscore is like another byte.
            let is_same =
                !spec.facts.has_underscore || spec.name.as_bytes().eq_ignore_ascii_case(name);
            return Some(spec).filter(|_| is_same);
        }
        at = (at + 1) % BUCKETS;
    }
    None
}

/// Finds a command or subcommand by its full name, such as `client|id`.
#[must_use]
pub fn lookup_full(name: &[u8]) -> Option<&'static Spec> {
    let mut parts = name.splitn(2, |&byte| byte == b'|');
    let spec = lookup(parts.next()?)?;
    match parts.next() {
        None => Some(spec),
        Some(subcommand) => spec.subcommand(subcommand),
    }
}

/// Finds what a whole request (`args[0]` is the name) asks for, and checks the argument count.
///
/// # Errors
/// An unknown command or subcommand, or a wrong number of arguments: answer it, keep the connection.
pub fn resolve<A: ArgList + ?Sized>(args: &A) -> Result<&'static Spec, ClientError> {
    let spec = find(args)?;
    if spec.accepts(args.len()) {
        Ok(spec)
    } else {
        Err(ClientError::WrongArity(spec.name))
    }
}

/// Whether a request that [`resolve`] refuses is a line of an HTTP request's head.
#[must_use]
pub fn is_http<A: ArgList + ?Sized>(args: &A) -> bool {
    const LINES: [&[u8]; 2] = [b"post", b"host:"];
    let is_line = |line: &[u8]| args.arg(0).eq_ignore_ascii_case(line);
    !args.is_empty() && LINES.into_iter().any(is_line)
}

/// [`resolve`] without the check of the argument count.
pub(crate) fn find<A: ArgList + ?Sized>(args: &A) -> Result<&'static Spec, ClientError> {
    if args.is_empty() {
        return Err(ClientError::unknown_command(args));
    }
    let Some(spec) = lookup(args.arg(0)) else {
        return Err(ClientError::unknown_command(args));
    };
    if spec.subcommands.is_empty() || args.len() == 1 {
        return Ok(spec);
    }
    spec.subcommand(args.arg(1))
        .ok_or_else(|| ClientError::unknown_subcommand(spec.name, args.arg(1)))
}

/// A name of up to 16 bytes with case folded: length, first bytes and last bytes say all of it.
///
/// Setting bit 5 maps only letters onto lower-case letters, so equal folded bytes mean equal names if one of them
/// consists of letters only.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Folded {
    head: u64,
    tail: u64,
    len: u8,
}

impl Folded {
    const LONGEST: usize = 16;

    #[inline]
    fn of(name: &[u8]) -> Option<Folded> {
        let (head, tail) = match name.len() {
            8..=Folded::LONGEST => (
                u64::from_le_bytes(*name.first_chunk()?),
                u64::from_le_bytes(*name.last_chunk()?),
            ),
            4..8 => (
                u64::from(u32::from_le_bytes(*name.first_chunk()?)),
                u64::from(u32::from_le_bytes(*name.last_chunk()?)),
            ),
            3 => {
                let &[a, b, c] = name.first_chunk()?;
                (u64::from(u32::from_le_bytes([a, b, c, 0])), 0)
            }
            _ => return None,
        };
        const CASE: u64 = 0x2020_2020_2020_2020;
        Some(Folded {
            head: head | CASE,
            tail: tail | CASE,
            len: name.len() as u8,
        })
    }

    #[inline]
    fn bucket(&self) -> usize {
        const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed = (self.head ^ self.tail.rotate_left(29) ^ self.len as u64).wrapping_mul(MIX);
        (mixed >> (64 - BUCKETS.trailing_zeros())) as usize
    }
}

/// A power of two, several times the number of commands, so that probes stay short.
const BUCKETS: usize = 512;

/// What `commands.json` says, and how it is found.
struct Table {
    commands: &'static [Spec],
    buckets: [Option<(Folded, &'static Spec)>; BUCKETS],
    by_cmd: Vec<&'static Spec>,
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::read);

impl Table {
    #[expect(
        clippy::expect_used,
        clippy::indexing_slicing,
        reason = "the file is part of the program, and tests read all of it"
    )]
    fn read() -> Table {
        let commands: Result<Vec<Spec>, _> = serde_json::from_str(include_str!("commands.json"));
        let mut commands = commands.expect("commands.json");
        commands.iter_mut().for_each(Spec::note_facts);
        assert!(commands.len() * 4 <= BUCKETS, "probes stay short");
        let commands: &'static [Spec] = commands.leak();
        let mut buckets = [None; BUCKETS];
        for spec in commands {
            let key = Folded::of(spec.name.as_bytes()).expect("names of 3 to 16 letters");
            let mut at = key.bucket();
            while buckets[at].is_some() {
                at = (at + 1) % BUCKETS;
            }
            buckets[at] = Some((key, spec));
        }
        let mut by_cmd: Vec<&Spec> = commands.iter().flat_map(Spec::all).collect();
        by_cmd.sort_by_key(|spec| spec.cmd as usize);
        Table {
            commands,
            buckets,
            by_cmd,
        }
    }
}

#[cfg(test)]
mod tests;
