//! The text of INFO, from a plain snapshot.

use std::fmt::Write;

use ephesus_wire::resp::reply::{self, Protocol};

use super::parse::ArgList;

/// The Redis whose behaviour and field names clients may expect.
pub const REDIS_VERSION: &str = "7.2.4";

/// Everything INFO reports, taken by the caller at one moment. Sizes are bytes.
#[derive(Clone, Debug, Default)]
pub struct InfoSnapshot {
    pub server: ServerInfo,
    pub clients: ClientsInfo,
    pub memory: MemoryInfo,
    pub scripts: ScriptsInfo,
    pub persistence: PersistenceInfo,
    pub stats: StatsInfo,
    pub cpu: CpuInfo,
    /// Commands that were called at least once.
    pub commands: Vec<CommandStat>,
    /// Error replies by code, such as `ERR`.
    pub errors: Vec<(String, u64)>,
    /// The databases that have keys.
    pub keyspace: Vec<DatabaseInfo>,
}

#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    pub version: String,
    /// Kernel name, release and machine.
    pub os: String,
    pub process_id: u32,
    /// 40 hex digits, new for every start.
    pub run_id: String,
    pub tcp_port: u16,
    /// The node's time, microseconds since the Unix epoch.
    pub time_usec: u64,
    /// How far that is ahead of the machine's clock.
    pub clock_ahead_ms: u64,
    pub uptime_seconds: u64,
    pub executable: String,
    pub config_file: String,
    pub node_id: String,
    pub node_name: String,
    pub shards: u32,
}

#[derive(Clone, Debug, Default)]
pub struct ClientsInfo {
    pub connected: u64,
    pub max: u64,
    pub largest_input_buffer: u64,
    pub largest_output_buffer: u64,
    /// What all clients together make the node hold, and what it may be.
    pub memory: u64,
    pub memory_max: u64,
    /// Those that may cache keys and are told of changes.
    pub tracking: u64,
}

#[derive(Clone, Debug, Default)]
pub struct MemoryInfo {
    pub used: u64,
    pub used_peak: u64,
    /// Part of `used` that is keys and values.
    pub dataset: u64,
    pub resident: u64,
    /// Part of `resident` that no file is behind.
    pub anonymous: u64,
    /// Part of `anonymous` that is neither tables nor clients: buffers, caches and stacks, the least that it was.
    pub startup: u64,
    /// What is known of `anonymous`: these, and tables and clients of all shards.
    pub counted: u64,
    /// 0 means no limit.
    pub max: u64,
    pub system_total: u64,
}

/// What is there of scripts and of functions; the texts are the node's.
#[derive(Clone, Debug, Default)]
pub struct ScriptsInfo {
    /// Memory of the states in which scripts are executed.
    pub state: u64,
    pub scripts: u64,
    pub script_bytes: u64,
    /// Memory of the states in which functions are executed.
    pub function_state: u64,
    pub libraries: u64,
    pub functions: u64,
    pub library_bytes: u64,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once it is on the device.
    #[default]
    Strict,
    /// Once it survives the process; the device follows within a second.
    Relaxed,
}

