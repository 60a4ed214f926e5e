use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, fs};

use clap::ValueEnum;
use ephesus_wire::rng::Rng;
use serde::Serialize;

use crate::named::Named;

use super::keys::{Distribution, Indexes};
use super::ledger::Ledger;

#[derive(Clone, Debug)]
pub struct Workload {
    pub mix: Mix,
    pub keys: Indexes,
    pub distribution: Distribution,
    pub sizes: Sizes,
    /// Time to live of what has one, seconds.
    pub ttl_s: u64,
    /// Values carry their key and version, and reads are judged.
    pub(crate) ledger: Option<Arc<Ledger>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// GET
    Read,
    /// SET
    Write,
    /// SET with a time to live
    Ttl,
    /// DEL
    Delete,
    /// GET, then SET: done when both are
    Rmw,
    /// SET of a key that was not there
    Insert,
    /// INCR of a counter, and EXPIRE of a new one: done when both are
    Count,
}

impl Op {
    pub(super) const COUNT: usize = Op::Count as usize + 1;
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Shares of operations, such as `read=95,write=5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    shares: Vec<(Op, u64)>,
    sum: u64,
}

const SHARE_MAX: u64 = 1_000_000;

impl Mix {
    /// Of these shares, one of which is not 0.
    pub fn of(shares: &[(Op, u64)]) -> Self {
        let shares: Vec<_> = shares.iter().copied().filter(|(_, of)| *of > 0).collect();
        let sum = shares.iter().map(|(_, share)| share).sum();
        Mix { shares, sum }
    }

    pub fn has(&self, op: Op) -> bool {
        self.shares.iter().any(|(one, _)| *one == op)
    }

    pub(super) fn draw(&self, random: &mut Rng) -> Op {
        if let [(only, _)] = self.shares[..] {
            return only;
        }
        let mut drawn = random.below(self.sum);
        for (op, share) in &self.shares {
            match drawn.checked_sub(*share) {
                Some(left) => drawn = left,
                None => return *op,
            }
        }
        unreachable!("less than the sum was drawn")
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| {
            let (name, share) = part.split_once('=')?;
            let op = Op::from_str(name, false).ok()?;
            Some((op, share.parse().ok().filter(|share| *share <= SHARE_MAX)?))
        };
        let shares: Option<Vec<_>> = text.split(',').map(part).collect();
        let mix = shares.map(|shares| Mix::of(&shares));
        mix.filter(|mix| mix.sum > 0).ok_or_else(|| {
            let names: Vec<String> = Op::all().iter().map(Named::name).collect();
            format!(
                "wants shares such as read=95,write=5, of {}",
                names.join(", ")
            )
        })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = self.shares.iter();
        let words: Vec<String> = shares.map(|(op, share)| format!("{op}={share}")).collect();
        f.write_str(&words.join(","))
    }
}

const BYTES_MAX: usize = 16 << 20;
const POOL_BYTES: usize = 64 * 1024;

/// How long values are: `100`, `100-2000`, or `@FILE` with lines of a size and its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    shown: String,
    /// From and to, with the sum of the weights up to there.
    parts: Arc<[(usize, usize, u64)]>,
}

impl Sizes {
    pub fn fixed(bytes: usize) -> Self {
        Sizes {
            shown: bytes.to_string(),
            parts: [(bytes, bytes, 1)].into(),
        }
    }

    pub fn uniform(low: usize, high: usize) -> Self {
        Sizes {
            shown: format!("{low}-{high}"),
            parts: [(low, high, 1)].into(),
        }
    }

    /// The shortest and the longest.
    pub(crate) fn bounds(&self) -> [usize; 2] {
        let low = self.parts.iter().map(|(low, ..)| *low).min();
        let high = self.parts.iter().map(|(_, high, _)| *high).max();
        [low, high].map(Option::unwrap_or_default)
    }

    fn draw(&self, random: &mut Rng) -> usize {
        let (low, high, _) = match &*self.parts {
            [only] => *only,
            parts => {
                let drawn = random.below(parts[parts.len() - 1].2);
                parts[parts.partition_point(|(.., sum)| *sum <= drawn)]
            }
        };
        match high - low {
            0 => low,
            more => low + random.below(more as u64 + 1) as usize,
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = |text: &str| {
            let bytes: usize = text.trim().parse().ok()?;
            (1..=BYTES_MAX).contains(&bytes).then_some(bytes)
        };
        if let Some(path) = text.strip_prefix('@') {
            let lines = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            let mut sum = 0_u64;
            let part = |line: &str| {
                let (size, weight) = line.trim().split_once(|gap: char| gap.is_whitespace())?;
                sum = sum.checked_add(weight.trim().parse().ok()?)?;
                Some((bytes(size)?, bytes(size)?, sum))
            };
            let lines = lines.lines().filter(|line| !line.trim().is_empty());
            let parts: Option<Vec<_>> = lines.map(part).collect();
            let parts = parts.filter(|parts| parts.last().is_some_and(|(.., sum)| *sum > 0));
            let parts = parts.ok_or_else(|| format!("{path}: each line is BYTES and a weight"))?;
            return Ok(Sizes {
                shown: text.to_owned(),
                parts: parts.into(),
            });
        }
        let sizes = match text.split_once('-') {
            None => bytes(text).map(Sizes::fixed),
            Some((low, high)) => bytes(low)
                .zip(bytes(high))
                .filter(|(low, high)| low <= high)
                .map(|(low, high)| Sizes::uniform(low, high)),
        };
        let wrong = || format!("wants BYTES, FROM-TO or @FILE, with 1 to {BYTES_MAX} bytes");
        sizes.ok_or_else(wrong)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Printable, incompressible values that differ from key to key and from generation to generation.
#[derive(Clone, Debug)]
pub struct Values {
    pub(super) pool: Vec<u8>,
    sizes: Sizes,
}

impl Values {
    pub fn new(sizes: Sizes) -> Self {
        let mut random = Rng::new(0x5641_4c55_4553);
        let printable = |_| b'0' + random.below(75) as u8;
        let [_, longest] = sizes.bounds();
        Values {
            pool: (0..POOL_BYTES + longest).map(printable).collect(),
            sizes,
        }
    }

    pub fn get(&self, index: u64, generation: u64) -> &[u8] {
        let mut random = Rng::new(index ^ generation.rotate_left(32));
        let start = random.draw() as usize % POOL_BYTES;
        let bytes = self.sizes.draw(&mut random);
        &self.pool[start..start + bytes]
    }
}
