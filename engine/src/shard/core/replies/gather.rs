//! One reply from the parts that several shards answer.

use std::collections::BTreeSet;

use ephesus_wire::Lsn;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request;

use crate::command::error::ClientError;
use crate::command::hotkeys::Found;
use crate::command::slot_stats::{self, SlotRow, SlotStats};
use crate::shard::core::execution::saves::write_acknowledged;

/// How parts become one reply.
#[derive(Debug)]
pub enum Combine {
    /// Integers are added.
    Sum,
    /// `+OK` from everyone.
    AllOk,
    /// Arrays are joined, in the order of the parts.
    Concat,
    /// The first part: all are alike.
    First,
    /// Integers are added: OK, or no such client.
    Killed,
    /// WAITAOF: the least of the integers.
    Acknowledged,
    /// Arrays of texts are joined, each text once.
    Distinct,
    /// How many different texts the arrays have.
    CountDistinct,
    /// Arrays of texts with integers, the same texts in each: the integers are added.
    SumPairs,
    /// Texts are joined, in the order of the parts.
    Text,
    /// The first part that is no null, from the one of that number on and around.
    FirstFound(usize),
    /// CLUSTER SLOT-STATS, and whether anything but keys is counted.
    SlotStats(SlotStats, bool),
    /// HOTKEYS GET: what was found in each, unless it is null.
    HotKeys,
    /// MGET: for every part, where its elements belong.
    Interleave(Vec<Vec<u32>>),
}

/// Parts that have arrived and how many are missing.
#[derive(Debug)]
pub struct Gather {
    combine: Combine,
    protocol: Protocol,
    parts: Vec<Option<Vec<u8>>>,
    /// Bytes of the parts that are here.
    parts_bytes: usize,
    missing: usize,
    /// Bytes that the parts may still take.
    bytes_left: usize,
    bytes_max: usize,
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
    /// Waits for `parts` parts of at most `bytes_max` bytes together.
    #[must_use]
    pub fn new(combine: Combine, protocol: Protocol, parts: usize, bytes_max: usize) -> Gather {
        Gather {
            combine,
            protocol,
            parts: vec![None; parts],
            parts_bytes: 0,
            missing: parts,
            bytes_left: bytes_max,
            bytes_max,
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
        self.bytes_left = self.bytes_max;
        self.parts.fill(None);
        self.parts_bytes = 0;
        Some(repeat.request.clone())
    }

    /// Memory of the parts that are here.
    #[must_use]
    pub fn parts_bytes(&self) -> usize {
        self.parts_bytes
    }

    /// Memory of the parts, and of what is needed to put them together.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let places = match &self.combine {
            Combine::Interleave(places) => {
                places.iter().map(Vec::len).sum::<usize>() * size_of::<u32>()
            }
            _ => 0,
        };
        let request = self
            .repeat
            .as_ref()
            .map_or(0, |repeat| repeat.request.len());
        size_of::<Gather>()
            + self.parts.capacity() * size_of::<Option<Vec<u8>>>()
            + self.parts_bytes
            + places
            + request
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

    /// Adds a part; true when it was the last one. Parts that are too large together become an error, and
    /// what has come of them is dropped.
    pub fn add(&mut self, part: u16, bytes: Vec<u8>, gate: Lsn) -> bool {
        let place = self.parts.get_mut(usize::from(part));
        let place = place.filter(|place| place.is_none());
        assert!(place.is_some(), "every part is answered once");
        let fits = bytes.len() <= self.bytes_left;
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
        self.parts_bytes += if fits { bytes.capacity() } else { 0 };
        if let Some(place) = place {
            *place = Some(if fits { bytes } else { Vec::new() });
        }
        if !fits {
            let mut error = Vec::new();
            ClientError::ReplyTooLarge(self.bytes_max).write(&mut error);
            let came = self.parts.iter_mut().flatten();
            came.for_each(|part| *part = error.clone());
            self.parts_bytes = self.parts.len() * error.len();
        }
        self.gate = self.gate.max(gate);
        self.missing -= 1;
        self.missing == 0
    }

