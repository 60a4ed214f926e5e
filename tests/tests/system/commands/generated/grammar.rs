//! What requests look like: a line of words, holes and choices, from which any number of requests are made.
//!
//! `( a | b )` is one of them, `[ a | b ]` one of them or nothing, `<key>` a hole that is filled at random.

use ephesus_tests::Rng;

/// A line, read.
#[derive(Debug)]
pub struct Line {
    pub weight: u64,
    items: Vec<Item>,
}

#[derive(Debug)]
enum Item {
    Word(&'static str),
    Hole(&'static str),
    Choice(Vec<Vec<Item>>, bool),
}

impl Line {
    /// A number, which is its weight, and what follows.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read(text: &'static str) -> Self {
        let mut words = text.split_whitespace().peekable();
        let weight = words.next().and_then(|word| word.parse().ok());
        let mut alternatives = Self::alternatives(&mut words, None);
        assert!(alternatives.len() == 1, "{text}");
        Self {
            weight: weight.unwrap_or_else(|| panic!("{text}: no weight")),
            items: alternatives.remove(0),
        }
    }

    fn alternatives(
        words: &mut impl Iterator<Item = &'static str>,
        until: Option<&str>,
    ) -> Vec<Vec<Item>> {
        let mut all = vec![Vec::new()];
        while let Some(word) = words.next() {
            if Some(word) == until {
                return all;
            }
            let item = match word {
                "|" => {
                    all.push(Vec::new());
                    continue;
                }
                "(" => Item::Choice(Self::alternatives(words, Some(")")), false),
                "[" => Item::Choice(Self::alternatives(words, Some("]")), true),
                hole if hole.starts_with('<') => Item::Hole(hole.trim_matches(['<', '>'])),
                word => Item::Word(word),
            };
            all.last_mut().expect("an alternative").push(item);
        }
        assert!(until.is_none(), "{until:?} is missing");
        all
    }

    /// One request; `fill` fills a hole with any number of arguments.
    pub fn make(
        &self,
        rng: &mut Rng,
        fill: &mut impl FnMut(&str, &mut Rng, &mut Vec<Vec<u8>>),
    ) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        make(&self.items, rng, fill, &mut out);
        out
    }

    /// Whether it has a hole whose name begins so.
    pub fn has_hole(&self, name: &str) -> bool {
        has_hole(&self.items, name)
    }

    pub fn first_word(&self) -> Option<&'static str> {
        match self.items.first()? {
            Item::Word(word) => Some(word),
            _ => None,
        }
    }
}

fn make(
    items: &[Item],
    rng: &mut Rng,
    fill: &mut impl FnMut(&str, &mut Rng, &mut Vec<Vec<u8>>),
    out: &mut Vec<Vec<u8>>,
) {
    for item in items {
        match item {
            Item::Word(word) => out.push(word.as_bytes().to_vec()),
            Item::Hole(name) => fill(name, rng, out),
            Item::Choice(_, true) if rng.one_in(2) => {}
            Item::Choice(alternatives, _) => {
                let alternative = rng.pick(alternatives.as_slice());
                make(alternative, rng, fill, out);
            }
        }
    }
}

fn has_hole(items: &[Item], name: &str) -> bool {
    items.iter().any(|item| match item {
        Item::Word(_) => false,
        Item::Hole(hole) => hole.starts_with(name),
        Item::Choice(alternatives, _) => alternatives.iter().any(|items| has_hole(items, name)),
    })
}
