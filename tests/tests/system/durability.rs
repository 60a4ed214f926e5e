//! What reaches the device, seen from outside with strace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ephesus_tests::images::stores;
use ephesus_tests::ledger::value_of;
use ephesus_tests::{Failpoints, Node, Options, Reply, paths};

/// A node passes this failpoint once a manifest has switched to a new image: the trace has the attempt to rename a
/// file of this name.
const SWITCHED: &str = "image-switched";

/// And this one once all of its blocks are durable.
const SEALED: &str = "image-sealed";

const SWITCHES: u64 = 12;

/// A finished system call of the trace.
#[derive(Debug)]
struct Call {
    name: String,
    /// What the first argument, a descriptor, refers to.
    file: String,
    line: String,
    result: i64,
    /// The lines of the trace at which it began and ended.
    begun: usize,
    ended: usize,
}

/// Reads `strace -f -y` output: one entry per call, at the place where the call *ended*.
fn calls(trace: &str) -> Vec<Call> {
    let mut unfinished: BTreeMap<&str, (String, usize)> = BTreeMap::new();
    let mut calls = Vec::new();
    for (ended, line) in trace.lines().enumerate() {
        let Some((pid, rest)) = line.split_once(' ') else {
            continue;
        };
        let rest = rest.trim_start();
        let (whole, begun) = if let Some(head) = rest.strip_suffix("<unfinished ...>") {
            unfinished.insert(pid, (head.to_owned(), ended));
            continue;
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some((head, begun)) = unfinished.remove(pid) else {
                continue;
            };
            let tail = resumed.split_once("resumed>").map_or("", |(_, tail)| tail);
            (format!("{head}{tail}"), begun)
        } else {
            (rest.to_owned(), ended)
        };
        let Some((name, args)) = whole.split_once('(') else {
            continue;
        };
        let Some((_, result)) = whole.rsplit_once(" = ") else {
            continue;
        };
        let file = args
            .split_once('<')
            .and_then(|(_, path)| path.split_once('>'))
            .map_or("", |(path, _)| path);
        let result = result
            .split_whitespace()
            .next()
            .and_then(|number| number.parse().ok());
        calls.push(Call {
            name: name.to_owned(),
            file: file.to_owned(),
            result: result.unwrap_or(-1),
            line: whole.clone(),
            begun,
            ended,
        });
    }
    calls
}

/// Stops a node under `strace -D`, which ends after it; answers the whole trace.
fn stop_traced(node: &mut Node, trace: &Path) -> String {
    let end = format!("{} +++ exited with 0 +++", node.process().pid());
    node.stop();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let text = std::fs::read_to_string(trace).expect("read the trace");
        // Numbers of processes are padded.
        let ends = |line: &str| line.split_whitespace().eq(end.split(' '));
        if text.lines().any(ends) {
            return text;
        }
        assert!(Instant::now() < deadline, "the trace has no end: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn of_images(call: &Call, images: &Path) -> bool {
    Path::new(&call.file).starts_with(images)
}

#[test]
fn images_are_really_synced_before_their_manifest_switches() {
    paths::require("strace");
    let home = paths::scratch();
    let trace = home.path().join("trace");
    // -D keeps the node our own child; the tracer is a grandchild and ends with it.
    let wrapper = [
        "strace",
        "-D",
        "-f",
        "-y",
        "-s",
        "512",
        "-e",
        "trace=fsync,fdatasync,sync_file_range,write,writev,pwrite64,pwritev,pwritev2,/rename",
        "-o",
    ];
    let mut wrapper: Vec<String> = wrapper.iter().map(|word| (*word).to_owned()).collect();
    wrapper.push(trace.display().to_string());
    // As many as there will be stores, one for each CPU: no store has two, so that nothing but the image that is
    // being written, and the removal of the one before, is written to its file.
    let partitions = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(4));
    let options = Options {
        shards: 1,
        partitions: Some(partitions as u32),
        wal_budget: Some(64 << 20),
        failpoints: Some(Failpoints::default()),
        wrapper,
        ..Options::default()
    };
    let mut node = Node::start(options);
    let mut client = node.client();
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut written = 0;
    while client.info("images_written") < SWITCHES {
        let sets: Vec<_> = (0..200)
            .map(|i| {
                let key = format!("key:{}", (written + i) % 4_000).into_bytes();
                vec![b"SET".to_vec(), key, value_of(written + i, 1)]
            })
            .collect();
        assert!(
            client
                .pipeline(&sets)
                .iter()
                .all(|reply| *reply == Reply::ok())
        );
        written += 200;
        assert!(
            Instant::now() < deadline,
            "{} images after {written} writes; {SWITCHES} are wanted",
            client.info("images_written")
        );
    }
    let images = node.data_dir().join("images");
    let trace = stop_traced(&mut node, &trace);
    let calls = calls(&trace);
    let stores = stores(node.data_dir());
    assert!(partitions <= stores, "{partitions} in {stores} stores");
    let switches = assert_images_synced(&calls, &images, stores);
    assert!(
        switches as u64 >= SWITCHES,
        "{switches} switches in the trace"
    );
}

