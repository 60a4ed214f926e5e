//! One value for each shard of this node.

use std::ops::{Index, IndexMut};

use ephesus_wire::ShardId;

/// Values by shard. A number that comes from a peer, a table or a file is checked against their count before it becomes
/// an index: here is the one place that relies on it.
#[derive(Clone, Debug, Default)]
pub struct ByShard<T>(Vec<T>);

impl<T> From<Vec<T>> for ByShard<T> {
    fn from(values: Vec<T>) -> ByShard<T> {
        ByShard(values)
    }
}

impl<T> FromIterator<T> for ByShard<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> ByShard<T> {
        ByShard(values.into_iter().collect())
    }
}

impl<T> IntoIterator for ByShard<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a ByShard<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut ByShard<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

impl<T> ByShard<T> {
    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a node has a shard")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All, in the order of the shards.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// All, in the order of the shards.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

impl<T> Index<ShardId> for ByShard<T> {
    type Output = T;

    #[expect(
        clippy::indexing_slicing,
        reason = "shards are told apart from other numbers where they come from"
    )]
    fn index(&self, shard: ShardId) -> &T {
        &self.0[usize::from(shard.0)]
    }
}

impl<T> IndexMut<ShardId> for ByShard<T> {
    #[expect(
        clippy::indexing_slicing,
        reason = "shards are told apart from other numbers where they come from"
    )]
    fn index_mut(&mut self, shard: ShardId) -> &mut T {
        &mut self.0[usize::from(shard.0)]
    }
}
