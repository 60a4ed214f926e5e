use ephesus_wire::ShardId;

use crate::net::ListenerKind::Direct;
use crate::shard::bed::{Bed, CLIENT_MEMORY, command};

const MIB: usize = 1 << 20;

/// The start of a request of `bytes`.
fn unfinished(bytes: usize) -> Vec<u8> {
    let mut request = b"*2\r\n$4\r\nECHO\r\n$33000000\r\n".to_vec();
    request.resize(bytes, b'x');
    request
}

#[test]
fn above_the_budget_the_largest_connection_of_the_node_is_closed_first() {
    let mut bed = Bed::new(2, &[]);
    let budget = CLIENT_MEMORY as usize;
    let largest = bed.connect(1, Direct);
    bed.send_bytes(largest, &unfinished(24 * MIB));
    let others = [0, 0, 1].map(|shard| bed.connect(shard, Direct));
    for other in others {
        bed.advance(30);
        assert!(bed.is_open(largest), "the budget is not used up");
        bed.send_bytes(other, &unfinished(16 * MIB));
        bed.settle();
    }
    assert!(!bed.is_open(largest));
    assert!(others.into_iter().all(|other| bed.is_open(other)));
    let node = &bed.core(0).node;
    let held = node.client_bytes() as usize;
    assert!(
        (48 * MIB..budget).contains(&held),
        "{held} bytes are published"
    );
}

#[test]
fn replies_that_belong_to_no_connection_yet_close_nobody() {
    let mut bed = Bed::new(2, &[]);
    let clients = [0, 1].map(|shard| bed.connect(shard, Direct));
    bed.core(0).node.peers[ShardId(0)].add_replies(CLIENT_MEMORY as usize);
    for client in clients {
        bed.advance(30);
        bed.send_bytes(client, &unfinished(MIB));
    }
    bed.settle();
    assert!(clients.into_iter().all(|client| bed.is_open(client)));
}

#[test]
fn commands_that_have_waited_for_one_turn_do_not_pass_the_budget_together() {
    let mut bed = Bed::new(1, &[]);
    let writer = bed.connect(0, Direct);
    let value = "v".repeat(60 << 10);
    let set = format!(
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n",
        value.len()
    );
    bed.send_bytes(writer, set.as_bytes());
    bed.settle();
    bed.core(0).admission.client_budget.most = 0;
    let mut requests = "PING\r\n".repeat(64);
    requests += &format!("MGET{}\r\n", " k".repeat(360));
    for _ in 0..8 {
        let client = bed.connect(0, Direct);
        bed.stop_reading(client);
        bed.send_bytes(client, requests.as_bytes());
    }
    bed.settle();
    let most = bed.core(0).admission.client_budget.most as usize;
    let (budget, one) = (CLIENT_MEMORY as usize, 22 * MIB);
    assert!(most > budget / 2, "{most} bytes: nothing was asked for");
    assert!(most <= budget + one, "{most} bytes at a time");
}

#[test]
fn what_waits_beside_connections_closes_nobody() {
    let mut bed = Bed::new(1, &[]);
    let [tracker, subscriber] = [(); 2].map(|()| bed.connect(0, Direct));
    bed.ask(tracker, &["HELLO 3", "CLIENT TRACKING ON BCAST"]);
    bed.ask(subscriber, &["SUBSCRIBE ch"]);
    bed.hold_log();
    let publish = command(&["PUBLISH", "ch", &"p".repeat(60_000)]);
    let mut clients = vec![tracker, subscriber];
    let mut most = 0;
    for n in 0..24 {
        let mut bytes = b"MULTI\r\n".to_vec();
        for m in 0..10 {
            bytes.extend(command(&["SET", &format!("{{a}}{m}{n:060000}"), "v"]));
            bytes.extend(publish.repeat(5));
        }
        bytes.extend(b"EXEC\r\n");
        let writer = bed.connect(0, Direct);
        bed.send_bytes(writer, &bytes);
        bed.settle();
        clients.push(writer);
        let core = bed.core(0);
        most = most.max(core.client_bytes() - core.connections.held_bytes() as u64);
    }
    let max = bed.core(0).admission.client_budget.queue_bytes_max as u64;
    assert!((max..CLIENT_MEMORY / 2).contains(&most), "{most} bytes");
    assert!(clients.iter().all(|client| bed.is_open(*client)));
    bed.release_log();
    // The first messages have come, and the client that caches has been told that everything has changed.
    assert!(bed.take(subscriber).contains("ppp"));
    assert!(bed.take(tracker).contains("invalidate\r\n_\r\n"));
}