#[derive(Clone, Debug, Default)]
pub struct PersistenceInfo {
    pub loading: bool,
    pub durability: Durability,
    /// Size of the log's segments on disk, and what they may take.
    pub wal_bytes: u64,
    pub wal_budget: u64,
    pub wal_segments: u64,
    /// Bytes written since the start: to the device, and of them records.
    pub wal_bytes_written: u64,
    pub wal_user_bytes: u64,
    pub wal_appended_lsn: u64,
    pub wal_committed_lsn: u64,
    pub wal_groups: u64,
    /// How often the log has used up its budget, so that writes had to wait.
    pub wal_full: u64,
    pub wal_sync_p50_usec: u64,
    pub wal_sync_p99_usec: u64,
    pub images_written: u64,
    pub image_in_progress: bool,
    /// Unix time in seconds of the last complete image, or of the start.
    pub image_last_time: u64,
    pub changes_since_image: u64,
    /// Whether writes are refused for lack of disk space.
    pub disk_full: bool,
    pub disk_free_bytes: u64,
    pub disk_floor_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct StatsInfo {
    pub connections_received: u64,
    pub connections_rejected: u64,
    /// Connections that were closed because they spoke HTTP.
    pub http_closed: u64,
    /// Connections of TLS ports that were closed for what came over them.
    pub tls_refused: u64,
    /// Connections that were closed for what all clients hold.
    pub evicted_clients: u64,
    /// At the port for other nodes.
    pub peer_links_opened: u64,
    pub peer_links_refused: u64,
    /// Partitions that leave and come.
    pub migrations_outgoing: u64,
    pub migrations_incoming: u64,
    /// Whether some of these wait for images to make room in the log.
    pub migrations_wait: bool,
    /// Commands that wait for the decision about their partition.
    pub held_commands: u64,
    pub commands_processed: u64,
    pub ops_per_second: u64,
    pub net_input_bytes: u64,
    pub net_output_bytes: u64,
    pub input_kib_per_second: f64,
    pub output_kib_per_second: f64,
    pub expired_keys: u64,
    pub keyspace_hits: u64,
    pub keyspace_misses: u64,
    pub error_replies: u64,
    pub denied: DeniedInfo,
    /// Of each shard: a channel with subscribers on two of them counts twice.
    pub pubsub_channels: u64,
    pub pubsub_patterns: u64,
    /// Of PUBLISH, to other nodes and from them; those that were dropped on the way.
    pub pubsub_messages_sent: u64,
    pub pubsub_messages_received: u64,
    pub pubsub_messages_dropped: u64,
    /// Keys that clients may have cached, pairs of a key and a client, and prefixes of clients that are told of all keys.
    pub tracked_keys: u64,
    pub tracked_items: u64,
    pub tracked_prefixes: u64,
    pub reads_processed: u64,
    pub writes_processed: u64,
}

/// What users were refused, by what it was.
#[derive(Clone, Debug, Default)]
pub struct DeniedInfo {
    pub auth: u64,
    pub command: u64,
    pub key: u64,
    pub channel: u64,
}

/// Processor time in seconds.
#[derive(Clone, Debug, Default)]
pub struct CpuInfo {
    pub system: f64,
    pub user: f64,
}

/// Counters of one command.
#[derive(Clone, Debug, Default)]
pub struct CommandStat {
    /// Full name, such as `config|get`.
    pub name: &'static str,
    pub calls: u64,
    pub usec: u64,
    pub rejected_calls: u64,
    pub failed_calls: u64,
    pub latency: Option<LatencyStat>,
}

/// Percentiles of one command's latency in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencyStat {
    pub p50_usec: f64,
    pub p99_usec: f64,
    pub p999_usec: f64,
}

/// Keys of one database.
#[derive(Clone, Debug, Default)]
pub struct DatabaseInfo {
    pub number: u8,
    pub keys: u64,
    /// Keys that have an expiry.
    pub expires: u64,
    /// How long these have to live on average, about, ms.
    pub average_ttl_ms: u64,
}

/// The sections in the order of the reply; names as clients ask for them.
const SECTIONS: [(&str, Section); 13] = [
    ("server", InfoSnapshot::write_server),
    ("clients", InfoSnapshot::write_clients),
    ("memory", InfoSnapshot::write_memory),
    ("persistence", InfoSnapshot::write_persistence),
    ("stats", InfoSnapshot::write_stats),
    ("replication", InfoSnapshot::write_replication),
    ("cpu", InfoSnapshot::write_cpu),
    ("modules", InfoSnapshot::write_modules),
    ("commandstats", InfoSnapshot::write_commandstats),
    ("errorstats", InfoSnapshot::write_errorstats),
    ("latencystats", InfoSnapshot::write_latencystats),
    ("cluster", InfoSnapshot::write_cluster),
    ("keyspace", InfoSnapshot::write_keyspace),
];

