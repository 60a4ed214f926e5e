use std::fmt;

use serde::Serialize;

use crate::named::Named;
use crate::server::Durability;

/// Who moves data, and how durable it is meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Contestant {
    /// Ephesus: what the target has confirmed is on its disk.
    Ephesus,
    /// Valkey in memory alone.
    Valkey,
    /// Valkey with an AOF that is synced once a second.
    ValkeyEverysec,
    /// Valkey with an AOF that is synced before replies.
    ValkeyAlways,
}

impl Contestant {
    /// All Valkeys.
    pub const VALKEYS: [Contestant; 3] = [
        Contestant::Valkey,
        Contestant::ValkeyEverysec,
        Contestant::ValkeyAlways,
    ];

    /// Its AOF, if it is a Valkey with one.
    pub(super) fn aof(self) -> Option<Durability> {
        match self {
            Contestant::Ephesus | Contestant::Valkey => None,
            Contestant::ValkeyEverysec => Some(Durability::EverySecond),
            Contestant::ValkeyAlways => Some(Durability::Always),
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
