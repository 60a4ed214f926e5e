use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::redis_benchmark::{Shape, Test};
use crate::server::Durability;

/// One comparison, named on the command line by [`Case::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub enum Case {
    /// SET, pipeline 16, synced every second.
    SetP16EverySecond,
    /// SET, pipeline 16, synced before the reply.
    SetP16Always,
    /// GET, pipeline 16.
    GetP16,
    /// GET, no pipeline.
    GetP1,
    /// SET, no pipeline, synced before the reply.
    SetP1Always,
    /// SET, one connection, synced before the reply.
    SetC1Always,
    /// Latency at a fixed rate while images are written.
    LatencyImagesP1,
    /// The same with pipeline 16.
    LatencyImagesP16,
    /// GET latency with images being written against without.
    GetImages,
    /// Resident memory per key.
    Memory,
    /// Restart on one core.
    RestartOneCore,
    /// Restart on two cores.
    RestartTwoCores,
    /// Log bytes per operation and write amplification.
    LogBytes,
    /// Size of the logs under sustained overwriting.
    WalBudget,
    /// Disk use after ten full overwrites.
    DiskUse,
}

const CONNECTIONS: u32 = 50;
const PIPELINE: u32 = 16;

impl Case {
    /// Every case, in the order they run.
    pub const ALL: [Case; 15] = [
        Case::SetP16EverySecond,
        Case::SetP16Always,
        Case::GetP16,
        Case::GetP1,
        Case::SetP1Always,
        Case::SetC1Always,
        Case::LatencyImagesP1,
        Case::LatencyImagesP16,
        Case::GetImages,
        Case::Memory,
        Case::RestartOneCore,
        Case::RestartTwoCores,
        Case::LogBytes,
        Case::WalBudget,
        Case::DiskUse,
    ];

    /// Its name in `--cases`.
    pub fn name(self) -> &'static str {
        match self {
            Case::SetP16EverySecond => "set-p16-everysec",
            Case::SetP16Always => "set-p16-always",
            Case::GetP16 => "get-p16",
            Case::GetP1 => "get-p1",
            Case::SetP1Always => "set-p1-always",
            Case::SetC1Always => "set-c1-always",
            Case::LatencyImagesP1 => "latency-images-p1",
            Case::LatencyImagesP16 => "latency-images-p16",
            Case::GetImages => "get-images",
            Case::Memory => "memory",
            Case::RestartOneCore => "restart-1-core",
            Case::RestartTwoCores => "restart-2-cores",
            Case::LogBytes => "log-bytes",
            Case::WalBudget => "wal-budget",
            Case::DiskUse => "disk-use",
        }
    }

    /// What it shows, in words.
    pub fn title(self) -> &'static str {
        match self {
            Case::SetP16EverySecond => "SET, pipeline 16, AOF everysec against relaxed",
            Case::SetP16Always => "SET, pipeline 16, AOF always against strict",
            Case::GetP16 => "GET, pipeline 16",
            Case::GetP1 => "GET, no pipeline",
            Case::SetP1Always => "SET, no pipeline, AOF always against strict",
            Case::SetC1Always => "SET, one connection, AOF always against strict",
            Case::LatencyImagesP1 => {
                "latency at 60% of Redis's peak while images are written (Redis: AOF rewrite)"
            }
            Case::LatencyImagesP16 => {
                "latency at 60% of Redis's peak, pipeline 16, while images are written"
            }
            Case::GetImages => "GET latency at half load, large data, images written against not",
            Case::Memory => "resident memory per key, large data",
            Case::RestartOneCore => "restart with large data on one core, exec to first GET",
            Case::RestartTwoCores => "restart with large data on two cores, exec to first GET",
            Case::LogBytes => "log bytes per SET and write amplification, 1 / 50 / 800 in flight",
            Case::WalBudget => "size of the logs against --wal-budget while overwriting",
            Case::DiskUse => "disk use over ten full overwrites",
        }
    }

    /// When a write counts as done in this case.
    pub fn durability(self) -> Durability {
        match self {
            Case::SetP16Always | Case::SetP1Always | Case::SetC1Always | Case::LogBytes => {
                Durability::Always
            }
            _ => Durability::EverySecond,
        }
    }

    /// What redis-benchmark is asked for in the cases that are about rate.
    pub(super) fn shape(self, keys: u64, value_bytes: usize, shrink: u64) -> Option<Shape> {
        let (test, clients, pipeline, requests) = match self {
            Case::SetP16EverySecond => (Test::Set, CONNECTIONS, PIPELINE, 2_000_000),
            Case::SetP16Always => (Test::Set, CONNECTIONS, PIPELINE, 1_500_000),
            Case::GetP16 => (Test::Get, CONNECTIONS, PIPELINE, 3_000_000),
            Case::GetP1 => (Test::Get, CONNECTIONS, 1, 300_000),
            Case::SetP1Always => (Test::Set, CONNECTIONS, 1, 300_000),
            Case::SetC1Always => (Test::Set, 1, 1, 30_000),
            _ => return None,
        };
        let requests = requests / shrink;
        Some(Shape {
            test,
            clients,
            pipeline,
            requests,
            keys,
            value_bytes,
            cluster: false,
        })
    }
}

impl From<Case> for &'static str {
    fn from(case: Case) -> Self {
        case.name()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Case::ALL.map(Case::name).join(", ");
        Case::ALL
            .into_iter()
            .find(|case| case.name() == text)
            .ok_or_else(|| format!("unknown case; known are {}", known()))
    }
}
