//! What the server knows about one command, and how a name finds it.

use super::commands::COMMANDS;
use super::error::ClientError;
use super::parse::ArgList;

/// A command or subcommand, dense from 0 so that it can index per-command counters.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cmd {
    Get,
    Set,
    Setnx,
    Setex,
    Getset,
    Getdel,
    Mget,
    Mset,
    Strlen,
    Append,
    Incr,
    Decr,
    Incrby,
    Decrby,
    Del,
    Unlink,
    Exists,
    Type,
    Rename,
    Expire,
    Pexpire,
    Ttl,
    Pttl,
    Persist,
    Scan,
    Keys,
    Randomkey,
    Dbsize,
    Flushall,
    Flushdb,
    Ping,
    Echo,
    Hello,
    Select,
    Quit,
    Reset,
    Readonly,
    Readwrite,
    Asking,
    Info,
    Client,
    ClientId,
    ClientInfo,
    ClientList,
    ClientGetname,
    ClientSetname,
    ClientSetinfo,
    Config,
    ConfigGet,
    Cluster,
    ClusterSlots,
    ClusterShards,
    ClusterNodes,
    ClusterInfo,
    ClusterMyid,
    ClusterKeyslot,
    ClusterCountkeysinslot,
    ClusterGetkeysinslot,
    ClusterMigrateslots,
    ClusterGetslotmigrations,
    ClusterCancelslotmigrations,
    Command,
    CommandCount,
    CommandInfo,
    CommandDocs,
    CommandList,
    CommandGetkeys,
    CommandGetkeysandflags,
    CommandHelp,
}

impl Cmd {
    /// Number of commands and subcommands: the length of a per-command array.
    pub const COUNT: usize = Cmd::CommandHelp as usize + 1;

    /// The command's description.
    #[expect(
        clippy::indexing_slicing,
        reason = "the tables are built, and checked, at compile time"
    )]
    #[must_use]
    pub fn spec(self) -> &'static Spec {
        let place = BY_CMD[self as usize];
        let top = &COMMANDS[place.top as usize];
        match place.sub {
            Place::CONTAINER => top,
            sub => &top.subcommands[sub as usize],
        }
    }

    /// The full lower-case name, `client|id` for a subcommand.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().name
    }
}

/// Static description of a command, with the values Redis 7 reports for it.
#[derive(Debug)]
pub struct Spec {
    pub cmd: Cmd,
    /// Lower case; `container|sub` for a subcommand.
    pub name: &'static str,
    /// Arguments including the name (and the subcommand's); `-n` means at least n.
    pub arity: i16,
    pub flags: Flags,
    /// Index of the first key argument, 0 when the command has no keys.
    pub first_key: u8,
    /// Index of the last key argument, negative when counted from the end.
    pub last_key: i8,
    /// Distance between key arguments.
    pub step: u8,
    pub keys: &'static [KeySpec],
    pub acl: Acl,
    /// Hints for clients and proxies, such as `request_policy:all_shards`.
    pub tips: &'static [&'static str],
    pub group: &'static str,
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    pub subcommands: &'static [Spec],
}

impl Spec {
    /// A command without keys, documentation and subcommands; the builders below add them.
    #[must_use]
    pub const fn new(cmd: Cmd, name: &'static str, arity: i16, flags: u16, acl: u16) -> Spec {
        Spec {
            cmd,
            name,
            arity,
            flags: Flags(flags),
            first_key: 0,
            last_key: 0,
            step: 0,
            keys: &[],
            acl: Acl::derived(acl, flags),
            tips: &[],
            group: "",
            since: "",
            complexity: "O(1)",
            summary: "",
            subcommands: &[],
        }
    }

    #[must_use]
    pub const fn keys(
        mut self,
        first_key: u8,
        last_key: i8,
        step: u8,
        keys: &'static [KeySpec],
    ) -> Spec {
        self.first_key = first_key;
        self.last_key = last_key;
        self.step = step;
        self.keys = keys;
        self
    }

    #[must_use]
    pub const fn doc(
        mut self,
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> Spec {
        self.group = group;
        self.since = since;
        self.complexity = complexity;
        self.summary = summary;
        self
    }

    #[must_use]
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Spec {
        self.tips = tips;
        self
    }

    #[must_use]
    pub const fn subcommands(mut self, subcommands: &'static [Spec]) -> Spec {
        self.subcommands = subcommands;
        self
    }

    /// Whether the command may change data.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.flags.has(Flags::WRITE)
    }

