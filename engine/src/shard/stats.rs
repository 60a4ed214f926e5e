//! What every shard publishes for INFO and CLUSTER replies: one writer, any reader, no locks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ephesus_wire::Database;

use super::timing::Histogram;
use crate::command::error::ClientError;
use crate::command::spec::Cmd;
use crate::keyspace::databases;
use crate::table::Totals;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one shard; only the shard itself writes them.
        #[derive(Debug)]
        pub struct ShardStats {
            $($(#[$doc])* pub $name: Counter,)*
            /// By command.
            commands_by: Box<[CommandStats]>,
            /// Error replies by the code that they begin with, in the order of [`ERROR_CODES`].
            errors_by: [Counter; ERROR_CODES.len()],
            /// Keys by database; those of database 0 are what the others leave of all.
            pub databases: Box<[DatabaseStats]>,
        }

        impl Default for ShardStats {
            fn default() -> ShardStats {
                ShardStats {
                    $($name: Counter::default(),)*
                    commands_by: (0..Cmd::COUNT).map(|_| CommandStats::default()).collect(),
                    errors_by: std::array::from_fn(|_| Counter::default()),
                    databases: (0..databases::MOST).map(|_| DatabaseStats::default()).collect(),
                }
            }
        }

        impl ShardStats {
            /// What one command has done.
            #[expect(clippy::indexing_slicing, reason = "there are as many as commands")]
            #[must_use]
            pub fn of(&self, cmd: Cmd) -> &CommandStats {
                &self.commands_by[cmd as usize]
            }

            /// Sets to 0 what CONFIG RESETSTAT does.
            pub fn reset(&self) {
                self.commands_by.iter().for_each(CommandStats::reset);
                let counted = [
                    &self.commands, &self.connections_received, &self.connections_rejected, &self.http_closed,
                    &self.tls_refused, &self.evicted_clients,
                    &self.net_input_bytes, &self.net_output_bytes, &self.error_replies,
                    &self.denied_auth, &self.denied_command, &self.denied_key, &self.denied_channel,
                ];
                let errors = self.errors_by.iter();
                counted.into_iter().chain(errors).for_each(|counter| counter.set(0));
            }
        }
    };
}

counters! {
    /// Keys of copies that are not served are counted as well.
    keys_held,
    connections, connections_received, connections_rejected, http_closed, tls_refused, evicted_clients, commands,
    net_input_bytes, net_output_bytes, error_replies,
    /// What users may not do, and wrong passwords.
    denied_auth, denied_command, denied_key, denied_channel,
    keys, expires, hits, misses, expired,
    /// Bytes of tables as the allocator handed them out.
    memory_bytes, memory_bytes_max, data_bytes, changes_since_image,
    /// Bytes of the states in which scripts and functions are executed.
    script_bytes, function_bytes,
    /// Bytes that clients make the shard hold, and the most that one of its connections does.
    client_bytes, client_bytes_largest,
    /// Over about the last second; written by the node's monitor.
    ops_per_second, net_input_per_second, net_output_per_second,
    /// What commands have used of partitions here, and the CPU time of the shard's thread, ns.
    load_ops, load_bytes_in, load_bytes_out, cpu_nanos,
    /// Bytes of live log segments' used parts.
    wal_bytes, wal_segments,
    /// Bytes written to the log, padding included.
    wal_bytes_written,
    /// Key and value bytes of all writes.
    wal_user_bytes, wal_groups, wal_full, wal_appended, wal_committed,
    /// Time from issue to completion of log writes, microseconds.
    wal_sync_p50_usec, wal_sync_p99_usec,
    /// Grows when copies begin or cease to be served, and when the routes follow.
    role_changes,
    /// Names that clients have subscribed to; of these channels, and patterns.
    subscriptions, subscribed_channels, subscribed_patterns,
    /// Clients that may cache keys, keys that some may have cached, and pairs of both.
    tracking_clients, tracked_keys, tracked_items,
    /// Partitions that leave and come, and commands that wait for a decision.
    migrations_outgoing, migrations_incoming, migrations_wait, held_commands,
    /// 1 while writes to this shard wait for its log.
    log_behind,
    /// 1 while images come before latency.
    images_urgent,
    /// What all images would take that may be written at once: of each store's the largest.
    image_bytes,
    /// 1 while images are written that a client has asked for.
    saving,
    /// 1 while there is no room for a log segment or for an image.
    lacks_room,
    images_written, image_in_progress, image_last_time_s, input_buffer_max, output_buffer_max,
}

