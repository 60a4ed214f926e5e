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

const TTL_S: u64 = 60;

/// What a preset does with so many keys; none: half reads and half writes of 100 bytes.
pub(super) fn workload(preset: Option<Preset>, keys: u64) -> Workload {
    use Distribution::{Latest, Uniform, Zipfian};
    use Op::{Count, Delete, Insert, Read, Rmw, Ttl, Write};
    const HALVES: &[(Op, u64)] = &[(Read, 50), (Write, 50)];
    let ycsb = Sizes::fixed(1000);
    let (shares, distribution, sizes, ttl_s): (&[_], _, _, _) = match preset {
        None => (HALVES, Uniform, Sizes::fixed(100), TTL_S),
        Some(Preset::A) => (HALVES, Zipfian, ycsb, TTL_S),
        Some(Preset::B) => (&[(Read, 95), (Write, 5)], Zipfian, ycsb, TTL_S),
        Some(Preset::C) => (&[(Read, 1)], Zipfian, ycsb, TTL_S),
        Some(Preset::D) => (&[(Read, 95), (Insert, 5)], Latest, ycsb, TTL_S),
        Some(Preset::F) => (&[(Read, 50), (Rmw, 50)], Zipfian, ycsb, TTL_S),
        Some(Preset::Session) => {
            let shares = &[(Read, 80), (Ttl, 20)];
            (shares, Zipfian, Sizes::uniform(300, 2000), 1800)
        }
        Some(Preset::Cache) => {
            let shares = &[(Read, 90), (Ttl, 9), (Delete, 1)];
            (shares, Zipfian, Sizes::uniform(64, 4096), 300)
        }
        Some(Preset::RateLimit) => (&[(Count, 1)], Zipfian, Sizes::fixed(1), TTL_S),
    };
    Workload {
        mix: Mix::of(shares),
        keys: Indexes::Below(keys),
        distribution,
        sizes,
        ttl_s,
        ledger: None,
    }
}
