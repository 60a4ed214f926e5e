use std::collections::BTreeMap;

use ephesus_wire::table::{PartitionEntry, PartitionStatus, PartitionTable, Replica, Role};
use ephesus_wire::{ShardId, limits};
use proptest::prelude::*;
use raft::eraftpb::MessageType;
use raft::prelude::{Entry, Snapshot};

use super::*;
use crate::command::{Addresses, ClusterOptions};
use crate::migration::{Arrival, Confirmation, Migration, MigrationTable, Phase, Purpose};
use crate::placement::{Place, Policy};
use crate::report::{MigrationRow, MigrationState, MigrationsReport, PartitionRow};
use crate::state::{ADDRESS_BYTES_MAX, MEMBERS_MAX, Member, NAME_BYTES_MAX, RACK_BYTES_MAX};
use crate::view::{Delta, View};

fn registration(n: u8) -> Registration {
    Registration {
        node: NodeId([n; 16]),
        cluster: Some(ClusterId([7; 16])),
        name: "athens".to_owned(),
        incarnation: 3,
        addresses: Addresses {
            entry: "10.0.0.1:7379".to_owned(),
            tls_port: None,
            peer: "10.0.0.1:17379".to_owned(),
            rack: String::new(),
        },
        shards: 4,
        capacity: 250,
        speaks: VERSIONS,
    }
}

