use std::fmt;

use serde::Serialize;

use crate::named::Named;
use crate::redis_benchmark::{Shape, Test};
use crate::server::Durability;

use super::settings::Settings;

/// One comparison, with what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// SET, pipeline 16, AOF everysec against relaxed
    SetP16Everysec,
    /// SET, pipeline 16, AOF always against strict
    SetP16Always,
    /// GET, pipeline 16
    GetP16,
    /// GET, no pipeline
    GetP1,
    /// SET, no pipeline, AOF always against strict
    SetP1Always,
    /// SET, one connection, AOF always against strict
    SetC1Always,
    /// latency at 60% of Redis's peak while images are written (Redis: AOF rewrite)
    LatencyImagesP1,
    /// latency at 60% of Redis's peak, pipeline 16, while images are written
    LatencyImagesP16,
    /// GET latency at half load, large data, images written against not
    GetImages,
    /// resident memory per key, large data
    Memory,
    /// restart with large data on one core, exec to first GET
    #[value(name = "restart-1-core")]
    #[serde(rename = "restart-1-core")]
    RestartOneCore,
    /// restart with large data on two cores, exec to first GET
    #[value(name = "restart-2-cores")]
    #[serde(rename = "restart-2-cores")]
    RestartTwoCores,
    /// log bytes per SET and write amplification, 1 / 50 / 800 in flight
    LogBytes,
    /// disk use over ten full overwrites
    DiskUse,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

const CONNECTIONS: u32 = 50;
const PIPELINE: u32 = 16;

impl Case {
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
    pub(super) fn shape(self, settings: &Settings) -> Option<Shape> {
        let (test, clients, pipeline, requests) = match self {
            Case::SetP16Everysec => (Test::Set, CONNECTIONS, PIPELINE, 2_000_000),
            Case::SetP16Always => (Test::Set, CONNECTIONS, PIPELINE, 1_500_000),
            Case::GetP16 => (Test::Get, CONNECTIONS, PIPELINE, 3_000_000),
            Case::GetP1 => (Test::Get, CONNECTIONS, 1, 300_000),
            Case::SetP1Always => (Test::Set, CONNECTIONS, 1, 300_000),
            Case::SetC1Always => (Test::Set, 1, 1, 30_000),
            _ => return None,
        };
        Some(Shape {
            test,
            clients,
            pipeline,
            requests: settings.requests(requests),
            keys: settings.keys,
            value_bytes: settings.value_bytes,
        })
    }
}
