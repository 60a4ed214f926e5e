use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn resolved(request: &str) -> Result<Cmd, String> {
    let args: Vec<&str> = request.split(' ').collect();
    resolve(&args[..])
        .map(|spec| spec.cmd)
        .map_err(|error| error.to_string())
}

#[test]
fn every_command_is_found_in_any_case_and_knows_itself() {
    let mut seen = HashSet::new();
    for spec in commands() {
        for name in [
            spec.name.to_owned(),
            spec.name.to_uppercase(),
            capitalized(spec.name),
        ] {
            assert_eq!(
                lookup(name.as_bytes()).map(|found| found.cmd),
                Some(spec.cmd),
                "{name}"
            );
        }
        assert_eq!(spec.cmd.spec().name, spec.name);
        assert!(seen.insert(spec.cmd));
        for sub in &spec.subcommands {
            assert_eq!(sub.cmd.name(), sub.name);
            assert_eq!(
                lookup_full(sub.name.as_bytes()).map(|found| found.cmd),
                Some(sub.cmd)
            );
            assert!(sub.name.starts_with(&format!("{}|", spec.name)));
            assert!(seen.insert(sub.cmd));
        }
    }
    assert_eq!(seen.len(), Cmd::COUNT);
}

#[test]
fn what_the_table_says_twice_agrees() {
    for spec in commands().iter().flat_map(Spec::all) {
        let cmd = format!("{:?}", spec.cmd).to_lowercase();
        assert_eq!(cmd, spec.name.replace(['|', '-', '_'], ""));
        let has = |flag| spec.flags.contains(&flag);
        // As Redis derives categories from flags.
        assert_eq!(spec.is_in(b"write"), has("write"));
        // Nobody knows what scripts read.
        let reads = has("readonly") && spec.group != "scripting";
        assert_eq!(spec.is_in(b"read"), reads);
        // These two are among them by name.
        let is_admin = has("admin") || matches!(spec.cmd, Cmd::Role | Cmd::Lastsave);
        assert_eq!(spec.is_in(b"admin"), is_admin);
        assert!(spec.is_in(b"dangerous") || !has("admin"));
        assert_eq!(spec.is_in(b"fast"), has("fast"));
        assert_eq!(spec.is_in(b"slow"), !has("fast"));
    }
}

fn capitalized(name: &str) -> String {
    name[..1].to_uppercase() + &name[1..]
}

#[test]
fn what_is_not_in_the_table_is_unknown() {
    for name in [
        "",
        "g",
        "ge",
        "gets",
        "gett",
        "psetexx",
        "autho",
        "get|",
        "client|",
        "|",
        "readwritereadwrite",
        "g\0t",
        "client|id|x",
        "bitfield\x7fro",
        "a-very-long-command-name",
    ] {
        assert!(lookup_full(name.as_bytes()).is_none(), "{name:?}");
    }
    assert!(lookup(b"client|id").is_none());
    // Bytes that differ from a letter in bit 5 only by not being one.
    assert!(lookup(b"\x07et").is_none());
}

#[test]
fn requests_resolve_to_subcommands_and_check_the_argument_count() {
    assert_eq!(resolved("GeT k"), Ok(Cmd::Get));
    assert_eq!(resolved("CLIENT Id"), Ok(Cmd::ClientId));
    assert_eq!(resolved("COMMAND"), Ok(Cmd::Command));
    assert_eq!(
        resolved("cluster GETKEYSINSLOT 1 2"),
        Ok(Cmd::ClusterGetkeysinslot)
    );
    for (request, error) in [
        ("get", "ERR wrong number of arguments for 'get' command"),
        ("get a b", "ERR wrong number of arguments for 'get' command"),
        (
            "client",
            "ERR wrong number of arguments for 'client' command",
        ),
        (
            "CLIENT SetName",
            "ERR wrong number of arguments for 'client|setname' command",
        ),
        (
            "client id x",
            "ERR wrong number of arguments for 'client|id' command",
        ),
        (
            "client foo bar",
            "ERR unknown subcommand 'foo'. Try CLIENT HELP.",
        ),
        (
            "client setname|a",
            "ERR unknown subcommand 'setname|a'. Try CLIENT HELP.",
        ),
        (
            "FooBar abc def",
            "ERR unknown command 'FooBar', with args beginning with: 'abc' 'def' ",
        ),
    ] {
        assert_eq!(resolved(request), Err(error.to_owned()), "{request}");
    }
    assert!(resolve::<[&[u8]]>(&[]).is_err());
}

#[test]
fn key_indices_follow_the_table() {
    let indices = |name: &str, argc| -> Vec<usize> {
        lookup(name.as_bytes())
            .map(|spec| spec.key_indices(argc).collect())
            .unwrap_or_default()
    };
    assert_eq!(indices("get", 2), [1]);
    assert_eq!(indices("set", 7), [1]);
    assert_eq!(indices("mget", 4), [1, 2, 3]);
    assert_eq!(indices("mset", 5), [1, 3]);
    assert_eq!(indices("mset", 4), [1, 3]);
    assert_eq!(indices("rename", 3), [1, 2]);
    assert_eq!(indices("rename", 2), [1]);
    assert!(indices("del", 1).is_empty());
    assert!(indices("ping", 3).is_empty());
    assert!(indices("mget", 0).is_empty());
}

#[test]
fn writes_and_memory_hungry_commands_are_marked() {
    let denied: Vec<&str> = commands()
        .iter()
        .filter(|spec| spec.is_denied_on_oom())
        .map(|spec| spec.name)
        .collect();
    assert_eq!(
        denied,
        [
            "set",
            "setnx",
            "setex",
            "psetex",
            "getset",
            "mset",
            "msetnx",
            "append",
            "setrange",
            "setbit",
            "bitop",
            "bitfield",
            "incr",
            "decr",
            "incrby",
            "decrby",
            "incrbyfloat",
            "copy",
            "sort",
            "restore"
        ]
    );
    assert!(
        commands()
            .iter()
            .all(|spec| !spec.is_denied_on_oom() || spec.is_write())
    );
}

proptest! {
    #[test]
    fn lookup_agrees_with_a_linear_search(name in proptest::collection::vec(any::<u8>(), 0..20)) {
        prop_assert_eq!(lookup(&name).map(|spec| spec.cmd), linear(&name));
    }

    #[test]
    fn lookup_of_nearly_right_names_agrees_with_a_linear_search(
        index in 0..commands().len(), at in 0usize..9, bit in 0u8..8,
    ) {
        let mut name = commands()[index].name.as_bytes().to_vec();
        let at = at % name.len();
        name[at] ^= 1 << bit;
        prop_assert_eq!(lookup(&name).map(|spec| spec.cmd), linear(&name));
    }

    #[test]
    fn any_request_resolves_or_fails_without_panic(
        args in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..6),
    ) {
        let _ = resolve(&args[..]);
    }
}

fn linear(name: &[u8]) -> Option<Cmd> {
    commands()
        .iter()
        .find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
        .map(|spec| spec.cmd)
}

#[test]
fn lines_of_an_http_request_are_known_in_any_case() {
    for line in [
        "POST / HTTP/1.1",
        "post x",
        "Host: 127.0.0.1:7379",
        "HOST: a",
        "host:",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        assert!(resolve(&args[..]).is_err() && is_http(&args[..]), "{line}");
    }
    for line in ["GET a", "hostname: a", "postpone", "ho", "set post host:"] {
        let args: Vec<&str> = line.split(' ').collect();
        assert!(!is_http(&args[..]), "{line}");
    }
    assert!(!is_http::<[&str]>(&[]));
}
