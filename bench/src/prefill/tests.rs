use super::*;

#[test]
fn keys_are_those_of_redis_benchmark() {
    assert_eq!(&key(0), b"key:000000000000");
    assert_eq!(&key(123_456_789_012), b"key:123456789012");
}
