use ephesus_wal::{FaultDisk, LogId};
use futures_lite::future::block_on;
use raft::prelude::ConfState;

use super::*;
use ephesus_wire::rng::Rng;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        group_bytes_max: 8 << 10,
        ..LogOptions::new(LogId([3; 16]))
    }
}

fn open(disk: &FaultDisk) -> Result<RaftLog<FaultDisk>, StorageError> {
    block_on(RaftLog::open(disk.clone(), &options(), 0))
}

fn entry(index: u64, term: u64, bytes: usize) -> Entry {
    Entry {
        index,
        term,
        data: vec![(index % 251) as u8; bytes].into(),
        ..Entry::default()
    }
}

fn hard_state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState {
        term,
        vote,
        commit,
        ..HardState::default()
    }
}

fn snapshot(index: u64, term: u64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.mut_metadata().index = index;
    snapshot.mut_metadata().term = term;
    snapshot.mut_metadata().set_conf_state(ConfState {
        voters: vec![1, 2, 3],
        ..ConfState::default()
    });
    snapshot.data = vec![7; 100].into();
    snapshot
}

fn entries(range: std::ops::RangeInclusive<u64>, term: u64) -> Persist {
    Persist {
        entries: range.map(|index| entry(index, term, 50)).collect(),
        ..Persist::default()
    }
}

fn terms(log: &RaftLog<FaultDisk>) -> Vec<u64> {
    log.kept.entries.iter().map(|entry| entry.term).collect()
}

#[test]
fn what_was_persisted_is_there_after_a_power_loss() {
    let disk = FaultDisk::new(1);
    let mut log = open(&disk).expect("empty");
    assert!(log.is_new());
    let persist = Persist {
        snapshot: Some(snapshot(1, 1)),
        hard_state: Some(hard_state(2, 3, 1)),
        ..entries(2..=5, 2)
    };
    block_on(log.persist(&persist, 0)).expect("written");
    let kept = log.kept.clone();
    disk.crash();
    let log = open(&disk).expect("recovers");
    assert_eq!(log.kept, kept);
    let state = log.initial_state().expect("there");
    assert_eq!(state.hard_state, hard_state(2, 3, 1));
    assert_eq!(state.conf_state.voters, [1, 2, 3]);
    assert_eq!((log.first_index(), log.last_index()), (Ok(2), Ok(5)));
    assert_eq!((log.term(1), log.term(5)), (Ok(1), Ok(2)));
    assert!(log.term(0).is_err() && log.term(6).is_err());
    assert_eq!(log.snapshot(1, 0).expect("there").data.len(), 100);
    assert!(log.snapshot(2, 0).is_err());
}

#[test]
fn entries_of_a_new_leader_replace_those_they_contradict() {
    let disk = FaultDisk::new(2);
    let mut log = open(&disk).expect("empty");
    block_on(log.persist(&entries(1..=6, 1), 0)).expect("written");
    block_on(log.persist(&entries(4..=5, 2), 0)).expect("written");
    assert_eq!(terms(&log), [1, 1, 1, 2, 2]);
    disk.crash();
    let mut log = open(&disk).expect("recovers");
    assert_eq!(terms(&log), [1, 1, 1, 2, 2]);
    let gap = block_on(log.persist(&entries(7..=7, 2), 0));
    assert!(
        matches!(gap, Err(StorageError::Gap { index: 7, last: 5 })),
        "{gap:?}"
    );
    assert_eq!(terms(&log), [1, 1, 1, 2, 2], "nothing was written");
}

#[test]
fn a_snapshot_replaces_entries_and_gives_their_space_back() {
    let disk = FaultDisk::new(3);
    let mut log = open(&disk).expect("empty");
    for index in 1..=400 {
        let persist = Persist {
            entries: vec![entry(index, 1, 1_000)],
            hard_state: Some(hard_state(1, 1, index)),
            ..Persist::default()
        };
        block_on(log.persist(&persist, 0)).expect("written");
    }
    let before = log.log.segments().count();
    block_on(log.compact(snapshot(398, 1), 0)).expect("written");
    assert!(before > 10 && log.log.segments().count() <= 2);
    assert_eq!(log.entries_kept(), 2);
    let kept = log.kept.clone();
    disk.crash();
    assert_eq!(open(&disk).expect("recovers").kept, kept);
}

