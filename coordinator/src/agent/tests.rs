use ephesus_wire::table::{PartitionEntry, PartitionStatus, PartitionTable, Replica, Role};
use ephesus_wire::{NodeId, ShardId};

use super::*;
use crate::command::{Addresses, ClusterOptions, RaftId};
use crate::liveness::HEARTBEAT_MS;
use crate::migration::{Confirmation, Migration, MigrationTable, Phase, Purpose};
use crate::placement::{Place, Policy};
use crate::protocol::Heartbeat;
use crate::view::Delta;

const NODE: NodeId = NodeId([1; 16]);
const CLUSTER: ClusterId = ClusterId([7; 16]);

fn agent() -> Agent {
    Agent::new(AgentOptions {
        start: None,
        registration: Registration {
            node: NODE,
            cluster: None,
            name: "athens".to_owned(),
            incarnation: 3,
            addresses: Addresses {
                entry: "a:1".to_owned(),
                tls_port: None,
                peer: "a:2".to_owned(),
                rack: String::new(),
            },
            shards: 1,
            capacity: crate::state::CAPACITY_DEFAULT,
            speaks: crate::protocol::VERSIONS,
        },
        coordinators: ["x:1", "y:1", "z:1"].map(str::to_owned).to_vec(),
        seed: 1,
        is_sole: false,
    })
}

/// The connection an agent asks for, and where.
fn connects(actions: &[AgentAction]) -> Option<(ConnectionId, String)> {
    actions.iter().find_map(|action| match action {
        AgentAction::Connect {
            connection,
            address,
        } => Some((*connection, address.clone())),
        _ => None,
    })
}

fn sent(actions: &[AgentAction]) -> Vec<Request> {
    let request = |action: &AgentAction| match action {
        AgentAction::Send(_, request) => Some(request.clone()),
        _ => None,
    };
    actions.iter().filter_map(request).collect()
}

fn heartbeats(actions: &[AgentAction]) -> Vec<Heartbeat> {
    let heartbeat = |request| match request {
        Request::Heartbeat(heartbeat, _) => Some(heartbeat),
        _ => None,
    };
    sent(actions).into_iter().filter_map(heartbeat).collect()
}

/// An agent that has joined at `now_ms`, and its connection.
fn joined(now_ms: u64) -> (Agent, ConnectionId) {
    let mut agent = agent();
    let (connection, _) = connects(&agent.turn([], now_ms)).expect("connects at once");
    let actions = agent.turn([AgentEvent::Connected(connection)], now_ms);
    assert!(matches!(sent(&actions)[..], [Request::Register(_)]));
    let actions = agent.turn([registered(connection)], now_ms);
    assert!(matches!(actions[0], AgentAction::Registered(CLUSTER)));
    assert_eq!(heartbeats(&actions).len(), 1);
    (agent, connection)
}

fn registered(connection: ConnectionId) -> AgentEvent {
    let answer = Answer::Registered {
        cluster: CLUSTER,
        incarnation: 3,
    };
    AgentEvent::Answer(connection, answer)
}

fn heard(connection: ConnectionId, sent_ms: u64, status: Option<MemberStatus>) -> AgentEvent {
    let answer = HeartbeatAnswer {
        incarnation: 3,
        sent_ms,
        lease_ms: 1_000,
        table_version: 5,
        status,
    };
    AgentEvent::Answer(connection, Answer::Heartbeat(answer))
}

fn view(version: u64, status: PartitionStatus) -> View {
    let entry = PartitionEntry {
        epoch: Epoch(2),
        status,
        replicas: vec![Replica {
            node: NODE,
            shard: ShardId(0),
            role: Role::Primary,
            in_sync: true,
        }],
    };
    View {
        cluster: CLUSTER,
        options: ClusterOptions {
            partitions: 2,
            min_nodes: 1,
            policy: Policy::Contiguous,
            heartbeat_timeout_ms: 2_000,
        },
        coordinators: BTreeMap::from([(RaftId(9), "w:1".to_owned())]),
        members: BTreeMap::new(),
        table: PartitionTable {
            version,
            entries: vec![entry; 2],
        },
        migrations: MigrationTable::default(),
    }
}

fn full(connection: ConnectionId, view: View) -> AgentEvent {
    AgentEvent::Answer(connection, Answer::Table(Box::new(TableUpdate::Full(view))))
}

