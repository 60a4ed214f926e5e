use proptest::prelude::*;

use super::*;

type Owned = (Vec<u8>, Vec<u8>, u64);

fn blocks_of(entries: &[Owned]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let mut builder = BlockBuilder::new();
    for (key, value, at) in entries {
        builder.push(key, value, *at, |block| blocks.push(block.to_vec()));
    }
    builder.finish(|block| blocks.push(block.to_vec()));
    assert!(builder.is_empty());
    blocks
}

fn entries_of(blocks: &[Vec<u8>]) -> Result<(Vec<Owned>, bool), WireError> {
    let mut entries = Vec::new();
    let mut assembler = Assembler::new();
    for block in blocks {
        assembler.feed(block, |entry| {
            entries.push((entry.key.to_vec(), entry.value.to_vec(), entry.expire_at_ms));
        })?;
    }
    Ok((entries, assembler.is_complete()))
}

/// Re-computes the checksum after a change, as damage that passes it would look.
fn resealed(mut block: Vec<u8>, change: impl FnOnce(&mut BlockHeader)) -> Vec<u8> {
    let (head, body) = block.split_at_mut(BLOCK_HEADER_BYTES);
    let mut header: BlockHeader = bytemuck::pod_read_unaligned(head);
    change(&mut header);
    header.crc = header.checksum(body);
    head.copy_from_slice(bytemuck::bytes_of(&header));
    block
}

/// CRC-32 as gzip's, one bit at a time.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| {
            (crc >> 1) ^ (0xEDB8_8320 * (crc & 1))
        })
    })
}

/// A block as the drawing has it, field by field.
fn block_by_hand(kind: u8, count: u16, index: u32, total: u32, body: &[u8]) -> Vec<u8> {
    let mut block = [
        b"EphB".as_slice(),
        &[0; 4],
        &[kind, 0],
        &count.to_le_bytes(),
        &(body.len() as u32).to_le_bytes(),
        &index.to_le_bytes(),
        &total.to_le_bytes(),
        &[0; 8],
        body,
    ]
    .concat();
    let crc = crc32(&block);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
    block
}

fn entry_by_hand((key, value, expire_at_ms): &Owned) -> Vec<u8> {
    [
        (key.len() as u32).to_le_bytes().as_slice(),
        &(value.len() as u32).to_le_bytes(),
        &expire_at_ms.to_le_bytes(),
        &[0],
        key,
        value,
    ]
    .concat()
}

/// The blocks of `entries` with at most `count_max` of them in one.
fn blocks_by_hand(entries: &[Owned], count_max: u16) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let (mut body, mut count) = (Vec::new(), 0);
    for entry in entries.iter().map(entry_by_hand) {
        if count == count_max || count > 0 && 32 + body.len() + entry.len() > 4096 {
            blocks.push(block_by_hand(0, count, 0, 0, &body));
            (body, count) = (Vec::new(), 0);
        }
        if 32 + entry.len() > 4096 {
            let pieces = entry.chunks(4096 - 32).zip(0..);
            let total = entry.len() as u32;
            blocks.extend(pieces.map(|(piece, index)| block_by_hand(1, 1, index, total, piece)));
        } else {
            body.extend(entry);
            count += 1;
        }
    }
    if count > 0 {
        blocks.push(block_by_hand(0, count, 0, 0, &body));
    }
    blocks
}

#[test]
fn the_checksum_is_that_of_gzip() {
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
}

#[test]
fn the_layout_is_fixed() {
    let blocks = blocks_of(&[(b"key".to_vec(), b"value".to_vec(), 0x0102)]);
    let [block] = &blocks[..] else {
        panic!("{} blocks", blocks.len())
    };
    assert_eq!(&block[..4], b"EphB");
    assert_eq!(&block[8..16], [0, 0, 1, 0, 25, 0, 0, 0]);
    assert_eq!(&block[16..32], [0; 16]);
    assert_eq!(
        &block[32..],
        b"\x03\0\0\0\x05\0\0\0\x02\x01\0\0\0\0\0\0\0keyvalue"
    );
    let mut zeroed = block.clone();
    zeroed[4..8].fill(0);
    assert_eq!(block[4..8], crc32fast::hash(&zeroed).to_le_bytes());
}

#[test]
fn sizes_around_a_block() {
    let fits = BLOCK_BODY_BYTES_MAX - ENTRY_HEADER_BYTES - 1;
    for (value_len, blocks) in [
        (fits, 1),
        (fits + 1, 2),
        (fits + BLOCK_BODY_BYTES_MAX, 2),
        (fits + BLOCK_BODY_BYTES_MAX + 1, 3),
    ] {
        let entries = [(b"k".to_vec(), vec![7; value_len], 5)];
        let built = blocks_of(&entries);
        assert_eq!(built.len(), blocks, "{value_len}");
        assert!(built.iter().all(|block| block.len() <= BLOCK_BYTES));
        assert_eq!(entries_of(&built), Ok((entries.to_vec(), true)));
    }
}

