//! INFO's numbers, from what the shards publish and what the operating system says of the process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ephesus_wal::Durability;
use ephesus_wire::ShardId;

use super::stats::{CommandStats, Counter, DatabaseStats, ShardStats};
use super::timing::Times;
use crate::command::info::{self, InfoSnapshot};
use crate::command::spec::Spec;
use crate::command::spec::commands;
use crate::node::{NodeShared, process};

/// The counters of the node, or of one of its shards.
#[must_use]
pub fn covered(node: &NodeShared, shard: Option<ShardId>) -> Vec<&ShardStats> {
    match shard {
        None => node.stats.iter().collect(),
        Some(shard) => vec![&node.stats[shard]],
    }
}

fn scripts(node: &NodeShared, script_state: u64, function_state: u64) -> info::ScriptsInfo {
    let libraries = node.functions.newest();
    let (scripts, script_bytes) = node.scripts.size();
    let (library_count, functions) = libraries.counts();
    info::ScriptsInfo {
        state: script_state,
        scripts: scripts as u64,
        script_bytes: script_bytes as u64,
        function_state,
        libraries: library_count as u64,
        functions: functions as u64,
        library_bytes: libraries.held_bytes() as u64,
    }
}

/// The state of the node, or of one of its shards.
#[must_use]
pub fn take(node: &NodeShared, shard: Option<ShardId>) -> InfoSnapshot {
    let covered = covered(node, shard);
    let sum = |of: fn(&ShardStats) -> &Counter| covered.iter().map(|stats| of(stats).get()).sum();
    let most = |of: fn(&ShardStats) -> &Counter| {
        covered
            .iter()
            .map(|stats| of(stats).get())
            .max()
            .unwrap_or(0)
    };
    let settings = &node.settings;
    let calls = |spec: &Spec| -> u64 {
        covered
            .iter()
            .map(|stats| stats.of(spec.cmd).calls.get())
            .sum()
    };
    let commands: u64 = sum(|s| &s.commands);
    let client_bytes: u64 = sum(|s| &s.client_bytes);
    let (script_state, function_state): (u64, u64) =
        (sum(|s| &s.script_bytes), sum(|s| &s.function_bytes));
    let uptime = node.started.elapsed();
    let written: u64 = all_specs().filter(|spec| spec.is_write()).map(calls).sum();
    let (user, system) = process::cpu_seconds();
    let exchanged = |count: &AtomicU64| count.load(Ordering::Relaxed);
    InfoSnapshot {
        server: info::ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            os: process::os(),
            process_id: std::process::id(),
            run_id: node.run_id.clone(),
            tcp_port: shard.map_or(settings.listen.port(), |shard| node.direct_port(shard)),
            time_usec: node.time.usec(),
            clock_ahead_ms: node.time.ahead_ms(),
            uptime_seconds: uptime.as_secs(),
            executable: process::executable(),
            config_file: String::new(),
            node_id: node.id.to_string(),
            node_name: settings.name.clone(),
            shards: u32::from(node.shards()),
        },
        clients: info::ClientsInfo {
            connected: sum(|s| &s.connections),
            max: (settings.max_clients * covered.len()) as u64,
            largest_input_buffer: most(|s| &s.input_buffer_max),
            largest_output_buffer: most(|s| &s.output_buffer_max),
            memory: client_bytes,
            memory_max: settings.max_client_memory,
            tracking: sum(|s| &s.tracking_clients),
        },
        memory: info::MemoryInfo {
            used: sum(|s| &s.memory_bytes) + client_bytes + script_state + function_state,
            used_peak: sum(|s| &s.memory_bytes_max),
            dataset: sum(|s| &s.data_bytes),
            resident: process::resident_bytes(),
            anonymous: process::anonymous_bytes(),
            startup: node.startup_bytes.get(),
            counted: node.startup_bytes.get() + node.counted_bytes(),
            max: node.live.max_memory(),
            system_total: process::system_memory_bytes(),
        },
        scripts: scripts(node, script_state, function_state),
        persistence: info::PersistenceInfo {
            loading: false,
            durability: match settings.durability {
                Durability::Strict => info::Durability::Strict,
                Durability::Relaxed => info::Durability::Relaxed,
            },
            wal_bytes: sum(|s| &s.wal_bytes),
            wal_budget: settings.wal_budget,
            wal_segments: sum(|s| &s.wal_segments),
            wal_bytes_written: sum(|s| &s.wal_bytes_written),
            wal_user_bytes: sum(|s| &s.wal_user_bytes),
            wal_appended_lsn: sum(|s| &s.wal_appended),
            wal_committed_lsn: sum(|s| &s.wal_committed),
            wal_groups: sum(|s| &s.wal_groups),
            wal_full: sum(|s| &s.wal_full),
            wal_sync_p50_usec: most(|s| &s.wal_sync_p50_usec),
            wal_sync_p99_usec: most(|s| &s.wal_sync_p99_usec),
            images_written: sum(|s| &s.images_written),
            image_in_progress: sum(|s| &s.image_in_progress) > 0u64,
            image_last_time: most(|s| &s.image_last_time_s),
            changes_since_image: sum(|s| &s.changes_since_image),
            disk_full: node.disk.is_full(),
            disk_free_bytes: node.disk.free_bytes(),
            disk_floor_bytes: node.disk.floor_bytes(),
        },
        stats: info::StatsInfo {
            connections_received: sum(|s| &s.connections_received),
            connections_rejected: sum(|s| &s.connections_rejected),
            http_closed: sum(|s| &s.http_closed),
            tls_refused: sum(|s| &s.tls_refused),
            evicted_clients: sum(|s| &s.evicted_clients),
            peer_links_opened: node.peer_links.opened(),
            peer_links_refused: node.peer_links.refused(),
            migrations_outgoing: sum(|s| &s.migrations_outgoing),
            migrations_incoming: sum(|s| &s.migrations_incoming),
            migrations_wait: sum(|s| &s.migrations_wait) > 0u64,
            held_commands: sum(|s| &s.held_commands),
            commands_processed: commands,
            ops_per_second: sum(|s| &s.ops_per_second),
            net_input_bytes: sum(|s| &s.net_input_bytes),
            net_output_bytes: sum(|s| &s.net_output_bytes),
            input_kib_per_second: sum(|s| &s.net_input_per_second) as f64 / 1024.0,
            output_kib_per_second: sum(|s| &s.net_output_per_second) as f64 / 1024.0,
            expired_keys: sum(|s| &s.expired),
            keyspace_hits: sum(|s| &s.hits),
            keyspace_misses: sum(|s| &s.misses),
            error_replies: sum(|s| &s.error_replies),
            denied: info::DeniedInfo {
                auth: sum(|s| &s.denied_auth),
                command: sum(|s| &s.denied_command),
                key: sum(|s| &s.denied_key),
                channel: sum(|s| &s.denied_channel),
            },
            pubsub_channels: sum(|s| &s.subscribed_channels),
            pubsub_patterns: sum(|s| &s.subscribed_patterns),
            pubsub_messages_sent: exchanged(&node.exchange.counts.sent),
            pubsub_messages_received: exchanged(&node.exchange.counts.received),
            pubsub_messages_dropped: exchanged(&node.exchange.counts.dropped),
            tracked_keys: sum(|s| &s.tracked_keys),
            tracked_items: sum(|s| &s.tracked_items),
            tracked_prefixes: node.prefixes.newest().len() as u64,
            reads_processed: commands.saturating_sub(written),
            writes_processed: written,
        },
        cpu: info::CpuInfo { system, user },
        commands: command_stats(&covered, node.live.tracks_latency()),
        errors: error_stats(&covered),
        keyspace: keyspace(&covered),
    }
}

