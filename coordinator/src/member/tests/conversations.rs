//! Single messages between members, without a world around them that loses or delays any.

use super::*;

/// What a member sends after one input.
fn sent(member: &mut Member<FaultDisk>, input: Input) -> Vec<Message> {
    let mut sent = Vec::new();
    block_on(member.turn([input], 0, |_, message| sent.push(message))).expect("runs");
    sent
}

#[test]
fn a_leader_sends_before_it_has_written_and_a_follower_only_afterwards() {
    let mut world = World::new(3, 5, None).expect("starts");
    let mut ticks = 0;
    let agree = |world: &World| {
        let lasts = world.members.iter().flatten().map(Member::last_entry);
        lasts.collect::<BTreeSet<_>>().len() == 1
    };
    while ticks < 100 || !agree(&world) {
        world.tick(false).expect("runs");
        ticks += 1;
        assert!(ticks < 300, "nothing is under way at some time");
    }
    let leads = |member: &&mut Member<FaultDisk>| member.is_leader();
    let leader = world.members.iter_mut().flatten().find(leads);
    let leader = leader.expect("one leads");
    let command = Command::Started {
        node: NodeId([9; 16]),
        incarnation: 1,
    };
    let propose = Input::Propose(Ticket(u64::MAX), command);
    let mut appends = Vec::new();
    let has_entries = |message: &Message| !message.entries.is_empty();
    {
        let send = |_: &State, message| appends.push(message);
        let mut turn = Box::pin(leader.turn([propose], 0, send));
        assert!(block_on(poll_once(&mut turn)).is_none(), "its disk works");
    }
    appends.retain(has_entries);
    let append = appends.pop().expect("an entry for a follower");
    let follower = world.members[append.to as usize - 1].as_mut();
    let follower = follower.expect("it runs");
    let mut answers = Vec::new();
    let (input, writes) = (Input::Message(Box::new(append)), follower.last_entry());
    {
        let send = |_: &State, message| answers.push(message);
        let mut turn = Box::pin(follower.turn([input], 0, send));
        assert!(block_on(poll_once(&mut turn)).is_none(), "its disk works");
        drop(turn);
    }
    assert_eq!(answers, [], "it has not written it yet");
    assert_eq!(follower.last_entry(), writes + 1, "but it was taken");
}

#[test]
fn a_member_without_a_log_neither_votes_nor_believes_that_it_has_one() {
    let disk = FaultDisk::new(1);
    let log = block_on(RaftLog::open(disk, &options(2), 0)).expect("opens");
    let mut member = Member::new(RaftId(2), log, None, 1).expect("starts");
    let message = |kind, commit| {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (1, 2, 7);
        (message.index, message.log_term, message.commit) = (9, 6, commit);
        Input::Message(Box::new(message))
    };
    for (kind, commit) in [
        (MessageType::MsgRequestPreVote, 0),
        (MessageType::MsgRequestVote, 0),
        (MessageType::MsgHeartbeat, 9),
    ] {
        let sent = sent(&mut member, message(kind, commit));
        assert!(sent.is_empty(), "{kind:?}: {sent:?}");
    }
    let sent = sent(&mut member, message(MessageType::MsgHeartbeat, 0));
    let kinds: Vec<_> = sent.iter().map(Message::get_msg_type).collect();
    assert_eq!(
        kinds,
        [MessageType::MsgHeartbeatResponse],
        "it waits for its first entries"
    );
}

/// A turn of a member with one input, and what the other one of two answers to what it sends, until nobody says
/// anything.
fn converse([first, second]: [&mut Member<FaultDisk>; 2], input: Input) {
    let mut under_way = sent(first, input);
    while let Some(message) = under_way.pop() {
        let to = if message.to == first.id().0 {
            &mut *first
        } else {
            &mut *second
        };
        under_way.extend(sent(to, Input::Message(Box::new(message))));
    }
}

/// The second one of two, new, which catches up with the first.
fn joined_by_second(first: &mut Member<FaultDisk>) -> Member<FaultDisk> {
    let log = block_on(RaftLog::open(FaultDisk::new(2), &options(2), 0)).expect("opens");
    let mut second = Member::new(RaftId(2), log, None, 9).expect("starts");
    for _ in 0..20 * ELECTION_TICKS {
        converse([first, &mut second], Input::Tick);
    }
    second
}