/// Sections only ALL, EVERYTHING or their own name bring up.
const NOT_BY_DEFAULT: [&str; 2] = ["commandstats", "latencystats"];

type Section = fn(&InfoSnapshot, &mut Text);

/// The sections a request asks for, as bits of [`SECTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionSet(u16);

impl SectionSet {
    pub const ALL: SectionSet = SectionSet((1 << SECTIONS.len()) - 1);

    /// What INFO without arguments shows.
    #[must_use]
    pub fn default_sections() -> SectionSet {
        let mut set = SectionSet::ALL;
        for name in NOT_BY_DEFAULT {
            set.0 &= !SectionSet::named(name.as_bytes()).0;
        }
        set
    }

    /// Reads `INFO [section ...]`; unknown names bring nothing, as in Redis.
    #[must_use]
    pub fn parse<A: ArgList + ?Sized>(args: &A) -> SectionSet {
        if args.len() < 2 {
            return SectionSet::default_sections();
        }
        (1..args.len()).fold(SectionSet(0), |set, index| {
            SectionSet(set.0 | SectionSet::named(args.arg(index)).0)
        })
    }

    /// Whether the section of that lower-case name is asked for.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        self.0 & SectionSet::named(name.as_bytes()).0 != 0
    }

    fn named(name: &[u8]) -> SectionSet {
        if name.eq_ignore_ascii_case(b"all") || name.eq_ignore_ascii_case(b"everything") {
            return SectionSet::ALL;
        }
        if name.eq_ignore_ascii_case(b"default") {
            return SectionSet::default_sections();
        }
        let known = SECTIONS
            .iter()
            .position(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        SectionSet(known.map_or(0, |bit| 1 << bit))
    }
}

impl InfoSnapshot {
    /// Appends the reply to INFO with the given sections.
    pub fn write(&self, out: &mut Vec<u8>, protocol: Protocol, sections: SectionSet) {
        reply::verbatim(out, protocol, "txt", self.text(sections).as_bytes());
    }

    /// Sections of `name:value` lines under `# Title`, an empty line between sections, CRLF.
    #[must_use]
    pub fn text(&self, sections: SectionSet) -> String {
        let mut text = Text(String::new());
        for (bit, (_, write)) in SECTIONS.iter().enumerate() {
            if sections.0 & (1 << bit) != 0 {
                write(self, &mut text);
            }
        }
        text.0
    }

    fn write_server(&self, text: &mut Text) {
        let server = &self.server;
        text.title("Server");
        text.line("redis_version", REDIS_VERSION);
        text.line("ephesus_version", &server.version);
        text.line("redis_git_sha1", "00000000");
        text.line("redis_git_dirty", 0);
        text.line("redis_mode", "cluster");
        text.line("os", &server.os);
        text.line("arch_bits", usize::BITS);
        text.line("multiplexing_api", "io_uring");
        text.line("process_id", server.process_id);
        text.line("process_supervised", "no");
        text.line("run_id", &server.run_id);
        text.line("tcp_port", server.tcp_port);
        text.line("server_time_usec", server.time_usec);
        text.line("clock_ahead_ms", server.clock_ahead_ms);
        text.line("uptime_in_seconds", server.uptime_seconds);
        text.line("uptime_in_days", server.uptime_seconds / 86_400);
        text.line("executable", &server.executable);
        text.line("config_file", &server.config_file);
        text.line("node_id", &server.node_id);
        text.line("node_name", &server.node_name);
        text.line("shards", server.shards);
    }

    fn write_clients(&self, text: &mut Text) {
        let clients = &self.clients;
        text.title("Clients");
        text.line("connected_clients", clients.connected);
        text.line("cluster_connections", 0);
        text.line("maxclients", clients.max);
        text.line(
            "client_recent_max_input_buffer",
            clients.largest_input_buffer,
        );
        text.line(
            "client_recent_max_output_buffer",
            clients.largest_output_buffer,
        );
        text.line("client_memory", clients.memory);
        text.line("blocked_clients", 0);
        text.line("tracking_clients", clients.tracking);
        text.line("clients_in_timeout_table", 0);
    }

