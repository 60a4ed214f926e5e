//! Keys that clients may have cached (CLIENT TRACKING), and which of them have changed since.
//!
//! A key is known by its name, whatever its database, as in Redis. Once it has changed it leaves the table: its clients are
//! told once, and have to read it again to be told of the next change. A change within a section that is taken back is told
//! of as well: clients read again what they had.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ephesus_wire::{PartitionId, database, slot_of};

use super::{Key, Keyspace};
use crate::command::parse::ArgList;
use crate::command::spec::Spec;
use crate::node::prefixes::Prefixes;
use crate::shard::mesh::Client;
use crate::table::KeyHasher;

/// Memory of a key in the table beside its name, and of each of its clients but for one.
const KEY_BYTES: usize = 112;
const CLIENT_BYTES: usize = 32;

/// What a table may hold; beyond it keys are forgotten, as if they had changed.
#[derive(Clone, Copy, Debug)]
pub struct TrackedLimits {
    pub keys: usize,
    pub bytes: usize,
    /// Of what has changed and was not taken yet; beyond it clients are told that all has.
    pub invalid_bytes: usize,
}

impl Default for TrackedLimits {
    fn default() -> TrackedLimits {
        TrackedLimits {
            keys: usize::MAX,
            bytes: usize::MAX,
            invalid_bytes: usize::MAX,
        }
    }
}

/// The clients that may have one key.
#[expect(
    clippy::box_collection,
    reason = "most keys have one client, and there may be a million of them"
)]
#[derive(Debug)]
pub enum Clients {
    One(Client),
    Several(Box<BTreeSet<Client>>),
}

impl Clients {
    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Client> {
        let (one, several) = match self {
            Clients::One(client) => (Some(*client), None),
            Clients::Several(clients) => (None, Some(clients.iter().copied())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    fn len(&self) -> usize {
        match self {
            Clients::One(_) => 1,
            Clients::Several(clients) => clients.len(),
        }
    }

    /// Whether it was not there.
    fn add(&mut self, client: Client) -> bool {
        match self {
            Clients::One(one) if *one == client => false,
            Clients::One(one) => {
                *self = Clients::Several(Box::new(BTreeSet::from([*one, client])));
                true
            }
            Clients::Several(clients) => clients.insert(client),
        }
    }

    /// Without those; `None` if no client is left.
    fn without(self, gone: &BTreeSet<Client>) -> Option<Clients> {
        match self {
            Clients::One(client) => (!gone.contains(&client)).then_some(Clients::One(client)),
            Clients::Several(mut clients) => {
                clients.retain(|client| !gone.contains(client));
                match clients.len() {
                    0 | 1 => clients.first().copied().map(Clients::One),
                    _ => Some(Clients::Several(clients)),
                }
            }
        }
    }
}

/// A key that clients may have.
#[derive(Debug)]
struct Cached {
    name: Box<[u8]>,
    clients: Clients,
}

impl Cached {
    fn bytes(&self) -> usize {
        KEY_BYTES + self.name.len() + (self.clients.len() - 1) * CLIENT_BYTES
    }
}

/// The keys of one partition, by their names' hashes. Where two names have the same one, the earlier is forgotten.
#[derive(Debug, Default)]
struct Keys {
    by_hash: BTreeMap<u64, Cached>,
    items: usize,
    bytes: usize,
}

impl Keys {
    fn add(&mut self, hash: u64, cached: Cached) -> Option<Cached> {
        self.items += cached.clients.len();
        self.bytes += cached.bytes();
        let before = self.by_hash.insert(hash, cached)?;
        self.uncount(&before);
        Some(before)
    }

    fn remove(&mut self, hash: u64) -> Option<Cached> {
        let cached = self.by_hash.remove(&hash)?;
        self.uncount(&cached);
        Some(cached)
    }

    fn uncount(&mut self, cached: &Cached) {
        self.items -= cached.clients.len();
        self.bytes -= cached.bytes();
    }
}

/// A key that has changed, and who may have it.
#[derive(Debug)]
pub struct InvalidKey {
    pub name: Box<[u8]>,
    pub clients: Clients,
    /// Whose command has changed it.
    pub writer: Option<Client>,
}

/// What clients may have and is not so any more.
#[derive(Debug, Default)]
pub struct Invalid {
    keys: VecDeque<InvalidKey>,
    /// Of partitions that have left.
    partitions: VecDeque<Keys>,
    /// Keys with a prefix that some client wants to know of, and who has changed each last.
    broadcast: BTreeMap<Box<[u8]>, Option<Client>>,
    /// Everything, for those that want to know of prefixes.
    pub broadcasts_all: bool,
    /// Everything.
    pub all: bool,
    bytes: usize,
}

impl Invalid {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let has_keys = !self.keys.is_empty() || !self.partitions.is_empty();
        !has_keys && self.broadcast.is_empty() && !self.broadcasts_all && !self.all
    }

    /// The next key that was taken out of the table.
    pub fn next_key(&mut self) -> Option<InvalidKey> {
        if let Some(key) = self.keys.pop_front() {
            self.bytes -= KEY_BYTES + key.name.len() + key.clients.len() * CLIENT_BYTES;
            return Some(key);
        }
        while let Some(keys) = self.partitions.front_mut() {
            let bytes = keys.bytes;
            let Some((hash, _)) = keys.by_hash.first_key_value() else {
                self.partitions.pop_front();
                continue;
            };
            let hash = *hash;
            let cached = keys.remove(hash)?;
            self.bytes -= bytes - keys.bytes;
            return Some(InvalidKey {
                name: cached.name,
                clients: cached.clients,
                writer: None,
            });
        }
        None
    }

    /// The next keys with prefixes, of so many bytes and one more key, and who has changed each last.
    pub fn next_broadcast(&mut self, bytes_max: usize) -> Vec<(Box<[u8]>, Option<Client>)> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some((name, writer)) = self.broadcast.pop_first()
        {
            bytes += KEY_BYTES + name.len();
            keys.push((name, writer));
        }
        self.bytes -= bytes;
        keys
    }

    /// Memory of it.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    fn add_key(&mut self, cached: Cached, writer: Option<Client>) {
        let Cached { name, clients } = cached;
        self.bytes += KEY_BYTES + name.len() + clients.len() * CLIENT_BYTES;
        self.keys.push_back(InvalidKey {
            name,
            clients,
            writer,
        });
    }

