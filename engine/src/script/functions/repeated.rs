//! Changes that clients of a cluster send to every primary. All primaries of a node have the same libraries: the first such
//! request changes them, and the others are answered as if they had.

use std::collections::{BTreeSet, HashMap};

use ephesus_wire::ShardId;

use super::Libraries;

/// Names of libraries that are kept, of which some may be gone.
const NAMES_MAX: usize = 4096;

/// At whose direct ports a name was made what it stands for now: a library, or nothing.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    by: HashMap<Box<[u8]>, BTreeSet<ShardId>, ahash::RandomState>,
}

impl Repeated {
    /// Whether a shard's client asks for the first time for what clients of other shards have made of a name: a library
    /// of that text, or none.
    pub(super) fn is_done(
        &mut self,
        shard: Option<ShardId>,
        newest: &Libraries,
        name: &[u8],
        text: Option<&[u8]>,
    ) -> bool {
        let (Some(shard), Some(by)) = (shard, self.by.get_mut(name)) else {
            return false;
        };
        newest.text_of(name) == text && by.insert(shard)
    }

    /// A name stands for something else since a request at the direct port of a shard, or at the entry port.
    pub(super) fn note(&mut self, name: &[u8], shard: Option<ShardId>) {
        if self.by.len() >= NAMES_MAX {
            self.by.clear();
        }
        match shard {
            Some(shard) => self.by.insert(name.into(), BTreeSet::from([shard])),
            None => self.by.remove(name),
        };
    }

    /// All names stand for nothing.
    pub(super) fn clear(&mut self) {
        self.by.clear();
    }
}
