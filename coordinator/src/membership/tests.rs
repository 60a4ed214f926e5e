//! Nodes and coordinators with real sockets, threads and clocks.

use std::sync::atomic::{AtomicBool, Ordering};

use ephesus_wire::table::PartitionStatus;
use ephesus_wire::{NodeId, ShardId};

use super::*;
use crate::command::{Addresses, Registration};
use crate::report::{Query, Report};
use crate::server::Empty;
use crate::server::tests::{Cluster, until};
use crate::state::HEARTBEAT_TIMEOUT_MS;

fn registration(n: u8, name: &str) -> Registration {
    Registration {
        node: NodeId([n; 16]),
        cluster: None,
        name: name.into(),
        incarnation: 1,
        addresses: Addresses {
            entry: format!("127.0.0.1:{n}000"),
            tls_port: None,
            peer: format!("127.0.0.1:{n}999"),
            rack: String::new(),
        },
        shards: 1,
        capacity: crate::state::CAPACITY_DEFAULT,
        speaks: crate::protocol::VERSIONS,
    }
}

/// A node that hosts at once what it is given, as one with a recovered disk does.
struct Hosting {
    node: NodeId,
    membership: Membership,
}

impl Hosting {
    fn start(cluster: &Cluster, n: u8, name: &str) -> Hosting {
        let options = AgentOptions {
            start: None,
            registration: registration(n, name),
            coordinators: cluster.addresses(),
            seed: n.into(),
            is_sole: true,
        };
        let membership = Membership::start(options, None, None).expect("a thread");
        membership.started();
        Hosting {
            node: NodeId([n; 16]),
            membership,
        }
    }

    /// Has its only shard take a turn, which acts on the newest table.
    fn host(&self) {
        let lease = self.membership.lease();
        let _ = lease.look(ShardId(0));
        for event in self.membership.events().try_iter() {
            if let MembershipEvent::Table(view) = event {
                lease.acts_on(ShardId(0), view.version());
                let entries = (0..).map(PartitionId).zip(&view.table.entries);
                let own = entries.filter(|(_, entry)| {
                    entry
                        .primary()
                        .is_some_and(|primary| primary.node == self.node)
                });
                let hosted = own.map(|(partition, entry)| (partition, entry.epoch));
                self.membership.set_hosted(hosted.collect());
            }
        }
    }

    fn sees_all_online(&self) -> bool {
        self.membership.view().is_some_and(|view| {
            let mut entries = view.table.entries.iter();
            entries.all(|entry| entry.status == PartitionStatus::Online)
        })
    }
}

#[test]
fn three_nodes_get_their_partitions_and_keep_them_when_the_leader_is_lost() {
    let mut cluster = Cluster::new(3);
    (1..=3).for_each(|id| cluster.start(id, Empty::Founds));
    cluster.founded();
    let names = [(1, "athens"), (2, "byzantium"), (3, "cyrene")];
    let nodes = names.map(|(n, name)| Hosting::start(&cluster, n, name));
    until("everything is online everywhere", || {
        nodes.iter().for_each(Hosting::host);
        nodes.iter().all(Hosting::sees_all_online)
    });
    until("leases of nodes that act on the table", || {
        nodes.iter().for_each(Hosting::host);
        nodes.iter().all(|node| node.membership.holds_lease())
    });
    let before = cluster.status();
    assert!(before.healthy, "{:?}", before.problems);
    assert_eq!(before.partitions["online"], 9);

    cluster.stop(before.leader);
    let after = cluster.status();
    assert_ne!(after.leader, before.leader);
    until("leases of the next leader", || {
        nodes.iter().for_each(Hosting::host);
        nodes.iter().all(|node| node.membership.holds_lease())
    });
    let [athens, byzantium, cyrene] = nodes;
    drop(cyrene);
    until("the lost node is failed", || {
        athens.host();
        byzantium.host();
        cluster.status().nodes.get("failed") == Some(&1)
    });
    let version = |node: &Hosting| node.membership.view().expect("a table").version();
    until("both have the same table", || {
        athens.host();
        byzantium.host();
        version(&athens) == version(&byzantium)
    });
    let rest: Vec<_> = cluster.running_ids();
    rest.into_iter().for_each(|id| cluster.stop(id));
    until("no lease without coordinators", || {
        athens.host();
        !athens.membership.holds_lease()
    });
}

/// Since the leader has last heard of the only node, as its report says.
fn silent_ms(cluster: &Cluster) -> u64 {
    match cluster.ask(&Query::Nodes) {
        Report::Nodes(rows) => rows[0].last_heartbeat_ms.expect("it was heard of"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_saturated_machine_does_not_make_heartbeats_late() {
    let mut cluster = Cluster::new(1);
    cluster.start(1, Empty::Founds);
    cluster.founded();
    let node = Hosting::start(&cluster, 1, "athens");
    until("a lease", || {
        node.host();
        node.membership.holds_lease()
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let spin = |_| {
        let is_over = Arc::clone(&is_over);
        let spinning = move || {
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        std::thread::Builder::new()
            .spawn(spinning)
            .expect("a thread")
    };
    let spinners: Vec<_> = (0..4 * cpus).map(spin).collect();
    let mut lapses = 0;
    let mut longest_gap_ms = 0;
    for _ in 0..300 {
        node.host();
        lapses += u32::from(!node.membership.holds_lease());
        longest_gap_ms = longest_gap_ms.max(silent_ms(&cluster));
        std::thread::sleep(Duration::from_millis(10));
    }
    is_over.store(true, Ordering::Relaxed);
    spinners
        .into_iter()
        .for_each(|spinner| spinner.join().expect("no panic"));
    assert_eq!(lapses, 0, "looks at which there was no lease");
    // A fifth of the bound apart when nothing else runs.
    let bound_ms = u64::from(HEARTBEAT_TIMEOUT_MS) / 2;
    assert!(longest_gap_ms < bound_ms, "{longest_gap_ms} ms");
    assert_eq!(cluster.status().nodes.get("failed"), None);
}

#[test]
fn a_shard_that_stands_still_costs_the_node_its_lease_and_another_table_does_not() {
    let mut cluster = Cluster::new(1);
    cluster.start(1, Empty::Founds);
    cluster.founded();
    let node = Hosting::start(&cluster, 1, "athens");
    let holds_lease = || node.membership.holds_lease();
    until("a lease", || {
        node.host();
        holds_lease()
    });
    let since_ms = boottime_ms();
    until("it has run out, while the node heartbeats", || {
        !holds_lease()
    });
    assert!(boottime_ms() - since_ms > 700);
    until("it is failed", || {
        cluster.status().nodes.get("failed") == Some(&1)
    });
    until("it is back", || {
        node.host();
        holds_lease()
    });
}
