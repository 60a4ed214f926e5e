//! Users: what they have to say, and what they may do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{Pair, Port, shown};
use ephesus_tests::{Client, Node, Options, Reply, Rng, paths};

/// A file that only its owner may read.
fn secret_file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    path
}

fn started(flag: &str, file: &std::path::Path) -> Node {
    Node::start(Options {
        flags: vec![flag.to_owned(), file.display().to_string()],
        ..Options::default()
    })
}

fn is_closed(client: &mut Client) -> bool {
    (0..100).any(|_| client.try_call(&["PING"]).is_err())
}

#[test]
fn nothing_is_done_before_the_password() {
    let dir = paths::scratch();
    let node = started(
        "--password-file",
        &secret_file(&dir, "password", "hunter2\n"),
    );
    let mut client = node.client();
    let refused = "NOAUTH Authentication required.";
    for line in [
        "PING",
        "GET a",
        "SET a 1",
        "INFO",
        "CLIENT LIST",
        "SUBSCRIBE c",
        "MULTI",
        "ACL WHOAMI",
    ] {
        assert_eq!(client.say(line).error(), Some(refused), "{line}");
    }
    assert!(
        client
            .say("HELLO 3")
            .error()
            .is_some_and(|error| error.starts_with("NOAUTH HELLO"))
    );
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    for line in [
        "AUTH wrong",
        "AUTH default wrong",
        "AUTH bob hunter2",
        "HELLO 2 AUTH default x",
    ] {
        assert_eq!(client.say(line).error(), Some(wrong), "{line}");
    }
    assert_eq!(client.say("AUTH a b c").error(), Some("ERR syntax error"));
    assert_eq!(client.say("AUTH hunter2"), Reply::ok());
    assert_eq!(client.say("SET a 1"), Reply::ok());
    assert_eq!(client.say("ACL WHOAMI"), Reply::bulk("default"));
    assert_eq!(client.say("RESET"), Reply::Simple("RESET".to_owned()));
    assert_eq!(client.say("GET a").error(), Some(refused));
    assert!(client.say("HELLO 3 AUTH default hunter2").error().is_none());
    assert_eq!(client.say("GET a"), Reply::bulk("1"));

    // What comes right behind the password is judged by it, however large.
    let mut client = node.client();
    let value = "v".repeat(1 << 20);
    let mut both = b"*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n".to_vec();
    both.extend_from_slice(
        format!(
            "*3\r\n$3\r\nSET\r\n$1\r\nb\r\n${}\r\n{value}\r\n",
            value.len()
        )
        .as_bytes(),
    );
    client.send_raw(&both).expect("sent");
    assert_eq!(client.receive().expect("a reply"), Reply::ok());
    assert_eq!(client.receive().expect("a reply"), Reply::ok());

    // Who has not said it makes the node hold little.
    for request in ["*100\r\n", "*2\r\n$1000000\r\n"] {
        let mut client = node.client();
        client.send_raw(request.as_bytes()).expect("sent");
        let error = client.receive().expect("a reply");
        let error = error.error().expect("an error");
        assert!(error.contains("unauthenticated"), "{error}");
        assert!(is_closed(&mut client));
    }
    let mut admin = node.client();
    admin.say("AUTH hunter2");
    let all = format!(
        "{:?}{:?}{:?}{:?}{:?}",
        admin.say("INFO everything"),
        admin.say("SLOWLOG GET -1"),
        admin.say("ACL LOG 100"),
        admin.say("CONFIG GET *"),
        admin.say("CLIENT LIST"),
    );
    assert!(
        !all.contains("hunter2") && !node.process().output().contains("hunter2"),
        "{all}"
    );
}

/// Rules that are applied to a user, one after the other.
const RULES: [&str; 36] = [
    "on",
    "off",
    "+get",
    "+set",
    "-set",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@all",
    "-@all",
    "+@string",
    "-@dangerous",
    "+client",
    "+client|id",
    "-client|list",
    "+config|get",
    "allcommands",
    "nocommands",
    "~*",
    "~a*",
    "~b*",
    "%R~a*",
    "%W~b*",
    "%RW~c*",
    "%RW~*",
    "%R~*",
    "allkeys",
    "resetkeys",
    "&*",
    "&news",
    "resetchannels",
    "allchannels",
    "reset",
    "+ping",
    "-get",
];

const TRIED: [&str; 26] = [
    "get a",
    "get b",
    "get c",
    "set a 1",
    "set b 1",
    "set b 1 GET",
    "set c 1",
    "mget a b",
    "mset a 1 c 2",
    "del a",
    "del b c",
    "rename a b",
    "copy a b",
    "copy b a",
    "ping",
    "client id",
    "client list",
    "config get x",
    "flushall",
    "keys *",
    "publish news x",
    "subscribe old",
    "psubscribe news",
    "bitfield a get u8 0",
    "bitfield b get u8 0 set u8 0 1",
    "bitfield b",
];

