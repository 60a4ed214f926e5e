//! Coordinators as processes, and what operators do with them.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use ephesus_coordinator::agent::AgentOptions;
use ephesus_coordinator::command::{Addresses, Registration};
use ephesus_coordinator::membership::{Membership, MembershipEvent};
use ephesus_coordinator::report::Figures;
use ephesus_tests::coordinator::{Told, ephesus};
use ephesus_tests::garbage::attack;
use ephesus_tests::{Coordinator, Core, Rng, paths};
use ephesus_wire::{NodeId, PartitionId};

/// What three nodes are waited for with.
const THREE: [&str; 4] = ["--min-nodes", "3", "--partitions", "9"];

/// A leader that is lost is replaced within this time.
const ELECTION_LIMIT: Duration = Duration::from_secs(3);

const EXIT_LIMIT: Duration = Duration::from_secs(30);

#[test]
fn three_found_a_cluster_that_waits_for_nodes() {
    let core = Core::founded(3, &THREE);
    core.until("all are heard of", Core::is_complete);
    let told = core.ask(&["status"]);
    told.assert(1, &["not healthy: not enough nodes, 0 of 3"]);
    for line in ["health      1 problem", "partitions  9: 9 unassigned"] {
        assert!(told.out.contains(line), "{}", told.out);
    }
    let status = core.json("status");
    assert_eq!(status["healthy"], false);
    assert_eq!(status["problems"][0]["kind"], "not_enough_nodes");
    assert_eq!(status["coordinators"], 3);
    assert!(status["term"].as_u64() > Some(0) && status["commit_index"].as_u64() > Some(1));
    assert_eq!(core.json("nodes").as_array().map(Vec::len), Some(0));
    assert_eq!(core.json("partitions").as_array().map(Vec::len), Some(9));
    let told = core.ask(&["partitions"]);
    told.assert(1, &["not enough nodes"]);
    assert_eq!(told.out.lines().count(), 2, "one run: {}", told.out);
    assert!(told.out.contains("0-8"), "{}", told.out);
    let rows = core.json("coordinators");
    for (row, id) in rows.as_array().expect("rows").iter().zip(1..) {
        assert_eq!(row["id"], id);
        assert_eq!(row["address"], core.address(id));
        assert_eq!(row["leader"], status["leader"] == id);
    }
}

#[test]
fn links_between_coordinators_last() {
    let mut core = Core::founded(3, &THREE);
    core.until("all are heard of", Core::is_complete);
    let mut lost = || -> Vec<usize> {
        let outputs = (1..=3).map(|id| core.coordinator(id).process().output());
        outputs
            .map(|text| text.matches("not connected").count())
            .collect()
    };
    let before = lost();
    // Longer than a link puts up with silence.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(lost(), before);
}

/// Waits until another than `lost` leads.
fn wait_for_another(core: &Core, lost: u64) {
    let began = Instant::now();
    core.until("another leads", |core| {
        core.try_status()
            .is_some_and(|status| status["leader"] != lost)
    });
    let took = began.elapsed();
    // The machine is shared: several times the time an election takes.
    assert!(took < 3 * ELECTION_LIMIT, "{took:?}");
}

#[test]
fn a_killed_leader_is_replaced_and_comes_back_without_bootstrap() {
    let mut core = Core::founded(3, &THREE);
    let cluster = core.json("status")["cluster"].clone();
    let lost = core.leader();
    core.coordinator(lost).kill();
    wait_for_another(&core, lost);
    let silent = format!(
        "coordinator {lost} at {} is not heard of",
        core.address(lost)
    );
    core.until("it is missed", |core| {
        let told = core.ask(&["coordinators"]);
        told.code == Some(1) && told.err.contains(&silent)
    });
    core.coordinator(lost).without("--bootstrap");
    core.coordinator(lost).start();
    core.until("it is back", Core::is_complete);
    assert_eq!(core.json("status")["cluster"], cluster);
    let told = core.ask(&["status"]);
    assert!(!told.err.contains("not heard of"), "{}", told.err);
}

