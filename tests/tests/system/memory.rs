//! `--max-memory`: growing writes are refused, nothing is evicted.

use ephesus_tests::{Node, Options, Reply};

const MAX_MEMORY: u64 = 64 << 20;

#[test]
fn at_the_limit_reads_and_deletes_work_and_nothing_is_evicted() {
    let mut node = Node::start(Options {
        max_memory: Some(MAX_MEMORY),
        ..Options::default()
    });
    let mut client = node.client();
    let value = |i: usize| format!("{i:01000}").into_bytes();
    let key = |i: usize| format!("key:{i}").into_bytes();
    let mut kept = 0;
    let refusal = loop {
        let requests: Vec<_> = (kept..kept + 500)
            .map(|i| vec![b"SET".to_vec(), key(i), value(i)])
            .collect();
        let replies = client.pipeline(&requests);
        let good = replies
            .iter()
            .take_while(|reply| **reply == Reply::ok())
            .count();
        kept += good;
        if let Some(reply) = replies.get(good) {
            break reply.clone();
        }
        assert!(kept < 200_000, "{kept} KB fit into {MAX_MEMORY} bytes");
    };
    let text = refusal.error().expect("an error at the limit");
    assert!(text.starts_with("OOM command not allowed"), "{text}");
    assert!(
        kept * 1000 > MAX_MEMORY as usize / 4,
        "refused after {kept} KB already"
    );

    // The first refusal may have come from one shard while another still had room.
    let late: Vec<_> = (kept..kept + 500)
        .map(|i| vec![b"DEL".to_vec(), key(i)])
        .collect();
    client.pipeline(&late);
    for i in 0..kept {
        let reply = client.call(&[b"GET".as_slice(), &key(i)]);
        assert!(reply == Reply::Bulk(value(i)), "key:{i} is {reply:?}");
    }
    assert_eq!(client.say("DBSIZE"), Reply::Integer(kept as i64));
    assert_eq!(client.say("EXISTS key:0"), Reply::Integer(1));
    assert!(client.say("TTL key:0").integer() == -1);

    node.kill();
    node.restart();
    let mut client = node.client();
    assert_eq!(
        client.say("DBSIZE"),
        Reply::Integer(kept as i64),
        "after a restart at the limit"
    );

    let deletes: Vec<_> = (0..kept / 2)
        .map(|i| vec![b"DEL".to_vec(), key(i)])
        .collect();
    assert!(
        client
            .pipeline(&deletes)
            .iter()
            .all(|reply| *reply == Reply::Integer(1))
    );
    let sets: Vec<_> = (0..kept / 4)
        .map(|i| vec![b"SET".to_vec(), key(i), value(i)])
        .collect();
    let replies = client.pipeline(&sets);
    assert!(
        replies.iter().all(|reply| *reply == Reply::ok()),
        "room was made, yet: {replies:?}"
    );
}
