//! Where every slot leads, seen from this node: the partition table in the shape that commands need.
//!
//! Immutable; shards are given the next one when the table changes. They come behind the orders that follow from
//! the same table, so a shard may have acted on that already.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ephesus_coordinator::view::View;
use ephesus_wire::{Epoch, NodeId, PartitionId, Partitioning, ShardId, Slot};

mod directory;

pub use directory::Primary;

use directory::Directory;

/// Who owns a partition, in four bytes, so that a look per command stays in the first cache: below
/// [`ELSEWHERE`] a shard of this node; with that bit set, an index into the primaries. As this node's
/// primaries are the first, in order of their shards, both are indices into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u32);

const ELSEWHERE: u32 = 0x8000_0000;
const NOBODY: Owner = Owner(u32::MAX);

impl Owner {
    /// Whether it is this shard of this node.
    #[inline]
    #[must_use]
    pub fn is(self, shard: ShardId) -> bool {
        self.0 == u32::from(shard.0)
    }

    /// Whether the slot is not served at all.
    #[inline]
    #[must_use]
    pub fn is_nobody(self) -> bool {
        self == NOBODY
    }

    /// The shard of this node.
    #[inline]
    #[must_use]
    pub fn local(self) -> Option<ShardId> {
        (self.0 < ELSEWHERE).then_some(ShardId(self.0 as u16))
    }
}

/// What one shard of the cluster owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Inclusive, ascending, neighbours merged.
    pub slots: Vec<(u16, u16)>,
    /// The highest of its partitions.
    pub epoch: Epoch,
}

/// Where every slot leads.
#[derive(Clone, Debug)]
pub struct Routes {
    partitioning: Partitioning,
    /// Of the table that they are made of; 0: of none.
    version: u64,
    /// By partition.
    owners: Box<[Owner]>,
    /// By partition, of the table: the copy of which epoch it means.
    epochs: Box<[Epoch]>,
    /// Partitions that this node serves, ascending.
    local: Vec<PartitionId>,
    /// Where this node has staging copies, which serve nobody yet.
    staged: BTreeMap<PartitionId, ShardId>,
    /// By partition, the index of the primary that the table gives it; [`NOBODY`]'s: none.
    indices: Box<[u32]>,
    /// Every shard of every member, this node's included.
    directory: Arc<Directory>,
    /// By primary, for clients that ask for all of it.
    holdings: OnceLock<Box<[Holding]>>,
}

/// This node, as it is told apart from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Me {
    pub node: NodeId,
    pub shards: u16,
    /// Port of the entry; direct ports follow it.
    pub port: u16,
    /// The same for clients that come over TLS.
    pub tls_port: Option<u16>,
}

