use ephesus_wal::{FaultDisk, LogId, LogOptions};
use ephesus_wire::limits::FRAME_PAYLOAD_BYTES_MAX;
use ephesus_wire::{Epoch, PartitionId};
use futures_lite::future::block_on;

use super::*;
use crate::command::{Addresses, ClusterId, ClusterOptions, Nonce};
use crate::load::LoadReport;
use crate::member::founding;
use crate::placement::Policy;
use crate::protocol::{Heartbeat, VERSIONS};
use crate::report::{COORDINATOR_SILENT_MS, Figures, Problem, Query, Report};
use crate::state::{
    ADDRESS_BYTES_MAX, COORDINATORS_MAX, MEMBERS_MAX, NAME_BYTES_MAX, RACK_BYTES_MAX, Refusal,
};
use crate::view::TableUpdate;

/// Coordinators whose messages arrive at once, unless they are cut off.
pub(super) struct World {
    pub(super) coordinators: Vec<Coordinator<FaultDisk>>,
    pub(super) cut_off: Vec<u64>,
    pub(super) now: u64,
    answers: Vec<(SessionId, Answer)>,
    closed: Vec<SessionId>,
}

impl World {
    pub(super) fn new(count: u64) -> World {
        World::with_segments(count, 256 << 10)
    }

    /// With segments of the log of so many bytes; the whole state is one record.
    fn with_segments(count: u64, segment_bytes: u64) -> World {
        let peers: BTreeMap<_, _> = (1..=count)
            .map(|id| (RaftId(id), format!("c{id}:1")))
            .collect();
        let voters: Vec<RaftId> = peers.keys().copied().collect();
        let start = |id: &RaftId| {
            let options = LogOptions {
                segment_bytes,
                group_bytes_max: 64 << 10,
                ..LogOptions::new(LogId([id.0 as u8; 16]))
            };
            let disk = FaultDisk::new(id.0);
            let mut log = block_on(RaftLog::open(disk, &options, 0)).expect("opens");
            block_on(log.persist(&founding(&voters), 0)).expect("writes");
            let founding = Founding {
                cluster: ClusterId([id.0 as u8; 16]),
                options: ClusterOptions {
                    partitions: 16,
                    min_nodes: 1,
                    policy: Policy::Contiguous,
                    heartbeat_timeout_ms: 2_000,
                },
            };
            let options = CoordinatorOptions {
                founding: Some(founding),
                election_ticks: Some(10 + id.0 as usize * 3),
                ..CoordinatorOptions::new(*id, peers.clone(), 1)
            };
            Coordinator::new(options, log).expect("starts")
        };
        let mut world = World {
            coordinators: voters.iter().map(start).collect(),
            cut_off: Vec::new(),
            now: 0,
            answers: Vec::new(),
            closed: Vec::new(),
        };
        for id in &voters {
            for other in voters.iter().filter(|other| *other != id) {
                world.turn(id.0, Some(Event::Introduced(*other, VERSIONS)));
            }
        }
        world
    }

    /// A turn of one coordinator, and of all that it leads to.
    pub(super) fn turn(&mut self, id: u64, event: Option<Event>) {
        let mut todo = vec![(id, event)];
        while let Some((id, event)) = todo.pop() {
            let coordinator = &mut self.coordinators[id as usize - 1];
            let mut sent = Vec::new();
            let turn = coordinator.turn(event, self.now, 0, |action| sent.push(action));
            let actions = block_on(turn).expect("runs");
            for action in sent.into_iter().chain(actions) {
                match action {
                    Action::Answer(session, answer) => self.answers.push((session, answer)),
                    Action::AnswerAll(sessions, answer) => {
                        let each = sessions
                            .into_iter()
                            .map(|session| (session, answer.clone()));
                        self.answers.extend(each);
                    }
                    Action::Close(session) => self.closed.push(session),
                    Action::Plan(job) => {
                        let event = Event::Planned(Box::new(job.run()));
                        todo.push((id, Some(event)));
                    }
                    Action::Coordinators {
                        to, coordinators, ..
                    } => {
                        let event = Event::Coordinators(RaftId(id), coordinators);
                        todo.push((to.0, Some(event)));
                    }
                    Action::Raft {
                        to,
                        message,
                        address,
                    } => {
                        assert_eq!(address, Some(format!("c{to}:1")));
                        if !self.cut_off.contains(&id) && !self.cut_off.contains(&to.0) {
                            todo.push((to.0, Some(Event::Raft(message))));
                        }
                    }
                }
            }
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += 10;
            for id in 1..=self.coordinators.len() as u64 {
                if self.coordinators[id as usize - 1].next_turn_ms() <= self.now {
                    self.turn(id, None);
                }
            }
        }
    }

