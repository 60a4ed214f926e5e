//! What a leader takes of what nodes tell, and when it forgets it.

use std::collections::BTreeSet;

use crate::coordinator::migrations::tests::bed::{ask, beat, carry_out, cluster, state};
use crate::coordinator::tests::{World, heartbeat, id};
use crate::load::{Amount, Board, Counted, HotKey, HotKeys, KeyName, LoadReport, Loads};
use crate::placement::Place;
use crate::protocol::{Answer, Request};
use crate::report::{ClusterLoadReport, Query, Report};
use ephesus_wire::ShardId;

/// The board of a node of so many shards that has all of so many partitions, and has executed that many operations in
/// partition 3 within 200 ms.
fn board(shards: u16, partitions: u16, ops: u64) -> Board {
    let amount = Amount {
        ops,
        bytes_in: ops * 10,
        bytes_out: ops * 2,
        cpu_ns: ops * 1_000,
    };
    let counted = |amount| Counted {
        amount,
        bytes: 1 << 20,
    };
    let idle = counted(Amount::default());
    let mut board = Board::new(shards, partitions, 199);
    let shards = usize::from(shards);
    board.look(
        200,
        vec![Amount::default(); shards].into_iter(),
        (0..partitions).map(|_| Some(idle)),
    );
    let partitions = (0..partitions).map(|id| match id {
        3 => Some(counted(amount)),
        _ => Some(idle),
    });
    board.look(400, vec![amount; shards].into_iter(), partitions);
    board
}

fn tell(world: &mut World, n: u8, load: LoadReport) {
    let leader = world.leader();
    let version = state(world).table().version;
    let Request::Heartbeat(beat, _) = heartbeat(n, world.now, version) else {
        panic!("a heartbeat");
    };
    world.say(leader, n.into(), Request::Heartbeat(beat, load));
}

