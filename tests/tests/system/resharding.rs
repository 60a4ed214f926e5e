//! Restarts with more and with fewer shards.

use ephesus_tests::ledger::value_of;
use ephesus_tests::{Node, Options, Reply};

const KEYS: u64 = 5000;

fn key(i: u64) -> Vec<u8> {
    format!("key:{i}").into_bytes()
}

#[test]
fn all_data_survives_any_number_of_shards() {
    let mut node = Node::start(Options {
        shards: 2,
        ..Options::default()
    });
    let mut written = vec![0u64; KEYS as usize];
    for (step, shards) in [2, 4, 1, 3, 7, 2].into_iter().enumerate() {
        if step > 0 {
            node.options.shards = shards;
            node.restart();
        }
        let mut client = node.client();
        let gets: Vec<_> = (0..KEYS).map(|i| vec![b"GET".to_vec(), key(i)]).collect();
        for (i, reply) in client.pipeline(&gets).into_iter().enumerate() {
            match written[i] {
                0 => assert!(reply.is_nil(), "key:{i} is {reply:?}"),
                write => assert!(
                    reply == Reply::Bulk(value_of(i as u64, write)),
                    "key:{i} with {shards} shards is {reply:?}"
                ),
            }
        }
        if step > 0 {
            let left = client.say("TTL mortal").integer();
            assert!(
                (5000..=9999).contains(&left),
                "the TTL with {shards} shards is {left}"
            );
            assert!(client.say("GET deleted").is_nil(), "a deleted key is back");
        }
        let write = step as u64 + 1;
        let sets: Vec<_> = (0..KEYS)
            .filter(|i| i % 3 == step as u64 % 3)
            .map(|i| {
                written[i as usize] = write;
                vec![b"SET".to_vec(), key(i), value_of(i, write)]
            })
            .collect();
        assert!(
            client
                .pipeline(&sets)
                .iter()
                .all(|reply| *reply == Reply::ok())
        );
        client.say("SET mortal x EX 9999");
        client.say("SET deleted x");
        client.say("DEL deleted");
        let ranges = client.say("CLUSTER SLOTS").items();
        let ports: std::collections::BTreeSet<i64> = ranges
            .iter()
            .map(|range| range.items()[2].items()[1].integer())
            .collect();
        assert_eq!(
            ports.len(),
            usize::from(node.options.shards),
            "every shard owns slots"
        );
        if step % 2 == 0 {
            node.kill()
        } else {
            node.stop()
        }
    }
}
