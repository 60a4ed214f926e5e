use super::*;

fn snapshot() -> InfoSnapshot {
    InfoSnapshot {
        server: ServerInfo {
            tcp_port: 7379,
            ..ServerInfo::default()
        },
        memory: MemoryInfo {
            used: 2_480_320,
            resident: 13_623_296,
            anonymous: 13_623_296,
            counted: 2_480_320,
            used_peak: 2_480_320,
            dataset: 1_240_160,
            ..MemoryInfo::default()
        },
        commands: vec![
            CommandStat {
                name: "config|get",
                calls: 17,
                usec: 464,
                rejected_calls: 1,
                failed_calls: 2,
                latency: Some(LatencyStat {
                    p50_usec: 5.023,
                    p99_usec: 294.911,
                    p999_usec: 294.911,
                }),
            },
            CommandStat {
                name: "rename",
                rejected_calls: 1,
                ..CommandStat::default()
            },
        ],
        errors: vec![("ERR".to_owned(), 53), ("MOVED".to_owned(), 2)],
        keyspace: vec![
            DatabaseInfo {
                number: 0,
                keys: 5,
                expires: 1,
                average_ttl_ms: 900,
            },
            DatabaseInfo {
                number: 9,
                keys: 1,
                expires: 0,
                average_ttl_ms: 0,
            },
        ],
        ..InfoSnapshot::default()
    }
}

fn text(request: &str) -> String {
    let args: Vec<&str> = request.split(' ').collect();
    snapshot().text(SectionSet::parse(&args[..]))
}

fn titles(request: &str) -> String {
    let text = text(request);
    let titles: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .collect();
    titles.join(" ")
}

#[test]
fn sections_are_chosen_as_in_redis() {
    let default = "Server Clients Memory Persistence Stats Replication CPU Modules Errorstats Cluster \
        Keyspace";
    let all = "Server Clients Memory Persistence Stats Replication CPU Modules Commandstats Errorstats \
        Latencystats Cluster Keyspace";
    assert_eq!(titles("info"), default);
    assert_eq!(titles("info default"), default);
    assert_eq!(titles("info ALL"), all);
    assert_eq!(titles("info everything"), all);
    assert_eq!(titles("info default commandstats latencystats"), all);
    assert_eq!(titles("info keyspace Server"), "Server Keyspace");
    assert_eq!(text("info foo"), "");
    assert_eq!(titles("info foo cluster"), "Cluster");
    let chosen = SectionSet::parse(&["info", "CPU"][..]);
    assert!(chosen.has("cpu") && !chosen.has("latencystats"));
}

#[test]
fn the_text_is_framed_as_redis_frames_it() {
    let sections = SectionSet::parse(&["info", "keyspace", "cluster"][..]);
    let expected = "# Cluster\r\ncluster_enabled:1\r\n\r\n# Keyspace\r\ndb0:keys=5,expires=1,avg_ttl=900\r\ndb9:keys=1,expires=0,avg_ttl=0\r\n";
    let mut out = Vec::new();
    snapshot().write(&mut out, Protocol::Resp2, sections);
    assert_eq!(
        String::from_utf8_lossy(&out),
        format!("${}\r\n{expected}\r\n", expected.len())
    );
    out.clear();
    snapshot().write(&mut out, Protocol::Resp3, sections);
    assert_eq!(
        String::from_utf8_lossy(&out),
        format!("={}\r\ntxt:{expected}\r\n", expected.len() + 4)
    );
}

#[test]
fn statistics_have_the_form_of_redis() {
    assert_eq!(
        text("info commandstats errorstats latencystats"),
        "# Commandstats\r\n\
         cmdstat_config|get:calls=17,usec=464,usec_per_call=27.29,rejected_calls=1,failed_calls=2\r\n\
         cmdstat_rename:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0\r\n\r\n\
         # Errorstats\r\nerrorstat_ERR:count=53\r\nerrorstat_MOVED:count=2\r\n\r\n\
         # Latencystats\r\n\
         latency_percentiles_usec_config|get:p50=5.023,p99=294.911,p99.9=294.911\r\n"
    );
}