    /// The reply and what it waits for; the first part that is an error is the whole reply.
    pub fn finish(&mut self) -> (Vec<u8>, Lsn) {
        let parts: Vec<Vec<u8>> = self.parts.drain(..).flatten().collect();
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
            Combine::Sum => reply::integer(&mut out, parts.iter().map(|part| number(part)).sum()),
            Combine::Distinct | Combine::CountDistinct => {
                let elements = parts.iter().flat_map(|part| Elements(after_line(part)));
                let distinct: BTreeSet<&[u8]> = elements.collect();
                if matches!(self.combine, Combine::CountDistinct) {
                    reply::integer(&mut out, distinct.len() as i64);
                } else {
                    reply::array(&mut out, distinct.len());
                    distinct.iter().for_each(|text| out.extend_from_slice(text));
                }
            }
            Combine::SumPairs => {
                let mut parts = parts.iter().map(|part| Elements(after_line(part)));
                let elements: Vec<&[u8]> = parts.next().into_iter().flatten().collect();
                let mut sums: Vec<i64> = elements
                    .iter()
                    .skip(1)
                    .step_by(2)
                    .map(|n| number(n))
                    .collect();
                for part in parts {
                    let numbers = part.skip(1).step_by(2);
                    for (sum, element) in sums.iter_mut().zip(numbers) {
                        *sum += number(element);
                    }
                }
                reply::array(&mut out, elements.len());
                for (pair, sum) in elements.chunks(2).zip(sums) {
                    if let Some(text) = pair.first() {
                        out.extend_from_slice(text);
                    }
                    reply::integer(&mut out, sum);
                }
            }
            Combine::SlotStats(asked, counts_use) => {
                let rows = parts.iter().flat_map(|part| slot_stats::read_part(part));
                let mut rows: Vec<SlotRow> = rows.collect();
                // A partition that moves between shards meanwhile is asked for again; this is the last time.
                rows.sort_by_key(|row| row.slot);
                rows.dedup_by_key(|row| row.slot);
                asked.arrange(&mut rows);
                slot_stats::write(&mut out, self.protocol, &rows, *counts_use);
            }
            Combine::HotKeys => {
                let of_shards = parts.iter().filter(|part| part.starts_with(b"*"));
                let found: Vec<Found> = of_shards
                    .filter_map(|part| Found::read_part(Elements(after_line(part)).map(text)))
                    .collect();
                match Found::join(&found) {
                    Some(found) => found.write(&mut out, self.protocol),
                    None => reply::null(&mut out, self.protocol),
                }
            }
            Combine::First => {
                if let Some(part) = parts.first() {
                    out.extend_from_slice(part);
                }
            }
            Combine::Killed => match parts.iter().map(|part| number(part)).sum::<i64>() {
                0 => ClientError::NoSuchClient.write(&mut out),
                _ => out.extend_from_slice(reply::OK),
            },
            Combine::Acknowledged => {
                let least = parts.iter().map(|part| number(part)).min();
                write_acknowledged(&mut out, least.unwrap_or(0));
            }
            Combine::FirstFound(first) => {
                let (before, behind) = parts.split_at((*first).min(parts.len()));
                let is_found =
                    |part: &&Vec<u8>| !part.starts_with(b"_") && !part.starts_with(b"$-1");
                match behind.iter().chain(before).find(is_found) {
                    Some(part) => out.extend_from_slice(part),
                    None => reply::null(&mut out, self.protocol),
                }
            }
            Combine::Text => {
                let texts: Vec<&[u8]> = parts.iter().map(|part| text(part)).collect();
                reply::verbatim(&mut out, self.protocol, "txt", &texts.concat());
            }
            Combine::Concat => {
                let count = parts.iter().map(|part| number(part)).sum::<i64>();
                reply::array(&mut out, usize::try_from(count).unwrap_or(0));
                out.reserve(parts.iter().map(Vec::len).sum());
                for part in &parts {
                    out.extend_from_slice(after_line(part));
                }
            }
            Combine::Interleave(places) => {
                let total = places.iter().map(Vec::len).sum();
                let mut ordered: Vec<&[u8]> = vec![&[]; total];
                for (part, places) in parts.iter().zip(places) {
                    for (element, &place) in Elements(after_line(part)).zip(places) {
                        if let Some(at) = ordered.get_mut(place as usize) {
                            *at = element;
                        }
                    }
                }
                reply::array(&mut out, total);
                out.reserve(parts.iter().map(Vec::len).sum());
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

/// The number of a part's first line: an integer, or the length of what follows.
fn number(part: &[u8]) -> i64 {
    let line = part.get(1..part.len() - after_line(part).len());
    let digits = line.and_then(|line| line.strip_suffix(b"\r\n"));
    let number = digits.and_then(request::integer);
    debug_assert!(number.is_some(), "a shard's part starts with a number");
    number.unwrap_or(0)
}

/// The text of a bulk or verbatim string, of any length.
fn text(part: &[u8]) -> &[u8] {
    let text = after_line(part);
    let text = text.strip_suffix(b"\r\n").unwrap_or(text);
    match part.first() {
        Some(b'=') => text.strip_prefix(b"txt:").unwrap_or(text),
        _ => text,
    }
}

/// Splits encoded bulk strings and nulls.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let kind = self.0.first()?;
        let header = self.0.len() - after_line(self.0).len();
        let body = match kind {
            b'$' => usize::try_from(number(self.0)).map_or(0, |len| len + 2),
            _ => 0,
        };
        let end = (header + body).min(self.0.len());
        let (element, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(element)
    }
}

fn after_line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let end = end.map_or(bytes.len(), |at| at + 1);
    bytes.get(end..).unwrap_or_default()
}

#[cfg(test)]
mod tests;