    pub(super) fn leader(&self) -> u64 {
        self.newest_leader().expect("one leads")
    }

    fn newest_leader(&self) -> Option<u64> {
        let members = (1..)
            .zip(&self.coordinators)
            .map(|(id, c)| (id, c.member()));
        let settled = members.filter(|(_, member)| member.is_settled());
        let newest = settled.max_by_key(|(_, member)| member.term());
        newest.map(|(id, _)| id)
    }

    pub(super) fn others(&self, than: u64) -> Vec<u64> {
        let ids = 1..=self.coordinators.len() as u64;
        ids.filter(|id| *id != than).collect()
    }

    pub(super) fn say(&mut self, id: u64, session: u64, request: Request) {
        self.turn(id, Some(Event::Request(SessionId(session), request)));
    }

    pub(super) fn told(&mut self) -> Vec<(u64, Answer)> {
        let answers = self.answers.drain(..);
        answers
            .map(|(session, answer)| (session.0, answer))
            .collect()
    }

    /// What a session is told about tables.
    fn tables(&mut self, of: u64) -> Vec<TableUpdate> {
        let table = |(session, answer)| match answer {
            Answer::Table(update) if session == of => Some(*update),
            _ => None,
        };
        self.told().into_iter().filter_map(table).collect()
    }
}

pub(super) fn id(n: u8) -> NodeId {
    NodeId([n; 16])
}

pub(super) fn register(n: u8) -> Request {
    Request::Register(Registration {
        node: id(n),
        cluster: None,
        name: format!("node-{n}"),
        incarnation: 1,
        addresses: Addresses {
            entry: format!("n{n}:1"),
            tls_port: None,
            peer: format!("n{n}:2"),
            rack: String::new(),
        },
        shards: 1,
        capacity: crate::state::CAPACITY_DEFAULT,
        speaks: crate::protocol::VERSIONS,
    })
}

pub(super) fn heartbeat(n: u8, sent_ms: u64, table_version: u64) -> Request {
    let heartbeat = Heartbeat {
        node: id(n),
        incarnation: 1,
        sent_ms,
        table_version,
        acted_version: table_version,
        idle_ms: 0,
        is_sole: true,
        figures: Figures::default(),
    };
    Request::Heartbeat(heartbeat, LoadReport::default())
}

fn lease(answers: &[(u64, Answer)], of: u64) -> Option<u32> {
    answers
        .iter()
        .rev()
        .find_map(|(session, answer)| match answer {
            Answer::Heartbeat(answer) if *session == of => Some(answer.lease_ms),
            _ => None,
        })
}

#[test]
fn one_coordinator_founds_its_cluster_at_once() {
    let mut world = World::new(1);
    world.pass(60);
    assert_eq!(
        world.coordinators[0].state().cluster(),
        Some(ClusterId([1; 16]))
    );
    world.say(1, 5, register(1));
    let told = world.told();
    let registered = Answer::Registered {
        cluster: ClusterId([1; 16]),
        incarnation: 1,
    };
    assert_eq!(told, [(5, registered.clone())]);
    // How much moves at a time is decided meanwhile.
    world.pass(60);
    let committed = world.coordinators[0].member().committed();
    world.say(1, 6, register(1));
    assert_eq!(world.told(), [(6, registered)]);
    assert_eq!(world.closed, [SessionId(5)], "a node has one connection");
    assert_eq!(
        world.coordinators[0].member().committed(),
        committed,
        "nothing to decide"
    );
    world.say(1, 6, heartbeat(1, 77, 0));
    world.pass(100);
    assert_eq!(lease(&world.told(), 6), Some(0), "it knows no table");
    let version = world.coordinators[0].state().table().version;
    world.say(1, 6, heartbeat(1, 78, version));
    world.pass(100);
    assert_eq!(lease(&world.told(), 6), Some(1_000));
}