#[test]
fn a_lease_counts_from_when_the_heartbeat_was_sent() {
    let (mut agent, connection) = joined(10_000);
    assert!(!agent.holds_lease(10_000));
    // The answer takes 700 ms.
    let live = Some(MemberStatus::Live);
    agent.turn([], 10_200);
    agent.turn([heard(connection, 10_000, live)], 10_700);
    assert!(agent.holds_lease(10_999) && !agent.holds_lease(11_000));
    agent.turn([heard(connection, 10_200, live)], 10_701);
    agent.turn([heard(connection, 10_000, live)], 10_702);
    assert_eq!(
        agent.lease_until_ms(),
        11_200,
        "an older answer takes nothing away"
    );
    agent.turn([heard(connection, 99_000, live)], 10_703);
    assert_eq!(agent.lease_until_ms(), 11_200, "it was never sent");
    let other = HeartbeatAnswer {
        incarnation: 2,
        sent_ms: 10_700,
        lease_ms: 1_000,
        table_version: 0,
        status: live,
    };
    agent.turn(
        [AgentEvent::Answer(connection, Answer::Heartbeat(other))],
        10_704,
    );
    assert_eq!(agent.lease_until_ms(), 11_200, "that was another start");
}

#[test]
fn a_start_is_confirmed_once_by_an_answer_behind_those_to_its_registration() {
    let (mut agent, connection) = joined(1_000);
    let confirmed = |actions: &[AgentAction]| {
        let is_confirmed = |action: &&AgentAction| matches!(action, AgentAction::Confirmed);
        actions.iter().filter(is_confirmed).count()
    };
    // A table that names this start may come before what is said of the start itself.
    let events = vec![full(connection, view(5, PartitionStatus::Online))];
    assert_eq!(confirmed(&agent.turn(events, 1_001)), 0);
    let known = vec![heard(connection, 1_000, Some(MemberStatus::Starting))];
    assert_eq!(confirmed(&agent.turn(known, 1_003)), 1);
    let again = vec![heard(connection, 1_000, Some(MemberStatus::Live))];
    assert_eq!(confirmed(&agent.turn(again, 1_004)), 0);
}

#[test]
fn heartbeats_leave_every_200_ms() {
    let (mut agent, connection) = joined(1_000);
    let mut times = Vec::new();
    let mut now = 1_000;
    while now < 3_000 {
        now = agent.next_turn_ms().max(now + 1);
        let actions = agent.turn([], now);
        for heartbeat in heartbeats(&actions) {
            assert_eq!(heartbeat.sent_ms, now);
            times.push(now);
            agent.turn(
                [heard(
                    connection,
                    now,
                    None.or(Some(MemberStatus::Starting)),
                )],
                now,
            );
        }
    }
    let steps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps, vec![HEARTBEAT_MS; steps.len()]);
    assert!(steps.len() >= 8);
}

#[test]
fn a_silent_coordinator_is_left_for_another() {
    let (mut agent, connection) = joined(1_000);
    assert!(connects(&agent.turn([], 999 + ANSWER_MS_MAX)).is_none());
    let actions = agent.turn([], 1_000 + ANSWER_MS_MAX);
    assert!(matches!(actions[0], AgentAction::Close(closed) if closed == connection));
    let (next, _) = connects(&actions).expect("the first try is at once");
    assert!(next > connection);
    // What the old one still says does not matter.
    agent.turn([heard(connection, 1_200, Some(MemberStatus::Live))], 1_301);
    assert!(!agent.holds_lease(1_301));
}

#[test]
fn followers_lead_to_the_leader() {
    let mut agent = agent();
    let (connection, _) = connects(&agent.turn([], 0)).expect("connects");
    agent.turn([AgentEvent::Connected(connection)], 1);
    let hint = Answer::NotLeader(Some((RaftId(2), "leader:1".to_owned())));
    let actions = agent.turn([AgentEvent::Answer(connection, hint)], 2);
    let (_, address) = connects(&actions).expect("at once");
    assert_eq!(address, "leader:1");
}

#[test]
fn a_coordinator_that_fell_silent_is_not_believed_to_lead_for_a_moment() {
    let (mut agent, connection) = joined(1_000);
    let silent = agent.address.clone();
    let now = 1_000 + ANSWER_MS_MAX;
    let actions = agent.turn([], now);
    let mut left = actions.iter();
    assert!(left.any(|action| matches!(action, AgentAction::Close(c) if *c == connection)));
    let (mut now, mut tried) = (now, connects(&actions));
    let follower = Answer::NotLeader(Some((RaftId(1), silent.clone())));
    loop {
        let Some((connection, address)) = tried else {
            now = agent.next_turn_ms();
            tried = connects(&agent.turn([], now));
            continue;
        };
        if address == silent {
            break;
        }
        agent.turn([AgentEvent::Connected(connection)], now);
        tried = connects(&agent.turn([AgentEvent::Answer(connection, follower.clone())], now));
    }
    let since = now - (1_000 + ANSWER_MS_MAX);
    assert!(
        (20..=2 * ANSWER_MS_MAX).contains(&since),
        "after {since} ms"
    );
}