    fn write_memory(&self, text: &mut Text) {
        let memory = &self.memory;
        text.title("Memory");
        text.bytes("used_memory", memory.used);
        text.bytes("used_memory_rss", memory.resident);
        text.bytes("used_memory_peak", memory.used_peak);
        text.line(
            "used_memory_peak_perc",
            Percent(memory.used, memory.used_peak),
        );
        text.line(
            "used_memory_overhead",
            memory.used.saturating_sub(memory.dataset),
        );
        text.line("used_memory_dataset", memory.dataset);
        text.line(
            "used_memory_dataset_perc",
            Percent(memory.dataset, memory.used),
        );
        text.bytes("total_system_memory", memory.system_total);
        self.write_scripts(text);
        text.bytes("maxmemory", memory.max);
        text.line("maxmemory_policy", "noeviction");
        text.line("mem_clients_normal", self.clients.memory);
        text.line("maxmemory_clients", self.clients.memory_max);
        text.line("used_memory_startup", memory.startup);
        let fragmentation = memory.anonymous as f64 / memory.counted.max(1) as f64;
        text.line(
            "mem_fragmentation_ratio",
            format_args!("{fragmentation:.2}"),
        );
        let excess = i128::from(memory.anonymous) - i128::from(memory.counted);
        text.line("mem_fragmentation_bytes", excess);
        text.line("mem_allocator", "mimalloc");
        text.line("active_defrag_running", 0);
        text.line("lazyfree_pending_objects", 0);
    }

    fn write_scripts(&self, text: &mut Text) {
        let scripts = &self.scripts;
        text.bytes("used_memory_lua", scripts.state);
        text.line("used_memory_vm_eval", scripts.state);
        text.line("used_memory_scripts_eval", scripts.script_bytes);
        text.line("number_of_cached_scripts", scripts.scripts);
        text.line("number_of_functions", scripts.functions);
        text.line("number_of_libraries", scripts.libraries);
        text.line("used_memory_vm_functions", scripts.function_state);
        text.bytes(
            "used_memory_vm_total",
            scripts.state + scripts.function_state,
        );
        text.line("used_memory_functions", scripts.library_bytes);
        let all_bytes = scripts.script_bytes + scripts.library_bytes;
        text.bytes("used_memory_scripts", all_bytes);
    }

    /// The log is reported as the append-only file and the last image as the RDB file, so that
    /// dashboards made for Redis show what they mean.
    fn write_persistence(&self, text: &mut Text) {
        let persistence = &self.persistence;
        let imaging = u8::from(persistence.image_in_progress);
        text.title("Persistence");
        text.line("loading", u8::from(persistence.loading));
        text.line("async_loading", 0);
        text.line(
            "rdb_changes_since_last_save",
            persistence.changes_since_image,
        );
        text.line("rdb_bgsave_in_progress", imaging);
        text.line("rdb_last_save_time", persistence.image_last_time);
        text.line("rdb_last_bgsave_status", "ok");
        text.line("rdb_last_bgsave_time_sec", -1);
        text.line("rdb_current_bgsave_time_sec", -1);
        text.line("rdb_saves", persistence.images_written);
        text.line("aof_enabled", 1);
        text.line("aof_rewrite_in_progress", 0);
        text.line("aof_rewrite_scheduled", 0);
        text.line("aof_last_rewrite_time_sec", -1);
        text.line("aof_current_rewrite_time_sec", -1);
        text.line("aof_last_bgrewrite_status", "ok");
        text.line("aof_last_write_status", "ok");
        text.line("aof_current_size", persistence.wal_bytes);
        let durability = match persistence.durability {
            Durability::Strict => "strict",
            Durability::Relaxed => "relaxed",
        };
        text.line("durability", durability);
        text.line("wal_bytes", persistence.wal_bytes);
        text.line("wal_budget", persistence.wal_budget);
        text.line("wal_segments", persistence.wal_segments);
        text.line("wal_bytes_written", persistence.wal_bytes_written);
        text.line("wal_user_bytes", persistence.wal_user_bytes);
        text.line("wal_appended_lsn", persistence.wal_appended_lsn);
        text.line("wal_committed_lsn", persistence.wal_committed_lsn);
        text.line("wal_groups", persistence.wal_groups);
        text.line("wal_full", persistence.wal_full);
        text.line("wal_sync_p50_usec", persistence.wal_sync_p50_usec);
        text.line("wal_sync_p99_usec", persistence.wal_sync_p99_usec);
        text.line("images_written", persistence.images_written);
        text.line("image_in_progress", imaging);
        text.line("disk_full", u8::from(persistence.disk_full));
        text.line("disk_free_bytes", persistence.disk_free_bytes);
        text.line("disk_floor_bytes", persistence.disk_floor_bytes);
    }