#[test]
fn rules_allow_what_they_allow_in_redis() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("users"));
    let mut pair = Pair::new(Port::Entry, 3);
    for number in 0..150 {
        let user = format!("user{number}");
        let mut request = vec!["ACL", "SETUSER", &user];
        let count = rng.between(1, 8);
        for _ in 0..count {
            request.push(*rng.pick(&RULES));
        }
        let (ours, theirs) = pair.ask(&request);
        assert_eq!(
            ours.error().is_some(),
            theirs.error().is_some(),
            "{}: {ours:?} {theirs:?}",
            shown(&request)
        );
        if ours.error().is_some() {
            continue;
        }
        for tried in TRIED {
            let mut dry = vec!["ACL", "DRYRUN", &user];
            dry.extend(tried.split(' '));
            let (ours, theirs) = pair.ask(&dry);
            assert_eq!(
                ours == Reply::ok(),
                theirs == Reply::ok(),
                "{} after {}: {ours:?} {theirs:?}",
                shown(&dry),
                shown(&request)
            );
        }
    }
    for line in [
        "ACL SETUSER bob nosuchrule",
        "ACL SETUSER bob +nosuch",
        "ACL DELUSER default",
        "ACL DELUSER nosuch",
        "ACL GENPASS 0",
        "ACL GENPASS x",
        "ACL CAT nosuch",
        "ACL GETUSER nosuch",
        "ACL DRYRUN nosuch get a",
        "ACL DRYRUN default nosuch a",
        "ACL DRYRUN default get",
        "ACL WHOAMI",
        "AUTH x",
        "AUTH a b c",
        "AUTH nosuch x",
    ] {
        pair.same_line(line);
    }
}

#[test]
fn a_user_does_what_it_may_and_goes_with_its_rules() {
    let node = Node::start(Options::default());
    let mut admin = node.client();
    let made =
        "ACL SETUSER bob on >secret1 ~a* resetchannels &news +@read +set +publish +subscribe -keys";
    assert_eq!(admin.say(made), Reply::ok());
    let mut bob = node.client();
    assert_eq!(bob.say("AUTH bob secret1"), Reply::ok());
    assert_eq!(bob.say("SET a1 x"), Reply::ok());
    assert_eq!(bob.say("GET a1"), Reply::bulk("x"));
    for line in [
        "SET b1 x",
        "MGET a1 b1",
        "KEYS *",
        "DEL a1",
        "CONFIG GET *",
        "PUBLISH old x",
        "SUBSCRIBE old",
        "FLUSHALL",
    ] {
        let reply = bob.say(line);
        assert!(
            reply
                .error()
                .is_some_and(|error| error.starts_with("NOPERM ")),
            "{line}: {reply:?}"
        );
    }
    // In another database its keys have the names that it gives them.
    assert_eq!(
        bob.say("ACL WHOAMI").error().map(|error| &error[..6]),
        Some("NOPERM")
    );
    assert_eq!(
        admin.say("ACL SETUSER bob +select +acl|whoami"),
        Reply::ok()
    );
    assert_eq!(bob.say("SELECT 4"), Reply::ok());
    assert_eq!(bob.say("SET a1 y"), Reply::ok());
    assert!(bob.say("SET b1 y").error().is_some());
    assert_eq!(bob.say("ACL WHOAMI"), Reply::bulk("bob"));
    let list = admin.say("CLIENT LIST").text();
    assert!(
        list.contains(" user=bob ") && list.contains(" user=default "),
        "{list}"
    );
    let log = format!("{:?}", admin.say("ACL LOG"));
    assert!(
        log.contains("b1") && log.contains("bob") && !log.contains("secret1"),
        "{log}"
    );

    let dry = |line: &str| format!("ACL DRYRUN bob {line}");
    for (line, told) in [
        ("publish old x", "to access the 'old' channel"),
        ("subscribe news old", "to access the 'old' channel"),
        ("get b", "to access the 'b' key"),
    ] {
        let reply = admin.say(&dry(line)).text();
        assert!(reply.ends_with(told), "{line}: {reply}");
    }
    let stats = admin.say("INFO stats").text();
    for (what, least) in [("auth", 0), ("cmd", 4), ("key", 3), ("channel", 2)] {
        let name = format!("acl_access_denied_{what}:");
        let count = stats.lines().find_map(|line| line.strip_prefix(&*name));
        let count: u64 = count.expect(what).trim().parse().expect("a number");
        assert!(count >= least, "{what}: {count}");
    }
    // What a script may do is looked at when it does it.
    let scripts = "ACL SETUSER eve on nopass ~a* +@all";
    assert_eq!(admin.say(scripts), Reply::ok());
    assert_eq!(admin.say("ACL DRYRUN eve eval x 0"), Reply::ok());

    // Whoever it is connected to, it is gone with its user.
    let mut idle: Vec<Client> = (0..8).map(|_| node.client()).collect();
    for client in &mut idle {
        assert_eq!(client.say("AUTH bob secret1"), Reply::ok());
    }
    assert_eq!(admin.say("ACL DELUSER bob"), Reply::Integer(1));
    idle.iter_mut()
        .for_each(|client| assert!(is_closed(client)));
    assert!(is_closed(&mut bob));
    assert_eq!(
        node.client()
            .say("AUTH bob secret1")
            .error()
            .map(|error| &error[..9]),
        Some("WRONGPASS")
    );
}

