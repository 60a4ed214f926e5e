//! Transactions of connections of one shard on keys of this one or another, at both ports, while partitions move.

use crate::command::spec::Cmd;
use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, Client, command, key};
use crate::shard::transaction::WATCHED_MAX;

const NOTHING_DONE: &str = "*-1\r\n";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";
const OF_SHARDS: &str = "-CROSSSLOT Keys of a transaction, watched ones included, have to be on one shard of the node\r\n";
const QUEUED: &str = "+QUEUED\r\n";

/// A client on shard 0 of two, at the entry port, and keys of the shards.
fn entry() -> (Bed, Client, [String; 2]) {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(0, Entry);
    (bed, client, [key(0, 0), key(1, 0)])
}

fn watchers(bed: &mut Bed) -> usize {
    (0..2).map(|n| bed.core(n).keyspace.watchers()).sum()
}

#[test]
fn a_transaction_is_one_record_of_the_shard_of_its_keys() {
    let (mut bed, client, keys) = entry();
    for (shard, key) in (0..).zip(&keys) {
        let appended = bed.core(shard).keyspace.log.appended();
        let (set, incr, append) = (
            format!("SET {key} 5"),
            format!("INCR {key}"),
            format!("APPEND {key} x"),
        );
        let commands = ["MULTI", &set, &incr, "PING", &append, &incr, "EXEC"];
        let replies = bed.ask(client, &commands);
        let refused = "-ERR value is not an integer or out of range\r\n";
        let expected = format!(
            "+OK\r\n{}*5\r\n+OK\r\n:6\r\n+PONG\r\n:2\r\n{refused}",
            QUEUED.repeat(5)
        );
        assert_eq!(replies, expected);
        let log = &bed.core(shard).keyspace.log;
        assert_eq!(log.appended().0, appended.0 + 1);
        let stats = bed.core(shard).stats().of(Cmd::Incr);
        let counted = (stats.calls.get(), stats.rejected.get(), stats.failed.get());
        assert_eq!(counted, (2, 0, 1));
    }
    assert_eq!(bed.core(0).unanswered(), 0);
}

#[test]
fn commands_behind_multi_do_nothing_before_exec_and_nothing_after_discard() {
    let (mut bed, client, keys) = entry();
    for key in &keys {
        let set = format!("SET {key} 5");
        bed.ask(client, &["MULTI", &set]);
        let get = format!("GET {key}");
        let other = bed.connect(1, Entry);
        assert_eq!(bed.ask(other, &[&get]), "$-1\r\n");
        assert_eq!(
            bed.ask(client, &["DISCARD", "EXEC", &get]),
            "+OK\r\n-ERR EXEC without MULTI\r\n$-1\r\n"
        );
        assert_eq!(
            bed.ask(client, &["MULTI", &set, "RESET", &get]),
            format!("+OK\r\n{QUEUED}+RESET\r\n$-1\r\n")
        );
    }
}

#[test]
fn subscriptions_behind_multi_happen_with_all_others_or_not_at_all() {
    let (mut bed, client, keys) = entry();
    let other = bed.connect(1, Entry);
    let publish = |bed: &mut Bed| bed.ask(other, &["PUBLISH old x", "PUBLISH new x"]);
    bed.ask(client, &["HELLO 3", "SUBSCRIBE old"]);
    for key in &keys {
        let set = format!("SET {key} 1");
        bed.ask(client, &[&format!("WATCH {key}")]);
        bed.ask(other, &[&set]);
        let commands = ["MULTI", "UNSUBSCRIBE old", "SUBSCRIBE new", &set, "EXEC"];
        assert!(bed.ask(client, &commands).ends_with("_\r\n"));
        assert_eq!(publish(&mut bed), ":1\r\n:0\r\n");
        assert!(bed.ask(client, &["CLIENT INFO"]).contains(" sub=1 "));
    }
    let set = format!("SET {} 1", keys[1]);
    bed.ask(
        client,
        &["MULTI", "UNSUBSCRIBE old", "SUBSCRIBE new", &set, "EXEC"],
    );
    assert_eq!(publish(&mut bed), ":0\r\n:1\r\n");
}

