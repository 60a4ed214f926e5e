//! `CLUSTER SLOT-STATS`: what is asked for, and how rows are written.

use std::cmp::Reverse;

use ephesus_wire::limits::SLOTS;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request;

use super::error::{ClientError, Quoted};
use super::parse::ArgList;

/// What rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    KeyCount,
    CpuUsec,
    NetworkBytesIn,
    NetworkBytesOut,
}

/// Which slots are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotStats {
    /// From one to another, inclusive.
    Range(u16, u16),
    /// Those of which a number is the largest, or the smallest.
    OrderBy {
        metric: Metric,
        most: usize,
        ascending: bool,
    },
}

/// What is known of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotRow {
    pub slot: u16,
    pub keys: u64,
    pub cpu_usec: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// Numbers of a row as shards tell them to each other.
const FIELDS: usize = 5;

impl SlotStats {
    /// Reads `CLUSTER SLOT-STATS SLOTSRANGE start end` or `ORDERBY metric [LIMIT n] [ASC|DESC]`; `counts_use` says
    /// whether anything but keys is counted.
    ///
    /// # Errors
    /// What of it is wrong.
    pub fn parse<A: ArgList + ?Sized>(
        args: &A,
        counts_use: bool,
    ) -> Result<SlotStats, ClientError> {
        let is_word =
            |index: usize, word: &str| args.arg(index).eq_ignore_ascii_case(word.as_bytes());
        if args.len() == 5 && is_word(2, "slotsrange") {
            let (first, last) = (slot(args.arg(3))?, slot(args.arg(4))?);
            return match first > last {
                true => Err(ClientError::SlotsReversed(first, last)),
                false => Ok(SlotStats::Range(first, last)),
            };
        }
        if args.len() < 4 || !is_word(2, "orderby") {
            let name = Quoted::new(args.arg(1));
            let container = "CLUSTER";
            return Err(ClientError::SubcommandArity { container, name });
        }
        let metric = match () {
            () if is_word(3, "key-count") => Metric::KeyCount,
            () if !counts_use => return Err(ClientError::SlotMetric),
            () if is_word(3, "cpu-usec") => Metric::CpuUsec,
            () if is_word(3, "network-bytes-in") => Metric::NetworkBytesIn,
            () if is_word(3, "network-bytes-out") => Metric::NetworkBytesOut,
            () => return Err(ClientError::SlotMetric),
        };
        let (mut most, mut ascending, mut at) = (None, None, 4);
        while at < args.len() {
            if is_word(at, "limit") && at + 1 < args.len() {
                let limit = request::integer(args.arg(at + 1));
                let limit = limit.filter(|limit| (1..=i64::from(SLOTS)).contains(limit));
                let limit = limit.ok_or(ClientError::SlotLimit)?;
                if most.replace(limit as usize).is_some() {
                    return Err(ClientError::SlotFilters);
                }
                at += 2;
            } else if is_word(at, "asc") || is_word(at, "desc") {
                if ascending.replace(is_word(at, "asc")).is_some() {
                    return Err(ClientError::SlotFilters);
                }
                at += 1;
            } else {
                return Err(ClientError::Syntax);
            }
        }
        Ok(SlotStats::OrderBy {
            metric,
            most: most.unwrap_or(SLOTS.into()),
            ascending: ascending.unwrap_or(false),
        })
    }

    /// The slots that are looked at.
    #[must_use]
    pub fn slots(&self) -> (u16, u16) {
        match *self {
            SlotStats::Range(first, last) => (first, last),
            SlotStats::OrderBy { .. } => (0, SLOTS - 1),
        }
    }

    /// Puts rows in order, and leaves out those that are not asked for.
    pub fn arrange(&self, rows: &mut Vec<SlotRow>) {
        let SlotStats::OrderBy {
            metric,
            most,
            ascending,
        } = *self
        else {
            rows.sort_by_key(|row| row.slot);
            return;
        };
        let number = |row: &SlotRow| match metric {
            Metric::KeyCount => row.keys,
            Metric::CpuUsec => row.cpu_usec,
            Metric::NetworkBytesIn => row.bytes_in,
            Metric::NetworkBytesOut => row.bytes_out,
        };
        match ascending {
            true => rows.sort_by_key(|row| (number(row), row.slot)),
            false => rows.sort_by_key(|row| (Reverse(number(row)), row.slot)),
        }
        rows.truncate(most);
    }
}

