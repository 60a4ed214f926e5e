use super::*;

#[test]
fn bytes_are_scaled_by_1024() {
    for (number, expected) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (u64::MAX, "16.0 EiB"),
    ] {
        assert_eq!(bytes(number), expected);
    }
}

#[test]
fn durations_are_in_their_largest_unit() {
    for (ms, expected) in [
        (0, "0 ms ago"),
        (999, "999 ms ago"),
        (1_000, "1.0 s ago"),
        (59_999, "59.9 s ago"),
        (60_000, "1 min ago"),
        (3_599_999, "59 min ago"),
        (3_600_000, "1 h ago"),
        (172_799_999, "47 h ago"),
        (172_800_000, "2 days ago"),
    ] {
        assert_eq!(ago(ms), expected);
    }
}

#[test]
fn rates_and_short_times_have_their_unit() {
    assert_eq!(rate(0), "0.0 MB/s");
    assert_eq!(rate(34_149_000), "34.1 MB/s");
    assert_eq!(short(999), "999 us");
    assert_eq!(short(1_249), "1.2 ms");
    assert_eq!(short(2_500_000), "2.5 s");
}

#[test]
fn one_is_singular() {
    assert_eq!(count(0, "key"), "0 keys");
    assert_eq!(count(1, "key"), "1 key");
    assert_eq!(count(2, "key"), "2 keys");
}