#[test]
fn a_start_reads_image_stores_from_the_device() {
    paths::require("strace");
    let home = paths::scratch();
    let trace = home.path().join("trace");
    let wrapper = ["strace", "-D", "-f", "-y", "-e", "trace=fadvise64", "-o"];
    let mut wrapper: Vec<String> = wrapper.iter().map(|word| (*word).to_owned()).collect();
    wrapper.push(trace.display().to_string());
    let mut node = Node::start(Options {
        wrapper,
        ..Options::default()
    });
    let images = node.data_dir().join("images");
    let trace = stop_traced(&mut node, &trace);
    let calls = calls(&trace);
    for store in 0..stores(node.data_dir()) {
        for name in ["db", "conf"] {
            let file = images.join(format!("db-{store}")).join(name);
            let is_read_anew = calls.iter().any(|call| {
                Path::new(&call.file) == file
                    && call.line.contains("POSIX_FADV_DONTNEED")
                    && call.result == 0
            });
            assert!(is_read_anew, "{} in\n{trace}", file.display());
        }
    }
}

/// What happened to the file of one store, in the order of its ends.
#[derive(Debug, Default)]
struct Store<'a> {
    writes: Vec<&'a Call>,
    syncs: Vec<&'a Call>,
    /// Writes by when its last image switched.
    switched_at: usize,
    /// The image that is sealed and has not switched, and how many writes there were by then.
    sealed: Option<(&'a str, usize)>,
}

impl Store<'_> {
    /// Whether a sync that began after the write had ended has ended by now.
    fn is_synced(&self, write: &Call) -> bool {
        self.syncs.iter().any(|sync| sync.begun > write.ended)
    }
}

/// Of every image, by the file of its own store: when the node takes it for sealed, something was written since the
/// last image switched, and nothing is unsynced; when the node takes it for switched, something was written since
/// it was sealed, its manifest first, and that is synced.
/// Nothing relies on `sync_file_range`, which promises nothing about a power loss.
///
/// Answers how many images have switched.
fn assert_images_synced(calls: &[Call], images: &Path, store_count: usize) -> usize {
    let mut stores: BTreeMap<PathBuf, Store<'_>> = BTreeMap::new();
    let mut switches = 0;
    for call in calls {
        let is_sync = call.name.contains("sync");
        if of_images(call, images) {
            assert!(
                call.name != "sync_file_range" || call.result != 0,
                "sync_file_range was relied upon: {}",
                call.line
            );
            assert!(!is_sync || call.result == 0, "a failed sync: {}", call.line);
            let store = stores.entry(PathBuf::from(&call.file)).or_default();
            let done = if is_sync {
                &mut store.syncs
            } else {
                &mut store.writes
            };
            done.push(call);
        } else if let Some(image) = image_of(call, SEALED) {
            let store = stores
                .entry(file_of(image, images, store_count))
                .or_default();
            let new = &store.writes[store.switched_at..];
            let last = new
                .last()
                .unwrap_or_else(|| panic!("{image} is sealed, not written"));
            assert!(
                store.is_synced(last),
                "{image} is sealed, not synced: {}",
                last.line
            );
            store.sealed = Some((image, store.writes.len()));
        } else if let Some(image) = image_of(call, SWITCHED) {
            let store = stores
                .entry(file_of(image, images, store_count))
                .or_default();
            let sealed = store.sealed.take().filter(|(sealed, _)| *sealed == image);
            let (_, writes) = sealed.unwrap_or_else(|| panic!("{image} switched, not sealed"));
            let manifest = store.writes.get(writes);
            let manifest = manifest.unwrap_or_else(|| panic!("{image} has no manifest"));
            assert!(
                store.is_synced(manifest),
                "{image} switched, its manifest is not synced: {}",
                manifest.line
            );
            store.switched_at = store.writes.len();
            switches += 1;
        }
    }
    switches
}

