//! Valkey's commands that move slots, as its tools send them.

use std::collections::BTreeMap;
use std::time::Duration;

use ephesus_tests::slots::slot;
use ephesus_tests::whole::{covers, listed};
use ephesus_tests::{Client, Reply, TestCluster};

use super::SERVES_WITHIN;

/// How long moves of small partitions may take.
const MOVED_WITHIN: Duration = Duration::from_secs(20);

const KEYS: u64 = 2_000;

/// A stopped node does not fail while the test looks at what goes to it.
const FLAGS: [&str; 4] = ["--partitions", "4", "--heartbeat-timeout", "60000"];

const MIGRATE: [&str; 3] = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"];

/// The maps of CLUSTER GETSLOTMIGRATIONS.
fn migrations(client: &mut Client) -> Vec<BTreeMap<String, Reply>> {
    let reply = client.say("CLUSTER GETSLOTMIGRATIONS");
    let entries = reply.items();
    let map = |entry: &Reply| {
        let fields = entry.items();
        assert_eq!(fields.len(), 24, "{entry:?}");
        let pairs = fields.chunks(2);
        pairs
            .map(|pair| (pair[0].text(), pair[1].clone()))
            .collect()
    };
    entries.iter().map(map).collect()
}

fn assert_error(reply: &Reply, expected: &str) {
    assert_eq!(*reply, Reply::Error(format!("ERR {expected}")));
}

#[test]
fn slots_are_moved_by_valkeys_commands_and_by_whole_partitions_only() {
    let mut whole = TestCluster::started(&FLAGS, &["athens", "byzantium"], 1);
    let athens = whole.node("athens");
    let (mut direct, mut entry) = (athens.direct_client(0), athens.client());
    let own = direct.say("CLUSTER MYID").text();
    let (view, _) = listed(&mut direct);
    let other = view.iter().find(|line| line.id != own).expect("byzantium");
    let slots = &view
        .iter()
        .find(|line| line.id == own)
        .expect("athens")
        .slots;
    // Half of four partitions, side by side.
    let (first, last) = (slots[0].0, slots[0].0 + 4095);
    let [first_text, middle, last_text] = [first, last - 1, last].map(|slot| slot.to_string());
    let foreign = other.slots[0].0.to_string();
    let migrate =
        |client: &mut Client, words: &[&str]| client.call(&[&MIGRATE[..], words].concat());
    let (own, to) = (own.as_str(), other.id.as_str());
    let own_range = [first_text.as_str(), last_text.as_str(), "NODE"];

    let unknown = "0".repeat(40);
    for client in [&mut direct, &mut entry] {
        let reply = migrate(client, &[&own_range[..], &[unknown.as_str()]].concat());
        assert_error(&reply, &format!("Unknown node name: {unknown}"));
        let reply = migrate(client, &[&own_range[..], &[own]].concat());
        assert_error(&reply, "Target node can not be this node.");
        let reply = migrate(client, &[foreign.as_str(), &foreign, "NODE", own]);
        assert_error(&reply, "Slots are not served by this node.");
        let reply = migrate(client, &[first_text.as_str(), &middle, "NODE", to]);
        let partition = first / 4096;
        assert_error(
            &reply,
            &format!(
                "Slots {first} to {last} are partition {partition} and move only together: name \
                 all of them for one node"
            ),
        );
        assert!(migrations(client).is_empty());
        let reply = client.say("CLUSTER CANCELSLOTMIGRATIONS");
        assert_error(&reply, "No migrations ongoing");
    }

    whole.node("byzantium").signal(libc::SIGSTOP);
    let words = [&own_range[..], &[to]].concat();
    assert_eq!(migrate(&mut direct, &words), Reply::ok());
    for client in [&mut direct, &mut entry] {
        let jobs = migrations(client);
        assert_eq!(jobs.len(), 1);
        for (name, value) in [
            ("operation", "EXPORT"),
            ("slot_ranges", &format!("{first}-{last}")),
            ("target_node", to),
            ("source_node", own),
        ] {
            assert_eq!(jobs[0][name], Reply::bulk(value), "{name}");
        }
        let state = jobs[0]["state"].text();
        let active = ["waiting-to-snapshot", "snapshotting"];
        assert!(active.contains(&&*state), "{state}");
        assert_eq!(jobs[0]["name"].text().len(), 40);
    }
    whole.within(SERVES_WITHIN, "the node knows of the move", |_| {
        let reply = migrate(&mut direct, &words);
        reply == Reply::Error(format!("ERR I am already migrating slot {first}."))
    });
    let report = whole.core.json("migrations");
    assert_eq!(report["migrations"][0]["to_node"], "byzantium");

    // Replies come in the order of the requests, whoever has to be asked for them.
    for line in ["CLUSTER GETSLOTMIGRATIONS", "PING", "CLUSTER MYID"] {
        let words: Vec<&str> = line.split(' ').collect();
        direct.send(&words).expect("send");
    }
    let replies = [(); 3].map(|()| direct.receive().expect("a reply"));
    assert_eq!(replies[0].items().len(), 1);
    assert_eq!(replies[1], Reply::Simple("PONG".to_owned()));
    assert_eq!(replies[2], Reply::bulk(own));

    assert_eq!(entry.say("CLUSTER CANCELSLOTMIGRATIONS"), Reply::ok());
    assert_eq!(
        migrations(&mut direct)[0]["state"],
        Reply::bulk("cancelled")
    );
    let reply = direct.say("CLUSTER CANCELSLOTMIGRATIONS");
    assert_error(&reply, "No migrations ongoing");
    whole.node("byzantium").signal(libc::SIGCONT);
    let mut there = whole.node("byzantium").client();
    let jobs = migrations(&mut there);
    assert_eq!(jobs[0]["operation"], Reply::bulk("IMPORT"));

    // Without coordinators there is an error, and no shard waits for it.
    whole.signal_coordinators(libc::SIGSTOP);
    direct
        .send(&["CLUSTER", "GETSLOTMIGRATIONS"])
        .expect("send");
    assert_eq!(entry.say("PING"), Reply::Simple("PONG".to_owned()));
    let reply = direct.receive().expect("a reply");
    assert!(
        reply
            .error()
            .is_some_and(|text| text.starts_with("ERR no coordinator")),
        "{reply:?}"
    );
    whole.signal_coordinators(libc::SIGCONT);
}

