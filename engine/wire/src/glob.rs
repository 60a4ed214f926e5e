//! Glob patterns as KEYS and SCAN take them.

/// Whether the whole of `text` matches `pattern`, byte by byte and case-sensitively.
///
/// `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^abc]` one byte (not) in the class, `\` takes
/// the next byte literally. Semantics are those of Redis's `stringmatchlen`, its treatment of
/// unclosed classes included, except that `*` matches the empty text too. Runs in O(pattern * text) whatever the pattern: only the last `*`
/// is ever taken up again, because an earlier one could only match longer in vain.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last `*`, and the text position from which its successor is to be tried next.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if let Some(b'*') = pattern.get(p) {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if p == pattern.len() && t == text.len() {
            return true;
        }
        if p < pattern.len()
            && let Some(&byte) = text.get(t)
            && let (true, len) = one(&pattern[p..], byte)
        {
            p += len;
            t += 1;
            continue;
        }
        match star {
            Some((after, from)) if from < text.len() => {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// Whether a pattern has no special bytes, so that only the text equal to it matches.
#[must_use]
pub fn is_literal(pattern: &[u8]) -> bool {
    !pattern
        .iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

/// Matches `byte` with the first element of a pattern that is not empty; answers the element's
/// length too.
fn one(pattern: &[u8], byte: u8) -> (bool, usize) {
    match pattern {
        [b'?', ..] => (true, 1),
        [b'[', class @ ..] => {
            let (matched, len) = in_class(class, byte);
            (matched, 1 + len)
        }
        [b'\\', literal, ..] => (*literal == byte, 2),
        [literal, ..] => (*literal == byte, 1),
        [] => (false, 0),
    }
}

/// Matches `byte` with the class whose `[` was just read; answers the length up to its `]`.
fn in_class(class: &[u8], byte: u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &class[at..] {
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [] => break,
            [first, b'-', last, ..] => {
                let (low, high) = (first.min(last), first.max(last));
                found |= (low..=high).contains(&&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests;
