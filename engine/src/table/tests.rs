use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn hasher() -> KeyHasher {
    KeyHasher::with_seeds([1, 2, 3, 4])
}

/// Hash functions good and bad; every one is a function of the key alone.
#[derive(Clone, Copy, Debug)]
enum Hashing {
    Good,
    Constant(u64),
    FirstByteHigh,
    FewLowBits,
    FewHighBits,
    LongCommonPrefix,
}

impl Hashing {
    fn hash(self, key: &[u8]) -> u64 {
        let good = hasher().hash(key);
        match self {
            Hashing::Good => good,
            Hashing::Constant(hash) => hash,
            Hashing::FirstByteHigh => u64::from(key.first().copied().unwrap_or(0)) << 56,
            Hashing::FewLowBits => good & 0xff,
            Hashing::FewHighBits => good & 0xe000_0000_0000_0001,
            Hashing::LongCommonPrefix => 0xabcd_ef00_0000_0000 | good >> 30,
        }
    }

    fn any() -> impl Strategy<Value = Hashing> {
        prop_oneof![
            4 => Just(Hashing::Good),
            1 => prop_oneof![Just(0), Just(u64::MAX), any::<u64>()].prop_map(Hashing::Constant),
            1 => Just(Hashing::FirstByteHigh),
            1 => Just(Hashing::FewLowBits),
            1 => Just(Hashing::FewHighBits),
            1 => Just(Hashing::LongCommonPrefix),
        ]
    }
}

impl Table {
    /// Recomputes totals and checks every structural invariant.
    pub(super) fn check(&self) {
        let mut weight = Weight::default();
        let mut len = 0;
        for segment in &self.segments {
            weight.memory_bytes += segment.memory_bytes();
            let full: Vec<_> = segment
                .slots()
                .iter()
                .enumerate()
                .filter(|(_, slot)| !slot.is_empty())
                .collect();
            assert_eq!(full.len(), segment.used());
            let deadlines = full.iter().map(|(_, slot)| slot.entry().expire_at_ms);
            let first_ms = deadlines.filter(|at_ms| *at_ms != 0).min();
            let first_ms = first_ms.unwrap_or(NEVER_MS);
            assert!(segment.expires_from_ms() <= first_ms);
            assert!(self.expires_from_ms() <= first_ms);
            assert!(full.is_sorted_by_key(|(_, slot)| slot.tag()));
            for (at, slot) in &full {
                let home = segment.home(slot.tag());
                assert!(home <= *at);
                assert!(
                    segment.slots()[home..*at]
                        .iter()
                        .all(|slot| !slot.is_empty())
                );
                weight.data_bytes += slot.weight().data_bytes;
                weight.memory_bytes += slot.weight().memory_bytes;
                weight.expiring += slot.weight().expiring;
            }
            len += full.len();
        }
        assert_eq!(len, self.len());
        assert_eq!(weight.data_bytes, self.data_bytes());
        assert_eq!(weight.memory_bytes, self.memory_bytes);
        assert_eq!(weight.expiring, self.expiring());
        if len == 0 {
            assert_eq!(self.memory_bytes(), 0);
        }
    }

    /// What both kinds of scan find, which is the same.
    fn scan_all(&self) -> Vec<(u64, Vec<u8>)> {
        let mut seen = Vec::new();
        let mut cursor = 0;
        loop {
            let (from, first) = (cursor, seen.len());
            cursor = self.scan(from, &mut |hash, entry| {
                seen.push((hash, entry.key.to_vec()))
            });
            let mut values = Vec::new();
            let next = self.scan_values(from, &mut |hash, entry| {
                values.push((hash, entry.key.to_vec()));
            });
            assert!(next == cursor && values == seen[first..]);
            if cursor == 0 {
                return seen;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put {
        key: u16,
        value_bytes: usize,
        fill: u8,
        expire_at_ms: u64,
    },
    Fill {
        from: u16,
        count: u16,
    },
    Drain {
        from: u16,
        count: u16,
    },
    Remove(u16),
    SetExpiry(u16, u64),
    Append {
        key: u16,
        suffix_bytes: usize,
        fill: u8,
    },
    ClearSlice(usize),
    Expire(u64),
    Scan,
}

fn value_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..40_usize, 4 => 0..300_usize, 1 => 3_900..5_200_usize, 1 => 65_400..65_700_usize]
}

fn expiry() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..u64::MAX, 1..20_000u64, Just(u64::MAX)]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..600_u16;
    prop_oneof![
        8 => (key(), value_bytes(), any::<u8>(), expiry()).prop_map(
            |(key, value_bytes, fill, expire_at_ms)| Op::Put { key, value_bytes, fill, expire_at_ms }
        ),
        2 => (key(), 0..400_u16).prop_map(|(from, count)| Op::Fill { from, count }),
        1 => (key(), 0..400_u16).prop_map(|(from, count)| Op::Drain { from, count }),
        4 => key().prop_map(Op::Remove),
        4 => (key(), expiry()).prop_map(|(key, expiry)| Op::SetExpiry(key, expiry)),
        4 => (key(), value_bytes(), any::<u8>())
            .prop_map(|(key, suffix_bytes, fill)| Op::Append { key, suffix_bytes, fill }),
        1 => (0..200_usize).prop_map(Op::ClearSlice),
        2 => expiry().prop_map(Op::Expire),
        1 => Just(Op::Scan),
    ]
}

