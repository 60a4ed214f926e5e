use super::*;

#[test]
fn waits_double_up_to_the_longest_and_begin_anew_after_success() {
    let mut backoff = Backoff::new(1);
    let mut ceiling = BACKOFF_MIN;
    for _ in 0..20 {
        let wait = backoff.next_wait();
        assert!(wait <= ceiling && wait >= ceiling / 2, "{wait:?}");
        ceiling = (ceiling * 2).min(BACKOFF_MAX);
    }
    assert_eq!(ceiling, BACKOFF_MAX);
    backoff.reset();
    assert!(backoff.next_wait() <= BACKOFF_MIN);
}

#[test]
fn a_seed_fixes_the_waits_and_seeds_differ() {
    let waits = |seed| {
        let mut backoff = Backoff::new(seed);
        std::array::from_fn::<_, 8, _>(|_| backoff.next_wait())
    };
    assert_eq!(waits(7), waits(7));
    assert_ne!(waits(7), waits(8));
}
