use ephesus_coordinator::report::ShardLoadRow;

use super::*;

pub(in crate::operator) fn load_report() -> ClusterLoadReport {
    let rates = |cpu_us_per_s| {
        Some(RatesRow {
            ops_per_s: 1_200,
            bytes_in_per_s: 36_000,
            bytes_out_per_s: 6_000,
            cpu_us_per_s,
        })
    };
    let partition = |partition: u16, cpu_us_per_s: Option<u64>| PartitionLoadRow {
        partition,
        first_slot: partition * 4096,
        last_slot: partition * 4096 + 4095,
        node: cpu_us_per_s.map(|_| "athens".to_owned()),
        shard: cpu_us_per_s.map(|_| 0),
        cpu_us_per_s,
        ops_per_s: cpu_us_per_s.map(|us| us / 100),
        traffic_bytes_per_s: cpu_us_per_s.map(|_| 900),
        bytes: cpu_us_per_s.map(|_| 3 << 20),
        last_1s: None,
        last_1m: None,
        last_10m: None,
    };
    ClusterLoadReport {
        shards: vec![
            ShardLoadRow {
                node: "athens".to_owned(),
                shard: 0,
                last_1s: rates(731_500),
                last_1m: rates(600_000),
                last_10m: rates(100_000),
            },
            ShardLoadRow {
                node: "athens".to_owned(),
                shard: 1,
                last_1s: None,
                last_1m: None,
                last_10m: None,
            },
        ],
        partitions: vec![
            PartitionLoadRow {
                last_1s: rates(700_000),
                last_1m: rates(512_000),
                last_10m: rates(90_000),
                ..partition(2, Some(512_000))
            },
            partition(0, Some(1_000)),
            partition(3, Some(0)),
            partition(1, None),
        ],
    }
}

/// One that is too much for a shard, and one that is not.
pub(in crate::operator) fn hot_keys() -> Vec<HotKeyRow> {
    let key = |key: &[u8], key_bytes, cpu_us_per_s: Option<u64>| HotKeyRow {
        key: key.to_vec(),
        key_bytes,
        database: 2,
        node: "athens".to_owned(),
        shard: 1,
        ops_per_s: cpu_us_per_s.unwrap_or(500) / 10,
        share_of_shard: 870_000,
        cpu_us_per_s,
    };
    vec![key(b"counter", 7, Some(713_000)), key(b"a\xff", 130, None)]
}

#[test]
fn a_key_that_is_too_much_for_a_shard_is_named_with_what_helps() {
    let report = HotKeysReport {
        missing: Vec::new(),
        keys: hot_keys(),
    };
    let expected = "\
PARTITION  SLOTS  NODE  SHARD  CPU 1S  1M  10M  OPS/S  TRAFFIC/S  BYTES

OPS/S  OF SHARD  CPU 1M  NODE    SHARD  DB  KEY
71300     87.0%   71.3%  athens      1   2  counter
   50     87.0%       -  athens      1   2  a\\xff... (128 more bytes)

counter (database 2) alone takes 71.3% of a CPU at shard 1 of athens: no move cures that. Have clients cache it (CLIENT TRACKING), or split it into several keys
";
    assert_eq!(hot(&[], Some(&report)), expected);
}

#[test]
fn load_shows_shards_and_what_is_not_idle() {
    let expected = "\
NODE    SHARD  CPU 1S     1M    10M  OPS/S      IN/S    OUT/S
athens      0   73.2%  60.0%  10.0%   1200  35.2 KiB  5.9 KiB
athens      1       -      -      -      -         -        -

PARTITION  SLOTS       NODE    SHARD  CPU 1S     1M   10M  OPS/S  TRAFFIC/S    BYTES
        2  8192-12287  athens      0   70.0%  51.2%  9.0%   5120      900 B  3.0 MiB
        0  0-4095      athens      0       -   0.1%     -     10      900 B  3.0 MiB
        1  4096-8191   -           -       -      -     -      -          -        -

1 partition idle
";
    assert_eq!(load(&load_report()), expected);
}
