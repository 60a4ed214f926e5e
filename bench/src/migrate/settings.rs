use std::path::{Path, PathBuf};
use std::time::Duration;

use ephesus_coordinator::link::load_secret;
use serde::Serialize;
use tempfile::TempDir;

use crate::affinity;
use crate::error::{BenchError, Result};
use crate::locate;

use super::MigrateArgs;
use super::case::{Case, Writes};
use super::contestant::Contestant;
use super::ephesus::{EphesusPair, Existing};
use super::pair::Pair;
use super::valkey::ValkeyPair;

const ROUNDS: u32 = 10;
const QUICK_DATA_BYTES: u64 = 20_000_000;
/// Writes before and after a move.
const LOAD_TIME: Duration = Duration::from_secs(5);
const QUICK_LOAD_TIME: Duration = Duration::from_secs(1);
/// Bytes of a value of the cases with writes.
const LOAD_VALUE_BYTES: u32 = 100;

/// The flags with every default filled in.
#[derive(Debug, Serialize)]
pub(super) struct Settings {
    pub(super) contestants: Vec<Contestant>,
    #[serde(skip)]
    pub(super) cases: Vec<Case>,
    pub(super) rounds: u32,
    pub(super) is_quick: bool,
    pub(super) partitions: u16,
    /// Of source and target.
    pub(super) cpus: [usize; 2],
    #[serde(skip)]
    pub(super) load_time: Duration,
    #[serde(skip)]
    existing: Option<Existing>,
    #[serde(skip)]
    ephesus: PathBuf,
    #[serde(skip)]
    valkey: PathBuf,
    #[serde(skip)]
    root: TempDir,
}

impl Settings {
    pub(super) fn resolve(arguments: &MigrateArgs) -> Result<Self> {
        let quick = arguments.quick;
        let mut contestants = arguments.servers.clone();
        if arguments.vs.is_some() {
            contestants.extend(Contestant::VALKEYS);
        }
        contestants.sort();
        contestants.dedup();
        let existing = existing(arguments)?;
        if existing.is_some() && contestants != [Contestant::Ephesus] {
            return Err(BenchError::flag(
                "--coordinator",
                "names a cluster of Ephesus: nothing else is compared there",
            ));
        }
        let has = |wanted: fn(&Contestant) -> bool| contestants.iter().any(wanted);
        let mut settings = Settings {
            cases: cases(arguments),
            rounds: arguments.rounds.unwrap_or(if quick { 1 } else { ROUNDS }),
            is_quick: quick,
            partitions: arguments.partitions,
            cpus: affinity::two()?,
            load_time: if quick { QUICK_LOAD_TIME } else { LOAD_TIME },
            ephesus: PathBuf::new(),
            valkey: PathBuf::new(),
            root: locate::data_root(arguments.dir.as_deref(), "migrate-")?,
            contestants: contestants.clone(),
            existing,
        };
        if settings.existing.is_none() && has(|one| *one == Contestant::Ephesus) {
            settings.ephesus = locate::ephesus(arguments.ephesus.as_deref())?;
        }
        if has(|one| *one != Contestant::Ephesus) {
            settings.valkey = locate::valkey(arguments.valkey.as_deref())?;
        }
        Ok(settings)
    }

    /// The directory that holds all data.
    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Whether the servers were there before.
    pub(super) fn is_existing(&self) -> bool {
        self.existing.is_some()
    }

    /// Starts the two servers of one contestant.
    pub(super) fn start(&self, contestant: Contestant) -> Result<Box<dyn Pair>> {
        if contestant != Contestant::Ephesus {
            let pair = ValkeyPair::start(&self.valkey, self.root(), contestant, self.cpus)?;
            return Ok(Box::new(pair));
        }
        Ok(Box::new(match &self.existing {
            Some(cluster) => EphesusPair::existing(cluster)?,
            None => EphesusPair::start(&self.ephesus, self.root(), self.partitions, self.cpus)?,
        }))
    }
}

fn existing(arguments: &MigrateArgs) -> Result<Option<Existing>> {
    if arguments.coordinator.is_empty() {
        return Ok(None);
    }
    let nodes = match arguments.nodes.as_slice() {
        [from, to] if from != to => [from.clone(), to.clone()],
        _ => {
            return Err(BenchError::flag(
                "--nodes",
                "names two: the one that gives and the one that gets",
            ));
        }
    };
    let secret = arguments.cluster_secret_file.as_deref().map(load_secret);
    let secret = secret
        .transpose()
        .map_err(|error| BenchError::flag("--cluster-secret-file", error.to_string()))?;
    Ok(Some(Existing {
        coordinators: arguments.coordinator.clone(),
        nodes,
        secret,
    }))
}

fn cases(arguments: &MigrateArgs) -> Vec<Case> {
    let data = match arguments.quick {
        true => arguments.data_bytes.min(QUICK_DATA_BYTES),
        false => arguments.data_bytes,
    };
    let case = |bytes: u32, writes| Case::new(bytes as usize, data, arguments.keys, writes);
    let unloaded = arguments.value_bytes.iter();
    let mut cases: Vec<Case> = unloaded.map(|&bytes| case(bytes, Writes::None)).collect();
    if arguments.load > 0 {
        let writes = Writes::PerSecond(arguments.load);
        cases.push(case(LOAD_VALUE_BYTES, writes));
    }
    if arguments.full_load {
        cases.push(case(LOAD_VALUE_BYTES, Writes::Unlimited));
    }
    cases
}

#[cfg(test)]
mod tests;
