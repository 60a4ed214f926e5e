use super::*;

#[test]
fn logarithms_are_those_of_the_library() {
    let mut x = 1_u64;
    for _ in 0..1000 {
        x = mix(x);
        for shift in [0, 1, 13, 40] {
            let x = x >> shift | 0x7ff;
            let theirs = (x as f64 / 2.0_f64.powi(64)).ln();
            assert!((ln(x) - theirs).abs() < 1e-7 * (1.0 + theirs.abs()), "{x}");
        }
    }
}
