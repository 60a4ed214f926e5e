//! `HOTKEYS`, as Redis 8.6 has it: what is asked for, and how it is answered.
//!
//! Shards tell each other their parts as texts, of which [`Found`] is the reader and the writer.

use std::cmp::Reverse;

use ephesus_wire::limits::SLOTS;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request;

use super::error::ClientError;
use super::parse::ArgList;

/// CPU and NET.
const METRICS_MAX: usize = 2;

/// Seconds that a session may be long, as in Redis.
const DURATION_MAX_S: i64 = 1_000_000;

/// Keys that are told unless another number is asked for, and at most.
const COUNT_DEFAULT: usize = 10;
const COUNT_MAX: i64 = 64;

/// What `HOTKEYS START` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub cpu: bool,
    pub net: bool,
    /// Keys of each.
    pub count: usize,
    /// Milliseconds after which it ends by itself.
    pub duration_ms: Option<u64>,
    /// One of so many uses is looked at.
    pub ratio: u64,
    /// Ascending; empty: all.
    pub slots: Vec<u16>,
}

fn error<T>(text: &'static str) -> Result<T, ClientError> {
    Err(ClientError::Hotkeys(text))
}

impl Wanted {
    /// Reads `HOTKEYS START METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] [SLOTS count slot ...]`.
    ///
    /// # Errors
    /// What of it is wrong.
    pub fn parse<A: ArgList + ?Sized>(args: &A) -> Result<Wanted, ClientError> {
        let is_word = |at: usize, word: &str| args.arg(at).eq_ignore_ascii_case(word.as_bytes());
        let number = |at: usize| match at < args.len() {
            true => request::integer(args.arg(at)),
            false => None,
        };
        if args.len() < 4 || !is_word(2, "metrics") {
            return error("METRICS parameter is required");
        }
        let metrics = number(3).and_then(|count| usize::try_from(count).ok());
        let Some(metrics) = metrics.filter(|count| (1..=METRICS_MAX).contains(count)) else {
            return error("METRICS count must be > 0 and <= 2");
        };
        let mut at = 4;
        if metrics > args.len() - at {
            return error("METRICS count does not match number of metric types provided");
        }
        let (mut cpu, mut net) = (false, false);
        for metric in at..at + metrics {
            if is_word(metric, "cpu") && std::mem::replace(&mut cpu, true) {
                return error("METRICS CPU is given more than once");
            }
            if is_word(metric, "net") && std::mem::replace(&mut net, true) {
                return error("METRICS NET is given more than once");
            }
        }
        if !cpu && !net {
            return error("METRICS no valid metrics passed, which are CPU and NET");
        }
        at += metrics;
        let mut wanted = Wanted {
            cpu,
            net,
            count: COUNT_DEFAULT,
            duration_ms: None,
            ratio: 1,
            slots: Vec::new(),
        };
        while at < args.len() {
            let given = number(at + 1);
            if is_word(at, "count") {
                let count = given.filter(|count| (1..=COUNT_MAX).contains(count));
                let Some(count) = count else {
                    return error("COUNT must be between 1 and 64");
                };
                wanted.count = count as usize;
                at += 2;
            } else if is_word(at, "duration") {
                let seconds = given.filter(|seconds| (1..=DURATION_MAX_S).contains(seconds));
                let Some(seconds) = seconds else {
                    return error("DURATION must be between 1 and 1000000");
                };
                wanted.duration_ms = Some(seconds as u64 * 1000);
                at += 2;
            } else if is_word(at, "sample") {
                let ratio = given.filter(|ratio| (1..=i64::from(i32::MAX)).contains(ratio));
                let Some(ratio) = ratio else {
                    return error("SAMPLE ratio must be positive");
                };
                wanted.ratio = ratio as u64;
                at += 2;
            } else if is_word(at, "slots") {
                if !wanted.slots.is_empty() {
                    return error("SLOTS parameter already specified");
                }
                let count = given.filter(|count| (1..=i64::from(SLOTS)).contains(count));
                let Some(count) = count.map(|count| count as usize) else {
                    return error("SLOTS count must be between 1 and 16384");
                };
                at += 2;
                if count > args.len() - at {
                    return error("not enough slot numbers provided");
                }
                for index in at..at + count {
                    let slot = number(index).and_then(|slot| u16::try_from(slot).ok());
                    let slot = slot.filter(|slot| *slot < SLOTS);
                    wanted.slots.push(slot.ok_or(ClientError::SlotRange)?);
                }
                wanted.slots.sort_unstable();
                if wanted
                    .slots
                    .windows(2)
                    .any(|pair| pair.first() == pair.last())
                {
                    return error("duplicate slot number");
                }
                at += count;
            } else {
                return Err(ClientError::Syntax);
            }
        }
        Ok(wanted)
    }
}

