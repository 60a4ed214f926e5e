//! What operators are told of load: plain rows.

use serde::{Deserialize, Serialize};

use super::windows::{Rates, WINDOWS_S};

/// To [`Query::Load`](crate::report::Query::Load).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterLoadReport {
    /// By node and shard.
    pub shards: Vec<ShardLoadRow>,
    /// Those that use the most CPU first, and those that nothing is known of last.
    pub partitions: Vec<PartitionLoadRow>,
}

/// What is done per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RatesRow {
    /// Commands, or keys of commands that have several.
    pub ops_per_s: u64,
    /// Bytes of requests.
    pub bytes_in_per_s: u64,
    /// Bytes of replies.
    pub bytes_out_per_s: u64,
    /// Microseconds of CPU time: 1,000,000 is one CPU.
    pub cpu_us_per_s: u64,
}

/// The load of one shard; none: it has not told this leader yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardLoadRow {
    /// Name of the node.
    pub node: String,
    /// The shard.
    pub shard: u16,
    /// Over the last second.
    pub last_1s: Option<RatesRow>,
    /// Over the last minute.
    pub last_1m: Option<RatesRow>,
    /// Over the last ten minutes.
    pub last_10m: Option<RatesRow>,
}

/// The load of one partition, over the last minute where nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLoadRow {
    /// The partition.
    pub partition: u16,
    /// Its first slot.
    pub first_slot: u16,
    /// Its last slot.
    pub last_slot: u16,
    /// Name of its owner.
    pub node: Option<String>,
    /// The owner's shard.
    pub shard: Option<u16>,
    /// CPU time, us per second; none: its owner has not told this leader yet.
    pub cpu_us_per_s: Option<u64>,
    /// Operations per second.
    pub ops_per_s: Option<u64>,
    /// Bytes of requests and replies per second.
    pub traffic_bytes_per_s: Option<u64>,
    /// Bytes of its keys and values.
    pub bytes: Option<u64>,
    /// Over the last second; only of the hottest of each node.
    pub last_1s: Option<RatesRow>,
    /// Over the last minute, likewise.
    pub last_1m: Option<RatesRow>,
    /// Over the last ten minutes, likewise.
    pub last_10m: Option<RatesRow>,
}

/// To [`Query::HotKeys`](crate::report::Query::HotKeys).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKeysReport {
    /// Names of live nodes that have not told yet.
    pub missing: Vec<String>,
    /// Those that are used the most first.
    pub keys: Vec<HotKeyRow>,
}

/// A key that is used much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKeyRow {
    /// The first 128 bytes of its name.
    pub key: Vec<u8>,
    /// How long the name is.
    pub key_bytes: u32,
    /// Its database.
    pub database: u8,
    /// Name of the node that has it.
    pub node: String,
    /// The node's shard.
    pub shard: u16,
    /// About so many uses per second: few of them are counted.
    pub ops_per_s: u64,
    /// Its part of all uses of keys in the shard, millionths.
    pub share_of_shard: u32,
    /// The same part of the CPU time that the shard's partitions take, us per second; none: the node has not told it yet.
    pub cpu_us_per_s: Option<u64>,
}

/// A key that takes so much of a CPU, us per second: what comes to its shard beside finds it at work half of the time,
/// and waits on average for as long as it takes itself (M/M/1), whichever shard that is.
pub(crate) const SATURATING_US_PER_S: u64 = 500_000;

impl HotKeyRow {
    /// Whether the key alone is too much for a shard, so that no move helps.
    #[must_use]
    pub fn saturates(&self) -> bool {
        self.cpu_us_per_s >= Some(SATURATING_US_PER_S)
    }
}

impl From<Rates> for RatesRow {
    fn from(rates: Rates) -> RatesRow {
        RatesRow {
            ops_per_s: rates.ops.round() as u64,
            bytes_in_per_s: rates.bytes_in.round() as u64,
            bytes_out_per_s: rates.bytes_out.round() as u64,
            cpu_us_per_s: cpu_us(rates.cpu),
        }
    }
}

/// A share of a CPU as microseconds per second.
pub(crate) fn cpu_us(share: f32) -> u64 {
    (f64::from(share) * 1e6).round() as u64
}

/// By window.
pub(crate) fn rows(
    windows: Option<[Rates; WINDOWS_S.len()]>,
) -> [Option<RatesRow>; WINDOWS_S.len()] {
    match windows {
        Some(windows) => windows.map(|rates| Some(rates.into())),
        None => [None; WINDOWS_S.len()],
    }
}