    /// Whether the command is refused when memory is full.
    #[must_use]
    pub fn is_denied_on_oom(&self) -> bool {
        self.flags.has(Flags::DENYOOM)
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

    /// The indices of the key arguments of a request with `argc` arguments.
    pub fn key_indices(&self, argc: usize) -> impl Iterator<Item = usize> + use<> {
        let first = usize::from(self.first_key);
        let end = match self.last_key {
            _ if first == 0 => 0,
            last if last < 0 => (argc + 1).saturating_sub(usize::from(last.unsigned_abs())),
            last => (usize::from(last.unsigned_abs()) + 1).min(argc),
        };
        (first..end).step_by(usize::from(self.step.max(1)))
    }

    /// The subcommand of that name, in any case.
    #[must_use]
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Spec> {
        let prefix = self.name.len() + 1;
        self.subcommands.iter().find(|sub| {
            let own = sub.name.as_bytes().get(prefix..);
            own.is_some_and(|own| own.eq_ignore_ascii_case(name))
        })
    }
}

/// Where the keys of a command are and what happens to them, as `COMMAND INFO` reports it.
#[derive(Debug)]
pub struct KeySpec {
    pub notes: Option<&'static str>,
    pub flags: &'static [&'static str],
    /// Index of the first key.
    pub begin: u8,
    /// Offset of the last key from `begin`, negative when counted from the end.
    pub last: i8,
    pub step: u8,
}

/// Command flags as a bit set; named in Redis's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    pub const WRITE: u16 = 1 << 0;
    pub const READONLY: u16 = 1 << 1;
    pub const DENYOOM: u16 = 1 << 2;
    pub const ADMIN: u16 = 1 << 3;
    pub const NOSCRIPT: u16 = 1 << 4;
    pub const LOADING: u16 = 1 << 5;
    pub const STALE: u16 = 1 << 6;
    pub const FAST: u16 = 1 << 7;
    pub const NO_AUTH: u16 = 1 << 8;
    pub const ALLOW_BUSY: u16 = 1 << 9;

    const NAMES: [&'static str; 10] = [
        "write",
        "readonly",
        "denyoom",
        "admin",
        "noscript",
        "loading",
        "stale",
        "fast",
        "no_auth",
        "allow_busy",
    ];

    /// Whether all bits of `flag` are set.
    #[must_use]
    pub const fn has(self, flag: u16) -> bool {
        self.0 & flag == flag
    }

    /// The names of the set flags.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        names(&Flags::NAMES, self.0)
    }
}

/// ACL categories as a bit set; named in Redis's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acl(u16);

impl Acl {
    pub const KEYSPACE: u16 = 1 << 0;
    pub const READ: u16 = 1 << 1;
    pub const WRITE: u16 = 1 << 2;
    pub const STRING: u16 = 1 << 3;
    pub const ADMIN: u16 = 1 << 4;
    pub const FAST: u16 = 1 << 5;
    pub const SLOW: u16 = 1 << 6;
    pub const DANGEROUS: u16 = 1 << 7;
    pub const CONNECTION: u16 = 1 << 8;

    const NAMES: [&'static str; 9] = [
        "@keyspace",
        "@read",
        "@write",
        "@string",
        "@admin",
        "@fast",
        "@slow",
        "@dangerous",
        "@connection",
    ];

    /// Adds the categories that follow from the flags, by Redis's rules.
    const fn derived(explicit: u16, flags: u16) -> Acl {
        let mut bits = explicit;
        if flags & Flags::WRITE != 0 {
            bits |= Acl::WRITE;
        }
        if flags & Flags::READONLY != 0 {
            bits |= Acl::READ;
        }
        if flags & Flags::ADMIN != 0 {
            bits |= Acl::ADMIN | Acl::DANGEROUS;
        }
        bits |= if flags & Flags::FAST != 0 {
            Acl::FAST
        } else {
            Acl::SLOW
        };
        Acl(bits)
    }

    /// The names of the categories, each with its `@`.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        names(&Acl::NAMES, self.0)
    }

    /// Whether the command is in the category of that name (without `@`, in any case).
    #[must_use]
    pub fn contains(self, category: &[u8]) -> bool {
        self.names()
            .filter_map(|name| name.as_bytes().strip_prefix(b"@"))
            .any(|name| name.eq_ignore_ascii_case(category))
    }
}

fn names(names: &'static [&'static str], bits: u16) -> impl Iterator<Item = &'static str> + Clone {
    names
        .iter()
        .enumerate()
        .filter(move |(bit, _)| bits & (1 << bit) != 0)
        .map(|(_, name)| *name)
}