/// A coordinator that is alone, and has a second one added.
fn world_of_two() -> World {
    let mut world = World::new(1, 1, None).expect("starts");
    for _ in 0..60 {
        world.tick(false).expect("runs");
    }
    let first = world.members[0].as_mut().expect("runs");
    let speaks = Command::CoordinatorSpeaks {
        id: RaftId(1),
        speaks: crate::protocol::VERSIONS,
    };
    sent(first, Input::Propose(Ticket(u64::MAX - 1), speaks));
    let added = CoordinatorChange::AddLearner {
        id: RaftId(2),
        address: "127.0.0.1:2".to_owned(),
    };
    sent(first, Input::Change(Ticket(u64::MAX), added));
    assert_eq!(first.state().learners(), &BTreeSet::from([RaftId(2)]));
    world
}

/// Lets the second one vote.
fn promote(first: &mut Member<FaultDisk>, second: &mut Member<FaultDisk>) {
    assert!(first.is_caught_up(RaftId(2)));
    let speaks = Command::CoordinatorSpeaks {
        id: RaftId(2),
        speaks: crate::protocol::VERSIONS,
    };
    sent(first, Input::Propose(Ticket(u64::MAX - 2), speaks));
    let change = CoordinatorChange::Promote { id: RaftId(2) };
    sent(first, Input::Change(Ticket(u64::MAX - 3), change));
    assert_eq!(first.voters(), [RaftId(1), RaftId(2)]);
    for _ in 0..2 * ELECTION_TICKS {
        converse([first, second], Input::Tick);
    }
}

#[test]
fn followers_learn_what_is_decided_from_the_next_heartbeat() {
    let mut world = world_of_two();
    let first = world.members[0].as_mut().expect("runs");
    let mut second = joined_by_second(first);
    promote(first, &mut second);
    assert_eq!(first.applied(), second.applied());
    let command = Command::Started {
        node: NodeId([9; 16]),
        incarnation: 1,
    };
    let asked = sent(first, Input::Propose(Ticket(u64::MAX), command));
    let mut answers = Vec::new();
    for message in asked {
        answers.extend(sent(&mut second, Input::Message(Box::new(message))));
    }
    for answer in answers {
        let more = sent(first, Input::Message(Box::new(answer)));
        assert_eq!(more, [], "nobody waits for what followers know");
    }
    assert_eq!(first.applied(), second.applied() + 1);
    for _ in 0..HEARTBEAT_TICKS {
        converse([first, &mut second], Input::Tick);
    }
    assert_eq!(first.applied(), second.applied());
}

#[test]
fn one_coordinator_decides_alone_until_the_second_has_the_log_also_over_a_crash() {
    let long = 20 * ELECTION_TICKS;
    let mut world = world_of_two();
    for _ in 0..2 {
        let first = world.members[0].as_mut().expect("runs");
        for _ in 0..long {
            sent(first, Input::Tick);
            assert!(first.is_settled());
        }
        assert_eq!(first.voters(), [RaftId(1)]);
        // Killed before the second one has anything.
        world.crash(1);
        world.start(1).expect("starts");
    }
    let first = world.members[0].as_mut().expect("runs");
    sent(first, Input::Tick);
    let mut second = joined_by_second(first);
    promote(first, &mut second);
    assert_eq!(second.voters(), [RaftId(1), RaftId(2)]);
    assert!(first.is_leader() && first.matched(RaftId(2)) == first.last_entry());
    drop(second);
    for _ in 0..long {
        sent(first, Input::Tick);
    }
    assert!(!first.is_leader(), "the second one is gone");
}

#[test]
fn a_learner_that_never_answers_is_taken_back() {
    let mut world = world_of_two();
    let first = world.members[0].as_mut().expect("runs");
    let removed = CoordinatorChange::Remove { id: RaftId(2) };
    sent(first, Input::Change(Ticket(u64::MAX - 4), removed));
    assert!(first.state().learners().is_empty());
    assert_eq!(first.state().coordinators().len(), 1);
    world.crash(1);
    world.start(1).expect("starts");
    let first = world.members[0].as_mut().expect("runs");
    sent(first, Input::Tick);
    assert!(first.is_settled() && first.state().coordinators().len() == 1);
}

