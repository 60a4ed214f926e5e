//! Of which keys clients of the node want to know whatever they have read: CLIENT TRACKING with BCAST.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;

use ephesus_wire::ShardId;

use crate::newest::{Newest, Versioned};

/// Beginnings of keys, and the shards with clients that want to know of those keys.
#[derive(Clone, Debug, Default)]
pub struct Prefixes {
    version: u64,
    shards_by: BTreeMap<Arc<[u8]>, BTreeSet<ShardId>>,
}

impl Prefixes {
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards_by.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.shards_by.len()
    }

    /// The prefixes of a key, the longest first. Each step looks for the last prefix that is not behind what is left of the
    /// key: what it has not in common with the key, no other prefix of the key has.
    pub fn matching<'a, 'k>(
        &'a self,
        key: &'k [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a BTreeSet<ShardId>)> + use<'a, 'k> {
        let mut bound = Some(Bound::Included(key));
        std::iter::from_fn(move || {
            while let Some(end) = bound {
                let range = (Bound::Unbounded, end);
                let Some((prefix, shards)) = self.shards_by.range::<[u8], _>(range).next_back()
                else {
                    bound = None;
                    break;
                };
                let same = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
                let rest = key.get(..same).unwrap_or_default();
                if same == prefix.len() {
                    bound = Some(Bound::Excluded(rest));
                    return Some((&**prefix, shards));
                }
                bound = Some(Bound::Included(rest));
            }
            None
        })
    }

    /// The next ones: clients of a shard want to know of keys that begin like these, or none does any more.
    fn changed<'a>(
        &self,
        shard: ShardId,
        added: impl IntoIterator<Item = &'a [u8]>,
        removed: impl IntoIterator<Item = &'a [u8]>,
    ) -> Prefixes {
        let mut next = self.clone();
        for prefix in removed {
            if let Some(shards) = next.shards_by.get_mut(prefix) {
                shards.remove(&shard);
                if shards.is_empty() {
                    next.shards_by.remove(prefix);
                }
            }
        }
        for prefix in added {
            let shards = next.shards_by.entry(prefix.into()).or_default();
            shards.insert(shard);
        }
        next.version += 1;
        next
    }
}

impl Versioned for Prefixes {
    fn version(&self) -> u64 {
        self.version
    }
}

/// The newest [`Prefixes`], as all shards share them.
#[derive(Debug, Default)]
pub struct SharedPrefixes(Newest<Prefixes>);

impl SharedPrefixes {
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version()
    }

    #[must_use]
    pub fn newest(&self) -> Arc<Prefixes> {
        self.0.get()
    }

    /// Clients of a shard want to know of keys that begin like this, or none does any more.
    pub fn change<'a>(
        &self,
        shard: ShardId,
        added: impl IntoIterator<Item = &'a [u8]>,
        removed: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let Ok(()) = self.0.change(|newest| {
            let next = newest.changed(shard, added, removed);
            Ok::<_, Infallible>((next, ()))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(0);

    #[test]
    fn a_key_finds_all_its_prefixes() {
        let shared = SharedPrefixes::default();
        let names = ["", "a", "ab", "abd", "abc:", "b", "abc:x", "aa", "abc:zz"];
        shared.change(SHARD, names.map(str::as_bytes), []);
        let prefixes = shared.newest();
        for key in [
            "", "a", "ab", "abc", "abc:", "abc:xyz", "abd", "b", "c", "abc:y", "\u{ff}",
        ] {
            let found: Vec<&[u8]> = prefixes.matching(key.as_bytes()).map(|(p, _)| p).collect();
            let mut expected: Vec<&[u8]> = names
                .iter()
                .filter(|name| key.starts_with(**name))
                .map(|name| name.as_bytes())
                .collect();
            expected.sort_by_key(|name| std::cmp::Reverse(name.len()));
            assert_eq!(found, expected, "{key}");
        }
    }

    #[test]
    fn a_prefix_goes_with_its_last_shard() {
        let shared = SharedPrefixes::default();
        for shard in [0, 1] {
            shared.change(ShardId(shard), [&b"a"[..]], []);
        }
        let before = shared.newest();
        assert_eq!(
            before.matching(b"abc").next().map(|(_, s)| s.len()),
            Some(2)
        );
        for (shard, left) in [(1, 1), (0, 0)] {
            shared.change(ShardId(shard), [], [&b"a"[..], b"nosuch"]);
            assert_eq!(shared.newest().len(), left);
        }
        assert_eq!(shared.version(), 4);
        assert!(shared.newest().is_empty() && !before.is_empty());
    }

    #[test]
    fn shards_that_change_it_at_once_lose_nothing() {
        let shared = SharedPrefixes::default();
        std::thread::scope(|scope| {
            for shard in 0..4 {
                let shared = &shared;
                scope.spawn(move || {
                    for n in 0..100 {
                        let name = format!("{shard}:{n}");
                        shared.change(ShardId(shard), [name.as_bytes(), b"all"], []);
                        let newest = shared.newest();
                        assert!(newest.shards_by.contains_key(name.as_bytes()));
                    }
                });
            }
        });
        let newest = shared.newest();
        assert_eq!((newest.len(), newest.version()), (401, 400));
        let all = newest.matching(b"all").next();
        assert_eq!(all.map(|(_, shards)| shards.len()), Some(4));
    }
}