#[test]
fn slow_commands_behind_multi_are_logged_with_their_client() {
    let (mut bed, client, keys) = entry();
    bed.ask(
        client,
        &["CONFIG SET slowlog-log-slower-than 0", "CLIENT SETNAME me"],
    );
    for key in &keys {
        bed.ask(client, &["MULTI", &format!("APPEND {key} x"), "EXEC"]);
        let slow = bed.core(0).node.slow.latest(usize::MAX);
        let append = slow
            .iter()
            .find(|slow| slow.args.first().is_some_and(|name| name == b"APPEND"));
        let append = append.expect("it is logged");
        assert_eq!(append.args.get(1).map(Vec::as_slice), Some(key.as_bytes()));
        assert_eq!((&*append.address, &*append.name), ("127.0.0.1:1", "me"));
        bed.ask(client, &["SLOWLOG RESET"]);
    }
}

#[test]
fn what_is_refused_behind_multi_refuses_all_of_it() {
    let (mut bed, client, keys) = entry();
    let [here, there] = &keys;
    let set = |key: &str| format!("SET {key} 1");
    for (line, error) in [
        (set(there), OF_SHARDS),
        (format!("MGET {here} {there}"), OF_SHARDS),
        (
            "DBSIZE".into(),
            "-ERR a transaction is executed by one shard, and this command is about all of the node\r\n",
        ),
        (
            "GET".into(),
            "-ERR wrong number of arguments for 'get' command\r\n",
        ),
        (
            "CLUSTER GETSLOTMIGRATIONS".into(),
            "-ERR Command not allowed inside a transaction\r\n",
        ),
    ] {
        let replies = bed.ask(client, &["MULTI", &set(here), &line, &set(here), "EXEC"]);
        let expected = format!("+OK\r\n{QUEUED}{error}{QUEUED}{ABORTED}");
        assert_eq!(replies, expected, "{line}");
    }
    assert_eq!(bed.ask(client, &["DBSIZE"]), ":0\r\n");
}

#[test]
fn a_direct_port_takes_one_slot_and_redirects_at_once() {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(0, Direct);
    let (one, two, other) = (key(0, 0), key(0, 1), key(1, 0));
    let set = |key: &str| format!("SET {key} 1");
    let replies = bed.ask(client, &["MULTI", &set(&one), &set(&one), "DBSIZE", "EXEC"]);
    let queued = QUEUED.repeat(3);
    assert_eq!(
        replies,
        format!("+OK\r\n{queued}*3\r\n+OK\r\n+OK\r\n:1\r\n")
    );
    let replies = bed.ask(client, &["MULTI", &set(&one), &set(&two), "EXEC"]);
    let crossed = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    assert_eq!(replies, format!("+OK\r\n{QUEUED}{QUEUED}{crossed}"));
    let replies = bed.ask(client, &["MULTI", &set(&other), "EXEC"]);
    assert!(replies.contains("-MOVED ") && replies.ends_with(ABORTED));
    let keys = "MULTI\r\nKEYS *\r\nSCAN 0\r\nFLUSHALL\r\nRANDOMKEY\r\nEXEC";
    let replies = bed.ask(client, &[keys]);
    let one = format!("${}\r\n{one}\r\n", one.len());
    assert!(
        replies.ends_with(&format!(
            "*4\r\n*1\r\n{one}*2\r\n$1\r\n0\r\n*1\r\n{one}+OK\r\n$-1\r\n"
        )),
        "{replies}"
    );
}

#[test]
fn a_watched_key_that_changes_makes_exec_do_nothing() {
    let (mut bed, client, keys) = entry();
    let other = bed.connect(1, Entry);
    for key in &keys {
        let (watch, set) = (format!("WATCH {key}"), format!("SET {key} 1"));
        let exec = ["MULTI", &set, "EXEC"];
        bed.ask(client, &[&watch]);
        bed.ask(other, &[&format!("SET {key} 0")]);
        assert_eq!(
            bed.ask(client, &exec),
            format!("+OK\r\n{QUEUED}{NOTHING_DONE}")
        );
        assert_eq!(bed.ask(client, &[&format!("GET {key}")]), "$1\r\n0\r\n");
        assert_eq!(watchers(&mut bed), 0);
        let done = format!("+OK\r\n{QUEUED}*1\r\n+OK\r\n");
        for end in ["UNWATCH", "MULTI\r\nDISCARD", "RESET"] {
            bed.ask(client, &[&watch]);
            bed.ask(other, &[&set]);
            bed.ask(client, &[end]);
            assert_eq!(watchers(&mut bed), 0, "{end}");
            assert_eq!(bed.ask(client, &exec), done, "{end}");
        }
        bed.ask(client, &[&watch, &watch]);
        assert_eq!(bed.ask(client, &exec), done);
        assert_eq!(watchers(&mut bed), 0);
        bed.ask(client, &[&format!("PEXPIRE {key} 100"), &watch]);
        bed.advance(200);
        let replies = bed.ask(client, &["MULTI", "PING", "EXEC"]);
        assert_eq!(replies, format!("+OK\r\n{QUEUED}{NOTHING_DONE}"));
    }
    let watch = format!("WATCH {} {}", keys[0], keys[1]);
    assert_eq!(bed.ask(client, &[&watch]), OF_SHARDS);
    let [one, two] = [0, 1].map(|n| format!("WATCH {}", keys[n]));
    assert_eq!(
        bed.ask(client, &[&one, &two]),
        format!("+OK\r\n{OF_SHARDS}")
    );
}

