use super::*;

/// Of SMHasher's code and Guava's tests.
#[test]
fn hashes_are_those_of_the_original() {
    let of = |text: &str, seed| x64_128(text.as_bytes(), seed);
    assert_eq!(of("", 0), [0, 0]);
    assert_eq!(
        of("hello", 0),
        [0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19]
    );
    let fox = "The quick brown fox jumps over the lazy dog";
    assert_eq!(of(fox, 0), [0xe34b_bc7b_bc07_1b6c, 0x7a43_3ca9_c49a_9347]);
    assert_ne!(of(fox, 1), of(fox, 0));
}
