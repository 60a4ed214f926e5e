//! Keys that expire, and the commands that say when.

use std::time::Duration;

use super::{Pair, Port};
use ephesus_tests::{Node, Options, Reply};

#[test]
fn expired_keys_are_gone_for_every_command() {
    let mut pair = Pair::new(Port::Direct, 2);
    for i in 0..20 {
        pair.same(&["SET", &format!("{{t}}short{i}"), "1", "PX", "80"]);
        pair.same(&["SET", &format!("{{t}}long{i}"), "1", "EX", "1000"]);
    }
    std::thread::sleep(Duration::from_millis(200));
    for line in [
        "GET {t}short0",
        "MGET {t}short1 {t}long1",
        "EXISTS {t}short2 {t}long2",
        "TTL {t}short3",
        "PTTL {t}short3",
        "TYPE {t}short4",
        "STRLEN {t}short5",
        "DEL {t}short6",
        "GETDEL {t}short7",
        "PERSIST {t}short8",
        "EXPIRE {t}short9 100",
        "RENAME {t}short10 {t}x",
        "SETNX {t}short11 new",
        "SET {t}short12 new XX",
        "SET {t}short13 new NX",
        "SET {t}short14 new GET",
        "INCR {t}short15",
        "TTL {t}short15",
        "APPEND {t}short16 x",
        "TTL {t}short16",
        "GETSET {t}short17 x",
        "SET {t}short18 x KEEPTTL",
        "TTL {t}short18",
        "UNLINK {t}short19",
    ] {
        pair.same_line(line);
    }
    pair.same_unordered(&["KEYS", "*"]);
    pair.same(&["DBSIZE"]);
}

#[test]
fn expired_keys_leave_without_being_touched() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    for i in 0..2000 {
        client.call(&["SET", &format!("short{i}"), "1", "PX", "100"]);
    }
    client.say("SET stays 1");
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while client.say("DBSIZE") != Reply::Integer(1) {
        assert!(
            std::time::Instant::now() < deadline,
            "DBSIZE is {:?}",
            client.say("DBSIZE")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_keeps_and_what_drops_a_ttl_is_as_in_redis() {
    let mut pair = Pair::new(Port::Direct, 2);
    for line in [
        "SET {t}k 1",
        "INCR {t}k",
        "INCRBY {t}k 5",
        "APPEND {t}k 0",
        "GETSET {t}k 1",
        "SETNX {t}k 1",
        "MSET {t}k 1 {t}other 2",
        "RENAME {t}k {t}moved",
        "RENAME {t}other {t}k",
        "PERSIST {t}k",
        "SETEX {t}k 50 v",
        "SET {t}k v KEEPTTL",
        "SET {t}k v",
    ] {
        pair.same_line("SET {t}other x");
        pair.same_line("SET {t}k 1 EX 5000");
        pair.same_line(line);
        for key in ["{t}k", "{t}moved", "{t}other"] {
            pair.close(&["TTL", key], 3);
            pair.close(&["PTTL", key], 3000);
        }
    }
}

#[test]
fn conditions_of_expire_are_as_in_redis() {
    let mut pair = Pair::new(Port::Direct, 2);
    for before in ["SET k v", "SET k v EX 1000", "DEL k"] {
        for condition in [
            "NX", "XX", "GT", "LT", "XX GT", "XX LT", "NX XX", "NX GT", "GT LT", "nx", "BAD",
        ] {
            for (command, seconds) in [
                ("EXPIRE", 500),
                ("EXPIRE", 2000),
                ("PEXPIRE", 500_000),
                ("PEXPIRE", 2_000_000),
            ] {
                pair.same_line(before);
                pair.same_line(&format!("{command} k {seconds} {condition}"));
                pair.close(&["TTL", "k"], 3);
            }
        }
    }
}

#[test]
fn a_ttl_goes_on_through_a_kill() {
    let mut node = Node::start(Options::default());
    let mut client = node.client();
    client.say("SET gone 1 PX 300");
    client.say("SET long 1 PX 600000");
    client.say("SET renewed 1 EX 1");
    client.say("PERSIST renewed");
    node.kill();
    std::thread::sleep(Duration::from_millis(400));
    node.restart();
    let mut client = node.client();
    assert!(client.say("GET gone").is_nil());
    assert_eq!(client.say("TTL renewed"), Reply::Integer(-1));
    let left = client.say("PTTL long").integer();
    assert!((500_000..600_000).contains(&left), "PTTL is {left}");
}
