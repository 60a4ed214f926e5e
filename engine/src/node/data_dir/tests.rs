use ephesus_wal::LogId;
use ephesus_wire::{Epoch, ShardId};

use super::*;

fn stamp() -> Stamp {
    Stamp {
        node: NodeId([2; 16]),
        stores: 4,
        joined: Some(Joined {
            cluster: ClusterId([1; 16]),
            partitions: 7,
        }),
    }
}

fn layout() -> Layout {
    let logs = [LogId([3; 16]), LogId([4; 16])];
    let mut layout = Layout::empty(7, logs.into_iter());
    layout.partitions = (0..7)
        .map(|n| (ShardId(n % 2), Epoch(u64::from(n) + 1)))
        .collect();
    layout.has_image = (0..7).map(|n| n % 3 == 0).collect();
    layout
}

fn new_dir() -> (tempfile::TempDir, DataDir) {
    let temp = tempfile::tempdir().expect("temp dir");
    let dir = DataDir::lock(&temp.path().join("data")).expect("lock");
    (temp, dir)
}

fn initialized() -> (tempfile::TempDir, DataDir) {
    let (temp, dir) = new_dir();
    dir.write_layout(&layout()).expect("a layout");
    dir.write_stamp(&stamp()).expect("a stamp");
    (temp, dir)
}

#[test]
fn stamp_and_layout_come_back() {
    let (_temp, dir) = new_dir();
    assert_eq!(dir.stamp().expect("no stamp"), None);
    let alone = Stamp {
        joined: None,
        ..stamp()
    };
    dir.write_stamp(&alone).expect("a stamp");
    assert_eq!(dir.stamp().expect("a stamp"), Some(alone));
    dir.write_layout(&layout()).expect("a layout");
    dir.write_stamp(&stamp()).expect("another");
    assert_eq!(dir.stamp().expect("a stamp"), Some(stamp()));
    assert_eq!(dir.layout().expect("a layout"), layout());
    let next = Layout::empty(7, [LogId([5; 16])].into_iter());
    dir.write_layout(&next).expect("replace");
    assert_eq!(dir.layout().expect("a layout"), next);
}

#[test]
fn a_start_that_was_interrupted_before_the_stamp_begins_anew() {
    let (_temp, dir) = new_dir();
    dir.write_layout(&layout()).expect("write");
    fs::write(dir.path().join("stamp.new"), "format=").expect("write");
    assert_eq!(dir.stamp().expect("no stamp"), None);
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let temp = tempfile::tempdir().expect("temp dir");
    fs::write(temp.path().join("thesis.doc"), "x").expect("write");
    let result = DataDir::lock(temp.path()).and_then(|dir| dir.stamp());
    assert!(matches!(result, Err(DataDirError::Foreign(_))));
    assert!(temp.path().join("thesis.doc").exists());
}

#[test]
fn a_directory_of_a_coordinator_is_refused_as_one() {
    let temp = tempfile::tempdir().expect("temp dir");
    let stamp = "ephesus-coordinator 1\nid 1\n";
    fs::write(temp.path().join("stamp"), stamp).expect("write");
    let result = DataDir::lock(temp.path()).and_then(|dir| dir.stamp());
    assert!(
        matches!(result, Err(DataDirError::Coordinator(_))),
        "{result:?}"
    );
}

#[test]
fn a_directory_is_served_once() {
    let (_temp, dir) = initialized();
    let second = DataDir::lock(dir.path());
    assert!(matches!(second, Err(DataDirError::Locked(_))));
    let path = dir.path().to_owned();
    drop(dir);
    DataDir::lock(&path).expect("free again");
}

#[test]
fn every_damaged_bit_of_a_layout_that_is_there_once_is_found() {
    let (_temp, dir) = initialized();
    let file = dir.path().join("layout");
    let good = layout().encode();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(&file, bad).expect("write");
        assert!(
            matches!(dir.layout(), Err(DataDirError::Damaged { .. })),
            "bit {bit}"
        );
    }
    for len in 0..good.len() {
        fs::write(&file, &good[..len]).expect("write");
        assert!(dir.layout().is_err(), "{len} bytes");
    }
    fs::remove_file(&file).expect("remove");
    assert!(matches!(dir.layout(), Err(DataDirError::Io(_))));
}

