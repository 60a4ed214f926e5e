use super::super::{KeyHasher, Table};
use super::*;

#[test]
fn size_classes_are_the_smallest_that_fit() {
    let mut previous = 0;
    for code in 0..=SizeClass::holding(MAX_BYTES).code() {
        let bytes = SizeClass::from_code(code).bytes();
        assert!(bytes > previous && bytes.is_multiple_of(16));
        assert_eq!(SizeClass::holding(bytes).code(), code);
        assert_eq!(SizeClass::holding(previous + 1).code(), code);
        previous = bytes;
    }
    assert_eq!(previous, MAX_BYTES);
}

#[test]
fn memory_per_key_stays_below_the_goal_at_every_size() {
    let hasher = KeyHasher::with_seeds([1, 2, 3, 4]);
    let mut table = Table::new();
    for n in 0..if cfg!(miri) { 200_u64 } else { 100_000 } {
        let key = format!("key:{n:012}");
        table.put(hasher.hash(key.as_bytes()), key.as_bytes(), &[b'x'; 100], 0);
        let per_key = table.memory_bytes() as f64 / (n + 1) as f64;
        assert!(n < 64 || per_key < 146.0, "{per_key} bytes per key at {n}");
    }
    table.check();
}

#[test]
fn larger_entries_waste_at_most_a_sixteenth() {
    for value_bytes in (1_024..65_500).step_by(if cfg!(miri) { 5_000 } else { 37 }) {
        let mut table = Table::new();
        table.put(1, b"", b"", 0);
        let without = table.memory_bytes();
        table.put(1, b"", &vec![0; value_bytes], 0);
        let header = 40;
        let most = (value_bytes + header) as u64 * 17 / 16 + 16;
        let taken = table.memory_bytes() - without;
        assert!(taken <= most, "{taken} for {value_bytes}");
    }
}

#[test]
fn overwriting_with_a_similar_size_keeps_the_allocation() {
    let mut table = Table::new();
    table.put(1, b"key", &[1; 100], 0);
    let memory = table.memory_bytes();
    let before = table.get(1, b"key").map(|entry| entry.key.as_ptr());
    table.put(1, b"key", &[2; 90], 0);
    assert_eq!(table.get(1, b"key").map(|entry| entry.key.as_ptr()), before);
    assert_eq!(table.memory_bytes(), memory);
    table.put(1, b"key", &[2; 10], 0);
    assert!(table.memory_bytes() < memory);
}

#[test]
fn overwriting_a_larger_value_with_up_to_an_eighth_less_keeps_the_allocation() {
    let mut table = Table::new();
    for most in [1_100, 5_000, 16_384, 60_000] {
        table.put(1, b"key", &vec![1; most], 0);
        let address = |table: &Table| table.get(1, b"key").map(|entry| entry.key.as_ptr());
        let (memory, before) = (table.memory_bytes(), address(&table));
        for less in (0..most / 9).step_by(most / 50) {
            table.put(1, b"key", &vec![2; most - less], 0);
            assert_eq!(address(&table), before, "{less} of {most} less");
        }
        assert_eq!(table.memory_bytes(), memory);
        table.put(1, b"key", &vec![3; most - most / 5], 0);
        assert!(table.memory_bytes() < memory);
    }
}
