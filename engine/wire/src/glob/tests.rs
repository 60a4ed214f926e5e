use proptest::prelude::*;

use crate::limits::KEY_BYTES_MAX;

use super::*;

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let pattern = Pattern::new(pattern).expect("short enough");
    pattern.matches(text)
}

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

/// Seconds each for a matcher that compares the pattern at every place of the text.
#[test]
fn hostile_patterns_cost_no_more_than_others() {
    let text = b"a".repeat(KEY_BYTES_MAX);
    let half = PATTERN_BYTES_MAX / 2;
    let class = [b"[", &b"b".repeat(PATTERN_BYTES_MAX - 5)[..], b"]*"].concat();
    let patterns = [
        b"*a".repeat(half),
        [b"*", &b"a".repeat(PATTERN_BYTES_MAX - 2)[..], b"b"].concat(),
        [b"*", &b"?".repeat(PATTERN_BYTES_MAX - 2)[..], b"b"].concat(),
        [&b"*?".repeat(half - 1)[..], b"*b"].concat(),
        [b"*", &class[..], b"z"].concat(),
    ];
    for pattern in patterns {
        let compiled = Pattern::new(&pattern).expect("short enough");
        assert!(compiled.cost(text.len()) <= text.len() * 17);
        let matched = compiled.matches(&text);
        assert_eq!(
            matched,
            pattern.ends_with(b"*a"),
            "{}",
            pattern.escape_ascii()
        );
    }
}

#[test]
fn what_takes_more_steps_than_there_are_is_not_decided() {
    let long = "a".repeat(100);
    let patterns = [
        "*",
        "a*",
        "b*",
        "*a",
        "*b",
        "",
        "?",
        &long,
        &*format!("*{long}"),
    ];
    let texts = ["", "a", "b", "ab", &long, &*format!("{long}b")];
    for (pattern, text) in patterns.iter().flat_map(|p| texts.map(|t| (*p, t))) {
        let pattern = Pattern::new(pattern.as_bytes()).expect("short");
        let expected = pattern.matches(text.as_bytes());
        let mut is_decided = false;
        for most in 0..=2 * text.len() + 1 {
            let mut steps = most;
            let found = pattern.matches_within(text.as_bytes(), &mut steps);
            assert!(steps < most || most == 0 && found.is_none());
            assert!(found.is_none_or(|found| found == expected));
            assert!(found.is_some() || !is_decided, "with more steps as well");
            is_decided = found.is_some();
        }
        assert!(is_decided);
    }
    let mut steps = 1000;
    let end = Pattern::new(b"*b").expect("short");
    assert_eq!(end.matches_within(&[b'a'; 10_000], &mut steps), None);
    assert_eq!(end.matches_within(b"b", &mut steps), None, "none are left");
}

#[test]
fn a_pattern_is_at_most_a_kibibyte_long() {
    assert!(Pattern::new(&b"?".repeat(1024)).is_some_and(|all| all.matches(&[0; 1024])));
    assert!(Pattern::new(&b"?".repeat(1025)).is_none());
}

/// Hundreds of microseconds for a compiler that looks at each byte that an element takes.
#[test]
fn compiling_costs_about_the_length_of_the_pattern() {
    let patterns: [&[u8]; 7] = [
        b"?",
        b"[^]",
        b"[^a]",
        b"a",
        b"[\x80-\x7f]",
        b"[\xf0-\x05]",
        b"[acegikmoqsuwy]",
    ];
    for pattern in patterns {
        let (class, len) = element(pattern);
        assert_eq!(len, pattern.len());
        let edges = class.edges().count();
        assert!(edges <= 2 * len, "{} {edges}", pattern.escape_ascii());
    }
}

/// As with Redis on x86.
#[test]
fn ranges_are_of_signed_bytes() {
    let range = |byte: u8| matches(b"[a-\xff]", &[byte]);
    assert!(range(0) && range(b'a') && range(0xff));
    assert!(!range(b'b') && !range(0x80) && !range(0xfe));
    let high = |byte: u8| matches(b"[\x80-\xff]", &[byte]);
    assert!(high(0x80) && high(0xc3) && high(0xff) && !high(0x7f) && !high(0));
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
        common in prop::sample::select(vec![0usize, 62, 63, 64, 65, 130]),
    ) {
        // In front of both, so that the elements lie in any word.
        let (pattern, text) = ("c".repeat(common) + &tokens.concat(), "c".repeat(common) + &text);
        prop_assert_eq!(
            matches(pattern.as_bytes(), text.as_bytes()),
            naive(pattern.as_bytes(), text.as_bytes()),
            "{} {}", pattern, text
        );
    }

    #[test]
    fn a_range_is_every_byte_between_its_ends(first: u8, last: u8) {
        prop_assume!(first != b'^' && ![first, last].contains(&b'\\') && first != b']');
        let between = |byte: u8| {
            let (first, last, byte) = (first.cast_signed(), last.cast_signed(), byte.cast_signed());
            (first.min(last)..=first.max(last)).contains(&byte)
        };
        let (within, without) = ([b'[', first, b'-', last, b']'], [b'[', b'^', first, b'-', last, b']']);
        for byte in 0..=255 {
            prop_assert_eq!(matches(&within, &[byte]), between(byte));
            prop_assert_eq!(matches(&without, &[byte]), !between(byte));
        }
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
