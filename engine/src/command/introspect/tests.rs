use ephesus_wire::resp::value::{Value, decode};
use proptest::prelude::*;

use super::*;

/// `COMMAND INFO` of a redis-server 7.0.15 for the commands of this release, one per line:
/// name, arity, flags, first key, last key, step, categories, tips, key specifications.
const REDIS: &str = include_str!("redis-7.0.txt");

/// Commands newer than that server.
const NEWER: [&str; 14] = [
    "client|no-touch",
    "delifeq",
    "waitaof",
    "client|setinfo",
    "cluster|cancelslotmigrations",
    "cluster|getslotmigrations",
    "cluster|migrateslots",
    "cluster|slot-stats",
    "hotkeys",
    "hotkeys|get",
    "hotkeys|help",
    "hotkeys|reset",
    "hotkeys|start",
    "hotkeys|stop",
];

fn answer(request: &str, protocol: Protocol) -> Result<Vec<u8>, String> {
    let args: Vec<&str> = request.split(' ').collect();
    let mut out = Vec::new();
    let answered = spec::resolve(&args[..])
        .and_then(|spec| reply(&mut out, protocol, spec.cmd, &args[..]))
        .map_err(|error| error.to_string());
    assert!(
        answered.is_ok() || out.is_empty(),
        "an error leaves nothing behind"
    );
    answered.map(|()| out)
}

fn decoded(request: &str, protocol: Protocol) -> Value {
    let bytes = answer(request, protocol).expect(request);
    let (value, len) = decode(&bytes).expect("valid").expect("complete");
    assert_eq!(len, bytes.len(), "{request}");
    value
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("not a list: {other:?}"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Simple(text) => text.clone(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Integer(number) => number.to_string(),
        other => panic!("not a scalar: {other:?}"),
    }
}

fn joined(value: &Value) -> String {
    let texts: Vec<String> = items(value).iter().map(text).collect();
    if texts.is_empty() {
        "-".to_owned()
    } else {
        texts.join(",")
    }
}

/// The value under `name` in a map that RESP2 spells as a flat list.
fn get<'a>(map: &'a Value, name: &str) -> &'a Value {
    let pairs = items(map).chunks(2);
    &pairs
        .into_iter()
        .find(|pair| text(&pair[0]) == name)
        .expect(name)[1]
}

fn key_specification_line(keys: &Value) -> String {
    let begin = get(keys, "begin_search");
    if text(get(begin, "type")) == "unknown" {
        let flags = joined(get(keys, "flags")).replace(',', "+");
        return format!("{flags}@unknown");
    }
    if text(get(begin, "type")) == "keyword" {
        let flags = joined(get(keys, "flags")).replace(',', "+");
        let spec = get(begin, "spec");
        let (word, from) = (text(get(spec, "keyword")), text(get(spec, "startfrom")));
        return format!("{flags}@{word}{from}");
    }
    if text(get(get(keys, "find_keys"), "type")) == "keynum" {
        let flags = joined(get(keys, "flags")).replace(',', "+");
        let at = text(get(get(get(keys, "begin_search"), "spec"), "index"));
        return format!("{flags}@{at},counted");
    }
    let range = get(get(keys, "find_keys"), "spec");
    format!(
        "{}@{},{},{}",
        joined(get(keys, "flags")).replace(',', "+"),
        text(get(get(get(keys, "begin_search"), "spec"), "index")),
        text(get(range, "lastkey")),
        text(get(range, "keystep")),
    )
}

fn collect_lines(entry: &Value, lines: &mut Vec<String>) {
    let fields = items(entry);
    assert_eq!(fields.len(), 10);
    let keys: Vec<String> = items(&fields[8])
        .iter()
        .map(key_specification_line)
        .collect();
    let keys = if keys.is_empty() {
        "-".to_owned()
    } else {
        keys.join(";")
    };
    lines.push(format!(
        "{} {} {} {} {} {} {} {} {keys}",
        text(&fields[0]),
        text(&fields[1]),
        joined(&fields[2]),
        text(&fields[3]),
        text(&fields[4]),
        text(&fields[5]),
        joined(&fields[6]),
        joined(&fields[7]),
    ));
    for sub in items(&fields[9]) {
        collect_lines(sub, lines);
    }
}