    fn add_partition(&mut self, keys: Keys) {
        self.bytes += keys.bytes;
        self.partitions.push_back(keys);
    }

    /// Answers the memory that it takes.
    fn add_broadcast(&mut self, name: &[u8], writer: Option<Client>) -> usize {
        if let Some(last) = self.broadcast.get_mut(name) {
            *last = writer;
            return 0;
        }
        let bytes = KEY_BYTES + name.len();
        self.bytes += bytes;
        self.broadcast.insert(name.into(), writer);
        bytes
    }

    /// Frees a key of which nobody is told; answers its memory.
    fn free_one(&mut self) -> Option<usize> {
        let before = self.bytes;
        if self.next_key().is_none() {
            let (name, _) = self.broadcast.pop_first()?;
            self.bytes -= KEY_BYTES + name.len();
        }
        Some(before - self.bytes)
    }
}

/// The removal of clients that have gone, which goes over the whole table in slices.
#[derive(Debug)]
struct Removal {
    clients: BTreeSet<Client>,
    at: (PartitionId, u64),
}

/// What nobody is told of any more, and is freed in slices: at once it would take too long.
///
/// Whoever adds to the table, or to what is invalid, frees twice as many bytes of this. So it never has more than the table
/// and all that is invalid and not told yet, at their bounds: from when something is discarded until nothing is left, what
/// is added is discarded once at most, and frees itself and as much of what was there before. A key that becomes invalid
/// takes [`CLIENT_BYTES`] more, which is less than it has freed beyond itself. No client that is closed would give any of
/// it back, so it does not count as memory of clients.
#[derive(Debug, Default)]
struct Discarded {
    tables: Vec<Keys>,
    invalid: Vec<Invalid>,
}