#[test]
fn retries_slow_down_and_reach_every_coordinator() {
    let mut agent = agent();
    let (mut now, mut tries) = (0, Vec::new());
    while now < 20_000 {
        let mut actions = agent.turn([], now);
        while let Some((connection, address)) = connects(&actions) {
            tries.push((now, address));
            now += 1;
            actions = agent.turn([AgentEvent::Closed(connection)], now);
        }
        now = agent.next_turn_ms().max(now + 1);
    }
    let mut first: Vec<&str> = tries[..3]
        .iter()
        .map(|(_, address)| address.as_str())
        .collect();
    first.sort_unstable();
    assert_eq!(first, ["x:1", "y:1", "z:1"]);
    let waits: Vec<u64> = tries.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(waits[..5].iter().all(|wait| *wait <= 60), "{waits:?}");
    let last = &waits[waits.len() - 8..];
    assert!(
        last.iter().all(|wait| (500..=1_010).contains(wait)),
        "{waits:?}"
    );
    assert!(
        last.iter().any(|wait| *wait != last[0]),
        "they jitter: {waits:?}"
    );
}

#[test]
fn what_the_table_does_not_show_is_said_again() {
    let (mut agent, connection) = joined(1_000);
    agent.started();
    let copies = BTreeMap::from([(PartitionId(0), Epoch(2)), (PartitionId(1), Epoch(1))]);
    agent.set_hosted(copies);
    agent.turn(
        [full(connection, view(5, PartitionStatus::Assigned))],
        1_001,
    );
    let hosts = [(PartitionId(0), Epoch(2))];
    let is_started = |request: &Request| matches!(request, Request::Started { .. });
    let is_hosting =
        |request: &Request| matches!(request, Request::Hosting { copies, .. } if *copies == hosts);
    let mut answered = 1_000;
    let mut said_at = vec![1_001];
    for now in 1_002..16_000 {
        let starting = heard(connection, answered, Some(MemberStatus::Starting));
        let actions = agent.turn([starting], now);
        answered = heartbeats(&actions).first().map_or(answered, |h| h.sent_ms);
        let requests = sent(&actions);
        assert_eq!(
            requests.iter().any(is_started),
            requests.iter().any(is_hosting)
        );
        if requests.iter().any(is_started) {
            said_at.push(now);
        }
    }
    let waits: Vec<u64> = said_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longest = [500, 1_000, 2_000, 4_000, 4_000];
    assert!(waits.len() >= longest.len(), "{waits:?}");
    for (wait, longest) in waits.iter().zip(longest) {
        assert!((longest / 2..=longest).contains(wait), "{waits:?}");
    }
    let online = full(connection, view(6, PartitionStatus::Online));
    agent.turn(
        [
            online,
            heard(connection, answered, Some(MemberStatus::Live)),
        ],
        16_000,
    );
    for now in 16_001..21_000 {
        let live = heard(connection, answered, Some(MemberStatus::Live));
        let requests = sent(&agent.turn([live], now));
        assert!(!requests.iter().any(|r| is_started(r) || is_hosting(r)));
    }
}

#[test]
fn updates_that_do_not_fit_are_dropped() {
    let (mut agent, connection) = joined(1_000);
    let delta = |from, to| {
        let delta = Delta {
            from,
            to,
            coordinators: None,
            members: Vec::new(),
            partitions: Vec::new(),
            last_migration: MigrationId(0),
            migrations: vec![],
            arrivals: vec![],
            limit_mb_s: 0,
        };
        AgentEvent::Answer(
            connection,
            Answer::Table(Box::new(TableUpdate::Delta(delta))),
        )
    };
    let version = |agent: &Agent| agent.view().map(|view| view.version());
    agent.turn([delta(0, 4)], 1_001);
    assert_eq!(version(&agent), None, "there is nothing it could fit");
    let actions = agent.turn([full(connection, view(5, PartitionStatus::Online))], 1_002);
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, AgentAction::Table))
    );
    for (event, expected) in [
        (delta(6, 7), 5),
        (delta(4, 5), 5),
        (delta(4, 6), 5),
        (delta(5, 6), 6),
        (delta(5, 6), 6),
        (full(connection, view(6, PartitionStatus::Online)), 6),
        (full(connection, view(9, PartitionStatus::Online)), 9),
    ] {
        agent.turn([event], 1_003);
        assert_eq!(version(&agent), Some(expected));
    }
    let mut short = view(10, PartitionStatus::Online);
    short.table.entries.pop();
    agent.turn([full(connection, short)], 1_004);
    assert_eq!(version(&agent), Some(9));
}

