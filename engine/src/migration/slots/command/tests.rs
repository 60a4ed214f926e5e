use std::collections::BTreeMap as Map;

use ephesus_coordinator::command::{Addresses, ClusterId, ClusterOptions};
use ephesus_coordinator::migration::{Migration, MigrationTable, Phase, Purpose};
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::state::{Member, MemberStatus};
use ephesus_wire::table::{PartitionEntry, PartitionStatus, PartitionTable, Replica, Role};
use ephesus_wire::{Epoch, MigrationId};

use super::*;

const ATHENS: NodeId = NodeId([0xa; 16]);
const BYZANTIUM: NodeId = NodeId([0xb; 16]);

fn place(node: NodeId, shard: u16) -> Place {
    Place {
        node,
        shard: ShardId(shard),
    }
}

/// Four partitions of 4096 slots: athens has 0 and 1 on shard 0 and 2 on shard 1, byzantium has 3.
fn view() -> View {
    let member = |name: &str, shards| Member {
        name: name.to_owned(),
        incarnation: 1,
        addresses: Addresses {
            entry: "h:7000".to_owned(),
            tls_port: None,
            peer: "h:17000".to_owned(),
            rack: String::new(),
        },
        shards,
        status: MemberStatus::Live,
        capacity: 100,
        speaks: ephesus_coordinator::protocol::VERSIONS,
    };
    let owners = [(ATHENS, 0), (ATHENS, 0), (ATHENS, 1), (BYZANTIUM, 0)];
    let entry = |(node, shard)| PartitionEntry {
        epoch: Epoch(1),
        status: PartitionStatus::Online,
        replicas: vec![Replica {
            node,
            shard: ShardId(shard),
            role: Role::Primary,
            in_sync: true,
        }],
    };
    View {
        cluster: ClusterId([9; 16]),
        options: ClusterOptions {
            partitions: 4,
            min_nodes: 1,
            policy: Policy::Contiguous,
            heartbeat_timeout_ms: 2_000,
        },
        coordinators: Map::new(),
        members: Map::from([
            (ATHENS, member("athens", 2)),
            (BYZANTIUM, member("byzantium", 1)),
        ]),
        table: PartitionTable {
            version: 3,
            entries: owners.into_iter().map(entry).collect(),
        },
        migrations: MigrationTable::default(),
    }
}

fn id(node: NodeId, shard: u16) -> String {
    let id = shard_id_hex(&node, ShardId(shard));
    String::from_utf8(id.to_vec()).expect("digits")
}

/// What the words behind `CLUSTER MIGRATESLOTS` come to, asked at athens.
fn ask(line: &str, shard: Option<u16>, view: &View) -> Result<Vec<(u16, Place)>, String> {
    let line = line
        .replace("@athens/0", &id(ATHENS, 0))
        .replace("@athens/1", &id(ATHENS, 1))
        .replace("@byzantium", &id(BYZANTIUM, 0));
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let here = Here {
        node: ATHENS,
        shard: shard.map(ShardId),
    };
    let planned = parse(&args).and_then(|wanted| moves(&wanted, view, here));
    let planned = planned.map_err(|error| error.to_string())?;
    let rows = planned.into_iter();
    Ok(rows.map(|wanted| (wanted.partition.0, wanted.to)).collect())
}

#[test]
fn whole_partitions_go_where_they_are_told() {
    let there = place(BYZANTIUM, 0);
    for (line, expected) in [
        ("SLOTSRANGE 0 4095 NODE @byzantium", vec![(0, there)]),
        (
            "slotsrange 0 8191 node @byzantium",
            vec![(0, there), (1, there)],
        ),
        (
            "SLOTSRANGE 4096 5000 0 4095 5001 8191 NODE @byzantium",
            vec![(0, there), (1, there)],
        ),
        (
            "SLOTSRANGE 0 4095 NODE @byzantium SLOTSRANGE 4096 8191 NODE @athens/1",
            vec![(0, there), (1, place(ATHENS, 1))],
        ),
    ] {
        assert_eq!(ask(line, Some(0), &view()), Ok(expected.clone()), "{line}");
        assert_eq!(ask(line, None, &view()), Ok(expected), "{line}");
    }
    let of_all = ask("SLOTSRANGE 0 12287 NODE @byzantium", None, &view());
    assert_eq!(
        of_all.map(|moves| moves.len()),
        Ok(3),
        "the entry port is the whole node"
    );
}

