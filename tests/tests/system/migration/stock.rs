//! Stock clients go on while partitions move, and notice nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ephesus_tests::process::Process;
use ephesus_tests::scale::keys;
use ephesus_tests::stock::StockClient;
use ephesus_tests::{Rng, TestCluster, paths};

use super::{NAMES, all_committed, move_to, owned};

const PARTITIONS: [&str; 2] = ["--partitions", "32"];

/// How long clients work between two changes.
const BETWEEN: Duration = Duration::from_millis(500);

/// What redis-benchmark does, and how often: each takes some seconds.
const COMMANDS: [(&str, u64); 3] = [("set", 600_000), ("get", 1_800_000), ("incr", 600_000)];

/// What redis-benchmark says of its own accord whenever it follows a redirection.
const FOLLOWS: &str = "warning: cluster slots configuration changed, fetching new one...";

/// Names that redis-benchmark picks from.
const KEYS: u64 = 20_000;

/// Keys of 100 B that are there before nodes come and go, without `EPHESUS_KEYS`.
const LOADED: u64 = 100_000;

/// More requests than are answered before it is ended.
const ENDLESS: u64 = 1_000_000_000;

/// How long redis-benchmark may take for one command.
const BENCHMARK_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn redis_py_sees_no_error_while_nodes_come_and_go() {
    let mut whole = TestCluster::started(&PARTITIONS, &NAMES, 2);
    let client = StockClient::start("moving.py", &whole);
    std::thread::sleep(BETWEEN);
    whole.add("delphi", 2).restart();
    whole.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
    assert_eq!(owned(&whole)["delphi"], 8);
    std::thread::sleep(BETWEEN);
    for name in ["athens", "delphi"] {
        whole.core.ask(&["drain", name, "--wait"]).assert(0, &[]);
        assert_eq!(owned(&whole).get(name), None);
        std::thread::sleep(BETWEEN);
        whole.core.ask(&["drain", name, "--end"]).assert(0, &[]);
        whole.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
        assert_eq!(owned(&whole)[name], 8);
        std::thread::sleep(BETWEEN);
    }
    client.finish();
    assert!(all_committed(&whole) >= 8 + 2 * (8 + 8));
}

/// redis-benchmark over a cluster, with one command for so long that it must be ended.
fn benchmark(
    whole: &TestCluster,
    command: &str,
    requests: u64,
    keys: u64,
    output: &Path,
) -> Process {
    let port = whole.nodes[0].port().to_string();
    let (requests, keys) = (requests.to_string(), keys.to_string());
    let mut benchmark = Command::new("redis-benchmark");
    benchmark
        .args(["--cluster", "-p", &port, "-t", command, "-n", &requests])
        .args(["-r", &keys, "-d", "100", "-c", "24", "-P", "4", "-q"]);
    Process::spawn(benchmark, output)
}

/// What redis-benchmark has printed tells of moves, and of nothing that has gone wrong.
fn assert_follows(text: &str) {
    let lower = text.to_lowercase();
    assert!(lower.contains(FOLLOWS), "it has met no move: {text}");
    let lower = lower.replace(FOLLOWS, "");
    for word in ["error", "moved", "down", "unknown", "closed", "warning"] {
        assert!(!lower.contains(word), "{word:?} in {text}");
    }
}

/// Moves a partition from one node to another. Every shard keeps one: redis-benchmark asks nobody who had
/// nothing when it began. If asked, and else perhaps, it is the first one of its shard, which has what
/// redis-benchmark asks for.
fn move_one(whole: &TestCluster, is_first: bool, rng: &mut Rng) {
    let mut owned: BTreeMap<(String, u16), Vec<u16>> = BTreeMap::new();
    for row in whole.table() {
        let of = owned.entry((row.node, row.shard)).or_default();
        of.push(row.partition);
    }
    let rich = owned.iter().filter(|(_, partitions)| partitions.len() > 1);
    let rich: Vec<_> = rich.collect();
    let (from, partitions) = *rng.pick(&rich);
    let poor = owned.keys().filter(|to| to.0 != from.0);
    let poor: Vec<_> = poor.collect();
    let (node, shard) = *rng.pick(&poor);
    let partition = match is_first || rng.one_in(2) {
        true => partitions[0],
        false => *rng.pick(partitions),
    };
    move_to(whole, partition, node, *shard);
}

#[test]
fn redis_benchmark_runs_through_moves_without_an_error() {
    paths::require("redis-benchmark");
    let mut rng = Rng::new(ephesus_tests::seed_of_run("redis-benchmark"));
    let whole = TestCluster::started(&PARTITIONS, &NAMES, 2);
    for (command, requests) in COMMANDS {
        let output = whole.core.home().join(format!("benchmark-{command}"));
        let mut client = benchmark(&whole, command, requests, KEYS, &output);
        let mut moves = 0;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = client.exit_status() {
                break status;
            }
            assert!(began.elapsed() < BENCHMARK_WITHIN, "{command} goes on");
            move_one(&whole, moves == 0, &mut rng);
            moves += 1;
        };
        let text = client.output();
        eprintln!(
            "{command}: {moves} moves in {:?}: {}",
            began.elapsed(),
            text.replace('\r', "\n")
        );
        assert!(status.success(), "{text}");
        assert_follows(&text);
        assert!(moves >= 3, "{command}: only {moves} moves");
    }
    all_committed(&whole);
    let counted = whole.count_keys();
    assert!(counted > 20_000, "{counted} keys of set and of incr");
}

/// What an operator does who replaces a node of a cluster that is in use: both stock clients at once, every reply of
/// one of them checked.
#[test]
fn stock_clients_see_no_error_while_a_node_joins_and_another_is_drained() {
    paths::require("redis-benchmark");
    let mut whole = TestCluster::started(&["--partitions", "256"], &NAMES, 1);
    let (loaded, output) = (keys(LOADED), whole.core.home().join("load"));
    let mut load = benchmark(&whole, "set", loaded, loaded, &output);
    let status = load.wait_exit(BENCHMARK_WITHIN).expect("it ends");
    assert!(status.success(), "{}", load.output());

    let client = StockClient::start("moving.py", &whole);
    std::thread::sleep(BETWEEN);
    whole.add("ephesus", 1).restart();
    whole.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
    assert_eq!(owned(&whole)["ephesus"], 64);
    let output = whole.core.home().join("benchmark-drain");
    let mut beside = benchmark(&whole, "set", ENDLESS, KEYS, &output);
    std::thread::sleep(BETWEEN);
    let moved = 64 + owned(&whole)["athens"];
    let drained = whole.core.ask(&["drain", "athens", "--wait"]);
    drained.assert(0, &[]);
    assert_eq!(owned(&whole).get("athens"), None);
    std::thread::sleep(BETWEEN);
    let ended = beside.exit_status();
    assert!(ended.is_none(), "{ended:?}: {}", beside.output());
    let text = beside.output();
    beside.kill();
    assert_follows(&text);
    client.finish();
    assert_eq!(all_committed(&whole), moved);
    let removed = whole.core.ask(&["node", "remove", "athens", "--yes"]);
    removed.assert(0, &[]);
}
