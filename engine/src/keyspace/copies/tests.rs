use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::{Lsn, PartitionId};

use super::Copied;
use crate::keyspace::tests::tape::{Taped, execute};
use crate::keyspace::{Keyspace, Reply};

const NOW_MS: u64 = 1_700_000_000_000;

fn reply(out: &mut Vec<u8>) -> Reply<'_> {
    Reply {
        out,
        protocol: Protocol::Resp2,
        gate: Lsn::ZERO,
    }
}

fn run(keyspace: &mut Keyspace, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    execute(keyspace, &words);
}

/// A keyspace of which these keys are copied.
fn copied(keys: &[&str]) -> (Taped, Vec<Copied>) {
    let mut taped = Taped::new(2, NOW_MS);
    let keyspace = &mut taped.keyspace;
    run(keyspace, "MSET k 5 l 6 full x");
    run(keyspace, "SET late a PX 50");
    let mut out = Vec::new();
    let copies = keys.iter().map(|key| {
        let copied = keyspace.copied(key.as_bytes(), &mut reply(&mut out));
        copied.expect("it is there")
    });
    let copies: Vec<Copied> = copies.collect();
    keyspace.watch_copies(7, &copies);
    (taped, copies)
}

#[test]
fn every_write_of_a_key_is_noted_and_nothing_else_is() {
    let writes = [
        "SET k 5",
        "DEL k",
        "GETDEL k",
        "RENAME k other",
        "PEXPIRE k -1",
        "PEXPIRE k 100000",
        "APPEND k 1",
    ];
    let others = ["GET k", "SETNX k 1", "DEL nothing", "COPY k other"];
    let writes = writes.map(|line| (line, false)).into_iter();
    for (line, is_unwritten) in writes.chain(others.map(|line| (line, true))) {
        let (mut taped, copies) = copied(&["k", "l", "k"]);
        // Those of somebody else are another matter.
        taped.keyspace.watch_copies(8, &copies[..2]);
        run(&mut taped.keyspace, line);
        let unwritten = taped.keyspace.unwatch_copies(7, &copies);
        assert_eq!(unwritten, [is_unwritten, true, is_unwritten], "{line}");
        let unwritten = taped.keyspace.unwatch_copies(8, &copies[..2]);
        assert_eq!(unwritten, [is_unwritten, true], "{line}");
        assert!(taped.keyspace.watched.is_empty());
    }
}

#[test]
fn a_key_that_was_removed_and_set_anew_is_written() {
    let (mut taped, copies) = copied(&["k", "l"]);
    run(&mut taped.keyspace, "DEL k");
    run(&mut taped.keyspace, "SET k 5");
    assert_eq!(taped.keyspace.unwatch_copies(7, &copies), [false, true]);
}

#[test]
fn a_key_that_has_expired_is_not_written_until_it_is_set_anew() {
    for (line, is_unwritten) in [("DEL late", true), ("SET late a", false)] {
        let (mut taped, copies) = copied(&["late"]);
        taped.keyspace.set_now(NOW_MS + 60);
        run(&mut taped.keyspace, line);
        let unwritten = taped.keyspace.unwatch_copies(7, &copies);
        assert_eq!(unwritten, [is_unwritten], "{line}");
    }
}

#[test]
fn a_flush_and_a_partition_that_leaves_are_writes() {
    let (mut taped, copies) = copied(&["k", "l"]);
    taped.keyspace.flush(&mut reply(&mut Vec::new()));
    assert_eq!(taped.keyspace.unwatch_copies(7, &copies), [false, false]);

    let (mut taped, copies) = copied(&["k"]);
    let keyspace = &mut taped.keyspace;
    let partition = keyspace.key(b"k").partition;
    keyspace.drop_copy(PartitionId(1 - partition.0));
    assert!(!keyspace.watched.is_empty());
    keyspace.drop_copy(partition);
    assert_eq!(keyspace.unwatch_copies(7, &copies), [false]);
}

#[test]
fn what_a_section_takes_back_is_no_write() {
    for commits in [false, true] {
        let (mut taped, copies) = copied(&["k"]);
        let keyspace = &mut taped.keyspace;
        keyspace.begin_atomic(usize::MAX);
        run(keyspace, "DEL k");
        match commits {
            false => keyspace.roll_back_atomic(),
            true => keyspace
                .commit_atomic(&mut reply(&mut Vec::new()))
                .expect("it fits"),
        }
        assert_eq!(keyspace.unwatch_copies(7, &copies), [!commits]);
    }
}
