//! One reply from the parts that several shards answer.

use ephesus_wire::Lsn;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::value::{self, Value};

use crate::command::error::ClientError;

/// How parts become one reply.
#[derive(Debug)]
pub enum Combine {
    /// Integers are added.
    Sum,
    /// `+OK` from everyone.
    AllOk,
    /// Arrays are joined, in the order of the parts.
    Concat,
    /// Texts are joined, in the order of the parts.
    Text,
    /// MGET: for every part, where its elements belong.
    Interleave(Vec<Vec<u32>>),
}

/// Parts that have arrived and how many are missing.
#[derive(Debug)]
pub struct Gather {
    combine: Combine,
    protocol: Protocol,
    parts: Vec<Option<Vec<u8>>>,
    missing: usize,
    gate: Lsn,
    /// The command writes: parts that were executed cannot be taken back.
    writes: bool,
    repeat: Option<Repeat>,
}

/// A command whose parts are to show one moment between the moves of partitions within the node.
#[derive(Debug)]
struct Repeat {
    /// What every shard is asked.
    request: Vec<u8>,
    /// The node's changes of roles when it was asked.
    role_changes: u64,
    rounds_left: u32,
}

impl Gather {
    /// Waits for `parts` parts.
    #[must_use]
    pub fn new(combine: Combine, protocol: Protocol, parts: usize) -> Gather {
        Gather {
            combine,
            protocol,
            parts: vec![None; parts],
            missing: parts,
            gate: Lsn::ZERO,
            writes: false,
            repeat: None,
        }
    }

    /// The parts are of a command that writes, or not.
    #[must_use]
    pub fn writing(self, writes: bool) -> Gather {
        Gather { writes, ..self }
    }

    /// `request` is asked again, up to `rounds` times, while copies change their roles.
    #[must_use]
    pub fn repeating(self, request: Vec<u8>, role_changes: u64, rounds: u32) -> Gather {
        let repeat = Repeat {
            request,
            role_changes,
            rounds_left: rounds,
        };
        Gather {
            repeat: Some(repeat),
            ..self
        }
    }

    /// When the complete parts may be of different moments: forgets them, and answers what to ask every
    /// shard again.
    pub fn begin_again(&mut self, role_changes: u64) -> Option<Vec<u8>> {
        let repeat = self.repeat.as_mut()?;
        if repeat.role_changes == role_changes || repeat.rounds_left == 0 {
            return None;
        }
        repeat.role_changes = role_changes;
        repeat.rounds_left -= 1;
        self.missing = self.parts.len();
        self.parts.fill(None);
        Some(repeat.request.clone())
    }

    /// The client's protocol, and how many parts there are.
    #[must_use]
    pub fn asked(&self) -> (Protocol, usize) {
        (self.protocol, self.parts.len())
    }

    /// Whether a part has written, and another one was led to another node and has not: no reply tells that.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        let parts = || self.parts.iter().flatten();
        let is_done = |part: &Vec<u8>| part.first() != Some(&b'-');
        self.writes && parts().any(is_done) && parts().any(|part| is_elsewhere(part))
    }

    /// Adds a part; true when it was the last one.
    pub fn add(&mut self, part: u16, bytes: &[u8], gate: Lsn) -> bool {
        let place = &mut self.parts[usize::from(part)];
        assert!(place.is_none(), "every part is answered once");
        *place = Some(bytes.to_vec());
        self.gate = self.gate.max(gate);
        self.missing -= 1;
        self.missing == 0
    }

    /// The reply and what it waits for; the first part that is an error is the whole reply.
    pub fn finish(&mut self) -> (Vec<u8>, Lsn) {
        let parts: Vec<Vec<u8>> = self
            .parts
            .drain(..)
            .map(|part| part.expect("all parts are here"))
            .collect();
        let is_error = |part: &&Vec<u8>| part.first() == Some(&b'-');
        if let Some(error) = parts.iter().find(is_error) {
            let mut error = error.clone();
            if is_elsewhere(&error) {
                error.clear();
                ClientError::CrossSlot.write(&mut error);
            }
            return (error, self.gate);
        }
        let mut out = Vec::new();
        match &self.combine {
            Combine::AllOk => out.extend_from_slice(reply::OK),
            Combine::Sum => reply::integer(&mut out, parts.iter().map(|part| integer(part)).sum()),
            Combine::Text => {
                let text: Vec<u8> = parts.iter().flat_map(|part| text(part)).collect();
                reply::verbatim(&mut out, self.protocol, "txt", &text);
            }
            Combine::Concat => {
                let elements: Vec<&[u8]> = parts.iter().flat_map(|part| elements(part)).collect();
                reply::array(&mut out, elements.len());
                elements
                    .iter()
                    .for_each(|element| out.extend_from_slice(element));
            }
            Combine::Interleave(places) => {
                let total = places.iter().map(Vec::len).sum();
                let mut ordered: Vec<&[u8]> = vec![&[]; total];
                for (part, places) in parts.iter().zip(places) {
                    for (element, &place) in elements(part).into_iter().zip(places) {
                        ordered[place as usize] = element;
                    }
                }
                reply::array(&mut out, total);
                ordered
                    .iter()
                    .for_each(|element| out.extend_from_slice(element));
            }
        }
        (out, self.gate)
    }
}

/// Whether a part was not executed because its keys are on another node by now.
fn is_elsewhere(part: &[u8]) -> bool {
    part.starts_with(b"-MOVED ") || part.starts_with(b"-CROSSSLOT ")
}

fn decode(part: &[u8]) -> Option<Value> {
    value::decode(part).ok().flatten().map(|(value, _)| value)
}

fn integer(part: &[u8]) -> i64 {
    match decode(part) {
        Some(Value::Integer(number)) => number,
        other => unreachable!("a shard answered {other:?} where a number belongs"),
    }
}

fn text(part: &[u8]) -> Vec<u8> {
    match decode(part) {
        Some(Value::Bulk(text) | Value::Verbatim { text, .. }) => text,
        other => unreachable!("a shard answered {other:?} where a text belongs"),
    }
}

/// The encoded elements of an array of bulk strings and nulls.
fn elements(part: &[u8]) -> Vec<&[u8]> {
    let mut elements = Vec::new();
    let mut rest = after_line(part);
    while !rest.is_empty() {
        let header = rest.len() - after_line(rest).len();
        let len = match rest[0] {
            b'$' => std::str::from_utf8(&rest[1..header - 2])
                .ok()
                .and_then(|n| n.parse().ok()),
            _ => None,
        };
        let end = header + len.map_or(0, |len: usize| len + 2);
        elements.push(&rest[..end]);
        rest = &rest[end..];
    }
    elements
}

fn after_line(bytes: &[u8]) -> &[u8] {
    let end = bytes
        .windows(2)
        .position(|pair| pair == b"\r\n")
        .map_or(bytes.len(), |at| at + 2);
    &bytes[end..]
}

#[cfg(test)]
mod tests;