#[test]
fn a_failed_node_registers_again() {
    for status in [None, Some(MemberStatus::Failed)] {
        let (mut agent, connection) = joined(1_000);
        let actions = agent.turn([heard(connection, 1_000, status)], 1_010);
        assert!(
            matches!(sent(&actions)[..], [Request::Register(_)]),
            "{status:?}"
        );
        let actions = agent.turn([registered(connection)], 1_020);
        assert_eq!(heartbeats(&actions).len(), 1);
    }
}

#[test]
fn a_refusal_is_told_and_tried_again() {
    let mut agent = agent();
    let (connection, _) = connects(&agent.turn([], 0)).expect("connects");
    agent.turn([AgentEvent::Connected(connection)], 1);
    let refused = Answer::Refused(Refusal::Removed(NODE));
    let actions = agent.turn([AgentEvent::Answer(connection, refused)], 2);
    let is_told =
        |action: &AgentAction| matches!(action, AgentAction::Refused(Refusal::Removed(NODE)));
    assert!(actions.iter().any(is_told));
    assert!(connects(&actions).is_some(), "at once, the first time");
}

/// Migration 7 of partition 0, from this node.
fn migrating(version: u64, phase: Option<Phase>) -> View {
    let mut view = view(version, PartitionStatus::Migrating);
    let place = |node| Place {
        node,
        shard: ShardId(0),
    };
    let migration = |phase| Migration {
        partition: PartitionId(0),
        epoch: Epoch(2),
        source: place(NODE),
        target: place(NodeId([2; 16])),
        phase,
        attempt: 1,
        purpose: Purpose::Move,
    };
    view.migrations.last = MigrationId(7);
    let active = phase.map(|phase| (MigrationId(7), migration(phase)));
    view.migrations.active = active.into_iter().collect();
    view
}

fn steps(actions: &[AgentAction]) -> Vec<(MigrationId, Step)> {
    let steps = |request| match request {
        Request::Steps {
            node: NODE,
            incarnation: 3,
            steps,
        } => Some(steps),
        _ => None,
    };
    sent(actions)
        .into_iter()
        .filter_map(steps)
        .flatten()
        .collect()
}

#[test]
fn steps_are_repeated_until_the_table_shows_them() {
    let (mut agent, connection) = joined(1_000);
    // What is said within so many turns, 100 ms apart, in which the coordinator answers.
    let said = |agent: &mut Agent, from_ms: u64, turns: u64| {
        let moments = (0..turns).map(|turn| from_ms + turn * 100);
        let turn = |now_ms| {
            let live = heard(connection, now_ms - 1, Some(MemberStatus::Live));
            steps(&agent.turn([live], now_ms))
        };
        moments.flat_map(turn).collect::<Vec<_>>()
    };
    agent.turn(
        [full(connection, migrating(5, Some(Phase::Planned)))],
        1_001,
    );
    let begin = (MigrationId(7), Step::Begin);
    let unknown = (MigrationId(6), Step::Begin);
    agent.set_migration_steps(BTreeMap::from([begin.clone(), unknown]));
    assert!(agent.next_turn_ms() <= 1_001, "there is something to say");
    assert_eq!(said(&mut agent, 1_100, 1), std::slice::from_ref(&begin));
    agent.set_migration_steps(BTreeMap::from([begin.clone()]));
    let repeated = vec![begin.clone(); 2];
    assert_eq!(said(&mut agent, 1_200, 6), repeated, "they were others");
    agent.set_migration_steps(BTreeMap::from([begin]));
    assert_eq!(said(&mut agent, 1_800, 1), [], "nothing new");
    let copying = migrating(6, Some(Phase::Copying));
    agent.turn([full(connection, copying)], 1_900);
    assert_eq!(said(&mut agent, 2_000, 10), [], "it has begun");

    let confirmed = vec![(MigrationId(7), Confirmation::default())];
    let commit = (MigrationId(7), Step::Commit(confirmed));
    agent.set_migration_steps(BTreeMap::from([commit.clone()]));
    let commits = said(&mut agent, 3_000, 11);
    assert!((2..=3).contains(&commits.len()), "{commits:?}");
    assert!(commits.iter().all(|said| *said == commit));
    agent.turn([full(connection, migrating(7, None))], 4_001);
    assert_eq!(said(&mut agent, 4_100, 10), [], "it is decided");
}