/// Keys of several lengths, one of each length class.
fn key_of(number: u16) -> Vec<u8> {
    let name = number.to_string().into_bytes();
    match number % 50 {
        0 => [name, vec![b'k'; 300]].concat(),
        1 if number < 100 => [name, vec![b'k'; 65_530]].concat(),
        _ => name,
    }
}

/// Seconds of later deadlines are not told apart.
const CENTURY_MS: u64 = 4_000_000_000_000;

type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn put(table: &mut Table, model: &mut Model, hash: u64, key: Vec<u8>, value: Vec<u8>, expiry: u64) {
    let outcome = table.put(hash, &key, &value, expiry);
    let old = model.insert(key, (value, expiry));
    assert_eq!(
        outcome,
        if old.is_some() {
            Put::Replaced
        } else {
            Put::Inserted
        }
    );
}

fn apply(table: &mut Table, model: &mut Model, hashing: Hashing, op: Op) {
    match op {
        Op::Put {
            key,
            value_bytes,
            fill,
            expire_at_ms,
        } => {
            let key = key_of(key);
            put(
                table,
                model,
                hashing.hash(&key),
                key,
                vec![fill; value_bytes],
                expire_at_ms,
            );
        }
        Op::Fill { from, count } => {
            for key in (from..from + count).map(key_of) {
                put(table, model, hashing.hash(&key), key, b"filled".to_vec(), 0);
            }
        }
        Op::Drain { from, count } => {
            for key in (from..from + count).map(key_of) {
                assert_eq!(
                    table.remove(hashing.hash(&key), &key),
                    model.remove(&key).is_some()
                );
            }
        }
        Op::Remove(key) => {
            let key = key_of(key);
            assert_eq!(
                table.remove(hashing.hash(&key), &key),
                model.remove(&key).is_some()
            );
        }
        Op::SetExpiry(key, expiry) => {
            let key = key_of(key);
            let known = model.get_mut(&key).map(|entry| entry.1 = expiry).is_some();
            assert_eq!(table.set_expiry(hashing.hash(&key), &key, expiry), known);
        }
        Op::Append {
            key,
            suffix_bytes,
            fill,
        } => {
            let (key, suffix) = (key_of(key), vec![fill; suffix_bytes]);
            let expected = model.get_mut(&key).map(|entry| {
                entry.0.extend(&suffix);
                entry.0.len()
            });
            assert_eq!(table.append(hashing.hash(&key), &key, &suffix), expected);
        }
        Op::ClearSlice(budget) => {
            let before = table.len();
            assert_eq!(table.clear_slice(budget), before <= budget);
            assert_eq!(table.len(), before.saturating_sub(budget));
            model.retain(|key, _| table.get(hashing.hash(key), key).is_some());
        }
        Op::Expire(now_ms) => {
            let (mut at, mut found) = (0, Vec::new());
            while table.expired(&mut at, now_ms, &mut found) {
                assert!(found.len() <= EXPIRED_MAX);
                for key in found.drain(..) {
                    let (_, at_ms) = model.remove(&key).expect("a key that is here");
                    assert!(at_ms != 0 && at_ms <= now_ms);
                    assert!(table.remove(hashing.hash(&key), &key));
                }
            }
            let deadlines = model.values().map(|(_, at_ms)| *at_ms);
            let next_ms = deadlines.filter(|at_ms| *at_ms != 0).min();
            assert!(next_ms.is_none_or(|next_ms| next_ms > now_ms));
            // What was looked at is due again a second too early at most.
            let from_ms = table.expires_from_ms();
            assert!(from_ms / 1000 >= now_ms.min(CENTURY_MS) / 1000);
        }
        Op::Scan => {
            let seen = table.scan_all();
            assert!(seen.is_sorted_by_key(|(hash, _)| hash >> 48));
            assert!(seen.iter().all(|(hash, key)| *hash == hashing.hash(key)));
            let keys: BTreeSet<_> = seen.iter().map(|(_, key)| key).collect();
            assert_eq!(keys.len(), seen.len());
            assert!(keys.into_iter().eq(model.keys()));
        }
    }
}

