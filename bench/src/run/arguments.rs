use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::load::{Distribution, Mix, Sizes, Span};
use crate::record::Outputs;
use crate::target::TargetArgs;

use super::Preset;
use super::preset::Workloads;

/// `ephesus-bench run`: a load on a server or a cluster that runs.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct RunArgs {
    /// Where it is
    #[command(flatten)]
    #[serde(flatten)]
    pub target: TargetArgs,
    /// It is a cluster: connect to each of its servers, and send each operation to the owner of its key
    #[arg(long)]
    pub cluster: bool,
    /// Measured seconds [default: 10, or until --count is reached]
    #[arg(long, value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Operations, of which --warmup's are not counted
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Seconds before the measured ones [default: 1, or 0 with --count]
    #[arg(long, value_parser = seconds)]
    pub warmup: Option<Duration>,
    /// Operations per second, sent whether or not earlier ones are answered; 0: each connection sends when it is answered
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=100_000_000))]
    pub rate: u64,
    /// Connections (to each server of a cluster)
    #[arg(long, default_value_t = 50, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub connections: usize,
    /// Operations that are sent together, to whichever servers of a cluster own their keys
    #[arg(long, default_value_t = 1)]
    pub pipeline: u32,
    /// Threads that share the connections
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub threads: usize,
    /// CPUs for a thread each, and for nothing else: at a --rate they spin, to be on time
    #[arg(long, value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// A known workload, which other flags change
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// Shares of read, write, ttl, delete, rmw, insert and count [default: read=50,write=50]
    #[arg(long)]
    #[serde(serialize_with = "shown")]
    pub mix: Option<Mix>,
    /// Keys, named key:000000000000 and on
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=999_999_999_999))]
    pub keys: u64,
    /// Which keys are taken how often [default: uniform]
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,
    /// Bytes of a value: N, FROM-TO, or @FILE with lines of a size and its weight [default: 100]
    #[arg(long)]
    #[serde(serialize_with = "shown")]
    pub value_bytes: Option<Sizes>,
    /// Seconds that keys with a time to live have [default: 60]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub ttl: Option<u64>,
    /// Load all keys first
    #[arg(long)]
    pub fill: bool,
    /// Values carry key and version, and a read that finds a wrong or an old one is an error
    #[arg(long)]
    pub verify: bool,
    /// What is written
    #[command(flatten)]
    #[serde(skip)]
    pub outputs: Outputs,
}

const SECONDS_MAX: f64 = 1e6;
const DURATION: Duration = Duration::from_secs(10);
const WARMUP: Duration = Duration::from_secs(1);

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("must be 0 to {SECONDS_MAX}")),
    }
}

fn shown<S: Serializer>(value: &Option<impl ToString>, serializer: S) -> Result<S::Ok, S::Error> {
    value
        .as_ref()
        .map(ToString::to_string)
        .serialize(serializer)
}

impl RunArgs {
    pub(super) fn shape(&self) -> Workloads {
        let preset = Workloads::of(self.preset);
        Workloads {
            mix: self.mix.clone().unwrap_or(preset.mix),
            distribution: self.distribution.unwrap_or(preset.distribution),
            sizes: self.value_bytes.clone().unwrap_or(preset.sizes),
            ttl_s: self.ttl.unwrap_or(preset.ttl_s),
        }
    }

    pub(super) fn span(&self) -> Span {
        let default = |time| self.count.is_none().then_some(time);
        Span {
            warmup: self.warmup.or(default(WARMUP)).unwrap_or_default(),
            duration: self.duration.or(default(DURATION)),
        }
    }
}