/// The databases that have keys, ascending.
fn keyspace(covered: &[&ShardStats]) -> Vec<info::DatabaseInfo> {
    let all = |of: fn(&DatabaseStats) -> &Counter, number: usize| -> u64 {
        let shards = covered
            .iter()
            .filter_map(|stats| stats.databases.get(number));
        shards.map(|database| of(database).get()).sum()
    };
    let others = (1..=u8::MAX).map(|number| info::DatabaseInfo {
        number,
        keys: all(|database| &database.keys, number.into()),
        expires: all(|database| &database.expires, number.into()),
        average_ttl_ms: average_ttl_ms(covered, number.into(), |stats| {
            let database = stats.databases.get(usize::from(number));
            database.map_or(0, |database| database.expires.get())
        }),
    });
    let mut databases: Vec<_> = others.filter(|database| database.keys > 0).collect();
    let sum = |of: fn(&ShardStats) -> &Counter| -> u64 {
        covered.iter().map(|stats| of(stats).get()).sum()
    };
    let elsewhere = |of: fn(&info::DatabaseInfo) -> u64| databases.iter().map(of).sum();
    let first = info::DatabaseInfo {
        number: 0,
        keys: sum(|stats| &stats.keys).saturating_sub(elsewhere(|other| other.keys)),
        expires: sum(|stats| &stats.expires).saturating_sub(elsewhere(|other| other.expires)),
        average_ttl_ms: average_ttl_ms(covered, 0, |stats| {
            let others = stats.databases.iter().map(|other| other.expires.get());
            stats.expires.get().saturating_sub(others.sum())
        }),
    };
    if first.keys > 0 {
        databases.insert(0, first);
    }
    databases
}

