//! What the shard publishes for everyone to read.

use ephesus_coordinator::load::hot::HOT_KEYS_MAX;
use ephesus_coordinator::load::{HotKey, KeyName};
use ephesus_wire::database;

use super::Shard;
use super::timers::{HOT_KEYS_EVERY, PUBLISH_EVERY};
use crate::image::STORES_MAX;
use crate::node::process;

impl Shard {
    pub(super) fn publish(&mut self) {
        self.timers.unpublished = true;
        if self.now.saturating_duration_since(self.timers.publish) < PUBLISH_EVERY {
            return;
        }
        self.timers.publish = self.now;
        self.timers.unpublished = false;
        let cpu = process::thread_cpu();
        let lifetimes = self.core.keyspace.average_lifetimes();
        self.core.stats().set_lifetimes(&lifetimes);
        let keyspace = &self.core.keyspace;
        let (mut expiring, mut data_bytes, mut changes) = (0, 0, 0);
        let mut image_bytes = [0; STORES_MAX as usize];
        let (mut outgoing, mut incoming) = (0, 0);
        for partition in keyspace.partitions() {
            outgoing += u64::from(partition.outgoing().is_some());
            incoming += u64::from(partition.incoming().is_some());
            expiring += partition.table.expiring();
            data_bytes += partition.table.data_bytes();
            let store = usize::from(partition.id.0) % self.checkpointer.stores();
            if let Some(most) = image_bytes.get_mut(store) {
                *most = partition.table.data_bytes().max(*most);
            }
            changes += partition.changes_since_image();
        }
        self.core.publish_sizes();
        self.publish_load();
        self.publish_hot_keys();
        let (keyspace, stats) = (&self.core.keyspace, self.core.stats());
        // Also those of copies that came or left.
        stats.set_databases(&keyspace.other_databases());
        stats.expires.set(expiring as u64);
        stats.data_bytes.set(data_bytes);
        stats.image_bytes.set(image_bytes.iter().sum());
        stats.changes_since_image.set(changes);
        stats.migrations_outgoing.set(outgoing);
        stats.migrations_incoming.set(incoming);
        stats
            .migrations_wait
            .set(u64::from(!self.core.admission.log_room.has_room_for_moves));
        stats.held_commands.set(self.core.admission.held_commands());
        let (tracked_keys, tracked_items) = keyspace.tracked();
        stats.tracked_keys.set(tracked_keys as u64);
        stats.tracked_items.set(tracked_items as u64);
        stats.hits.set(keyspace.counters.hits);
        stats.misses.set(keyspace.counters.misses);
        stats.expired.set(keyspace.counters.expired);
        let largest = self.core.largest_client_bytes();
        stats.client_bytes_largest.set(largest as u64);
        let memory_bytes = keyspace.memory_bytes();
        stats.memory_bytes.set(memory_bytes);
        let used = memory_bytes + stats.client_bytes.get();
        stats
            .memory_bytes_max
            .set(used.max(stats.memory_bytes_max.get()));
        stats
            .wal_bytes
            .set(keyspace.log.log_bytes() + self.checkpointer.spare_bytes);
        let is_urgent = self.checkpointer.is_urgent() || self.checkpointer.is_kept_waiting();
        stats.images_urgent.set(u64::from(is_urgent));
        let lacks_room = self.log_lacks_space || self.checkpointer.lacks_room();
        stats.lacks_room.set(u64::from(lacks_room));
        stats
            .wal_segments
            .set(keyspace.log.segments().count() as u64);
        stats.wal_user_bytes.set(keyspace.counters.user_bytes);
        stats.wal_appended.set(keyspace.log.appended().0);
        stats.wal_committed.set(keyspace.log.committed().0);
        stats
            .wal_sync_p50_usec
            .set(self.write_usec.value_at_quantile(0.5));
        stats
            .wal_sync_p99_usec
            .set(self.write_usec.value_at_quantile(0.99));
        stats.images_written.set(self.checkpointer.written);
        stats
            .image_in_progress
            .set(u64::from(self.checkpointer.is_active()));
        stats
            .image_last_time_s
            .set(self.checkpointer.last_ms / 1000);
        // With many partitions that is much, whatever commands there were.
        self.background += process::thread_cpu().saturating_sub(cpu);
    }

    /// Adds what partitions have used to what was counted of them. What the thread has taken for images, moves and
    /// other work that no command waits for is the shard's, and no partition's.
    fn publish_load(&mut self) {
        let cpu = process::thread_cpu();
        let took = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        let background = std::mem::take(&mut self.background) + self.migrations.take_time();
        let (node, stats) = (&self.core.node, &self.core.node.stats[self.core.id]);
        let for_commands = took.saturating_sub(background);
        self.core.keyspace.take_load(for_commands, |id, amount| {
            if let Some(counted) = node.partition_loads.get(usize::from(id.0)) {
                counted.add(&amount);
            }
            stats.load_ops.add(amount.ops);
            stats.load_bytes_in.add(amount.bytes_in);
            stats.load_bytes_out.add(amount.bytes_out);
        });
        stats.cpu_nanos.add(took.as_nanos() as u64);
    }

    /// Publishes the hottest keys now and then, unless somebody reads them just now: the next time is soon enough.
    fn publish_hot_keys(&mut self) {
        let passed = self.now.saturating_duration_since(self.timers.hot_keys);
        if passed < HOT_KEYS_EVERY {
            return;
        }
        let Ok(mut published) = self.core.node.hot_keys[self.core.id].try_lock() else {
            return;
        };
        self.timers.hot_keys = self.now;
        published.clear();
        let hottest = self.core.keyspace.hottest(passed, HOT_KEYS_MAX);
        published.extend(hottest.into_iter().map(|hot| {
            let (database, name) = database::split(&hot.key.name);
            let marker = hot.key.name.len() - name.len();
            HotKey {
                shard: self.core.id.0,
                database: database.0,
                name: KeyName::new(name),
                len: u32::try_from(hot.key.len - marker).unwrap_or(u32::MAX),
                ops_per_s: hot.per_second.round() as u64,
                share: (hot.share * 1e6).round() as u32,
            }
        }));
    }
}
