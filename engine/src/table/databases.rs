//! How many keys of a table are in which database. Those of database 0 are what the others leave of the whole.

use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};

use ephesus_wire::database::{self, Database};

/// Keys of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub keys: usize,
    /// Those that expire.
    pub expiring: usize,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.keys += other.keys;
        self.expiring += other.expiring;
    }
}

impl SubAssign for Totals {
    fn sub_assign(&mut self, other: Totals) {
        self.keys -= other.keys;
        self.expiring -= other.expiring;
    }
}

/// The totals of other databases than 0; nothing is allocated for a table that has keys of that one only.
#[derive(Default)]
pub(super) struct Databases(BTreeMap<Database, Totals>);

impl Databases {
    pub(super) const fn new() -> Databases {
        Databases(BTreeMap::new())
    }

    /// A key is in the table.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8], expiring: usize) {
        self.change(key, |totals| {
            totals.keys += 1;
            totals.expiring += expiring;
        });
    }

    /// It is not any more.
    #[inline]
    pub(super) fn remove(&mut self, key: &[u8], expiring: usize) {
        self.change(key, |totals| {
            totals.keys -= 1;
            totals.expiring -= expiring;
        });
    }

    /// Changes the totals of the database that `key` is in.
    #[inline]
    pub(super) fn change(&mut self, key: &[u8], edit: impl FnOnce(&mut Totals)) {
        if database::is_marked(key) {
            self.change_marked(key, edit);
        }
    }

    #[cold]
    fn change_marked(&mut self, key: &[u8], edit: impl FnOnce(&mut Totals)) {
        let (database, _) = database::split(key);
        if database == Database::ZERO {
            return;
        }
        let totals = self.0.entry(database).or_default();
        edit(totals);
        if totals.keys == 0 {
            self.0.remove(&database);
        }
    }

    pub(super) fn of(&self, database: Database) -> Totals {
        self.0.get(&database).copied().unwrap_or_default()
    }

    /// Those of all that have keys, ascending.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = (Database, Totals)> {
        self.0.iter().map(|(database, totals)| (*database, *totals))
    }
}