#[test]
fn nodes_are_as_many_as_the_state_has_room_for() {
    let mut world = World::with_segments(1, 16 << 20);
    world.pass(60);
    let registration = |n: usize| {
        let mut node = [0xff; 16];
        node[..8].copy_from_slice(&(n as u64).to_be_bytes());
        Registration {
            node: NodeId(node),
            cluster: None,
            name: format!("{n:0NAME_BYTES_MAX$}"),
            incarnation: u64::MAX,
            addresses: Addresses {
                entry: "x".repeat(ADDRESS_BYTES_MAX),
                tls_port: Some(u16::MAX),
                peer: "x".repeat(ADDRESS_BYTES_MAX),
                rack: "x".repeat(RACK_BYTES_MAX),
            },
            shards: 1,
            capacity: crate::state::CAPACITY_DEFAULT,
            speaks: VERSIONS,
        }
    };
    let register = |n| {
        let request = Request::RegisterStart {
            registration: registration(n),
            start: StartProof {
                nonce: Nonce([0xff; 16]),
                previous: None,
                accepts_old: false,
            },
        };
        Event::Request(SessionId(n as u64), request)
    };
    let turn = world.coordinators[0].turn((0..MEMBERS_MAX).map(register), world.now, 0, |_| {});
    block_on(turn).expect("runs");
    let state = world.coordinators[0].state();
    assert_eq!(state.members().len(), MEMBERS_MAX);
    let bytes = state.to_snapshot().len();
    assert!(bytes < FRAME_PAYLOAD_BYTES_MAX / 5, "{bytes} bytes");
    world.turn(1, Some(register(MEMBERS_MAX)));
    let refused = Answer::Refused(Refusal::TooManyNodes);
    assert_eq!(world.told(), [(MEMBERS_MAX as u64, refused)]);
    world.turn(1, Some(register(0)));
    let told = world.told();
    assert!(
        matches!(told[0], (0, Answer::Registered { .. })),
        "it is a member: {told:?}"
    );
    assert_eq!(world.coordinators[0].state().members().len(), MEMBERS_MAX);
}

#[test]
fn addresses_that_break_replies_are_refused() {
    let mut world = World::new(1);
    world.pass(60);
    for wrong in ["a\r\n+x:1", "a b:1", "\u{e4}:1", ""] {
        for is_entry in [true, false] {
            let Request::Register(mut registration) = register(1) else {
                panic!("a registration");
            };
            let addresses = &mut registration.addresses;
            let address = match is_entry {
                true => &mut addresses.entry,
                false => &mut addresses.peer,
            };
            wrong.clone_into(address);
            world.say(1, 1, Request::Register(registration));
            let refused = Answer::Refused(Refusal::Address);
            assert_eq!(world.told(), [(1, refused)], "{wrong:?}");
        }
    }
    assert!(world.coordinators[0].state().members().is_empty());
}

#[test]
fn a_second_node_ends_that_the_one_around_the_coordinator_needs_no_lease() {
    let mut world = World::new(1);
    world.coordinators[0].host = Some(id(1));
    world.pass(60);
    world.say(1, 5, register(1));
    assert!(world.coordinators[0].has_only_its_host());
    world.say(1, 6, register(2));
    assert!(world.coordinators[0].is_alone(), "nobody else votes");
    assert!(!world.coordinators[0].has_only_its_host());
}

/// How many turns a coordinator takes in 900 ms in which nothing happens.
fn turns_at_rest(world: &mut World, id: u64) -> usize {
    let mut due = std::collections::BTreeSet::new();
    for _ in 0..90 {
        due.insert(world.coordinators[id as usize - 1].next_turn_ms());
        world.pass(10);
    }
    due.len() - 1
}

#[test]
fn one_that_is_alone_rests_while_there_is_nothing_to_do() {
    let (mut one, mut three) = (World::new(1), World::new(3));
    one.pass(2_000);
    three.pass(2_000);
    assert_eq!(turns_at_rest(&mut one, 1), 10);
    let leader = three.leader();
    assert_eq!(turns_at_rest(&mut three, leader), 30);
    one.say(1, 5, register(1));
    let next_ms = one.coordinators[0].next_turn_ms();
    assert!(next_ms <= one.now + TICK_MS, "more may follow from it");
}