#[test]
fn progress_is_reported_every_second() {
    let (mut agent, connection) = joined(1_000);
    let mut reports = Vec::new();
    let progress = Progress {
        keys: 5,
        ..Progress::default()
    };
    agent.set_migration_progress(BTreeMap::from([(MigrationId(7), progress.clone())]));
    for now_ms in (1_001..4_000).step_by(100) {
        let live = heard(connection, now_ms - 1, Some(MemberStatus::Live));
        for request in sent(&agent.turn([live], now_ms)) {
            if let Request::Progress {
                node,
                incarnation,
                progress,
            } = request
            {
                assert_eq!((node, incarnation), (NODE, 3));
                reports.push(progress);
            }
        }
    }
    assert_eq!(reports, vec![vec![(MigrationId(7), progress)]; 3]);
    agent.set_migration_progress(BTreeMap::new());
    let live = heard(connection, 4_000, Some(MemberStatus::Live));
    let last = sent(&agent.turn([live], 4_001));
    assert!(
        last.iter()
            .all(|request| !matches!(request, Request::Progress { .. }))
    );
}

/// What all shards have done, for the next turn.
fn pulse(table_version: u64, turn_ms: u64) -> Pulse {
    Pulse {
        table_version,
        turn_ms: Some(turn_ms),
    }
}

#[test]
fn heartbeats_say_on_which_table_shards_act_and_since_when_one_has_no_turn() {
    let (mut agent, connection) = joined(10_000);
    agent.turn([full(connection, view(5, PartitionStatus::Online))], 10_001);
    let live = Some(MemberStatus::Live);
    let mut beat = |now_ms, pulse| {
        agent.set_pulse(pulse);
        let heartbeat = heartbeats(&agent.turn([], now_ms)).remove(0);
        agent.turn([heard(connection, now_ms, live)], now_ms);
        let Heartbeat {
            acted_version,
            idle_ms,
            is_sole,
            ..
        } = heartbeat;
        (acted_version, idle_ms, is_sole)
    };
    assert_eq!(beat(10_200, Pulse::default()), (0, 0, false), "it recovers");
    assert_eq!(beat(10_400, pulse(4, 10_390)), (4, 10, true), "it had one");
    assert_eq!(beat(10_600, pulse(6, 10_400)), (5, 200, true));
    assert_eq!(beat(10_800, pulse(6, 10_400)), (5, 400, true));
    assert_eq!(beat(11_900, pulse(6, 11_000)), (5, 900, true));
}

#[test]
fn a_lease_that_was_refused_for_an_old_table_is_asked_for_as_soon_as_shards_act_on_the_new_one() {
    let (mut agent, connection) = joined(10_000);
    let answer = |sent_ms, lease_ms| {
        AgentEvent::Answer(
            connection,
            Answer::Heartbeat(HeartbeatAnswer {
                incarnation: 3,
                sent_ms,
                lease_ms,
                table_version: 5,
                status: Some(MemberStatus::Starting),
            }),
        )
    };
    let table = full(connection, view(5, PartitionStatus::Online));
    assert!(heartbeats(&agent.turn([answer(10_000, 0), table], 10_001)).is_empty());
    agent.set_pulse(pulse(4, 10_001));
    let sent = heartbeats(&agent.turn([], 10_002));
    assert_eq!((sent.len(), sent[0].acted_version), (1, 4));
    assert!(
        heartbeats(&agent.turn([], 10_003)).is_empty(),
        "said already"
    );
    // The answer comes when it is out of date.
    agent.set_pulse(pulse(5, 10_003));
    let sent = heartbeats(&agent.turn([answer(10_002, 0)], 10_004));
    assert_eq!((sent.len(), sent[0].acted_version), (1, 5));
    let next = view(6, PartitionStatus::Online);
    agent.turn([answer(10_004, 1_000), full(connection, next)], 10_005);
    agent.set_pulse(pulse(6, 10_005));
    assert!(heartbeats(&agent.turn([], 10_006)).is_empty(), "no hurry");
    assert_eq!(agent.next_turn_ms(), 10_204);
}

#[test]
fn a_failed_node_that_stands_still_registers_once_it_goes_on() {
    let (mut agent, connection) = joined(10_000);
    let mut registers = |now_ms, turn_ms| {
        agent.set_pulse(pulse(0, turn_ms));
        let answer = heard(connection, now_ms, Some(MemberStatus::Failed));
        let sent = sent(&agent.turn([answer], now_ms));
        sent.iter().any(|r| matches!(r, Request::Register(_)))
    };
    assert!(!registers(10_199, 7_000));
    assert!(registers(10_200, 10_150));
}