impl Discarded {
    fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.invalid.is_empty()
    }

    /// Frees a key, or what has none left; answers its memory.
    fn free_one(&mut self) -> Option<usize> {
        if let Some(keys) = self.tables.last_mut() {
            let Some((_, cached)) = keys.by_hash.pop_first() else {
                self.tables.pop();
                return Some(size_of::<Keys>());
            };
            return Some(cached.bytes());
        }
        let freed = self.invalid.last_mut()?.free_one();
        if freed.is_none() {
            self.invalid.pop();
        }
        Some(freed.unwrap_or(size_of::<Invalid>()))
    }

    /// So many bytes were added elsewhere.
    fn pay_for(&mut self, added: usize) {
        let mut left = 2 * added;
        while left > 0
            && let Some(freed) = self.free_one()
        {
            left = left.saturating_sub(freed);
        }
    }

    /// Frees about so many keys.
    fn free_slice(&mut self, budget: usize) {
        let _ = (0..budget).find(|_| self.free_one().is_none());
    }
}

/// Who may have cached which keys.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    by_partition: BTreeMap<PartitionId, Keys>,
    keys: usize,
    items: usize,
    bytes: usize,
    limits: TrackedLimits,
    /// Those that have cached something here since they came.
    clients: BTreeSet<Client>,
    gone: BTreeSet<Client>,
    removal: Option<Removal>,
    discarded: Discarded,
    /// Of which keys clients of the node want to know whatever they have read.
    prefixes: Arc<Prefixes>,
    /// There are more of this shard's clients: until they are known all keys are noted.
    has_new_prefixes: bool,
    /// Whose command is executed.
    pub(super) writer: Option<Client>,
    /// What is removed now had expired before those read it that may have it.
    pub(super) is_silent: bool,
    invalid: Invalid,
}

impl Tracked {
    /// Whether anybody is to be told of changes.
    pub(super) fn is_active(&self) -> bool {
        self.keys > 0 || self.has_new_prefixes || !self.prefixes.is_empty()
    }

    fn add(&mut self, partition: PartitionId, hash: u64, name: &[u8], client: Client) {
        self.clients.insert(client);
        let keys = self.by_partition.entry(partition).or_default();
        let (count, items, bytes) = (keys.by_hash.len(), keys.items, keys.bytes);
        let mut added = 0;
        match keys.by_hash.get_mut(&hash) {
            Some(cached) if *cached.name == *name => {
                if cached.clients.add(client) {
                    keys.items += 1;
                    keys.bytes += CLIENT_BYTES;
                    added = CLIENT_BYTES;
                }
            }
            _ => {
                let cached = Cached {
                    name: name.into(),
                    clients: Clients::One(client),
                };
                added = cached.bytes();
                if let Some(other) = keys.add(hash, cached) {
                    self.invalid.add_key(other, None);
                }
            }
        }
        self.keys = self.keys + keys.by_hash.len() - count;
        self.items = self.items + keys.items - items;
        self.bytes = self.bytes + keys.bytes - bytes;
        while (self.keys > self.limits.keys || self.bytes > self.limits.bytes)
            && self.forget_one((partition, hash))
        {}
        self.discarded.pay_for(added);
        self.keep_to_bound();
    }

    /// Forgets the key behind that one, which is any other, as if it had changed. False if there is no other.
    fn forget_one(&mut self, (partition, hash): (PartitionId, u64)) -> bool {
        let behind = |keys: &Keys, from: u64| {
            let others = keys.by_hash.range(from..).map(|(other, _)| *other);
            others.take(2).find(|other| *other != hash)
        };
        let within = self.by_partition.get(&partition);
        let found = within.and_then(|keys| behind(keys, hash));
        let found = found.map(|hash| (partition, hash)).or_else(|| {
            let later = self.by_partition.range(partition..).skip(1);
            let mut others = later.chain(&self.by_partition);
            others.find_map(|(id, keys)| {
                let first = match *id == partition {
                    true => behind(keys, 0),
                    false => keys.by_hash.first_key_value().map(|(hash, _)| *hash),
                };
                Some((*id, first?))
            })
        });
        let Some((partition, hash)) = found else {
            return false;
        };
        if let Some(cached) = self.take(partition, hash) {
            self.invalid.add_key(cached, None);
        }
        true
    }