#[test]
fn one_that_was_promoted_votes_although_it_has_not_heard_of_that() {
    let mut world = world_of_two();
    let first = world.members[0].as_mut().expect("runs");
    let mut second = joined_by_second(first);
    let speaks = Command::CoordinatorSpeaks {
        id: RaftId(2),
        speaks: crate::protocol::VERSIONS,
    };
    sent(first, Input::Propose(Ticket(u64::MAX - 2), speaks));
    let change = CoordinatorChange::Promote { id: RaftId(2) };
    // None of this arrives, and then the first one is killed.
    drop(sent(first, Input::Change(Ticket(u64::MAX - 3), change)));
    world.crash(1);
    world.start(1).expect("starts");
    let first = world.members[0].as_mut().expect("runs");
    assert_eq!(second.state().learners().len(), 1);
    for _ in 0..6 * ELECTION_TICKS {
        sent(&mut second, Input::Tick);
        converse([first, &mut second], Input::Tick);
    }
    assert!(first.is_settled());
    assert_eq!(second.voters(), [RaftId(1), RaftId(2)]);
}

#[test]
fn a_member_whose_log_was_rolled_back_says_so() {
    let mut world = world_of_two();
    let first = world.members[0].as_mut().expect("runs");
    let mut second = joined_by_second(first);
    promote(first, &mut second);
    let (term, committed, last) = (second.term(), second.committed(), second.last_entry());
    let entry = |index| raft::eraftpb::Entry {
        index,
        term: term + 1,
        ..Default::default()
    };
    let message = |kind, index, log_term, commit, entries: Vec<raft::eraftpb::Entry>| {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (1, 2, term + 1);
        (message.index, message.log_term, message.commit) = (index, log_term, commit);
        message.entries = entries.into();
        Input::Message(Box::new(message))
    };
    for input in [
        message(MessageType::MsgHeartbeat, 0, 0, last + 1, Vec::new()),
        message(
            MessageType::MsgAppend,
            committed,
            term + 1,
            committed,
            Vec::new(),
        ),
        message(
            MessageType::MsgAppend,
            committed - 1,
            term,
            committed,
            vec![entry(committed)],
        ),
    ] {
        let turn = block_on(second.turn([input], 0, |_, _| {}));
        assert!(
            matches!(turn, Err(MemberError::Older(to)) if to == last),
            "{turn:?}"
        );
    }
    let known = message(MessageType::MsgHeartbeat, 0, 0, last, Vec::new());
    assert_eq!(sent(&mut second, known).len(), 1);
    assert_eq!((second.committed(), second.last_entry()), (committed, last));
}

#[test]
fn a_heartbeat_that_no_leader_sends_does_not_end_a_member() {
    let mut world = world_of_two();
    let first = world.members[0].as_mut().expect("runs");
    let mut second = joined_by_second(first);
    let (term, committed) = (second.term(), second.committed());
    for (term, commit) in [(0, u64::MAX), (0, committed + 1), (term, u64::MAX)] {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgHeartbeat);
        (message.from, message.to) = (1, 2);
        (message.term, message.commit) = (term, commit);
        assert_eq!(sent(&mut second, Input::Message(Box::new(message))), []);
    }
    assert_eq!((second.term(), second.committed()), (term, committed));
}

#[test]
fn a_snapshot_that_is_no_state_is_dropped_before_it_is_written() {
    let mut world = world_of_two();
    let first = world.members[0].as_mut().expect("runs");
    let disk = FaultDisk::new(2);
    let log = block_on(RaftLog::open(disk.clone(), &options(2), 0)).expect("opens");
    let mut second = Member::new(RaftId(2), log, None, 9).expect("starts");
    let whole = first.state().to_snapshot();
    let snapshot = |data: Vec<u8>| {
        let mut snapshot = Snapshot {
            data: data.into(),
            ..Snapshot::default()
        };
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (first.applied(), first.term());
        let members = metadata.mut_conf_state();
        (members.voters, members.learners) = (vec![1], vec![2]);
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        (message.from, message.to, message.term) = (1, 2, first.term());
        message.set_snapshot(snapshot);
        Input::Message(Box::new(message))
    };
    for data in [
        Vec::new(),
        vec![0xff; 99],
        whole[..whole.len() - 1].to_vec(),
    ] {
        assert_eq!(sent(&mut second, snapshot(data)), []);
        assert_eq!((second.applied(), second.last_entry()), (0, 0));
    }
    drop(second);
    let log = block_on(RaftLog::open(disk, &options(2), 0)).expect("opens");
    let mut second = Member::new(RaftId(2), log, None, 10).expect("nothing was written");
    assert_eq!(sent(&mut second, snapshot(whole)).len(), 1);
    assert_eq!(second.applied(), first.applied());
    assert_eq!(second.state(), first.state());
}
