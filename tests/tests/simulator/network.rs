//! The network: messages are delayed, lost, repeated and overtaken, and directions are cut.

use ephesus_wire::rng::Rng;

/// Somebody who sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Coordinator(u64),
    Node(usize),
    Operator,
}

#[derive(Debug, Default)]
pub(crate) struct Network {
    /// Directions in which nothing arrives, each with the number of the trouble that cut it.
    cut: Vec<(u64, End, End)>,
    /// Whether messages are lost, repeated and late.
    pub(crate) is_rough: bool,
}

impl Network {
    pub(crate) fn cut(&mut self, trouble: u64, from: End, to: End) {
        self.cut.push((trouble, from, to));
    }

    /// Ends what one trouble has cut.
    pub(crate) fn mend(&mut self, trouble: u64) {
        self.cut.retain(|(by, _, _)| *by != trouble);
    }

    pub(crate) fn mend_all(&mut self) {
        self.cut.clear();
    }

    pub(crate) fn is_cut(&self, from: End, to: End) -> bool {
        self.cut.iter().any(|(_, a, b)| (*a, *b) == (from, to))
    }

    /// How long a message takes, ms.
    pub(crate) fn delay_ms(&self, rng: &mut Rng) -> u64 {
        if self.is_rough && rng.one_in(50) {
            return 1 + rng.below(400);
        }
        1 + rng.below(4)
    }

    /// How long each copy of a message takes, ms; none: it is lost.
    pub(crate) fn copies(&self, rng: &mut Rng) -> Vec<u64> {
        let copies = match rng.below(40) {
            0 | 1 if self.is_rough => 0,
            2 if self.is_rough => 2,
            _ => 1,
        };
        (0..copies).map(|_| self.delay_ms(rng)).collect()
    }
}
