//! Lua 5.1's patterns, with bounds that its own matcher lacks: on the depth of the recursion, and on the steps between
//! two looks at what a script may take.

use super::limits::Limits;

/// Captures of one pattern.
const CAPTURES_MAX: usize = 32;

/// Nested calls of the matcher: quantifiers and captures behind each other.
const DEPTH_MAX: usize = 200;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum PatternError {
    /// What the script is told.
    Malformed(&'static str),
    /// The script has to end.
    Stopped,
}

use PatternError::Malformed;

type Matched<T> = Result<T, PatternError>;

/// What one capture has caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// From, and how many bytes.
    Text(usize, usize),
    /// `()`: a place.
    Place(usize),
}

#[derive(Clone, Copy)]
enum Open {
    Unfinished(usize),
    Done(Capture),
}

/// Matches one pattern against one text.
pub struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Open>,
    depth: usize,
    limits: &'a Limits,
}

/// Whether a pattern means only itself.
#[must_use]
pub fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

impl<'a> Matcher<'a> {
    #[must_use]
    pub fn new(text: &'a [u8], pattern: &'a [u8], limits: &'a Limits) -> Matcher<'a> {
        Matcher {
            text,
            pattern,
            captures: Vec::new(),
            depth: 0,
            limits,
        }
    }

    /// The first match from `at` on, as its begin and its end; a leading `^` binds it to `at` if `may_anchor`.
    ///
    /// # Errors
    /// The pattern, or the script has to end.
    pub fn search(&mut self, at: usize, may_anchor: bool) -> Matched<Option<(usize, usize)>> {
        let is_anchored = may_anchor && self.pattern.first() == Some(&b'^');
        let from = usize::from(is_anchored);
        let mut at = at;
        while at <= self.text.len() {
            self.captures.clear();
            if let Some(end) = self.matched(at, from)? {
                return Ok(Some((at, end)));
            }
            if is_anchored {
                break;
            }
            at += 1;
        }
        Ok(None)
    }

    /// How many captures the last match has.
    #[must_use]
    pub fn captures(&self) -> usize {
        self.captures.len()
    }

    /// A capture of the last match, or all of it where the pattern has none.
    ///
    /// # Errors
    /// There is no such capture, or it was not finished.
    pub fn capture(&self, index: usize, (from, end): (usize, usize)) -> Matched<Capture> {
        match self.captures.get(index) {
            Some(Open::Done(capture)) => Ok(*capture),
            Some(Open::Unfinished(_)) => Err(Malformed("unfinished capture")),
            None if index == 0 => Ok(Capture::Text(from, end - from)),
            None => Err(Malformed("invalid capture index")),
        }
    }

    /// So many bytes of the text or of the pattern are gone over.
    fn step(&self, bytes: usize) -> Matched<()> {
        let worked = self.limits.work(bytes);
        worked.map_err(|_| PatternError::Stopped)
    }

    fn at(&self, place: usize) -> Option<u8> {
        self.pattern.get(place).copied()
    }

    /// Where the match of the pattern from `p` on ends that begins at `s`.
    fn matched(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        if self.depth >= DEPTH_MAX {
            return Err(Malformed("pattern too complex"));
        }
        self.depth += 1;
        let matched = self.matched_here(s, p);
        self.depth -= 1;
        matched
    }

    fn matched_here(&mut self, mut s: usize, mut p: usize) -> Matched<Option<usize>> {
        loop {
            self.step(1)?;
            let Some(byte) = self.at(p) else {
                return Ok(Some(s));
            };
            match (byte, self.at(p + 1)) {
                (b'(', Some(b')')) => return self.start_capture(s, p + 2, true),
                (b'(', _) => return self.start_capture(s, p + 1, false),
                (b')', _) => return self.end_capture(s, p + 1),
                (b'%', Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    p += 2;
                    if self.at(p) != Some(b'[') {
                        return Err(Malformed("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(p)?;
                    self.step(3 * (end - p))?;
                    let before = s.checked_sub(1).and_then(|before| self.text.get(before));
                    let (before, here) = (before.copied(), self.text.get(s).copied());
                    if self.in_set(before.unwrap_or(0), p, end - 1)
                        || !self.in_set(here.unwrap_or(0), p, end - 1)
                    {
                        return Ok(None);
                    }
                    p = end;
                }
                (b'%', Some(digit)) if digit.is_ascii_digit() => {
                    match self.match_capture(s, digit)? {
                        Some(end) => (s, p) = (end, p + 2),
                        None => return Ok(None),
                    }
                }
                (b'$', None) => return Ok((s == self.text.len()).then_some(s)),
                _ => {
                    let end = self.class_end(p)?;
                    self.step(2 * (end - p))?;
                    let is_match = self.is_single(s, p, end);
                    match self.at(end) {
                        Some(b'?') => {
                            if is_match && let Some(found) = self.matched(s + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.most(s, p, end),
                        Some(b'+') if is_match => return self.most(s + 1, p, end),
                        Some(b'-') => return self.fewest(s, p, end),
                        Some(b'+') => return Ok(None),
                        _ if !is_match => return Ok(None),
                        _ => (s, p) = (s + 1, end),
                    }
                }
            }
        }
    }

    fn most(&mut self, s: usize, p: usize, end: usize) -> Matched<Option<usize>> {
        let mut count = 0;
        while self.is_single(s + count, p, end) {
            self.step(end - p)?;
            count += 1;
        }
        loop {
            if let Some(found) = self.matched(s + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn fewest(&mut self, mut s: usize, p: usize, end: usize) -> Matched<Option<usize>> {
        loop {
            if let Some(found) = self.matched(s, end + 1)? {
                return Ok(Some(found));
            }
            self.step(end - p)?;
            if !self.is_single(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn start_capture(&mut self, s: usize, p: usize, is_place: bool) -> Matched<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(Malformed("too many captures"));
        }
        let count = self.captures.len();
        self.captures.push(match is_place {
            true => Open::Done(Capture::Place(s)),
            false => Open::Unfinished(s),
        });
        let found = self.matched(s, p)?;
        if found.is_none() {
            self.captures.truncate(count);
        }
        Ok(found)
    }

    fn end_capture(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        let open = self.captures.iter_mut().enumerate().rev();
        let open = open.into_iter().find_map(|(index, capture)| match capture {
            Open::Unfinished(from) => Some((index, *from)),
            Open::Done(_) => None,
        });
        let (index, from) = open.ok_or(Malformed("invalid pattern capture"))?;
        self.set_capture(index, Open::Done(Capture::Text(from, s - from)));
        let found = self.matched(s, p)?;
        if found.is_none() {
            self.set_capture(index, Open::Unfinished(from));
        }
        Ok(found)
    }

    fn set_capture(&mut self, index: usize, capture: Open) {
        if let Some(place) = self.captures.get_mut(index) {
            *place = capture;
        }
    }

    fn match_capture(&mut self, s: usize, digit: u8) -> Matched<Option<usize>> {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = index.and_then(|index| self.captures.get(index));
        let Some(Open::Done(capture)) = capture else {
            return Err(Malformed("invalid capture index"));
        };
        let (from, len) = match *capture {
            Capture::Text(from, len) => (from, len),
            Capture::Place(from) => (from, 0),
        };
        self.step(len)?;
        let caught = self.text.get(from..from + len).unwrap_or_default();
        let rest = self.text.get(s..).unwrap_or_default();
        Ok(rest.starts_with(caught).then_some(s + len))
    }

    fn balanced(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        let (Some(open), Some(close)) = (self.at(p), self.at(p + 1)) else {
            return Err(Malformed("unbalanced pattern"));
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1usize;
        let mut at = s + 1;
        while let Some(&byte) = self.text.get(at) {
            self.step(1)?;
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                depth += 1;
            }
            at += 1;
        }
        Ok(None)
    }

    /// Behind the single character or the class at `p`.
    fn class_end(&self, p: usize) -> Matched<usize> {
        match self.at(p) {
            Some(b'%') => match self.at(p + 1) {
                None => Err(Malformed("malformed pattern (ends with '%')")),
                Some(_) => Ok(p + 2),
            },
            Some(b'[') => {
                let mut at = p + 1;
                if self.at(at) == Some(b'^') {
                    at += 1;
                }
                // The first one may be a bracket.
                loop {
                    match self.at(at) {
                        None => return Err(Malformed("malformed pattern (missing ']')")),
                        Some(b'%') if self.at(at + 1).is_some() => at += 2,
                        Some(_) => at += 1,
                    }
                    if self.at(at) == Some(b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte at `s` is in what lies between `p` and `end`.
    fn is_single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else {
            return false;
        };
        match self.at(p) {
            Some(b'.') => true,
            Some(b'%') => self.at(p + 1).is_some_and(|class| is_in_class(byte, class)),
            Some(b'[') => self.in_set(byte, p, end - 1),
            other => other == Some(byte),
        }
    }

    /// Whether a byte is in the set from `p`, its opening bracket, to `close`, its last one.
    fn in_set(&self, byte: u8, p: usize, close: usize) -> bool {
        let mut at = p + 1;
        let is_negated = self.at(at) == Some(b'^');
        if is_negated {
            at += 1;
        }
        while at < close {
            let Some(first) = self.at(at) else { break };
            if first == b'%' {
                if self
                    .at(at + 1)
                    .is_some_and(|class| is_in_class(byte, class))
                {
                    return !is_negated;
                }
                at += 2;
            } else if self.at(at + 1) == Some(b'-') && at + 2 < close {
                let last = self.at(at + 2).unwrap_or(first);
                if (first..=last).contains(&byte) {
                    return !is_negated;
                }
                at += 3;
            } else {
                if first == byte {
                    return !is_negated;
                }
                at += 1;
            }
        }
        is_negated
    }
}

fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}
