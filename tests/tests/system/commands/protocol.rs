//! Bytes as they are: inline commands, pipelines cut anywhere, broken framing.

use std::thread::scope;
use std::time::Duration;

use super::{Pair, Port};
use ephesus_tests::resp::encode;
use ephesus_tests::{Client, Node, Options, Reply, Rng};

/// What both servers must answer byte for byte, up to the close where there is one.
const CONVERSATIONS: &[&[u8]] = &[
    b"PING\r\n",
    b"PING\n",
    b"ping\r\nPING\r\n",
    b"\r\n\r\nPING\r\n",
    b"SET a b\r\nGET a\r\n",
    b"SET a \"x y\"\r\nGET a\r\n",
    b"SET a 'x y'\r\nGET a\r\n",
    b"SET a \"\\x41\\n\\\"\"\r\nGET a\r\n",
    b"SET a 'it\\'s'\r\nGET a\r\n",
    b"  SET   a    spaced  \r\nGET a\r\n",
    b"SET a \"\"\r\nGET a\r\n",
    b"SET a \"unbalanced\r\nPING\r\n",
    b"SET a 'unbalanced\r\n",
    b"SET a \"x\"y\r\n",
    b"*0\r\nPING\r\n",
    b"*-1\r\nPING\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
    b"*x\r\n",
    b"*\r\n",
    b"*99999999999999999999\r\n",
    b"*1\r\n+PING\r\n",
    b"*1\r\n\r\n",
    b"*1\r\n:4\r\n",
    b"*1\r\n$x\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$\r\n",
    b"*1\r\n$99999999999999999999\r\n",
    b"*2\r\n$3\r\nGET\r\n$99999999999\r\n",
    b"*2\r\n$3\r\nGET\r\n+a\r\n",
    b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$x\r\nPING\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    b"*2\r\n$3\r\nGET\r\n$3\r\n\r\n\0\r\n",
    b"NOSUCH a b\r\nPING\r\n",
    b"*1\r\n$0\r\n\r\nPING\r\n",
    b"QUIT\r\nPING\r\n",
];

/// Nothing more is said after so long a silence, most likely.
const QUIET: Duration = Duration::from_millis(300);

#[test]
fn raw_bytes_are_answered_as_redis_answers_them() {
    let pair = Pair::new(Port::Direct, 2);
    let differs = |bytes: &[u8]| {
        let talk = |mut client: Client, quiet: Duration| {
            client.send_raw(bytes).expect("send");
            let (answer, closed) = client.drain(quiet);
            format!(
                "{} ({})",
                answer.escape_ascii(),
                if closed { "closed" } else { "open" }
            )
        };
        let both = |quiet| {
            scope(|scope| {
                let node = scope.spawn(|| talk(pair._node.direct_client(0), quiet));
                let theirs = talk(pair._oracle.client(), quiet);
                (node.join().expect("a conversation"), theirs)
            })
        };
        let (mut ours, mut theirs) = both(QUIET);
        if ours != theirs {
            // On a busy machine an answer may take longer.
            (ours, theirs) = both(10 * QUIET);
        }
        (ours != theirs).then(|| {
            format!(
                "{}\n  we say     {ours}\n  Redis says {theirs}",
                bytes.escape_ascii()
            )
        })
    };
    // Those about keys come one after the other, all others at the same time.
    let is_about_keys = |bytes: &&[u8]| bytes.windows(2).any(|two| two == b"ET");
    let (in_turn, at_once): (Vec<&[u8]>, Vec<_>) =
        CONVERSATIONS.iter().copied().partition(is_about_keys);
    let different: Vec<String> = scope(|scope| {
        let differs = &differs;
        let begin = |bytes| scope.spawn(move || differs(bytes));
        let begun: Vec<_> = at_once.into_iter().map(begin).collect();
        let mut different: Vec<_> = in_turn.into_iter().filter_map(differs).collect();
        different.extend(
            begun
                .into_iter()
                .filter_map(|one| one.join().expect("a conversation")),
        );
        different
    });
    assert!(
        different.is_empty(),
        "{} differences:\n{}",
        different.len(),
        different.join("\n")
    );
}

#[test]
fn a_pipeline_may_be_cut_at_any_byte() {
    let node = Node::start(Options::default());
    let mut rng = Rng::new(ephesus_tests::seed_of_run("cut pipelines"));
    for round in 0..40 {
        let mut client = node.client();
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for i in 0..60 {
            let key = format!("cut:{round}:{}", rng.below(8));
            let len = if rng.one_in(10) {
                100_000
            } else {
                rng.below(300) as usize
            };
            let value = rng.bytes(len);
            encode(&[b"SET".as_slice(), key.as_bytes(), &value], &mut bytes);
            expected.push(Reply::ok());
            if i % 3 == 0 {
                bytes.extend_from_slice(format!("GET {key}\r\n").as_bytes());
            } else {
                encode(&["GET", &key], &mut bytes);
            }
            expected.push(Reply::Bulk(value));
        }
        let writer = client.stream().try_clone().expect("clone the stream");
        let mut cuts = rng.fork();
        let sender = std::thread::spawn(move || {
            use std::io::Write;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let most = if cuts.one_in(3) { 5 } else { 50_000 };
                let (now, later) = rest.split_at(rest.len().min(1 + cuts.below(most) as usize));
                (&writer).write_all(now).expect("send a piece");
                rest = later;
                if cuts.one_in(20) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        for (index, expected) in expected.iter().enumerate() {
            let reply = client.receive().expect("a reply");
            assert!(
                &reply == expected,
                "reply {index} of round {round} is {reply:?}"
            );
        }
        sender.join().expect("the sender");
    }
}

#[test]
fn a_deep_pipeline_is_answered_in_order() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let mut client = node.client();
    let requests: Vec<Vec<Vec<u8>>> = (0..20_000)
        .map(|i| {
            let key = format!("deep:{}", i % 1000).into_bytes();
            if i % 2 == 0 {
                vec![b"INCR".to_vec(), key]
            } else {
                vec![b"ECHO".to_vec(), i.to_string().into()]
            }
        })
        .collect();
    for (i, reply) in client.pipeline(&requests).into_iter().enumerate() {
        let expected = if i % 2 == 0 {
            Reply::Integer(i as i64 / 1000 + 1)
        } else {
            Reply::bulk(i.to_string())
        };
        assert_eq!(reply, expected, "reply {i}");
    }
}