fn load(world: &mut World) -> ClusterLoadReport {
    match ask(world, Query::Load) {
        Report::Load(report) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_an_owner_tells_is_known_until_the_owner_changes() {
    let mut world = cluster(1, 2);
    let report = load(&mut world);
    assert_eq!(report.shards.len(), 2);
    assert!(report.shards.iter().all(|row| row.last_1m.is_none()));
    assert!(
        report
            .partitions
            .iter()
            .all(|row| row.cpu_us_per_s.is_none())
    );
    let mut told = board(1, 16, 1_000);
    for _ in 0..16 {
        tell(&mut world, 1, told.report());
    }
    let report = load(&mut world);
    let hottest = &report.partitions[0];
    assert_eq!(hottest.partition, 3);
    assert_eq!(hottest.node.as_deref(), Some("node-1"));
    let near = |value: Option<u64>, expected: u64| {
        let value = value.expect("a number");
        assert!(
            value.abs_diff(expected) <= expected / 12,
            "{value}, not {expected}"
        );
    };
    near(hottest.ops_per_s, 5_000);
    near(hottest.cpu_us_per_s, 5_000);
    near(hottest.traffic_bytes_per_s, 60_000);
    near(hottest.bytes, 1 << 20);
    near(hottest.last_1s.map(|rates| rates.bytes_in_per_s), 50_000);
    assert!(
        report.partitions[1..]
            .iter()
            .all(|row| row.cpu_us_per_s == Some(0))
    );
    near(report.shards[0].last_1m.map(|rates| rates.ops_per_s), 5_000);
    let place = Place {
        node: id(1),
        shard: ShardId(0),
    };
    let cluster = world.coordinators[0].cluster_load();
    assert!((cluster.shards[&place] - 5e-3).abs() < 1e-4);
    assert!(cluster.partitions.iter().all(Option::is_some));
    // What was told by window is news of a moment.
    beat(&mut world, 2, 1_400);
    let report = load(&mut world);
    assert!(report.partitions[0].last_1s.is_none());
    near(report.partitions[0].ops_per_s, 5_000);
    // Nobody knows what it does elsewhere.
    let node = "node-2".to_owned();
    let query = Query::Move {
        partition: 3,
        node,
        shard: None,
    };
    ask(&mut world, query);
    carry_out(&mut world, 2);
    assert_eq!(world.coordinators[0].cluster_load().partitions[3], None);
    for _ in 0..16 {
        tell(&mut world, 1, told.report());
    }
    let report = load(&mut world);
    let moved = report.partitions.last().expect("partitions");
    assert_eq!((moved.partition, moved.cpu_us_per_s), (3, None));
    tell(&mut world, 2, board(1, 16, 2_000).report());
    let report = load(&mut world);
    assert_eq!(report.partitions[0].partition, 3);
    near(report.partitions[0].ops_per_s, 10_000);
}

#[test]
fn what_a_node_says_of_what_is_not_its_own_is_not_heard() {
    let mut world = cluster(1, 2);
    // Neither the partitions of others, nor shards and partitions that there are none of.
    let mut lies = board(40, 16384, 1_000_000);
    for _ in 0..400 {
        tell(&mut world, 2, lies.report());
    }
    tell(&mut world, 3, board(1, 16, 1).report());
    let cluster = world.coordinators[0].cluster_load();
    assert!(cluster.partitions.iter().all(Option::is_none));
    let places: Vec<_> = cluster.shards.keys().collect();
    let own = Place {
        node: id(2),
        shard: ShardId(0),
    };
    assert_eq!(places, [&own]);
}

#[test]
fn a_new_leader_knows_what_it_was_told_itself() {
    let mut world = cluster(3, 1);
    tell(&mut world, 1, board(1, 16, 1_000).report());
    let first = world.leader();
    let known = |world: &World| {
        let leader = &world.coordinators[world.leader() as usize - 1];
        leader.cluster_load().partitions.iter().flatten().count()
    };
    assert!(known(&world) > 0);
    world.cut_off = vec![first];
    world.pass(3_000);
    assert_ne!(world.leader(), first);
    assert_eq!(known(&world), 0);
}

/// Who was asked to tell its keys.
fn asked(world: &mut World) -> BTreeSet<u64> {
    let told = world.told();
    let asked = told
        .iter()
        .filter(|(_, answer)| *answer == Answer::TellHotKeys);
    asked.map(|(session, _)| *session).collect()
}

#[test]
fn a_key_that_is_too_much_for_a_shard_is_named_unasked() {
    let mut world = cluster(1, 2);
    // A tenth of a CPU, and then all of it.
    tell(&mut world, 1, board(1, 16, 20_000).report());
    assert_eq!(asked(&mut world), BTreeSet::new());
    tell(&mut world, 1, board(1, 16, 200_000).report());
    assert_eq!(asked(&mut world), BTreeSet::from([1]));
    let key = |name: &[u8], share| HotKey {
        shard: 0,
        database: 0,
        name: KeyName::new(name),
        len: name.len() as u32,
        ops_per_s: u64::from(share),
        share,
    };
    let keys = HotKeys::new(vec![key(b"much", 520_000), key(b"less", 480_000)]);
    let node = id(1);
    world.say(1, 1, Request::HotKeys { node, keys });
    // It has just told.
    tell(&mut world, 1, board(1, 16, 200_000).report());
    assert_eq!(asked(&mut world), BTreeSet::new());
    let named = |world: &mut World| match ask(world, Query::Status) {
        Report::Status(status) => status.hot_keys,
        other => panic!("{other:?}"),
    };
    let keys = named(&mut world);
    let found: Vec<_> = keys.iter().map(|row| (&row.key[..], row.shard)).collect();
    assert_eq!(found, [(&b"much"[..], 0)]);
    let cpu = keys[0].cpu_us_per_s.expect("it is known");
    assert!((515_000..525_000).contains(&cpu), "{cpu}");
    beat(&mut world, 2, 3_000);
    assert_eq!(named(&mut world), []);
}

#[test]
fn hot_keys_are_asked_for_when_an_operator_wants_to_know_them() {
    let mut world = cluster(1, 2);
    let keys = HotKeys::new(vec![HotKey {
        shard: 0,
        database: 0,
        name: KeyName::new(&[b'k'; 500]),
        len: 500,
        ops_per_s: 9_000,
        share: 400_000,
    }]);
    let tell = |world: &mut World, n: u8| {
        let node = id(n);
        let keys = keys.clone();
        world.say(1, n.into(), Request::HotKeys { node, keys });
    };
    let report = |world: &mut World| match ask(world, Query::HotKeys) {
        Report::HotKeys(report) => report,
        other => panic!("{other:?}"),
    };
    // Nobody has asked.
    beat(&mut world, 2, 400);
    assert_eq!(asked(&mut world), BTreeSet::new());
    assert_eq!(report(&mut world).missing, ["node-1", "node-2"]);
    beat(&mut world, 2, 200);
    assert_eq!(asked(&mut world), BTreeSet::from([1, 2]));
    tell(&mut world, 1);
    tell(&mut world, 9);
    let told = report(&mut world);
    assert_eq!(told.missing, ["node-2"]);
    assert_eq!(told.keys.len(), 1);
    assert_eq!((told.keys[0].key.len(), told.keys[0].key_bytes), (128, 500));
    beat(&mut world, 2, 10_000);
    assert_eq!(report(&mut world).keys, []);
}

#[test]
fn more_or_longer_keys_than_there_may_be_are_no_message() {
    let key = HotKey {
        shard: 1,
        database: 3,
        name: KeyName::new(b"a"),
        len: 1,
        ops_per_s: 1,
        share: 2,
    };
    let decode = |bytes: &[u8]| postcard::from_bytes::<HotKeys>(bytes);
    let whole = HotKeys::new(vec![key.clone(); 40]);
    let bytes = postcard::to_allocvec(&whole).expect("bytes");
    assert_eq!(decode(&bytes).expect("keys"), whole);
    let many = postcard::to_allocvec(&vec![key; 33]).expect("bytes");
    assert!(decode(&many).is_err());
    assert!(decode(&[0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
    let one = |name: usize| {
        let key = (0u16, 0u8, vec![0u8; name], 1u32, 1u64, 2u32);
        postcard::to_allocvec(&(1u8, key)).expect("bytes")
    };
    assert!(decode(&one(128)).is_ok() && decode(&one(129)).is_err());
}

#[test]
fn what_a_node_has_told_holds_while_it_serves_and_is_heard_of() {
    let mut world = cluster(1, 1);
    let report = board(1, 16, 1_000).report();
    let place = Place {
        node: id(1),
        shard: ShardId(0),
    };
    let mut loads = Loads::default();
    loads.heard(id(1), &report, state(&world), 1_000);
    let is_known = |loads: &Loads, world: &World, now_ms| {
        let state = state(world);
        let cluster = loads.of_cluster(state, now_ms);
        let partitions = cluster.partitions.iter().flatten().count();
        let shard = loads.shard(place, state, now_ms).is_some();
        assert_eq!(
            (cluster.shards.len(), shard),
            (partitions.min(1), partitions > 0)
        );
        shard
    };
    assert!(is_known(&loads, &world, 11_000));
    assert!(!is_known(&loads, &world, 11_001), "it was silent");
    loads.heard(id(1), &LoadReport::default(), state(&world), 11_001);
    assert!(is_known(&loads, &world, 21_001));
    world.pass(3_000);
    assert!(!is_known(&loads, &world, 11_001), "it has failed");
}
