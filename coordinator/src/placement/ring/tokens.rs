//! Sorted tokens, as Cassandra's `TokenMetadata` has them: a token has what is behind the one before, up to itself.

/// A ring: each token has the range `(token before, token]`, the first one also what is behind the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// By token whose it is; no token is there twice.
    tokens: Vec<(u64, usize)>,
}

impl Sorted {
    /// The ring of these tokens and whose they are; of equal ones the owner with the lowest number has it.
    pub fn new(tokens: impl IntoIterator<Item = (u64, usize)>) -> Self {
        let mut tokens: Vec<_> = tokens.into_iter().collect();
        tokens.sort_unstable();
        tokens.dedup_by_key(|(token, _)| *token);
        Sorted { tokens }
    }

    /// Whose a point is; none: there is no token.
    #[must_use]
    pub fn owner(&self, point: u64) -> Option<usize> {
        self.find(point).map(|(_, owner)| owner)
    }

    /// The tokens, ascending, and whose they are.
    #[must_use]
    pub fn tokens(&self) -> &[(u64, usize)] {
        &self.tokens
    }

    /// The place among the tokens of the one that has a point, and whose it is.
    pub(in super::super) fn find(&self, point: u64) -> Option<(usize, usize)> {
        let at = self.tokens.partition_point(|(token, _)| *token < point);
        let at = if at == self.tokens.len() { 0 } else { at };
        self.tokens.get(at).map(|(_, owner)| (at, *owner))
    }
}

/// The point of a partition on the ring: they are equally far from one another.
#[must_use]
pub fn position(partition: u16, partitions: u16) -> u64 {
    let share = (u128::from(partition) << 64) / u128::from(partitions.max(1));
    share as u64
}