#[test]
fn the_largest_entry_comes_back() {
    let entries = [
        (b"small".to_vec(), b"1".to_vec(), 0),
        (
            vec![b'k'; STORED_KEY_BYTES_MAX],
            vec![b'v'; VALUE_BYTES_MAX],
            u64::MAX,
        ),
        (b"after".to_vec(), b"2".to_vec(), 0),
    ];
    assert_eq!(
        entries_of(&blocks_of(&entries)),
        Ok((entries.to_vec(), true))
    );
}

#[test]
fn lost_repeated_and_swapped_fragments_are_noticed() {
    let blocks = blocks_of(&[
        (b"a".to_vec(), vec![1; 10_000], 0),
        (b"b".to_vec(), vec![2; 10], 0),
        (b"c".to_vec(), vec![3; 10_000], 0),
    ]);
    assert_eq!(blocks.len(), 7);
    for lost in [0, 1, 2, 4, 5] {
        let mut damaged = blocks.clone();
        damaged.remove(lost);
        assert!(entries_of(&damaged).is_err(), "lost {lost}");
    }
    let mut cut = blocks.clone();
    cut.pop();
    assert!(matches!(entries_of(&cut), Ok((entries, false)) if entries.len() == 2));
    for twice in [0, 1, 2, 4, 5, 6] {
        let mut damaged = blocks.clone();
        damaged.insert(twice, blocks[twice].clone());
        assert!(entries_of(&damaged).is_err(), "twice {twice}");
    }
    for first in [0, 1, 2, 4, 5] {
        let mut damaged = blocks.clone();
        damaged.swap(first, first + 1);
        assert!(entries_of(&damaged).is_err(), "swapped {first}");
    }
}

#[test]
fn wrong_fields_under_a_right_checksum_are_refused() {
    let whole = &blocks_of(&[(b"a".to_vec(), b"b".to_vec(), 0)])[0];
    let fragment = &blocks_of(&[(b"a".to_vec(), vec![1; 5_000], 0)])[0];
    type Change = fn(&mut BlockHeader);
    let changes: [(&Vec<u8>, Change); 10] = [
        (whole, |header| header.kind = 2),
        (whole, |header| header.zero = 1),
        (whole, |header| header.count = 0),
        (whole, |header| header.count = 2),
        (whole, |header| header.index = 1),
        (whole, |header| header.reserved[1] = 1),
        (fragment, |header| header.count = 2),
        (fragment, |header| header.total = 100),
        (fragment, |header| header.total = u32::MAX),
        (fragment, |header| header.index = 1),
    ];
    for (at, (block, change)) in changes.into_iter().enumerate() {
        let damaged = resealed(block.clone(), change);
        assert!(
            Assembler::new().feed(&damaged, |_| ()).is_err(),
            "change {at}"
        );
    }
}

fn any_entries() -> impl Strategy<Value = Vec<Owned>> {
    let value_len = prop_oneof![6 => 0usize..200, 2 => 3_900usize..4_200, 1 => 0usize..30_000];
    let value = (value_len, any::<u8>())
        .prop_map(|(len, seed)| (0..len).map(|at| seed.wrapping_add(at as u8)).collect());
    let key = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec((key, value, any::<u64>()), 0..60)
}

proptest! {
    #[test]
    fn blocks_are_built_and_read_as_drawn(entries in any_entries(), count_max in 1u16..10) {
        prop_assert_eq!(blocks_of(&entries), blocks_by_hand(&entries, u16::MAX));
        let sparse = blocks_by_hand(&entries, count_max);
        prop_assert_eq!(entries_of(&sparse), Ok((entries, true)));
    }

    #[test]
    fn entries_come_back_in_order(entries in any_entries()) {
        let blocks = blocks_of(&entries);
        prop_assert!(blocks.iter().all(|block| block.len() <= BLOCK_BYTES));
        prop_assert_eq!(entries_of(&blocks), Ok((entries, true)));
    }

    #[test]
    fn a_cut_or_flipped_block_is_never_accepted(value_len in 0usize..300, seed: u8) {
        let block = &blocks_of(&[(vec![seed; 9], vec![!seed; value_len], seed.into())])[0];
        for end in 0..block.len() {
            prop_assert!(Assembler::new().feed(&block[..end], |_| ()).is_err());
        }
        let mut flipped = block.clone();
        for bit in 0..block.len() * 8 {
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Assembler::new().feed(&flipped, |_| ()).is_err(), "bit {bit}");
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn any_body_under_a_right_checksum_never_panics(
        mut blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 32..120), 1..4),
        kind in 0u8..3,
        count in 0u16..4,
        total: u32,
    ) {
        let mut assembler = Assembler::new();
        for (index, block) in blocks.iter_mut().enumerate() {
            // Lengths small enough to be believed now and then.
            for at in [33, 34, 35, 37, 38, 39] {
                if let Some(byte) = block.get_mut(at) {
                    *byte = 0;
                }
            }
            let length = (block.len() - BLOCK_HEADER_BYTES) as u32;
            let block = resealed(block.clone(), |header| {
                *header = BlockHeader {
                    magic: MAGIC, crc: 0, kind, zero: 0, count, length,
                    index: index as u32, total, reserved: [0; 2],
                };
            });
            let _ = assembler.feed(&block, |_| ());
        }
    }

    #[test]
    fn any_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(Assembler::new().feed(&noise, |_| ()).is_err());
    }
}
