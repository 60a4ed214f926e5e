//! What clients read when a command is refused: every text in one place, in Redis's words.

use std::fmt;
use std::io::Write;

use ephesus_wire::Slot;

use super::parse::ArgList;
use super::tracking::TrackingError;
use crate::acl::denied::{Denied, Refusal};
use crate::acl::rule::RuleError;
use crate::acl::users::{RULES_MAX, USERS_BYTES_MAX};
use crate::migration::slots::command::SlotMigrationError;
use crate::node::copying::CopyError;
use crate::script::functions::FunctionError;

/// Subcommands of Redis's CLUSTER that change who has which slots, and who belongs to the cluster.
const MANAGED: [&str; 14] = [
    "addslots",
    "addslotsrange",
    "bumpepoch",
    "delslots",
    "delslotsrange",
    "failover",
    "flushslots",
    "forget",
    "meet",
    "replicate",
    "reset",
    "saveconfig",
    "set-config-epoch",
    "setslot",
];

/// Longest part of a client's own bytes that is repeated in an error.
const QUOTED_BYTES_MAX: usize = 128;

/// Why a command was refused; it had no effect. Answer it with [`ClientError::write`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The client asked for a command this server does not have.
    #[error("ERR unknown command '{name}', with args beginning with: {args}")]
    UnknownCommand { name: Quoted, args: Quoted },
    /// The client asked for a subcommand this server does not have.
    #[error("ERR unknown subcommand '{name}'. Try {} HELP.", container.to_ascii_uppercase())]
    UnknownSubcommand {
        container: &'static str,
        name: Quoted,
    },
    /// A subcommand of CLUSTER by which tools would change nodes, or who has which slots.
    #[error(
        "ERR nodes and slots are managed by the coordinator: nodes join by 'ephesus serve --coordinator' and leave by 'ephesus node remove', slots move by 'ephesus rebalance' and 'move', and there are no replicas"
    )]
    SlotsAreManaged,
    /// Too many arguments for a subcommand.
    #[error(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
    )]
    SubcommandArity {
        container: &'static str,
        name: Quoted,
    },
    /// Too few or too many arguments for the command of that full name.
    #[error("ERR wrong number of arguments for '{0}' command")]
    WrongArity(&'static str),
    /// Arguments that do not follow the command's grammar.
    #[error("ERR syntax error")]
    Syntax,
    /// HOTKEYS of what cannot be, or not now.
    #[error("ERR {0}")]
    Hotkeys(&'static str),
    /// HOTKEYS of a slot that another node or shard has.
    #[error("ERR slot {0} not handled by this node")]
    HotkeysSlot(u16),
    /// CLUSTER SLOT-STATS, or HOTKEYS, of a slot that there is none of.
    #[error("ERR Invalid or out of range slot")]
    SlotRange,
    /// CLUSTER SLOT-STATS of a range that ends before it begins.
    #[error("ERR Start slot number {0} is greater than end slot number {1}")]
    SlotsReversed(u16, u16),
    /// CLUSTER SLOT-STATS ordered by what is not counted.
    #[error("ERR Unrecognized sort metric for ORDERBY.")]
    SlotMetric,
    /// CLUSTER SLOT-STATS of no slots, or of more than there are.
    #[error("ERR Limit has to lie in between 1 and 16384 (maximum number of slots).")]
    SlotLimit,
    /// CLUSTER SLOT-STATS with an option twice.
    #[error("ERR Multiple filters of the same type are disallowed.")]
    SlotFilters,
    /// An argument or a stored value should have been a signed 64-bit integer.
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    /// INCR, INCRBY, DECR or DECRBY would leave the 64-bit range.
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    /// An argument or a stored value should have been a decimal number.
    #[error("ERR value is not a valid float")]
    NotAFloat,
    /// INCRBYFLOAT would leave the range of its numbers.
    #[error("ERR increment would produce NaN or Infinity")]
    InfiniteIncrement,
    /// DECRBY by the smallest integer, which has no negative.
    #[error("ERR decrement would overflow")]
    DecrementOverflow,
    /// An expiry that is not positive or too far away, in the command of that name.
    #[error("ERR invalid expire time in '{0}' command")]
    InvalidExpire(&'static str),
    /// An option EXPIRE and PEXPIRE do not have.
    #[error("ERR Unsupported option {0}")]
    UnsupportedOption(Quoted),
    /// NX of EXPIRE together with another condition.
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    ExpireNxWithOthers,
    /// GT of EXPIRE together with LT.
    #[error("ERR GT and LT options at the same time are not compatible")]
    ExpireGtWithLt,
    /// RENAME of a key that does not exist.
    #[error("ERR no such key")]
    NoSuchKey,
    /// A value would grow beyond the largest size.
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    /// A key is longer than the limit in bytes.
    #[error("ERR key exceeds maximum allowed size of {0} bytes")]
    KeyTooLong(usize),
    /// A command's effects do not fit one log record of so many bytes: send smaller commands.
    #[error("ERR the command's effects exceed {0} bytes, the most that is atomic")]
    CommandTooLarge(usize),
    /// EXEC without MULTI.
    #[error("ERR EXEC without MULTI")]
    ExecWithoutMulti,
    /// DISCARD without MULTI.
    #[error("ERR DISCARD without MULTI")]
    DiscardWithoutMulti,
    /// MULTI behind MULTI.
    #[error("ERR MULTI calls can not be nested")]
    NestedMulti,
    /// WATCH behind MULTI.
    #[error("ERR WATCH inside MULTI is not allowed")]
    WatchInMulti,
    /// A command that is not queued behind MULTI.
    #[error("ERR Command not allowed inside a transaction")]
    NotInTransaction,
    /// A command over the keys of several shards behind MULTI: use the direct port of a shard.
    #[error(
        "ERR a transaction is executed by one shard, and this command is about all of the node"
    )]
    TransactionOverNode,
    /// Queued commands of more than so many bytes.
    #[error("ERR the commands of a transaction exceed {0} bytes, or they are too many")]
    TransactionTooLarge(usize),
    /// A transaction that takes longer than so many milliseconds, in which its shard does nothing else; nothing of it was
    /// done.
    #[error("ERR the transaction took longer than {0} ms, nothing of it was done")]
    TransactionTime(u64),
    /// More keys to watch than so many.
    #[error("ERR at most {0} keys can be watched at once")]
    TooManyWatched(usize),
    /// EXEC after a command that was refused behind MULTI.
    #[error("EXECABORT Transaction discarded because of previous errors.")]
    ExecAborted,
    /// EXEC that is refused itself.
    #[error("EXECABORT Transaction discarded because of: {}", without_code(.0))]
    ExecAbortedBy(Box<ClientError>),
    /// A SCAN cursor that is not an unsigned integer.
    #[error("ERR invalid cursor")]
    InvalidCursor,
    /// A database number no server has.
    #[error("ERR DB index is out of range")]
    DbIndex,
    /// A number that must fit 32 bits.
    #[error("ERR value is out of range, value must between -2147483648 and 2147483647")]
    OutOfInt32,
    /// COPY of a key to itself.
    #[error("ERR source and destination objects are the same")]
    SameKey,
    /// CLIENT TRACKING or CLIENT CACHING.
    #[error("ERR {0}")]
    Tracking(TrackingError),
    /// SETRANGE at a negative offset.
    #[error("ERR offset is out of range")]
    OffsetOutOfRange,
    /// A bit's place that is no number, negative, or beyond the largest value.
    #[error("ERR bit offset is not an integer or out of range")]
    BitOffset,
    /// SETBIT to something other than 0 and 1.
    #[error("ERR bit is not an integer or out of range")]
    BitValue,
    /// BITPOS of something other than 0 and 1.
    #[error("ERR The bit argument must be 1 or 0.")]
    BitArgument,
    /// BITOP NOT of several values.
    #[error("ERR BITOP NOT must be called with a single source key.")]
    BitopNot,
    /// More than so many bytes of values that one command would look at.
    #[error("ERR the values of the command are longer than {0} bytes together")]
    ValuesTooLarge(usize),
    /// A type of BITFIELD's that is none, or too wide.
    #[error(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
    )]
    BitfieldType,
    /// OVERFLOW of BITFIELD with something else than WRAP, SAT and FAIL.
    #[error("ERR Invalid OVERFLOW type specified")]
    BitfieldOverflow,
    /// BITFIELD_RO with something else than GET.
    #[error("ERR BITFIELD_RO only supports the GET subcommand")]
    BitfieldReadOnly,
    /// LCS with LEN and IDX.
    #[error("ERR If you want both the length and indexes, please just use IDX.")]
    LcsLenAndIdx,
    /// LCS of values whose table is larger than a value may be.
    #[error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")]
    LcsTooLarge,
    /// RESTORE of what has another version, or other bytes than DUMP has answered.
    #[error("ERR DUMP payload version or checksum are wrong")]
    DumpFooter,
    /// RESTORE of what is no value.
    #[error("ERR Bad data format")]
    DumpFormat,
    /// RESTORE of another value than a string.
    #[error("ERR only strings can be restored, and this is a value of another type")]
    DumpType,
    /// RESTORE of a key that is there, without REPLACE.
    #[error("BUSYKEY Target key name already exists.")]
    BusyKey,
    /// MIGRATE with a key and KEYS.
    #[error("ERR When using MIGRATE KEYS option, the key argument must be set to the empty string")]
    MigrateKeys,
    /// MIGRATE did not give all keys to the target.
    #[error("{0}")]
    Migrate(CopyError),
    /// A key has changed while it was given to the target, or has moved: it stays as it is now.
    #[error(
        "ERR a key was changed while the target took it, and stays here; the target has its former value"
    )]
    MigrateChanged,
    /// Too many keys are on their way to other servers.
    #[error("ERR too many MIGRATE commands are under way, or too many bytes of values")]
    MigratesTooMany,
    /// RESTORE with a negative time to live.
    #[error("ERR Invalid TTL value, must be >= 0")]
    RestoreTtl,
    /// RESTORE with a negative IDLETIME.
    #[error("ERR Invalid IDLETIME value, must be >= 0")]
    RestoreIdleTime,
    /// RESTORE with a FREQ that is no byte.
    #[error("ERR Invalid FREQ value, must be >= 0 and <= 255")]
    RestoreFrequency,
    /// OBJECT IDLETIME: nothing notes when keys are used.
    #[error("ERR idle time is not tracked")]
    IdleTimeNotTracked,
    /// A command for other values than strings.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// SORT with an option, of that name, that reads other keys.
    #[error("ERR {0} option of SORT denied in Cluster mode.")]
    SortDenied(&'static str),
    /// SWAPDB: the server is one of a cluster.
    #[error("ERR SWAPDB is not allowed in cluster mode")]
    NoSwapdb,
    /// REPLICAOF: the server is one of a cluster.
    #[error("ERR REPLICAOF not allowed in cluster mode.")]
    NoReplicaof,
    /// FAILOVER: the server is one of a cluster.
    #[error("ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.")]
    NoFailover,
    /// LATENCY GRAPH of what has no samples.
    #[error("ERR No samples available for event '{0}'")]
    NoSamples(Quoted),
    /// MODULE with what changes the modules.
    #[error(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a \
         local connection, otherwise you need to set this option in the configuration file, and then restart the server."
    )]
    NoModules,
    /// SCRIPT DEBUG of something else than YES, SYNC and NO.
    #[error("ERR Use SCRIPT DEBUG YES/SYNC/NO")]
    ScriptDebugMode,
    /// SCRIPT DEBUG YES or SYNC.
    #[error("ERR there is no debugger for scripts")]
    NoDebugger,
    /// FUNCTION, or FCALL of what is none.
    #[error("ERR {0}")]
    Function(#[from] FunctionError),
    /// A script or a function with flags, but not no-writes, called by a command that only reads.
    #[error("ERR Can not execute a script with write flag using *_ro command.")]
    ScriptWriteFlag,
    /// A slot outside 0..16384.
    #[error("ERR Invalid slot")]
    InvalidSlot,
    /// A slot outside 0..16384 or a negative number of keys.
    #[error("ERR Invalid slot or number of keys")]
    InvalidSlotOrCount,
    /// `COMMAND GETKEYS` of a command that is unknown.
    #[error("ERR Invalid command specified")]
    GetKeysUnknown,
    /// `COMMAND GETKEYS` of a command that takes no keys.
    #[error("ERR The command has no key arguments")]
    GetKeysNone,
    /// `COMMAND GETKEYS` of a command with a wrong number of arguments.
    #[error("ERR Invalid number of arguments specified for command")]
    GetKeysArity,
    /// A client name with spaces or characters that do not print.
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    ClientName,
    /// A `CLIENT SETINFO` value with spaces or characters that do not print.
    #[error("ERR {0} cannot contain spaces, newlines or special characters.")]
    ClientAttribute(Quoted),
    /// A `CLIENT SETINFO` attribute other than LIB-NAME and LIB-VER.
    #[error("ERR Unrecognized option '{0}'")]
    ClientAttributeUnknown(Quoted),
    /// An argument, of that description, of more bytes than it may have.
    #[error("ERR {0} cannot be longer than {1} bytes")]
    ArgumentTooLong(&'static str, usize),
    /// A `CLUSTER MIGRATESLOTS` that cannot be read.
    #[error("ERR {0}")]
    SlotMigration(#[from] SlotMigrationError),
    /// More patterns in a CONFIG GET than so many.
    #[error("ERR at most {0} patterns can be asked for at once")]
    TooManyPatterns(usize),
    /// More names of commands at once than so many.
    #[error("ERR at most {0} names of commands can be asked for at once")]
    TooManyNames(usize),
    /// A reply that would be longer than so many bytes: ask for less at a time.
    #[error("ERR the reply would be longer than {0} bytes")]
    ReplyTooLarge(usize),
    /// Too much is taken by large replies that are being made; nothing was executed. Whoever executes commands waits
    /// instead of telling this.
    #[error("ERR other large replies are being made, try again")]
    LargeReplies,
    /// A command over all keys whose client has sent its last byte: it would keep those waiting that read.
    #[error("ERR given up: the client has sent its last byte, and others wait")]
    ClientHasLeft,
    /// Clients make the node hold more than they may, and what this command has gathered is the most.
    #[error("ERR given up: all clients together hold more than the node has for them")]
    ClientMemory,
    /// `CLIENT LIST TYPE` with a type that does not exist.
    #[error("ERR Unknown client type '{0}'")]
    ClientType(Quoted),
    /// `CLIENT LIST ID` with something that is not an id.
    #[error("ERR Invalid client ID")]
    ClientId,
    /// `CLIENT KILL ID` with something that is no id.
    #[error("ERR client-id should be greater than 0")]
    ClientIdRange,
    /// `CLIENT KILL USER` of somebody unknown.
    #[error("ERR No such user '{0}'")]
    NoSuchUser(Quoted),
    /// `CLIENT KILL address` where no client is.
    #[error("ERR No such client")]
    NoSuchClient,
    /// `CLIENT KILL MAXAGE` with something that is no number.
    #[error("ERR maxage is not an integer or out of range")]
    MaxAge,
    /// `CLIENT KILL MAXAGE` of no time.
    #[error("ERR maxage should be greater than 0")]
    MaxAgeRange,
    /// A timeout that is no number.
    #[error("ERR timeout is not an integer or out of range")]
    Timeout,
    /// A timeout below 0.
    #[error("ERR timeout is negative")]
    NegativeTimeout,
    /// `CLIENT PAUSE` of something else than WRITE and ALL.
    #[error("ERR CLIENT PAUSE mode must be WRITE or ALL")]
    PauseMode,
    /// `CLIENT UNBLOCK` with something else than TIMEOUT and ERROR.
    #[error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")]
    UnblockReason,
    /// WAITAOF of more than one log.
    #[error("ERR value is out of range, value must between 0 and 1")]
    LocalLogs,
    /// WAITAOF of a negative number of replicas.
    #[error("ERR value is out of range, must be positive")]
    Replicas,
    /// SAVE or BGSAVE while images are written that were asked for.
    #[error("ERR Background save already in progress")]
    SaveInProgress,
    /// BGREWRITEAOF while images are written that were asked for.
    #[error("ERR Background append only file rewriting already in progress")]
    RewriteInProgress,
    /// SAVE found no room for images; nothing that was acknowledged is lost, the log has it.
    #[error("ERR the disk has no room for images; the log has everything")]
    SaveFailed,
    /// SHUTDOWN ABORT, which always comes too late or too early.
    #[error("ERR No shutdown in progress.")]
    NoShutdown,
    /// DEBUG without --enable-debug-command.
    #[error(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
         local connection, otherwise you need to set this option in the configuration file, and then restart the server."
    )]
    NoDebug,
    /// A command that a client which has subscribed may not send under RESP2.
    #[error(
        "ERR Can't execute '{0}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )]
    SubscribedContext(&'static str),
    /// More patterns of one shard's clients than so many.
    #[error("ERR clients may subscribe to {0} patterns")]
    TooManySubscriptions(usize),
    /// PUBSUB CHANNELS with a long pattern, where there are many long channels.
    #[error("ERR there are too many channels for that pattern, use a shorter one")]
    TooManyChannels,
    /// HELLO with something that is not a number.
    #[error("ERR Protocol version is not an integer or out of range")]
    ProtocolVersion,
    /// HELLO with a version other than 2 and 3.
    #[error("NOPROTO unsupported protocol version")]
    NoProto,
    /// HELLO with an unknown or unfinished option.
    #[error("ERR Syntax error in HELLO option '{0}'")]
    HelloOption(Quoted),
    /// A wrong user or password.
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPassword,
    /// A command before the password.
    #[error("NOAUTH Authentication required.")]
    NoAuth,
    /// HELLO before the password, without one.
    #[error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
         option can be used to authenticate the client and select the RESP protocol version at the same time"
    )]
    HelloNoAuth,
    /// A password where none is needed.
    #[error(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
         configuration is correct?"
    )]
    NoPasswordSet,
    /// What the user may not do.
    #[error("NOPERM {0}")]
    NoPermission(Refusal),
    /// What the user may not do any more when EXEC executes it.
    #[error(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
         This command is no longer allowed for the following reason: {}",
        .0.reason_at_exec()
    )]
    NoPermissionAtExec(Denied),
    /// What the user whose script calls it may not do.
    #[error("ERR ACL failure in script: {0}")]
    ScriptNoPermission(Refusal),
    /// ACL CAT of no category.
    #[error("ERR Unknown category '{0}'")]
    AclCategory(Quoted),
    /// ACL DRYRUN of a user that is not there.
    #[error("ERR User '{0}' not found")]
    AclNoUser(Quoted),
    /// ACL DRYRUN of a command that is not there.
    #[error("ERR Command '{0}' not found")]
    AclNoCommand(Quoted),
    /// ACL GENPASS of no number of bits.
    #[error(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096"
    )]
    GenpassBits,
    /// ACL SETUSER with a rule that cannot be applied.
    #[error("ERR Error in ACL SETUSER modifier '{0}': {1}")]
    AclRule(Quoted, RuleError),
    /// Users that would take too much memory.
    #[error(
        "ERR all users together would take more than {} bytes",
        USERS_BYTES_MAX
    )]
    AclTooLarge,
    /// Too many rules in one ACL SETUSER, or of one user.
    #[error(
        "ERR a request, and a user when ACL LIST shows it, can have at most {} rules",
        RULES_MAX
    )]
    AclTooManyRules,
    /// ACL DELUSER default.
    #[error("ERR The 'default' user cannot be removed")]
    AclDefaultUser,
    /// A user's name with spaces.
    #[error("ERR Usernames can't contain spaces or null characters")]
    AclUserName,
    /// The system has no random numbers.
    #[error("ERR the system has no random numbers")]
    NoRandomness,
    /// ACL LOAD or SAVE without --acl-file.
    #[error(
        "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER \
         command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store \
         users in the Redis configuration."
    )]
    NoAclFile,
    /// ACL LOAD or SAVE while many wait for the file.
    #[error("ERR too many commands wait for the ACL file")]
    AclFileBusy,
    /// Keys of one command in different slots.
    #[error("CROSSSLOT Keys in request don't hash to the same slot")]
    CrossSlot,
    /// Keys of one transaction that are watched or written on different shards of the node.
    #[error(
        "CROSSSLOT Keys of a transaction, watched ones included, have to be on one shard of the node"
    )]
    TransactionOfShards,
    /// No node is known to own the slot.
    #[error("CLUSTERDOWN Hash slot not served")]
    SlotNotServed,
    /// This node may not answer now; a retry elsewhere or later can succeed.
    #[error("CLUSTERDOWN The cluster is down")]
    ClusterDown,
    /// The slot's move waits for the coordinators; nothing was executed.
    #[error("CLUSTERDOWN The slot is being moved and the coordinator cannot be reached")]
    MoveUndecided,
    /// The node still reads its data.
    #[error("LOADING Redis is loading the dataset in memory")]
    Loading,
    /// Memory is full; reads and deletes still work.
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    /// The disk is below its free-space floor; reads still work.
    #[error("MISCONF not enough free disk space, writes are refused until there is more.")]
    DiskFull,
    /// CONFIG SET of what is no parameter.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    ConfigUnknown(Quoted),
    /// CONFIG SET of a parameter, and why it was refused.
    #[error("ERR CONFIG SET failed (possibly related to argument '{0}') - {1}")]
    ConfigSet(&'static str, &'static str),
    /// There is no file.
    #[error("ERR The server is running without a config file")]
    NoConfigFile,
    /// SLOWLOG GET of a number below -1.
    #[error("ERR count should be greater than or equal to -1")]
    SlowLogCount,
    /// A script of that name is not known.
    #[error("NOSCRIPT No matching script. Please use EVAL.")]
    NoScript,
    /// SCRIPT KILL: a script is never under way when another command is executed.
    #[error("NOTBUSY No scripts in execution right now.")]
    NotBusy,
    /// EVAL with fewer arguments than it has keys.
    #[error("ERR Number of keys can't be greater than number of args")]
    ScriptKeysMissing,
    /// EVAL with a negative number of keys.
    #[error("ERR Number of keys can't be negative")]
    ScriptKeysNegative,
    /// A script that is no Lua.
    #[error("ERR Error compiling script (new function): {0}")]
    ScriptSyntax(Box<str>),
    /// A script's first line begins with `#!` and has no end.
    #[error("ERR Invalid script shebang")]
    ScriptShebang,
    /// A script's first line names another language than `lua`.
    #[error("ERR Unexpected engine in script shebang: {0}")]
    ScriptEngine(Quoted),
    /// Something other than `flags=` in a script's first line.
    #[error("ERR Unknown lua shebang option: {0}")]
    ScriptOption(Quoted),
    /// A flag that scripts do not have.
    #[error("ERR Unexpected flag in script shebang: {0}")]
    ScriptFlag(Quoted),
    /// A script that does not want to run in a cluster.
    #[error("ERR Can not run script on cluster, 'no-cluster' flag is set.")]
    ScriptNoCluster,
    /// Scripts that SCRIPT LOAD has brought take so many bytes: flush them.
    #[error("ERR the scripts of this node take {0} bytes, the most there may be; use SCRIPT FLUSH")]
    ScriptsTooLarge(usize),
    /// A script took longer than so many milliseconds.
    #[error(
        "ERR the script was stopped after {0} ms (--lua-time-limit), and nothing of it has happened"
    )]
    ScriptTime(u64),
    /// A script took more memory than so many bytes.
    #[error(
        "ERR the script was stopped when it needed more than {0} bytes of memory, and nothing of it has happened"
    )]
    ScriptMemory(usize),
    /// A script calls a command that does not exist.
    #[error("ERR Unknown Redis command called from script")]
    ScriptUnknown,
    /// A script calls a command with a wrong number of arguments.
    #[error("ERR Wrong number of args calling Redis command from script")]
    ScriptArity,
    /// A script calls a command that scripts may not call.
    #[error("ERR This Redis command is not allowed from script")]
    NotInScripts,
    /// A script calls a command, of that name, that is about more than keys.
    #[error("ERR '{0}' cannot be called from scripts here")]
    KeylessInScripts(&'static str),
    /// A script that may not write does.
    #[error("ERR Write commands are not allowed from read-only scripts.")]
    ScriptReadOnly,
    /// A script uses a key that it was not given: it need not be here.
    #[error("ERR Script attempted to access key '{0}', which is not among its KEYS")]
    ScriptKey(Quoted),
    /// SPUBLISH of a script to a channel that other nodes have.
    #[error("ERR Script attempted to access a non local key in a cluster node")]
    ScriptChannel,
    /// A command that would have its client wait for messages, behind MULTI.
    #[error("ERR {0} isn't allowed for {1}DENY BLOCKING client")]
    DenyBlocking(&'static str, &'static str),
    /// SCRIPT FLUSH with something else than ASYNC or SYNC.
    #[error("ERR SCRIPT FLUSH only support SYNC|ASYNC option")]
    ScriptFlushOption,
    /// The server has as many connections as it may.
    #[error("ERR max number of clients reached")]
    TooManyClients,
}