/// Fields of a redis-server 7.0.15 that dashboards, exporters and client libraries read.
const READ_BY_CLIENTS: &str = "redis_version redis_mode os arch_bits process_id run_id tcp_port \
    uptime_in_seconds uptime_in_days connected_clients maxclients blocked_clients used_memory \
    used_memory_human used_memory_rss used_memory_peak maxmemory maxmemory_human maxmemory_policy \
    mem_fragmentation_ratio loading rdb_changes_since_last_save rdb_bgsave_in_progress \
    rdb_last_save_time rdb_last_bgsave_status aof_enabled aof_rewrite_in_progress \
    aof_last_write_status total_connections_received total_commands_processed \
    instantaneous_ops_per_sec total_net_input_bytes total_net_output_bytes \
    instantaneous_input_kbps instantaneous_output_kbps rejected_connections http_connections_closed expired_keys \
    evicted_keys keyspace_hits keyspace_misses pubsub_channels latest_fork_usec role \
    connected_slaves master_replid master_repl_offset used_cpu_sys used_cpu_user \
    used_memory_lua used_memory_vm_eval used_memory_scripts_eval number_of_cached_scripts number_of_functions \
    number_of_libraries used_memory_vm_functions used_memory_vm_total used_memory_functions used_memory_scripts \
    cluster_enabled db0";

/// Fields of our own.
const OWN: &str = "ephesus_version clock_ahead_ms durability wal_bytes wal_bytes_written wal_user_bytes wal_budget \
    wal_segments wal_appended_lsn wal_committed_lsn wal_groups wal_full wal_sync_p50_usec wal_sync_p99_usec \
    images_written image_in_progress disk_full disk_free_bytes disk_floor_bytes migrations_incoming migrations_wait_for_images";

#[test]
fn every_expected_field_is_there_once() {
    let all = text("info everything");
    for field in READ_BY_CLIENTS
        .split_whitespace()
        .chain(OWN.split_whitespace())
    {
        let found = all
            .lines()
            .filter(|line| line.split(':').next() == Some(field))
            .count();
        assert_eq!(found, 1, "{field}");
    }
}

#[test]
fn every_line_is_a_title_a_field_or_empty_and_ends_with_crlf() {
    let all = text("info everything");
    assert!(all.ends_with("\r\n"));
    for line in all.split_terminator("\r\n") {
        assert!(
            line.is_empty() || line.starts_with("# ") || line.contains(':'),
            "{line}"
        );
        assert!(!line.contains(['\r', '\n']));
    }
}

#[test]
fn values_a_client_acts_on() {
    let all = text("info everything");
    for line in [
        "redis_version:7.2.4",
        "redis_mode:cluster",
        "tcp_port:7379",
        "used_memory_human:2.37M",
        "used_memory_rss_human:12.99M",
        "used_memory_dataset_perc:50.00%",
        "mem_fragmentation_ratio:5.49",
        "maxmemory_policy:noeviction",
        "loading:0",
        "durability:strict",
        "role:master",
        "connected_slaves:0",
        "master_replid2:0000000000000000000000000000000000000000",
        "evicted_keys:0",
        "cluster_enabled:1",
    ] {
        assert!(all.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn an_empty_database_has_no_line() {
    let empty = InfoSnapshot::default();
    let sections = SectionSet::parse(&["info", "keyspace"][..]);
    assert_eq!(empty.text(sections), "# Keyspace\r\n");
}

#[test]
fn sizes_are_abbreviated_as_redis_does() {
    for (bytes, text) in [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.00K"),
        (1536, "1.50K"),
        (2_480_320, "2.37M"),
        (25_274_793_984, "23.54G"),
        (1 << 40, "1.00T"),
        (1 << 52, "4096.00T"),
    ] {
        assert_eq!(Human(bytes).to_string(), text);
    }
}
