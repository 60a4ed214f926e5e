//! Data directories that earlier builds have written still open, with everything in them.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use ephesus_tests::{Client, Node, Options, Reply, paths};

/// A node of two shards and 16 partitions, killed behind its last acknowledgement, with images, a log
/// behind them and its own coordinator's log: what [`assert_whole`] expects.
const FORMAT_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/node-format-1.tar.gz");

/// When the key `far` expires: the first of January 2100.
const FAR_MS: i64 = 4_102_444_800_000;

fn unpack(archive: &str, into: &Path) {
    let status = Command::new("tar")
        .args(["--extract", "--gzip", "--file", archive, "--directory"])
        .arg(into)
        .status()
        .expect("run tar");
    assert!(status.success(), "{archive} cannot be unpacked");
}

/// Sets, deletes, appends, values above a block, counters, a deadline.
fn assert_whole(client: &mut Client) {
    assert_eq!(client.say("DBSIZE"), Reply::Integer(1683));
    for n in 0..2000 {
        let expected = match n % 4 {
            0 => None,
            1 => Some(format!("value:{n}+")),
            _ => Some(format!("value:{n}")),
        };
        let found = client.say(&format!("GET key:{n}"));
        match expected {
            Some(value) => assert_eq!(found, Reply::bulk(value), "key:{n}"),
            None => assert!(found.is_nil(), "key:{n}: {found:?}"),
        }
    }
    for n in 0..32 {
        let found = client.say(&format!("GET large:{n}"));
        assert!(found == Reply::Bulk(vec![b'd'; 65536]), "large:{n}");
    }
    for n in 0..100 {
        let found = client.say(&format!("GET count:{n}"));
        assert_eq!(found, Reply::bulk(n.to_string()), "count:{n}");
    }
    for n in 0..50 {
        let found = client.say(&format!("GET m:{n}"));
        assert_eq!(found, Reply::bulk(n.to_string()), "m:{n}");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.expect("a clock behind 1970").as_millis() as i64;
    let left_ms = client.say("PTTL far").integer();
    assert!(
        (FAR_MS - now_ms - left_ms).abs() < 60_000,
        "{left_ms} ms left"
    );
}

#[test]
fn a_data_directory_of_format_1_opens_whole_also_with_other_shards() {
    let home = paths::scratch();
    unpack(FORMAT_1, home.path());
    let data = home.path().join("data");
    let mut node = Node::stopped_at(
        Options {
            partitions: Some(16),
            ..Options::default()
        },
        home,
        data,
    );
    let (code, text) = node.check();
    assert_eq!(code, Some(0), "{text}");
    for shards in [2, 2, 3, 1] {
        node.options.shards = shards;
        node.restart();
        let mut client = node.client();
        assert_whole(&mut client);
        node.kill();
    }
    node.restart();
    node.stop();
    let (code, text) = node.check();
    assert_eq!(code, Some(0), "{text}");
}
