use super::*;

#[test]
fn only_yes_is_a_yes() {
    for (typed, expected) in [
        ("y\n", true),
        ("YES\n", true),
        (" yes \nno\n", true),
        ("n\n", false),
        ("\n", false),
        ("yes please\n", false),
        ("", false),
    ] {
        let mut shown = Vec::new();
        assert_eq!(confirm("Sure?", typed.as_bytes(), &mut shown), expected);
        assert_eq!(shown, b"Sure? [y/N] ");
    }
    assert!(!confirm("Sure?", &b"\xff\xfe\n"[..], Vec::new()));
}
