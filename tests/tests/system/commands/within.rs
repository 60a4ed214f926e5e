//! Scripts, subscriptions and messages behind MULTI, and what scripts and transactions do for users who may not do
//! everything.

use super::{PORTS, PROTOCOLS, Pair, Port, shown};
use ephesus_tests::{Client, Node, Options, Reply};

/// Requests in order, words separated by `|`.
const SCRIPTS: &str = "
MULTI
EVAL|return redis.call('set', KEYS[1], ARGV[1])|1|{k}a|v
EVAL|return redis.call('get', KEYS[1])|1|{k}a
EVAL|return 1|0
EVAL|return 1|x
EVAL|return 1|-1
EVAL|return 1|5|{k}a
EVALSHA|nosuch|0
EVAL_RO|return redis.call('get', KEYS[1])|1|{k}a
SET|{k}b|1
EVAL|redis.call('incr', KEYS[1]) return redis.call('incr', KEYS[1])|1|{k}b
EVAL|redis.call('set', KEYS[1], 'text') return redis.pcall('incr', KEYS[1])|1|{k}c
EVAL|return {KEYS[1], ARGV[1], KEYS[2]}|2|{k}a|{k}b|x
EXEC
GET|{k}a
GET|{k}b
GET|{k}c
MULTI
EVAL
SET|{k}a|w
EXEC
GET|{k}a
MULTI
EVAL|return 1|0
EXEC
WATCH|{k}a
EVAL|return redis.call('set', KEYS[1], 'changed')|1|{k}a
MULTI
EVAL|return redis.call('set', KEYS[1], 'never')|1|{k}a
EXEC
GET|{k}a
WATCH|{k}a
EVAL|return redis.call('get', KEYS[1])|1|{k}a
MULTI
EVAL|return redis.call('append', KEYS[1], '!')|1|{k}a
EXEC
GET|{k}a
MULTI
PUBLISH|{k}nobody|x
SPUBLISH|{k}nobody|x
EVAL|return redis.call('publish', KEYS[1], 'x')|1|{k}nobody
EVAL|return redis.call('spublish', KEYS[1], 'x')|1|{k}nobody
EXEC
EVAL|return redis.call('publish', 'nobody', 'x')|0
EVAL|return redis.pcall('publish', 'nobody')|0
MULTI
SSUBSCRIBE|{k}s
MONITOR
EXEC
MULTI
SAVE
EXEC
MULTI
SHUTDOWN|NOSAVE
EXEC
";

#[test]
fn scripts_behind_multi_answer_what_they_answer_in_redis() {
    for port in PORTS {
        for protocol in PROTOCOLS {
            let mut pair = Pair::new(port, protocol);
            for line in SCRIPTS.lines().filter(|line| !line.is_empty()) {
                let words: Vec<&str> = line.split('|').collect();
                pair.same(&words);
            }
        }
    }
}

/// All bytes that come in answer to lines, up to the reply of a last ECHO.
fn raw(client: &mut Client, lines: &[&str]) -> Vec<Reply> {
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        ephesus_tests::resp::encode(&words, &mut bytes);
    }
    ephesus_tests::resp::encode(&["PING", "that-is-all"], &mut bytes);
    client.send_raw(&bytes).expect("sent");
    let mut replies = Vec::new();
    loop {
        let reply = client.receive().expect("a reply");
        if format!("{reply:?}").contains("that-is-all") {
            return replies;
        }
        replies.push(reply);
    }
}

