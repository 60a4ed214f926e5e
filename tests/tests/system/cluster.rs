//! The views a cluster client may take of the node: all of them, from every port, say the same.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_tests::slots::{SLOTS, slot};
use ephesus_tests::{Client, Node, Options, Reply};

/// Who owns which range: (first, last, port, id).
type View = BTreeSet<(i64, i64, i64, String)>;

fn by_slots(client: &mut Client) -> View {
    let ranges = client.say("CLUSTER SLOTS").items();
    ranges
        .iter()
        .map(|range| {
            let range = range.items();
            let owner = range[2].items();
            assert_eq!(owner[0].text(), "127.0.0.1");
            (
                range[0].integer(),
                range[1].integer(),
                owner[1].integer(),
                owner[2].text(),
            )
        })
        .collect()
}

fn by_shards(client: &mut Client) -> View {
    let mut view = View::new();
    for shard in client.say("CLUSTER SHARDS").items() {
        let nodes = shard.field("nodes").expect("nodes").items();
        let owner = &nodes[0];
        assert_eq!(owner.field("role"), Some(Reply::bulk("master")));
        assert_eq!(owner.field("health"), Some(Reply::bulk("online")));
        let port = owner.field("port").expect("port").integer();
        let id = owner.field("id").expect("id").text();
        for range in shard.field("slots").expect("slots").items().chunks(2) {
            view.insert((range[0].integer(), range[1].integer(), port, id.clone()));
        }
    }
    view
}

/// The view, and the id of the line marked `myself`.
fn by_nodes(client: &mut Client) -> (View, String) {
    let mut view = View::new();
    let mut myself = Vec::new();
    for line in client.say("CLUSTER NODES").text().trim_end().lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        assert!(fields.len() >= 8, "a CLUSTER NODES line: {line}");
        let (address, peer) = fields[1].split_once('@').expect("host:port@cport");
        assert!(
            peer.split(',')
                .next()
                .expect("a cport")
                .parse::<u16>()
                .is_ok(),
            "{line}"
        );
        let port = address
            .rsplit_once(':')
            .expect("host:port")
            .1
            .parse()
            .expect("a port");
        let flags: Vec<&str> = fields[2].split(',').collect();
        assert!(flags.contains(&"master"), "{line}");
        if flags.contains(&"myself") {
            myself.push(fields[0].to_owned());
        }
        assert_eq!(fields[3], "-", "the master of a primary: {line}");
        assert_eq!(fields[7], "connected", "{line}");
        for range in &fields[8..] {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (
                first.parse().expect("a slot"),
                last.parse().expect("a slot"),
            );
            view.insert((first, last, port, fields[0].to_owned()));
        }
    }
    assert_eq!(myself.len(), 1, "exactly one line says myself");
    (view, myself.remove(0))
}

fn assert_covers_every_slot_once(view: &View) {
    let mut next = 0;
    for (first, last, ..) in view {
        assert_eq!(
            *first, next,
            "a hole or an overlap at slot {next}: {view:?}"
        );
        assert!(first <= last);
        next = last + 1;
    }
    assert_eq!(next, i64::from(SLOTS));
}

#[test]
fn all_views_from_all_ports_agree_and_stay() {
    for (shards, partitions) in [(1, 1), (2, 64), (3, 1024), (4, 7)] {
        let options = Options {
            shards,
            partitions: Some(partitions),
            ..Options::default()
        };
        let mut node = Node::start(options);
        let view = by_slots(&mut node.client());
        assert_covers_every_slot_once(&view);
        let ids: BTreeSet<&String> = view.iter().map(|(.., id)| id).collect();
        let ports: BTreeSet<i64> = view.iter().map(|(_, _, port, _)| *port).collect();
        assert_eq!(ids.len(), ports.len());
        for id in ids {
            assert_eq!(id.len(), 40, "an id of 40 hex digits: {id:?}");
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id:?}");
        }
        for shard in 0..shards {
            let mut direct = node.direct_client(shard);
            assert_eq!(by_slots(&mut direct), view);
            assert_eq!(by_shards(&mut direct), view);
            let (nodes, myself) = by_nodes(&mut direct);
            assert_eq!(nodes, view);
            assert_eq!(direct.say("CLUSTER MYID").text(), myself);
            let own: BTreeSet<i64> = view
                .iter()
                .filter(|(.., id)| *id == myself)
                .map(|(_, _, port, _)| *port)
                .collect();
            assert!(
                own.iter()
                    .all(|port| *port == i64::from(node.direct_port(shard)))
            );
        }
        assert_eq!(by_shards(&mut node.client()), view);
        assert_eq!(by_nodes(&mut node.client()).0, view);
        let info = node.client().say("CLUSTER INFO").text();
        for line in [
            "cluster_state:ok",
            "cluster_slots_assigned:16384",
            "cluster_slots_ok:16384",
        ] {
            assert!(info.contains(line), "CLUSTER INFO lacks {line}:\n{info}");
        }
        node.kill();
        node.restart();
        assert_eq!(
            by_slots(&mut node.client()),
            view,
            "ids and ranges survive a restart"
        );
    }
}

#[test]
fn a_direct_port_serves_its_slots_and_names_the_owner_of_the_others() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let view = by_slots(&mut node.client());
    let owner = |slot: u16| {
        let slot = i64::from(slot);
        let found = view
            .iter()
            .find(|(first, last, ..)| (*first..=*last).contains(&slot));
        found.expect("an owner").2 as u16
    };
    let mut direct: BTreeMap<u16, Client> = (0..3)
        .map(|shard| (node.direct_port(shard), node.direct_client(shard)))
        .collect();
    let mut moved = 0;
    for i in 0..300 {
        let key = format!("key:{i}");
        let slot = slot(key.as_bytes());
        for (port, client) in &mut direct {
            let reply = client.call(&["SET", &key, "x"]);
            if *port == owner(slot) {
                assert_eq!(reply, Reply::ok());
            } else {
                moved += 1;
                let expected = format!("MOVED {slot} 127.0.0.1:{}", owner(slot));
                assert_eq!(reply, Reply::Error(expected));
            }
        }
        assert_eq!(
            node.client()
                .say(&format!("CLUSTER KEYSLOT {key}"))
                .integer(),
            i64::from(slot)
        );
    }
    assert_eq!(moved, 600);
    let per_shard: i64 = direct
        .values_mut()
        .map(|client| client.say("DBSIZE").integer())
        .sum();
    assert_eq!(per_shard, 300);
    assert_eq!(node.client().say("DBSIZE"), Reply::Integer(300));
}

#[test]
fn keys_in_a_slot_are_counted_and_listed() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    for i in 0..50 {
        client.call(&["SET", &format!("{{same}}{i}"), "x"]);
    }
    let slot = slot(b"{same}");
    let port = by_slots(&mut client)
        .iter()
        .find(|(first, last, ..)| (*first..=*last).contains(&i64::from(slot)))
        .expect("an owner")
        .2;
    let mut owner = Client::connect(port as u16).expect("connect to the owner");
    assert_eq!(
        owner.say(&format!("CLUSTER COUNTKEYSINSLOT {slot}")),
        Reply::Integer(50)
    );
    let keys = owner
        .say(&format!("CLUSTER GETKEYSINSLOT {slot} 100"))
        .items();
    let distinct: BTreeSet<String> = keys.iter().map(Reply::text).collect();
    assert_eq!(distinct.len(), 50);
    assert_eq!(
        owner
            .say(&format!("CLUSTER GETKEYSINSLOT {slot} 7"))
            .items()
            .len(),
        7
    );
}
