//! SCAN's guarantee while the keyspace grows from a thousand keys to a million.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ephesus_tests::{Client, Node, Options, Reply};

const BEFORE: u64 = 1_000;
const AFTER: u64 = 1_000_000;
const BATCH: u64 = 1_000;

/// `key:<number>`; everything below `BEFORE` exists all the time, `gone:<n>` never during a scan.
fn load(port: u16, numbers: std::ops::Range<u64>, written: &AtomicU64) {
    let mut client = Client::connect(port).expect("connect the writer");
    for first in numbers.step_by(BATCH as usize) {
        let mut request = Vec::new();
        for number in first..first + BATCH {
            let key = format!("key:{number}");
            ephesus_tests::resp::encode(&["SET", &key, "x"], &mut request);
        }
        client.send_raw(&request).expect("send a batch");
        for _ in 0..BATCH {
            assert_eq!(client.receive().expect("a reply"), Reply::ok());
        }
        written.store(first + BATCH, Ordering::SeqCst);
    }
}

/// One whole SCAN; `count` gives the COUNT of each page.
fn scan(client: &mut Client, mut count: impl FnMut() -> u64) -> HashSet<u64> {
    let mut found = HashSet::new();
    let mut cursor = "0".to_owned();
    let mut pages = 0u64;
    loop {
        let reply = client
            .call(&["SCAN", &cursor, "COUNT", &count().to_string()])
            .items();
        for key in reply[1].items() {
            let key = key.text();
            let number = key
                .strip_prefix("key:")
                .and_then(|number| number.parse().ok());
            found.insert(number.unwrap_or_else(|| panic!("SCAN returned {key:?}")));
        }
        pages += 1;
        assert!(pages < 3_000_000, "SCAN does not come to an end");
        cursor = reply[0].text();
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn a_scan_returns_every_key_that_was_there_all_the_time() {
    let node = Node::start(Options {
        shards: 2,
        ..Options::default()
    });
    let written = Arc::new(AtomicU64::new(0));
    let mut client = node.client();
    for i in 0..500 {
        client.call(&["SET", &format!("gone:{i}"), "x"]);
    }
    load(node.port(), 0..BEFORE, &written);
    for i in 0..500 {
        client.call(&["DEL", &format!("gone:{i}")]);
    }

    let port = node.port();
    let progress = written.clone();
    let writer = std::thread::spawn(move || load(port, BEFORE..AFTER, &progress));
    let (mut scans, mut spans) = (0, Vec::new());
    while !writer.is_finished() {
        let there_all_the_time = written.load(Ordering::SeqCst);
        // The first scan is slow for a while, so that the table grows under it by a large factor.
        let mut slow_pages = if scans == 0 { 300 } else { 0 };
        let found = scan(&mut client, || {
            if slow_pages == 0 {
                return 1000;
            }
            slow_pages -= 1;
            std::thread::sleep(std::time::Duration::from_millis(5));
            2
        });
        let missing = (0..there_all_the_time)
            .filter(|number| !found.contains(number))
            .count();
        assert_eq!(
            missing, 0,
            "scan {scans} misses {missing} of {there_all_the_time} keys"
        );
        let newest = found.iter().max().copied().unwrap_or(0);
        assert!(newest < AFTER, "key:{newest} was never written");
        spans.push((there_all_the_time, written.load(Ordering::SeqCst)));
        scans += 1;
    }
    writer.join().expect("the writer");
    assert!(
        spans[0].1 > spans[0].0,
        "nothing grew during the first scan: {spans:?}"
    );

    let all = scan(&mut client, || 1000);
    assert_eq!(all.len() as u64, AFTER);
    assert_eq!(client.say("DBSIZE"), Reply::Integer(AFTER as i64));
    let mut direct = HashSet::new();
    for shard in 0..2 {
        let part = scan(&mut node.direct_client(shard), || 1000);
        assert!(
            direct.is_disjoint(&part),
            "two shards returned the same key"
        );
        direct.extend(part);
    }
    assert_eq!(direct.len() as u64, AFTER);
    eprintln!("{scans} scans; keys at the beginning and the end of each: {spans:?}");
}
