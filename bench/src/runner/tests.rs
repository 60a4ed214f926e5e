use clap::Parser;

use crate::server::Durability;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    servers: ServerArgs,
    #[command(flatten)]
    load: LoadArgs,
}

#[test]
fn every_round_begins_with_another_one() {
    let mut order = Vec::new();
    let each = |round, one: &char| {
        order.push(format!("{round}{one}"));
        Ok(())
    };
    rounds(4, &['a', 'b', 'c'], each).expect("rounds");
    let words = "0a 0b 0c 1b 1c 1a 2c 2a 2b 3a 3b 3c";
    assert_eq!(order.join(" "), words);
    rounds(2, &[], |_, _: &char| panic!("nobody")).expect("no rounds");
}

#[test]
fn what_is_named_is_started_and_everything_else_is_an_address() {
    for (name, is_started, scales) in [
        ("redis", true, false),
        ("valkey=/bin/valkey-server", true, false),
        ("valkey-cluster", true, true),
        ("ephesus=target/debug/ephesus", true, true),
        ("127.0.0.1:6379", false, false),
        ("somewhere", false, false),
    ] {
        let one = Contestant::from(name);
        assert_eq!(
            (one.is_started(), one.scales()),
            (is_started, scales),
            "{name}"
        );
    }
}

#[test]
fn a_cluster_with_a_server_for_each_cpu_has_every_key_once() {
    let Line { servers, load } = Line::parse_from("x --keys 500 --count 2000".split(' '));
    let mut cpus = affinity::allowed().expect("CPUs");
    cpus.truncate(2);
    let count = cpus.len();
    let setup = Setup {
        durability: Durability::EverySecond,
        cpus,
        client_cpus: Vec::new(),
    };
    let dir = tempfile::tempdir().expect("dir");
    let one = Contestant::from("valkey-cluster=/usr/bin/redis-server");
    let mut driven = servers.start(&one, &setup, dir.path()).expect("a cluster");
    driven.plan = load.plan(driven.plan).expect("a plan");
    load.fill(&driven).expect("keys");
    assert_eq!(driven.servers.len(), count);
    let keys = |server: &crate::server::Server| server.connect()?.integer(&["DBSIZE"]);
    let held: Vec<u64> = driven
        .servers
        .iter()
        .map(keys)
        .collect::<Result<_>>()
        .expect("sizes");
    assert_eq!(held.iter().sum::<u64>(), 500);
    assert!(
        held.iter().all(|keys| *keys > 500 / count as u64 / 2),
        "{held:?}"
    );
    let (mut outcome, _) = drive(&driven.plan, load.span()).expect("a load");
    outcome.judge().expect("no errors");
    assert_eq!((outcome.sent, outcome.run.misses), (2000, 0));
}
