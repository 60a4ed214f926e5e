//! [`FaultStore`]: an in-memory [`ImageStore`] that loses power, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ephesus_wire::PartitionId;
use ephesus_wire::rng::Rng;

use super::manifest::EXTENT_TAG;
use super::store::{DbId, ImageStore, StoreError, VALUE_BYTES_MAX, Visit};

type Tree = BTreeMap<Vec<u8>, Vec<u8>>;
type Cell = (PartitionId, Vec<u8>);

/// Keeps what a sync made durable apart from what is only in memory.
///
/// At a crash each key touched since the last sync independently takes one of the values it had
/// since then, the durable one included. A block touched since then may also be torn: gone, the
/// durable one with it, or cut short. A manifest is not: images rely on its being old or new.
/// A store that failed answers nothing but errors.
#[derive(Debug)]
pub struct FaultStore {
    db: DbId,
    now: BTreeMap<PartitionId, Tree>,
    durable: BTreeMap<PartitionId, Tree>,
    pending: Vec<(Cell, Option<Vec<u8>>)>,
    fail_at: Option<u64>,
    operations: u64,
    failed: bool,
    /// What [`ImageStore::room`] answers; shared, so that a test can change it.
    pub room: Arc<AtomicU64>,
    /// What each operation takes of the room, which must be there.
    pub cost: u64,
}

impl FaultStore {
    /// An empty store that never fails by itself.
    #[must_use]
    pub fn new(db: DbId) -> FaultStore {
        FaultStore {
            db,
            now: BTreeMap::new(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
            fail_at: None,
            operations: 0,
            failed: false,
            room: Arc::new(AtomicU64::new(u64::MAX)),
            cost: 0,
        }
    }

    /// Makes the `n`th write, remove, drop or sync from now (1 is the next) fail, and all after it.
    ///
    /// A failing write may or may not have happened, as with real power loss; a failing sync too.
    pub fn fail_at(&mut self, n: u64) {
        self.fail_at = Some(self.operations + n);
    }

    /// Writes, removes, drops and syncs so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The store as the next process finds it after power loss; `seed` decides each key's fate.
    #[must_use]
    pub fn crash(&self, seed: u64) -> FaultStore {
        let mut dice = Rng::new(seed);
        let mut found = self.durable.clone();
        let touched: BTreeSet<&Cell> = self.pending.iter().map(|(cell, _)| cell).collect();
        for cell in touched {
            let values: Vec<_> = self
                .pending
                .iter()
                .filter(|(c, _)| c == cell)
                .map(|(_, v)| v)
                .collect();
            let pick = dice.below(values.len() as u64 + 1) as usize;
            let picked = pick.checked_sub(1).map(|at| values[at].clone());
            let is_torn = cell.1.starts_with(EXTENT_TAG) && dice.one_in(4);
            if is_torn {
                apply(&mut found, cell, torn(picked.flatten(), &mut dice));
            } else if let Some(value) = picked {
                apply(&mut found, cell, value);
            }
        }
        let mut store = FaultStore::new(self.db);
        store.now = found.clone();
        store.durable = found;
        store
    }

    /// Overwrites one value as decaying media would.
    pub fn corrupt(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) {
        for trees in [&mut self.now, &mut self.durable] {
            apply(trees, &(partition, key.to_vec()), Some(value.to_vec()));
        }
    }

    fn step(&mut self, operation: &'static str, partition: PartitionId) -> Result<(), StoreError> {
        self.operations += 1;
        if self.cost > 0 {
            let room = self.room.load(Ordering::Relaxed);
            assert!(room >= self.cost, "written without room");
            self.room.store(room - self.cost, Ordering::Relaxed);
        }
        self.failed |= self.fail_at.is_some_and(|at| self.operations >= at);
        self.check(operation, partition)
    }

    fn check(&self, operation: &'static str, partition: PartitionId) -> Result<(), StoreError> {
        if self.failed {
            let source = "simulated power loss".into();
            return Err(StoreError::Operation {
                db: self.db,
                operation,
                partition,
                source,
            });
        }
        Ok(())
    }

    fn write(&mut self, partition: PartitionId, key: &[u8], value: Option<&[u8]>) {
        let cell = (partition, key.to_vec());
        self.pending.push((cell.clone(), value.map(<[u8]>::to_vec)));
        apply(&mut self.now, &cell, value.map(<[u8]>::to_vec));
    }
}

/// What a flush that was cut off leaves of a value.
fn torn(value: Option<Vec<u8>>, dice: &mut Rng) -> Option<Vec<u8>> {
    let mut value = value.filter(|value| !value.is_empty())?;
    value.truncate(dice.below(value.len() as u64) as usize);
    dice.one_in(2).then_some(value)
}

fn apply(trees: &mut BTreeMap<PartitionId, Tree>, (partition, key): &Cell, value: Option<Vec<u8>>) {
    let tree = trees.entry(*partition).or_default();
    match value {
        Some(value) => drop(tree.insert(key.clone(), value)),
        None => drop(tree.remove(key)),
    }
}

impl ImageStore for FaultStore {
    fn db(&self) -> DbId {
        self.db
    }

    fn insert(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        assert!(value.len() <= VALUE_BYTES_MAX, "{} bytes", value.len());
        let outcome = self.step("write a block", partition);
        self.write(partition, key, Some(value));
        outcome
    }

    fn remove(&mut self, partition: PartitionId, key: &[u8]) -> Result<(), StoreError> {
        let outcome = self.step("remove a block", partition);
        self.write(partition, key, None);
        outcome
    }

    fn get_with(
        &self,
        partition: PartitionId,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, StoreError> {
        self.check("read", partition)?;
        let tree = self.now.get(&partition);
        let value = tree.and_then(|tree| tree.get(key));
        if let Some(value) = value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn next_key(&self, partition: PartitionId, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.check("read", partition)?;
        let tree = self.now.get(&partition);
        Ok(tree
            .and_then(|tree| tree.range(from.to_vec()..).next())
            .map(|(key, _)| key.clone()))
    }

    fn scan_prefix(
        &self,
        partition: PartitionId,
        prefix: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        self.check("read", partition)?;
        let Some(tree) = self.now.get(&partition) else {
            return Ok(());
        };
        for (key, value) in tree.range(prefix.to_vec()..) {
            if !key.starts_with(prefix) || visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn drop_partition(&mut self, partition: PartitionId) -> Result<(), StoreError> {
        let outcome = self.step("drop the tree", partition);
        for key in self.now.remove(&partition).unwrap_or_default().into_keys() {
            self.pending.push(((partition, key), None));
        }
        outcome
    }

    fn partitions(&self) -> Vec<PartitionId> {
        self.now
            .iter()
            .filter(|(_, tree)| !tree.is_empty())
            .map(|(p, _)| *p)
            .collect()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let db = self.db;
        self.step("sync", PartitionId(0))
            .map_err(|e| StoreError::Sync {
                db,
                source: Box::new(e),
            })?;
        self.pending.clear();
        self.durable = self.now.clone();
        Ok(())
    }

    fn room(&mut self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    fn has_free(&self, bytes: u64) -> bool {
        self.room.load(Ordering::Relaxed) >= bytes
    }

    fn size_on_disk(&self) -> Result<u64, StoreError> {
        let trees = self.now.values().flatten();
        Ok(trees
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum())
    }
}
