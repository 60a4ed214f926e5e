//! Keys of one of several databases: see [`ephesus_wire::database`] for how they are stored.

use std::collections::BTreeMap;

use ephesus_wire::database::{self, is_marked};
use ephesus_wire::resp::reply;
use ephesus_wire::{Database, PartitionId};

use super::strings::{Outcome, check_sizes};
use super::{Key, Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::{self, ArgList};
use crate::table::Totals;

/// As many as Redis has when nobody says how many.
pub const DEFAULT: u16 = 16;

/// Most that a key's name in the tables can tell apart.
pub const MOST: u16 = 1 << u8::BITS;

/// What flushing one database takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// It has no keys here.
    Nothing,
    /// All keys that are served.
    Everything,
    /// A walk: other databases have keys as well.
    Walk,
}

/// The totals of all databases but 0 as they were counted last, and what has to be counted again.
#[derive(Debug, Default)]
pub(super) struct Counted {
    totals: BTreeMap<Database, Totals>,
    by_partition: BTreeMap<PartitionId, BTreeMap<Database, Totals>>,
    /// In no order, each once: those whose keys may have changed.
    touched: Vec<PartitionId>,
    /// By partition.
    is_touched: Vec<bool>,
}

impl Counted {
    /// Nothing is counted of so many partitions.
    pub(super) fn new(partitions: u16) -> Counted {
        let mut counted = Counted {
            is_touched: vec![false; usize::from(partitions)],
            ..Counted::default()
        };
        (0..partitions).for_each(|id| counted.touch(PartitionId(id)));
        counted
    }

    pub(super) fn touch(&mut self, id: PartitionId) {
        if let Some(is_touched) = self.is_touched.get_mut(usize::from(id.0))
            && !*is_touched
        {
            *is_touched = true;
            self.touched.push(id);
        }
    }

    /// Has these instead of those that were counted of a partition.
    fn count(&mut self, id: PartitionId, found: BTreeMap<Database, Totals>) {
        if let Some(is_touched) = self.is_touched.get_mut(usize::from(id.0)) {
            *is_touched = false;
        }
        for (database, totals) in &found {
            *self.totals.entry(*database).or_default() += *totals;
        }
        let before = match found.is_empty() {
            true => self.by_partition.remove(&id),
            false => self.by_partition.insert(id, found),
        };
        for (database, totals) in before.into_iter().flatten() {
            let all = self.totals.entry(database).or_default();
            *all -= totals;
            if *all == Totals::default() {
                self.totals.remove(&database);
            }
        }
    }
}

impl Keyspace {
    /// Keys of one database that are served, expired ones that were not removed yet included.
    #[must_use]
    pub fn of_database(&self, database: Database) -> Totals {
        let mut totals = Totals::default();
        for partition in self.all_served() {
            totals += partition.table.of_database(database);
        }
        totals
    }

    /// A key is about to change.
    #[inline]
    pub(super) fn touch_database(&mut self, key: &Key<'_>) {
        if is_marked(key.bytes) {
            self.others.touch(key.partition);
        }
    }

    /// The totals of all databases but 0, if they may have changed since this was asked last: what has not is not counted
    /// again.
    pub fn take_changed_databases(&mut self) -> Option<&BTreeMap<Database, Totals>> {
        if self.others.touched.is_empty() {
            return None;
        }
        for id in std::mem::take(&mut self.others.touched) {
            let served = self.served(id);
            let found = served.map(|copy| copy.table.other_databases().collect());
            self.others.count(id, found.unwrap_or_default());
        }
        debug_assert_eq!(self.others.totals, self.other_databases());
        Some(&self.others.totals)
    }

    /// The totals of all databases but 0 that have keys which are served.
    #[must_use]
    pub fn other_databases(&self) -> BTreeMap<Database, Totals> {
        let mut all = BTreeMap::<Database, Totals>::new();
        for partition in self.all_served() {
            for (database, totals) in partition.table.other_databases() {
                *all.entry(database).or_default() += totals;
            }
        }
        all
    }

    /// DBSIZE of this shard.
    pub fn dbsize(&self, database: Database, reply: &mut Reply<'_>) {
        reply.wait_for(self.log.appended());
        reply::integer(reply.out, self.of_database(database).keys as i64);
    }

    /// How the keys of one database are removed.
    #[must_use]
    pub fn flush_of(&self, database: Database) -> Flush {
        match self.of_database(database).keys as u64 {
            0 => Flush::Nothing,
            keys if keys == self.keys => Flush::Everything,
            _ => Flush::Walk,
        }
    }

    /// Removes the keys of one database, unless it takes a walk.
    pub fn flush_at_once(&mut self, flush: Flush, reply: &mut Reply<'_>) {
        match flush {
            Flush::Everything => self.flush(reply),
            Flush::Nothing | Flush::Walk => {
                self.invalidate_all();
                reply.wait_for(self.log.appended());
            }
        }
    }

    /// MOVE: the key in another database has its value from now on, if there is none.
    pub(super) fn move_key<A: ArgList + ?Sized>(
        &mut self,
        from: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let to = parse::database(args.arg(2), self.databases)?;
        let (here, key) = database::split(from.bytes);
        if here == to {
            return Err(ClientError::SameKey);
        }
        let stored = to.stored(key);
        check_sizes(&stored, &[])?;
        let to = self.key(&stored);
        let is_moved = match self.rename((from, &to), false, reply) {
            Err(ClientError::NoSuchKey) => false,
            outcome => outcome?,
        };
        reply::integer(reply.out, i64::from(is_moved));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