/// The average of what shards have for a database, by how many of its keys expire in each.
fn average_ttl_ms(
    covered: &[&ShardStats],
    number: usize,
    expires: impl Fn(&ShardStats) -> u64,
) -> u64 {
    let (mut sum, mut keys) = (0u128, 0);
    for stats in covered {
        let (weight, average) = (expires(stats), stats.databases.get(number));
        let average = average.map_or(0, |database| database.average_ttl_ms.get());
        sum += u128::from(average) * u128::from(weight);
        keys += u128::from(weight);
    }
    u64::try_from(sum.checked_div(keys).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// What commands have done that were called, or refused.
fn command_stats(covered: &[&ShardStats], tracks_latency: bool) -> Vec<info::CommandStat> {
    let specs = commands().iter().flat_map(Spec::all);
    let stats = specs.filter_map(|spec| {
        let sum = |of: fn(&CommandStats) -> &Counter| -> u64 {
            let shards = covered.iter().map(|stats| of(stats.of(spec.cmd)).get());
            shards.sum()
        };
        let stat = info::CommandStat {
            name: spec.name,
            calls: sum(|stats| &stats.calls),
            usec: sum(|stats| &stats.nanos) / 1000,
            rejected_calls: sum(|stats| &stats.rejected),
            failed_calls: sum(|stats| &stats.failed),
            latency: tracks_latency.then(|| latency(covered, spec)).flatten(),
        };
        (stat.calls + stat.rejected_calls + stat.failed_calls > 0).then_some(stat)
    });
    stats.collect()
}

/// Times of a command on these shards.
pub fn times(covered: &[&ShardStats], spec: &Spec) -> Times {
    Times::of(covered.iter().map(|stats| &stats.of(spec.cmd).times))
}

fn latency(covered: &[&ShardStats], spec: &Spec) -> Option<info::LatencyStat> {
    let times = times(covered, spec);
    (times.count() > 0).then(|| info::LatencyStat {
        p50_usec: times.quantile_usec(0.5),
        p99_usec: times.quantile_usec(0.99),
        p999_usec: times.quantile_usec(0.999),
    })
}

fn error_stats(covered: &[&ShardStats]) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::<&str, u64>::new();
    for (code, count) in covered.iter().flat_map(|stats| stats.errors()) {
        *sums.entry(code).or_default() += count;
    }
    let counted = sums.into_iter().filter(|(_, count)| *count > 0);
    counted
        .map(|(code, count)| (code.to_owned(), count))
        .collect()
}

fn all_specs() -> impl Iterator<Item = &'static Spec> {
    commands().iter()
}
