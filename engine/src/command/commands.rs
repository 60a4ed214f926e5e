//! The commands of this release. Arity, flags, keys and categories are what Redis 7 reports, so
//! that clients which route by `COMMAND` treat both alike; `CLIENT SETINFO` is that of 7.2.

use super::spec::{Acl, Cmd, Flags, KeySpec, Spec};

const WRITE: u16 = Flags::WRITE;
const READONLY: u16 = Flags::READONLY;
const DENYOOM: u16 = Flags::DENYOOM;
const ADMIN: u16 = Flags::ADMIN;
const NOSCRIPT: u16 = Flags::NOSCRIPT;
const LOADING: u16 = Flags::LOADING;
const STALE: u16 = Flags::STALE;
const FAST: u16 = Flags::FAST;
const NO_AUTH: u16 = Flags::NO_AUTH;
const ALLOW_BUSY: u16 = Flags::ALLOW_BUSY;

const STRING: u16 = Acl::STRING;
const KEYSPACE: u16 = Acl::KEYSPACE;
const CONNECTION: u16 = Acl::CONNECTION;
const DANGEROUS: u16 = Acl::DANGEROUS;

const NONDETERMINISTIC: &str = "nondeterministic_output";
const NONDETERMINISTIC_ORDER: &str = "nondeterministic_output_order";
const ALL_SHARDS: &str = "request_policy:all_shards";
const ALL_NODES: &str = "request_policy:all_nodes";
const MULTI_SHARD: &str = "request_policy:multi_shard";
const ALL_SUCCEEDED: &str = "response_policy:all_succeeded";
const SUM: &str = "response_policy:agg_sum";

const READ_VALUE: &[&str] = &["RO", "access"];
const READ_METADATA: &[&str] = &["RO"];
const UPDATE_VALUE: &[&str] = &["RW", "access", "update"];
const UPDATE_METADATA: &[&str] = &["RW", "update"];
const TAKE_VALUE: &[&str] = &["RW", "access", "delete"];
const EXTEND_VALUE: &[&str] = &["RW", "insert"];
const INSERT: &[&str] = &["OW", "insert"];
const OVERWRITE: &[&str] = &["OW", "update"];
const REMOVE: &[&str] = &["RM", "delete"];
const SET_VALUE: &[&str] = &["RW", "access", "update", "variable_flags"];

const fn one_key(begin: u8, flags: &'static [&'static str]) -> KeySpec {
    KeySpec {
        notes: None,
        flags,
        begin,
        last: 0,
        step: 1,
    }
}

const fn all_keys(step: u8, flags: &'static [&'static str]) -> KeySpec {
    KeySpec {
        notes: None,
        flags,
        begin: 1,
        last: -1,
        step,
    }
}