#[test]
fn slots_that_valkeys_command_has_moved_are_there_with_all_their_keys() {
    let flags = ["--partitions", "16"];
    let mut whole = TestCluster::started(&flags, &["athens", "byzantium"], 1);
    let mut clients = whole.client();
    for key in 0..KEYS {
        let key = key.to_string();
        clients.call(&["SET", &key, &format!("value of {key}")]);
    }
    let athens = whole.node("athens");
    let (mut source, mut entry) = (athens.direct_client(0), athens.client());
    let mut target = whole.node("byzantium").client();
    let own = source.say("CLUSTER MYID").text();
    let (view, _) = listed(&mut source);
    let other = view.iter().find(|line| line.id != own).expect("byzantium");
    let to = other.id.clone();
    let slots = &view
        .iter()
        .find(|line| line.id == own)
        .expect("athens")
        .slots;
    let base = slots[0].0;
    assert_eq!(slots[..], [(base, base + 8_191)], "half of the partitions");
    // Two ranges in one command, of one and of two partitions, and one range for itself.
    let moved = [(0, 1_023), (3_072, 5_119), (7_168, 8_191)];
    let moved = moved.map(|(from, to)| (base + from, base + to));
    let [one, two, three] = moved.map(|(from, to)| [from.to_string(), to.to_string()]);
    let words = [
        "SLOTSRANGE",
        &one[0],
        &one[1],
        &two[0],
        &two[1],
        "NODE",
        &to,
    ];
    let more = ["SLOTSRANGE", &three[0], &three[1], "NODE", &to];
    let words = [&["CLUSTER", "MIGRATESLOTS"][..], &words, &more].concat();
    assert_eq!(source.call(&words), Reply::ok());
    let names = |jobs: &[BTreeMap<String, Reply>]| {
        let of = |job: &BTreeMap<String, Reply>| (job["slot_ranges"].text(), job["state"].text());
        jobs.iter().map(of).collect::<BTreeMap<_, _>>()
    };
    let partitions = [0, 3, 4, 7].map(|number| base + 1_024 * number);
    let expected =
        partitions.map(|from| (format!("{from}-{}", from + 1_023), "success".to_owned()));
    let expected = BTreeMap::from(expected);
    whole.within(MOVED_WITHIN, "success at both ends", |_| {
        [&mut source, &mut entry, &mut target]
            .into_iter()
            .all(|client| names(&migrations(client)) == expected)
    });
    let jobs = migrations(&mut target);
    assert!(
        jobs.iter()
            .all(|job| job["operation"] == Reply::bulk("IMPORT"))
    );
    let is_moved = |slot| covers(&moved, slot);
    let (view, _) = listed(&mut source);
    for line in view {
        for slot in base..=base + 8_191 {
            let owns = covers(&line.slots, slot);
            assert_eq!(owns, is_moved(slot) == (line.id == to), "slot {slot}");
        }
    }
    let reply = source.say("CLUSTER CANCELSLOTMIGRATIONS");
    assert_error(&reply, "No migrations ongoing");
    let mut there = 0;
    for key in 0..KEYS {
        let key = key.to_string();
        let value = clients.call(&["GET", &key]);
        assert_eq!(value, Reply::bulk(format!("value of {key}")));
        let asked = source.call(&["GET", &key]);
        let slot = slot(key.as_bytes());
        if is_moved(slot) {
            there += 1;
            let error = asked.error().unwrap_or_default();
            assert!(error.starts_with(&format!("MOVED {slot} ")), "{asked:?}");
        }
    }
    assert!(
        (KEYS / 8..KEYS / 2).contains(&there),
        "{there} keys have moved"
    );
}
