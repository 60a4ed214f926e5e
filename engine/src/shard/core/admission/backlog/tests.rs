use ephesus_wire::ShardId;

use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, CLIENT_MEMORY, Client, command, key};
use crate::shard::connection::{ASKED_BYTES_MAX, OUTPUT_BYTES_MAX};

const MIB: usize = 1 << 20;

/// Two shards, a value of so many bytes on each, and a client of the first one's entry port.
fn bed(value_bytes: usize) -> (Bed, Client) {
    let mut bed = Bed::new(2, &[]);
    for (shard, letter) in [(0, "a"), (1, "b")] {
        let client = bed.connect(shard, Direct);
        let set = command(&["SET", &key(shard, 0), &letter.repeat(value_bytes)]);
        bed.send_bytes(client, &set);
        bed.settle();
        assert_eq!(bed.take(client), "+OK\r\n");
    }
    let client = bed.connect(0, Entry);
    (bed, client)
}

/// What the client makes the node hold, replies that are on their way included.
fn held(bed: &mut Bed, client: Client) -> usize {
    let under_way = bed.core(0).node.peers[ShardId(0)].replies_bytes();
    under_way + bed.held_bytes(client)
}

#[test]
fn replies_of_other_shards_are_made_as_their_client_reads() {
    let value_bytes = 2 * MIB;
    let (mut bed, client) = bed(value_bytes);
    bed.stop_reading(client);
    // Of the second shard first, of both in turn, and of each alone.
    let order = [vec![1; 40], [0, 1].repeat(20), vec![0; 20], vec![1; 20]].concat();
    let mut gets = Vec::new();
    for &shard in &order {
        gets.extend(command(&["GET", &key(shard, 0)]));
    }
    bed.send_bytes(client, &gets);
    let mut replies = String::new();
    let reply_bytes = format!("${value_bytes}\r\n").len() + value_bytes + 2;
    while replies.len() < order.len() * reply_bytes {
        bed.settle();
        let most = held(&mut bed, client);
        assert!(most < 5 * value_bytes, "{most} bytes");
        assert!(most < CLIENT_MEMORY as usize / 4);
        let before = replies.len();
        bed.read_once(client);
        replies += &bed.take(client);
        assert!(replies.len() > before, "stuck at {before}");
    }
    for (reply, shard) in replies.as_bytes().chunks(reply_bytes).zip(order) {
        let expected = [b'a', b'b'][usize::from(shard)];
        assert_eq!(reply[reply_bytes / 2], expected);
    }
    assert_eq!(bed.core(0).unanswered(), 0);
    assert!(!bed.core(1).has_blocked());
}

#[test]
fn many_clients_do_not_make_more_replies_than_their_shard_takes() {
    let (mut bed, _) = bed(2 * MIB);
    for _ in 0..40 {
        let client = bed.connect(0, Entry);
        bed.send_bytes(client, &command(&["GET", &key(1, 0)]));
    }
    for _ in 0..60 {
        bed.turn(1, usize::MAX);
        let under_way = bed.core(0).node.peers[ShardId(0)].replies_bytes();
        assert!(under_way <= 7 * MIB, "{under_way} bytes");
    }
    bed.settle();
    assert_eq!(bed.core(0).unanswered(), 0);
}

#[test]
fn what_waits_for_a_client_that_has_gone_is_dropped() {
    let (mut bed, client) = bed(MIB);
    bed.stop_reading(client);
    bed.send_bytes(client, &command(&["GET", &key(1, 0)]).repeat(300));
    bed.settle();
    assert!(bed.core(0).unanswered() > 0, "some wait");
    bed.core(0)
        .connections
        .get_mut(client.token)
        .expect("open")
        .cut_off();
    bed.core(0).list(client.token);
    bed.settle();
    bed.settle();
    assert_eq!(bed.core(0).unanswered(), 0);
    assert!(bed.core(1).admission.deferred.is_empty());
}