fn same_contents(table: &Table, model: &Model, hashing: Hashing) {
    table.check();
    assert_eq!(table.len(), model.len());
    assert_eq!(
        table.expiring(),
        model.values().filter(|(_, expiry)| *expiry != 0).count()
    );
    for (key, (value, expiry)) in model {
        let hash = hashing.hash(key);
        for step in Prefetch::STEPS {
            table.prefetch(hash, step);
        }
        let expected = EntryRef {
            key,
            value,
            expire_at_ms: *expiry,
            value_type: VALUE_TYPE_STRING,
        };
        assert_eq!(table.get(hash, key), Some(expected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 96 }))]

    #[test]
    fn behaves_like_a_map(
        hashing in Hashing::any(),
        ops in prop::collection::vec(op(), 1..if cfg!(miri) { 12 } else { 80 }),
        capacity in prop_oneof![Just(0), 1..3000usize],
        is_divided: bool,
    ) {
        let (mut table, per_part) = match is_divided {
            true => Table::divided_for(capacity),
            false => (Table::with_capacity(capacity), 0),
        };
        let mut model = Model::new();
        if capacity > 0 {
            // As an image's first entry: room alone, without a key, does not last.
            let key = b"first".to_vec();
            table.put_expected(hashing.hash(&key), &key, b"1", 0, per_part);
            model.insert(key, (b"1".to_vec(), 0));
        }
        for op in ops {
            apply(&mut table, &mut model, hashing, op);
        }
        same_contents(&table, &model, hashing);
        apply(&mut table, &mut model, hashing, Op::Scan);
        for key in model.keys() {
            assert!(table.remove(hashing.hash(key), key));
        }
        table.check();
        prop_assert_eq!(table.memory_bytes(), 0);
    }

    #[test]
    fn a_cursor_divides_the_keys_into_visited_and_behind(
        hashing in Hashing::any(),
        count in 0..if cfg!(miri) { 100_u32 } else { 2_500 },
        later in 0..if cfg!(miri) { 100_u32 } else { 2_500 },
        pause in 0..200_usize,
    ) {
        let mut table = Table::new();
        let keys = |from: u32, to: u32| (from..to).map(|n| n.to_be_bytes());
        for key in keys(0, count) {
            table.put(hashing.hash(&key), &key, b"v", 0);
        }
        let mut seen = BTreeSet::new();
        let mut cursor = 0;
        for _ in 0..=pause {
            cursor = table.scan(cursor, &mut |_, entry| {
                assert!(seen.insert(entry.key.to_vec()), "visited twice");
            });
            if cursor == 0 {
                break;
            }
            prop_assert_eq!(cursor << CURSOR_BITS, 0);
            for key in keys(0, count) {
                prop_assert_eq!(seen.contains(&key[..]), behind(cursor, hashing.hash(&key)));
            }
        }
        if cursor != 0 {
            for key in keys(count, count + later) {
                table.put(hashing.hash(&key), &key, b"v", 0);
            }
            let stood_at = cursor;
            while cursor != 0 {
                cursor = table.scan(cursor, &mut |_, entry| {
                    assert!(seen.insert(entry.key.to_vec()), "visited twice");
                });
            }
            for key in keys(count, count + later) {
                let passed = behind(stood_at, hashing.hash(&key));
                prop_assert_eq!(seen.contains(&key[..]), !passed);
            }
        }
        prop_assert!(cursor != 0 || keys(0, count).all(|key| seen.contains(&key[..])));
    }
}