/// Finds a command by its name in any case; one multiplication and usually one comparison.
#[expect(
    clippy::indexing_slicing,
    reason = "buckets are taken modulo their number, and hold indices of commands"
)]
#[must_use]
pub fn lookup(name: &[u8]) -> Option<&'static Spec> {
    let key = Folded::of(name)?;
    let mut at = key.bucket();
    loop {
        let entry = &TABLE[at];
        if entry.key.equals(&key) {
            return Some(&COMMANDS[entry.index as usize]);
        }
        if entry.key.len == 0 {
            return None;
        }
        at = (at + 1) % BUCKETS;
    }
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
pub(super) fn find<A: ArgList + ?Sized>(args: &A) -> Result<&'static Spec, ClientError> {
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
/// Setting bit 5 maps only letters onto lower-case letters, and names consist of letters only, so
/// equal folded bytes mean equal names.
#[derive(Clone, Copy)]
struct Folded {
    head: u64,
    tail: u64,
    len: u8,
}

impl Folded {
    const LONGEST: usize = 16;

    const NONE: Folded = Folded {
        head: 0,
        tail: 0,
        len: 0,
    };

    #[inline]
    const fn of(name: &[u8]) -> Option<Folded> {
        let (head, tail) = match name.len() {
            8..=Folded::LONGEST => match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
                (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
                _ => return None,
            },
            4..8 => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
                (Some(head), Some(tail)) => (
                    u32::from_le_bytes(*head) as u64,
                    u32::from_le_bytes(*tail) as u64,
                ),
                _ => return None,
            },
            3 => match name.first_chunk::<3>() {
                Some(&[a, b, c]) => (a as u64 | (b as u64) << 8 | (c as u64) << 16, 0),
                None => return None,
            },
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
    const fn bucket(&self) -> usize {
        const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed = (self.head ^ self.tail.rotate_left(29) ^ self.len as u64).wrapping_mul(MIX);
        (mixed >> (64 - BUCKETS.trailing_zeros())) as usize
    }

    #[inline]
    const fn equals(&self, other: &Folded) -> bool {
        self.head == other.head && self.tail == other.tail && self.len == other.len
    }
}

#[derive(Clone, Copy)]
struct Bucket {
    key: Folded,
    index: u8,
}

/// A power of two, several times the number of commands, so that probes stay short.
const BUCKETS: usize = 256;

const _: () = assert!(BUCKETS.is_power_of_two() && COMMANDS.len() * 4 <= BUCKETS);

static TABLE: [Bucket; BUCKETS] = build_table();

#[expect(clippy::indexing_slicing, clippy::panic, reason = "at compile time")]
const fn build_table() -> [Bucket; BUCKETS] {
    let mut table = [Bucket {
        key: Folded::NONE,
        index: 0,
    }; BUCKETS];
    let mut index = 0;
    while index < COMMANDS.len() {
        let Some(key) = Folded::of(COMMANDS[index].name.as_bytes()) else {
            panic!("a command name must have 3 to 16 letters");
        };
        let mut at = key.bucket();
        while table[at].key.len != 0 {
            at = (at + 1) % BUCKETS;
        }
        table[at] = Bucket {
            key,
            index: index as u8,
        };
        index += 1;
    }
    table
}

/// Where a command's description is in [`COMMANDS`].
#[derive(Clone, Copy)]
struct Place {
    top: u8,
    sub: u8,
}

impl Place {
    const CONTAINER: u8 = u8::MAX;
}

static BY_CMD: [Place; Cmd::COUNT] = build_places();

#[expect(clippy::indexing_slicing, reason = "at compile time")]
const fn build_places() -> [Place; Cmd::COUNT] {
    let mut places = [Place {
        top: u8::MAX,
        sub: Place::CONTAINER,
    }; Cmd::COUNT];
    let mut top = 0;
    while top < COMMANDS.len() {
        places[COMMANDS[top].cmd as usize].top = top as u8;
        let subcommands = COMMANDS[top].subcommands;
        let mut sub = 0;
        while sub < subcommands.len() {
            places[subcommands[sub].cmd as usize] = Place {
                top: top as u8,
                sub: sub as u8,
            };
            sub += 1;
        }
        top += 1;
    }
    let mut cmd = 0;
    while cmd < Cmd::COUNT {
        assert!(
            places[cmd].top != u8::MAX,
            "every command must be described"
        );
        cmd += 1;
    }
    places
}

#[cfg(test)]
mod tests;