/// The image with which the node passes this failpoint.
fn image_of<'a>(call: &'a Call, place: &str) -> Option<&'a str> {
    let (_, rest) = call.line.rsplit_once(place)?;
    let end = rest.find('"').unwrap_or(rest.len());
    call.name.starts_with("rename").then(|| rest[..end].trim())
}

/// The file of the store that has an image.
fn file_of(image: &str, images: &Path, store_count: usize) -> PathBuf {
    let words: Vec<&str> = image.split(' ').collect();
    let ["partition", partition, ..] = words[..] else {
        panic!("{image:?} names no partition");
    };
    let partition: usize = partition.parse().expect("a partition's number");
    let store = partition % store_count;
    images.join(format!("db-{store}")).join("db")
}

/// The default directory, ./ephesus-data, is relative too.
#[test]
fn a_relative_data_directory_takes_many_log_segments() {
    const KEYS: usize = 40;
    let home = paths::scratch();
    let mut data = std::path::PathBuf::new();
    let here = std::env::current_dir().expect("a directory");
    here.ancestors().skip(1).for_each(|_| data.push(".."));
    let absolute = home.path().canonicalize().expect("the temporary one");
    data.push(absolute.strip_prefix("/").expect("absolute"));
    data.push("data");
    let options = Options {
        shards: 1,
        wal_budget: Some(64 << 20),
        ..Options::default()
    };
    let mut node = Node::stopped_at(options, home, data);
    node.restart();
    let value = "v".repeat(1 << 20);
    let mut client = node.client();
    for n in 0..KEYS {
        assert_eq!(
            client.call(&["SET", &format!("key:{n}"), &value]),
            Reply::ok()
        );
    }
    node.kill();
    node.restart();
    assert_eq!(node.client().say("DBSIZE").integer(), KEYS as i64);
}

#[test]
fn a_pause_is_used_to_write_images() {
    let mut node = Node::start(Options {
        shards: 1,
        wal_budget: Some(64 << 20),
        ..Options::default()
    });
    let mut client = node.client();
    // More than a segment of 16 MiB, less than the 60% at which images begin anyway.
    let value = vec![b'v'; 1 << 20];
    for n in 0..24u8 {
        let key = format!("key:{n}").into_bytes();
        let reply = client.call(&[b"SET".to_vec(), key, value.clone()]);
        assert_eq!(reply, Reply::ok());
    }
    // A disk may be faster than INFO, which is brought up to date every 20 ms.
    let mut until = |what: &str, is_so: fn(u64) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so(client.info("wal_segments")) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
        client.info("images_written")
    };
    let written = until("24 MB are in one segment", |segments| segments > 1);
    assert_eq!(written, 0, "nothing presses");
    let written = until("60 s of rest and no image", |segments| segments <= 1);
    assert!(written > 0);
    node.kill();
    node.restart();
    let mut client = node.client();
    assert_eq!(client.say("DBSIZE").integer(), 24);
}

