use std::collections::BTreeMap;

use ephesus_wire::Lsn;
use proptest::prelude::*;

use super::{HEADS, LastWrites, RING};

/// Hashes that share few buckets.
fn hash(of: u64) -> u64 {
    (of << 32) | (of % 3)
}

proptest! {
    #[test]
    fn a_read_waits_for_its_own_key_and_no_other(
        writes in prop::collection::vec((0..40u64, 0..30u64), 1..400),
        flushed in prop::option::of(0..400usize),
    ) {
        let mut last_writes = LastWrites::new();
        let mut model = BTreeMap::new();
        let mut floor = Lsn::ZERO;
        for (index, (of, behind)) in writes.into_iter().enumerate() {
            let lsn = Lsn(index as u64 + 1);
            if flushed == Some(index) {
                last_writes.set_all(lsn);
                floor = lsn;
            } else {
                last_writes.set(hash(of), lsn);
                model.insert(of, lsn);
            }
            let committed = Lsn(lsn.0.saturating_sub(behind));
            for of in 0..40 {
                let own = model.get(&of).copied().unwrap_or(Lsn::ZERO).max(floor);
                let found = last_writes.get(hash(of), committed);
                prop_assert!(found >= own || own <= committed, "{found} for {own}");
                prop_assert!(found == own || found <= committed, "{found} for {own}");
            }
        }
    }
}

#[test]
fn behind_more_writes_than_are_told_apart_a_read_waits_longer_and_never_less() {
    let mut last_writes = LastWrites::new();
    let (old, other, unwritten) = (7 << 32, 8 << 32, 9 << 32);
    last_writes.set(old, Lsn(1));
    last_writes.set(other, Lsn(2));
    for lsn in 3..(RING as u64 + 3) {
        last_writes.set(1 + lsn % (HEADS as u64 - 1), Lsn(lsn));
    }
    for hash in [old, unwritten] {
        let found = last_writes.get(hash, Lsn::ZERO);
        assert!(found >= Lsn(1) && found <= Lsn(2), "{found}");
    }
    assert_eq!(last_writes.get(other, Lsn::ZERO), Lsn(2));
    last_writes.set(other, Lsn(RING as u64 + 3));
    assert_eq!(last_writes.get(old, Lsn(2)), Lsn(RING as u64 + 3));
}