#[test]
fn the_table_says_what_redis_says() {
    let mut lines = Vec::new();
    for entry in items(&decoded("command", Protocol::Resp2)) {
        collect_lines(entry, &mut lines);
    }
    lines.retain(|line| !NEWER.iter().any(|name| line.starts_with(name)));
    lines.sort();
    let redis: Vec<&str> = REDIS.lines().collect();
    assert_eq!(lines, redis);
}

#[test]
fn info_is_byte_for_byte_that_of_redis() {
    let resp2 = "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*3\r\n\
        +@read\r\n+@string\r\n+@fast\r\n*0\r\n*1\r\n*6\r\n$5\r\nflags\r\n*2\r\n+RO\r\n+access\r\n\
        $12\r\nbegin_search\r\n*4\r\n$4\r\ntype\r\n$5\r\nindex\r\n$4\r\nspec\r\n*2\r\n$5\r\nindex\r\n\
        :1\r\n$9\r\nfind_keys\r\n*4\r\n$4\r\ntype\r\n$5\r\nrange\r\n$4\r\nspec\r\n*6\r\n$7\r\nlastkey\
        \r\n:0\r\n$7\r\nkeystep\r\n:1\r\n$5\r\nlimit\r\n:0\r\n*0\r\n$-1\r\n";
    let resp3 = "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n~2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n~3\r\n\
        +@read\r\n+@string\r\n+@fast\r\n~0\r\n~1\r\n%3\r\n$5\r\nflags\r\n~2\r\n+RO\r\n+access\r\n\
        $12\r\nbegin_search\r\n%2\r\n$4\r\ntype\r\n$5\r\nindex\r\n$4\r\nspec\r\n%1\r\n$5\r\nindex\r\n\
        :1\r\n$9\r\nfind_keys\r\n%2\r\n$4\r\ntype\r\n$5\r\nrange\r\n$4\r\nspec\r\n%3\r\n$7\r\nlastkey\
        \r\n:0\r\n$7\r\nkeystep\r\n:1\r\n$5\r\nlimit\r\n:0\r\n~0\r\n_\r\n";
    let request = "command info GET nope";
    assert_eq!(
        answer(request, Protocol::Resp2).as_deref(),
        Ok(resp2.as_bytes())
    );
    assert_eq!(
        answer(request, Protocol::Resp3).as_deref(),
        Ok(resp3.as_bytes())
    );
}

#[test]
fn subcommands_can_be_asked_for_by_their_full_name() {
    let resp3 = "*2\r\n*10\r\n$9\r\nclient|id\r\n:2\r\n~3\r\n+noscript\r\n+loading\r\n+stale\r\n:0\r\n\
        :0\r\n:0\r\n~2\r\n+@slow\r\n+@connection\r\n~0\r\n~0\r\n~0\r\n_\r\n";
    let answered = answer("command info client|ID client|nope", Protocol::Resp3);
    assert_eq!(answered.as_deref(), Ok(resp3.as_bytes()));
}

#[test]
fn all_forms_of_the_full_list_agree() {
    let all = decoded("command", Protocol::Resp3);
    assert_eq!(decoded("command info", Protocol::Resp3), all);
    let count = decoded("command count", Protocol::Resp2);
    assert_eq!(count, Value::Integer(items(&all).len() as i64));
    let names = items(&decoded("command list", Protocol::Resp2)).len();
    assert_eq!(names, Cmd::COUNT);
}