    fn write_stats(&self, text: &mut Text) {
        let stats = &self.stats;
        text.title("Stats");
        text.line("total_connections_received", stats.connections_received);
        text.line("total_commands_processed", stats.commands_processed);
        text.line("instantaneous_ops_per_sec", stats.ops_per_second);
        text.line("total_net_input_bytes", stats.net_input_bytes);
        text.line("total_net_output_bytes", stats.net_output_bytes);
        let (input, output) = (stats.input_kib_per_second, stats.output_kib_per_second);
        text.line("instantaneous_input_kbps", format_args!("{input:.2}"));
        text.line("instantaneous_output_kbps", format_args!("{output:.2}"));
        text.line("rejected_connections", stats.connections_rejected);
        text.line("http_connections_closed", stats.http_closed);
        text.line("tls_connections_refused", stats.tls_refused);
        text.line("peer_links_opened", stats.peer_links_opened);
        text.line("peer_links_refused", stats.peer_links_refused);
        text.line("migrations_outgoing", stats.migrations_outgoing);
        text.line("migrations_incoming", stats.migrations_incoming);
        let waits = u8::from(stats.migrations_wait);
        text.line("migrations_wait_for_images", waits);
        text.line("held_commands", stats.held_commands);
        text.line("sync_full", 0);
        text.line("sync_partial_ok", 0);
        text.line("sync_partial_err", 0);
        text.line("expired_keys", stats.expired_keys);
        text.line("evicted_keys", 0);
        text.line("evicted_clients", stats.evicted_clients);
        text.line("keyspace_hits", stats.keyspace_hits);
        text.line("keyspace_misses", stats.keyspace_misses);
        text.line("pubsub_channels", stats.pubsub_channels);
        text.line("pubsub_patterns", stats.pubsub_patterns);
        text.line("pubsub_messages_sent", stats.pubsub_messages_sent);
        text.line("pubsub_messages_received", stats.pubsub_messages_received);
        text.line("pubsub_messages_dropped", stats.pubsub_messages_dropped);
        text.line("latest_fork_usec", 0);
        text.line("total_forks", 0);
        text.line("tracking_total_keys", stats.tracked_keys);
        text.line("tracking_total_items", stats.tracked_items);
        text.line("tracking_total_prefixes", stats.tracked_prefixes);
        text.line("total_error_replies", stats.error_replies);
        text.line("total_reads_processed", stats.reads_processed);
        text.line("total_writes_processed", stats.writes_processed);
        text.line("acl_access_denied_auth", stats.denied.auth);
        text.line("acl_access_denied_cmd", stats.denied.command);
        text.line("acl_access_denied_key", stats.denied.key);
        text.line("acl_access_denied_channel", stats.denied.channel);
    }

