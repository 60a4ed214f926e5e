//! What moves between nodes of a cluster with a secret is for nobody else to read.

use std::time::Duration;

use ephesus_tests::wiretap::{Heard, Wiretap};
use ephesus_tests::{Core, Options, Reply, TestCluster, paths};

use super::{NINE, move_to};

const TEXT: &str = "a text that nobody else has to read";
const KEYS: usize = 2_000;

const SOON: Duration = Duration::from_secs(20);

/// Moves partitions with values that have the text; answers what was heard at the port of the node that gets them, and at
/// that of the leading coordinator.
fn heard(secret: Option<&str>) -> Option<(Heard, Heard)> {
    let flags = secret.map(|file| ["--cluster-secret-file", file]);
    let flags: Vec<&str> = flags.into_iter().flatten().collect();
    let own = [&NINE[..], &["--min-nodes", "2"], &flags].concat();
    let mut core = Core::stopped(3, &own);
    core.secret = secret.map(str::to_owned);
    core.found();
    let mut whole = TestCluster {
        nodes: Vec::new(),
        core,
    };
    for name in ["athens", "byzantium"] {
        let options = Options {
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            ..whole.options(name, 1)
        };
        whole.add_with(options).spawn();
    }
    whole.until_healthy();
    for node in &mut whole.nodes {
        node.wait_ready().expect("a node that is live");
    }
    let mut client = whole.client();
    for n in 0..KEYS {
        let value = format!("{n} {}", TEXT.repeat(20));
        let reply = client.call(&["SET", &format!("key:{n}"), &value]);
        assert_eq!(reply, Reply::ok());
    }
    let leader = whole.core.leader();
    let address = whole.core.address(leader);
    let (_, port) = address.rsplit_once(':').expect("a port");
    let coordinators = Wiretap::start(port.parse().expect("a port"), "athens")?;
    let nodes = Wiretap::start(whole.nodes[1].port() + 10_000, TEXT)?;
    for row in whole.table() {
        if row.node == "athens" {
            move_to(&whole, row.partition, "byzantium", 0);
        }
    }
    // A node registers with its name.
    whole.nodes[0].stop();
    whole.nodes[0].restart();
    let heard = (nodes.finish(), coordinators.finish());
    // The node that was stopped may not serve again yet.
    let mut client = whole.client();
    for n in (0..KEYS).step_by(100) {
        let value = format!("{n} {}", TEXT.repeat(20));
        let reply = client.insist(&["GET", &format!("key:{n}")], SOON);
        assert_eq!(reply, Reply::bulk(value));
    }
    Some(heard)
}

#[test]
fn with_a_secret_nobody_reads_what_moves_or_what_coordinators_are_told() {
    let Some((nodes, coordinators)) = heard(None) else {
        return;
    };
    assert!(nodes.texts > 0 && coordinators.texts > 0, "it is heard");
    let bytes = nodes.bytes;
    let secret = paths::cluster_secret().display().to_string();
    let (nodes, coordinators) = heard(Some(&secret)).expect("as before");
    assert_eq!((nodes.texts, coordinators.texts), (0, 0));
    assert!(nodes.bytes > bytes / 2 && coordinators.bytes > 1_000);
}
