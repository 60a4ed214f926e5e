//! What was sent, what was acknowledged, and so what a crash may leave behind.
//!
//! A unit is one or two keys that only one connection writes. Its history is a queue of states: the
//! front is the newest acknowledged one, behind it wait those that were sent. After a crash the unit
//! must be in exactly one of these states; a value somebody has read moves the front forward.

use std::collections::VecDeque;
use std::fmt;

use crate::Rng;
use crate::resp::{Client, Reply};
use crate::slots::slot;

/// What is done to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SET and DEL of one key.
    Single,
    /// MSET and DEL of two keys: both or neither.
    Pair,
    /// SET of a key and RENAME between two: the value is at one place, never lost or doubled.
    Token,
    /// INCR: the value is the number of increments.
    Counter,
}

const KINDS: [Kind; 4] = [Kind::Single, Kind::Pair, Kind::Token, Kind::Counter];

/// The values of a unit's keys, each named by the number of the write that made it.
type Cells = [Option<u64>; 2];

/// The reply that a request must get.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected(Reply);

impl Expected {
    /// # Panics
    /// When the node answered something else.
    pub fn check(&self, reply: &Reply, unit: &Unit) {
        assert_eq!(reply, &self.0, "a write to {unit}");
    }
}

/// One or two keys and the states they may be in.
#[derive(Clone)]
pub struct Unit {
    id: u64,
    kind: Kind,
    keys: Vec<Vec<u8>>,
    history: VecDeque<Cells>,
    writes: u64,
}