#[test]
fn followers_name_the_leader() {
    let mut world = World::new(3);
    world.say(2, 1, register(1));
    assert_eq!(world.told(), [(1, Answer::NotLeader(None))]);
    world.pass(2_000);
    let leader = world.leader();
    let follower = leader % 3 + 1;
    let hint = Some((RaftId(leader), format!("c{leader}:1")));
    world.told();
    for request in [register(1), heartbeat(1, 1, 1)] {
        world.say(follower, 1, request);
        assert_eq!(world.told(), [(1, Answer::NotLeader(hint.clone()))]);
    }
    let query = Query::Status;
    world.say(follower, 9, Request::Operator { id: 4, query });
    let report = Box::new(Report::NotLeader(hint));
    assert_eq!(world.told(), [(9, Answer::Operator { id: 4, report })]);
}

#[test]
fn a_leader_whose_process_has_ended_is_replaced_at_once() {
    for count in [3, 5] {
        let mut world = World::new(count);
        world.pass(2_000);
        let lost = world.leader();
        world.cut_off = vec![lost];
        for other in world.others(lost) {
            world.turn(other, Some(Event::Lost(RaftId(lost))));
            world.say(other, other, register(1));
            let told = world.told();
            assert!(
                matches!(told[..], [(_, Answer::NotLeader(None))]),
                "{told:?}"
            );
        }
        world.pass(4 * TICK_MS);
        assert_ne!(world.leader(), lost, "of {count}");
    }
}

#[test]
fn a_leader_that_has_only_lost_a_link_stays() {
    let mut world = World::new(3);
    world.pass(2_000);
    let leader = world.leader();
    let term = world.coordinators[0].member().term();
    for other in world.others(leader) {
        world.turn(other, Some(Event::Lost(RaftId(leader))));
        world.pass(1_000);
        assert_eq!(world.leader(), leader);
        let terms = world.coordinators.iter().map(|c| c.member().term());
        assert!(terms.into_iter().all(|found| found == term));
        world.turn(leader, Some(Event::Lost(RaftId(other))));
    }
}

#[test]
fn a_leader_that_is_to_stop_hands_over() {
    let mut world = World::new(3);
    world.pass(2_000);
    let first = world.leader();
    world.cut_off = vec![first % 3 + 1];
    world.pass(1_000);
    world.say(first, 1, register(1));
    world.told();
    world.turn(first, Some(Event::StepAside));
    let next = (first + 1) % 3 + 1;
    assert_eq!(world.leader(), next, "the one that is there");
    let member = world.coordinators[first as usize - 1].member();
    assert_eq!(member.leader(), Some(RaftId(next)));
    let told = world.told();
    assert!(matches!(told[..], [(1, Answer::NotLeader(_))]), "{told:?}");
}

#[test]
fn a_leader_that_has_fallen_silent_is_not_named() {
    let mut world = World::new(3);
    world.pass(2_000);
    let leader = world.leader();
    world.cut_off = vec![leader];
    world.pass(11 * TICK_MS);
    assert_eq!(world.leader(), leader, "nobody stands for election yet");
    for other in world.others(leader) {
        world.say(other, 1, register(1));
    }
    let told = world.told();
    let nobody = (1, Answer::NotLeader(None));
    assert_eq!(told, [nobody.clone(), nobody]);
}

