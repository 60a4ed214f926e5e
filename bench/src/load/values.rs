use std::fmt;
use std::fs;
use std::str::FromStr;
use std::sync::Arc;

use ephesus_wire::rng::Rng;

/// Longest value.
const BYTES_MAX: usize = 16 << 20;
const POOL_BYTES: usize = 64 * 1024;

/// How long values are: `100`, `100-2000`, or `@FILE` with lines of a size and its weight.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Fixed(usize),
    /// From, to.
    Uniform(usize, usize),
    /// Sizes, each with the sum of the weights up to it.
    Weighted(Arc<[(usize, u64)]>),
}

impl Sizes {
    /// The shortest and the longest.
    pub(crate) fn bounds(&self) -> [usize; 2] {
        match self {
            Sizes::Fixed(bytes) => [*bytes; 2],
            Sizes::Uniform(low, high) => [*low, *high],
            Sizes::Weighted(sizes) => {
                let bytes = || sizes.iter().map(|(bytes, _)| *bytes);
                [bytes().min(), bytes().max()].map(Option::unwrap_or_default)
            }
        }
    }

    fn of(&self, drawn: u64) -> usize {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Uniform(low, high) => low + (drawn % (high - low + 1) as u64) as usize,
            Sizes::Weighted(sizes) => {
                let all = sizes.last().map_or(1, |(_, sum)| *sum);
                let at = sizes.partition_point(|(_, sum)| *sum <= drawn % all);
                sizes.get(at).map_or(1, |(bytes, _)| *bytes)
            }
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
        let wrong = || format!("wants BYTES, FROM-TO or @FILE, with 1 to {BYTES_MAX} bytes");
        if let Some(path) = text.strip_prefix('@') {
            let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            let mut sum = 0_u64;
            let mut line = |line: &str| {
                let (size, weight) = line.trim().split_once(|gap: char| gap.is_whitespace())?;
                sum = sum.checked_add(weight.trim().parse().ok()?)?;
                Some((bytes(size)?, sum))
            };
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            let sizes: Option<Vec<_>> = lines.map(&mut line).collect();
            let sizes = sizes.filter(|sizes| sizes.last().is_some_and(|(_, sum)| *sum > 0));
            let wrong = || format!("{path}: each line is BYTES and a weight");
            return sizes.map(|of| Sizes::Weighted(of.into())).ok_or_else(wrong);
        }
        match text.split_once('-') {
            None => bytes(text).map(Sizes::Fixed),
            Some((low, high)) => bytes(low)
                .zip(bytes(high))
                .filter(|(low, high)| low <= high)
                .map(|(low, high)| Sizes::Uniform(low, high)),
        }
        .ok_or_else(wrong)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(bytes) => write!(f, "{bytes}"),
            Sizes::Uniform(low, high) => write!(f, "{low}-{high}"),
            Sizes::Weighted(sizes) => write!(f, "histogram of {} sizes", sizes.len()),
        }
    }
}

/// Printable, incompressible values that differ from key to key and from generation to generation.
#[derive(Clone, Debug)]
pub struct Values {
    pub(super) pool: Vec<u8>,
    sizes: Sizes,
}

impl Values {
    /// Values of these sizes.
    pub fn new(sizes: Sizes) -> Self {
        let mut random = Rng::new(0x5641_4c55_4553);
        let printable = |_| b'0' + random.below(75) as u8;
        let [_, longest] = sizes.bounds();
        Values {
            pool: (0..POOL_BYTES + longest).map(printable).collect(),
            sizes,
        }
    }

    /// The value of a key in a generation.
    pub fn get(&self, index: u64, generation: u64) -> &[u8] {
        let mut random = Rng::new(index ^ generation.rotate_left(32));
        let start = random.draw() as usize % POOL_BYTES;
        let bytes = match &self.sizes {
            Sizes::Fixed(bytes) => *bytes,
            sizes => sizes.of(random.draw()),
        };
        &self.pool[start..start + bytes]
    }
}
