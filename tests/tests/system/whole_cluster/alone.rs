//! A node that brings its own coordinator: alone, with a guest, and with a second coordinator.

use std::time::Duration;

use ephesus_tests::coordinator::{Coordinator, Told, ephesus};
use ephesus_tests::ports::PortBlock;
use ephesus_tests::roaming::{Roaming, moved};
use ephesus_tests::whole::listed;
use ephesus_tests::{Client, Node, Options, Reply, paths};

use super::{LEASE_LOST_WITHIN, SERVES_WITHIN, check, fill, is_down, key};

const KEYS: u64 = 100;

/// How long after it was added the second coordinator is started.
const LATE: Duration = Duration::from_secs(4);

fn within(at_most: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < at_most, "{what}: not within {at_most:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn coordinator_of(node: &Node) -> String {
    format!("127.0.0.1:{}", node.port() + 20_000)
}

/// The host of the cluster, and a guest that owns nothing.
fn host_and_guest() -> (Node, Node) {
    let host = Node::start(Options {
        name: Some("host".to_owned()),
        ..Options::default()
    });
    fill(&mut Roaming::new(vec![host.entry()]), 0..KEYS);
    let guest = Node::start(Options {
        partitions: None,
        name: Some("guest".to_owned()),
        coordinators: vec![coordinator_of(&host)],
        ..Options::default()
    });
    (host, guest)
}

/// Every key of the guest leads to the host, and both list both.
fn assert_guest_redirects(host: &Node, guest: &Node) {
    let mut client = guest.client();
    within(SERVES_WITHIN, "the guest has a lease", || {
        !is_down(&client.say("GET a"))
    });
    for n in 0..KEYS {
        let reply = client.call(&["GET", &key(n)]);
        let port = moved(&reply).unwrap_or_else(|| panic!("{reply:?}")).port();
        assert!(
            [host.direct_port(0), host.direct_port(1)].contains(&port),
            "{reply:?}"
        );
    }
    check(&mut Roaming::new(vec![guest.entry()]), 0..KEYS);
    let (by_guest, _) = listed(&mut client);
    let (by_host, _) = listed(&mut host.client());
    assert_eq!(by_guest, by_host);
    assert_eq!(by_guest.len(), 4);
    let told = ephesus(&["status", "--coordinator", &coordinator_of(host)]);
    told.assert(0, &[]);
    assert!(told.out.contains("2: 2 live"), "{}", told.out);
}

#[test]
fn a_guest_of_a_lone_node_redirects_everything() {
    let (mut host, mut guest) = host_and_guest();
    assert_guest_redirects(&host, &guest);
    guest.kill();
    guest.restart();
    within(SERVES_WITHIN, "it is live again", || {
        let told = ephesus(&["status", "--coordinator", &coordinator_of(&host)]);
        told.out.contains("2: 2 live")
    });
    assert_guest_redirects(&host, &guest);
    host.stop();
    // Without a coordinator there is no lease for the guest.
    let mut client = guest.client();
    within(2 * LEASE_LOST_WITHIN, "no lease", || {
        is_down(&client.say("GET a"))
    });
    host.restart();
    within(SERVES_WITHIN, "both are live", || {
        let told = ephesus(&["status", "--coordinator", &coordinator_of(&host)]);
        told.out.contains("2: 2 live")
    });
    assert_guest_redirects(&host, &guest);
    guest.stop();
    assert_eq!(
        host.client().say("SET key:0 0"),
        Reply::ok(),
        "the host needs no lease"
    );
}

/// Threads of a process with a real-time policy, by name.
fn real_time_threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let stats = tasks.filter_map(|task| {
        // A thread may have ended meanwhile.
        std::fs::read_to_string(task.ok()?.path().join("stat")).ok()
    });
    let is_real_time = |stat: &String| {
        // Behind the name: field 3 is the state, field 40 the real-time priority.
        let (_, rest) = stat.rsplit_once(") ").expect("a name");
        rest.split(' ').nth(37) != Some("0")
    };
    stats.filter(is_real_time).collect()
}

#[test]
fn no_thread_has_real_time_priority() {
    let node = Node::start(Options::default());
    assert_eq!(node.client().say("SET a 1"), Reply::ok());
    assert_eq!(
        real_time_threads(node.process().pid()),
        Vec::<String>::new()
    );
}

/// What a node says to a read within 300 ms, and whether it closes the connection.
fn asks(mut client: Client) -> (Vec<u8>, bool) {
    if client.send(&["GET", "a"]).is_err() {
        return (Vec::new(), true);
    }
    client.drain(Duration::from_millis(300))
}

/// The words behind `ephesus coordinator` in what `coordinator-member add` has printed.
fn start_command(told: &Told) -> Vec<&str> {
    let mut lines = told.out.lines();
    let line = lines.find(|line| line.contains("ephesus coordinator --id"));
    let line = line.unwrap_or_else(|| panic!("no command: {told:?}"));
    line.split_whitespace().skip(2).collect()
}