#[test]
fn subscriptions_behind_multi_are_told_of_as_redis_does() {
    for port in PORTS {
        for protocol in PROTOCOLS {
            let mut pair = Pair::new(port, protocol);
            for lines in [
                &["MULTI", "SUBSCRIBE a", "SET {k}x 1", "EXEC"][..],
                &["RESET"],
                &["MULTI", "PSUBSCRIBE a* b*", "SUBSCRIBE c", "EXEC"],
                &["UNSUBSCRIBE", "PUNSUBSCRIBE a*", "PUNSUBSCRIBE b*"],
                &["MULTI", "GET {k}x", "SUBSCRIBE c", "UNSUBSCRIBE c", "EXEC"],
                &["MULTI", "SUNSUBSCRIBE", "UNSUBSCRIBE", "EXEC"],
                &["MULTI", "SUBSCRIBE", "EXEC"],
                &["MULTI", "SUBSCRIBE q", "DISCARD", "GET {k}x"],
            ] {
                let (ours, theirs) = (raw(&mut pair.ours, lines), raw(&mut pair.theirs, lines));
                assert_eq!(ours, theirs, "{port:?} RESP{protocol}: {lines:?}");
                if lines == ["RESET"] && protocol == 3 {
                    pair.ours.say("HELLO 3");
                    pair.theirs.say("HELLO 3");
                }
            }
            // Who has subscribed so gets messages.
            let mut subscriber = pair.others()[0].call(&["PING"]);
            assert_eq!(subscriber, Reply::Simple("PONG".to_owned()));
            for client in [&mut pair.ours, &mut pair.theirs] {
                let _ = raw(client, &["MULTI", "SUBSCRIBE news", "EXEC"]);
            }
            for mut publisher in pair.others() {
                subscriber = publisher.say("PUBLISH news hello");
                assert_eq!(subscriber, Reply::Integer(1));
            }
            let (ours, theirs) = (pair.ours.receive(), pair.theirs.receive());
            assert_eq!(ours.expect("a message"), theirs.expect("a message"));
        }
    }
}

#[test]
fn messages_of_scripts_reach_subscribers_of_all_shards_and_of_undone_ones_nobody() {
    let node = Node::start(Options {
        shards: 3,
        flags: ["--lua-time-limit", "200"].map(str::to_owned).to_vec(),
        ..Options::default()
    });
    let mut subscribers: Vec<Client> = (0..6).map(|_| node.client()).collect();
    for client in &mut subscribers {
        client.say("SUBSCRIBE results");
    }
    let publish =
        "redis.call('set', KEYS[1], ARGV[1]) return redis.call('publish', 'results', ARGV[1])";
    let mut worker = node.client();
    for n in 0..12 {
        let stops = "redis.call('publish', 'results', 'never') while true do end";
        let key = format!("k{n}");
        if n % 4 == 0 {
            let reply = worker.call(&["EVAL", stops, "1", &key]);
            assert!(reply.error().is_some(), "{reply:?}");
            worker.say("MULTI");
            worker.call(&["EVAL", stops, "1", &key]);
            worker.call(&["SET", &key, "x"]);
            let replies = worker.say("EXEC").items();
            assert!(replies[0].error().is_some(), "{replies:?}");
            assert_eq!(replies[1], Reply::ok());
        }
        let n = n.to_string();
        let reply = worker.call(&["EVAL", publish, "1", &key, &n]);
        assert!(matches!(reply, Reply::Integer(_)), "{reply:?}");
        for client in &mut subscribers {
            let message = client.receive().expect("a message");
            assert_eq!(message.items()[2], Reply::bulk(&*n), "{message:?}");
        }
    }
}

#[test]
fn a_transaction_with_scripts_ends_in_time() {
    let node = Node::start(Options {
        shards: 2,
        ..Options::default()
    });
    let mut client = node.client();
    let began = std::time::Instant::now();
    client.say("MULTI");
    for n in 0..20 {
        let busy = "redis.call('set', KEYS[1], 1) local i = 0 while i < 1e7 do i = i + 1 end";
        client.call(&["EVAL", busy, "1", &format!("{{k}}{n}")]);
    }
    let reply = client.say("EXEC");
    let error = reply.error().expect("it takes too long");
    assert!(error.contains("took longer"), "{error}");
    assert!(began.elapsed() < std::time::Duration::from_secs(5));
    assert_eq!(client.say("EXISTS {k}0"), Reply::Integer(0));
}