#[test]
fn a_scan_returns_every_lasting_key_while_the_table_grows_and_shrinks() {
    let (start, end) = if cfg!(miri) {
        (100, 600)
    } else {
        (1_000_u32, 1_000_000)
    };
    let hasher = hasher();
    let mut table = Table::new();
    let put = |table: &mut Table, n: u32| {
        let key = n.to_be_bytes();
        table.put(hasher.hash(&key), &key, b"value", 0);
    };
    (0..start).for_each(|n| put(&mut table, n));
    let mut lasting: BTreeSet<u32> = (0..start).collect();
    let mut seen = BTreeSet::new();
    let (mut cursor, mut next, mut random, mut calls) = (0, start, 1_u64, 0);
    let grow_by = end / (start / 8);
    loop {
        let mut visited = 0;
        cursor = table.scan(cursor, &mut |_, entry| {
            visited += 1;
            seen.insert(u32::from_be_bytes(entry.key.try_into().unwrap()));
        });
        calls += 1;
        assert!(visited <= 64, "{visited} keys in one call");
        if cursor == 0 {
            break;
        }
        for n in next..(next + grow_by).min(end) {
            put(&mut table, n);
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if random >> 62 == 0 {
                let victim = ((random >> 20) % u64::from(n)) as u32;
                let key = victim.to_be_bytes();
                table.remove(hasher.hash(&key), &key);
                lasting.remove(&victim);
            }
        }
        next = (next + grow_by).min(end);
    }
    assert_eq!(
        next, end,
        "the table grew to its full size within {calls} calls"
    );
    assert!(lasting.len() > 10 && lasting.is_subset(&seen));
    table.check();
}

#[test]
fn colliding_hashes_are_only_slow() {
    let count = if cfg!(miri) { 60_u32 } else { 4_000 };
    for hash in [0, u64::MAX, 0x8000_0000_0000_0000] {
        let mut table = Table::new();
        for n in 0..count {
            assert_eq!(table.put(hash, &n.to_be_bytes(), b"", 0), Put::Inserted);
        }
        table.check();
        assert!((0..count).all(|n| table.get(hash, &n.to_be_bytes()).is_some()));
        assert!(table.get(hash, b"other").is_none());
        assert!((0..count).all(|n| table.remove(hash, &n.to_be_bytes())));
        assert_eq!(table.memory_bytes(), 0);
    }
}

#[test]
fn hashes_without_entropy_in_front_do_not_blow_up_the_directory() {
    let mut table = Table::new();
    for n in 0..if cfg!(miri) { 100 } else { 8_000_u64 } {
        table.put(n, &n.to_be_bytes(), b"", 0);
    }
    table.check();
    assert!(table.directory.bytes() <= 4 << 10);
}

#[test]
fn an_empty_table_owns_nothing_and_a_small_one_little() {
    let hasher = hasher();
    let mut table = Table::new();
    assert_eq!(table.memory_bytes(), 0);
    assert!(table.get(1, b"k").is_none() && table.random(7).is_none());
    assert_eq!(table.scan(0, &mut |_, _| panic!("no keys")), 0);
    assert!(table.clear_slice(1));
    for n in 0..10_u8 {
        table.put(hasher.hash(&[n]), &[n], b"0123456789", 0);
    }
    let entries = 10 * 32;
    assert!(
        table.memory_bytes() <= entries + 200,
        "{}",
        table.memory_bytes()
    );
}

#[test]
fn appends_move_a_value_rarely() {
    let mut table = Table::new();
    table.put(9, b"log", b"", 5);
    let mut moves = 0;
    let mut address = None;
    let count = if cfg!(miri) { 200 } else { 100_000 };
    for n in 1..=count {
        assert_eq!(table.append(9, b"log", b"0123456789"), Some(n * 10));
        let now = table.get(9, b"log").map(|entry| entry.value.as_ptr());
        moves += usize::from(now != address);
        address = now;
    }
    assert!(moves < 40, "{moves} moves");
    assert_eq!(
        table.get(9, b"log").map(|entry| entry.expire_at_ms),
        Some(5)
    );
    table.check();
}

#[test]
fn expiry_of_a_large_value_is_set_in_place() {
    let mut table = Table::new();
    table.put(3, b"big", &[7; 100_000], 0);
    let before = table.get(3, b"big").map(|entry| entry.value.as_ptr());
    assert!(table.set_expiry(3, b"big", 77));
    assert_eq!(table.expiring(), 1);
    assert_eq!(
        table.get(3, b"big").map(|entry| entry.value.as_ptr()),
        before
    );
    assert!(table.set_expiry(3, b"big", 0));
    assert_eq!(table.expiring(), 0);
}

#[test]
fn the_largest_key_and_value_fit() {
    let (key_bytes, value_bytes) = if cfg!(miri) {
        (70, 300)
    } else {
        (64 << 10, 8 << 20)
    };
    let (key, value) = (vec![b'k'; key_bytes], vec![b'v'; value_bytes]);
    let mut table = Table::new();
    table.put(5, &key, &value, 9);
    let entry = table.get(5, &key).expect("just put");
    assert!(entry.key == key && entry.value == value && entry.expire_at_ms == 9);
    assert_eq!(table.data_bytes(), (key_bytes + value_bytes) as u64);
    assert!(table.memory_bytes() < (key_bytes + value_bytes) as u64 * 9 / 8 + 1_000);
}

