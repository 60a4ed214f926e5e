use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::table::KeyHasher;

type Pushed = Vec<(u16, u8, u64)>;
/// Value and expiry by key.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// Gathers `pushed` under keys hashed by `hash`, and what a map makes of the same.
fn gather(pushed: &Pushed, hash: impl Fn(&[u8]) -> u64) -> (Table, Model) {
    let (mut gathered, mut model) = (Gathered::with_capacity(pushed.len()), Model::new());
    for &(key, fill, expire_at_ms) in pushed {
        let (key, value) = (key.to_le_bytes(), vec![fill; usize::from(fill)]);
        gathered.push(hash(&key), &key, &value, expire_at_ms);
        model.insert(key.to_vec(), (value, expire_at_ms));
    }
    (gathered.into_table(), model)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 64 }))]

    #[test]
    fn gathered_keys_are_what_was_pushed_last(
        pushed in prop::collection::vec((any::<u16>(), any::<u8>(), 0..3u64), 0..4000),
        mask in prop_oneof![
            4 => Just(u64::MAX), 1 => Just(0), 1 => Just(0xff), 1 => Just(0xe000_0000_0000_0001),
        ],
    ) {
        let hasher = KeyHasher::with_seeds([1, 2, 3, 4]);
        let hash = |key: &[u8]| hasher.hash(key) & mask;
        let (mut table, model) = gather(&pushed, hash);
        table.check();
        prop_assert_eq!(table.len(), model.len());
        for (key, (value, expire_at_ms)) in &model {
            let entry = table.get(hash(key), key).expect("every key is there");
            prop_assert_eq!((entry.value, entry.expire_at_ms), (&value[..], *expire_at_ms));
        }
        for n in 0..2000u32 {
            table.put(hash(&n.to_le_bytes()), &n.to_le_bytes(), b"later", 0);
        }
        table.check();
        prop_assert_eq!(table.len(), model.len() + 2000);
        for key in model.keys() {
            prop_assert!(table.remove(hash(key), key));
        }
        table.check();
    }
}

#[test]
fn a_gathered_table_takes_no_more_memory_than_one_of_known_size() {
    let hasher = KeyHasher::with_seeds([1, 2, 3, 4]);
    for keys in [0, 1, 9, 600, 700, 10_000, 100_000u64] {
        let mut gathered = Gathered::with_capacity(keys as usize);
        let mut known = Table::with_capacity(keys as usize);
        for n in 0..keys {
            let key = n.to_le_bytes();
            gathered.push(hasher.hash(&key), &key, b"", 0);
            known.put(hasher.hash(&key), &key, b"", 0);
        }
        let table = gathered.into_table();
        table.check();
        assert_eq!(table.segments.len(), known.segments.len(), "{keys} keys");
        let (found, most) = (table.memory_bytes(), known.memory_bytes());
        assert!(
            found <= most + most / 50,
            "{keys} keys: {found}, not {most}"
        );
    }
}