#[test]
fn docs_are_maps_and_leave_unknown_names_out() {
    let resp3 = "%1\r\n$4\r\nquit\r\n%4\r\n$7\r\nsummary\r\n$21\r\nCloses the connection\r\n$5\r\nsince\
        \r\n$5\r\n1.0.0\r\n$5\r\ngroup\r\n$10\r\nconnection\r\n$10\r\ncomplexity\r\n$4\r\nO(1)\r\n";
    let answered = answer("command docs nope quit", Protocol::Resp3);
    assert_eq!(answered.as_deref(), Ok(resp3.as_bytes()));
    let resp2 = resp3.replacen("%1", "*2", 1).replacen("%4", "*8", 1);
    let answered = answer("command docs nope quit", Protocol::Resp2);
    assert_eq!(answered.as_deref(), Ok(resp2.as_bytes()));
    assert_eq!(
        answer("command docs nope", Protocol::Resp3).as_deref(),
        Ok(&b"%0\r\n"[..])
    );
    let Value::Map(all) = decoded("command docs", Protocol::Resp3) else {
        panic!("not a map")
    };
    assert_eq!(all.len(), commands().len());
    let config = decoded("command docs config", Protocol::Resp2);
    let subcommands = get(get(&config, "config"), "subcommands");
    assert_eq!(text(get(get(subcommands, "config|get"), "since")), "2.0.0");
}

#[test]
fn every_command_is_documented() {
    for spec in commands().iter().flat_map(Spec::all) {
        for text in [spec.summary, spec.since, spec.group, spec.complexity] {
            assert!(!text.is_empty(), "{}", spec.name);
        }
    }
}

#[test]
fn lists_are_filtered() {
    let names = |request| joined(&decoded(request, Protocol::Resp2));
    assert_eq!(
        names("command list filterby pattern CONFIG|GE*"),
        "config|get"
    );
    assert_eq!(
        names("command list FILTERBY PATTERN get*"),
        "get,getset,getdel,getex,getrange,getbit"
    );
    assert_eq!(names("command list filterby aclcat foo"), "-");
    assert_eq!(names("command list filterby module x"), "-");
    assert_eq!(
        names("command list filterby aclcat DANGEROUS"),
        "sort,sort_ro,restore,migrate,keys,flushall,flushdb,swapdb,role,replicaof,slaveof,failover,lastsave,save,bgsave,bgrewriteaof,shutdown,monitor,debug,info,\
         client|list,client|kill,client|pause,client|unpause,client|no-evict,client|unblock,config|get,config|set,\
         config|resetstat,config|rewrite,acl|deluser,acl|dryrun,acl|getuser,acl|list,acl|load,acl|log,\
         acl|save,acl|setuser,acl|users,\
         slowlog|get,slowlog|len,slowlog|reset,hotkeys|start,hotkeys|stop,hotkeys|get,hotkeys|reset,latency|histogram,latency|latest,latency|history,latency|reset,\
         latency|doctor,latency|graph,module|list,module|load,module|loadex,module|unload,cluster|migrateslots,cluster|getslotmigrations,cluster|cancelslotmigrations"
    );
    for request in [
        "command list filterby",
        "command list filterby foo bar",
        "command list filterby pattern",
        "command list x pattern y",
    ] {
        assert_eq!(
            answer(request, Protocol::Resp2),
            Err("ERR syntax error".to_owned())
        );
    }
}

#[test]
fn keys_of_commands() {
    let keys = |request: &str| {
        answer(&format!("command getkeys {request}"), Protocol::Resp2)
            .map(|bytes| joined(&decode(&bytes).expect("valid").expect("complete").0))
    };
    for (request, expected) in [
        ("get a", "a"),
        ("mset a b c", "a,c"),
        ("mset a b c d", "a,c"),
        ("rename a b", "a,b"),
        ("del a b c", "a,b,c"),
        ("sort a by store store b", "a,b"),
        ("sort_ro a limit 0 1", "a"),
    ] {
        assert_eq!(keys(request).as_deref(), Ok(expected), "{request}");
    }
    for (request, error) in [
        (
            "get",
            "ERR wrong number of arguments for 'command|getkeys' command",
        ),
        (
            "ping",
            "ERR wrong number of arguments for 'command|getkeys' command",
        ),
        ("foo a", "ERR Invalid command specified"),
        ("client foo", "ERR Invalid command specified"),
        ("client id", "ERR The command has no key arguments"),
        ("ping x y", "ERR The command has no key arguments"),
        (
            "cluster keyslot foo",
            "ERR The command has no key arguments",
        ),
        (
            "set a",
            "ERR Invalid number of arguments specified for command",
        ),
    ] {
        assert_eq!(keys(request), Err(error.to_owned()), "{request}");
    }
}

