use serde::Serialize;

use crate::load::{Distribution, Indexes, Mix, Op, Sizes, Workload};

/// A known workload. The letters are YCSB's (Cooper and others, SoCC 2010), with one value in place of ten fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// YCSB A: half reads, half writes, zipfian
    #[value(name = "a")]
    A,
    /// YCSB B: 95% reads, 5% writes, zipfian
    #[value(name = "b")]
    B,
    /// YCSB C: reads, zipfian
    #[value(name = "c")]
    C,
    /// YCSB D: 95% reads of the latest, 5% inserts
    #[value(name = "d")]
    D,
    /// YCSB F: half reads, half read-modify-writes, zipfian
    #[value(name = "f")]
    F,
    /// sessions of a web site: 80% reads, 20% writes that live for half an hour
    Session,
    /// a cache: 90% reads, writes that live for five minutes, some deletes
    Cache,
    /// a limit of requests: counters that live for a minute
    RateLimit,
}

/// What operations look like.
#[derive(Clone, Debug)]
pub(crate) struct Workloads {
    pub(super) mix: Mix,
    pub(super) distribution: Distribution,
    pub(super) sizes: Sizes,
    pub(super) ttl_s: u64,
}

/// Ten fields of 100 bytes.
const YCSB_BYTES: Sizes = Sizes::Fixed(1000);

impl Workloads {
    /// Of a preset, or of none.
    pub(crate) fn of(preset: Option<Preset>) -> Self {
        let shape = |shares: &[(Op, u64)], distribution, sizes, ttl_s| Workloads {
            mix: Mix::of(shares),
            distribution,
            sizes,
            ttl_s,
        };
        let ycsb = |share, op, distribution| {
            shape(
                &[(Op::Read, share), (op, 100 - share)],
                distribution,
                YCSB_BYTES,
                60,
            )
        };
        let zipfian = Distribution::Zipfian;
        match preset {
            None => {
                let half = [(Op::Read, 50), (Op::Write, 50)];
                shape(&half, Distribution::Uniform, Sizes::Fixed(100), 60)
            }
            Some(Preset::A) => ycsb(50, Op::Write, zipfian),
            Some(Preset::B) => ycsb(95, Op::Write, zipfian),
            Some(Preset::C) => ycsb(100, Op::Write, zipfian),
            Some(Preset::D) => ycsb(95, Op::Insert, Distribution::Latest),
            Some(Preset::F) => ycsb(50, Op::Rmw, zipfian),
            Some(Preset::Session) => {
                let shares = [(Op::Read, 80), (Op::Ttl, 20)];
                shape(&shares, zipfian, Sizes::Uniform(300, 2000), 1800)
            }
            Some(Preset::Cache) => {
                let shares = [(Op::Read, 90), (Op::Ttl, 9), (Op::Delete, 1)];
                shape(&shares, zipfian, Sizes::Uniform(64, 4096), 300)
            }
            Some(Preset::RateLimit) => shape(&[(Op::Count, 1)], zipfian, Sizes::Fixed(1), 60),
        }
    }

    /// On so many keys.
    pub(crate) fn workload(self, keys: u64) -> Workload {
        Workload {
            mix: self.mix,
            is_apart: false,
            keys: Indexes::Below(keys),
            distribution: self.distribution,
            sizes: self.sizes,
            generation: None,
            ttl_s: self.ttl_s,
            ledger: None,
        }
    }
}