/// The texts are those of Valkey 9.1, but for parts of partitions.
#[test]
fn what_is_wrong_is_said_as_valkey_says_it() {
    for (line, expected) in [
        ("SLOTSRANGE 0", "No end slot for final slot range"),
        ("SLOTSRANGE 0 1", "syntax error"),
        ("SLOTSRANGE 0 1 NODE", "syntax error"),
        ("SLOTSRANGE 0 1 FOO @byzantium", "syntax error"),
        ("FOO 0 1 NODE @byzantium", "syntax error"),
        ("SLOTSRANGE 0 4095 NODE @byzantium extra", "syntax error"),
        ("SLOTSRANGE a 1 NODE @byzantium", "No slot ranges specified"),
        (
            "SLOTSRANGE 0 16384 NODE @byzantium",
            "Invalid or out of range slot",
        ),
        (
            "SLOTSRANGE 0 99999999999 NODE @byzantium",
            "Invalid or out of range slot",
        ),
        (
            "SLOTSRANGE 5 1 NODE @byzantium",
            "Start slot number 5 is greater than end slot number 1.",
        ),
        ("SLOTSRANGE 0 4095 NODE short", "Invalid node name: short"),
        (
            "SLOTSRANGE 0 4095 NODE @athens/0",
            "Target node can not be this node.",
        ),
        (
            "SLOTSRANGE 12288 16383 NODE @athens/0",
            "Slots are not served by this node.",
        ),
        (
            "SLOTSRANGE 8192 12287 NODE @byzantium",
            "Slots are not served by this node.",
        ),
        (
            "SLOTSRANGE 0 4095 4000 8191 NODE @byzantium",
            "Slot ranges in migrations overlap",
        ),
        (
            "SLOTSRANGE 0 4095 NODE @byzantium SLOTSRANGE 4095 8191 NODE @byzantium",
            "Slot ranges in migrations overlap",
        ),
        (
            "SLOTSRANGE 0 4094 NODE @byzantium",
            "Slots 0 to 4095 are partition 0 and move only together: name all of them for one node",
        ),
        (
            "SLOTSRANGE 0 4000 NODE @byzantium SLOTSRANGE 4001 4095 NODE @athens/1",
            "Slots 0 to 4095 are partition 0 and move only together: name all of them for one node",
        ),
        (
            "SLOTSRANGE 0 5000 NODE @byzantium",
            "Slots 4096 to 8191 are partition 1 and move only together: name all of them for one node",
        ),
    ] {
        assert_eq!(
            ask(line, Some(0), &view()),
            Err(expected.to_owned()),
            "{line}"
        );
    }
    let unknown = "x".repeat(40);
    let line = format!("SLOTSRANGE 0 4095 NODE {unknown}");
    assert_eq!(
        ask(&line, Some(0), &view()),
        Err(format!("Unknown node name: {unknown}"))
    );
    let mut moving = view();
    let migration = Migration {
        partition: PartitionId(0),
        epoch: Epoch(1),
        source: place(ATHENS, 0),
        target: place(BYZANTIUM, 0),
        phase: Phase::Planned,
        attempt: 1,
        purpose: Purpose::Move,
    };
    moving.migrations.active.insert(MigrationId(1), migration);
    let line = "SLOTSRANGE 0 4095 NODE @byzantium";
    assert_eq!(
        ask(line, Some(0), &moving),
        Err("I am already migrating slot 0.".to_owned())
    );
}

fn row(id: u64, partition: u16, state: MigrationState, error: &str) -> MigrationRow {
    MigrationRow {
        id,
        partition,
        state,
        abort_reason: None,
        from_node: "athens".to_owned(),
        from_shard: 0,
        to_node: "byzantium".to_owned(),
        to_shard: 0,
        attempt: 1,
        will_retry: false,
        keys: 0,
        bytes: 0,
        keys_per_s: 0,
        bytes_per_s: 0,
        hold_us: 0,
        last_error: error.to_owned(),
    }
}

fn report() -> MigrationsReport {
    let cancelled = AbortReason::Cancelled.to_string();
    MigrationsReport {
        migrations: vec![
            row(1, 0, MigrationState::Committed, ""),
            row(
                2,
                1,
                MigrationState::Aborted,
                "the source gave up: the disk is full",
            ),
            MigrationRow {
                abort_reason: Some(AbortReason::Cancelled),
                ..row(3, 1, MigrationState::Aborted, &cancelled)
            },
            row(4, 1, MigrationState::Copying, ""),
            MigrationRow {
                from_shard: 1,
                ..row(5, 2, MigrationState::Planned, "")
            },
        ],
        ..MigrationsReport::default()
    }
}