impl Unit {
    /// Unit `id`; its kind follows from the id.
    pub fn new(id: u64) -> Self {
        let kind = KINDS[(id % KINDS.len() as u64) as usize];
        let keys = match kind {
            Kind::Single | Kind::Counter => vec![format!("unit:{id}").into_bytes()],
            Kind::Pair | Kind::Token => ["left", "right"]
                .iter()
                .map(|side| format!("{{unit:{id}}}:{side}").into_bytes())
                .collect(),
        };
        Self {
            id,
            kind,
            keys,
            history: VecDeque::from([[None, None]]),
            writes: 0,
        }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    pub fn slot(&self) -> u16 {
        slot(&self.keys[0])
    }

    /// The next request on this unit; its outcome waits in the history from now on.
    pub fn next_request(&mut self, rng: &mut Rng) -> (Vec<Vec<u8>>, Expected) {
        self.writes += 1;
        let write = self.writes;
        let before = *self.history.back().expect("a history is never empty");
        let present = before.iter().flatten().count() as i64;
        let value = || value_of(self.id, write);
        let mut words: Vec<Vec<u8>> = Vec::new();
        let (after, reply) = match self.kind {
            Kind::Counter => {
                words.extend([b"INCR".to_vec(), self.keys[0].clone()]);
                let count = before[0].unwrap_or(0) + 1;
                ([Some(count), None], Reply::Integer(count as i64))
            }
            _ if rng.one_in(8) => {
                words.push(b"DEL".to_vec());
                words.extend(self.keys.iter().cloned());
                ([None, None], Reply::Integer(present))
            }
            Kind::Single => {
                words.extend([b"SET".to_vec(), self.keys[0].clone(), value()]);
                ([Some(write), None], Reply::ok())
            }
            Kind::Pair => {
                words.push(b"MSET".to_vec());
                for key in &self.keys {
                    words.extend([key.clone(), value()]);
                }
                ([Some(write), Some(write)], Reply::ok())
            }
            Kind::Token => match (before[0], before[1]) {
                (Some(_), None) | (None, Some(_)) if !rng.one_in(4) => {
                    let from = usize::from(before[0].is_none());
                    words.push(b"RENAME".to_vec());
                    words.extend([self.keys[from].clone(), self.keys[1 - from].clone()]);
                    ([before[1], before[0]], Reply::ok())
                }
                _ => {
                    let at = usize::from(before[1].is_some());
                    words.extend([b"SET".to_vec(), self.keys[at].clone(), value()]);
                    let mut after = before;
                    after[at] = Some(write);
                    (after, Reply::ok())
                }
            },
        };
        self.history.push_back(after);
        (words, Expected(reply))
    }

    /// The oldest request that waited has been acknowledged.
    pub fn acknowledge(&mut self) {
        assert!(
            self.history.len() > 1,
            "an acknowledgement without a request"
        );
        self.history.pop_front();
    }

    /// Somebody read the value of write `seen`: no state before it may come back.
    pub fn observed(&mut self, seen: u64) {
        if let Some(at) = self
            .history
            .iter()
            .position(|cells| cells.contains(&Some(seen)))
        {
            self.history.drain(..at);
        }
    }

    /// Decodes what a read of one of the keys returned.
    ///
    /// # Panics
    /// When the bytes are not exactly what some write of this unit wrote.
    pub fn decode(&self, bytes: &[u8]) -> u64 {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(64)]).into_owned();
        let number = |text: &str| text.parse::<u64>().ok();
        let decoded = match self.kind {
            Kind::Counter => number(&text),
            _ => {
                let mut parts = text.splitn(3, ':');
                let id = parts.next().and_then(number);
                let write = parts.next().and_then(number);
                write.filter(|&write| id == Some(self.id) && value_of(self.id, write) == bytes)
            }
        };
        decoded
            .unwrap_or_else(|| panic!("{self} holds {} bytes nobody wrote: {text:?}", bytes.len()))
    }

    /// The request that reads all keys of the unit.
    pub fn read_request(&self) -> Vec<Vec<u8>> {
        let mut request = vec![b"MGET".to_vec()];
        request.extend(self.keys.iter().cloned());
        request
    }

    /// [`settle`](Self::settle) for the reply to [`read_request`](Self::read_request).
    ///
    /// # Panics
    /// When it is an error, or the unit is in none of the states it may be in.
    pub fn settle_reply(&mut self, reply: Reply) {
        assert_eq!(reply.error(), None, "a read of {self}");
        let value = |reply: Reply| match reply {
            Reply::Bulk(bytes) => Some(bytes),
            reply if reply.is_nil() => None,
            other => panic!("MGET of {self} answered {other:?}"),
        };
        let found: Vec<_> = reply.items().into_iter().map(value).collect();
        self.settle(&found);
    }

    /// Accepts what was read back after a restart as the only state from now on.
    ///
    /// # Panics
    /// When it is none of the states the unit may be in.
    pub fn settle(&mut self, found: &[Option<Vec<u8>>]) {
        let mut cells: Cells = [None, None];
        for (cell, bytes) in cells.iter_mut().zip(found) {
            *cell = bytes.as_ref().map(|bytes| self.decode(bytes));
        }
        assert!(
            self.history.contains(&cells),
            "{self} holds {cells:?}; acknowledged {:?}, sent after that {:?}",
            self.history[0],
            self.history.iter().skip(1).collect::<Vec<_>>()
        );
        self.history = VecDeque::from([cells]);
    }

    /// How many of the keys exist; known only while nothing waits.
    pub fn present(&self) -> usize {
        assert_eq!(self.history.len(), 1, "requests are still waiting");
        self.history[0].iter().flatten().count()
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit {} ({:?})", self.id, self.kind)
    }
}

/// The value of a write: `unit:write:` and padding that follows from both. Sizes are mostly small,
/// sometimes above an image's block, rarely above a log group.
pub fn value_of(unit: u64, write: u64) -> Vec<u8> {
    let mut rng = Rng::new(unit << 40 ^ write);
    let len = match rng.below(400) {
        0 => rng.between(260_000, 400_000),
        1..=3 => rng.between(6_000, 70_000),
        4..=40 => rng.between(200, 6_000),
        _ => rng.between(8, 200),
    } as usize;
    let mut value = format!("{unit}:{write}:").into_bytes();
    while value.len() < len {
        value.extend_from_slice(&rng.draw().to_le_bytes());
    }
    value
}

/// Reads every unit back and settles it; returns how many keys exist.
///
/// # Panics
/// When a unit is in a state it may not be in.
pub fn verify<'a>(client: &mut Client, units: impl Iterator<Item = &'a mut Unit>) -> usize {
    units
        .map(|unit| {
            unit.settle_reply(client.call(&unit.read_request()));
            unit.present()
        })
        .sum()
}

#[cfg(test)]
mod tests;