/// What was found, in a shard or in several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The number of its session.
    pub session: u64,
    pub is_active: bool,
    pub has_cpu: bool,
    pub has_net: bool,
    pub count: u64,
    pub ratio: u64,
    pub has_slots: bool,
    pub started_ms: u64,
    pub duration_ms: u64,
    /// Time of all commands, of those on the selected slots, and of those of them that were looked at.
    pub nanos: [u64; 3],
    pub bytes: [u64; 3],
    /// CPU time of the shards' threads, ms: user, system.
    pub cpu_ms: [u64; 2],
    pub net_bytes: u64,
    /// Inclusive, ascending.
    pub slots: Vec<(u16, u16)>,
    pub by_nanos: Vec<Taken>,
    pub by_bytes: Vec<Taken>,
}

/// What a key has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// By the hasher of the process: others may be shown alike.
    pub hash: u64,
    /// As it is shown.
    pub key: Vec<u8>,
    pub number: u64,
}

/// Numbers in front of the lists of a part.
const NUMBERS: usize = 18;

impl Found {
    fn numbers(&self) -> [u64; NUMBERS] {
        let [nanos, selected_nanos, sampled_nanos] = self.nanos;
        let [bytes, selected_bytes, sampled_bytes] = self.bytes;
        let [user_ms, system_ms] = self.cpu_ms;
        [
            self.session,
            self.is_active.into(),
            self.has_cpu.into(),
            self.has_net.into(),
            self.count,
            self.ratio,
            self.has_slots.into(),
            self.started_ms,
            self.duration_ms,
            nanos,
            selected_nanos,
            sampled_nanos,
            bytes,
            selected_bytes,
            sampled_bytes,
            user_ms,
            system_ms,
            self.net_bytes,
        ]
    }

    fn of_numbers(numbers: [u64; NUMBERS]) -> Found {
        let [
            session,
            is_active,
            has_cpu,
            has_net,
            count,
            ratio,
            has_slots,
            started_ms,
            duration_ms,
            nanos @ ..,
        ] = numbers;
        let [
            nanos,
            selected_nanos,
            sampled_nanos,
            bytes,
            selected_bytes,
            sampled_bytes,
            user_ms,
            system_ms,
            net_bytes,
        ] = nanos;
        Found {
            session,
            is_active: is_active > 0,
            has_cpu: has_cpu > 0,
            has_net: has_net > 0,
            count,
            ratio,
            has_slots: has_slots > 0,
            started_ms,
            duration_ms,
            nanos: [nanos, selected_nanos, sampled_nanos],
            bytes: [bytes, selected_bytes, sampled_bytes],
            cpu_ms: [user_ms, system_ms],
            net_bytes,
            ..Found::default()
        }
    }

