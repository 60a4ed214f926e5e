use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::{Lsn, PartitionId, ShardId};

use crate::keyspace::Reply;
use crate::keyspace::tests::tape::{Taped, execute};
use crate::net::ConnToken;
use crate::shard::mesh::Client;

const NOW_MS: u64 = 1_700_000_000_000;

fn client(index: u32) -> Client {
    let generation = 1;
    (ShardId(0), ConnToken { index, generation })
}

struct Bed(Taped);

impl Bed {
    fn new() -> Bed {
        Bed(Taped::new(2, NOW_MS))
    }

    fn run(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        execute(&mut self.0.keyspace, &words);
    }

    fn watch(&mut self, index: u32, key: &str) {
        let keyspace = &mut self.0.keyspace;
        let key = keyspace.key(key.as_bytes());
        keyspace.watch(client(index), &key);
    }

    fn flush(&mut self) {
        self.0.keyspace.flush(&mut Reply {
            out: &mut Vec::new(),
            protocol: Protocol::Resp2,
            gate: Lsn::ZERO,
        });
    }

    /// Whether what a client watches is as it was; it is forgotten then.
    fn ends(&mut self, index: u32) -> bool {
        let is_unchanged = self.0.keyspace.is_unchanged(client(index));
        self.0.keyspace.unwatch(client(index));
        is_unchanged
    }
}

#[test]
fn every_write_of_a_key_is_a_change_and_nothing_else_is() {
    let changes = [
        "SET k 1",
        "MSET other 1 k 2",
        "DEL k",
        "GETDEL k",
        "RENAME k other",
        "RENAME full k",
        "EXPIRE k 100",
        "PEXPIRE k -1",
        "INCR k",
        "APPEND k 1",
        "SETBIT k 1 1",
        "GETEX k EX 100",
        "COPY full k REPLACE",
    ];
    let others = [
        "GET k",
        "SETNX k 1",
        "PERSIST k",
        "SET k 1 XX IFEQ no",
        "DEL nothing",
        "SET other 1",
        "EXPIRE nothing 100",
        "COPY k other",
        "MSETNX k 1 other 1",
        "RENAMENX full k",
        "GETEX k",
    ];
    for (line, is_unchanged) in changes
        .map(|line| (line, false))
        .into_iter()
        .chain(others.map(|line| (line, true)))
    {
        let mut bed = Bed::new();
        bed.run("SET k 5");
        bed.run("SET full x");
        bed.watch(1, "k");
        bed.watch(1, "k");
        bed.watch(2, "k");
        bed.watch(3, "away");
        bed.run(line);
        for index in [1, 2] {
            assert_eq!(bed.ends(index), is_unchanged, "{line}");
        }
        assert!(bed.ends(3), "{line}");
        assert_eq!(bed.0.keyspace.watchers(), 0);
        assert!(bed.0.keyspace.watched.by_hash.is_empty(), "{line}");
    }
}

#[test]
fn a_deadline_that_passes_is_a_change_and_a_removal_of_what_had_expired_is_none() {
    let mut bed = Bed::new();
    bed.run("SET late a PX 50");
    bed.run("SET past b PX 10");
    bed.0.keyspace.set_now(NOW_MS + 20);
    bed.watch(1, "late");
    bed.watch(2, "past");
    bed.run("SETNX other 1");
    bed.run("DEL past");
    assert!(bed.ends(2), "it was gone before");
    bed.watch(2, "past");
    bed.watch(3, "late");
    bed.0.keyspace.set_now(NOW_MS + 60);
    while !bed.0.keyspace.sweep_slice() {}
    assert!(bed.0.keyspace.is_empty() || bed.0.keyspace.len() == 1);
    assert!(bed.ends(2));
    assert!(!bed.ends(1) && !bed.ends(3));
}

#[test]
fn a_flush_changes_what_was_there() {
    let mut bed = Bed::new();
    bed.run("SET k 1");
    bed.watch(1, "k");
    bed.watch(2, "absent");
    bed.flush();
    assert!(!bed.ends(1) && bed.ends(2));
}

#[test]
fn a_partition_that_leaves_takes_its_watches_along() {
    let mut bed = Bed::new();
    bed.watch(1, "absent");
    let partition = bed.0.keyspace.key(b"absent").partition;
    bed.0.keyspace.drop_copy(PartitionId(1 - partition.0));
    assert!(bed.0.keyspace.is_unchanged(client(1)));
    bed.0.keyspace.drop_copy(partition);
    assert!(!bed.ends(1));
    bed.0.keyspace.watch_elsewhere(client(2));
    assert!(!bed.ends(2) && !bed.ends(2));
}

#[test]
fn what_a_section_takes_back_is_no_change() {
    let mut bed = Bed::new();
    bed.run("SET k 1");
    bed.run("SET past 1 PX 10");
    bed.0.keyspace.set_now(NOW_MS + 20);
    for commits in [false, true] {
        bed.watch(1, "k");
        bed.watch(2, "past");
        bed.0.keyspace.begin_atomic(usize::MAX);
        bed.run("APPEND k 1");
        bed.run("DEL past");
        bed.flush();
        match commits {
            false => bed.0.keyspace.roll_back_atomic(),
            true => {
                let committed = bed.0.keyspace.commit_atomic(&mut Reply {
                    out: &mut Vec::new(),
                    protocol: Protocol::Resp2,
                    gate: Lsn::ZERO,
                });
                committed.expect("it fits");
            }
        }
        assert_eq!(bed.ends(1), !commits);
        assert!(bed.ends(2));
    }
}