#[test]
fn a_snapshot_that_contradicts_the_log_replaces_all_of_it() {
    let mut log = open(&FaultDisk::new(4)).expect("empty");
    block_on(log.persist(&entries(1..=6, 1), 0)).expect("written");
    let persist = Persist {
        snapshot: Some(snapshot(4, 2)),
        ..Persist::default()
    };
    block_on(log.persist(&persist, 0)).expect("written");
    assert_eq!((log.first_index(), log.last_index()), (Ok(5), Ok(4)));
    assert_eq!(log.hard_state().commit, 4);
}

#[test]
fn records_that_make_no_sense_are_refused() {
    for (record, text) in [
        (&[][..], "empty"),
        (&[9], "unknown tag 9"),
        (&[TAG_ENTRY, 0xff], "record 1"),
    ] {
        let mut kept = Kept::default();
        let error = kept.replay(Lsn(1), record).expect_err("no record");
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// One random step; `acked` is what the log promised before it.
fn step(log: &mut RaftLog<FaultDisk>, dice: u64) -> Result<(), StorageError> {
    let last = log.kept.last_index();
    let term = log.kept.hard_state.term.max(1);
    let commit = log.kept.hard_state.commit;
    match dice % 8 {
        0 if last > commit => {
            let from = commit + 1 + dice / 8 % (last - commit);
            let persist = Persist {
                hard_state: Some(hard_state(term + 1, dice / 64 % 3, commit)),
                ..entries(from..=from, term + 1)
            };
            block_on(log.persist(&persist, 0))
        }
        1 if commit > log.kept.first_index() => {
            let term = log.kept.term(commit).expect("committed");
            block_on(log.compact(snapshot(commit, term), 0))
        }
        2 => {
            let commit = commit + dice / 8 % (last - commit + 1);
            let persist = Persist {
                hard_state: Some(hard_state(term, 1, commit)),
                ..Persist::default()
            };
            block_on(log.persist(&persist, 0))
        }
        _ => {
            let persist = Persist {
                entries: (1..=1 + dice / 8 % 4)
                    .map(|n| entry(last + n, term, (dice / 32 % 3_000) as usize))
                    .collect(),
                hard_state: Some(hard_state(term, 1, commit)),
                ..Persist::default()
            };
            block_on(log.persist(&persist, 0))
        }
    }
}

/// What must survive: everything committed, the vote of the term, and every entry that was durable
/// unless a later leader's entry has replaced it.
fn check(acked: &Kept, found: &Kept) -> Result<(), String> {
    let (old, new) = (&acked.hard_state, &found.hard_state);
    if new.term < old.term || (new.term == old.term && old.vote != 0 && new.vote != old.vote) {
        return Err(format!("hard state went back from {old:?} to {new:?}"));
    }
    if new.commit < old.commit {
        return Err(format!(
            "commit went back from {} to {}",
            old.commit, new.commit
        ));
    }
    for entry in &acked.entries {
        match found.term(entry.index) {
            Some(term) if term >= entry.term => {}
            None if entry.index < found.first_index() => {}
            other if new.term > old.term => {
                if entry.index <= old.commit {
                    return Err(format!("committed entry {} is {other:?}", entry.index));
                }
            }
            other => {
                return Err(format!(
                    "entry {} of {} is {other:?}",
                    entry.index, entry.term
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn nothing_promised_is_lost_whenever_the_power_goes() {
    let mut crashes = 0;
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let disk = FaultDisk::new(seed);
        let mut acked = Kept::default();
        for _ in 0..6 {
            let mut log = open(&disk).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            check(&acked, &log.kept).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let steps = rng.draw() % 12;
            for _ in 0..steps {
                step(&mut log, rng.draw()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            }
            acked = log.kept.clone();
            // One more whose outcome nobody learns: the power goes somewhere in the middle of it.
            let dice_of_last = rng.draw();
            let polls = rng.draw() % 6;
            let last = log.kept.last_index();
            let persist = Persist {
                entries: vec![entry(last + 1, acked.hard_state.term.max(1), 2_000)],
                ..Persist::default()
            };
            if dice_of_last.is_multiple_of(2) {
                let mut writing = Box::pin(log.persist(&persist, 0));
                for _ in 0..polls {
                    if block_on(futures_lite::future::poll_once(&mut writing)).is_some() {
                        break;
                    }
                }
            } else if acked.hard_state.commit > acked.first_index() {
                let commit = acked.hard_state.commit;
                let term = acked.term(commit).expect("committed");
                let mut writing = Box::pin(log.compact(snapshot(commit, term), 0));
                for _ in 0..polls {
                    if block_on(futures_lite::future::poll_once(&mut writing)).is_some() {
                        break;
                    }
                }
            }
            drop(log);
            disk.crash();
            crashes += 1;
        }
    }
    assert!(crashes >= 1_000, "only {crashes}");
}
