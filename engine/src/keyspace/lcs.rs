//! LCS: the longest common subsequence of two values, and where it lies in both.

use ephesus_wire::limits::VALUE_BYTES_MAX;
use ephesus_wire::resp::reply;

use super::strings::Outcome;
use super::{Key, Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, integer};

/// Of the table, which has a number for each pair of prefixes. Redis has this limit for it, too; here it is some
/// milliseconds of the shard's time.
const TABLE_BYTES_MAX: usize = VALUE_BYTES_MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Options {
    wants_len: bool,
    wants_places: bool,
    with_match_len: bool,
    match_len_min: usize,
}

impl Options {
    fn parse<A: ArgList + ?Sized>(args: &A) -> Result<Options, ClientError> {
        let (mut options, mut at) = (Options::default(), 3);
        while at < args.len() {
            let name = args.arg(at);
            match () {
                () if name.eq_ignore_ascii_case(b"len") => options.wants_len = true,
                () if name.eq_ignore_ascii_case(b"idx") => options.wants_places = true,
                () if name.eq_ignore_ascii_case(b"withmatchlen") => options.with_match_len = true,
                () if name.eq_ignore_ascii_case(b"minmatchlen") && at + 1 < args.len() => {
                    at += 1;
                    let len = integer(args.arg(at))?;
                    options.match_len_min = usize::try_from(len.max(0)).unwrap_or(usize::MAX);
                }
                () => return Err(ClientError::Syntax),
            }
            at += 1;
        }
        if options.wants_len && options.wants_places {
            return Err(ClientError::LcsLenAndIdx);
        }
        Ok(options)
    }
}

/// A run that both values have: where it ends in each, both ends behind its last byte, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    ends: (usize, usize),
    len: usize,
}

/// Lengths of the longest common subsequences of all pairs of prefixes.
struct Lengths {
    /// By the first one's length, then by the second one's.
    table: Vec<u32>,
    row: usize,
}

#[expect(
    clippy::indexing_slicing,
    reason = "the table has a place for each pair of prefixes"
)]
impl Lengths {
    fn of(a: &[u8], b: &[u8]) -> Lengths {
        let row = b.len() + 1;
        let mut table = vec![0; (a.len() + 1) * row];
        for (i, byte) in a.iter().enumerate() {
            let (above, this) = table[i * row..(i + 2) * row].split_at_mut(row);
            let mut left = 0;
            for (j, other) in b.iter().enumerate() {
                left = match byte == other {
                    true => above[j] + 1,
                    false => above[j + 1].max(left),
                };
                this[j + 1] = left;
            }
        }
        Lengths { table, row }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.table[i * self.row + j]
    }

    /// The matching runs from the last to the first, of those subsequences the one that Redis takes.
    fn matches(&self, a: &[u8], b: &[u8], mut each: impl FnMut(Match)) {
        let (mut i, mut j) = (a.len(), b.len());
        let mut open: Option<Match> = None;
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                let run = open.get_or_insert(Match {
                    ends: (i, j),
                    len: 0,
                });
                run.len += 1;
                (i, j) = (i - 1, j - 1);
            } else {
                open.take().into_iter().for_each(&mut each);
                if self.at(i - 1, j) > self.at(i, j - 1) {
                    i -= 1;
                } else {
                    j -= 1;
                }
            }
        }
        open.into_iter().for_each(each);
    }
}

impl Keyspace {
    pub(super) fn lcs<A: ArgList + ?Sized>(
        &mut self,
        keys: (&Key<'_>, &Key<'_>),
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let options = Options::parse(args)?;
        let is_there = [keys.0, keys.1].map(|key| self.read(key, reply).is_some());
        let value = |key, is_there: bool| {
            let entry = self.entry(key).filter(|_| is_there);
            entry.map_or(&[][..], |entry| entry.value)
        };
        let (a, b) = (value(keys.0, is_there[0]), value(keys.1, is_there[1]));
        let pairs = (a.len() + 1) * (b.len() + 1);
        if pairs * size_of::<u32>() > TABLE_BYTES_MAX {
            return Err(ClientError::LcsTooLarge);
        }
        let lengths = Lengths::of(a, b);
        let len = lengths.at(a.len(), b.len()) as usize;
        if options.wants_len {
            reply::integer(reply.out, len as i64);
        } else if options.wants_places {
            let mut runs = Vec::new();
            lengths.matches(a, b, |run| runs.push(run));
            runs.retain(|run| run.len >= options.match_len_min);
            write_places(reply, &runs, options.with_match_len);
            reply::bulk(reply.out, b"len");
            reply::integer(reply.out, len as i64);
        } else {
            let mut reversed = Vec::with_capacity(len);
            lengths.matches(a, b, |run| {
                let bytes = a.get(run.ends.0 - run.len..run.ends.0);
                reversed.extend(bytes.unwrap_or_default().iter().rev());
            });
            reversed.reverse();
            reply::bulk(reply.out, &reversed);
        }
        self.note_cells(pairs);
        Ok(())
    }
}

/// Writes the first of the two fields of a reply with IDX.
fn write_places(reply: &mut Reply<'_>, runs: &[Match], with_len: bool) {
    reply::map(reply.out, reply.protocol, 2);
    reply::bulk(reply.out, b"matches");
    reply::array(reply.out, runs.len());
    for Match { ends, len } in runs {
        reply::array(reply.out, 2 + usize::from(with_len));
        for end in [ends.0, ends.1] {
            reply::array(reply.out, 2);
            reply::integer(reply.out, (end - len) as i64);
            reply::integer(reply.out, end as i64 - 1);
        }
        if with_len {
            reply::integer(reply.out, *len as i64);
        }
    }
}
