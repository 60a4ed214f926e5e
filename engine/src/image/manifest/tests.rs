use proptest::prelude::*;

use super::*;

fn sample() -> Manifest {
    Manifest {
        image: ImageId {
            partition: PartitionId(513),
            epoch: Epoch(7),
            generation: Generation(9),
        },
        log: [0xab; 16],
        lsn_start: Lsn(100),
        lsn_end: Lsn(220),
        seq_start: 55,
        count: 1000,
        digest: [u64::MAX, 3],
        blocks: 12,
        bytes: 45_000,
        created_ms: 1_700_000_000_123,
    }
}

#[test]
fn stored_form_is_pinned() {
    let bytes = sample().encode();
    assert_eq!(&bytes[..4], b"EPHM");
    assert_eq!(bytes[8..12], [1, 0, 1, 2]);
    assert_eq!(bytes[48..56], 100u64.to_le_bytes());
    assert_eq!(bytes[112..], 1_700_000_000_123u64.to_le_bytes());
    assert_eq!(Manifest::decode(&bytes), Ok(sample()));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = sample().encode();
    for bit in 0..good.len() * 8 {
        let mut bad = good;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Manifest::decode(&bad).is_err(), "bit {bit} went unnoticed");
    }
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = sample().encode();
    bytes[8] = 2;
    let crc = checksum(&bytes);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Manifest::decode(&bytes), Err(ManifestError::Version(2)));
    assert_eq!(
        Manifest::decode(&bytes[1..]),
        Err(ManifestError::Length(119))
    );
}

#[test]
fn numbers_that_leave_no_room_for_the_next_are_refused() {
    let mut manifest = sample();
    manifest.image.generation = Generation(u64::MAX);
    let refused = Manifest::decode(&manifest.encode());
    assert_eq!(refused, Err(ManifestError::Field("generation")));
    let mut manifest = sample();
    manifest.lsn_end = Lsn(u64::MAX);
    let refused = Manifest::decode(&manifest.encode());
    assert_eq!(refused, Err(ManifestError::Field("LSN")));
    let mut manifest = sample();
    manifest.count = u64::MAX;
    assert!(Manifest::decode(&manifest.encode()).is_err());
}

proptest! {
    #[test]
    fn decode_takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Manifest::decode(&bytes).is_err());
        if let Some((epoch, generation, sequence)) = parse_extent_key(&bytes) {
            prop_assert_eq!(&extent_key(epoch, generation, sequence)[..], &bytes[..]);
        }
    }

    #[test]
    fn extent_keys_sort_like_their_numbers(a in any::<(u64, u64, u64)>(), b in any::<(u64, u64, u64)>()) {
        let key = |(e, g, s)| extent_key(Epoch(e), Generation(g), s);
        prop_assert_eq!(a.cmp(&b), key(a).cmp(&key(b)));
        prop_assert_eq!(parse_extent_key(&key(a)), Some((Epoch(a.0), Generation(a.1), a.2)));
    }
}