impl Routes {
    /// The routes of a table. Partitions of this node count as nobody's until it has the copy:
    /// `has` says so, or `staged`, where its staging copies are. What the table has given to such a copy
    /// leads to its shard, which knows whether the copy is served by now.
    ///
    /// What is made for every table is small: the shards of the cluster are taken from the routes `before` these
    /// while the members are the same, and what each of them owns is gathered when a client asks.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "partitions are counted here, and places are of the primaries"
    )]
    pub fn new(
        partitioning: Partitioning,
        view: Option<&View>,
        me: Me,
        has: impl Fn(PartitionId, ShardId, Epoch) -> bool,
        staged: impl IntoIterator<Item = (PartitionId, ShardId)>,
        before: Option<&Routes>,
    ) -> Routes {
        let staged: BTreeMap<PartitionId, ShardId> = staged.into_iter().collect();
        let known = before.map(|before| &before.directory);
        let known = known.filter(|directory| directory.is_of(view, me));
        let directory = known.map_or_else(|| Arc::new(Directory::new(view, me)), Arc::clone);
        let count = usize::from(partitioning.count());
        let mut owners = vec![NOBODY; count];
        let mut epochs = vec![Epoch(0); count];
        let mut indices = vec![NOBODY.0; count];
        let mut local = Vec::new();
        let entries = view.iter().flat_map(|view| &view.table.entries);
        for (partition, entry) in partitioning.partitions().zip(entries) {
            let place = usize::from(partition.0);
            epochs[place] = entry.epoch;
            let Some(replica) = entry.primary() else {
                continue;
            };
            let Some(index) = directory.index(replica.node, replica.shard) else {
                continue;
            };
            indices[place] = index;
            if replica.node != me.node {
                owners[place] = Owner(ELSEWHERE + index);
            } else if has(partition, replica.shard, entry.epoch)
                || staged.get(&partition) == Some(&replica.shard)
            {
                owners[place] = Owner(u32::from(replica.shard.0));
                local.push(partition);
            }
        }
        Routes {
            partitioning,
            version: view.map_or(0, View::version),
            owners: owners.into(),
            epochs: epochs.into(),
            local,
            staged,
            indices: indices.into(),
            directory,
            holdings: OnceLock::new(),
        }
    }

    #[must_use]
    pub fn partitioning(&self) -> Partitioning {
        self.partitioning
    }

    #[inline]
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Owner {
        self.owner_of(self.partitioning.partition_of(slot))
    }

    #[inline]
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "whoever asks has a partition of a slot, or of a copy"
    )]
    pub fn owner_of(&self, partition: PartitionId) -> Owner {
        self.owners[usize::from(partition.0)]
    }

    /// The version of the table that they are made of; 0: of none.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether a shard may execute commands on its served copy of this epoch. Everything that does asks this.
    ///
    /// Served is only what the newest table that the node has gives to this shard, at this epoch:
    ///
    /// - The epoch of these routes: if they lead to this shard.
    /// - A higher one: yes. A copy is activated only because a table says so, which is then newer than the one
    ///   that these routes are made of, and its own routes are on their way. Commands that have waited for the
    ///   copy are not sent back to the shard that has given its one up.
    /// - A lower one: no. The partition has moved on, by whatever way, and the copy is about to be given up.
    ///
    /// So what a shard happens to hold is never stronger than the table.
    #[inline]
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "whoever asks has a copy of the partition"
    )]
    pub fn lets_serve(&self, partition: PartitionId, epoch: Epoch, shard: ShardId) -> bool {
        match epoch.cmp(&self.epochs[usize::from(partition.0)]) {
            Ordering::Greater => true,
            Ordering::Equal => self.owner_of(partition).is(shard),
            Ordering::Less => false,
        }
    }

    /// The shard of this node that has a staging copy of the partition. While it is not served the owner
    /// is still who counts, but that shard decides.
    #[must_use]
    pub fn staged(&self, partition: PartitionId) -> Option<ShardId> {
        self.staged.get(&partition).copied()
    }

    /// Whether some partition leads from a shard of this node, other than `seen_from`, to another one in
    /// `next`: what was forwarded to the first may still be under way.
    #[must_use]
    pub fn turns_within_node(&self, next: &Routes, seen_from: ShardId) -> bool {
        let pairs = self.owners.iter().zip(&next.owners);
        pairs.into_iter().any(|(before, after)| {
            before != after
                && before.local().is_some_and(|shard| shard != seen_from)
                && after.local().is_some()
        })
    }

    /// The primary that an owner is; `None` for nobody.
    #[must_use]
    pub fn primary(&self, owner: Owner) -> Option<&Primary> {
        if owner.is_nobody() {
            return None;
        }
        self.primaries().get((owner.0 & !ELSEWHERE) as usize)
    }

    /// The first partition from `from` on that this node serves.
    #[must_use]
    pub fn next_local(&self, from: PartitionId) -> Option<PartitionId> {
        let at = self.local.partition_point(|&local| local < from);
        self.local.get(at).copied()
    }

    /// Every shard of every member; this node's come first, in order.
    #[must_use]
    pub fn primaries(&self) -> &[Primary] {
        &self.directory.primaries
    }

    /// What each of the [primaries](Routes::primaries) owns.
    #[must_use]
    pub fn holdings(&self) -> &[Holding] {
        self.holdings.get_or_init(|| {
            let mut holdings = vec![Holding::default(); self.primaries().len()];
            let owned = self.indices.iter().zip(&self.epochs);
            for (partition, (index, epoch)) in self.partitioning.partitions().zip(owned) {
                if let Some(holding) = holdings.get_mut(*index as usize) {
                    holding.add(self.partitioning, partition, *epoch);
                }
            }
            holdings.into()
        })
    }
}

impl Holding {
    fn add(&mut self, partitioning: Partitioning, partition: PartitionId, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
        let (first, last) = partitioning.slots_of(partition).into_inner();
        match self.slots.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => self.slots.push((first, last)),
        }
    }
}

#[cfg(test)]
mod tests;