#[test]
fn neither_a_large_request_under_way_nor_many_small_ones_stop_who_is_owed_little() {
    let (mut bed, client) = bed(10);
    let other = bed.connect(0, Entry);
    let ask_other = |bed: &mut Bed, words: &[&str]| {
        bed.send_bytes(other, &command(words));
        bed.take(other)
    };
    bed.send_bytes(client, &command(&["SET", &key(1, 1), &"v".repeat(2 * MIB)]));
    assert_eq!(ask_other(&mut bed, &["PING"]), "+PONG\r\n");
    let mut crowd: Vec<Client> = (0..8).map(|_| bed.connect(0, Entry)).collect();
    for &one in &crowd {
        let gets = command(&["GET", &key(1, 0)]).repeat(ASKED_BYTES_MAX / 32);
        for part in gets.chunks(16 << 10) {
            bed.send_bytes(one, part);
        }
    }
    assert!(
        bed.core(0).router.peers.is_any_full(),
        "the crowd has filled the queue"
    );
    assert_eq!(ask_other(&mut bed, &["PING"]), "+PONG\r\n");
    assert_eq!(ask_other(&mut bed, &["GET", &key(0, 0)]).len(), 17);
    let before = bed.core(0).router.peers[ShardId(1)].unanswered_bytes();
    assert_eq!(ask_other(&mut bed, &["GET", &key(1, 0)]), "");
    let after = bed.core(0).router.peers[ShardId(1)].unanswered_bytes();
    assert!(after > before, "it was forwarded at once");
    bed.settle();
    assert_eq!(bed.take(other).len(), 17);
    crowd.push(client);
    for one in crowd {
        assert!(bed.is_open(one) && bed.input_bytes(one) == 0);
        assert!(bed.held_bytes(one) < OUTPUT_BYTES_MAX);
    }
}

#[test]
fn one_client_has_a_share_of_what_a_shard_may_owe() {
    let (mut bed, client) = bed(10);
    let other = bed.connect(0, Entry);
    let gets = command(&["GET", &key(1, 0)]).repeat(50_000);
    for part in gets.chunks(16 << 10) {
        bed.send_bytes(client, part);
    }
    assert!(
        !bed.core(0).router.peers.is_any_full(),
        "there is room for others"
    );
    bed.send_bytes(other, &command(&["GET", &key(1, 0)]));
    bed.turn(1, usize::MAX);
    bed.settle();
    assert_eq!(bed.take(other).len(), 17);
    assert_eq!(bed.take(client).len(), 50_000 * 17);
}

#[test]
fn writes_of_other_shards_wait_for_the_log_as_those_of_its_own_do() {
    let value_bytes = 2 * MIB;
    let (mut bed, client) = bed(value_bytes);
    let appended = bed.core(1).keyspace.log.appended().0;
    bed.send_bytes(client, &command(&["APPEND", &key(1, 0), "x"]).repeat(200));
    let mut turns = 0;
    while bed.turn(1, usize::MAX) || bed.core(1).goes_on() || turns < 3 {
        turns += 1;
    }
    let written = bed.core(1).keyspace.log.appended().0 - appended;
    assert!(written <= 20 * turns, "{written} values in {turns} turns");
    bed.advance(2_000);
    bed.settle();
    let replies = bed.take(client);
    let last = format!(":{}\r\n", value_bytes + 200);
    assert!(replies.ends_with(&last), "all were executed: {replies:?}");
}

#[test]
fn what_waits_for_a_decision_is_bounded_for_each_client_and_dies_with_it() {
    let (mut bed, _) = bed(10);
    bed.prepare_within(1, 0);
    let held = key(1, 0);
    let many = command(&[vec!["MGET"], vec![held.as_str(); 200_000]].concat());
    let gets = command(&["GET", &held]).repeat(40_000);
    for requests in [&gets, &many] {
        for _ in 0..4 {
            let client = bed.connect(0, Entry);
            for piece in requests.chunks(60 << 10) {
                bed.send_bytes(client, piece);
            }
            bed.settle();
            let bytes = bed.core(1).admission.deferred.bytes();
            let most = ASKED_BYTES_MAX.max(many.len());
            assert!((1..=most).contains(&bytes), "{bytes} bytes of one client");
            bed.kill(client);
            bed.settle();
            assert_eq!(bed.core(1).admission.deferred.bytes(), 0);
            assert_eq!(bed.core(0).admission.client_budget.asked_by_gone, 0);
            assert_eq!(bed.core(0).router.peers[ShardId(1)].unanswered_bytes(), 0);
        }
    }
}

#[test]
fn clients_that_ask_and_go_leave_little_behind() {
    let (mut bed, _) = bed(10);
    let many = command(&[vec!["MGET"], vec![key(1, 0).as_str(); 50_000]].concat());
    let mut most = 0;
    for _ in 0..40 {
        let client = bed.connect(0, Entry);
        for piece in many.chunks(60 << 10) {
            bed.send_bytes(client, piece);
        }
        bed.kill(client);
        // The shard that was asked does not come to it.
        bed.turn(0, usize::MAX);
        most = most.max(bed.core(0).admission.client_budget.asked_by_gone);
    }
    assert!(most >= 1 << 20, "nothing was asked for");
    assert!(most < (1 << 20) + 2 * many.len(), "{most} bytes");
    let client = bed.connect(0, Entry);
    bed.send(client, &[&format!("GET {}", key(1, 0))]);
    assert_eq!(bed.take(client), "");
    bed.settle();
    assert_eq!(bed.take(client), "$10\r\nbbbbbbbbbb\r\n");
    assert_eq!(bed.core(0).admission.client_budget.asked_by_gone, 0);
}
