//! Nine partitions over athens, byzantium and cyrene, as clients see them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use ephesus_tests::roaming::moved;
use ephesus_tests::slots::slot;
use ephesus_tests::whole::{count, covers, info, listed};
use ephesus_tests::{Client, Reply, TestCluster, paths};
use redis::Commands;

use super::{NAMES, NINE, assert_complete, check, fill, is_down, key_of, row_of};

/// Keys that stock clients write and read.
const KEYS: usize = 10_000;

#[test]
fn nine_partitions_wait_for_three_nodes_and_alternate_between_them() {
    let mut whole = TestCluster::founded(&[&NINE[..], &["--min-nodes", "3"]].concat());
    for name in &NAMES[..2] {
        whole.add(name, 2).restart();
    }
    let told = whole.core.ask(&["status"]);
    told.assert(1, &["not healthy: not enough nodes, 2 of 3"]);
    for node in &whole.nodes {
        let mut client = node.client();
        assert_eq!(client.say("PING"), Reply::Simple("PONG".into()));
        for line in ["GET a", "SET a 1", "MGET {a}1 {a}2", "DEL a"] {
            let reply = client.say(line);
            assert!(is_down(&reply), "{line}: {reply:?}");
        }
        assert_eq!(info(&mut client, "cluster_state"), "fail");
        assert_eq!(info(&mut client, "cluster_slots_assigned"), "0");
    }

    whole.add(NAMES[2], 2).restart();
    whole.until_healthy();
    whole.core.ask(&["status"]).assert(0, &[]);
    let table = whole.table();
    assert_complete(&table);
    assert_eq!(table.len(), 9);
    let first: BTreeSet<&str> = table[..3].iter().map(|row| row.node.as_str()).collect();
    assert_eq!(first, BTreeSet::from(NAMES), "each in turn: {table:?}");
    for (index, row) in table.iter().enumerate() {
        assert_eq!(row.node, table[index % 3].node, "in the same order again");
        assert_eq!(row.status, "online");
    }
    assert_views_agree(&whole);
    assert_entry_port_serves_its_node(&whole);
    let mut client = whole.client();
    fill(&mut client, 0..300);
    check(&mut client, 0..300);
    assert!(client.moved > 0, "it has been sent to other nodes");
}

/// Every port of every node lists the same shards, which have all slots of the table.
fn assert_views_agree(whole: &TestCluster) {
    let table = whole.table();
    // A table reaches every node within 100 ms; the coordinators may be ahead for that long.
    whole.within(super::SERVES_WITHIN, "every node has the table", |whole| {
        let mut nodes = whole.nodes.iter();
        nodes.all(|node| info(&mut node.client(), "cluster_slots_assigned") == "16384")
    });
    let mut views = BTreeSet::new();
    let mut slots = BTreeSet::new();
    let mut ports = BTreeMap::new();
    for node in &whole.nodes {
        let name = node.options.name.as_deref().expect("a name");
        let direct = (0..node.options.shards).map(|shard| {
            let port = node.direct_port(shard);
            ports.insert(format!("127.0.0.1:{port}"), (name, shard));
            port
        });
        for port in direct.chain([node.port()]).collect::<Vec<_>>() {
            let mut client = Client::connect(port).expect("connect");
            let (view, myself) = listed(&mut client);
            assert_eq!(myself, 1, "port {port}");
            views.insert(view);
            slots.insert(format!("{:?}", sorted_slots(&mut client)));
            assert_eq!(info(&mut client, "cluster_state"), "ok");
            assert_eq!(info(&mut client, "cluster_known_nodes"), "6");
        }
    }
    assert_eq!(slots.len(), 1, "CLUSTER SLOTS: {slots:#?}");
    assert_eq!(views.len(), 1, "CLUSTER NODES: {views:#?}");
    let view = views.pop_first().expect("one");
    assert_eq!(view.len(), 6, "every shard of every node");
    for line in &view {
        assert_eq!((&*line.flags, &*line.link), ("master", "connected"));
        let (name, shard) = ports[&line.address];
        let own = table
            .iter()
            .filter(|row| (&*row.node, row.shard) == (name, shard));
        let own: Vec<(u16, u16)> = own.map(|row| row.slots).collect();
        assert_eq!(count(&line.slots), count(&own), "{line:?}");
        assert!(own.iter().all(|&(first, _)| covers(&line.slots, first)));
    }
}