    /// Appends it as one shard tells it to another: an array of texts.
    pub fn write_part(&self, out: &mut Vec<u8>) {
        let text = |number: u64| number.to_string().into_bytes();
        let mut texts: Vec<Vec<u8>> = self.numbers().into_iter().map(text).collect();
        texts.push(text(self.slots.len() as u64));
        for (first, last) in &self.slots {
            texts.extend([text((*first).into()), text((*last).into())]);
        }
        for keys in [&self.by_nanos, &self.by_bytes] {
            texts.push(text(keys.len() as u64));
            for taken in keys {
                let hash = taken.hash.to_le_bytes().to_vec();
                texts.extend([hash, taken.key.clone(), text(taken.number)]);
            }
        }
        reply::command(out, &texts);
    }

    /// What a part tells; none: nothing was looked at in that shard.
    pub fn read_part<'a>(mut texts: impl Iterator<Item = &'a [u8]>) -> Option<Found> {
        let number = |text: &[u8]| u64::try_from(request::integer(text)?).ok();
        let mut numbers = [0; NUMBERS];
        for place in &mut numbers {
            *place = number(texts.next()?)?;
        }
        let mut found = Found::of_numbers(numbers);
        for _ in 0..number(texts.next()?)? {
            let (first, last) = (number(texts.next()?)?, number(texts.next()?)?);
            found.slots.push((first as u16, last as u16));
        }
        for keys in [&mut found.by_nanos, &mut found.by_bytes] {
            for _ in 0..number(texts.next()?)? {
                keys.push(Taken {
                    hash: u64::from_le_bytes(texts.next()?.try_into().ok()?),
                    key: texts.next()?.to_vec(),
                    number: number(texts.next()?)?,
                });
            }
        }
        Some(found)
    }

    /// What was found in the session that began last.
    pub fn join(all: &[Found]) -> Option<Found> {
        let newest = all.iter().map(|found| found.session).max()?;
        let of_newest = all.iter().filter(|found| found.session == newest);
        let mut all = of_newest.cloned().reduce(|mut one, other| {
            one.is_active |= other.is_active;
            one.duration_ms = one.duration_ms.max(other.duration_ms);
            let sums = one
                .nanos
                .iter_mut()
                .chain(&mut one.bytes)
                .chain(&mut one.cpu_ms);
            let others = other.nanos.iter().chain(&other.bytes).chain(&other.cpu_ms);
            sums.zip(others).for_each(|(sum, other)| *sum += other);
            one.net_bytes += other.net_bytes;
            one.slots.extend(other.slots);
            one.by_nanos.extend(other.by_nanos);
            one.by_bytes.extend(other.by_bytes);
            one
        })?;
        let count = all.count as usize;
        all.slots = ranges(all.slots.iter().copied());
        all.by_nanos = top(all.by_nanos, count);
        all.by_bytes = top(all.by_bytes, count);
        Some(all)
    }

    /// Appends the reply.
    pub fn write(&self, out: &mut Vec<u8>, protocol: Protocol) {
        let is_sampled = self.has_slots && self.ratio > 1;
        let usec = self.nanos.map(|nanos| nanos / 1000);
        let [user_ms, system_ms] = self.cpu_ms;
        let fields: [(&str, bool, u64); 12] = [
            ("sampled-commands-selected-slots-us", is_sampled, usec[2]),
            ("all-commands-selected-slots-us", self.has_slots, usec[1]),
            ("all-commands-all-slots-us", true, usec[0]),
            (
                "net-bytes-sampled-commands-selected-slots",
                is_sampled,
                self.bytes[2],
            ),
            (
                "net-bytes-all-commands-selected-slots",
                self.has_slots,
                self.bytes[1],
            ),
            ("net-bytes-all-commands-all-slots", true, self.bytes[0]),
            ("collection-start-time-unix-ms", true, self.started_ms),
            ("collection-duration-ms", true, self.duration_ms),
            ("total-cpu-time-user-ms", self.has_cpu, user_ms),
            ("total-cpu-time-sys-ms", self.has_cpu, system_ms),
            ("total-net-bytes", self.has_net, self.net_bytes),
            ("sample-ratio", false, self.ratio),
        ];
        let told = fields.iter().filter(|(_, is_told, _)| *is_told);
        let lists = usize::from(self.has_cpu) + usize::from(self.has_net);
        reply::array(out, 1);
        reply::map(out, protocol, 3 + told.clone().count() + lists);
        let mut field = |name: &str, number: u64| {
            reply::bulk(out, name.as_bytes());
            reply::integer(out, number as i64);
        };
        field("tracking-active", self.is_active.into());
        field("sample-ratio", self.ratio);
        reply::bulk(out, b"selected-slots");
        reply::array(out, self.slots.len());
        for (first, last) in &self.slots {
            let ends = if first == last {
                &[*first][..]
            } else {
                &[*first, *last]
            };
            reply::array(out, ends.len());
            ends.iter()
                .for_each(|end| reply::integer(out, (*end).into()));
        }
        for (name, _, number) in told {
            reply::bulk(out, name.as_bytes());
            reply::integer(out, *number as i64);
        }
        let keys = |keys: &[Taken], unit: u64| -> Vec<(Vec<u8>, u64)> {
            let keys = keys
                .iter()
                .map(|taken| (taken.key.clone(), taken.number / unit));
            keys.filter(|(_, number)| *number > 0).collect()
        };
        for (name, is_told, keys) in [
            ("by-cpu-time-us", self.has_cpu, keys(&self.by_nanos, 1000)),
            ("by-net-bytes", self.has_net, keys(&self.by_bytes, 1)),
        ] {
            if is_told {
                reply::bulk(out, name.as_bytes());
                reply::array(out, keys.len() * 2);
                for (key, number) in keys {
                    reply::bulk(out, &key);
                    reply::integer(out, number as i64);
                }
            }
        }
    }
}