#[test]
fn an_acl_file_is_read_at_the_start_loaded_and_saved() {
    let dir = paths::scratch();
    let text = "user default off\nuser admin on >pass ~* &* +@all\n";
    let file = secret_file(&dir, "users.acl", text);
    let mut node = started("--acl-file", &file);
    let mut admin = node.client();
    assert!(admin.say("PING").error().is_some());
    assert_eq!(admin.say("AUTH admin pass"), Reply::ok());
    assert_eq!(
        admin.say("ACL SETUSER carol on >new ~c* +get +set"),
        Reply::ok()
    );
    assert_eq!(admin.say("ACL SAVE"), Reply::ok());
    let saved = fs::read_to_string(&file).expect("a file");
    assert!(
        saved.contains("user carol on #") && !saved.contains("pass "),
        "{saved}"
    );
    assert_eq!(admin.say("ACL DELUSER carol"), Reply::Integer(1));
    assert_eq!(admin.say("ACL LOAD"), Reply::ok());
    let mut carol = node.client();
    assert_eq!(carol.say("AUTH carol new"), Reply::ok());
    assert_eq!(carol.say("SET c 1"), Reply::ok());
    fs::write(&file, "user bad nosuchrule\n").expect("written");
    assert!(
        admin
            .say("ACL LOAD")
            .error()
            .is_some_and(|error| error.contains("users.acl:1"))
    );
    assert_eq!(carol.say("GET c"), Reply::bulk("1"), "nothing has changed");
    node.stop();

    let refused = node.start_refused();
    refused.assert_says(&["--acl-file", "users.acl:1"]);
    fs::write(&file, "user x (+get ~a)\n").expect("written");
    node.start_refused()
        .assert_says(&["users.acl:1", "Selectors"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("set");
    node.start_refused().assert_says(&["chmod o-rwx"]);
    let password = secret_file(&dir, "password", "x\n").display().to_string();
    node.options
        .flags
        .extend(["--password-file".to_owned(), password]);
    node.start_refused()
        .assert_says(&["--password-file", "cannot be used with"]);
}

#[test]
fn who_has_subscribed_to_what_it_may_not_any_more_is_closed() {
    let node = Node::start(Options::default());
    let mut admin = node.client();
    let made = "ACL SETUSER alice on nopass resetchannels &news &old +@all";
    assert_eq!(admin.say(made), Reply::ok());
    let mut clients: Vec<Client> = (0..8).map(|_| node.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.say("HELLO 3 AUTH alice x");
        let subscribe = ["SUBSCRIBE old", "PSUBSCRIBE old", "SSUBSCRIBE old", "PING"][n % 4];
        assert!(client.say(subscribe).error().is_none(), "{subscribe}");
    }
    for kept in ["ACL SETUSER alice &more", "ACL SETUSER alice -get"] {
        assert_eq!(admin.say(kept), Reply::ok());
        for client in &mut clients {
            assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
        }
    }
    let less = "ACL SETUSER alice resetchannels &news &more";
    assert_eq!(admin.say(less), Reply::ok());
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(is_closed(client), n % 4 != 3, "{n}");
    }
}

#[test]
fn who_connected_when_a_password_was_needed_is_free_when_it_is_not() {
    let dir = paths::scratch();
    let node = started("--password-file", &secret_file(&dir, "password", "pass\n"));
    let (mut client, mut admin) = (node.client(), node.client());
    assert!(client.say("GET a").error().is_some());
    admin.say("AUTH pass");
    assert_eq!(admin.say("ACL SETUSER default nopass"), Reply::ok());
    let mut mset = vec!["MSET".to_owned()];
    mset.extend((0..40).map(|n| format!("key{n}")));
    assert_eq!(client.call(&mset), Reply::ok());
    assert_eq!(
        client.call(&["SET", "a", &"v".repeat(100_000)]),
        Reply::ok()
    );
}