/// Codes that errors are counted by.
pub const ERROR_CODES: [&str; 20] = [
    "ERR",
    "MOVED",
    "CROSSSLOT",
    "CLUSTERDOWN",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "NOPROTO",
    "BUSYKEY",
    "LOADING",
    "OOM",
    "MISCONF",
    "EXECABORT",
    "NOSCRIPT",
    "NOTBUSY",
    "READONLY",
    "WRONGTYPE",
    "TRYAGAIN",
    "IOERR",
    "NOREPLICAS",
];

/// What one command has done.
#[derive(Debug, Default)]
pub struct CommandStats {
    pub calls: Counter,
    /// Calls that were refused before they were executed, and those that were answered by an error.
    pub rejected: Counter,
    pub failed: Counter,
    pub nanos: Counter,
    pub times: Histogram,
}

impl CommandStats {
    /// So many calls took that long each.
    pub fn took(&self, nanos: u64, times: u64) {
        self.nanos.add(nanos * times);
        self.times.add(nanos, times);
    }

    fn reset(&self) {
        let counted = [&self.calls, &self.rejected, &self.failed, &self.nanos];
        counted.iter().for_each(|counter| counter.set(0));
        self.times.reset();
    }
}

impl ShardStats {
    /// Counts a call that was answered by an error.
    pub fn count_failure(&self, cmd: Cmd, error: &ClientError) {
        match error.is_rejection() {
            true => self.of(cmd).rejected.add(1),
            false => self.of(cmd).failed.add(1),
        }
    }

    /// Counts a call that was answered by where it has to go instead.
    pub fn count_redirection(&self, cmd: Cmd) {
        self.count_error("MOVED");
        self.of(cmd).rejected.add(1);
    }

    /// Counts an error reply that begins with that code.
    pub fn count_error(&self, code: &str) {
        self.error_replies.add(1);
        let counters = ERROR_CODES.iter().zip(&self.errors_by);
        if let Some((_, counter)) = counters.into_iter().find(|(known, _)| **known == code) {
            counter.add(1);
        }
    }

    /// Error replies by code.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counters = ERROR_CODES.into_iter().zip(&self.errors_by);
        counters.map(|(code, counter)| (code, counter.get()))
    }

    /// Publishes how long keys of each database have to live.
    pub fn set_lifetimes(&self, averages: &BTreeMap<Database, u64>) {
        for (number, published) in (0..=u8::MAX).zip(&self.databases) {
            let average = averages.get(&Database(number)).copied();
            published.average_ttl_ms.set(average.unwrap_or(0));
        }
    }

    /// Publishes the totals of all databases but 0.
    pub fn set_databases(&self, databases: &BTreeMap<Database, Totals>) {
        for (number, published) in (0..=u8::MAX).zip(&self.databases) {
            let totals = databases.get(&Database(number));
            let totals = totals.copied().unwrap_or_default();
            published.keys.set(totals.keys as u64);
            published.expires.set(totals.expiring as u64);
        }
    }
}

/// Keys of one database.
#[derive(Debug, Default)]
pub struct DatabaseStats {
    pub keys: Counter,
    /// Those that expire.
    pub expires: Counter,
    /// How long these have to live on average, ms; of database 0 as well.
    pub average_ttl_ms: Counter,
}

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[must_use]
    pub fn of(value: u64) -> Counter {
        Counter(AtomicU64::new(value))
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds, as the only writer.
    pub fn add(&self, value: u64) {
        self.set(self.get().wrapping_add(value));
    }
}
