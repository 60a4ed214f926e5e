//! Moves that an operator cancels: the partition stays where it is, and nothing is left where it was going.

use std::time::Duration;

use ephesus_tests::writer_pool::Tolerance;
use ephesus_tests::{Node, Reply, Rng, TestCluster};
use serde_json::Value;

use super::bed::{Bed, MANY, NAMES, is_still, migrations};
use super::row;
use super::shapes::tags;
use super::small_logs::{self, stored};

/// How soon everybody knows that a move is over.
const OVER_WITHIN: Duration = Duration::from_secs(5);

/// Wherever one of them is, the cluster is balanced.
const PARTITIONS: [&str; 2] = ["--partitions", "3"];

/// How soon those have moved that were not cancelled.
const OTHERS_WITHIN: Duration = Duration::from_secs(30);

/// Leases last for half of it: a node that stands still for a moment keeps its own.
const LONG_LEASES: [&str; 2] = ["--heartbeat-timeout", "60000"];

/// What moves in part, again and again: 32 MB.
const PARTITION: u16 = 0;
const KEYS: u64 = 8_000;
const VALUE_BYTES: usize = 4_000;
const LIMIT: &str = "12";

/// So much of it was sent when it is cancelled.
const PART_BYTES: u64 = 4 << 20;

/// How often: together more than the target's log may have.
const TIMES: u64 = 8;

/// How much more than before a target may have in memory, as it counts itself, and on disk beside its
/// logs: less than a quarter of what was sent to it, and some files that stores begin with.
const MEMORY_GROWTH_MAX: u64 = 1 << 20;
const STORED_GROWTH_MAX: u64 = 8 << 20;

/// Gives a migration up.
fn cancel(whole: &TestCluster, migration: &Value) {
    let id = migration["id"].to_string();
    let told = whole.core.ask(&["migration", "cancel", &id]);
    told.assert(0, &[]);
    assert!(told.out.contains(&format!("migration {id} is cancelled")));
}

fn with_id(whole: &TestCluster, id: &Value) -> Value {
    let mut rows = migrations(whole).into_iter();
    rows.find(|row| row["id"] == *id).expect("a migration")
}

#[test]
fn partitions_of_cancelled_moves_stay_and_all_others_go() {
    let mut bed = Bed::start("cancelled moves", MANY, &LONG_LEASES, 1, Tolerance::Strict);
    let before = bed.whole.table();
    // A source that stands still does not begin.
    bed.whole.node(NAMES[0]).signal(libc::SIGSTOP);
    let words = ["move", "--partition", "0", "--to", NAMES[1]];
    bed.whole.core.ask(&words).assert(0, &[]);
    let planned = bed.migrations().remove(0);
    assert_eq!(planned["state"], "planned");
    cancel(&bed.whole, &planned);
    bed.whole.node(NAMES[0]).signal(libc::SIGCONT);
    bed.begin();
    let rows = bed.migrations();
    let mut copying = rows.iter().filter(|row| row["state"] == "copying");
    let copying = copying.next_back().expect("one").clone();
    cancel(&bed.whole, &copying);
    bed.whole
        .within(OTHERS_WITHIN, "the others have moved", is_still);
    for migration in [&planned, &copying] {
        let over = with_id(&bed.whole, &migration["id"]);
        assert_eq!(over["state"], "aborted", "{over}");
        assert_eq!(over["last_error"], "cancelled", "{over}");
    }
    let stays = copying["partition"].as_u64().expect("a number") as u16;
    assert_eq!(row(&bed.whole, stays), before[usize::from(stays)]);
    let rows = bed.migrations();
    let committed = rows.iter().filter(|row| row["state"] == "committed");
    assert_eq!(committed.count(), MANY.partitions / 2 - 1);
    // They still go if somebody asks for it.
    bed.whole.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
    bed.until_shared();
    bed.finish();
}

#[test]
fn what_a_cancelled_move_has_copied_goes_from_memory_and_disk() {
    let mut whole = small_logs::started(&PARTITIONS);
    let at = row(&whole, PARTITION);
    let (from, to) = match at.node == NAMES[0] {
        true => (0, 1),
        false => (1, 0),
    };
    let tag = tags(&at).next().expect("a tag");
    let mut client = whole.client();
    let value = |n: u64| Rng::new(n).bytes(VALUE_BYTES);
    let key = |n: u64| format!("{{{tag}}}:{n}");
    for n in 0..KEYS {
        let reply = client.call(&[b"SET", key(n).as_bytes(), &value(n)]);
        assert_eq!(reply, Reply::ok());
    }
    let memory = |whole: &TestCluster| whole.nodes[to].client().info("used_memory");
    let before = (memory(&whole), stored(&whole.nodes[to]));
    for time in 0..TIMES {
        let number = PARTITION.to_string();
        let words = ["move", "--partition", &number, "--to", NAMES[to]];
        whole.core.ask(&words).assert(0, &[]);
        let told = whole.core.ask(&["rebalance", "--limit", LIMIT]);
        told.assert(0, &[]);
        whole.within(OVER_WITHIN, "a part is there", |whole| {
            memory(whole) >= before.0 + PART_BYTES
        });
        let rows = migrations(&whole);
        let last = rows.iter().max_by_key(|row| row["id"].as_u64());
        let last = last.expect("a migration");
        assert_eq!(last["state"], "copying", "{last}");
        cancel(&whole, last);
        // Written while the source has not heard of it, and afterwards.
        let reply = client.call(&[b"SET", key(time).as_bytes(), &value(time)]);
        assert_eq!(reply, Reply::ok());
        whole.within(OVER_WITHIN, "it goes", |whole| {
            let ends = whole.nodes.iter();
            let moves = |node: &Node| {
                node.client().info("migrations_incoming")
                    + node.client().info("migrations_outgoing")
            };
            ends.map(moves).sum::<u64>() == 0 && memory(whole) <= before.0 + MEMORY_GROWTH_MAX
        });
        assert_eq!(row(&whole, PARTITION), at);
    }
    let after = (memory(&whole), stored(&whole.nodes[to]));
    eprintln!("memory and files of the target: {before:?}, and {after:?} afterwards");
    assert!(after.1 <= before.1 + STORED_GROWTH_MAX, "{after:?}");
    whole.node(NAMES[to]).stop();
    let (code, report) = whole.nodes[to].check();
    assert_eq!(code, Some(0), "{report}");
    assert!(!report.contains("staging"), "{report}");
    whole.node(NAMES[to]).restart();
    whole.until_healthy();
    let assert_there = |whole: &TestCluster| {
        let mut client = whole.client();
        for n in 0..KEYS {
            let reply = client.call(&["GET", &key(n)]);
            assert!(reply == Reply::Bulk(value(n)), "{n}: {:?}", reply.error());
        }
        let nodes = whole.nodes.iter();
        let counted = nodes.map(|node| node.client().say("DBSIZE").integer());
        counted.collect::<Vec<_>>()
    };
    assert_eq!(assert_there(&whole)[from], KEYS as i64);
    // Tried again where its disk stands still for too long.
    whole
        .core
        .ask(&["drain", NAMES[from], "--wait"])
        .assert(0, &[]);
    assert_eq!(row(&whole, PARTITION).node, NAMES[to]);
    assert_eq!(assert_there(&whole)[to], KEYS as i64);
}
