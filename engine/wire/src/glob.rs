//! Glob patterns as KEYS and SCAN take them.

use crate::limits::PATTERN_BYTES_MAX;

/// A pattern, compiled: `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^abc]` one byte (not) in the class, `\`
/// takes the next byte literally.
///
/// Semantics are those of Redis's `stringmatchlen`, its treatment of unclosed classes and its signed ranges
/// included, except that `*` matches the empty text too.
///
/// An element is whatever takes one byte. All ways to match are followed at once, as the set of numbers of elements
/// that may have been matched: [`Pattern::cost`] steps whatever the pattern, with neither backtracking nor a way
/// for a pattern to take longer than another one of its length.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// For each byte `words` words: bit i says that element i takes the byte.
    rows: Vec<u64>,
    /// Bit i says that a `*` stands before element i, or at the end.
    stars: Vec<u64>,
    words: usize,
    elements: usize,
}

/// Words of the largest set: an element takes at least a byte of the pattern.
const WORDS_MAX: usize = PATTERN_BYTES_MAX / 64 + 1;

impl Pattern {
    /// Compiles a pattern; `None` when it is longer than [`PATTERN_BYTES_MAX`].
    #[must_use]
    pub fn new(pattern: &[u8]) -> Option<Pattern> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return None;
        }
        let mut elements = Vec::with_capacity(pattern.len());
        let mut stars = vec![0u64; WORDS_MAX];
        let mut rest = pattern;
        while let Some(&byte) = rest.first() {
            let len = if byte == b'*' {
                set_bit(&mut stars, elements.len());
                1
            } else {
                let (class, len) = element(rest);
                elements.push(class);
                len
            };
            rest = rest.get(len..).unwrap_or_default();
        }
        let words = elements.len() / 64 + 1;
        stars.truncate(words);
        let mut rows = vec![0; 256 * words];
        for (index, class) in elements.iter().enumerate() {
            let places = class.edges().map(|byte| byte * words * 64 + index);
            places.for_each(|place| set_bit(&mut rows, place));
        }
        // Where an element begins, or ceases, to take bytes becomes which bytes it takes.
        for at in words..rows.len() {
            let before = rows.get(at - words).copied().unwrap_or(0);
            if let Some(word) = rows.get_mut(at) {
                *word ^= before;
            }
        }
        Some(Pattern {
            rows,
            stars,
            words,
            elements: elements.len(),
        })
    }

    /// Whether the whole of `text` matches, byte by byte and case-sensitively.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.compare(text).0
    }

    /// [`Pattern::matches`] within so many steps, from which those are taken that it has taken; `None` if it takes more.
    #[must_use]
    pub fn matches_within(&self, text: &[u8], steps: &mut usize) -> Option<bool> {
        let left = steps.checked_sub(1)?;
        let part = text.get(..left / self.words).unwrap_or(text);
        let (matches, compared) = self.compare(part);
        *steps = left - compared * self.words;
        let is_decided = compared < part.len() || part.len() == text.len();
        is_decided.then_some(matches)
    }

    /// Whether it matches, and how many bytes it took to find out.
    fn compare(&self, text: &[u8]) -> (bool, usize) {
        if let [stars] = self.stars[..] {
            return self.compare_in_one_word(stars, text);
        }
        let mut sets = [0u64; WORDS_MAX];
        let matched = sets.get_mut(..self.words).unwrap_or_default();
        set_bit(matched, 0);
        for (compared, &byte) in text.iter().enumerate() {
            let row = self.rows.get(usize::from(byte) * self.words..);
            let (mut carried, mut any) = (0, 0);
            for ((set, takes), stars) in matched
                .iter_mut()
                .zip(row.unwrap_or_default())
                .zip(&self.stars)
            {
                let went_on = *set & takes;
                *set = went_on << 1 | carried | *set & stars;
                carried = went_on >> 63;
                any |= *set;
            }
            if any == 0 {
                return (false, compared);
            }
        }
        let last = matched.last().copied().unwrap_or(0);
        (last >> (self.elements % 64) & 1 == 1, text.len())
    }

    /// [`Pattern::compare`] with up to 63 elements.
    fn compare_in_one_word(&self, stars: u64, text: &[u8]) -> (bool, usize) {
        let whole = 1u64 << (self.elements % 64);
        let mut matched = 1u64;
        let mut compared = text.len();
        for (index, &byte) in text.iter().enumerate() {
            // What comes behind a last star does not matter.
            if matched == 0 || matched & stars & whole != 0 {
                compared = index;
                break;
            }
            let takes = self.rows.get(usize::from(byte)).copied().unwrap_or(0);
            matched = (matched & takes) << 1 | matched & stars;
        }
        (matched & whole != 0, compared)
    }

    /// Most steps, of about a nanosecond, that it takes to match a text of so many bytes.
    #[must_use]
    pub fn cost(&self, text_bytes: usize) -> usize {
        text_bytes * self.words
    }
}

