//! Keys that clients watch (WATCH), or that are given to other servers (MIGRATE): whether any of them has changed since.
//!
//! A key is known by its hash: where two keys have the same one, a client learns of a change that was none, which it has to
//! expect. A key that was there and whose deadline has passed counts as changed to a client, and as the same to a copy, which
//! has the deadline too; that its entry is removed afterwards, or that one is removed which had expired before, changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::{PartitionId, ShardId};

use super::{Key, Keyspace};
use crate::net::ConnToken;
use crate::shard::mesh::Client;
use crate::table::NEVER_MS;

/// Who wants to know whether a key changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watcher {
    Client(Client),
    /// A copy of a key that was there: that of this index among those of a MIGRATE.
    Copy {
        id: u64,
        index: u32,
        partition: PartitionId,
    },
}

/// No watcher is before it.
const FIRST: Watcher = {
    let (index, generation) = (0, 0);
    Watcher::Client((ShardId(0), ConnToken { index, generation }))
};

/// Who watches what.
#[derive(Default)]
pub(super) struct Watched {
    /// By the keys' hashes, but for what has changed already.
    by_hash: BTreeSet<(u64, Watcher)>,
    watches: BTreeMap<Client, Watch>,
}

/// What one client watches.
struct Watch {
    keys: Vec<WatchedKey>,
    /// The first deadline of a key, Unix ms.
    expires_from_ms: u64,
    has_changed: bool,
}

struct WatchedKey {
    hash: u64,
    partition: PartitionId,
    was_there: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            keys: Vec::new(),
            expires_from_ms: NEVER_MS,
            has_changed: false,
        }
    }
}

impl Watched {
    /// Whether no change of a key matters to anybody.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// A key of that hash is written.
    #[cold]
    pub(super) fn key_changed(&mut self, hash: u64) {
        let mut next = FIRST;
        while let Some(&(found, watcher)) = self.by_hash.range((hash, next)..).next()
            && found == hash
        {
            self.by_hash.remove(&(hash, watcher));
            if let Watcher::Client(client) = watcher
                && let Some(watch) = self.watches.get_mut(&client)
            {
                watch.has_changed = true;
            }
            next = watcher;
        }
    }

    /// All keys that are served are removed.
    pub(super) fn all_removed(&mut self) {
        for watch in self.watches.values_mut() {
            watch.has_changed |= watch.keys.iter().any(|key| key.was_there);
        }
        let is_client = |watcher: &Watcher| matches!(watcher, Watcher::Client(_));
        self.by_hash.retain(|(_, watcher)| is_client(watcher));
    }

    /// A partition leaves: whatever others may do to its keys is not seen here.
    pub(super) fn partition_left(&mut self, partition: PartitionId) {
        for watch in self.watches.values_mut() {
            watch.has_changed |= watch.keys.iter().any(|key| key.partition == partition);
        }
        let has_left = |watcher: &Watcher| matches!(watcher, Watcher::Copy { partition: of, .. } if *of == partition);
        self.by_hash.retain(|(_, watcher)| !has_left(watcher));
    }

    fn remove(&mut self, client: Client) {
        let Some(watch) = self.watches.remove(&client) else {
            return;
        };
        for key in watch.keys {
            self.by_hash.remove(&(key.hash, Watcher::Client(client)));
        }
    }

    /// From now on changes of a key, which is here, are noted for a copy of it.
    pub(super) fn add_copy(&mut self, hash: u64, copy: Watcher) {
        self.by_hash.insert((hash, copy));
    }

    /// Forgets a copy; answers whether its key was not written since. That it has expired is no change.
    pub(super) fn remove_copy(&mut self, hash: u64, copy: Watcher) -> bool {
        self.by_hash.remove(&(hash, copy))
    }
}

impl Keyspace {
    /// From now on the client watches a key, which is served here.
    pub fn watch(&mut self, client: Client, key: &Key<'_>) {
        let deadline_ms = match self.entry(key).map(|entry| entry.expire_at_ms) {
            Some(0) => Some(NEVER_MS),
            Some(at_ms) => (at_ms > self.now_ms).then_some(at_ms),
            None => None,
        };
        let watch = self.watched.watches.entry(client).or_default();
        let watcher = Watcher::Client(client);
        if watch.has_changed || !self.watched.by_hash.insert((key.hash, watcher)) {
            return;
        }
        watch.expires_from_ms = watch.expires_from_ms.min(deadline_ms.unwrap_or(NEVER_MS));
        watch.keys.push(WatchedKey {
            hash: key.hash,
            partition: key.partition,
            was_there: deadline_ms.is_some(),
        });
    }

    /// The client wanted to watch a key that is not here: it is told that it has changed.
    pub fn watch_elsewhere(&mut self, client: Client) {
        let watch = self.watched.watches.entry(client).or_default();
        watch.has_changed = true;
    }

    /// Whether the client watches keys here and all of them are as they were.
    #[must_use]
    pub fn is_unchanged(&self, client: Client) -> bool {
        let watch = self.watched.watches.get(&client);
        watch.is_some_and(|watch| !watch.has_changed && watch.expires_from_ms > self.now_ms)
    }

    /// The partitions of the keys that the client watches here.
    pub fn watched_partitions(&self, client: Client) -> impl Iterator<Item = PartitionId> {
        let watch = self.watched.watches.get(&client);
        let keys = watch.into_iter().flat_map(|watch| &watch.keys);
        keys.map(|key| key.partition)
    }

    /// The client watches nothing here any more.
    pub fn unwatch(&mut self, client: Client) {
        self.watched.remove(client);
    }

    /// Clients that watch something here.
    #[cfg(test)]
    pub(crate) fn watchers(&self) -> usize {
        self.watched.watches.len()
    }
}

#[cfg(test)]
mod tests;