#[test]
fn a_stopped_leader_is_replaced_and_follows_when_it_goes_on() {
    let mut core = Core::founded(3, &THREE);
    let stopped = core.leader();
    core.coordinator(stopped).signal(libc::SIGSTOP);
    wait_for_another(&core, stopped);
    // Asked first, it takes connections and says nothing.
    let first = core.address(stopped);
    let order = format!("{first},{}", core.addresses());
    let told = ephesus(&["status", "--json", "--coordinator", &order]);
    assert!(told.out.contains("\"leader\""), "{told:?}");
    let told = ephesus(&["status", "--coordinator", &first, "--timeout", "300"]);
    told.assert(1, &[&first, "does not answer in time"]);
    core.coordinator(stopped).signal(libc::SIGCONT);
    core.until("it follows", |core| {
        core.is_complete() && core.leader() != stopped
    });
    let told = ephesus(&["status", "--json", "--coordinator", &first]);
    assert!(
        told.out.contains("\"leader\""),
        "it names the leader: {told:?}"
    );
}

#[test]
fn nothing_is_decided_without_a_majority() {
    let mut core = Core::founded(3, &THREE);
    let survivor = core.leader();
    for id in (1..=3).filter(|id| *id != survivor) {
        core.coordinator(id).kill();
    }
    let told = core.ask(&["status", "--timeout", "2000"]);
    told.assert(1, &["no coordinator that leads has answered within 2 s"]);
    assert!(told.out.is_empty(), "{}", told.out);
    for id in 1..=3 {
        assert!(told.err.contains(&core.address(id)), "{}", told.err);
    }
    assert_eq!(
        told.err.matches("connection refused").count(),
        2,
        "{}",
        told.err
    );
    core.coordinator(survivor).stop();
}

/// The words behind `ephesus coordinator` in what `coordinator-member add` has printed.
fn start_command(told: &Told) -> Vec<&str> {
    let line = told
        .out
        .lines()
        .find(|line| line.contains("ephesus coordinator --id"));
    let line = line.unwrap_or_else(|| panic!("no command: {told:?}"));
    line.split_whitespace().skip(2).collect()
}

#[test]
fn a_lone_coordinator_is_replaced_by_another() {
    let mut core = Core::founded(1, &[]);
    let cluster = core.json("status")["cluster"].clone();
    let told = core.ask(&["coordinator-member", "add", &core.address(2)]);
    told.assert(0, &[]);
    let mut second = Coordinator::new(2, &start_command(&told), core.home());
    second.start();
    core.coordinators.push(second);
    core.until("the second takes part", Core::is_complete);
    let again = core.ask(&["coordinator-member", "add", &core.address(2)]);
    again.assert(0, &[]);
    assert!(
        again.out.contains("coordinator 2 was added before"),
        "{again:?}"
    );
    assert_eq!(start_command(&again), start_command(&told));

    core.ask(&["coordinator-member", "remove", "1"])
        .assert(0, &[]);
    for _ in 0..2 {
        let (status, output) = core.coordinator(1).wait_exit(EXIT_LIMIT);
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(output.contains("coordinator 1 was removed"), "{output}");
        core.coordinator(1).spawn();
    }
    let _ = core.coordinator(1).wait_exit(EXIT_LIMIT);
    let status = core.json("status");
    assert_eq!(
        (&status["leader"], &status["coordinators"]),
        (&2.into(), &1.into())
    );
    assert_eq!(status["cluster"], cluster);
    let told = core.ask(&["coordinator-member", "remove", "2"]);
    told.assert(1, &["coordinator 2 is the last one"]);
    let told = core.ask(&["coordinator-member", "remove", "9"]);
    told.assert(1, &["there is no coordinator 9"]);
}

#[test]
fn a_lost_member_is_replaced_under_a_new_number() {
    let mut core = Core::founded(3, &THREE);
    core.until("all are heard of", Core::is_complete);
    let lost = core.leader() % 3 + 1;
    core.coordinator(lost).kill();
    core.ask(&["coordinator-member", "remove", &lost.to_string()])
        .assert(0, &[]);
    let told = core.ask(&["coordinator-member", "add", &core.address(4)]);
    told.assert(0, &[]);
    let mut fourth = Coordinator::new(4, &start_command(&told), core.home());
    fourth.start();
    core.coordinators.retain(|one| one.id != lost);
    core.coordinators.push(fourth);
    core.until("the new one takes part", Core::is_complete);
    let leader = core.leader();
    core.coordinator(leader).kill();
    wait_for_another(&core, leader);
}

#[test]
fn a_follower_that_is_removed_ends_by_itself() {
    let mut core = Core::founded(3, &THREE);
    core.until("all are heard of", Core::is_complete);
    let removed = core.leader() % 3 + 1;
    core.ask(&["coordinator-member", "remove", &removed.to_string()])
        .assert(0, &[]);
    let (status, output) = core.coordinator(removed).wait_exit(EXIT_LIMIT);
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(output.contains("was removed"), "{output}");
}

