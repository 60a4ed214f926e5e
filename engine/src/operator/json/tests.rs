//! Scripts depend on these names.

use super::super::text::load::tests::load_report;
use super::super::text::migrations::tests::migrations_report;
use super::super::text::tests::{coordinator_rows, node_rows, partition_rows, status_report};
use super::*;

#[test]
fn the_json_of_a_status_stays_as_it_is() {
    let text = render(&Report::Status(status_report())).expect("JSON");
    let expected = r#"{
  "cluster": "0123456789abcdef0123456789abcdef",
  "healthy": false,
  "problems": [
    {
      "kind": "node_failed",
      "message": "node cyrene has failed and owns 3 partitions",
      "name": "cyrene",
      "partitions": 3
    },
    {
      "kind": "not_bootstrapped",
      "message": "there is no cluster yet: start one coordinator with --bootstrap"
    }
  ],
  "leader": 2,
  "term": 4,
  "commit_index": 17,
  "table_version": 5,
  "coordinators": 3,
  "nodes": {
    "failed": 1,
    "live": 2
  },
  "partitions": {
    "failed": 3,
    "online": 6
  },
  "keys": 1234567,
  "bytes": 209715200,
  "hot_keys": [
    {
      "key": "counter",
      "key_bytes": 7,
      "database": 2,
      "node": "athens",
      "shard": 1,
      "ops_per_s": 71300,
      "share_of_shard": 0.87,
      "cpu_us_per_s": 713000,
      "saturates": true
    }
  ]
}
"#;
    assert_eq!(text, expected);
}

#[test]
fn the_json_of_nodes_stays_as_it_is() {
    let text = render(&Report::Nodes(node_rows())).expect("JSON");
    let expected = r#"[
  {
    "name": "athens",
    "id": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "status": "live",
    "draining": true,
    "incarnation": 3,
    "shards": 2,
    "capacity": 100,
    "partitions": 6,
    "keys": 1000000,
    "bytes": 157286400,
    "last_heartbeat_ms": 120,
    "table_version": 5,
    "entry": "127.0.0.1:7379",
    "peer": "127.0.0.1:17379",
    "shard_cpu_us_per_s": [
      731500,
      null
    ],
    "rack": "east"
  },
"#;
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("\"last_heartbeat_ms\": null"), "{text}");
}

#[test]
fn the_json_of_partitions_has_all_of_them() {
    let text = render(&Report::Partitions(partition_rows())).expect("JSON");
    let expected = r#"[
  {
    "partition": 0,
    "first_slot": 0,
    "last_slot": 4095,
    "status": "online",
    "epoch": 1,
    "node": "athens",
    "shard": 0
  },
"#;
    assert!(text.starts_with(expected), "{text}");
    let rows: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    assert_eq!(rows.len(), 4);
    assert!(rows[3]["node"].is_null() && rows[3]["shard"].is_null());
}

#[test]
fn the_json_of_coordinators_stays_as_it_is() {
    let text = render(&Report::Coordinators(coordinator_rows())).expect("JSON");
    let expected = r#"[
  {
    "id": 1,
    "address": "127.0.0.1:27381",
    "leader": true,
    "votes": true,
    "matched": 17,
    "active": true,
    "last_heard_ms": 0,
    "refused": 0,
    "refusals": {
      "not_a_peer": 0
    }
  },
"#;
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("\"last_heard_ms\": null"), "{text}");
    assert!(render(&Report::Busy).is_none());
}

#[test]
fn the_json_of_migrations_stays_as_it_is() {
    let report = migrations_report();
    let text = render(&Report::Migrations(report.clone())).expect("JSON");
    let expected = r#"{
  "migrations": [
    {
      "id": 7,
      "partition": 2,
      "state": "committed",
      "from_node": "athens",
      "from_shard": 0,
      "to_node": "ephesus",
      "to_shard": 1,
      "attempt": 1,
      "will_retry": false,
      "keys": 1000,
      "bytes": 102400,
      "keys_per_s": 500,
      "bytes_per_s": 51200000,
      "hold_us": 1250,
      "last_error": "",
      "abort_reason": null
    },
"#;
    assert!(text.starts_with(expected), "{text}");
    let end = r#"  "draining": [
    {
      "node": "athens",
      "partitions": 1
    }
  ],
  "limit_mb_s": 20
}
"#;
    assert!(text.ends_with(end), "{text}");
    let line = line(&report);
    assert_eq!(line.lines().count(), 1);
    let value = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(value(&line), value(&text));
}

#[test]
fn keys_are_told_apart_and_do_nothing_to_a_terminal() {
    for (key, expected) in [
        (&b"user:{7}:\"it's\""[..], r#"user:{7}:"it's""#),
        ("キー e\u{301} 🔑".as_bytes(), "キー e\u{301} 🔑"),
        (b"back\\xff", r"back\\xff"),
        (b"back\xff", r"back\xff"),
        (b"\\\"\\", r#"\\"\\"#),
        (b"\\'", r"\\'"),
        (b"\x1b[31m\n\0", r"\u{1b}[31m\n\0"),
        ("a\u{202e}b\u{85}".as_bytes(), r"a\u{202e}b\u{85}"),
        (b"\xe3\x82", r"\xe3\x82"),
        (b"", ""),
    ] {
        assert_eq!(key_text(key), expected);
    }
}

#[test]
fn the_json_of_load_stays_as_it_is() {
    let text = render(&Report::Load(load_report())).expect("JSON");
    let expected = r#"{
  "shards": [
    {
      "node": "athens",
      "shard": 0,
      "last_1s": {
        "ops_per_s": 1200,
        "bytes_in_per_s": 36000,
        "bytes_out_per_s": 6000,
        "cpu_us_per_s": 731500
      },
"#;
    assert!(text.starts_with(expected), "{text}");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert!(value["shards"][1]["last_1m"].is_null());
    assert_eq!(value["partitions"][0]["cpu_us_per_s"], 512_000);
    assert_eq!(value["partitions"][0]["last_10m"]["ops_per_s"], 1_200);
    assert_eq!(value["partitions"][1]["traffic_bytes_per_s"], 900);
    assert!(value["partitions"][1]["last_1s"].is_null());
    assert!(value["partitions"][3]["cpu_us_per_s"].is_null());
}