#[test]
fn a_leader_that_is_cut_off_grants_no_lease_and_leaves_nobody_waiting() {
    let mut world = World::new(3);
    world.pass(2_000);
    let leader = world.leader();
    world.say(leader, 1, register(1));
    world.pass(100);
    let coordinator = &world.coordinators[leader as usize - 1];
    let version = coordinator.state().table().version;
    world.say(leader, 1, heartbeat(1, 1, version));
    world.pass(100);
    assert_eq!(lease(&world.told(), 1), Some(1_000));
    world.cut_off = vec![leader];
    world.say(leader, 1, heartbeat(1, 2, 0));
    for (id, query) in [
        (7, Query::Status),
        (
            8,
            Query::RemoveNode {
                node: "node-1".to_owned(),
                lose_data: false,
            },
        ),
    ] {
        world.say(leader, 9, Request::Operator { id, query });
    }
    world.pass(3_000);
    let told = world.told();
    assert_eq!(lease(&told, 1), None);
    assert!(told.contains(&(1, Answer::NotLeader(None))), "{told:?}");
    let mut answered: Vec<u64> = Vec::new();
    for (session, answer) in told {
        if let Answer::Operator { id, report } = answer {
            assert!(session == 9 && matches!(*report, Report::NotLeader(_) | Report::TimedOut));
            answered.push(id);
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, [7, 8]);
}

#[test]
fn tables_are_pushed_whole_once_and_then_as_deltas() {
    let mut world = World::new(1);
    world.pass(60);
    world.say(1, 1, register(1));
    assert_eq!(world.tables(1), [], "it has not said yet what it has");
    world.say(1, 1, heartbeat(1, 1, 0));
    let tables = world.tables(1);
    let [TableUpdate::Full(view)] = &tables[..] else {
        panic!("{tables:?}");
    };
    let held = view.version();
    world.say(1, 1, heartbeat(1, 2, held));
    let copies = vec![
        (PartitionId(3), Epoch(1)),
        (PartitionId(4), Epoch(1)),
        (PartitionId(5), Epoch(9)),
    ];
    world.say(
        1,
        1,
        Request::Hosting {
            node: id(1),
            copies,
        },
    );
    let tables = world.tables(1);
    let [TableUpdate::Delta(delta)] = &tables[..] else {
        panic!("{tables:?}");
    };
    assert_eq!(
        (delta.from, delta.to, delta.partitions.len()),
        (held, held + 1, 2)
    );
    assert_eq!(world.tables(1), []);
    // The delta is lost: the node goes on saying that it has the older version.
    world.pass(600);
    world.say(1, 1, heartbeat(1, 3, held));
    assert_eq!(world.tables(1), tables);
    // It is another process, which has nothing.
    world.turn(1, Some(Event::Closed(SessionId(1))));
    world.say(1, 2, register(1));
    world.say(1, 2, heartbeat(1, 4, 0));
    assert!(matches!(world.tables(2)[..], [TableUpdate::Full(_)]));
}

#[test]
fn a_silent_node_is_failed_once_and_may_come_back() {
    let mut world = World::new(1);
    world.pass(60);
    world.say(1, 1, register(1));
    world.say(
        1,
        1,
        Request::Started {
            node: id(1),
            incarnation: 1,
        },
    );
    let status = |world: &World| world.coordinators[0].state().members()[&id(1)].status;
    assert_eq!(status(&world), MemberStatus::Live);
    world.pass(1_900);
    assert_eq!(status(&world), MemberStatus::Live);
    world.pass(200);
    assert_eq!(status(&world), MemberStatus::Failed);
    let committed = world.coordinators[0].member().committed();
    world.pass(1_000);
    assert_eq!(world.coordinators[0].member().committed(), committed);
    world.told();
    world.say(1, 1, heartbeat(1, 9, 0));
    world.pass(100);
    assert_eq!(lease(&world.told(), 1), Some(0), "it has to register again");
    world.say(1, 1, register(1));
    assert_eq!(status(&world), MemberStatus::Starting);
}

#[test]
fn messages_that_only_a_client_of_raft_may_send_are_dropped() {
    let mut world = World::new(1);
    world.pass(200);
    let committed = world.coordinators[0].member().committed();
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgPropose);
    (message.from, message.to) = (2, 1);
    let entry = raft::prelude::Entry {
        data: vec![0xff; 9].into(),
        ..raft::prelude::Entry::default()
    };
    message.set_entries(vec![entry].into());
    world.turn(1, Some(Event::Raft(Box::new(message))));
    world.pass(100);
    assert_eq!(world.coordinators[0].member().committed(), committed);
}

#[test]
fn what_coordinators_refuse_is_shown_by_the_leader() {
    let mut world = World::new(3);
    world.pass(2_000);
    let leader = world.leader();
    let other = leader % 3 + 1;
    let refusals = |count| Refusals([("not_a_peer".to_owned(), count)].into());
    world.turn(leader, Some(Event::Refused(RaftId(other), refusals(3))));
    world.turn(leader, Some(Event::Refused(RaftId(other), refusals(5))));
    world.turn(
        leader,
        Some(Event::Refused(RaftId(leader), Refusals::default())),
    );
    world.turn(leader, Some(Event::Refused(RaftId(9), refusals(7))));
    world.told();
    let query = Query::Coordinators;
    world.say(leader, 9, Request::Operator { id: 1, query });
    world.pass(2 * TICK_MS);
    let rows = world
        .told()
        .into_iter()
        .find_map(|(_, answer)| match answer {
            Answer::Operator { report, .. } => match *report {
                Report::Coordinators(rows) => Some(rows),
                _ => None,
            },
            _ => None,
        });
    let rows = rows.expect("an answer");
    let refused = |id: u64| rows[id as usize - 1].refused;
    let silent = 6 - leader - other;
    assert_eq!(
        [leader, other, silent].map(refused),
        [Some(0), Some(5), None]
    );
    let by_reason = &rows[other as usize - 1].refusals;
    assert_eq!(by_reason.get("not_a_peer"), Some(&5));
}