/// Two images of partition 5, which is in store 1; store 2 is written to and not synced meanwhile.
const TRACE: &str = "\
7 pwrite64(9</d/images/db-1/db>, \"abc\"..., 3, 0) = 3
7 fsync(9</d/images/db-1/db> <unfinished ...>
8 write(1<pipe:[5]>, \"x\", 1) = 1
8 pwrite64(8</d/images/db-2/db>, \"abc\"..., 3, 0) = 3
7 <... fsync resumed>) = 0
7 rename(\"/f/image-sealed\", \"/f/image-sealed partition 5 epoch 1 generation 1\") = -1 ENOENT (No such file or directory)
7 pwrite64(9</d/images/db-1/db>, \"man\"..., 3, 0) = 3
7 fdatasync(9</d/images/db-1/db>) = 0
7 pwrite64(9</d/images/db-1/db>, \"swept\"..., 3, 0) = 3
7 rename(\"/f/image-switched\", \"/f/image-switched partition 5 epoch 1 generation 1\") = -1 ENOENT (No such file or directory)
7 pwrite64(9</d/images/db-1/db>, \"abc\"..., 3, 0) = 3
7 fsync(9</d/images/db-1/db>) = 0
7 rename(\"/f/image-sealed\", \"/f/image-sealed partition 5 epoch 1 generation 2\") = -1 ENOENT (No such file or directory)
7 pwrite64(9</d/images/db-1/db>, \"man\"..., 3, 0) = 3
7 fsync(9</d/images/db-1/db>) = 0
7 rename(\"/f/image-switched\", \"/f/image-switched partition 5 epoch 1 generation 2\") = -1 ENOENT (No such file or directory)
";

#[test]
fn the_trace_is_read_as_strace_writes_it() {
    let parsed = calls(TRACE);
    assert_eq!(parsed.len(), TRACE.lines().count() - 1);
    let sync = &parsed[3];
    assert_eq!((sync.name.as_str(), sync.result), ("fsync", 0));
    assert_eq!((sync.begun, sync.ended), (1, 4));
    assert!(of_images(sync, Path::new("/d/images")));
}

#[test]
fn a_missing_or_early_sync_of_any_image_is_caught() {
    let images = Path::new("/d/images");
    let switches = |lines: &[&str]| {
        let trace = lines.join("\n");
        std::panic::catch_unwind(|| assert_images_synced(&calls(&trace), images, 4)).ok()
    };
    let lines: Vec<&str> = TRACE.lines().collect();
    assert_eq!(switches(&lines), Some(2));
    let essential = (0..lines.len()).filter(|&at| {
        let is_of_others = lines[at].starts_with('8');
        !is_of_others && !lines[at].contains("swept") && !lines[at].contains("switched")
    });
    for at in essential {
        let mut without = lines.clone();
        let gone = without.remove(at);
        assert_eq!(switches(&without), None, "not missed: {gone}");
    }
    for at in
        (0..lines.len()).filter(|&at| lines[at].contains("sync") && lines[at].ends_with("= 0"))
    {
        let failed = lines[at].replace("= 0", "= -1 EIO (Input/output error)");
        let mut with = lines.clone();
        with[at] = &failed;
        assert_eq!(switches(&with), None, "not noticed: {failed}");
    }
    let mut early = lines.clone();
    early.swap(0, 1);
    assert_eq!(
        switches(&early),
        None,
        "a sync that began before the write had ended"
    );
}

/// Bytes of the files called `mapped` that the process has stored to and the device does not have, in KiB.
fn dirty_kib(pid: u32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("its memory");
    let (mut is_mapped, mut dirty) = (false, 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Shared_Dirty:" | "Private_Dirty:") if is_mapped => {
                dirty += words
                    .next()
                    .and_then(|kib| kib.parse::<u64>().ok())
                    .expect("KiB");
            }
            Some(word) if !word.ends_with(':') => is_mapped = line.ends_with("/mapped"),
            _ => {}
        }
    }
    dirty
}

#[test]
fn what_relaxed_writes_commit_is_synced_also_while_the_log_waits_for_a_segment() {
    let node = Node::start(Options {
        shards: 1,
        durability: Some("relaxed"),
        wal_budget: Some(256 << 20),
        ..Options::default()
    });
    let mut client = node.client();
    assert_eq!(client.say("SET first v"), Reply::ok());
    // No descriptor for another segment, not even one that was closed since the start.
    let limit = libc::rlimit {
        rlim_cur: 4,
        rlim_max: 4,
    };
    let pid = node.process().pid();
    // SAFETY: sets a limit of a child from plain data.
    let set = unsafe {
        libc::prlimit(
            pid as i32,
            libc::RLIMIT_NOFILE,
            &limit,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let value = vec![b'v'; 100 << 10];
    let timeout = Some(Duration::from_secs(1));
    client
        .stream()
        .set_read_timeout(timeout)
        .expect("a timeout");
    let mut writes = 0;
    while client
        .try_call(&[
            b"SET".to_vec(),
            format!("key:{writes}").into(),
            value.clone(),
        ])
        .is_ok()
    {
        writes += 1;
        assert!(writes < 2_000, "the log does not wait");
    }
    node.wait_says(&["the log's files wait"], Duration::from_secs(1));
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(dirty_kib(pid), 0, "KiB after {writes} writes");
}
