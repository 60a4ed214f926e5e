use ephesus_wire::resp::value::decode;

use super::*;

fn entry(operation: &str, state: &str, created_s: u64, cow_bytes: u64) -> Vec<u8> {
    let created = created_s.to_string();
    let words = [
        ("name", "c1a7"),
        ("operation", operation),
        ("slot_ranges", "0-8191"),
        ("create_time", &created),
        ("state", state),
        ("message", "why not"),
    ];
    let mut out = format!("*{}\r\n", words.len() * 2 + 2).into_bytes();
    for (name, value) in words {
        out.extend(format!("${}\r\n{name}\r\n", name.len()).bytes());
        out.extend(format!("${}\r\n{value}\r\n", value.len()).bytes());
    }
    out.extend(format!("$8\r\ncow_size\r\n:{cow_bytes}\r\n").bytes());
    out
}

fn reply(entries: &[Vec<u8>]) -> Value {
    let mut bytes = format!("*{}\r\n", entries.len()).into_bytes();
    bytes.extend(entries.concat());
    let (reply, used) = decode(&bytes).expect("RESP").expect("complete");
    assert_eq!(used, bytes.len());
    reply
}

#[test]
fn the_newest_of_one_side_counts() {
    let entries = [
        entry("IMPORT", "success", 300, 0),
        entry("EXPORT", "snapshotting", 200, 0),
        entry("EXPORT", "success", 200, 0),
        entry("EXPORT", "failed", 100, 0),
    ];
    let stage = |operation| {
        let found = newest(&reply(&entries), operation).expect("a list");
        stage(&found.expect("an entry"))
    };
    assert_eq!(stage("EXPORT"), Stage::Copying);
    assert_eq!(stage("IMPORT"), Stage::Done);
    let imports = reply(&entries[..1]);
    assert_eq!(newest(&imports, "EXPORT").expect("a list"), None);
    assert!(newest(&Value::Integer(1), "EXPORT").is_err());
    assert!(newest(&Value::Array(vec![Value::Integer(1)]), "EXPORT").is_err());
}

#[test]
fn states_are_stages() {
    let stage = |state: &str| {
        let reply = reply(&[entry("EXPORT", state, 1, 4096)]);
        let found = newest(&reply, "EXPORT").expect("a list");
        let found = found.expect("an entry");
        assert_eq!(number(&found, "cow_size"), Some(4096));
        stage(&found)
    };
    assert_eq!(stage("waiting-to-snapshot"), Stage::Waiting);
    assert_eq!(stage("replicating"), Stage::Copying);
    assert_eq!(stage("failover-paused"), Stage::Copying);
    assert_eq!(stage("success"), Stage::Done);
    assert_eq!(stage("failed"), Stage::Failed("failed: why not".to_owned()));
    assert!(matches!(stage("cancelled"), Stage::Failed(_)));
}

#[test]
fn the_last_pause_is_the_hold() {
    let line = |time: &str, text: &str| {
        format!("3323:M 21 Nov 2026 {time} * Slot migration {{slots: 0-8191}} {text}\n")
    };
    let log = [
        line(
            "19:11:14.000",
            "state transition: replicating -> failover-paused",
        ),
        line(
            "19:11:14.717",
            "state transition: replicating -> failover-paused",
        ),
        line("19:11:14.719", "connection lost"),
        line(
            "19:11:14.737",
            "state transition: failover-granted -> success",
        ),
    ];
    let ms = hold_ms(&log.concat()).expect("a hold");
    assert!((ms - 20.0).abs() < 1e-6, "{ms}");
    assert_eq!(hold_ms(&log[..3].concat()), None);
    let midnight = [
        line(
            "23:59:59.990",
            "state transition: replicating -> failover-paused",
        ),
        line(
            "00:00:00.015",
            "state transition: failover-granted -> success",
        ),
    ];
    let ms = hold_ms(&midnight.concat()).expect("a hold");
    assert!((ms - 25.0).abs() < 1e-6, "{ms}");
}