/// What the coordinator that leads calls wrong.
fn problems(world: &mut World) -> Vec<Problem> {
    let leader = world.leader();
    world.told();
    let query = Query::Status;
    world.say(leader, 9, Request::Operator { id: 1, query });
    world.pass(2 * TICK_MS);
    let mut told = world.told().into_iter();
    let status = told.find_map(|(_, answer)| match answer {
        Answer::Operator { report, .. } => match *report {
            Report::Status(status) => Some(status),
            _ => None,
        },
        _ => None,
    });
    status.expect("an answer").problems
}

#[test]
fn a_coordinator_counts_as_there_once_it_is_known_to_have_the_log() {
    let mut world = World::new(3);
    world.cut_off = vec![3];
    world.pass(600);
    let (id, address) = (RaftId(3), "c3:1".to_owned());
    let behind = Problem::CoordinatorBehind {
        id,
        address: address.clone(),
    };
    assert!(problems(&mut world).contains(&behind));
    world.pass(1_000);
    let silent = Problem::CoordinatorSilent { id, address };
    assert!(problems(&mut world).contains(&silent));
    world.cut_off.clear();
    world.pass(2_000);
    let left = problems(&mut world);
    assert!(
        !left.contains(&silent) && !left.contains(&behind),
        "{left:?}"
    );
}

/// What the leader answers an operator.
fn asked(world: &mut World, query: Query) -> Report {
    let leader = world.leader();
    world.told();
    world.say(leader, 900, Request::Operator { id: 1, query });
    world.pass(100);
    let answers = world.told().into_iter().rev();
    let mut reports = answers.filter_map(|(session, answer)| match answer {
        Answer::Operator { report, .. } if session == 900 => Some(*report),
        _ => None,
    });
    reports.next().expect("an answer")
}

#[test]
fn messages_of_who_is_no_coordinator_are_not_heard() {
    let mut world = World::new(3);
    world.pass(2_000);
    let leader = world.leader();
    let coordinator = |world: &World| {
        let it = &world.coordinators[leader as usize - 1];
        (it.heard_ms.len(), it.speak.len(), it.refused.len())
    };
    let (term, kept) = (
        world.coordinators[leader as usize - 1].member().term(),
        coordinator(&world),
    );
    for from in 4..100 {
        let mut message = Message {
            from,
            to: leader,
            term: term + from,
            ..Message::default()
        };
        message.set_msg_type(MessageType::MsgHeartbeat);
        world.turn(leader, Some(Event::Raft(Box::new(message))));
        let id = RaftId(from);
        for event in [
            Event::Introduced(id, VERSIONS),
            Event::Refused(id, Refusals::default()),
            Event::Coordinators(id, Coordinators([(id, "x:1".to_owned())].into())),
            Event::Lost(id),
        ] {
            world.turn(leader, Some(event));
        }
    }
    assert_eq!(world.leader(), leader);
    let member = world.coordinators[leader as usize - 1].member();
    assert_eq!(member.term(), term, "nobody was deposed");
    assert_eq!(coordinator(&world), kept, "nothing is kept of them");
}