#[test]
fn random_finds_every_key_about_equally_often() {
    let hasher = hasher();
    let mut table = Table::new();
    let keys = if cfg!(miri) { 20 } else { 2_000_u32 };
    for n in 0..keys {
        table.put(hasher.hash(&n.to_be_bytes()), &n.to_be_bytes(), b"", 0);
    }
    let mut hits = vec![0_u32; keys as usize];
    for n in 0..u64::from(keys) * 50 {
        let entry = table
            .random(hasher.hash(&n.to_be_bytes()))
            .expect("not empty");
        hits[u32::from_be_bytes(entry.key.try_into().unwrap()) as usize] += 1;
    }
    assert!(
        hits.iter().all(|&hits| (10..150).contains(&hits)),
        "{hits:?}"
    );
}

#[test]
fn a_taken_table_is_cleared_in_slices() {
    let hasher = hasher();
    let mut table = Table::new();
    let keys = if cfg!(miri) { 300 } else { 20_000_u32 };
    for n in 0..keys {
        table.put(hasher.hash(&n.to_be_bytes()), &n.to_be_bytes(), b"", 0);
    }
    let mut taken = std::mem::take(&mut table);
    assert!(table.is_empty() && table.memory_bytes() == 0);
    let mut slices = 0;
    while !taken.clear_slice(100) {
        slices += 1;
        if slices % 20 == 0 {
            taken.check();
        }
    }
    assert_eq!(slices + 1, keys / 100);
    taken.check();
}

#[test]
fn a_table_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Table>();
}

#[test]
fn a_table_of_known_size_does_not_grow_on_the_way() {
    let hasher = KeyHasher::with_seeds([1, 2, 3, 4]);
    for keys in [1, 9, 600, 700, 10_000, 100_000] {
        let mut table = Table::with_capacity(keys);
        let (segments, before) = (table.segments.len(), table.memory_bytes());
        for n in 0..keys as u64 {
            let key = n.to_le_bytes();
            table.put(hasher.hash(&key), &key, b"", 0);
        }
        table.check();
        let entries = keys as u64 * 32;
        let grown = table.memory_bytes() - before - entries;
        assert_eq!(table.segments.len(), segments, "{keys} keys");
        assert!(
            grown <= before / 10,
            "{keys} keys: {before} and {grown} more"
        );
    }
}

#[test]
fn a_table_divided_for_its_keys_makes_room_as_they_come() {
    let hasher = KeyHasher::with_seeds([1, 2, 3, 4]);
    for keys in [1, 9, 600, 700, 10_000, 100_000] {
        let mut known = Table::with_capacity(keys);
        let (mut table, per_part) = Table::divided_for(keys);
        let segments = table.segments.len();
        assert!(table.memory_bytes() <= 50 * segments as u64, "{keys} keys");
        for n in 0..keys as u64 {
            let key = n.to_le_bytes();
            known.put(hasher.hash(&key), &key, b"", 0);
            let put = table.put_expected(hasher.hash(&key), &key, b"", 0, per_part);
            assert_eq!(put, Put::Inserted);
        }
        table.check();
        assert_eq!(table.segments.len(), segments, "{keys} keys");
        assert_eq!(table.len(), keys);
        assert_eq!(table.memory_bytes(), known.memory_bytes(), "{keys} keys");
    }
    let (table, per_part) = Table::divided_for(0);
    assert_eq!((table.memory_bytes(), per_part), (0, 0));
}

#[test]
fn a_scan_that_meets_large_values_ends_early() {
    let mut table = Table::new();
    let value = vec![7; 1 << 20];
    for n in 0u64..64 {
        let key = n.to_le_bytes();
        table.put(hasher().hash(&key), &key, &value, 0);
    }
    let (mut cursor, mut calls, mut seen) = (0, 0, BTreeSet::new());
    loop {
        let mut visited = 0;
        cursor = table.scan(cursor, &mut |_, entry| {
            visited += 1;
            seen.insert(entry.key.to_vec());
        });
        assert!(visited <= 2, "{visited} values of 1 MiB in one call");
        calls += 1;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), 64);
    assert!(calls >= 32, "{calls} calls");
}
