//! Who has subscribed to what: of one connection, and of a shard's connections.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::glob::Pattern;

use crate::net::ConnToken;

/// Memory of one subscription beside its name, which is kept twice: by the connection and by the shard.
const OVERHEAD_BYTES: usize = 192;

/// What a name of a subscription names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Channel,
    Pattern,
    /// A channel that belongs to its slot's shard.
    Sharded,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Sharded];
}

type Names = BTreeSet<Box<[u8]>>;

/// The subscriptions of one connection, which has one at least.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    channels: Names,
    patterns: Names,
    sharded: Names,
    bytes: usize,
}

impl Subscriptions {
    fn names(&mut self, kind: Kind) -> &mut Names {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Sharded => &mut self.sharded,
        }
    }

    /// Whether there was no such subscription.
    pub fn add(&mut self, kind: Kind, name: &[u8]) -> bool {
        let is_new = !self.names(kind).contains(name);
        if is_new {
            self.names(kind).insert(name.into());
            self.bytes += bytes(kind, name);
        }
        is_new
    }

    /// Whether there was such a subscription.
    pub fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        let was_there = self.names(kind).remove(name);
        if was_there {
            self.bytes -= bytes(kind, name);
        }
        was_there
    }

    /// Whether there is such a subscription.
    #[must_use]
    pub fn has(&self, kind: Kind, name: &[u8]) -> bool {
        match kind {
            Kind::Channel => self.channels.contains(name),
            Kind::Pattern => self.patterns.contains(name),
            Kind::Sharded => self.sharded.contains(name),
        }
    }

    /// All names of one kind.
    #[must_use]
    pub fn all(&self, kind: Kind) -> Vec<Box<[u8]>> {
        let names = match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Sharded => &self.sharded,
        };
        names.iter().cloned().collect()
    }

    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel => self.channels.len(),
            Kind::Pattern => self.patterns.len(),
            Kind::Sharded => self.sharded.len(),
        }
    }

    /// The number in replies about one kind: patterns count as channels do.
    #[must_use]
    pub fn told_count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
            Kind::Sharded => self.sharded.len(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.count(*kind) == 0)
    }

    /// Memory of them, here and where the shard keeps them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Subscriptions>() + self.bytes
    }
}

fn bytes(kind: Kind, name: &[u8]) -> usize {
    // A compiled pattern has a row of bits for each byte.
    let compiled = match kind {
        Kind::Pattern => 256 * size_of::<u64>() * (name.len() / 64 + 1),
        Kind::Channel | Kind::Sharded => 0,
    };
    2 * name.len() + OVERHEAD_BYTES + compiled
}

type Tokens = BTreeSet<ConnToken>;

/// The subscriptions of a shard's connections, by name.
#[derive(Default)]
pub struct Directory {
    channels: BTreeMap<Box<[u8]>, Tokens>,
    patterns: BTreeMap<Box<[u8]>, (Pattern, Tokens)>,
    sharded: BTreeMap<Box<[u8]>, Tokens>,
}

impl Directory {
    /// Notes a subscription; one to a pattern comes with it compiled.
    pub fn add(&mut self, kind: Kind, name: &[u8], pattern: Option<Pattern>, token: ConnToken) {
        match (kind, pattern) {
            (Kind::Pattern, Some(pattern)) => {
                let entry = self.patterns.entry(name.into());
                let (_, tokens) = entry.or_insert_with(|| (pattern, Tokens::new()));
                tokens.insert(token);
            }
            (Kind::Sharded, _) => {
                self.sharded.entry(name.into()).or_default().insert(token);
            }
            _ => {
                self.channels.entry(name.into()).or_default().insert(token);
            }
        }
    }

    pub fn remove(&mut self, kind: Kind, name: &[u8], token: ConnToken) {
        let tokens = match kind {
            Kind::Channel => self.channels.get_mut(name),
            Kind::Pattern => self.patterns.get_mut(name).map(|(_, tokens)| tokens),
            Kind::Sharded => self.sharded.get_mut(name),
        };
        let Some(tokens) = tokens else { return };
        tokens.remove(&token);
        if tokens.is_empty() {
            match kind {
                Kind::Channel => drop(self.channels.remove(name)),
                Kind::Pattern => drop(self.patterns.remove(name)),
                Kind::Sharded => drop(self.sharded.remove(name)),
            }
        }
    }

