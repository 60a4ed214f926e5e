use std::collections::BTreeMap;

use ephesus_coordinator::command::{Addresses, ClusterId, ClusterOptions, RaftId};
use ephesus_coordinator::migration::MigrationTable;
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::state::{Member, MemberStatus};
use ephesus_wire::table::{PartitionEntry, PartitionStatus, PartitionTable, Replica, Role};

use super::*;

const ATHENS: NodeId = NodeId([1; 16]);
const BYZANTIUM: NodeId = NodeId([2; 16]);
const ME: Me = Me {
    node: ATHENS,
    shards: 2,
    port: 7000,
    tls_port: None,
};

fn member(name: &str, entry: &str, shards: u16, status: MemberStatus) -> Member {
    Member {
        name: name.into(),
        incarnation: 1,
        addresses: Addresses {
            entry: entry.into(),
            tls_port: None,
            peer: "peer:1".into(),
            rack: String::new(),
        },
        shards,
        status,
        capacity: 100,
        speaks: ephesus_coordinator::protocol::VERSIONS,
    }
}

fn entry(place: Option<(NodeId, u16)>, epoch: u64) -> PartitionEntry {
    let replica = |(node, shard)| Replica {
        node,
        shard: ShardId(shard),
        role: Role::Primary,
        in_sync: true,
    };
    PartitionEntry {
        epoch: Epoch(epoch),
        status: PartitionStatus::Online,
        replicas: place.map(replica).into_iter().collect(),
    }
}

fn view(byzantium: MemberStatus) -> View {
    let places = [
        Some((ATHENS, 0)),
        Some((ATHENS, 1)),
        Some((BYZANTIUM, 0)),
        Some((BYZANTIUM, 0)),
        None,
        Some((ATHENS, 1)),
    ];
    View {
        cluster: ClusterId([9; 16]),
        options: ClusterOptions {
            partitions: 6,
            min_nodes: 1,
            policy: Policy::RoundRobin,
            heartbeat_timeout_ms: 2_000,
        },
        coordinators: BTreeMap::from([(RaftId(1), "c:1".into())]),
        members: BTreeMap::from([
            (ATHENS, member("athens", "a:7000", 2, MemberStatus::Live)),
            (BYZANTIUM, member("byzantium", "[::1]:8000", 1, byzantium)),
        ]),
        table: PartitionTable {
            version: 3,
            entries: (1..)
                .zip(places)
                .map(|(epoch, p)| entry(p, epoch))
                .collect(),
        },
        migrations: MigrationTable::default(),
    }
}

fn routes(view: Option<&View>, has: impl Fn(PartitionId, ShardId, Epoch) -> bool) -> Routes {
    let partitioning = Partitioning::new(6).expect("a valid number");
    Routes::new(partitioning, view, ME, has, [], None)
}

#[test]
fn slots_lead_to_shards_here_to_others_or_to_nobody() {
    let routes = routes(Some(&view(MemberStatus::Live)), |_, _, _| true);
    let owner = |partition| routes.owner_of(PartitionId(partition));
    assert!(owner(0).is(ShardId(0)) && !owner(0).is(ShardId(1)));
    assert_eq!(owner(1).local(), Some(ShardId(1)));
    assert_eq!(owner(2).local(), None);
    let there = routes.primary(owner(2)).expect("another node");
    assert_eq!((there.host.as_deref(), there.port), (Some("::1"), 8001));
    assert_eq!(owner(4).local(), None);
    assert_eq!(routes.primary(owner(4)), None, "nobody has it");
    let here = routes.primary(owner(1)).expect("this node");
    assert_eq!(
        (here.node, here.host.as_deref(), here.port),
        (ATHENS, None, 7002)
    );
    assert_eq!(routes.owner(Slot(0)), owner(0));
    let local: Vec<_> = (0..6).map(|p| routes.next_local(PartitionId(p))).collect();
    let expected = [0, 1, 5, 5, 5, 5].map(|p| Some(PartitionId(p)));
    assert_eq!(local, expected);
    assert_eq!(routes.next_local(PartitionId(6)), None);
}

#[test]
fn a_copy_that_is_not_there_yet_is_listed_and_not_served() {
    let had = |partition: PartitionId, shard, epoch| {
        partition == PartitionId(1) && shard == ShardId(1) && epoch == Epoch(2)
    };
    let routes = routes(Some(&view(MemberStatus::Live)), had);
    assert_eq!(routes.owner_of(PartitionId(0)).local(), None);
    assert_eq!(routes.owner_of(PartitionId(1)).local(), Some(ShardId(1)));
    assert_eq!(routes.holdings()[0].slots, [(0, 2730)]);
    assert_eq!(routes.holdings()[1].slots, [(2731, 5461), (13654, 16383)]);
    assert_eq!(routes.holdings()[1].epoch, Epoch(6));
}

#[test]
fn a_staging_copy_leads_to_its_shard_once_the_table_gives_it_the_partition() {
    let partitioning = Partitioning::new(6).expect("a valid number");
    let staged = [
        (PartitionId(0), ShardId(0)),
        (PartitionId(1), ShardId(0)),
        (PartitionId(2), ShardId(1)),
    ];
    let view = view(MemberStatus::Live);
    let routes = Routes::new(partitioning, Some(&view), ME, |_, _, _| false, staged, None);
    let owner = |partition| routes.owner_of(PartitionId(partition));
    assert!(owner(0).is(ShardId(0)), "the table says so");
    assert!(owner(1).is_nobody(), "the copy on another shard is not it");
    assert_eq!(routes.staged(PartitionId(1)), Some(ShardId(0)));
    let there = routes.primary(owner(2)).expect("still the other node's");
    assert_eq!(there.node, BYZANTIUM);
    assert_eq!(routes.staged(PartitionId(2)), Some(ShardId(1)));
    assert_eq!(routes.staged(PartitionId(3)), None);
    assert_eq!(routes.next_local(PartitionId(0)), Some(PartitionId(0)));
    assert_eq!(routes.next_local(PartitionId(1)), None);
}

