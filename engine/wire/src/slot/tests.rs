use proptest::prelude::*;

use super::*;

/// One bit at a time, straight from the definition of the polynomial.
fn crc16_bitwise(data: &[u8]) -> u16 {
    let mut crc = 0u16;
    for &byte in data {
        for bit in (0..8).rev() {
            let carry = (crc >> 15) as u8 ^ (byte >> bit & 1);
            crc <<= 1;
            if carry == 1 {
                crc ^= 0x1021;
            }
        }
    }
    crc
}

#[test]
fn check_value_of_the_cluster_specification() {
    assert_eq!(crc16(b"123456789"), 0x31C3);
}

#[test]
fn golden_slots() {
    let golden: [(&[u8], u16); 12] = [
        (b"", 0),
        (b"foo", 12182),
        (b"bar", 5061),
        (b"hello", 866),
        (b"123456789", 12739),
        (b"somekey", 11058),
        (b"foo{hash_tag}", 2515),
        (b"bar{hash_tag}", 2515),
        (b"{user1000}.following", 3443),
        (b"{user1000}.followers", 3443),
        (b"key:000000000000", 13053),
        (&[0xFF; 16], 65),
    ];
    for (key, slot) in golden {
        assert_eq!(slot_of(key), Slot(slot), "{}", key.escape_ascii());
    }
}

#[test]
fn hash_tags_of_the_cluster_specification() {
    let cases: [(&str, &str); 9] = [
        ("{user1000}.following", "user1000"),
        ("foo{}{bar}", "foo{}{bar}"),
        ("foo{{bar}}zap", "{bar"),
        ("foo{bar}{zap}", "bar"),
        ("foo{bar", "foo{bar"),
        ("foo}bar{", "foo}bar{"),
        ("}{a}", "a"),
        ("{}", "{}"),
        ("", ""),
    ];
    for (key, tag) in cases {
        assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
    }
}

#[test]
fn golden_partitions() {
    let nine = Partitioning::new(9).unwrap();
    assert_eq!(nine.partition_of(Slot(0)), PartitionId(0));
    assert_eq!(nine.partition_of(Slot(1820)), PartitionId(0));
    assert_eq!(nine.partition_of(Slot(1821)), PartitionId(1));
    assert_eq!(nine.partition_of(Slot(12182)), PartitionId(6));
    assert_eq!(nine.partition_of(Slot(16383)), PartitionId(8));
    assert_eq!(nine.slots_of(PartitionId(0)), 0..=1820);
    assert_eq!(nine.slots_of(PartitionId(8)), 14564..=16383);
    let all = Partitioning::new(1024).unwrap();
    assert_eq!(all.partition_of(Slot(12182)), PartitionId(761));
    assert_eq!(all.slots_of(PartitionId(761)), 12176..=12191);
}

#[test]
fn partition_count_has_bounds() {
    assert_eq!(Partitioning::new(0), Err(PartitionCountError(0)));
    assert_eq!(Partitioning::new(16385), Err(PartitionCountError(16385)));
    assert_eq!(
        Partitioning::new(16384)
            .unwrap()
            .slots_of(PartitionId(16383)),
        16383..=16383
    );
    assert_eq!(
        Partitioning::new(1).unwrap().slots_of(PartitionId(0)),
        0..=16383
    );
}

#[test]
fn ranges_tile_the_slots_for_every_count() {
    for count in (1..=300).chain([511, 512, 1000, 1024, 4097, 9999, 16383, 16384]) {
        let partitioning = Partitioning::new(count).unwrap();
        let mut next = 0;
        for partition in partitioning.partitions() {
            let slots = partitioning.slots_of(partition);
            assert_eq!(*slots.start(), next);
            assert!(slots.start() <= slots.end());
            next = slots.end() + 1;
            for slot in slots {
                assert_eq!(partitioning.partition_of(Slot(slot)), partition);
            }
        }
        assert_eq!(next, 16384);
    }
}

proptest! {
    #[test]
    fn crc16_agrees_with_the_bitwise_definition(data: Vec<u8>) {
        prop_assert_eq!(crc16(&data), crc16_bitwise(&data));
    }

    #[test]
    fn keys_with_one_tag_share_a_slot(tag in "[a-z0-9]{1,12}", left in "[a-z}]{0,9}", right: Vec<u8>) {
        let mut key = format!("{left}{{{tag}}}").into_bytes();
        key.extend_from_slice(&right);
        prop_assert_eq!(slot_of(&key), Slot(crc16_bitwise(tag.as_bytes()) % 16384));
    }
}
