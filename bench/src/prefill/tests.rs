use super::*;

#[test]
fn keys_are_those_of_redis_benchmark() {
    assert_eq!(&key(0), b"key:000000000000");
    assert_eq!(&key(123_456_789_012), b"key:123456789012");
}

#[test]
fn values_are_stable_and_differ() {
    let values = Values::new(100);
    assert_eq!(values.get(5, 0), Values::new(100).get(5, 0));
    assert_eq!(values.get(5, 0).len(), 100);
    assert_ne!(values.get(5, 0), values.get(6, 0));
    assert_ne!(values.get(5, 0), values.get(5, 1));
    assert!(values.pool.iter().all(u8::is_ascii_graphic));
}
