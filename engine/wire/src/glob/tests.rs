use proptest::prelude::*;

use super::*;

#[test]
fn cases_as_redis_answers_them() {
    let cases: [(&str, &str, bool); 44] = [
        ("", "", true),
        ("", "a", false),
        ("*", "", true),
        ("*", "anything", true),
        ("**", "a", true),
        ("a*", "a", true),
        ("*a", "ba", true),
        ("*a", "ab", false),
        ("a*b*c", "a1b2c", true),
        ("a*b*c", "a1c2b", false),
        ("*ab", "aab", true),
        ("h?llo", "hello", true),
        ("h?llo", "hllo", false),
        ("?", "", false),
        ("h*llo", "heeeello", true),
        ("h[ae]llo", "hallo", true),
        ("h[ae]llo", "hillo", false),
        ("h[^e]llo", "hallo", true),
        ("h[^e]llo", "hello", false),
        ("h[a-b]llo", "hbllo", true),
        ("h[b-a]llo", "hallo", true),
        ("h[a-b]llo", "hcllo", false),
        ("[a-]", "-", false),
        ("[a-]x", "]x", false),
        ("[a-]", "]", true),
        ("[-a]", "-", true),
        ("[^a-c]", "b", false),
        ("[]", "a", false),
        ("[^]", "a", true),
        ("[", "[", false),
        ("[a", "a", true),
        ("[^", "a", true),
        ("[a-", "-", true),
        ("[\\]]", "]", true),
        ("[\\", "\\", true),
        ("[\\-a]", "-", true),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("\\", "\\", true),
        ("a\\?", "a?", true),
        ("a\\?", "ab", false),
        ("user:*:name", "user:1000:name", true),
        ("{a}*", "{a}:1", true),
        ("A", "a", false),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(
            matches(pattern.as_bytes(), text.as_bytes()),
            expected,
            "{pattern} {text}"
        );
    }
}

#[test]
fn literal_patterns_are_recognised() {
    assert!(is_literal(b"user:1]"));
    for pattern in [&b"a*"[..], b"a?", b"[a", b"\\a"] {
        assert!(!is_literal(pattern));
    }
}

/// With a matcher that backtracks to every `*` this never ends.
#[test]
fn hostile_patterns_do_not_blow_up() {
    let pattern = b"*a".repeat(5_000);
    let mut text = b"a".repeat(20_000);
    text.push(b'b');
    assert!(!matches(&pattern, &text));
    assert!(!matches(
        &[b"*a*".repeat(5_000), b"c".to_vec()].concat(),
        &text
    ));
}

/// Tries every length for every `*`.
fn naive(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
        [b'?', rest @ ..] => !text.is_empty() && naive(rest, &text[1..]),
        [b'[', low, b'-', high, b']', rest @ ..] => {
            text.first()
                .is_some_and(|byte| (low..=high).contains(&byte))
                && naive(rest, &text[1..])
        }
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            text.first() == Some(literal) && naive(rest, &text[1..])
        }
    }
}

proptest! {
    #[test]
    fn agrees_with_trying_everything(
        tokens in prop::collection::vec(prop::sample::select(vec!["*", "?", "a", "b", "[a-b]", "\\*", "\\a"]), 0..8),
        text in "[abc*]{0,10}",
    ) {
        let pattern = tokens.concat();
        prop_assert_eq!(
            matches(pattern.as_bytes(), text.as_bytes()),
            naive(pattern.as_bytes(), text.as_bytes()),
            "{} {}", pattern, text
        );
    }

    #[test]
    fn any_pattern_is_answered(pattern in "[*?a\\[\\]^\\\\-]{0,20}", text in "[a\\]-]{0,20}", noise: Vec<u8>) {
        let _ = matches(pattern.as_bytes(), text.as_bytes());
        let _ = matches(&noise, text.as_bytes());
    }

    #[test]
    fn an_escaped_text_matches_itself_alone(text: Vec<u8>, other: Vec<u8>) {
        let escaped: Vec<u8> = text.iter().flat_map(|&byte| [b'\\', byte]).collect();
        prop_assert!(matches(&escaped, &text));
        prop_assert_eq!(matches(&escaped, &other), text == other);
    }
}
