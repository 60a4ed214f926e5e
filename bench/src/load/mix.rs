use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use ephesus_wire::rng::Rng;
use serde::Serialize;

use crate::named::Named;

/// What clients do with a key.
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
    /// Kinds.
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

/// Largest share of one operation.
const SHARE_MAX: u64 = 1_000_000;

impl Mix {
    /// Of these shares, one of which is not 0.
    pub fn of(shares: &[(Op, u64)]) -> Self {
        let shares: Vec<_> = shares.iter().copied().filter(|(_, of)| *of > 0).collect();
        let sum = shares.iter().map(|(_, share)| share).sum();
        Mix { shares, sum }
    }

    /// Whether it has some of it.
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