#[test]
fn every_damaged_bit_of_the_layout_is_found_and_changes_nothing() {
    let (_temp, dir) = initialized();
    let file = dir.path().join("layout");
    assert!(!dir.find_layout().expect("it is whole").is_half);
    let good = fs::read(&file).expect("read");
    let (place_bytes, in_use) = (good.len() / 2, 24 + layout().encode().len());
    let read = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("write");
        dir.find_layout()
    };
    for bit in 0..in_use * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let found = read(&bad).expect("there is the other place");
        assert_eq!(found.layout, layout(), "bit {bit}");
        assert!(found.is_half, "bit {bit}");
        bad[place_bytes + bit / 8] ^= 1 << (bit % 8);
        let is_refused = matches!(read(&bad), Err(DataDirError::Damaged { .. }));
        assert!(is_refused, "bit {bit} of both");
    }
    for len in 0..good.len() {
        assert!(read(&good[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn a_layout_of_an_earlier_release_or_of_a_crash_is_written_anew() {
    let (_temp, dir) = initialized();
    let file = dir.path().join("layout");
    let whole = fs::read(&file).expect("read");
    let mut half = whole.clone();
    half[100] ^= 1;
    for found in [layout().encode(), half, whole] {
        fs::write(&file, found).expect("write");
        let path = dir.path().to_owned();
        let later = DataDir {
            path,
            layout: Mutex::default(),
            lock: File::open(&file).expect("a file"),
        };
        assert_eq!(later.settle_layout().expect("settled"), layout());
        assert!(!later.find_layout().expect("it is whole").is_half);
        let next = Layout::empty(7, [LogId([5; 16])].into_iter());
        for written in [&next, &layout()] {
            later.write_layout(written).expect("written");
            assert_eq!(later.layout().expect("read"), *written);
        }
    }
}

#[test]
fn a_damaged_stamp_names_what_is_wrong() {
    let (_temp, dir) = initialized();
    let file = dir.path().join("stamp");
    let good = fs::read_to_string(&file).expect("read");
    let (body, _) = good.split_once(CHECKSUM).expect("a checksum");
    for field in ["cluster", "node", "partitions", "stores"] {
        let other = body.replace(field, "other");
        let sum = crc32fast::hash(other.as_bytes());
        fs::write(&file, format!("{other}{CHECKSUM}{sum:08x}\n")).expect("write");
        let error = dir.stamp().expect_err("damaged").to_string();
        assert!(error.contains(field) && error.contains("stamp"), "{error}");
    }
    for stores in ["stores=0", "stores=5"] {
        let other = body.replace("stores=4", stores);
        let sum = crc32fast::hash(other.as_bytes());
        fs::write(&file, format!("{other}{CHECKSUM}{sum:08x}\n")).expect("write");
        let error = dir.stamp().expect_err("damaged").to_string();
        assert!(error.contains("stores"), "{error}");
    }
    let cut = (0..good.len() - 1).map(|len| good[..len].to_owned());
    let bits = (0..body.len() * 8).map(|bit| {
        let mut bad = good.clone().into_bytes();
        bad[bit / 8] ^= 1 << (bit % 8);
        String::from_utf8_lossy(&bad).into_owned()
    });
    for text in cut.chain(bits).chain(["\0\0\0".to_owned()]) {
        fs::write(&file, &text).expect("write");
        assert!(dir.stamp().is_err(), "{text}");
    }
    fs::write(&file, good.replace("format=3", "format=2")).expect("write");
    assert!(matches!(dir.stamp(), Err(DataDirError::Format { found, .. }) if found == "2"));
}

#[test]
fn a_layout_of_another_number_of_partitions_is_damaged() {
    let (_temp, dir) = initialized();
    let joined = stamp().joined.expect("it has joined");
    dir.check_layout(&layout(), joined).expect("as many");
    let other = Layout::empty(8, [LogId([3; 16])].into_iter());
    let error = dir.check_layout(&other, joined).expect_err("another");
    assert!(error.to_string().contains("8 partitions"), "{error}");
}

#[test]
fn a_start_frees_the_reserve_and_unfinished_segments_first() {
    let (_temp, dir) = initialized();
    dir.create_log(LogId([3; 16])).expect("create");
    let log = dir.log_dir(LogId([3; 16]));
    let coordinator = dir.coordinator_dir().join("log");
    fs::create_dir_all(&coordinator).expect("create");
    let names = ["seg-0000000000000001.log", "free-0000000000000002.log"];
    for at in [&log, &coordinator] {
        for name in names {
            fs::write(at.join(name), "x").expect("write");
        }
    }
    fs::write(dir.path().join("reserve"), "x").expect("write");
    dir.free_space().expect("freed");
    dir.free_space().expect("nothing left to free");
    assert!(!dir.path().join("reserve").exists());
    for at in [&log, &coordinator] {
        assert!(at.join(names[0]).exists() && !at.join(names[1]).exists());
    }
}

#[test]
fn logs_that_a_release_without_lists_has_named_only_are_begun_once() {
    let (_temp, dir) = initialized();
    let logs = [LogId([3; 16]), LogId([4; 16])].map(|log| dir.log_dir(log));
    let list = |log: &Path| log.join(files::FILE_NAME);
    dir.begin_named_logs().expect("nothing to do");
    assert!(!dir.path().join("logs").exists(), "all are lost");
    // The first is in the middle of its first segment, and the second is not there.
    let unfinished = logs[0].join("free-0000000000000001.log");
    fs::create_dir_all(&logs[0]).expect("create");
    fs::write(&unfinished, "x").expect("write");
    dir.free_space().expect("freed");
    dir.begin_named_logs().expect("begun");
    assert!(unfinished.exists() && list(&logs[1]).exists());

    starts::propose(dir.path(), false).expect("noted");
    fs::remove_dir_all(&logs[1]).expect("removed");
    dir.begin_named_logs().expect("nothing to do");
    assert!(!logs[1].exists(), "it was begun before: it is lost");
}

#[test]
fn only_the_layouts_logs_stay() {
    let (_temp, dir) = initialized();
    let layout = layout();
    for log in [LogId([3; 16]), LogId([9; 16])] {
        dir.create_log(log).expect("create");
        fs::write(dir.log_dir(log).join("seg"), "x").expect("write");
    }
    dir.remove_other_logs(&layout).expect("remove");
    assert!(dir.log_dir(LogId([3; 16])).exists());
    assert!(!dir.log_dir(LogId([9; 16])).exists());
}

#[test]
fn a_start_after_one_with_the_same_lock_is_the_only_one_and_that_of_a_copy_is_not() {
    let (temp, dir) = initialized();
    let begin = |dir: &DataDir| dir.begin_start(false).expect("counted");
    assert_eq!(begin(&dir), (1, true), "the first one");
    assert_eq!(begin(&dir), (2, true), "this process had the lock before");
    let file = dir.path().join("incarnation");
    let copied = tempfile::tempdir().expect("a directory");
    let copy = DataDir::lock(copied.path()).expect("locked");
    fs::copy(&file, copied.path().join("incarnation")).expect("copied");
    assert_eq!(begin(&copy), (3, false), "the first one may go on");
    assert_eq!(begin(&copy), (4, true));
    // As an earlier release wrote it, and on another boot.
    for text in ["7\n", "7\n00000000-0000-0000-0000-000000000000 1 2\n"] {
        fs::write(&file, text).expect("written");
        assert_eq!(begin(&dir), (8, false), "{text}");
        assert_eq!(dir.last_incarnation().expect("read"), 8);
    }
    drop(temp);
}

#[test]
fn starts_are_counted_and_addresses_kept() {
    let (_temp, dir) = initialized();
    let starts: Vec<u64> = (0..3)
        .map(|_| dir.begin_start(false).expect("counted").0)
        .collect();
    assert_eq!(starts, [1, 2, 3]);
    for damaged in [
        "x",
        "",
        "\u{fffd}",
        "18446744073709551615",
        "18446744073709551616",
    ] {
        fs::write(dir.path().join("incarnation"), damaged).expect("write");
        assert!(matches!(
            dir.begin_start(false),
            Err(DataDirError::Damaged { .. })
        ));
    }
    assert_eq!(dir.coordinators().expect("none yet"), Vec::<String>::new());
    let addresses = ["a:1".to_owned(), "b:2".to_owned()];
    dir.write_coordinators(&addresses).expect("written");
    assert_eq!(dir.coordinators().expect("read"), addresses);
    let damaged = b"a:1\n\xff\xfe:1\nno address\nb:2\nc:99999\n:7\n";
    fs::write(dir.path().join("coordinators"), damaged).expect("write");
    assert_eq!(dir.coordinators().expect("what is left"), addresses);
}