/// The largest table there can be, with three copies of everything.
fn largest() -> View {
    let long = |bytes| "x".repeat(bytes);
    let member = Member {
        name: long(NAME_BYTES_MAX),
        incarnation: u64::MAX,
        addresses: Addresses {
            entry: long(ADDRESS_BYTES_MAX),
            tls_port: Some(u16::MAX),
            peer: long(ADDRESS_BYTES_MAX),
            rack: long(RACK_BYTES_MAX),
        },
        shards: u16::MAX,
        status: MemberStatus::Failed,
        capacity: u32::MAX,
        speaks: Versions {
            min: u16::MAX,
            max: u16::MAX,
        },
    };
    let id = |n: u32| {
        let mut id = [0xff; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        NodeId(id)
    };
    let replica = |role| Replica {
        node: id(1),
        shard: ShardId(u16::MAX),
        role,
        in_sync: true,
    };
    let entry = PartitionEntry {
        epoch: Epoch(u64::MAX),
        status: PartitionStatus::Migrating,
        replicas: vec![
            replica(Role::Primary),
            replica(Role::Backup),
            replica(Role::Backup),
        ],
    };
    let place = Place {
        node: id(1),
        shard: ShardId(u16::MAX),
    };
    let migration = |partition| Migration {
        partition: PartitionId(partition),
        epoch: Epoch(u64::MAX),
        source: place,
        target: place,
        phase: Phase::Copying,
        attempt: u32::MAX,
        purpose: Purpose::Rebalance,
    };
    let migration_id = |p| MigrationId(u64::MAX - u64::from(p));
    let arrival = |p| Arrival {
        migration: migration_id(p),
        epoch: Epoch(u64::MAX),
    };
    View {
        cluster: ClusterId([0xff; 16]),
        options: ClusterOptions {
            partitions: 16_384,
            min_nodes: u16::MAX,
            policy: Policy::RoundRobin,
            heartbeat_timeout_ms: u32::MAX,
        },
        coordinators: (1..=5)
            .map(|n| (RaftId(n), long(ADDRESS_BYTES_MAX)))
            .collect(),
        members: (0..MEMBERS_MAX as u32)
            .map(|n| (id(n), member.clone()))
            .collect(),
        table: PartitionTable {
            version: u64::MAX,
            entries: vec![entry; 16_384],
        },
        migrations: MigrationTable {
            last: MigrationId(u64::MAX),
            active: (0..16_384)
                .map(|p| (migration_id(p), migration(p)))
                .collect(),
            arrivals: (0..16_384).map(|p| (PartitionId(p), arrival(p))).collect(),
            limit_mb_s: u32::MAX,
        },
    }
}

#[test]
fn the_largest_messages_fit_a_frame() {
    let view = largest();
    let delta = Delta {
        from: 1,
        to: u64::MAX,
        coordinators: Some(view.coordinators.clone()),
        members: view
            .members
            .clone()
            .into_iter()
            .map(|(id, m)| (id, Some(m)))
            .collect(),
        partitions: (0..16_384)
            .map(|p| (PartitionId(p), view.table.entries[0].clone()))
            .collect(),
        last_migration: view.migrations.last,
        migrations: view
            .migrations
            .active
            .clone()
            .into_iter()
            .map(|(id, migration)| (id, Some(migration)))
            .collect(),
        arrivals: view.migrations.arrivals.clone().into_iter().collect(),
        limit_mb_s: u32::MAX,
    };
    let long = |bytes| "x".repeat(bytes);
    let migration_row = MigrationRow {
        id: u64::MAX,
        partition: u16::MAX,
        state: MigrationState::Committed,
        abort_reason: None,
        from_node: long(NAME_BYTES_MAX),
        from_shard: u16::MAX,
        to_node: long(NAME_BYTES_MAX),
        to_shard: u16::MAX,
        attempt: u32::MAX,
        will_retry: true,
        keys: u64::MAX,
        bytes: u64::MAX,
        keys_per_s: u64::MAX,
        bytes_per_s: u64::MAX,
        hold_us: u64::MAX,
        last_error: String::new(),
    };
    let migrations = MigrationsReport {
        migrations: vec![migration_row; 16_384],
        draining: Vec::new(),
        limit_mb_s: u32::MAX,
    };
    let row = |partition| PartitionRow {
        partition,
        first_slot: partition,
        last_slot: partition,
        status: "unassigned".to_owned(),
        epoch: u64::MAX,
        node: Some("x".repeat(NAME_BYTES_MAX)),
        shard: Some(u16::MAX),
    };
    let rows = (0..16_384).map(row).collect();
    for answer in [
        Answer::Table(Box::new(TableUpdate::Full(view))),
        Answer::Table(Box::new(TableUpdate::Delta(delta))),
        Answer::Operator {
            id: u64::MAX,
            report: Box::new(Report::Partitions(rows)),
        },
        Answer::Operator {
            id: u64::MAX,
            report: Box::new(Report::Migrations(migrations)),
        },
    ] {
        let payload = answer.encode().expect("fits");
        assert!(
            payload.len() < limits::FRAME_PAYLOAD_BYTES_MAX / 2,
            "{} bytes",
            payload.len()
        );
        assert_eq!(Answer::decode(&payload).expect("our own"), answer);
    }
    let hosting = Request::Hosting {
        node: NodeId([1; 16]),
        copies: (0..16_384)
            .map(|p| (PartitionId(p), Epoch(u64::MAX)))
            .collect(),
    };
    let payload = hosting.encode().expect("fits");
    assert_eq!(Request::decode(&payload).expect("our own"), hosting);
}

/// What these messages look like on the wire must not change within a version of the protocol.
#[test]
fn messages_look_like_this() {
    let request = Request::Started {
        node: NodeId([1; 16]),
        incarnation: 300,
    };
    let golden = [&[2][..], &[1; 16], &[0xac, 0x02]].concat();
    assert_eq!(request.encode().expect("fits"), golden);
    let confirmation = Confirmation {
        count: 300,
        digest: [1, 2],
    };
    let steps = [
        Step::Begin,
        Step::Commit(vec![(MigrationId(9), confirmation)]),
        Step::Abort("no".to_owned()),
    ];
    let request = Request::Steps {
        node: NodeId([1; 16]),
        incarnation: 7,
        steps: (8..).map(MigrationId).zip(steps).collect(),
    };
    let steps: &[u8] = &[3, 8, 0, 9, 1, 1, 9, 0xac, 0x02, 1, 2, 10, 2, 2, b'n', b'o'];
    let golden = [&[5][..], &[1; 16], &[7], steps].concat();
    assert_eq!(request.encode().expect("fits"), golden);
    let answer = Answer::Heartbeat(HeartbeatAnswer {
        incarnation: 1,
        sent_ms: 128,
        lease_ms: 1_000,
        table_version: 9,
        status: Some(MemberStatus::Live),
    });
    let golden = [3, 1, 0x80, 1, 0xe8, 7, 9, 1, 1];
    assert_eq!(answer.encode().expect("fits"), golden);
    let answer = Answer::NotLeader(Some((RaftId(2), "b:1".to_owned())));
    assert_eq!(answer.encode().expect("fits"), *b"\x02\x01\x02\x03b:1");
    let answer = Answer::Refused(Refusal::NotBootstrapped);
    assert_eq!(answer.encode().expect("fits"), [1, 0]);
}

#[test]
fn what_is_cut_off_or_continued_is_refused() {
    let payload = Request::Register(registration(1)).encode().expect("fits");
    for cut in 0..payload.len() {
        assert!(Request::decode(&payload[..cut]).is_err(), "{cut} bytes");
    }
    let longer = [&payload[..], &[0]].concat();
    assert!(matches!(
        Request::decode(&longer),
        Err(ProtocolError::Trailing(1))
    ));
}

fn raft_message() -> raft::prelude::Message {
    let mut message = raft::prelude::Message::default();
    message.set_msg_type(MessageType::MsgAppend);
    (message.from, message.to, message.term) = (1, 2, 3);
    let entry = Entry {
        index: 4,
        term: 3,
        // Looks like a group, and is none: what commands are is not raft's concern.
        data: vec![0xfb, 0x01, 0xfb, 0x01].into(),
        ..Entry::default()
    };
    message.set_entries(vec![entry].into());
    let mut snapshot = Snapshot {
        data: vec![0xfb, 0x01].into(),
        ..Snapshot::default()
    };
    snapshot.mut_metadata().mut_conf_state().voters = vec![1, 2, 3];
    message.set_snapshot(snapshot);
    message
}

#[test]
fn messages_of_raft_come_back_and_groups_are_refused() {
    let message = raft_message();
    let payload = encode_raft(&message).expect("fits");
    assert_eq!(decode_raft(&payload).expect("our own"), message);
    let group: &[u8] = &[0xfb, 0x01];
    let deep = group.repeat(500_000);
    assert!(matches!(decode_raft(&deep), Err(ProtocolError::Groups)));
    // Inside an entry, a snapshot, its metadata, its members.
    let within = |field: u8, inner: &[u8]| [&[field << 3 | 2, inner.len() as u8], inner].concat();
    let inner = group.repeat(20);
    let metadata = within(2, &within(1, &inner));
    for nested in [
        within(7, &inner),
        within(9, &inner),
        within(9, &within(2, &inner)),
        within(9, &metadata),
    ] {
        let long = [&payload[..], &nested].concat();
        assert!(
            matches!(decode_raft(&long), Err(ProtocolError::Groups)),
            "{nested:?}"
        );
    }
}

#[test]
fn lists_longer_than_a_node_can_have_are_refused() {
    let node = NodeId([1; 16]);
    let hosting = |count: u16| Request::Hosting {
        node,
        copies: (0..count).map(|p| (PartitionId(p), Epoch(1))).collect(),
    };
    let steps = |count: u16| Request::Steps {
        node,
        incarnation: 1,
        steps: (0..count)
            .map(|id| (MigrationId(id.into()), Step::Begin))
            .collect(),
    };
    let progress = |count: u16| Request::Progress {
        node,
        incarnation: 1,
        progress: (0..count)
            .map(|id| (MigrationId(id.into()), Progress::default()))
            .collect(),
    };
    let commit = |count: u64| {
        let confirmations = (0..count).map(|id| (MigrationId(id), Confirmation::default()));
        Request::Steps {
            node,
            incarnation: 1,
            steps: vec![(MigrationId(0), Step::Commit(confirmations.collect()))],
        }
    };
    let (slots, streams) = (limits::SLOTS, limits::STREAM_OPENS_MAX);
    for most in [
        hosting(slots),
        steps(slots),
        progress(slots),
        commit(streams),
    ] {
        let payload = most.encode().expect("fits");
        assert_eq!(Request::decode(&payload).expect("our own"), most);
    }
    for more in [
        hosting(slots + 1),
        steps(slots + 1),
        progress(slots + 1),
        commit(streams + 1),
    ] {
        let payload = more.encode().expect("fits");
        let error = Request::decode(&payload).expect_err("out of bounds");
        assert!(matches!(error, ProtocolError::Encoding(_)), "{error}");
    }
    // So many are told to come, and take no room before they have.
    let endless = [&[3][..], &[1; 16], &[0xff; 9], &[1]].concat();
    assert!(Request::decode(&endless).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_or_are_a_message(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(request) = Request::decode(&bytes) {
            let again = Request::decode(&request.encode().expect("no longer")).expect("our own");
            prop_assert_eq!(again, request);
        }
        if let Ok(answer) = Answer::decode(&bytes) {
            let again = Answer::decode(&answer.encode().expect("no longer")).expect("our own");
            prop_assert_eq!(again, answer);
        }
        drop(decode_raft(&bytes));
    }

    #[test]
    fn a_damaged_message_never_panics(
        at in 0usize..400,
        byte in any::<u8>(),
    ) {
        let mut view = largest();
        view.table.entries.truncate(3);
        view.members = view.members.into_iter().take(2).collect();
        view.coordinators = BTreeMap::new();
        view.migrations.active = view.migrations.active.into_iter().take(2).collect();
        view.migrations.arrivals = view.migrations.arrivals.into_iter().take(2).collect();
        let full = Answer::Table(Box::new(TableUpdate::Full(view)));
        let mut payload = full.encode().expect("fits");
        let place = at % payload.len();
        payload[place] = byte;
        drop(Answer::decode(&payload));
        let mut payload = encode_raft(&raft_message()).expect("fits");
        let place = at % payload.len();
        payload[place] = byte;
        drop(decode_raft(&payload));
    }
}

#[test]
fn coordinators_come_back_and_have_bounds() {
    let named = |count: usize, bytes: usize| {
        let ids = (1..=count as u64).map(RaftId);
        Coordinators(ids.map(|id| (id, "x".repeat(bytes))).collect())
    };
    let most = named(COORDINATORS_MAX, ADDRESS_BYTES_MAX);
    let payload = most.encode().expect("fits");
    assert_eq!(Coordinators::decode(&payload).expect("our own"), most);
    for unlikely in [
        named(COORDINATORS_MAX + 1, 1),
        named(1, ADDRESS_BYTES_MAX + 1),
    ] {
        let payload = unlikely.encode().expect("fits");
        let error = Coordinators::decode(&payload).expect_err("out of bounds");
        assert!(matches!(error, ProtocolError::Coordinators), "{error}");
    }
}

#[test]
fn refusals_come_back_and_have_bounds() {
    let counts = [("not_a_peer", 7), ("secret", u64::MAX)];
    let counts = counts.map(|(name, count)| (name.to_owned(), count));
    let refusals = Refusals(counts.into());
    assert_eq!(refusals.total(), u64::MAX);
    let payload = refusals.encode().expect("fits");
    assert_eq!(Refusals::decode(&payload).expect("our own"), refusals);
    let many = Refusals((0..65).map(|n| (n.to_string(), 1)).collect());
    let long = Refusals([("x".repeat(65), 1)].into());
    for unlikely in [many, long] {
        let payload = unlikely.encode().expect("fits");
        let error = Refusals::decode(&payload).expect_err("out of bounds");
        assert!(matches!(error, ProtocolError::Refusals), "{error}");
    }
}