#[test]
fn who_has_missed_that_a_coordinator_was_added_hears_of_it_from_others_and_hears_it() {
    let mut world = World::new(3);
    world.pass(2_000);
    let leader = world.leader();
    let away = leader % 3 + 1;
    let other = away % 3 + 1;
    world.cut_off = vec![away, 4];
    let address = "c4:1".to_owned();
    let query = Query::AddCoordinator { address };
    world.say(leader, 900, Request::Operator { id: 1, query });
    world.pass(500);
    let fourth = RaftId(4);
    let hears = |world: &World| {
        world.coordinators[away as usize - 1]
            .address(fourth)
            .is_some()
    };
    assert!(
        world.coordinators[other as usize - 1]
            .address(fourth)
            .is_some()
    );
    let campaign = |term| {
        let mut message = Message {
            from: away,
            to: other,
            term,
            ..Message::default()
        };
        message.set_msg_type(MessageType::MsgRequestPreVote);
        Some(Event::Raft(Box::new(message)))
    };
    let term = world.coordinators[away as usize - 1].member().term();
    assert!(!hears(&world));
    world.turn(other, campaign(term + 1));
    assert!(hears(&world));
    let lead = || {
        let mut message = Message {
            from: fourth.0,
            to: away,
            term: term + 5,
            ..Message::default()
        };
        message.set_msg_type(MessageType::MsgHeartbeat);
        Some(Event::Raft(Box::new(message)))
    };
    world.cut_off = (1..=4).collect();
    world.turn(away, lead());
    let member = world.coordinators[away as usize - 1].member();
    assert_eq!(
        member.leader(),
        Some(fourth),
        "it is caught up by its leader"
    );
    // Whatever others say, it is no more than there can be.
    for n in 0..100 {
        let told = [(RaftId(10 + n), "x:1".to_owned())].into();
        world.turn(
            away,
            Some(Event::Coordinators(RaftId(other), Coordinators(told))),
        );
    }
    let peers = world.coordinators[away as usize - 1].peers.len();
    assert!(peers <= COORDINATORS_MAX, "{peers}");
}

#[test]
fn coordinators_that_were_given_up_are_not_heard_although_the_options_still_name_them() {
    let peers = || (1..=3).map(|id| (RaftId(id), format!("c{id}:1")));
    let mut state = State::default();
    let founding = Command::Bootstrap {
        cluster: ClusterId([1; 16]),
        options: ClusterOptions {
            partitions: 16,
            min_nodes: 1,
            policy: Policy::Contiguous,
            heartbeat_timeout_ms: 2_000,
        },
        coordinators: peers().collect(),
    };
    state.apply(&founding).expect("founds");
    state.force(RaftId(1)).expect("forced");
    let mut first = crate::member::founding(&[RaftId(1)]);
    let snapshot = first.snapshot.as_mut().expect("one");
    snapshot.data = state.to_snapshot().into();
    let options = LogOptions {
        segment_bytes: 256 << 10,
        group_bytes_max: 64 << 10,
        ..LogOptions::new(LogId([1; 16]))
    };
    let mut log = block_on(RaftLog::open(FaultDisk::new(1), &options, 0)).expect("opens");
    block_on(log.persist(&first, 0)).expect("writes");
    let options = CoordinatorOptions::new(RaftId(1), peers().collect(), 1);
    let mut coordinator = Coordinator::new(options, log).expect("starts");
    let mut turn = |event| {
        block_on(coordinator.turn([event], 0, 0, |_| {})).expect("runs");
        (coordinator.member().term(), coordinator.ids().collect())
    };
    let (term, ids): (u64, Vec<RaftId>) = turn(Event::Introduced(RaftId(2), VERSIONS));
    assert_eq!(ids, [RaftId(1)]);
    let mut message = Message {
        from: 2,
        to: 1,
        term: term + 5,
        ..Message::default()
    };
    message.set_msg_type(MessageType::MsgHeartbeat);
    assert_eq!(turn(Event::Raft(Box::new(message))), (term, ids));
    assert_eq!(coordinator.address(RaftId(2)), None);
    assert!(coordinator.is_alone());
}

#[test]
fn a_node_is_not_removed_while_a_coordinator_would_end_with_it() {
    let mut world = World::new(1);
    world.pass(100);
    world.say(1, 5, register(1));
    world.coordinators[0].host = Some(id(1));
    let node = "node-1".to_owned();
    let remove = Query::RemoveNode {
        node,
        lose_data: true,
    };
    let Report::Refused(refusal) = asked(&mut world, remove) else {
        panic!("removed");
    };
    let text = refusal.to_string();
    for word in [
        "node-1",
        "the last one",
        "coordinator-member add",
        "coordinator-member remove 1",
    ] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(world.coordinators[0].state().members().len(), 1);
}