#[test]
fn a_node_needs_a_lease_once_its_coordinator_is_not_the_only_one() {
    let mut host = Node::start(Options::default());
    let mut client = host.client();
    assert_eq!(client.say("SET a 1"), Reply::ok());
    let (ports, home) = (PortBlock::take(), paths::scratch());
    let address = format!("127.0.0.1:{}", ports.base());
    let of_host = coordinator_of(&host);
    let told = ephesus(&[
        "coordinator-member",
        "add",
        &address,
        "--coordinator",
        &of_host,
    ]);
    told.assert(0, &[]);
    let mut second = Coordinator::new(2, &start_command(&told), home.path());
    // Whoever has to start it takes longer than an election does.
    std::thread::sleep(LATE);
    second.start();
    within(SERVES_WITHIN, "both take part", || {
        let told = ephesus(&["coordinators", "--json", "--coordinator", &of_host]);
        told.out.matches("\"active\": true").count() == 2
    });
    within(SERVES_WITHIN, "a lease", || {
        client.say("GET a") == Reply::bulk("1")
    });
    second.signal(libc::SIGSTOP);
    within(LEASE_LOST_WITHIN, "no lease without a majority", || {
        is_down(&client.say("GET a"))
    });
    assert!(is_down(&client.say("SET a 2")));
    second.signal(libc::SIGCONT);
    within(SERVES_WITHIN, "a lease", || {
        client.say("GET a") == Reply::bulk("1")
    });

    // Started again while the other is away, it waits for it.
    second.kill();
    host.kill();
    host.spawn();
    // The kernel may still take connections for the killed process, and closes them.
    within(SERVES_WITHIN, "its port is open", || {
        Client::connect(host.port()).is_ok_and(|client| !asks(client).1)
    });
    for _ in 0..4 {
        let (answer, is_closed) = asks(host.client());
        assert!(
            answer.is_empty() && !is_closed,
            "it answers without a majority: {answer:?}"
        );
    }
    second.start();
    host.wait_ready().expect("it serves");
    let mut client = host.client();
    within(SERVES_WITHIN, "a lease", || {
        client.say("GET a") == Reply::bulk("1")
    });
}

/// Runs a command of an operator at the coordinator of a node.
fn ask(of_host: &str, words: &[&str]) -> Told {
    ephesus(&[words, &["--coordinator", of_host]].concat())
}

#[test]
fn a_second_coordinator_that_never_comes_harms_nothing_and_is_taken_back() {
    let mut host = Node::start(Options::default());
    assert_eq!(host.client().say("SET a 1"), Reply::ok());
    let of_host = coordinator_of(&host);
    let nowhere = ask(
        &of_host,
        &["coordinator-member", "add", "nowhere.invalid:7"],
    );
    nowhere.assert(1, &["no way to nowhere.invalid:7"]);
    let ports = PortBlock::take();
    let address = format!("127.0.0.1:{}", ports.base());
    ask(&of_host, &["coordinator-member", "add", &address]).assert(0, &[]);
    let mut client = host.client();
    assert_eq!(client.say("SET a 2"), Reply::ok(), "it needs nobody");
    host.kill();
    host.restart();
    let mut client = host.client();
    assert_eq!(client.say("GET a"), Reply::bulk("2"));
    assert_eq!(client.say("SET a 3"), Reply::ok());
    let rows = ask(&of_host, &["coordinators"]);
    assert!(rows.out.contains("learner"), "{rows:?}");
    ask(&of_host, &["coordinator-member", "remove", "2"]).assert(0, &[]);
    ask(&of_host, &["status"]).assert(0, &[]);
}

#[test]
fn the_node_with_the_only_coordinator_is_removed_once_another_has_taken_over() {
    let (mut host, guest) = host_and_guest();
    let of_host = coordinator_of(&host);
    ask(&of_host, &["drain", "host", "--wait"]).assert(0, &[]);
    let remove = ["node", "remove", "host", "--yes"];
    let words = [
        "the last one",
        "coordinator-member add",
        "coordinator-member remove 1",
    ];
    ask(&of_host, &remove).assert(1, &words);

    let (ports, home) = (PortBlock::take(), paths::scratch());
    let address = format!("127.0.0.1:{}", ports.base());
    let told = ask(&of_host, &["coordinator-member", "add", &address]);
    told.assert(0, &[]);
    let mut second = Coordinator::new(2, &start_command(&told), home.path());
    second.start();
    let both = format!("{of_host},{address}");
    within(SERVES_WITHIN, "both vote", || {
        let told = ask(&both, &["coordinators", "--json"]);
        told.out.matches("\"votes\": true").count() == 2
    });
    ask(&both, &remove).assert(1, &["coordinator-member remove 1"]);
    ask(&both, &["coordinator-member", "remove", "1"]).assert(0, &[]);
    ask(&address, &remove).assert(0, &[]);
    let _ = host.wait_exit(Duration::from_secs(20));
    let mut client = guest.client();
    within(SERVES_WITHIN, "the guest serves", || {
        !is_down(&client.say("GET a"))
    });
    check(&mut Roaming::new(vec![guest.entry()]), 0..KEYS);
    ask(&address, &["status"]).assert(0, &[]);
}

/// Copies a directory of a stopped node.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    let _ = std::fs::remove_dir_all(to);
    let status = std::process::Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status();
    assert!(status.expect("run cp").success());
}

#[test]
fn a_restored_directory_that_is_older_than_the_cluster_has_seen_is_refused() {
    let (_host, mut guest) = host_and_guest();
    let backups = paths::scratch();
    let [older, newer] = ["older", "newer"].map(|name| backups.path().join(name));
    guest.kill();
    copy(guest.data_dir(), &older);
    guest.restart();
    // Killed as soon as it serves.
    guest.kill();
    let starts = std::fs::read_to_string(guest.data_dir().join("starts")).expect("noted");
    assert!(!starts.contains("proposed"), "it served before: {starts}");
    copy(guest.data_dir(), &newer);
    copy(&older, guest.data_dir());
    // However often it is tried.
    for _ in 0..3 {
        let refused = guest.start_refused();
        assert_eq!(refused.code(), 1, "{}", refused.output);
        refused.assert_says(&["older than what the cluster has seen", "--accept-old-data"]);
    }
    copy(&newer, guest.data_dir());
    guest.restart();
    guest.kill();
    copy(&older, guest.data_dir());
    guest.options.flags.push("--accept-old-data".to_owned());
    guest.restart();
    guest.stop();
    guest.options.flags.pop();
    guest.restart();
}