#[test]
fn a_directory_is_refused_with_what_to_do() {
    let mut core = Core::stopped(1, &[]);
    core.coordinator(1).without("--bootstrap");
    let refused = core.coordinator(1).start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&[
        "is empty",
        "--bootstrap",
        "--join",
        "coordinator-member add",
    ]);
    assert_eq!(refused.output.lines().count(), 1, "{}", refused.output);

    core.coordinator(1).arguments.push("--bootstrap".to_owned());
    core.coordinator(1).start();
    let listen = core.address(2);
    let other = |arguments: &[&str], words: &[&str]| {
        let mut other = Coordinator::new(7, arguments, core.home());
        let refused = other.start_refused();
        assert_eq!(refused.code(), 1, "{}", refused.output);
        refused.assert_says(words);
        assert_eq!(refused.output.lines().count(), 1, "{}", refused.output);
    };
    let taken = core.address(1);
    other(
        &[
            "--id",
            "1",
            "--listen",
            &taken,
            "--data-dir",
            "new",
            "--bootstrap",
        ],
        &[&taken, "is in use"],
    );
    let directory = ["--listen", &listen, "--data-dir", "coordinator-1"];
    other(
        &[&["--id", "1"], &directory[..]].concat(),
        &["coordinator-1 is in use"],
    );
    core.coordinator(1).stop();
    let other = |arguments: &[&str], words: &[&str]| {
        let mut other = Coordinator::new(8, arguments, core.home());
        let refused = other.start_refused();
        assert_eq!(refused.code(), 1, "{}", refused.output);
        refused.assert_says(words);
    };
    other(
        &[&["--id", "2"], &directory[..]].concat(),
        &["--id 1, not --id 2"],
    );
    other(
        &[
            "--id",
            "1",
            "--listen",
            &listen,
            "--data-dir",
            ".",
            "--bootstrap",
        ],
        &["is not a coordinator's directory"],
    );
}

#[test]
fn garbage_is_closed_counted_and_disturbs_nothing() {
    let mut core = Core::founded(3, &THREE);
    core.until("all are heard of", Core::is_complete);
    let before = core.json("status");
    let mut rng = Rng::new(ephesus_tests::seed_of_run("garbage"));
    let addresses: Vec<String> = (1..=3).map(|id| core.address(id)).collect();
    for _ in 0..50 {
        addresses
            .iter()
            .for_each(|address| attack(address, &mut rng));
    }
    let after = core.json("status");
    for unchanged in ["leader", "term", "cluster", "coordinators"] {
        assert_eq!(after[unchanged], before[unchanged], "{unchanged}");
    }
    assert!(core.is_complete());
    for id in 1..=3 {
        let output = core.coordinator(id).process().output();
        let lines = output.matches("reason=\"not_a_peer\"").count();
        assert_eq!(lines, 1, "told once:\n{output}");
        assert!(!output.contains("panicked"), "{output}");
    }
    core.coordinators.iter_mut().for_each(Coordinator::stop);
}

#[test]
fn a_cluster_with_a_secret_talks_to_those_who_know_it() {
    let home = paths::scratch();
    let file = |name: &str, contents: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, contents).expect("write a secret");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("set its mode");
        path.display().to_string()
    };
    let secret = file("secret", "sixteen bytes or more\n");
    let wrong = file("wrong", "another sixteen bytes\n");
    let short = file("short", "short\n");
    let mut core = Core::stopped(3, &["--cluster-secret-file", &secret]);
    core.coordinators.iter_mut().for_each(Coordinator::start);
    core.until("a cluster", |core| {
        let told = core.ask(&["coordinators", "--json", "--cluster-secret-file", &secret]);
        told.out.matches("\"active\": true").count() == 3
    });
    let flag = "--cluster-secret-file";
    let told = core.ask(&["status", "--timeout", "500"]);
    told.assert(1, &["every coordinator has refused", flag]);
    let told = core.ask(&["status", "--timeout", "500", flag, &wrong]);
    told.assert(1, &["every coordinator has refused", "secret"]);
    let told = core.ask(&["status", flag, &short]);
    told.assert(2, &[flag, &short]);
    let told = core.ask(&["status", flag, "/no/such/file"]);
    told.assert(2, &[flag, "/no/such/file"]);
    let told = core.ask(&["coordinator-member", "add", "127.0.0.1:9", flag, &secret]);
    told.assert(0, &[]);
    assert!(
        told.out.contains(&format!("--join {flag} {secret}")),
        "{}",
        told.out
    );
}

