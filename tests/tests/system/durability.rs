//! What reaches the device, seen from outside with strace.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ephesus_tests::ledger::value_of;
use ephesus_tests::{Client, Node, Options, Reply, paths};

/// The node logs a line with these words, at level debug, once a manifest has switched to a new image.
const SWITCHED: &str = "image switched";

/// And these once all of its blocks are durable.
const SEALED: &str = "image sealed";

const SWITCHES: usize = 6;

/// A finished system call of the trace.
#[derive(Debug)]
struct Call {
    name: String,
    /// What the first argument, a descriptor, refers to.
    file: String,
    line: String,
    result: i64,
}

/// Reads `strace -f -y` output: one entry per call, at the place where the call *ended*.
fn calls(trace: &str) -> Vec<Call> {
    let mut unfinished: BTreeMap<&str, String> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((pid, rest)) = line.split_once(' ') else {
            continue;
        };
        let rest = rest.trim_start();
        let whole = if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
            unfinished.insert(pid, begun.to_owned());
            continue;
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some(begun) = unfinished.remove(pid) else {
                continue;
            };
            let tail = resumed.split_once("resumed>").map_or("", |(_, tail)| tail);
            format!("{begun}{tail}")
        } else {
            rest.to_owned()
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
        });
    }
    calls
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
        "trace=fsync,fdatasync,sync_file_range,write,writev,pwrite64,pwritev,pwritev2",
        "-o",
    ];
    let mut wrapper: Vec<String> = wrapper.iter().map(|word| (*word).to_owned()).collect();
    wrapper.push(trace.display().to_string());
    let options = Options {
        shards: 1,
        wal_budget: Some(64 << 20),
        log_level: "debug",
        wrapper,
        ..Options::default()
    };
    let mut node = Node::start(options);
    let mut client = node.client();
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut written = 0;
    while node.process().output().matches(SWITCHED).count() < SWITCHES {
        let sets: Vec<_> = (0..200)
            .map(|i| {
                let key = format!("key:{}", (written + i) % 20_000).into_bytes();
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
            "{} lines say {SWITCHED:?} after {written} writes; {SWITCHES} are wanted",
            node.process().output().matches(SWITCHED).count()
        );
    }
    let images = node.data_dir().join("images");
    node.stop();
    std::thread::sleep(Duration::from_millis(300));

    let trace = std::fs::read_to_string(&trace).expect("read the trace");
    let calls = calls(&trace);
    let switches = assert_images_synced(&calls, &images);
    assert!(switches >= SWITCHES, "{switches} switches in the trace");
}

/// Images may share a sync. For each of them: image files were written and synced before its line
/// says that it is sealed, and its manifest was written and synced between that line and the one that
/// says it switched. Nothing relies on `sync_file_range`, which promises nothing about a power loss.
fn assert_images_synced(calls: &[Call], images: &Path) -> usize {
    for call in calls {
        assert!(
            call.name != "sync_file_range" || call.result != 0,
            "sync_file_range was relied upon: {}",
            call.line
        );
        assert!(
            !(call.name.contains("sync") && of_images(call, images)) || call.result == 0,
            "a failed sync: {}",
            call.line
        );
    }
    let mut dirty: BTreeMap<&str, usize> = BTreeMap::new();
    let mut synced = 0;
    let mut sealed_at: BTreeMap<String, usize> = BTreeMap::new();
    let mut switches = 0;
    for call in calls {
        if of_images(call, images) && call.name.contains("write") {
            *dirty.entry(&call.file).or_default() += 1;
        } else if of_images(call, images) && call.name.contains("sync") {
            if dirty.remove(call.file.as_str()).is_some() {
                synced += 1;
            }
        } else if let Some(image) = image_of(call, SEALED) {
            assert!(synced > 0, "image {image} is sealed and nothing was synced");
            sealed_at.insert(image, synced);
        } else if let Some(image) = image_of(call, SWITCHED) {
            switches += 1;
            let sealed = sealed_at.remove(&image);
            assert!(
                sealed.is_some_and(|before| synced > before),
                "image {image} switched; syncs before it was sealed: {sealed:?}, now {synced}; \
                 written and not synced: {dirty:?}"
            );
        }
    }
    switches
}

/// The image that a line of the log with these words names.
fn image_of(call: &Call, words: &str) -> Option<String> {
    let (_, rest) = call.line.split_once(words)?;
    let (_, image) = rest.split_once("image=")?;
    let end = image.find("\\n").unwrap_or(image.len());
    call.name
        .starts_with("write")
        .then(|| image[..end].to_owned())
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
    let number = |client: &mut Client, name: &str| {
        let info = client.say("INFO persistence").text();
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.strip_prefix(':'));
        let value = value.and_then(|value| value.trim().parse::<u64>().ok());
        value.unwrap_or_else(|| panic!("INFO lacks {name}: {info}"))
    };
    // More than a segment of 16 MiB, less than the 60% at which images begin anyway.
    let value = vec![b'v'; 1 << 20];
    for n in 0..24u8 {
        let key = format!("key:{n}").into_bytes();
        let reply = client.call(&[b"SET".to_vec(), key, value.clone()]);
        assert_eq!(reply, Reply::ok());
    }
    assert_eq!(number(&mut client, "images_written"), 0, "nothing presses");
    let deadline = Instant::now() + Duration::from_secs(60);
    while number(&mut client, "wal_segments") > 1 {
        assert!(Instant::now() < deadline, "60 s of rest and no image");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(number(&mut client, "images_written") > 0);
    node.kill();
    node.restart();
    let mut client = node.client();
    assert_eq!(client.say("DBSIZE").integer(), 24);
}

#[test]
fn the_trace_is_read_as_strace_writes_it() {
    let images = Path::new("/d/images");
    let good = "\
7 pwrite64(9</d/images/db0/db>, \"abc\"..., 3, 0) = 3
7 fsync(9</d/images/db0/db> <unfinished ...>
8 write(1<pipe:[5]>, \"x\", 1) = 1
7 <... fsync resumed>) = 0
7 write(2</tmp/output>, \"DEBUG image sealed image=p 1\\n\", 20) = 20
7 pwrite64(9</d/images/db0/db>, \"man\"..., 3, 0) = 3
7 fdatasync(9</d/images/db0/db>) = 0
7 write(2</tmp/output>, \"DEBUG image switched image=p 1\\n\", 20) = 20
";
    let parsed = calls(good);
    assert_eq!(parsed.len(), 7);
    assert_eq!(parsed[2].name, "fsync");
    assert_eq!(parsed[2].result, 0);
    assert!(of_images(&parsed[2], images));
    assert_eq!(assert_images_synced(&parsed, images), 1);
    let early: String = good
        .lines()
        .filter(|line| !line.contains("fdatasync"))
        .collect::<Vec<_>>()
        .join("\n");
    let caught = std::panic::catch_unwind(|| assert_images_synced(&calls(&early), images));
    assert!(caught.is_err(), "a switch without a sync is not caught");
}