fn written_of(report: &MigrationsReport, protocol: Protocol, here: Here) -> String {
    let mut out = Vec::new();
    write(&mut out, protocol, report, &view(), here);
    String::from_utf8(out).expect("text")
}

fn written(protocol: Protocol, here: Here) -> String {
    written_of(&report(), protocol, here)
}

#[test]
fn moves_are_told_by_both_of_their_ends_the_newest_first() {
    let at = |node, shard: Option<u16>| Here {
        node,
        shard: shard.map(ShardId),
    };
    let states = |here| -> Vec<(String, String)> {
        let text = written(Protocol::Resp2, here);
        let lines: Vec<&str> = text.split("\r\n").collect();
        let values = |name| {
            let at = lines
                .iter()
                .enumerate()
                .filter(move |(_, line)| **line == name);
            at.map(|(at, _)| lines[at + 2].to_owned())
                .collect::<Vec<_>>()
        };
        values("operation")
            .into_iter()
            .zip(values("state"))
            .collect()
    };
    let of = |operation: &str, states: &[&str]| -> Vec<(String, String)> {
        let states = states.iter();
        states
            .map(|state| (operation.to_owned(), (*state).to_owned()))
            .collect()
    };
    let source = ["snapshotting", "cancelled", "failed", "success"];
    assert_eq!(states(at(ATHENS, Some(0))), of("EXPORT", &source));
    assert_eq!(
        states(at(ATHENS, Some(1))),
        of("EXPORT", &["waiting-to-snapshot"])
    );
    assert_eq!(states(at(ATHENS, None)).len(), 5);
    let target = [
        "waiting-for-ack",
        "receiving-snapshot",
        "cancelled",
        "failed",
        "success",
    ];
    assert_eq!(states(at(BYZANTIUM, Some(0))), of("IMPORT", &target));
    assert_eq!(leaving(&report(), &view(), at(ATHENS, Some(0))), [4]);
    assert_eq!(leaving(&report(), &view(), at(ATHENS, None)), [5, 4]);
    assert_eq!(leaving(&report(), &view(), at(BYZANTIUM, None)), [0; 0]);
}

#[test]
fn an_entry_has_the_fields_of_valkey() {
    let here = Here {
        node: ATHENS,
        shard: Some(ShardId(1)),
    };
    let text = written(Protocol::Resp3, here);
    let lines = text.split("\r\n").filter(|line| !line.starts_with('$'));
    let (name, from, to) = (format!("{:040}", 5), id(ATHENS, 1), id(BYZANTIUM, 0));
    let expected = [
        "*1",
        "%12",
        "name",
        &name,
        "operation",
        "EXPORT",
        "slot_ranges",
        "8192-12287",
        "target_node",
        &to,
        "source_node",
        &from,
        "create_time",
        ":0",
        "last_update_time",
        ":0",
        "last_ack_time",
        ":0",
        "state",
        "waiting-to-snapshot",
        "message",
        "",
        "cow_size",
        ":0",
        "remaining_repl_size",
        ":0",
        "",
    ];
    assert_eq!(lines.collect::<Vec<_>>(), expected);
}

/// A coordinator of another cluster, or one that is wrong.
#[test]
fn a_move_of_a_partition_that_is_not_there_is_told_without_slots() {
    let report = MigrationsReport {
        migrations: vec![row(6, 4, MigrationState::Copying, "")],
        ..MigrationsReport::default()
    };
    let here = Here {
        node: ATHENS,
        shard: None,
    };
    let text = written_of(&report, Protocol::Resp2, here);
    assert!(text.contains("slot_ranges\r\n$0\r\n\r\n"), "{text}");
}

#[test]
fn what_waits_for_the_coordinators_is_short() {
    let request = |ranges: usize| {
        let head = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"];
        let ranges = ["100", "200"].repeat(ranges);
        let to = id(ATHENS, 0);
        let all = [&head, &ranges[..], &["NODE", &to]].concat();
        SlotCommand::parse(Cmd::ClusterMigrateslots, &all[..])
    };
    let named = (ARGUMENT_BYTES_MAX - "SLOTSRANGE NODE ".len() - ID_BYTES - 1) / "100 200 ".len();
    let Ok(SlotCommand::Migrate(wanted)) = request(named) else {
        panic!("refused");
    };
    assert_eq!(wanted[0].ranges.len(), named);
    let refused = request(named + 1).map_err(|error| error.to_string());
    let text = "ERR a list of slots cannot be longer than 65536 bytes";
    assert_eq!(refused, Err(text.to_owned()));
}