/// Every command, containers with their subcommands; unknown is what is not here.
pub static COMMANDS: [Spec; 44] = [
    Spec::new(Cmd::Get, "get", 2, READONLY | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, READ_VALUE)])
        .doc("string", "1.0.0", "O(1)", "Returns the value of a key"),
    Spec::new(Cmd::Set, "set", -3, WRITE | DENYOOM, STRING)
        .keys(
            1,
            1,
            1,
            &[KeySpec {
                notes: Some("RW and ACCESS due to the optional `GET` argument"),
                ..one_key(1, SET_VALUE)
            }],
        )
        .doc(
            "string",
            "1.0.0",
            "O(1)",
            "Sets the value of a key, with conditions and an expiry",
        ),
    Spec::new(Cmd::Setnx, "setnx", 3, WRITE | DENYOOM | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, INSERT)])
        .doc(
            "string",
            "1.0.0",
            "O(1)",
            "Sets the value of a key that does not exist yet",
        ),
    Spec::new(Cmd::Setex, "setex", 4, WRITE | DENYOOM, STRING)
        .keys(1, 1, 1, &[one_key(1, OVERWRITE)])
        .doc(
            "string",
            "2.0.0",
            "O(1)",
            "Sets the value of a key together with its time to live in seconds",
        ),
    Spec::new(Cmd::Getset, "getset", 3, WRITE | DENYOOM | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, UPDATE_VALUE)])
        .doc(
            "string",
            "1.0.0",
            "O(1)",
            "Sets the value of a key and returns the previous one",
        ),
    Spec::new(Cmd::Getdel, "getdel", 2, WRITE | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, TAKE_VALUE)])
        .doc(
            "string",
            "6.2.0",
            "O(1)",
            "Returns the value of a key and deletes the key",
        ),
    Spec::new(Cmd::Mget, "mget", -2, READONLY | FAST, STRING)
        .keys(1, -1, 1, &[all_keys(1, READ_VALUE)])
        .tips(&[MULTI_SHARD])
        .doc(
            "string",
            "1.0.0",
            "O(N) in the number of keys",
            "Returns the values of several keys",
        ),
    Spec::new(Cmd::Mset, "mset", -3, WRITE | DENYOOM, STRING)
        .keys(1, -1, 2, &[all_keys(2, OVERWRITE)])
        .tips(&[MULTI_SHARD, ALL_SUCCEEDED])
        .doc(
            "string",
            "1.0.1",
            "O(N) in the number of keys",
            "Sets the values of several keys",
        ),
    Spec::new(Cmd::Strlen, "strlen", 2, READONLY | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, READ_METADATA)])
        .doc(
            "string",
            "2.2.0",
            "O(1)",
            "Returns the length of a value in bytes",
        ),
    Spec::new(Cmd::Append, "append", 3, WRITE | DENYOOM | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, EXTEND_VALUE)])
        .doc(
            "string",
            "2.0.0",
            "O(N) in the value's length",
            "Appends to the value of a key",
        ),
    Spec::new(Cmd::Incr, "incr", 2, WRITE | DENYOOM | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, UPDATE_VALUE)])
        .doc(
            "string",
            "1.0.0",
            "O(1)",
            "Adds one to the integer value of a key",
        ),
    Spec::new(Cmd::Decr, "decr", 2, WRITE | DENYOOM | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, UPDATE_VALUE)])
        .doc(
            "string",
            "1.0.0",
            "O(1)",
            "Subtracts one from the integer value of a key",
        ),
    Spec::new(Cmd::Incrby, "incrby", 3, WRITE | DENYOOM | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, UPDATE_VALUE)])
        .doc(
            "string",
            "1.0.0",
            "O(1)",
            "Adds a number to the integer value of a key",
        ),
    Spec::new(Cmd::Decrby, "decrby", 3, WRITE | DENYOOM | FAST, STRING)
        .keys(1, 1, 1, &[one_key(1, UPDATE_VALUE)])
        .doc(
            "string",
            "1.0.0",
            "O(1)",
            "Subtracts a number from the integer value of a key",
        ),
    Spec::new(Cmd::Del, "del", -2, WRITE, KEYSPACE)
        .keys(1, -1, 1, &[all_keys(1, REMOVE)])
        .tips(&[MULTI_SHARD, SUM])
        .doc(
            "generic",
            "1.0.0",
            "O(N) in the number of keys",
            "Deletes keys",
        ),
    Spec::new(Cmd::Unlink, "unlink", -2, WRITE | FAST, KEYSPACE)
        .keys(1, -1, 1, &[all_keys(1, REMOVE)])
        .tips(&[MULTI_SHARD, SUM])
        .doc(
            "generic",
            "4.0.0",
            "O(N) in the number of keys",
            "Deletes keys, as DEL does",
        ),
    Spec::new(Cmd::Exists, "exists", -2, READONLY | FAST, KEYSPACE)
        .keys(1, -1, 1, &[all_keys(1, READ_METADATA)])
        .tips(&[MULTI_SHARD, SUM])
        .doc(
            "generic",
            "1.0.0",
            "O(N) in the number of keys",
            "Counts the given keys that exist",
        ),
    Spec::new(Cmd::Type, "type", 2, READONLY | FAST, KEYSPACE)
        .keys(1, 1, 1, &[one_key(1, READ_METADATA)])
        .doc(
            "generic",
            "1.0.0",
            "O(1)",
            "Returns the type of the value of a key",
        ),
    Spec::new(Cmd::Rename, "rename", 3, WRITE, KEYSPACE)
        .keys(1, 2, 1, &[one_key(1, TAKE_VALUE), one_key(2, OVERWRITE)])
        .doc(
            "generic",
            "1.0.0",
            "O(1)",
            "Renames a key, replacing the destination",
        ),
    Spec::new(Cmd::Expire, "expire", -3, WRITE | FAST, KEYSPACE)
        .keys(1, 1, 1, &[one_key(1, UPDATE_METADATA)])
        .doc(
            "generic",
            "1.0.0",
            "O(1)",
            "Sets a key's time to live in seconds",
        ),
    Spec::new(Cmd::Pexpire, "pexpire", -3, WRITE | FAST, KEYSPACE)
        .keys(1, 1, 1, &[one_key(1, UPDATE_METADATA)])
        .doc(
            "generic",
            "2.6.0",
            "O(1)",
            "Sets a key's time to live in milliseconds",
        ),
    Spec::new(Cmd::Ttl, "ttl", 2, READONLY | FAST, KEYSPACE)
        .keys(1, 1, 1, &[one_key(1, READ_VALUE)])
        .tips(&[NONDETERMINISTIC])
        .doc(
            "generic",
            "1.0.0",
            "O(1)",
            "Returns a key's time to live in seconds",
        ),
    Spec::new(Cmd::Pttl, "pttl", 2, READONLY | FAST, KEYSPACE)
        .keys(1, 1, 1, &[one_key(1, READ_VALUE)])
        .tips(&[NONDETERMINISTIC])
        .doc(
            "generic",
            "2.6.0",
            "O(1)",
            "Returns a key's time to live in milliseconds",
        ),
    Spec::new(Cmd::Persist, "persist", 2, WRITE | FAST, KEYSPACE)
        .keys(1, 1, 1, &[one_key(1, UPDATE_METADATA)])
        .doc("generic", "2.2.0", "O(1)", "Removes a key's time to live"),
    Spec::new(Cmd::Scan, "scan", -2, READONLY, KEYSPACE)
        .tips(&[NONDETERMINISTIC, "request_policy:special"])
        .doc(
            "generic",
            "2.8.0",
            "O(1) per call, O(N) for a whole iteration over N keys",
            "Iterates over the keys",
        ),
    Spec::new(Cmd::Keys, "keys", 2, READONLY, KEYSPACE | DANGEROUS)
        .tips(&[ALL_SHARDS, NONDETERMINISTIC_ORDER])
        .doc(
            "generic",
            "1.0.0",
            "O(N) in all keys",
            "Returns the keys that match a pattern",
        ),
    Spec::new(Cmd::Randomkey, "randomkey", 1, READONLY, KEYSPACE)
        .tips(&[ALL_SHARDS, NONDETERMINISTIC])
        .doc("generic", "1.0.0", "O(1)", "Returns a random key"),
    Spec::new(Cmd::Dbsize, "dbsize", 1, READONLY | FAST, KEYSPACE)
        .tips(&[ALL_SHARDS, SUM])
        .doc("server", "1.0.0", "O(1)", "Returns the number of keys"),
    Spec::new(Cmd::Flushall, "flushall", -1, WRITE, KEYSPACE | DANGEROUS)
        .tips(&[ALL_SHARDS, ALL_SUCCEEDED])
        .doc("server", "1.0.0", "O(N) in all keys", "Deletes all keys"),
    Spec::new(Cmd::Flushdb, "flushdb", -1, WRITE, KEYSPACE | DANGEROUS)
        .tips(&[ALL_SHARDS, ALL_SUCCEEDED])
        .doc(
            "server",
            "1.0.0",
            "O(N) in all keys",
            "Deletes all keys of the database",
        ),
    Spec::new(Cmd::Ping, "ping", -1, FAST, CONNECTION)
        .tips(&[ALL_SHARDS, ALL_SUCCEEDED])
        .doc(
            "connection",
            "1.0.0",
            "O(1)",
            "Answers PONG or the given message",
        ),
    Spec::new(Cmd::Echo, "echo", 2, LOADING | STALE | FAST, CONNECTION).doc(
        "connection",
        "1.0.0",
        "O(1)",
        "Returns the given message",
    ),
    Spec::new(
        Cmd::Hello,
        "hello",
        -1,
        NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        CONNECTION,
    )
    .doc(
        "connection",
        "6.0.0",
        "O(1)",
        "Chooses the protocol version and introduces the server",
    ),
    Spec::new(Cmd::Select, "select", 2, LOADING | STALE | FAST, CONNECTION).doc(
        "connection",
        "1.0.0",
        "O(1)",
        "Selects database 0, the only one",
    ),
    Spec::new(
        Cmd::Quit,
        "quit",
        -1,
        NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        CONNECTION,
    )
    .doc("connection", "1.0.0", "O(1)", "Closes the connection"),
    Spec::new(
        Cmd::Reset,
        "reset",
        1,
        NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        CONNECTION,
    )
    .doc(
        "connection",
        "6.2.0",
        "O(1)",
        "Puts the connection back into its first state",
    ),
    Spec::new(
        Cmd::Readonly,
        "readonly",
        1,
        LOADING | STALE | FAST,
        CONNECTION,
    )
    .doc(
        "cluster",
        "3.0.0",
        "O(1)",
        "Allows reads from a replica on this connection",
    ),
    Spec::new(
        Cmd::Readwrite,
        "readwrite",
        1,
        LOADING | STALE | FAST,
        CONNECTION,
    )
    .doc("cluster", "3.0.0", "O(1)", "Takes READONLY back"),
    Spec::new(Cmd::Asking, "asking", 1, FAST, CONNECTION).doc(
        "cluster",
        "3.0.0",
        "O(1)",
        "Announces that the next command follows an ASK redirection",
    ),
    Spec::new(Cmd::Info, "info", -1, LOADING | STALE, DANGEROUS)
        .tips(&[NONDETERMINISTIC, ALL_SHARDS, "response_policy:special"])
        .doc(
            "server",
            "1.0.0",
            "O(1)",
            "Returns facts and counters of the server",
        ),
    Spec::new(Cmd::Client, "client", -2, 0, 0)
        .subcommands(&CLIENT)
        .doc("connection", "2.4.0", DEPENDS, "Commands about connections"),
    Spec::new(Cmd::Config, "config", -2, 0, 0)
        .subcommands(&CONFIG)
        .doc(
            "server",
            "2.0.0",
            DEPENDS,
            "Commands about the configuration",
        ),
    Spec::new(Cmd::Cluster, "cluster", -2, 0, 0)
        .subcommands(&CLUSTER)
        .doc("cluster", "3.0.0", DEPENDS, "Commands about the cluster"),
    Spec::new(Cmd::Command, "command", -1, LOADING | STALE, CONNECTION)
        .subcommands(&COMMAND)
        .tips(&[NONDETERMINISTIC_ORDER])
        .doc(
            "server",
            "2.8.13",
            "O(N) in all commands",
            "Describes the commands",
        ),
];