#[test]
fn signals_end_it_cleanly_and_a_second_one_at_once() {
    let mut core = Core::founded(1, &[]);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        core.coordinator(1).signal(signal);
        let (status, output) = core.coordinator(1).wait_exit(EXIT_LIMIT);
        assert_eq!(status.code(), Some(0), "{output}");
        core.coordinator(1).start();
    }
    // Both are there when it goes on: the second handler finds that the first has run.
    core.coordinator(1).signal(libc::SIGSTOP);
    core.coordinator(1).signal(libc::SIGTERM);
    core.coordinator(1).signal(libc::SIGINT);
    core.coordinator(1).signal(libc::SIGCONT);
    let (status, output) = core.coordinator(1).wait_exit(EXIT_LIMIT);
    let by_second = [128 + libc::SIGTERM, 128 + libc::SIGINT].map(Some);
    assert!(by_second.contains(&status.code()), "{status}: {output}");
}

#[test]
fn a_bad_flag_is_one_line_and_code_2() {
    let lone = "--id 1 --listen 127.0.0.1:27379 --data-dir /nowhere";
    let coordinator = [
        ("", "--id"),
        ("--id 0 --listen 127.0.0.1:7 --data-dir d", "--id"),
        ("--id 1 --listen nowhere --data-dir d", "--listen"),
        ("--id 1 --listen 0.0.0.0:7 --data-dir d", "--listen"),
        ("LONE --bootstrap --join", "--join"),
        ("LONE --peers 2@127.0.0.1:27379", "--peers"),
        ("LONE --peers 1@127.0.0.1:27378", "--listen"),
        (
            "LONE --peers 1@127.0.0.1:27379,1@127.0.0.1:27380",
            "--peers",
        ),
        ("LONE --peers 1@nowhere", "--peers"),
        ("LONE --heartbeat-timeout 499", "--heartbeat-timeout"),
        ("LONE --heartbeat-timeout 60001", "--heartbeat-timeout"),
        ("LONE --assignment none", "--assignment"),
        ("LONE --partitions 0", "--partitions"),
        ("LONE --min-nodes 0", "--min-nodes"),
        (
            "LONE --cluster-secret-file /no/such/file",
            "--cluster-secret-file",
        ),
        ("LONE --log-level loud", "--log-level"),
        ("LONE --no-such-flag", "--no-such-flag"),
    ];
    let coordinator = coordinator.map(|(flags, named)| {
        let flags = flags.replace("LONE", lone);
        (format!("coordinator {flags}"), named)
    });
    let others = [
        ("status --coordinator nowhere", "--coordinator"),
        ("nodes --timeout 0", "--timeout"),
        ("partitions --xml", "--xml"),
        ("node remove", "NAME"),
        ("node remove athens", "--yes"),
        ("coordinator-member add nowhere", "HOST:PORT"),
        ("coordinator-member remove all", "ID"),
    ];
    let others = others.map(|(line, named)| (line.to_owned(), named));
    for (line, named) in coordinator.into_iter().chain(others) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let told = ephesus(&words);
        told.assert(2, &[named]);
        assert_eq!(told.err.lines().count(), 1, "{line}: {}", told.err);
        assert!(told.out.is_empty(), "{line}: {}", told.out);
    }
}

/// A node of which there is only its membership: it hosts at once what it is given.
pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) membership: Membership,
}

impl Host {
    pub(crate) fn start(core: &Core, n: u8, name: &str) -> Host {
        let id = NodeId([n; 16]);
        let options = AgentOptions {
            start: None,
            registration: Registration {
                node: id,
                cluster: None,
                name: name.to_owned(),
                incarnation: 1,
                addresses: Addresses {
                    entry: format!("127.0.0.1:{n}000"),
                    tls_port: None,
                    peer: format!("127.0.0.1:{n}999"),
                    rack: String::new(),
                },
                shards: 1,
                capacity: 100,
                speaks: ephesus_coordinator::protocol::VERSIONS,
            },
            coordinators: core.addresses().split(',').map(str::to_owned).collect(),
            seed: n.into(),
            is_sole: true,
        };
        let membership = Membership::start(options, None, None).expect("a thread");
        membership.started();
        membership.set_figures(Figures {
            keys: 1_000 * u64::from(n),
            bytes: u64::from(n) << 20,
        });
        Host { id, membership }
    }

