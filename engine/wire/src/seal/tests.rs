use super::*;

/// The ends of a link.
fn ends() -> (Seals, Seals) {
    let key = |byte| Zeroizing::new([byte; KEY_BYTES]);
    (Seals::new(key(1), key(2)), Seals::new(key(2), key(1)))
}

/// Everything that these bytes, which are whole records, say.
fn opened(opener: &mut Opener, bytes: &[u8]) -> Result<Vec<u8>, SealError> {
    let (mut bytes, mut at, mut plain) = (bytes.to_vec(), 0, Vec::new());
    while at < bytes.len() {
        let (range, len) = opener.open(&mut bytes[at..])?.expect("a whole record");
        plain.extend_from_slice(&bytes[at + range.start..at + range.end]);
        at += len;
    }
    Ok(plain)
}

#[test]
fn what_one_end_seals_the_other_one_opens_in_both_directions() {
    let (mut a, mut b) = ends();
    for len in [
        0,
        1,
        15,
        16,
        1000,
        RECORD_BYTES_MAX,
        RECORD_BYTES_MAX + 1,
        300_000,
    ] {
        let plain: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        for (from, to) in [
            (&mut a.sealer, &mut b.opener),
            (&mut b.sealer, &mut a.opener),
        ] {
            let mut sealed = Vec::new();
            from.seal(&plain, &mut sealed);
            let records = len.div_ceil(RECORD_BYTES_MAX);
            assert_eq!(sealed.len(), len + records * RECORD_OVERHEAD_BYTES);
            assert!(opened(to, &sealed).expect("a record") == plain);
        }
    }
}

#[test]
fn a_part_of_a_record_says_nothing_yet() {
    let (mut a, mut b) = ends();
    let mut sealed = Vec::new();
    a.sealer.seal(b"some words", &mut sealed);
    for len in 0..sealed.len() {
        let mut part = sealed[..len].to_vec();
        assert_eq!(b.opener.open(&mut part), Ok(None), "{len}");
        assert_eq!(part, sealed[..len]);
    }
    assert_eq!(
        opened(&mut b.opener, &sealed).expect("whole"),
        b"some words"
    );
}

#[test]
fn what_was_changed_repeated_left_out_or_sent_back_is_refused() {
    let sealed = |count: usize| {
        let (mut a, _) = ends();
        let records = (0..count).map(|_| {
            let mut record = Vec::new();
            a.sealer.seal(b"the same words", &mut record);
            record
        });
        records.collect::<Vec<_>>()
    };
    let records = sealed(3);
    assert_ne!(records[0], records[1]);
    for bit in 0..8 * records[0].len() {
        let (_, mut b) = ends();
        let mut changed = records[0].clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        // A longer one may be incomplete.
        changed.extend([0; 300]);
        let opened = b.opener.open(&mut changed);
        assert!(!matches!(opened, Ok(Some(_))), "bit {bit}: {opened:?}");
    }
    for order in [&[1][..], &[0, 0], &[0, 2], &[1, 0]] {
        let (_, mut b) = ends();
        let bytes: Vec<u8> = order.iter().flat_map(|n| records[*n].clone()).collect();
        assert_eq!(
            opened(&mut b.opener, &bytes),
            Err(SealError::Forged),
            "{order:?}"
        );
    }
    let (mut a, _) = ends();
    assert_eq!(opened(&mut a.opener, &records[0]), Err(SealError::Forged));
    let mut long = u32::MAX.to_le_bytes().to_vec();
    let refused = SealError::Length(u32::MAX as usize);
    assert_eq!(a.opener.open(&mut long), Err(refused));
}

#[test]
fn keys_change_after_so_many_records_at_both_ends() {
    let (mut a, mut b) = ends();
    let before = a.sealer.0.bytes.clone();
    for key in [&mut a.sealer.0, &mut b.opener.0] {
        key.next = RECORDS_PER_KEY - 1;
    }
    for n in 0..3 {
        let mut sealed = Vec::new();
        a.sealer.seal(&[n; 100], &mut sealed);
        assert_eq!(opened(&mut b.opener, &sealed).expect("a record"), [n; 100]);
        assert_eq!(*a.sealer.0.bytes == *before, n == 0);
    }
    assert_eq!((a.sealer.0.next, b.opener.0.next), (2, 2));
}

#[test]
fn nothing_of_a_key_is_printed() {
    let (a, _) = ends();
    let printed = format!("{a:?}");
    assert_eq!(printed, "Seals { sealer: Sealer(..), opener: Opener(..) }");
}