    /// Names that somebody has subscribed to.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.sharded.len()
    }

    /// The subscribers of a channel.
    #[must_use]
    pub fn of_channel(&self, kind: Kind, name: &[u8]) -> Vec<ConnToken> {
        self.tokens(kind, name)
            .map_or_else(Vec::new, |tokens| tokens.iter().copied().collect())
    }

    fn tokens(&self, kind: Kind, name: &[u8]) -> Option<&Tokens> {
        match kind {
            Kind::Channel => self.channels.get(name),
            Kind::Pattern => self.patterns.get(name).map(|(_, tokens)| tokens),
            Kind::Sharded => self.sharded.get(name),
        }
    }

    /// How many have subscribed to a name.
    #[must_use]
    pub fn count(&self, kind: Kind, name: &[u8]) -> usize {
        self.tokens(kind, name).map_or(0, Tokens::len)
    }

    /// The patterns that match a channel, with their subscribers.
    #[must_use]
    pub fn of_patterns(&self, channel: &[u8]) -> Vec<(Box<[u8]>, Vec<ConnToken>)> {
        let matching = self.patterns.iter();
        let matching = matching.filter(|(_, (pattern, _))| pattern.matches(channel));
        let mut found = Vec::new();
        for (name, (_, tokens)) in matching {
            found.push((name.clone(), tokens.iter().copied().collect()));
        }
        found
    }

    /// Channels that somebody has subscribed to, but for sharded ones.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Patterns that somebody has subscribed to.
    #[must_use]
    pub fn patterns(&self) -> usize {
        self.patterns.len()
    }

    /// All names of one kind.
    #[must_use]
    pub fn names(&self, kind: Kind) -> Vec<&[u8]> {
        match kind {
            Kind::Channel => self.channels.keys().map(AsRef::as_ref).collect(),
            Kind::Pattern => self.patterns.keys().map(AsRef::as_ref).collect(),
            Kind::Sharded => self.sharded.keys().map(AsRef::as_ref).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(index: u32) -> ConnToken {
        let generation = 1;
        ConnToken { index, generation }
    }

    #[test]
    fn names_go_with_their_last_subscriber() {
        let mut directory = Directory::default();
        let pattern = || Pattern::new(b"a*");
        for n in 0..3 {
            directory.add(Kind::Channel, b"a", None, token(n));
            directory.add(Kind::Pattern, b"a*", pattern(), token(n));
            directory.add(Kind::Sharded, b"a", None, token(n));
        }
        assert_eq!(directory.len(), 3);
        assert_eq!(directory.of_channel(Kind::Channel, b"a").len(), 3);
        assert_eq!(directory.of_patterns(b"abc").len(), 1);
        assert!(directory.of_patterns(b"b").is_empty());
        for n in 0..3 {
            for (kind, name) in [
                (Kind::Channel, &b"a"[..]),
                (Kind::Pattern, b"a*"),
                (Kind::Sharded, b"a"),
            ] {
                directory.remove(kind, name, token(n));
                directory.remove(kind, b"nosuch", token(n));
            }
        }
        assert_eq!(directory.len(), 0);
    }

    #[test]
    fn a_connection_counts_what_it_has_once() {
        let mut subscriptions = Subscriptions::default();
        let empty = subscriptions.held_bytes();
        assert!(subscriptions.add(Kind::Channel, b"a") && !subscriptions.add(Kind::Channel, b"a"));
        assert!(subscriptions.add(Kind::Pattern, b"a"));
        assert!(subscriptions.add(Kind::Sharded, b"a"));
        assert_eq!(subscriptions.told_count(Kind::Channel), 2);
        assert_eq!(subscriptions.told_count(Kind::Sharded), 1);
        for kind in Kind::ALL {
            assert!(subscriptions.remove(kind, b"a") && !subscriptions.remove(kind, b"a"));
        }
        assert!(subscriptions.is_empty());
        assert_eq!(subscriptions.held_bytes(), empty);
    }
}