    pub(crate) fn host(&self) {
        for event in self.membership.events().try_iter() {
            if let MembershipEvent::Table(view) = event {
                let entries = (0..).map(PartitionId).zip(&view.table.entries);
                let own = entries.filter(|(_, entry)| {
                    let primary = entry.primary();
                    primary.is_some_and(|primary| primary.node == self.id)
                });
                let hosted = own.map(|(partition, entry)| (partition, entry.epoch));
                self.membership.set_hosted(hosted.collect());
            }
        }
    }
}

#[test]
fn a_cluster_is_healthy_until_a_node_is_lost_and_again_once_it_is_given_up() {
    let flags = [&THREE[..], &["--heartbeat-timeout", "1000"]].concat();
    let flags = [&flags[..], &["--assignment", "round-robin"]].concat();
    let core = Core::founded(3, &flags);
    let names = [(1, "athens"), (2, "byzantium"), (3, "cyrene")];
    let mut hosts: Vec<Host> = names.map(|(n, name)| Host::start(&core, n, name)).into();
    let healthy = |core: &Core, hosts: &[Host]| {
        hosts.iter().for_each(Host::host);
        core.ask(&["status"]).code == Some(0)
    };
    core.until("it is healthy", |core| healthy(core, &hosts));
    core.until("all figures are there", |core| {
        core.json("status")["keys"] == 6_000
    });
    let told = core.ask(&["status"]);
    told.assert(0, &[]);
    assert!(told.err.is_empty(), "{}", told.err);
    for line in [
        "health      ok",
        "nodes       3: 3 live",
        "bytes       6.0 MiB",
    ] {
        assert!(told.out.contains(line), "{}", told.out);
    }
    let told = core.ask(&["partitions"]);
    assert_eq!(told.out.lines().count(), 1 + 9, "round-robin: {}", told.out);

    let told = core.ask(&["node", "remove", "cyrene", "--yes"]);
    told.assert(1, &["cyrene is live and owns 3 partitions"]);
    let told = core.ask(&["node", "remove", "sparta", "--yes"]);
    told.assert(1, &["there is no node sparta"]);
    drop(hosts.pop());
    core.until("cyrene has failed", |core| {
        hosts.iter().for_each(Host::host);
        core.json("nodes")[2]["status"] == "failed"
    });
    let told = core.ask(&["status"]);
    told.assert(1, &["node cyrene has failed and owns 3 partitions"]);
    assert!(told.out.contains("9: 3 failed, 6 online"), "{}", told.out);
    let told = core.ask(&["node", "remove", "cyrene"]);
    told.assert(2, &["--yes"]);
    let told = core.ask(&["node", "remove", "cyrene", "--yes"]);
    told.assert(
        0,
        &[
            "3 partitions with 3000 keys (3.0 MiB)",
            "last heard of",
            "lost for good",
        ],
    );
    core.until("it is healthy again", |core| healthy(core, &hosts));
    let rows = core.json("nodes");
    let owned: Vec<_> = rows.as_array().expect("rows").iter().collect();
    assert!(
        owned.len() == 2
            && owned
                .iter()
                .all(|row| row["partitions"].as_u64() >= Some(4))
    );
}

#[test]
fn one_of_three_is_forced_to_lead_alone_after_the_others_are_lost() {
    let mut core = Core::founded(3, &THREE);
    core.until("all are heard of", Core::is_complete);
    let cluster = core.json("status")["cluster"].clone();
    let left = core.leader() % 3 + 1;
    for id in 1..=3 {
        core.coordinator(id).kill();
    }
    let directory = core.home().join(format!("coordinator-{left}"));
    let directory = directory.to_str().expect("plain").to_owned();
    let force = ["coordinator", "force", "--data-dir", &directory];
    ephesus(&force).assert(2, &["--yes"]);
    core.coordinator(left).start();
    ephesus(&[&force[..], &["--yes"]].concat()).assert(1, &["in use"]);
    core.coordinator(left).stop();
    let words = ["never start these again", "is lost", "at 127.0.0.1:"];
    ephesus(&[&force[..], &["--yes"]].concat()).assert(0, &words);

    core.coordinators.retain(|one| one.id == left);
    core.coordinator(left).start();
    core.until("it leads", |core| core.try_status().is_some());
    let status = core.json("status");
    assert_eq!(
        (&status["leader"], &status["coordinators"]),
        (&left.into(), &1.into())
    );
    assert_eq!(status["cluster"], cluster);
    let told = core.ask(&["coordinator-member", "add", &core.address(4)]);
    told.assert(0, &[]);
    let mut fourth = Coordinator::new(4, &start_command(&told), core.home());
    fourth.start();
    core.coordinators.push(fourth);
    core.until("the new one votes", Core::is_complete);
}