/// What a user may not do, here and in Redis: only whether it is refused is compared, and what has become of keys.
#[test]
fn scripts_may_do_what_their_user_may() {
    let rules = "ACL SETUSER bob on >p ~a* &c* +@all -del";
    for (port, shards) in [(Port::Entry, 3), (Port::Direct, 1)] {
        let mut pair = Pair::new(port, 2);
        assert_eq!(shards == 1, port == Port::Direct);
        pair.same_line(rules);
        pair.same_line("SET a 1");
        pair.same_line("SET b 1");
        pair.same_line("AUTH bob p");
        let requests: [&[&str]; 13] = [
            &["EVAL", "return redis.call('get', KEYS[1])", "1", "a"],
            &["EVAL", "return redis.call('get', KEYS[1])", "1", "b"],
            &["EVAL", "return redis.call('set', KEYS[1], 2)", "1", "a2"],
            &["EVAL", "return redis.call('del', KEYS[1])", "1", "a2"],
            &["EVAL", "return redis.pcall('del', KEYS[1])", "1", "a2"],
            &["EVAL", "return redis.call('mget', 'b')", "1", "a"],
            &["EVAL", "return redis.call('publish', 'x', 'y')", "0"],
            &["EVAL", "return redis.call('publish', 'c', 'y')", "0"],
            &["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "a"],
            &["SET", "a3", "1"],
            &["EVAL", "return redis.call('unlink', KEYS[1])", "1", "a3"],
            &["EXISTS", "a2", "a3"],
            &["EVAL", "return 1", "0"],
        ];
        for request in requests {
            let (ours, theirs) = pair.ask(request);
            let is_error = ours.error().is_some();
            assert_eq!(is_error, theirs.error().is_some(), "{ours:?} {theirs:?}");
            assert!(is_error || ours == theirs, "{}: {ours:?}", shown(request));
            if is_error && request[0] == "EVAL" && request.get(3) != Some(&"b") {
                let error = ours.error().expect("checked");
                assert!(error.starts_with("ERR ACL failure in script: "), "{error}");
            }
            // Behind MULTI as well.
            for line in ["MULTI", "EXEC"] {
                pair.same_line(line);
            }
            let mut replies = Vec::new();
            for client in [&mut pair.ours, &mut pair.theirs] {
                client.say("MULTI");
                client.call(request);
                replies.push(client.say("EXEC"));
            }
            let is_refused = |reply: &Reply| {
                reply.error().is_some() || reply.items().iter().any(|item| item.error().is_some())
            };
            assert_eq!(
                is_refused(&replies[0]),
                is_refused(&replies[1]),
                "{}: {replies:?}",
                shown(request)
            );
        }
        let log = pair.others()[0].say("ACL LOG");
        let log = format!("{log:?}");
        let has = |text| log.contains(text);
        assert!(
            has("\"lua\"") && has("\"bob\"") && has("addr=127.0.0.1:"),
            "{log}"
        );
    }
}

#[test]
fn what_was_queued_is_looked_at_again_by_exec() {
    for (shards, keys) in [(1, ["a1", "a1"]), (3, ["a1", "{a1}2"])] {
        let node = Node::start(Options {
            shards,
            ..Options::default()
        });
        let mut admin = node.client();
        let rules = "ACL SETUSER bob on >p ~* &* +@all";
        assert_eq!(admin.say(rules), Reply::ok());
        // From a connection of each shard.
        for _ in 0..6 {
            let mut bob = node.client();
            bob.say("AUTH bob p");
            bob.say("SELECT 3");
            bob.say("MULTI");
            bob.call(&["SET", keys[0], "1"]);
            bob.call(&["EVAL", "return redis.call('get', KEYS[1])", "1", keys[0]]);
            bob.call(&["GET", keys[1]]);
            bob.say("PUBLISH x y");
            bob.say("PING");
            let fewer = "ACL SETUSER bob resetchannels resetkeys ~a1 -set -ping";
            assert_eq!(admin.say(fewer), Reply::ok());
            let replies = bob.say("EXEC").items();
            let reason = |at: usize| {
                let error = replies[at].error().unwrap_or_default();
                let head = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
                            EXEC call. This command is no longer allowed for the following reason: ";
                error.strip_prefix(head).unwrap_or(error).to_owned()
            };
            let no_command = "no permission to execute the command or subcommand";
            assert_eq!(reason(0), no_command);
            assert!(replies[1].is_nil(), "{replies:?}");
            match shards {
                1 => assert!(replies[2].is_nil()),
                _ => assert_eq!(reason(2), "no permission to touch the specified keys"),
            }
            let no_channel =
                "no permission to access one of the channels used as arguments to the command";
            assert_eq!(reason(3), no_channel);
            assert_eq!(reason(4), no_command);
            assert_eq!(admin.say("ACL SETUSER bob ~* &* +@all"), Reply::ok());
        }
    }
}