/// The largest; a key that has moved between shards is one.
fn top(mut keys: Vec<Taken>, count: usize) -> Vec<Taken> {
    keys.sort_by_key(|taken| taken.hash);
    keys.dedup_by(|next, kept| {
        let is_same = next.hash == kept.hash;
        kept.number += if is_same { next.number } else { 0 };
        is_same
    });
    keys.sort_by_key(|taken| Reverse(taken.number));
    keys.truncate(count);
    keys
}

/// Ranges that are neighbours, or the same, are one.
#[must_use]
pub fn ranges(all: impl Iterator<Item = (u16, u16)>) -> Vec<(u16, u16)> {
    let mut sorted: Vec<(u16, u16)> = all.collect();
    sorted.sort_unstable();
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for (first, last) in sorted {
        match ranges.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => ranges.push((first, last)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Wanted, String> {
        let args: Vec<&str> = line.split(' ').collect();
        Wanted::parse(&args[..]).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_wanted_is_read() {
        let wanted =
            parse("hotkeys start metrics 2 NET cpu COUNT 3 DURATION 7 SAMPLE 9 SLOTS 3 10 5 6");
        let expected = Wanted {
            cpu: true,
            net: true,
            count: 3,
            duration_ms: Some(7_000),
            ratio: 9,
            slots: vec![5, 6, 10],
        };
        assert_eq!(wanted, Ok(expected));
        for (rest, text) in [
            ("", "METRICS parameter is required"),
            ("METRICS 0", "METRICS count"),
            ("METRICS -1", "METRICS count"),
            (
                "METRICS 2 CPU",
                "METRICS count does not match number of metric types provided",
            ),
            ("METRICS 3 CPU NET", "METRICS count"),
            ("METRICS 1 CPU NET", "syntax error"),
            ("METRICS 1 GPU", "METRICS no valid metrics"),
            ("METRICS 2 CPU CPU", "METRICS CPU"),
            ("METRICS 2 NET NET", "METRICS NET"),
            ("METRICS 1 CPU COUNT 0", "COUNT must be between 1 and 64"),
            ("METRICS 1 CPU COUNT 100", "COUNT must be between 1 and 64"),
            ("METRICS 1 CPU COUNT", "COUNT must be between 1 and 64"),
            ("METRICS 1 CPU DURATION -1", "DURATION"),
            ("METRICS 1 CPU DURATION 1000001", "between 1 and 1000000"),
            ("METRICS 1 CPU SAMPLE 0", "SAMPLE ratio must be positive"),
            (
                "METRICS 1 CPU SLOTS 2 0",
                "not enough slot numbers provided",
            ),
            ("METRICS 1 CPU SLOTS 2 0 0", "duplicate slot number"),
            (
                "METRICS 1 CPU SLOTS 1 0 SLOTS 1 5",
                "SLOTS parameter already specified",
            ),
            (
                "METRICS 1 CPU SLOTS 1 16384",
                "Invalid or out of range slot",
            ),
            ("METRICS 1 CPU SLOTS 1 abc", "Invalid or out of range slot"),
            ("METRICS 99999999999999999999 CPU", "METRICS count"),
            ("METRICS 1 CPU SLOTS 9999999999 1", "SLOTS count"),
        ] {
            let line = format!("hotkeys start {rest}");
            let error = parse(line.trim_end()).expect_err(rest);
            assert!(error.contains(text), "{rest}: {error}");
        }
        assert!(parse("hotkeys start METRICS 2 GPU CPU").is_ok());
    }

    #[test]
    fn parts_come_back_and_are_joined() {
        let taken = |hash, key: &[u8], number| Taken {
            hash,
            key: key.to_vec(),
            number,
        };
        let found = Found {
            session: 4,
            is_active: true,
            has_cpu: true,
            has_net: true,
            count: 2,
            ratio: 5,
            has_slots: true,
            started_ms: 1_000,
            duration_ms: 30,
            nanos: [9_000, 8_000, 7_000],
            bytes: [6, 5, 4],
            cpu_ms: [3, 2],
            net_bytes: 1,
            slots: vec![(0, 2), (7, 7)],
            by_nanos: vec![taken(1, b"a\r\n$", 5_000), taken(u64::MAX, b"", 10)],
            by_bytes: vec![],
        };
        let mut part = Vec::new();
        found.write_part(&mut part);
        let text = String::from_utf8_lossy(&part).into_owned();
        assert!(text.starts_with("*31\r\n"), "{text}");
        let texts: Vec<Vec<u8>> = {
            let mut args = ephesus_wire::resp::request::Args::new();
            let limits = ephesus_wire::resp::request::RequestLimits::DEFAULT;
            ephesus_wire::resp::request::parse(&part, &limits, &mut args).expect("a command");
            let request = crate::command::parse::Request::new(&args, &part);
            request.to_args().iter().map(|text| text.to_vec()).collect()
        };
        let read = |texts: &[Vec<u8>]| Found::read_part(texts.iter().map(Vec::as_slice));
        assert_eq!(read(&texts), Some(found.clone()));
        assert_eq!(read(&texts[..20]), None);
        let other = Found {
            is_active: false,
            slots: vec![(3, 6), (9, 9)],
            by_nanos: vec![taken(2, b"a\r\n$", 7_000), taken(1, b"a\r\n$", 3_000)],
            ..found.clone()
        };
        // One that was stopped before tells nothing of this one.
        let before = Found {
            session: 3,
            ratio: 7,
            ..found.clone()
        };
        let joined = Found::join(&[before, found, other]).expect("two");
        assert!(joined.is_active && joined.ratio == 5);
        assert_eq!(joined.nanos, [18_000, 16_000, 14_000]);
        assert_eq!(joined.slots, [(0, 7), (9, 9)]);
        assert_eq!(
            joined.by_nanos,
            [taken(1, b"a\r\n$", 8_000), taken(2, b"a\r\n$", 7_000)]
        );
        assert_eq!(Found::join(&[]), None);
    }
}