impl ClientError {
    /// The error for an unknown command, with a preview of its arguments.
    #[must_use]
    pub fn unknown_command<A: ArgList + ?Sized>(args: &A) -> ClientError {
        let mut preview = Vec::new();
        for index in 1..args.len() {
            if preview.len() >= QUOTED_BYTES_MAX {
                break;
            }
            let room = QUOTED_BYTES_MAX - preview.len();
            preview.push(b'\'');
            preview.extend_from_slice(printable(args.arg(index), room));
            preview.extend_from_slice(b"' ");
        }
        let name = if args.is_empty() {
            &[][..]
        } else {
            args.arg(0)
        };
        ClientError::UnknownCommand {
            name: Quoted::new(name),
            args: Quoted::sanitized(&preview),
        }
    }

    /// The error for an unknown subcommand of `container`.
    #[must_use]
    pub fn unknown_subcommand(container: &'static str, name: &[u8]) -> ClientError {
        let is_managed = |managed: &str| name.eq_ignore_ascii_case(managed.as_bytes());
        if container == "cluster" && MANAGED.iter().any(|managed| is_managed(managed)) {
            return ClientError::SlotsAreManaged;
        }
        ClientError::UnknownSubcommand {
            container,
            name: Quoted::new(name),
        }
    }

    /// The first word of the text, under which INFO counts errors.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            ClientError::NoScript => "NOSCRIPT",
            ClientError::NotBusy => "NOTBUSY",
            ClientError::NoProto => "NOPROTO",
            ClientError::WrongPassword => "WRONGPASS",
            ClientError::NoAuth | ClientError::HelloNoAuth => "NOAUTH",
            ClientError::NoPermission(_) | ClientError::NoPermissionAtExec(_) => "NOPERM",
            ClientError::CrossSlot | ClientError::TransactionOfShards => "CROSSSLOT",
            ClientError::ExecAborted | ClientError::ExecAbortedBy(_) => "EXECABORT",
            ClientError::BusyKey => "BUSYKEY",
            ClientError::WrongType => "WRONGTYPE",
            ClientError::SlotNotServed | ClientError::ClusterDown | ClientError::MoveUndecided => {
                "CLUSTERDOWN"
            }
            ClientError::Loading => "LOADING",
            ClientError::OutOfMemory => "OOM",
            ClientError::Migrate(
                CopyError::Connecting | CopyError::Writing | CopyError::Reading,
            ) => "IOERR",
            ClientError::DiskFull => "MISCONF",
            _ => "ERR",
        }
    }

    /// Whether the command was refused before it was executed.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        matches!(
            self,
            ClientError::WrongArity(_)
                | ClientError::NoAuth
                | ClientError::NoPermission(_)
                | ClientError::CrossSlot
                | ClientError::SlotNotServed
                | ClientError::ClusterDown
                | ClientError::MoveUndecided
                | ClientError::Loading
                | ClientError::OutOfMemory
                | ClientError::DiskFull
        )
    }

    /// How long the error reply is, bytes.
    #[must_use]
    pub fn reply_len(&self) -> usize {
        let mut out = Vec::new();
        self.write(&mut out);
        out.len()
    }

    /// Appends the error reply.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_line(out, format_args!("-{self}\r\n"));
    }
}