    fn write_replication(&self, text: &mut Text) {
        text.title("Replication");
        text.line("role", "master");
        text.line("connected_slaves", 0);
        text.line("master_failover_state", "no-failover");
        text.line("master_replid", &self.server.run_id);
        text.line("master_replid2", format_args!("{:040}", 0));
        text.line("master_repl_offset", 0);
        text.line("second_repl_offset", -1);
        text.line("repl_backlog_active", 0);
        text.line("repl_backlog_size", 0);
        text.line("repl_backlog_first_byte_offset", 0);
        text.line("repl_backlog_histlen", 0);
    }

    fn write_cpu(&self, text: &mut Text) {
        text.title("CPU");
        text.line("used_cpu_sys", format_args!("{:.6}", self.cpu.system));
        text.line("used_cpu_user", format_args!("{:.6}", self.cpu.user));
        text.line("used_cpu_sys_children", "0.000000");
        text.line("used_cpu_user_children", "0.000000");
    }

    fn write_modules(&self, text: &mut Text) {
        text.title("Modules");
    }

    fn write_commandstats(&self, text: &mut Text) {
        text.title("Commandstats");
        for stat in &self.commands {
            let per_call = if stat.calls == 0 {
                0.0
            } else {
                stat.usec as f64 / stat.calls as f64
            };
            text.line(
                format_args!("cmdstat_{}", stat.name),
                format_args!(
                    "calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                    stat.calls, stat.usec, stat.rejected_calls, stat.failed_calls
                ),
            );
        }
    }

    fn write_errorstats(&self, text: &mut Text) {
        text.title("Errorstats");
        for (code, count) in &self.errors {
            text.line(
                format_args!("errorstat_{code}"),
                format_args!("count={count}"),
            );
        }
    }

    fn write_latencystats(&self, text: &mut Text) {
        text.title("Latencystats");
        for stat in &self.commands {
            if let Some(LatencyStat {
                p50_usec,
                p99_usec,
                p999_usec,
            }) = stat.latency
            {
                text.line(
                    format_args!("latency_percentiles_usec_{}", stat.name),
                    format_args!("p50={p50_usec:.3},p99={p99_usec:.3},p99.9={p999_usec:.3}"),
                );
            }
        }
    }

    fn write_cluster(&self, text: &mut Text) {
        text.title("Cluster");
        text.line("cluster_enabled", 1);
    }

    fn write_keyspace(&self, text: &mut Text) {
        text.title("Keyspace");
        for database in &self.keyspace {
            let DatabaseInfo {
                number,
                keys,
                expires,
                average_ttl_ms,
            } = database;
            text.line(
                format!("db{number}"),
                format_args!("keys={keys},expires={expires},avg_ttl={average_ttl_ms}"),
            );
        }
    }
}

/// The growing text; writing to a String cannot fail.
struct Text(String);

impl Text {
    fn title(&mut self, title: &str) {
        let gap = if self.0.is_empty() { "" } else { "\r\n" };
        let _ = write!(self.0, "{gap}# {title}\r\n");
    }

    fn line(&mut self, name: impl std::fmt::Display, value: impl std::fmt::Display) {
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    /// A size, and the same for people under `name_human`.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.line(name, bytes);
        self.line(format_args!("{name}_human"), Human(bytes));
    }
}

/// Bytes as Redis abbreviates them: `512B`, `1.50K`, `2.37M`.
struct Human(u64);

impl std::fmt::Display for Human {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 < 1024 {
            return write!(f, "{}B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut units = ["K", "M", "G", "T"].into_iter();
        while value >= 1024.0 && units.len() > 1 {
            value /= 1024.0;
            units.next();
        }
        write!(f, "{value:.2}{}", units.next().unwrap_or("T"))
    }
}

/// A part of a whole, as `12.34%`.
struct Percent(u64, u64);

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2}%", self.0 as f64 * 100.0 / self.1.max(1) as f64)
    }
}

#[cfg(test)]
mod tests;