#[test]
fn watches_go_with_their_client() {
    let (mut bed, client, keys) = entry();
    let direct = bed.connect(0, Direct);
    bed.ask(client, &[&format!("WATCH {}", keys[1])]);
    bed.ask(direct, &[&format!("WATCH {}", keys[0])]);
    assert_eq!(watchers(&mut bed), 2);
    assert!(bed.ask(client, &["CLIENT LIST"]).contains(" watch=1 "));
    bed.kill(client);
    bed.kill(direct);
    bed.settle();
    assert_eq!(watchers(&mut bed), 0);
    for key in &keys {
        let client = bed.connect(0, Entry);
        bed.ask(client, &[&format!("WATCH {key}")]);
        assert_eq!(watchers(&mut bed), 1);
        bed.end_input(client);
        bed.settle();
        assert!(!bed.is_open(client));
        assert_eq!(watchers(&mut bed), 0);
    }
}

/// What CLIENT INFO says of itself: the name, the database and the protocol.
fn session(bed: &mut Bed, client: Client) -> String {
    let info = bed.ask(client, &["CLIENT INFO"]);
    let words = info.split_whitespace();
    let is_asked = |word: &&str| {
        ["name=", "db=", "resp="]
            .iter()
            .any(|it| word.starts_with(it))
    };
    words.filter(is_asked).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_commands_behind_multi_say_about_their_connection_happens_with_all_others_or_not_at_all() {
    let value = "x".repeat(1 << 20);
    let (before, after) = ("name=old db=0 resp=2", "name=new db=1 resp=3");
    let about = ["CLIENT SETNAME new", "SELECT 1", "HELLO 3"];
    // A watched key has changed, or the effects are too large.
    for is_watched in [true, false] {
        let (mut bed, client, keys) = entry();
        let other = bed.connect(1, Entry);
        for key in &keys {
            let set = format!("SET {key} 1");
            bed.ask(client, &["CLIENT SETNAME old"]);
            if is_watched {
                bed.ask(client, &[&format!("WATCH {key}")]);
                bed.ask(other, &[&set]);
            }
            bed.ask(client, &["MULTI"]);
            bed.ask(client, &about);
            for _ in 0..8 {
                bed.send_bytes(client, &command(&["APPEND", key, &value]));
                bed.settle();
            }
            bed.take(client);
            // What comes behind it, too, is of the database of before.
            let replies = bed.ask(client, &["EXEC", &set]);
            let is_refused = replies.starts_with(if is_watched { NOTHING_DONE } else { "-ERR " });
            assert!(is_refused && replies.ends_with("+OK\r\n"), "{replies}");
            assert_eq!(bed.ask(other, &[&format!("GET {key}")]), "$1\r\n1\r\n");
            assert_eq!(session(&mut bed, client), before);
            let client = bed.connect(0, Entry);
            bed.ask(client, &["MULTI"]);
            bed.ask(client, &about);
            let replies = bed.ask(client, &[&set, "EXEC"]);
            assert!(replies.contains("*4\r\n+OK\r\n+OK\r\n%7\r\n"), "{replies}");
            assert_eq!(session(&mut bed, client), after);
        }
    }
}

#[test]
fn exec_waits_as_a_whole_while_a_partition_is_held_and_nothing_overtakes_it() {
    for (at, is_watched) in [(0, false), (0, true), (1, false), (1, true)] {
        let mut bed = Bed::new(2, &[]);
        let client = bed.connect(at, Entry);
        // Both partitions are of shard 0.
        let (moving, other) = (key(0, 0), key(2, 0));
        if is_watched {
            bed.ask(client, &[&format!("WATCH {moving}")]);
        }
        bed.prepare_within(0, 1);
        let mut commands = vec!["MULTI".to_owned(), format!("SET {other} 1")];
        if !is_watched {
            commands.push(format!("SET {moving} 1"));
        }
        commands.extend(["EXEC".to_owned(), format!("GET {other}")]);
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let queued = QUEUED.repeat(commands.len() - 3);
        assert_eq!(bed.ask(client, &commands), format!("+OK\r\n{queued}"));
        let source = bed.core(0);
        let id = ephesus_wire::PartitionId(0);
        source.keyspace.end_outgoing(id);
        source.resume(id);
        bed.settle();
        let done = match is_watched {
            true => "*1\r\n+OK\r\n",
            false => "*2\r\n+OK\r\n+OK\r\n",
        };
        assert_eq!(bed.take(client), format!("{done}$1\r\n1\r\n"));
        assert_eq!(watchers(&mut bed), 0);
    }
}

#[test]
fn a_pause_of_writes_holds_exec_back_that_writes() {
    let (mut bed, client, keys) = entry();
    let other = bed.connect(0, Entry);
    let (set, get) = (format!("SET {} 1", keys[0]), format!("GET {}", keys[0]));
    bed.ask(client, &["MULTI", &set]);
    bed.ask(other, &["CLIENT PAUSE 1000 WRITE"]);
    assert_eq!(bed.ask(client, &["EXEC"]), "");
    let writer = bed.connect(0, Entry);
    assert_eq!(bed.ask(writer, &[&set]), "");
    // Those that write are not looked at again before the pause is over.
    bed.core(0).unblock();
    assert!(bed.core(0).listed.is_empty());
    let reads = bed.ask(other, &["MULTI", &get, "EXEC"]);
    assert_eq!(reads, format!("+OK\r\n{QUEUED}*1\r\n$-1\r\n"));
    bed.ask(other, &["CLIENT UNPAUSE"]);
    assert_eq!(bed.take(client), "*1\r\n+OK\r\n");
    assert_eq!(bed.take(writer), "+OK\r\n");
}

#[test]
fn exec_that_has_waited_too_long_is_refused_and_nothing_is_watched_any_more() {
    for at in [0, 1] {
        let mut bed = Bed::new(2, &[]);
        let client = bed.connect(at, Entry);
        let (moving, other) = (key(0, 0), key(2, 0));
        bed.ask(client, &[&format!("WATCH {moving}")]);
        bed.prepare_within(0, 1);
        bed.ask(client, &["MULTI", &format!("SET {other} 1"), "EXEC"]);
        bed.advance(2_000);
        let refused = bed.take(client);
        assert!(refused.starts_with("-CLUSTERDOWN "), "{refused}");
        assert_eq!(watchers(&mut bed), 0);
        assert_eq!(bed.ask(client, &[&format!("GET {other}")]), "$-1\r\n");
    }
}

#[test]
fn what_a_partition_that_has_left_was_watched_for_has_changed() {
    for at in [0, 1] {
        let mut bed = Bed::new(2, &[]);
        let client = bed.connect(at, Entry);
        let (moving, other) = (key(0, 0), key(2, 0));
        bed.ask(client, &[&format!("WATCH {moving}")]);
        bed.prepare_within(0, 1);
        let set = format!("SET {other} 1");
        bed.ask(client, &["MULTI", &set, "EXEC"]);
        bed.commit_within(0);
        bed.follow();
        assert_eq!(bed.take(client), NOTHING_DONE);
        // At home again, but who knows what has happened meanwhile.
        bed.ask(client, &[&format!("WATCH {moving}"), "MULTI"]);
        bed.prepare_within(0, 0);
        bed.commit_within(0);
        bed.follow();
        assert_eq!(
            bed.ask(client, &[&set, "EXEC"]),
            format!("{QUEUED}{NOTHING_DONE}")
        );
        assert_eq!(watchers(&mut bed), 0);
        assert_eq!(bed.ask(client, &[&format!("GET {other}")]), "$-1\r\n");
    }
}

#[test]
fn exec_follows_its_keys() {
    let mut bed = Bed::new(3, &[]);
    let client = bed.connect(2, Entry);
    let (one, two) = (key(0, 0), key(3, 0));
    bed.ask(client, &["MULTI", &format!("SET {one} 1")]);
    bed.prepare_within(0, 1);
    bed.commit_within(0);
    // The shard of the connection does not know it yet.
    bed.send_routes(&[0, 1]);
    bed.settle();
    assert_eq!(bed.ask(client, &["EXEC"]), "*1\r\n+OK\r\n");
    let sets = [&one, &two].map(|key| format!("SET {key} 2"));
    let replies = bed.ask(client, &["MULTI", &sets[0], &sets[1], "EXEC"]);
    assert_eq!(replies, format!("+OK\r\n{QUEUED}{QUEUED}{OF_SHARDS}"));
    bed.follow();
    bed.ask(client, &["MULTI", &sets[0]]);
    bed.move_away(0);
    let moved = bed.ask(client, &["EXEC"]);
    assert!(moved.starts_with("-MOVED "), "{moved}");
    assert_eq!(bed.core(2).unanswered(), 0);
}

#[test]
fn a_queue_is_bounded_and_counted() {
    let (mut bed, client, keys) = entry();
    let value = "x".repeat(1 << 20);
    bed.ask(client, &["MULTI"]);
    let before = bed.held_bytes(client);
    bed.send_bytes(client, &command(&["SET", &keys[0], &value]));
    assert!(bed.held_bytes(client) > before + (1 << 20));
    for _ in 0..40 {
        bed.send_bytes(client, &command(&["SET", &keys[0], &value]));
        bed.settle();
    }
    let replies = bed.take(client);
    assert!(replies.contains("-ERR the commands of a transaction exceed"));
    assert!(bed.held_bytes(client) < 1 << 20);
    assert_eq!(bed.ask(client, &["EXEC"]), ABORTED);
    // What is queued fits, its effects do not fit one record of this small log.
    for key in &keys {
        let client = bed.connect(0, Entry);
        bed.ask(client, &["MULTI"]);
        for _ in 0..8 {
            bed.send_bytes(client, &command(&["APPEND", key, &value]));
            bed.settle();
        }
        bed.take(client);
        let replies = bed.ask(client, &["EXEC", &format!("STRLEN {key}")]);
        assert!(
            replies.starts_with("-ERR the command's effects exceed "),
            "{replies}"
        );
        assert!(replies.ends_with(":0\r\n"));
    }
    let mut watch = vec!["WATCH".to_owned()];
    watch.extend((0..WATCHED_MAX).map(|n| format!("{{{}}}{n}", keys[1])));
    let words: Vec<&str> = watch.iter().map(String::as_str).collect();
    bed.send_bytes(client, &command(&words));
    assert_eq!(
        bed.ask(client, &["WATCH one"]),
        format!("+OK\r\n-ERR at most {WATCHED_MAX} keys can be watched at once\r\n")
    );
}

#[test]
fn large_replies_are_made_together() {
    let (mut bed, client, keys) = entry();
    let value = "x".repeat(3 << 20);
    for key in &keys {
        bed.send_bytes(client, &command(&["SET", key, &value]));
        bed.settle();
        bed.take(client);
        let get = format!("GET {key}");
        bed.ask(client, &["MULTI"]);
        for _ in 0..5 {
            bed.ask(client, &[&get]);
        }
        let replies = bed.ask(client, &["EXEC"]);
        assert!(replies.len() > 15 << 20 && replies.starts_with("*5\r\n$3145728\r\n"));
    }
    let node = std::sync::Arc::clone(&bed.core(0).node);
    assert_eq!(node.large_replies.taken(), 0);
}

#[test]
fn replies_are_bounded_also_those_that_are_handed_over() {
    let (mut bed, client, keys) = entry();
    let long = "x".repeat(1 << 20);
    let refused = [
        "-ERR the reply would be longer than ",
        "-ERR the commands of a transaction exceed ",
    ];
    for (key, refused) in keys.iter().zip(refused) {
        bed.ask(client, &["MULTI", &format!("SET {key} 1")]);
        for _ in 0..30 {
            bed.send_bytes(client, &command(&["ECHO", &long]));
            bed.settle();
            bed.take(client);
        }
        for _ in 0..6 {
            bed.ask(client, &["COMMAND"; 50]);
        }
        let replies = bed.ask(client, &["EXEC", &format!("EXISTS {key}")]);
        assert!(replies.starts_with(refused), "{replies:.200}");
        assert!(replies.ends_with("\r\n:0\r\n"));
    }
}

#[test]
fn a_transaction_that_takes_too_long_does_nothing() {
    let (mut bed, client, keys) = entry();
    let value = "x".repeat(3 << 20);
    bed.send_bytes(client, &command(&["SET", &keys[0], &value]));
    bed.settle();
    bed.take(client);
    let count = format!("BITCOUNT {}", keys[0]);
    bed.ask(client, &["MULTI", &format!("APPEND {{{}}}2 x", keys[0])]);
    for _ in 0..100 {
        bed.ask(client, &[&*count; 100]);
    }
    let replies = bed.ask(client, &["EXEC", &format!("EXISTS {{{}}}2", keys[0])]);
    assert_eq!(
        replies,
        "-ERR the transaction took longer than 1000 ms, nothing of it was done\r\n:0\r\n"
    );
}