/// An error's text inside another one's, where Redis leaves the general code out.
fn without_code(error: &ClientError) -> String {
    let text = error.to_string();
    text.strip_prefix("ERR ")
        .map_or(text.clone(), str::to_owned)
}

/// Appends the reply that sends a client to the owner of `slot`; it counts as error `MOVED`.
pub fn write_moved(out: &mut Vec<u8>, slot: Slot, host: &str, port: u16) {
    write_line(out, format_args!("-MOVED {slot} {host}:{port}\r\n"));
}

fn write_line(out: &mut Vec<u8>, line: fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(line);
}

/// A client's own bytes inside an error: cut to 128, line breaks made spaces, so that the reply
/// stays one line; bytes that are not UTF-8 become U+FFFD, so that every client can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(Box<str>);

impl Quoted {
    #[must_use]
    pub fn new(bytes: &[u8]) -> Quoted {
        Quoted::sanitized(printable(bytes, QUOTED_BYTES_MAX))
    }

    fn sanitized(bytes: &[u8]) -> Quoted {
        Quoted(
            String::from_utf8_lossy(bytes)
                .replace(['\r', '\n'], " ")
                .into_boxed_str(),
        )
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// At most `limit` bytes and nothing from a NUL on, as Redis prints arguments.
fn printable(bytes: &[u8], limit: usize) -> &[u8] {
    let bytes = bytes.get(..limit).unwrap_or(bytes);
    let end = bytes.iter().position(|&byte| byte == 0);
    end.and_then(|end| bytes.get(..end)).unwrap_or(bytes)
}

#[cfg(test)]
mod tests;
