//! Every known way to harm a node through its ports, alone and all at once, while well-behaved clients
//! of the same shard, of the other one and of the entry port are served: `make abuse` for long attacks with figures, a short form here.

use std::time::{Duration, Instant};

use ephesus_tests::attack::{self, Attack, Attackers};
use ephesus_tests::bystander::{Bystander, Served};
use ephesus_tests::scale;
use ephesus_tests::{Node, Options};

const MIB: u64 = 1 << 20;

/// `--max-client-memory` of the node under attack.
const CLIENT_MEMORY: u64 = 256 * MIB;

/// How much more resident memory an attack may cost than the node had just before.
const GROWTH_MAX: u64 = 384 * MIB;

/// How long a well-behaved client may wait: a hang is a failure, a slow machine is not.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long what attackers have left may take to be gone.
const CALM_WITHIN: Duration = Duration::from_secs(30);

struct Outcome {
    served: [Served; 3],
    growth: u64,
}

fn endure(node: &mut Node, name: &str, attacks: &[Attack], lasts: Duration) -> Outcome {
    let ports = [node.direct_port(0), node.direct_port(1), node.port()];
    let bystanders = ports.map(Bystander::watch);
    node.process().forget_peak();
    let before = node.process().resident_bytes();
    let attackers = Attackers::start(node, attacks);
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        assert!(!node.has_exited(), "{name} ended the node");
    }
    attackers.stop();
    assert!(!node.has_exited(), "{name} ended the node");
    let growth = node.process().peak_bytes().saturating_sub(before);
    let served = bystanders.map(|bystander| bystander.assert_served(PATIENCE));
    let outcome = Outcome { served, growth };
    eprintln!("{}", line(name, &outcome));
    assert!(
        outcome.growth <= GROWTH_MAX,
        "{name}: {} MiB more than just before",
        outcome.growth / MIB
    );
    wait_for_calm(node, name);
    outcome
}

/// Waits until the attackers' connections are gone, so that the next attack begins from nothing.
fn wait_for_calm(node: &Node, name: &str) {
    let deadline = Instant::now() + CALM_WITHIN;
    loop {
        let clients = node.client().info("connected_clients");
        if clients <= 1 {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{name}: {clients} clients are still there: {}",
            node.client().say("CLIENT LIST").text()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn line(name: &str, outcome: &Outcome) -> String {
    let growth = outcome.growth / MIB;
    let told = |port: &str, served: &Served| {
        let Served {
            requests,
            p99,
            slowest,
        } = served;
        format!("{port} {requests:>6}, p99 {p99:>9.3?}, longest {slowest:>9.3?}")
    };
    let [same, other, entry] = &outcome.served;
    let [same, other, entry] = [
        told("same shard", same),
        told("other", other),
        told("entry", entry),
    ];
    format!("{name:<38} +{growth:>4} MiB   {same}   {other}   {entry}")
}

fn start(shards: u16) -> Node {
    let node = Node::start(Options {
        shards,
        flags: vec!["--max-client-memory".to_owned(), CLIENT_MEMORY.to_string()],
        ..Options::default()
    });
    attack::prepare(&node);
    node
}

#[test]
fn a_node_survives_every_attack_alone_and_all_of_them_together() {
    let lasts =
        Duration::from_millis(scale::attack_seconds(0) * 1000).max(Duration::from_millis(2500));
    let mut node = start(Options::default().shards);
    let attacks = attack::all();
    for one in &attacks {
        endure(&mut node, one.name, std::slice::from_ref(one), lasts);
    }
    endure(&mut node, "all together", &attacks, lasts);
    node.stop();
    let mut wide = start(attack::SPREAD);
    // The first one touches buffers that are kept.
    for one in attacks.iter().take(2) {
        endure(&mut wide, one.name, std::slice::from_ref(one), lasts);
    }
    wide.stop();
}