    fn take(&mut self, partition: PartitionId, hash: u64) -> Option<Cached> {
        let keys = self.by_partition.get_mut(&partition)?;
        let cached = keys.remove(hash)?;
        if keys.by_hash.is_empty() {
            self.by_partition.remove(&partition);
        }
        self.keys -= 1;
        self.items -= cached.clients.len();
        self.bytes -= cached.bytes();
        Some(cached)
    }

    /// A key has changed, or is about to.
    #[cold]
    pub(super) fn changed(&mut self, hasher: &KeyHasher, key: &Key<'_>, writer: Option<Client>) {
        if self.is_silent {
            return;
        }
        let (_, name) = database::split(key.bytes);
        let is_wanted = self.has_new_prefixes
            || !self.prefixes.is_empty() && self.prefixes.matching(name).next().is_some();
        if is_wanted {
            let added = self.invalid.add_broadcast(name, writer);
            self.discarded.pay_for(added);
        }
        let hash = match name.len() == key.bytes.len() {
            true => key.hash,
            false => hasher.hash(name),
        };
        let keys = self.by_partition.get(&key.partition);
        let cached = keys.and_then(|keys| keys.by_hash.get(&hash));
        if cached.is_some_and(|cached| *cached.name == *name)
            && let Some(cached) = self.take(key.partition, hash)
        {
            self.invalid.add_key(cached, writer);
        }
        self.keep_to_bound();
    }

    /// The partition's keys are not read here any more, before others may change them.
    pub(super) fn partition_left(&mut self, partition: PartitionId) {
        // Which of its keys others have read is not known.
        self.invalid.broadcasts_all |= self.has_new_prefixes || !self.prefixes.is_empty();
        if let Some(keys) = self.by_partition.remove(&partition) {
            self.keys -= keys.by_hash.len();
            self.items -= keys.items;
            self.bytes -= keys.bytes;
            self.invalid.add_partition(keys);
        }
    }

    /// All keys have changed, as far as clients know.
    pub(super) fn all_changed(&mut self) {
        let tables = std::mem::take(&mut self.by_partition);
        self.discarded.tables.extend(tables.into_values());
        (self.keys, self.items, self.bytes) = (0, 0, 0);
        self.invalid.all = true;
    }

    /// What nobody has taken is not to become too much.
    fn keep_to_bound(&mut self) {
        if self.invalid.bytes > self.limits.invalid_bytes {
            let invalid = std::mem::take(&mut self.invalid);
            self.discarded.invalid.push(invalid);
            self.all_changed();
        }
    }

    fn client_gone(&mut self, client: Client) {
        if self.clients.remove(&client) && self.keys > 0 {
            self.gone.insert(client);
        }
    }

    /// Frees about so many keys, and removes clients that have gone from as many; false when nothing is left to do.
    fn free_slice(&mut self, budget: usize) -> bool {
        self.discarded.free_slice(budget);
        self.remove_gone(budget);
        !self.discarded.is_empty() || self.removal.is_some() || !self.gone.is_empty()
    }