const DEPENDS: &str = "Depends on subcommand.";

const CLIENT_FLAGS: u16 = NOSCRIPT | LOADING | STALE;

static CLIENT: [Spec; 6] = [
    Spec::new(Cmd::ClientId, "client|id", 2, CLIENT_FLAGS, CONNECTION).doc(
        "connection",
        "5.0.0",
        "O(1)",
        "Returns the id of this connection",
    ),
    Spec::new(Cmd::ClientInfo, "client|info", 2, CLIENT_FLAGS, CONNECTION)
        .tips(&[NONDETERMINISTIC])
        .doc("connection", "6.2.0", "O(1)", "Describes this connection"),
    Spec::new(
        Cmd::ClientList,
        "client|list",
        -2,
        ADMIN | CLIENT_FLAGS,
        CONNECTION,
    )
    .tips(&[NONDETERMINISTIC])
    .doc(
        "connection",
        "2.4.0",
        "O(N) in all connections",
        "Describes the connections",
    ),
    Spec::new(
        Cmd::ClientGetname,
        "client|getname",
        2,
        CLIENT_FLAGS,
        CONNECTION,
    )
    .doc(
        "connection",
        "2.6.9",
        "O(1)",
        "Returns the name of this connection",
    ),
    Spec::new(
        Cmd::ClientSetname,
        "client|setname",
        3,
        CLIENT_FLAGS,
        CONNECTION,
    )
    .doc("connection", "2.6.9", "O(1)", "Names this connection"),
    Spec::new(
        Cmd::ClientSetinfo,
        "client|setinfo",
        4,
        CLIENT_FLAGS,
        CONNECTION,
    )
    .tips(&[ALL_NODES, ALL_SUCCEEDED])
    .doc(
        "connection",
        "7.2.0",
        "O(1)",
        "Notes the client library's name or version",
    ),
];