fn set_bit(words: &mut [u64], bit: usize) {
    if let Some(word) = words.get_mut(bit / 64) {
        *word |= 1 << (bit % 64);
    }
}

/// The bytes that one element takes.
#[derive(Clone, Copy)]
struct Class([u64; 4]);

impl Class {
    const NOTHING: Class = Class([0; 4]);
    const ANYTHING: Class = Class([u64::MAX; 4]);

    fn of(byte: u8) -> Class {
        let mut class = Class::NOTHING;
        class.add(byte);
        class
    }

    /// All bytes below `end`.
    fn below(end: usize) -> Class {
        let mut class = Class::ANYTHING;
        for (index, word) in class.0.iter_mut().enumerate() {
            let bits = end.saturating_sub(index * 64).min(64) as u32;
            *word = word.checked_shr(64 - bits).unwrap_or(0);
        }
        class
    }

    fn add(&mut self, byte: u8) {
        set_bit(&mut self.0, byte.into());
    }

    /// Adds what lies between the two, which Redis compares as chars that have a sign.
    fn add_range(&mut self, first: u8, last: u8) {
        let place = |byte: u8| usize::from(byte ^ 0x80);
        let (first, last) = (place(first), place(last));
        let (below, mut range) = (
            Class::below(first.min(last)),
            Class::below(first.max(last) + 1),
        );
        let words = range.0.iter_mut().zip(below.0);
        words.for_each(|(word, below)| *word &= !below);
        // From the order of chars to that of bytes.
        range.0.rotate_left(2);
        let words = self.0.iter_mut().zip(range.0);
        words.for_each(|(word, range)| *word |= range);
    }

    /// The bytes that are in the class and whose predecessors are not, or the other way round: no more than the
    /// pattern that it was read from has bytes, twice.
    fn edges(&self) -> impl Iterator<Item = usize> {
        let before = std::iter::once(0).chain(self.0);
        let edges = self
            .0
            .iter()
            .zip(before)
            .map(|(&word, before)| word ^ (word << 1 | before >> 63));
        edges.enumerate().flat_map(|(index, word)| {
            let rest = |left: &u64| Some(left & (left - 1)).filter(|&left| left != 0);
            let lowest = std::iter::successors(Some(word).filter(|&w| w != 0), rest);
            lowest.map(move |left| index * 64 + left.trailing_zeros() as usize)
        })
    }
}

/// The first element of a pattern that is not empty and does not begin with a star; answers its length too.
fn element(pattern: &[u8]) -> (Class, usize) {
    match pattern {
        [b'?', ..] => (Class::ANYTHING, 1),
        [b'[', class @ ..] => {
            let (class, len) = class_of(class);
            (class, 1 + len)
        }
        [b'\\', literal, ..] => (Class::of(*literal), 2),
        [literal, ..] => (Class::of(*literal), 1),
        [] => (Class::NOTHING, 0),
    }
}

/// The class whose `[` was just read; answers the length up to its `]`.
fn class_of(text: &[u8]) -> (Class, usize) {
    let negated = text.first() == Some(&b'^');
    let mut rest = text.get(usize::from(negated)..).unwrap_or_default();
    let mut class = Class::NOTHING;
    loop {
        rest = match rest {
            [b'\\', literal, rest @ ..] => {
                class.add(*literal);
                rest
            }
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [] => break,
            [first, b'-', last, rest @ ..] => {
                class.add_range(*first, *last);
                rest
            }
            [literal, rest @ ..] => {
                class.add(*literal);
                rest
            }
        };
    }
    if negated {
        class.0 = class.0.map(|word| !word);
    }
    (class, text.len() - rest.len())
}

#[cfg(test)]
mod tests;
