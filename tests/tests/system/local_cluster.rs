//! `make cluster`: starts, stops, comes back, and says why when it cannot.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Parser;
use ephesus_bench::migrate::MigrateArgs;
use ephesus_tests::coordinator::ephesus;
use ephesus_tests::ports::PortBlock;
use ephesus_tests::process::Process;
use ephesus_tests::{Client, Reply, paths, scale};
use serde_json::Value;
use tempfile::TempDir;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];

/// How long the cluster may take to come up, or to stop.
const LIMIT: Duration = Duration::from_secs(60);

const KEYS: u32 = 300;

/// A place for one local cluster: three coordinators, and three nodes of one shard.
struct Site {
    ports: PortBlock,
    home: TempDir,
}

impl Site {
    fn new() -> Self {
        Self {
            ports: PortBlock::take(),
            home: paths::scratch(),
        }
    }

    fn dir(&self) -> std::path::PathBuf {
        self.home.path().join("cluster")
    }

    fn node_port(&self, number: u16) -> u16 {
        self.ports.base() + 3 + 2 * number
    }

    fn coordinators(&self) -> String {
        let at = |offset: u16| format!("127.0.0.1:{}", self.ports.base() + offset);
        format!("{},{},{}", at(0), at(1), at(2))
    }

    /// Starts it, with its output in a file of its own.
    fn spawn(&self, output: &str) -> Process {
        let ports: Vec<String> = (0..3).map(|n| self.node_port(n).to_string()).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ephesus-cluster"));
        command
            .arg("--dir")
            .arg(self.dir())
            .args(["--coordinator-port", &self.ports.base().to_string()])
            .args(["--node-ports", &ports.join(",")])
            .args(["--shards", "1", "--partitions", "64"]);
        Process::spawn(command, &self.home.path().join(output))
    }