#[test]
fn a_coordinator_is_not_removed_when_too_few_that_answer_would_be_left() {
    let mut world = World::new(3);
    world.pass(2_000);
    let leader = world.leader();
    let [silent, other] = [leader % 3 + 1, (leader + 1) % 3 + 1].map(RaftId);
    world.cut_off = vec![silent.0];
    world.pass(COORDINATOR_SILENT_MS);
    for id in [other, RaftId(leader)] {
        let refusal = crate::state::Refusal::NoMajorityLeft { id, silent };
        let answer = asked(&mut world, Query::RemoveCoordinator { id });
        assert_eq!(answer, Report::Refused(refusal));
    }
    for id in [silent, other] {
        let removed = asked(&mut world, Query::RemoveCoordinator { id });
        assert_eq!(removed, Report::CoordinatorRemoved { id });
    }
}

#[test]
fn a_coordinator_that_is_added_is_a_learner_and_can_be_taken_back() {
    let mut world = World::new(1);
    world.pass(100);
    // Nobody is there.
    world.cut_off = vec![2];
    let address = "c2:1".to_owned();
    let add = Query::AddCoordinator { address };
    for _ in 0..2 {
        let id = RaftId(2);
        assert_eq!(
            asked(&mut world, add.clone()),
            Report::CoordinatorAdded { id }
        );
    }
    assert!(world.coordinators[0].is_alone(), "nobody else votes");
    world.pass(5_000);
    assert!(world.coordinators[0].is_alone());
    let Report::Refused(refusal) = asked(&mut world, Query::RemoveCoordinator { id: RaftId(1) })
    else {
        panic!("the last one that votes was removed");
    };
    assert_eq!(refusal, crate::state::Refusal::LastCoordinator(RaftId(1)));
    let id = RaftId(2);
    let removed = asked(&mut world, Query::RemoveCoordinator { id });
    assert_eq!(removed, Report::CoordinatorRemoved { id });
    assert_eq!(world.coordinators[0].state().coordinators().len(), 1);
}

#[test]
fn a_start_is_noted_once_everybody_knows_such_starts_and_an_older_directory_is_refused() {
    let mut world = World::new(1);
    world.pass(100);
    let start = |previous: Option<u8>, nonce: u8| StartProof {
        previous: previous.map(|byte| Nonce([byte; 16])),
        nonce: Nonce([nonce; 16]),
        accepts_old: false,
    };
    let proved = |incarnation, speaks: u16, start| {
        let Request::Register(registration) = register(1) else {
            panic!("a registration");
        };
        let registration = Registration {
            incarnation,
            speaks: Versions {
                min: 2,
                max: speaks,
            },
            ..registration
        };
        Request::RegisterStart {
            registration,
            start,
        }
    };
    let noted = |world: &mut World| {
        let told = world.told().into_iter();
        told.filter_map(|(_, answer)| match answer {
            Answer::StartNoted(nonce) => Some(nonce.0[0]),
            Answer::Refused(refusal) => panic!("{refusal}"),
            _ => None,
        })
        .collect::<Vec<_>>()
    };
    // The release before is known to have run on it: this start is taken, and not noted.
    let Request::Register(old) = register(1) else {
        panic!("a registration");
    };
    let speaks = Versions { min: 2, max: 2 };
    world.say(1, 5, Request::Register(Registration { speaks, ..old }));
    world.say(1, 6, proved(2, 3, start(None, 1)));
    assert_eq!(noted(&mut world), []);
    world.say(1, 7, proved(2, 3, start(None, 1)));
    assert_eq!(noted(&mut world), [1], "it has said what it speaks");
    world.say(1, 8, proved(3, 3, start(Some(1), 2)));
    world.say(1, 8, proved(3, 3, start(Some(1), 2)));
    assert_eq!(noted(&mut world), [2, 2]);
    world.say(1, 9, proved(4, 3, start(None, 1)));
    let told = world.told();
    let refusal = crate::state::Refusal::OldDirectory(id(1));
    assert_eq!(told, [(9, Answer::Refused(refusal))]);
}

#[test]
fn a_node_of_too_many_shards_is_refused_by_name() {
    let mut world = World::new(1);
    world.pass(100);
    let Request::Register(registration) = register(1) else {
        panic!("a registration");
    };
    let shards = crate::state::SHARDS_MAX + 1;
    let large = Registration {
        shards,
        ..registration
    };
    world.say(1, 5, Request::Register(large));
    let refusal = crate::state::Refusal::Shards(shards);
    assert_eq!(world.told(), [(5, Answer::Refused(refusal))]);
}