#[test]
fn only_a_turn_from_another_shard_of_the_node_to_a_third_is_noted() {
    let before = routes(Some(&view(MemberStatus::Live)), |_, _, _| true);
    let turned = |partition: usize, place| {
        let mut view = view(MemberStatus::Live);
        view.table.entries[partition] = entry(Some(place), 9);
        let after = routes(Some(&view), |_, _, _| true);
        [0, 1].map(|shard| before.turns_within_node(&after, ShardId(shard)))
    };
    assert_eq!(turned(0, (ATHENS, 0)), [false, false], "nothing turns");
    assert_eq!(turned(0, (ATHENS, 1)), [false, true]);
    assert_eq!(turned(1, (ATHENS, 0)), [true, false]);
    assert_eq!(turned(0, (BYZANTIUM, 0)), [false, false], "it leaves");
    assert_eq!(turned(2, (ATHENS, 1)), [false, false], "it comes");
}

#[test]
fn a_failed_node_keeps_its_slots_and_is_marked() {
    let routes = routes(Some(&view(MemberStatus::Failed)), |_, _, _| true);
    let byzantium = &routes.primaries()[2];
    assert!(byzantium.failed);
    assert_eq!(routes.holdings()[2].slots, [(5462, 10922)]);
    assert!(!routes.primaries()[0].failed);
}

#[test]
fn without_a_table_nobody_has_anything() {
    let routes = routes(None, |_, _, _| true);
    assert_eq!(routes.primaries().len(), 2);
    assert!((0..6).all(|p| routes.owner_of(PartitionId(p)) == NOBODY));
}

#[test]
fn a_copy_is_served_at_the_epoch_of_the_table_or_a_newer_one_that_was_activated() {
    let routes = routes(Some(&view(MemberStatus::Live)), |_, _, _| true);
    assert_eq!(routes.version(), 3);
    let lets = |partition, epoch, shard| {
        routes.lets_serve(PartitionId(partition), Epoch(epoch), ShardId(shard))
    };
    // Partition 1 is at epoch 2 on shard 1, partition 2 at epoch 3 elsewhere, partition 4 nobody's at epoch 5.
    assert_eq!(
        [1, 2, 3].map(|epoch| lets(1, epoch, 1)),
        [false, true, true]
    );
    assert_eq!(
        [1, 2, 3].map(|epoch| lets(1, epoch, 0)),
        [false, false, true]
    );
    assert_eq!(
        [2, 3, 4].map(|epoch| lets(2, epoch, 0)),
        [false, false, true]
    );
    assert!(!lets(4, 5, 0));
}

#[test]
fn routes_of_the_next_table_share_the_shards_of_the_cluster_while_the_members_are_the_same() {
    let has = |_, _, _| true;
    let next = |view: &View, before: &Routes| {
        let partitioning = Partitioning::new(6).expect("a valid number");
        Routes::new(partitioning, Some(view), ME, has, [], Some(before))
    };
    let mut moved = view(MemberStatus::Live);
    let before = routes(Some(&moved), has);
    moved.table.entries[0] = entry(Some((BYZANTIUM, 0)), 9);
    let after = next(&moved, &before);
    assert!(Arc::ptr_eq(&before.directory, &after.directory));
    let fresh = routes(Some(&moved), has);
    assert_eq!(after.primaries(), fresh.primaries());
    assert_eq!(after.holdings(), fresh.holdings());
    assert_eq!(after.holdings()[2].slots, [(0, 2730), (5462, 10922)]);
    assert_eq!(before.holdings()[2].slots, [(5462, 10922)]);
    // Whatever clients are told of a member counts.
    let change = |change: fn(&mut Member)| {
        let mut view = moved.clone();
        change(view.members.get_mut(&BYZANTIUM).expect("a member"));
        let changed = next(&view, &after);
        assert!(!Arc::ptr_eq(&changed.directory, &after.directory));
        assert_eq!(changed.primaries(), routes(Some(&view), has).primaries());
    };
    change(|member| member.status = MemberStatus::Failed);
    change(|member| member.shards = 2);
    change(|member| member.addresses.entry = "[::1]:9000".into());
    change(|member| member.addresses.tls_port = Some(9500));
    change(|member| member.addresses.entry = "nowhere".into());
    moved.members.remove(&BYZANTIUM);
    assert_eq!(next(&moved, &after).primaries().len(), 2);
}

#[test]
fn a_table_of_many_shards_leads_to_each_of_them() {
    // More shards than sixteen bits with a mark would tell apart.
    let mut view = view(MemberStatus::Live);
    let nodes = 1..=40_u8;
    let id = |n: u8| NodeId([n + 100; 16]);
    for n in nodes.clone() {
        let address = format!("10.0.0.{n}:7000");
        let member = member("many", &address, 1024, MemberStatus::Live);
        view.members.insert(id(n), member);
    }
    let partitioning = Partitioning::new(40).expect("a valid number");
    view.table.entries = nodes
        .clone()
        .map(|n| entry(Some((id(n), 1000)), 1))
        .collect();
    let routes = Routes::new(partitioning, Some(&view), ME, |_, _, _| true, [], None);
    for (partition, n) in (0..).zip(nodes) {
        let primary = routes.primary(routes.owner_of(PartitionId(partition)));
        let primary = primary.expect("somebody");
        assert_eq!((primary.node, primary.shard), (id(n), ShardId(1000)));
    }
}