static CONFIG: [Spec; 1] = [Spec::new(
    Cmd::ConfigGet,
    "config|get",
    -3,
    ADMIN | NOSCRIPT | LOADING | STALE,
    0,
)
.doc(
    "server",
    "2.0.0",
    "O(N) in all parameters",
    "Returns the parameters that match any of the patterns",
)];

static CLUSTER: [Spec; 11] = [
    Spec::new(Cmd::ClusterSlots, "cluster|slots", 2, STALE, 0)
        .tips(&[NONDETERMINISTIC])
        .doc(
            "cluster",
            "3.0.0",
            "O(N) in all slot ranges",
            "Returns which node serves which slots",
        ),
    Spec::new(Cmd::ClusterShards, "cluster|shards", 2, STALE, 0)
        .tips(&[NONDETERMINISTIC])
        .doc(
            "cluster",
            "7.0.0",
            "O(N) in all nodes",
            "Returns the shards with their slots and nodes",
        ),
    Spec::new(Cmd::ClusterNodes, "cluster|nodes", 2, STALE, 0)
        .tips(&[NONDETERMINISTIC])
        .doc(
            "cluster",
            "3.0.0",
            "O(N) in all nodes",
            "Returns the nodes, one per line",
        ),
    Spec::new(Cmd::ClusterInfo, "cluster|info", 2, STALE, 0)
        .tips(&[NONDETERMINISTIC])
        .doc(
            "cluster",
            "3.0.0",
            "O(1)",
            "Returns the state of the cluster",
        ),
    Spec::new(Cmd::ClusterMyid, "cluster|myid", 2, STALE, 0).doc(
        "cluster",
        "3.0.0",
        "O(1)",
        "Returns this node's id",
    ),
    Spec::new(Cmd::ClusterKeyslot, "cluster|keyslot", 3, STALE, 0).doc(
        "cluster",
        "3.0.0",
        "O(N) in the key's length",
        "Returns the slot of a key",
    ),
    Spec::new(
        Cmd::ClusterCountkeysinslot,
        "cluster|countkeysinslot",
        3,
        STALE,
        0,
    )
    .doc(
        "cluster",
        "3.0.0",
        "O(N) in the keys of the partition",
        "Returns the number of keys in a slot of this node",
    ),
    Spec::new(
        Cmd::ClusterGetkeysinslot,
        "cluster|getkeysinslot",
        4,
        STALE,
        0,
    )
    .tips(&[NONDETERMINISTIC])
    .doc(
        "cluster",
        "3.0.0",
        "O(N) in the keys of the partition",
        "Returns keys of a slot of this node",
    ),
    Spec::new(
        Cmd::ClusterMigrateslots,
        "cluster|migrateslots",
        -4,
        ADMIN | STALE,
        0,
    )
    .doc(
        "cluster",
        "9.0.0",
        "O(N) in all slots",
        "Moves whole partitions of this node to others",
    ),
    Spec::new(
        Cmd::ClusterGetslotmigrations,
        "cluster|getslotmigrations",
        2,
        ADMIN | STALE,
        0,
    )
    .tips(&[NONDETERMINISTIC])
    .doc(
        "cluster",
        "9.0.0",
        "O(N) in the moves of this node",
        "Returns the moves of this node, the newest first",
    ),
    Spec::new(
        Cmd::ClusterCancelslotmigrations,
        "cluster|cancelslotmigrations",
        2,
        ADMIN | STALE,
        0,
    )
    .doc(
        "cluster",
        "9.0.0",
        "O(N) in the moves of this node",
        "Gives up what is moving away from this node",
    ),
];