#[test]
fn keys_and_flags_of_commands() {
    let keys = |request: &str| {
        let value = decoded(
            &format!("command getkeysandflags {request}"),
            Protocol::Resp2,
        );
        let pairs = items(&value).iter();
        let pairs =
            pairs.map(|pair| format!("{}:{}", text(&items(pair)[0]), joined(&items(pair)[1])));
        pairs.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys("set a b"), "a:OW,update");
    assert_eq!(keys("set a b xx"), "a:OW,update");
    assert_eq!(keys("set a b GET"), "a:RW,access,update");
    assert_eq!(keys("rename a b"), "a:RW,access,delete b:OW,update");
    assert_eq!(keys("del a b"), "a:RM,delete b:RM,delete");
    assert_eq!(keys("exists a b"), "a:RO b:RO");
    assert_eq!(keys("sort a store b"), "a:RO,access b:OW,update");
    assert_eq!(
        answer("command getkeysandflags get a", Protocol::Resp3).as_deref(),
        Ok(&b"*1\r\n*2\r\n$1\r\na\r\n~2\r\n+RO\r\n+access\r\n"[..])
    );
}

proptest! {
    #[test]
    fn any_inner_command_is_answered_or_refused(
        sub in 0usize..5,
        words in proptest::collection::vec(
            prop_oneof![
                proptest::sample::select(vec!["get", "set", "mset", "rename", "client", "id", "del"])
                    .prop_map(|word| word.as_bytes().to_vec()),
                proptest::collection::vec(any::<u8>(), 0..6),
            ],
            0..6,
        ),
    ) {
        let sub = ["getkeys", "getkeysandflags", "info", "docs", "list"][sub];
        let mut args = vec![b"command".to_vec(), sub.as_bytes().to_vec()];
        args.extend(words);
        let mut out = Vec::new();
        if let Ok(spec) = spec::resolve(&args[..])
            && reply(&mut out, Protocol::Resp3, spec.cmd, &args[..]).is_ok()
        {
            let len = decode(&out).ok().flatten().map(|(_, len)| len);
            prop_assert_eq!(len, Some(out.len()));
        }
    }
}

#[test]
fn names_that_are_repeated_make_no_reply_of_any_length() {
    for subcommand in ["info", "docs"] {
        let mut args = vec!["command", subcommand];
        let mut out = b"before".to_vec();
        let mut reply_to = |names: usize| {
            args.resize(2 + names, "cluster");
            let spec = spec::resolve(&args[..]).expect("a command");
            reply(&mut out, Protocol::Resp2, spec.cmd, &args[..])
        };
        let error = Err(ClientError::TooManyNames(NAMES_MAX));
        assert_eq!(reply_to(NAMES_MAX + 1), error);
        assert_eq!(reply_to(NAMES_MAX), Ok(()));
        assert!(out.starts_with(b"before*"));
        assert!(out.len() < 8 << 20, "{} bytes", out.len());
    }
}

#[test]
fn bitfield_writes_only_if_it_is_told_to() {
    for (request, writes) in [
        ("bitfield a", false),
        ("bitfield a get u8 0", false),
        ("bitfield a GET u8 0 overflow fail Get u4 #1", false),
        ("bitfield a get u8 0 set u8 0 1", true),
        ("bitfield a incrby u8 0 1", true),
        ("bitfield a get u8", true),
        ("bitfield a other", true),
    ] {
        let args: Vec<&str> = request.split(' ').collect();
        let access = key_access(Cmd::Bitfield.spec(), &args[..], 1);
        assert!(access.reads, "{request}");
        assert_eq!(access.writes, writes, "{request}");
    }
}