fn slot(text: &[u8]) -> Result<u16, ClientError> {
    let number = request::integer(text).and_then(|number| u16::try_from(number).ok());
    number
        .filter(|slot| *slot < SLOTS)
        .ok_or(ClientError::SlotRange)
}

/// Appends the reply; what is not counted is left out.
pub fn write(out: &mut Vec<u8>, protocol: Protocol, rows: &[SlotRow], counts_use: bool) {
    reply::array(out, rows.len());
    for row in rows {
        reply::array(out, 2);
        reply::integer(out, row.slot.into());
        let uses = [
            ("cpu-usec", row.cpu_usec),
            ("network-bytes-in", row.bytes_in),
            ("network-bytes-out", row.bytes_out),
        ];
        let uses = uses.iter().filter(|_| counts_use);
        reply::map(out, protocol, 1 + uses.clone().count());
        for (name, number) in [("key-count", row.keys)].iter().chain(uses) {
            reply::bulk(out, name.as_bytes());
            reply::integer(out, *number as i64);
        }
    }
}

/// Appends rows as one shard tells them to another.
pub fn write_part(out: &mut Vec<u8>, rows: &[SlotRow]) {
    reply::array(out, rows.len() * FIELDS);
    for row in rows {
        for number in [
            row.slot.into(),
            row.keys,
            row.cpu_usec,
            row.bytes_in,
            row.bytes_out,
        ] {
            reply::integer(out, number as i64);
        }
    }
}

/// The rows that a part has, behind its first line.
#[must_use]
pub fn read_part(part: &[u8]) -> Vec<SlotRow> {
    let lines = part.split(|byte| *byte == b'\n').skip(1);
    let numbers = lines.filter_map(|line| {
        let digits = line.strip_prefix(b":")?.strip_suffix(b"\r")?;
        u64::try_from(request::integer(digits)?).ok()
    });
    let numbers: Vec<u64> = numbers.collect();
    let (rows, _) = numbers.as_chunks::<FIELDS>();
    let row = |[slot, keys, cpu_usec, bytes_in, bytes_out]: &[u64; FIELDS]| SlotRow {
        slot: *slot as u16,
        keys: *keys,
        cpu_usec: *cpu_usec,
        bytes_in: *bytes_in,
        bytes_out: *bytes_out,
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str, counts_use: bool) -> Result<SlotStats, String> {
        let args: Vec<&str> = line.split(' ').collect();
        SlotStats::parse(&args[..], counts_use).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_asked_for_is_read() {
        let order = |metric, most, ascending| {
            Ok(SlotStats::OrderBy {
                metric,
                most,
                ascending,
            })
        };
        let of = |rest: &str| parse(&format!("cluster slot-stats {rest}"), true);
        assert_eq!(of("slotsrange 3 16383"), Ok(SlotStats::Range(3, 16383)));
        assert_eq!(of("orderby cpu-usec"), order(Metric::CpuUsec, 16384, false));
        let expected = order(Metric::NetworkBytesIn, 7, true);
        assert_eq!(of("ORDERBY network-bytes-in LIMIT 7 asc"), expected);
        assert_eq!(of("orderby network-bytes-in ASC limit 7"), expected);
        let disabled = parse("cluster slot-stats orderby cpu-usec", false);
        assert!(disabled.is_err_and(|error| error.contains("Unrecognized sort metric")));
        assert!(parse("cluster slot-stats orderby key-count", false).is_ok());
    }

    #[test]
    fn rows_come_back_from_a_part_and_in_order() {
        let row = |slot, keys| SlotRow {
            slot,
            keys,
            cpu_usec: 7,
            bytes_in: u64::from(slot) * 1_000_000_007,
            bytes_out: 0,
        };
        let mut rows = vec![row(3, 5), row(1, 9), row(2, 5), row(16383, 0)];
        let mut part = Vec::new();
        write_part(&mut part, &rows);
        assert_eq!(read_part(&part), rows);
        assert_eq!(read_part(b"*0\r\n"), []);
        let order = |ascending, most| SlotStats::OrderBy {
            metric: Metric::KeyCount,
            most,
            ascending,
        };
        order(false, 3).arrange(&mut rows);
        assert_eq!(rows, [row(1, 9), row(2, 5), row(3, 5)]);
        order(true, 2).arrange(&mut rows);
        assert_eq!(rows, [row(2, 5), row(3, 5)]);
        let mut out = Vec::new();
        write(&mut out, Protocol::Resp3, &[row(4, 6)], false);
        assert_eq!(out, b"*1\r\n*2\r\n:4\r\n%1\r\n$9\r\nkey-count\r\n:6\r\n");
    }
}