const COMMAND_FLAGS: u16 = LOADING | STALE;

static COMMAND: [Spec; 7] = [
    Spec::new(
        Cmd::CommandCount,
        "command|count",
        2,
        COMMAND_FLAGS,
        CONNECTION,
    )
    .doc("server", "2.8.13", "O(1)", "Returns the number of commands"),
    Spec::new(
        Cmd::CommandInfo,
        "command|info",
        -2,
        COMMAND_FLAGS,
        CONNECTION,
    )
    .tips(&[NONDETERMINISTIC_ORDER])
    .doc(
        "server",
        "2.8.13",
        "O(N) in the given names",
        "Describes commands for programs",
    ),
    Spec::new(
        Cmd::CommandDocs,
        "command|docs",
        -2,
        COMMAND_FLAGS,
        CONNECTION,
    )
    .tips(&[NONDETERMINISTIC_ORDER])
    .doc(
        "server",
        "7.0.0",
        "O(N) in the given names",
        "Describes commands for people",
    ),
    Spec::new(
        Cmd::CommandList,
        "command|list",
        -2,
        COMMAND_FLAGS,
        CONNECTION,
    )
    .tips(&[NONDETERMINISTIC_ORDER])
    .doc(
        "server",
        "7.0.0",
        "O(N) in all commands",
        "Returns the names of the commands",
    ),
    Spec::new(
        Cmd::CommandGetkeys,
        "command|getkeys",
        -4,
        COMMAND_FLAGS,
        CONNECTION,
    )
    .doc(
        "server",
        "2.8.13",
        "O(N) in the number of arguments",
        "Returns the keys in a whole command",
    ),
    Spec::new(
        Cmd::CommandGetkeysandflags,
        "command|getkeysandflags",
        -4,
        COMMAND_FLAGS,
        CONNECTION,
    )
    .doc(
        "server",
        "7.0.0",
        "O(N) in the number of arguments",
        "Returns the keys in a whole command and what happens to them",
    ),
    Spec::new(
        Cmd::CommandHelp,
        "command|help",
        2,
        COMMAND_FLAGS,
        CONNECTION,
    )
    .doc("server", "5.0.0", "O(1)", "Lists the subcommands"),
];
