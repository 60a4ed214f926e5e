use ephesus_coordinator::command::RaftId;
use ephesus_coordinator::report::Problem;

use super::*;

pub(crate) fn status_report() -> StatusReport {
    let counts = |counts: &[(&str, u64)]| {
        let owned = counts.iter().map(|(status, n)| ((*status).to_owned(), *n));
        owned.collect()
    };
    StatusReport {
        cluster: "0123456789abcdef0123456789abcdef".to_owned(),
        healthy: false,
        problems: vec![
            Problem::NodeFailed {
                name: "cyrene".to_owned(),
                partitions: 3,
            },
            Problem::NotBootstrapped,
        ],
        leader: RaftId(2),
        term: 4,
        commit_index: 17,
        table_version: 5,
        coordinators: 3,
        nodes: counts(&[("failed", 1), ("live", 2)]),
        partitions: counts(&[("failed", 3), ("online", 6)]),
        keys: 1_234_567,
        bytes: 200 << 20,
        hot_keys: super::load::tests::hot_keys().into_iter().take(1).collect(),
    }
}

pub(crate) fn node_rows() -> Vec<NodeRow> {
    let athens = NodeRow {
        name: "athens".to_owned(),
        id: "aa".repeat(16),
        status: "live".to_owned(),
        draining: true,
        incarnation: 3,
        shards: 2,
        capacity: 100,
        partitions: 6,
        keys: 1_000_000,
        bytes: 150 << 20,
        last_heartbeat_ms: Some(120),
        table_version: 5,
        entry: "127.0.0.1:7379".to_owned(),
        peer: "127.0.0.1:17379".to_owned(),
        shard_cpu_us_per_s: vec![Some(731_500), None],
        rack: "east".to_owned(),
    };
    let cyrene = NodeRow {
        name: "cyrene".to_owned(),
        id: "cc".repeat(16),
        status: "failed".to_owned(),
        draining: false,
        incarnation: 1,
        shards: 1,
        capacity: 150,
        partitions: 3,
        keys: 0,
        bytes: 0,
        last_heartbeat_ms: None,
        table_version: 0,
        entry: "127.0.0.1:7399".to_owned(),
        peer: "127.0.0.1:17399".to_owned(),
        shard_cpu_us_per_s: vec![None],
        rack: String::new(),
    };
    vec![athens, cyrene]
}

pub(crate) fn partition_rows() -> Vec<PartitionRow> {
    let row = |partition: u16, status: &str, node: Option<&str>, shard, epoch| PartitionRow {
        partition,
        first_slot: partition * 4096,
        last_slot: partition * 4096 + 4095,
        status: status.to_owned(),
        epoch,
        node: node.map(str::to_owned),
        shard,
    };
    vec![
        row(0, "online", Some("athens"), Some(0), 1),
        row(1, "online", Some("athens"), Some(0), 3),
        row(2, "online", Some("athens"), Some(1), 1),
        row(3, "unassigned", None, None, 0),
    ]
}

pub(crate) fn coordinator_rows() -> Vec<CoordinatorRow> {
    let row = |id, leader, active, last_heard_ms| CoordinatorRow {
        votes: active,
        id: RaftId(id),
        address: format!("127.0.0.1:2738{id}"),
        leader,
        matched: 17,
        active,
        last_heard_ms,
        refused: last_heard_ms.map(|_| id - 1),
        refusals: BTreeMap::from([("not_a_peer".to_owned(), id - 1)]),
    };
    vec![
        row(1, true, true, Some(0)),
        row(2, false, true, Some(31)),
        row(3, false, false, None),
    ]
}

#[test]
fn a_status_is_a_few_lines() {
    let text = render(&Report::Status(status_report())).expect("a table");
    let expected = "\
cluster     0123456789abcdef0123456789abcdef
health      2 problems
leader      coordinator 2 (3 in all), term 4, commit index 17
table       version 5
nodes       3: 1 failed, 2 live
partitions  9: 3 failed, 6 online
keys        1234567
bytes       200.0 MiB
hot key     counter (database 2) alone takes 71.3% of a CPU at shard 1 of athens: no move cures that. Have clients cache it (CLIENT TRACKING), or split it into several keys
";
    assert_eq!(text, expected);
}

#[test]
fn nodes_have_a_line_each() {
    let text = render(&Report::Nodes(node_rows())).expect("a table");
    let expected = "\
NAME    STATUS          RACK  SHARDS  PARTITIONS     KEYS      BYTES  BUSIEST   HEARTBEAT  ADDRESS         ID
athens  live, draining  east       2           6  1000000  150.0 MiB    73.2%  120 ms ago  127.0.0.1:7379  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
cyrene  failed          -          1           3        -          -        -           -  127.0.0.1:7399  cccccccccccccccccccccccccccccccc
";
    assert_eq!(text, expected);
}

#[test]
fn partitions_alike_are_one_line() {
    let text = render(&Report::Partitions(partition_rows())).expect("a table");
    let expected = "\
PARTITIONS  SLOTS        STATUS      NODE    SHARD  EPOCH
0-1         0-8191       online      athens      0    1-3
2           8192-12287   online      athens      1      1
3           12288-16383  unassigned  -           -      0
";
    assert_eq!(text, expected);
}

#[test]
fn coordinators_have_a_line_each() {
    let text = render(&Report::Coordinators(coordinator_rows())).expect("a table");
    let expected = "\
ID  ADDRESS          ROLE      STATUS  LOG      HEARD  REFUSED
 1  127.0.0.1:27381  leader    active   17          -        0
 2  127.0.0.1:27382  follower  active   17  31 ms ago        1
 3  127.0.0.1:27383  learner   silent   17          -        -
";
    assert_eq!(text, expected);
}

#[test]
fn a_cluster_of_nothing_is_shown_as_such() {
    let report = StatusReport {
        cluster: String::new(),
        nodes: BTreeMap::new(),
        partitions: BTreeMap::new(),
        ..status_report()
    };
    let text = status(&report);
    assert!(text.contains("cluster     none yet\n"), "{text}");
    assert!(text.contains("nodes       none\n"), "{text}");
    assert_eq!(nodes(&[]).lines().count(), 1);
    assert!(render(&Report::Busy).is_none());
}