    fn remove_gone(&mut self, budget: usize) {
        let removal = self.removal.take().or_else(|| {
            let clients = std::mem::take(&mut self.gone);
            let at = (PartitionId(0), 0);
            (!clients.is_empty()).then_some(Removal { clients, at })
        });
        let Some(mut removal) = removal else { return };
        let (from, hash) = removal.at;
        let mut passed = Vec::new();
        for (id, keys) in self.by_partition.range(from..) {
            let first = if *id == from { hash } else { 0 };
            let hashes = keys.by_hash.range(first..).map(|(hash, _)| (*id, *hash));
            passed.extend(hashes.take(budget + 1 - passed.len()));
            if passed.len() > budget {
                break;
            }
        }
        let next = passed.get(budget).copied();
        for &(id, hash) in passed.iter().take(budget) {
            let keys = self.by_partition.get(&id);
            let cached = keys.and_then(|keys| keys.by_hash.get(&hash));
            let has_any = |cached: &Cached| match &cached.clients {
                Clients::One(client) => removal.clients.contains(client),
                Clients::Several(clients) => !clients.is_disjoint(&removal.clients),
            };
            if cached.is_some_and(has_any)
                && let Some(Cached { name, clients }) = self.take(id, hash)
                && let Some(clients) = clients.without(&removal.clients)
            {
                let cached = Cached { name, clients };
                self.keys += 1;
                self.items += cached.clients.len();
                self.bytes += cached.bytes();
                self.by_partition.entry(id).or_default().add(hash, cached);
            }
        }
        if let Some(next) = next {
            removal.at = next;
            self.removal = Some(removal);
        }
    }
}

impl Keyspace {
    /// What the table of tracked keys may hold.
    pub fn set_tracked_limits(&mut self, limits: TrackedLimits) {
        self.tracked.limits = limits;
    }

    /// Whether changes of keys are noted for anybody.
    #[inline]
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// Looks again whether anybody wants to know of changes.
    pub(super) fn review_observed(&mut self) {
        self.is_observed = self.events.is_some() || self.tracked.is_active();
    }

    /// Whose command is executed from now on.
    pub fn set_writer(&mut self, writer: Option<Client>) {
        self.tracked.writer = writer;
    }

    /// The client has read the keys of a command, which are named as they are stored, and may have cached them.
    pub fn track_keys<A: ArgList + ?Sized>(&mut self, client: Client, spec: &Spec, args: &A) {
        for index in spec.keys_of(args) {
            self.track(client, args.arg(index));
        }
    }

    /// The client may have cached a key, if it is of a partition that is served here; it is named as it is stored.
    pub fn track(&mut self, client: Client, stored: &[u8]) {
        let partition = self.partitioning.partition_of(slot_of(stored));
        if self.owns(partition) {
            let (_, name) = database::split(stored);
            let hash = self.hasher.hash(name);
            self.tracked.add(partition, hash, name, client);
            self.is_observed = true;
        }
    }

    /// A client has left.
    pub fn untrack(&mut self, client: Client) {
        self.tracked.client_gone(client);
    }

    /// Clients are told that all they have cached has changed.
    pub fn invalidate_all(&mut self) {
        self.tracked.all_changed();
    }

    /// Of which keys clients of the node want to know whatever they have read.
    #[must_use]
    pub fn prefixes(&self) -> &Arc<Prefixes> {
        &self.tracked.prefixes
    }

    pub fn set_prefixes(&mut self, prefixes: Arc<Prefixes>) {
        self.tracked.prefixes = prefixes;
        self.review_observed();
    }

    /// Whether all keys are noted, as clients of this shard have prefixes that the node does not know yet.
    pub fn expect_prefixes(&mut self, are_expected: bool) {
        self.tracked.has_new_prefixes = are_expected;
        self.review_observed();
    }

    /// Frees what nobody is told of any more, in slices.
    pub fn discard_invalid(&mut self, invalid: Invalid) {
        self.tracked.discarded.invalid.push(invalid);
    }

    /// What has changed since this was last asked.
    #[must_use]
    pub fn take_invalid(&mut self) -> Option<Invalid> {
        (!self.tracked.invalid.is_empty()).then(|| std::mem::take(&mut self.tracked.invalid))
    }

    /// Frees a part of what was tracked; false when nothing is left to free.
    pub(super) fn free_tracked_slice(&mut self, budget: usize) -> bool {
        self.tracked.free_slice(budget)
    }

    /// Keys that clients may have, and pairs of a key and a client.
    #[must_use]
    pub fn tracked(&self) -> (usize, usize) {
        (self.tracked.keys, self.tracked.items)
    }

    /// Memory of the table, and of what was not taken.
    #[must_use]
    pub fn tracked_bytes(&self) -> usize {
        self.tracked.bytes + self.tracked.invalid.bytes
    }
}

#[cfg(test)]
mod tests;