    /// Starts it and waits until it says how to connect.
    fn start(&self, output: &str) -> Process {
        let mut process = self.spawn(output);
        let deadline = Instant::now() + LIMIT;
        while !process.output().contains("Ctrl-C stops it") {
            let ended = process.exit_status();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{ended:?}: {}",
                process.output()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    fn say(&self, words: &[&str]) -> ephesus_tests::coordinator::Told {
        ephesus(&[words, &["--coordinator", &self.coordinators()]].concat())
    }

    /// What such a command prints with `--json`.
    fn json(&self, command: &str) -> Value {
        let told = self.say(&[command, "--json"]);
        serde_json::from_str(&told.out).unwrap_or_else(|error| panic!("{error}: {told:?}"))
    }

    /// One command to the node that owns the key.
    fn call(&self, clients: &mut BTreeMap<u16, Client>, words: &[&str]) -> Reply {
        let mut port = self.node_port(0);
        for _ in 0..2 {
            let client = clients
                .entry(port)
                .or_insert_with(|| Client::connect(port).expect("connect"));
            let reply = client.call(words);
            let Some(moved) = reply.error().and_then(|text| text.strip_prefix("MOVED ")) else {
                return reply;
            };
            let (_, to) = moved.rsplit_once(':').expect("host:port");
            port = to.parse().expect("a port");
        }
        panic!("{words:?} was redirected twice");
    }
}

/// The processes that a process has started.
fn children(process: &Process) -> Vec<u32> {
    let pid = process.pid();
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).expect("children");
    text.split_whitespace()
        .map(|pid| pid.parse().expect("a pid"))
        .filter(|pid| name_of(*pid).is_some_and(|name| name == "ephesus"))
        .collect()
}

/// What a process is called; none: it is gone, or only not waited for.
fn name_of(pid: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let is_dead = status.contains("State:\tZ") || status.contains("State:\tX");
    let name = status.lines().next()?.strip_prefix("Name:\t")?.to_owned();
    (!is_dead).then_some(name)
}

fn assert_gone(pids: &[u32]) {
    let deadline = Instant::now() + LIMIT;
    while let Some(pid) = pids
        .iter()
        .find(|pid| name_of(**pid).is_some_and(|name| name == "ephesus"))
    {
        assert!(Instant::now() < deadline, "process {pid} is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn assert_refuses(process: &mut Process, words: &[&str]) {
    let status = process.wait_exit(LIMIT).expect("it ends");
    let output = process.output();
    assert_eq!(status.code(), Some(1), "{output}");
    for word in words {
        assert!(output.contains(word), "no {word:?} in {output}");
    }
}

#[test]
fn comes_up_stops_on_ctrl_c_and_comes_back_with_its_data() {
    let site = Site::new();
    let mut ids = Value::Null;
    for start in 0..2 {
        let mut cluster = site.start(&format!("output-{start}"));
        let status = site.say(&["status"]);
        assert_eq!(status.code, Some(0), "{status:?}");
        let nodes = site.json("nodes");
        let nodes = nodes.as_array().expect("rows");
        let names: Vec<&str> = nodes
            .iter()
            .filter_map(|row| row["name"].as_str())
            .collect();
        assert_eq!(names, NODES);
        assert!(nodes.iter().all(|row| row["status"] == "live"), "{nodes:?}");
        let now: Value = nodes.iter().map(|row| row["id"].clone()).collect();
        let mut clients = BTreeMap::new();
        for i in 0..KEYS {
            let (key, value) = (format!("key:{i}"), format!("value:{i}"));
            if start == 0 {
                let reply = site.call(&mut clients, &["SET", &key, &value]);
                assert_eq!(reply, Reply::ok(), "{key}");
            } else {
                let reply = site.call(&mut clients, &["GET", &key]);
                assert_eq!(reply, Reply::bulk(&value), "{key}");
            }
        }
        assert_eq!(clients.len(), 3, "every node owns some of them");
        if start == 1 {
            assert_eq!(now, ids, "the nodes are the same");
        }
        ids = now;
        let pids = children(&cluster);
        assert_eq!(pids.len(), 6);
        let signal = [libc::SIGINT, libc::SIGTERM][start];
        cluster.signal(signal);
        let code = cluster.wait_exit(LIMIT).and_then(|status| status.code());
        assert_eq!(code, Some(0), "{}", cluster.output());
        assert_gone(&pids);
        assert!(cluster.output().contains("stopped; the data stays in"));
    }
}

/// Keys of the stock client without `EPHESUS_KEYS`.
const STOCK_KEYS: u64 = 10_000;

/// How long it may take for each thousand keys, and for any number.
const PER_THOUSAND: Duration = Duration::from_secs(2);

#[test]
fn a_stock_client_does_not_notice_that_a_coordinator_is_killed() {
    let keys = scale::keys(STOCK_KEYS);
    let limit = LIMIT + PER_THOUSAND * u32::try_from(keys / 1000).expect("a number of keys");
    let site = Site::new();
    let cluster = site.start("output");
    let coordinators = children(&cluster)[..3].to_vec();
    let mut command = Command::new(paths::python());
    command.arg(paths::workspace().join("tests/python/million.py"));
    command.arg(keys.to_string());
    command.args((0..3).map(|n| site.node_port(n).to_string()));
    let mut client = Process::spawn(command, &site.home.path().join("client"));
    let deadline = Instant::now() + limit;
    while !client.output().contains("a quarter is written") {
        assert!(Instant::now() < deadline, "{}", client.output());
        assert_eq!(client.exit_status(), None, "{}", client.output());
        std::thread::sleep(Duration::from_millis(2));
    }
    let status = site.json("status");
    let leader = status["leader"].as_u64().expect("a number");
    let lost = coordinators[leader as usize - 1];
    // SAFETY: a child of our child, which has not been waited for before it was signalled.
    unsafe { libc::kill(lost as i32, libc::SIGKILL) };
    assert_eq!(client.exit_status(), None, "killed too late");
    let code = client.wait_exit(limit).and_then(|status| status.code());
    let output = client.output();
    assert_eq!(code, Some(0), "{output}");
    eprintln!("{output}");
    // A leader says so after a second of silence; the client may have been faster.
    let told = loop {
        let told = site.say(&["status"]);
        if told.err.contains("is not heard of") || Instant::now() >= deadline {
            break told;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    told.assert(1, &["is not heard of"]);
    assert!(told.out.contains("3: 3 live"), "{}", told.out);
}

#[test]
fn a_taken_port_is_named_and_nothing_is_started() {
    let site = Site::new();
    let port = site.node_port(1) + 1;
    let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("bind");
    let mut cluster = site.spawn("output");
    let named = format!("127.0.0.1:{port}, for shard 0 of byzantium");
    assert_refuses(&mut cluster, &[&named, "in use", "--node-ports"]);
    let made = site.dir().read_dir().expect("the directory").count();
    assert_eq!(made, 0, "no data, no logs");
}

#[test]
fn a_process_that_ends_at_start_ends_the_others() {
    let site = Site::new();
    std::fs::create_dir(site.dir()).expect("the directory");
    std::fs::write(site.dir().join("cyrene"), "not a directory").expect("a file");
    let mut cluster = site.spawn("output");
    assert_refuses(&mut cluster, &["cyrene ended: exit code 1", "stopping"]);
    assert!(!Path::new(&site.dir().join("founded")).exists());
    for port in (0..9).map(|offset| site.ports.base() + offset) {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("nobody listens any more");
    }
}

#[test]
fn later_ends_are_told_and_a_kill_takes_all_processes_along() {
    let site = Site::new();
    let mut cluster = site.start("output");
    let pids = children(&cluster);
    let lost = pids[4];
    // SAFETY: a child of our child, which has not been waited for before it was signalled.
    unsafe { libc::kill(lost as i32, libc::SIGKILL) };
    let deadline = Instant::now() + LIMIT;
    while !cluster.output().contains("byzantium ended: signal 9") {
        assert!(Instant::now() < deadline, "{}", cluster.output());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(cluster.output().contains("start it again with"));
    assert_eq!(children(&cluster).len(), 5, "the others go on");
    cluster.kill();
    assert_gone(&pids);
}

/// The flags of `ephesus-bench migrate`.
#[derive(Parser)]
struct Benchmark {
    #[command(flatten)]
    migrate: MigrateArgs,
}

#[test]
fn the_benchmark_of_moves_leaves_a_cluster_as_it_was() {
    let site = Site::new();
    let mut cluster = site.start("output");
    let owners = || {
        let partitions = site.json("partitions");
        let rows = partitions.as_array().expect("rows").iter();
        rows.map(|row| row["node"].as_str().expect("a node").to_owned())
            .collect::<Vec<String>>()
    };
    let mut clients = BTreeMap::new();
    site.call(&mut clients, &["SET", "of-a-user", "here"]);
    let before = owners();
    let coordinators = site.coordinators();
    let json = site.home.path().join("moves.json");
    let benchmark = Benchmark::parse_from([
        "ephesus-bench".as_ref(),
        "--quick".as_ref(),
        "--coordinator".as_ref(),
        coordinators.as_ref(),
        "--nodes=athens,byzantium".as_ref(),
        "--servers=ephesus".as_ref(),
        "--keys=2000".as_ref(),
        "--value-bytes=1000".as_ref(),
        "--load=0".as_ref(),
        "--dir".as_ref(),
        site.home.path().as_os_str(),
        "--json".as_ref(),
        json.as_os_str(),
    ]);
    benchmark.migrate.execute().expect("a measurement");
    assert_eq!(owners(), before);
    let record = std::fs::read_to_string(json).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let plots = record["cases"][0]["plots"].as_array().expect("plots");
    for title in ["Data moved over time", "Holds over time"] {
        let plot = plots.iter().find(|plot| plot["title"] == title);
        let plot = plot.unwrap_or_else(|| panic!("no {title}: {plots:?}"));
        let points = plot["series"][0]["points"].as_array().expect("points");
        assert!(!points.is_empty(), "{title}");
        assert_eq!(plot["marks"][0]["kind"], "ephesus move", "{title}");
    }
    let keys = (0..3).map(|number| {
        let mut node = Client::connect(site.node_port(number)).expect("connect");
        node.call(&["DBSIZE"])
    });
    let keys: Vec<Reply> = keys.collect();
    let of_a_user = keys.iter().filter(|count| **count == Reply::Integer(1));
    let none = keys.iter().filter(|count| **count == Reply::Integer(0));
    assert_eq!((of_a_user.count(), none.count()), (1, 2), "{keys:?}");
    let value = site.call(&mut clients, &["GET", "of-a-user"]);
    assert_eq!(value, Reply::bulk("here"));
    cluster.signal(libc::SIGINT);
    cluster.wait_exit(LIMIT).expect("it stops");
}