fn sorted_slots(client: &mut Client) -> Vec<(i64, i64, String, i64, String)> {
    let ranges = client.say("CLUSTER SLOTS").items();
    let mut all: Vec<_> = ranges
        .iter()
        .map(|range| {
            let range = range.items();
            let owner = range[2].items();
            let (first, last) = (range[0].integer(), range[1].integer());
            (
                first,
                last,
                owner[0].text(),
                owner[1].integer(),
                owner[2].text(),
            )
        })
        .collect();
    all.sort();
    all
}

/// Keys of the node over all of its shards, but no other's.
fn assert_entry_port_serves_its_node(whole: &TestCluster) {
    let table = whole.table();
    for node in &whole.nodes {
        let name = node.options.name.as_deref().expect("a name");
        let other = NAMES.into_iter().find(|other| *other != name).expect("one");
        let mut client = node.client();
        let own: Vec<String> = (0..20).map(|salt| key_of(&table, name, salt)).collect();
        let shards: BTreeSet<u16> = own.iter().map(|key| row_of(&table, key).shard).collect();
        assert!(shards.len() > 1 || table.iter().filter(|row| row.node == name).count() < 2);
        let mut words = vec!["MSET".to_owned()];
        own.iter()
            .for_each(|key| words.extend([key.clone(), name.to_owned()]));
        assert_eq!(client.call(&words), Reply::ok());
        let mut words = vec!["MGET".to_owned()];
        words.extend(own.iter().cloned());
        assert_eq!(client.call(&words).items(), vec![Reply::bulk(name); 20]);

        let foreign = key_of(&table, other, 0);
        let row = row_of(&table, &foreign);
        let owner = whole
            .nodes
            .iter()
            .find(|node| node.options.name.as_deref() == Some(other));
        let port = owner.expect("the owner").direct_port(row.shard);
        let expected = format!("MOVED {} 127.0.0.1:{port}", slot(foreign.as_bytes()));
        assert_eq!(client.call(&["GET", &foreign]), Reply::Error(expected));
        let crossing = client.call(&["MGET", &own[0], &foreign]);
        assert!(
            crossing
                .error()
                .is_some_and(|text| text.starts_with("CROSSSLOT")),
            "{crossing:?}"
        );
        // One slot may be asked for as a whole, wherever it is.
        let tagged = [format!("{{{foreign}}}a"), format!("{{{foreign}}}b")];
        let reply = client.call(&["MGET", &tagged[0], &tagged[1]]);
        assert_eq!(
            moved(&reply).map(|address| address.port()),
            Some(port),
            "{reply:?}"
        );
        let far: Vec<String> = (0..50).map(|salt| key_of(&table, other, salt)).collect();
        let far = far
            .iter()
            .find(|key| slot(key.as_bytes()) != slot(foreign.as_bytes()));
        let reply = client.call(&["MGET", &foreign, far.expect("another slot")]);
        assert!(
            reply
                .error()
                .is_some_and(|text| text.starts_with("CROSSSLOT")),
            "{reply:?}"
        );
    }
}

#[test]
fn stock_cluster_clients_reach_every_key() {
    let whole = TestCluster::started(&NINE, &NAMES, 2);
    let output = Command::new(paths::python())
        .arg(paths::workspace().join("tests/python/whole_cluster.py"))
        .arg(KEYS.to_string())
        .args(whole.nodes.iter().map(|node| node.port().to_string()))
        .output()
        .expect("start python");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "redis-py: {text}");

    let urls = whole
        .nodes
        .iter()
        .map(|node| format!("redis://127.0.0.1:{}/", node.port()));
    let client = redis::cluster::ClusterClient::new(urls.collect::<Vec<_>>()).expect("a client");
    let mut connection = client.get_connection().expect("a connection");
    for i in 0..KEYS {
        let _: () = connection.set(format!("rs:{i}"), i).expect("set");
    }
    for i in 0..KEYS {
        assert_eq!(
            connection.get::<_, usize>(format!("rs:{i}")).expect("get"),
            i
        );
    }

    paths::require("redis-benchmark");
    let port = whole.nodes[0].port().to_string();
    let flags = "-t set,get,incr -n 30000 -r 10000 -P 16 -q";
    let output = Command::new("timeout")
        .args(["60", "redis-benchmark", "--cluster", "-p", &port])
        .args(flags.split(' '))
        .output()
        .expect("start redis-benchmark");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "redis-benchmark: {text}");
    for word in ["Cluster has 6 master nodes", "SET", "GET", "INCR"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    assert!(!text.to_lowercase().contains("error"), "{text}");

    let mut keys = whole
        .nodes
        .iter()
        .map(|node| node.client().say("DBSIZE").integer());
    assert!(keys.all(|keys| keys > 3_000), "every node has its share");
}
