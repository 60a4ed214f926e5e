//! `ephesus coordinator`: its flags.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ephesus_coordinator::command::{ClusterOptions, RaftId};
use ephesus_coordinator::coordinator::Balance;
use ephesus_coordinator::placement::{POLICIES, Policy};
use ephesus_coordinator::server::Empty;
use ephesus_coordinator::state::{
    COORDINATORS_MAX, HEARTBEAT_TIMEOUT_MS, HEARTBEAT_TIMEOUT_MS_MIN, MOVES_MAX,
};

use super::BalanceFlag;
use super::address::Peer;
use crate::coordinator_process::CoordinatorOptions;

/// Partitions of a new cluster.
const PARTITIONS_DEFAULT: u16 = 1024;

/// Longest heartbeat timeout: the data of a lost node is unavailable for as long before anybody is
/// told.
const HEARTBEAT_TIMEOUT_MS_MAX: u32 = 60_000;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct CoordinatorCommand {
    #[command(subcommand)]
    pub offline: Option<Offline>,
    #[command(flatten)]
    pub flags: Option<CoordinatorFlags>,
}

/// What is done to a stopped coordinator.
#[derive(Debug, Subcommand)]
pub enum Offline {
    /// Make a stopped coordinator the only one, after the majority was lost for good.
    Force(Force),
}

#[derive(Debug, Args)]
pub struct Force {
    /// Directory of its replicated log; of the one that a node brings: coordinator, in the node's.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct CoordinatorFlags {
    /// Number of this coordinator, from 1; never used again once it was removed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    id: u64,
    /// Where it listens for nodes, operators and other coordinators.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Where all coordinators are reached, this one included: 1@A:P,2@A:P,3@A:P [default: this one
    /// alone].
    #[arg(long, value_name = "ID@HOST:PORT,...", value_delimiter = ',')]
    peers: Vec<Peer>,
    /// Directory of its replicated log; created if it is not there.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Found a new cluster if the directory is empty: the same on all of --peers.
    #[arg(long, conflicts_with = "join")]
    bootstrap: bool,
    /// Take part in a cluster, if the directory is empty, after `ephesus coordinator-member add`.
    #[arg(long)]
    join: bool,
    /// Partitions of a new cluster; never changed.
    #[arg(
        long,
        value_name = "P",
        default_value_t = PARTITIONS_DEFAULT,
        value_parser = clap::value_parser!(u16).range(1..=16384)
    )]
    partitions: u16,
    /// Nodes of a new cluster that its first assignment waits for.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    min_nodes: u16,
    /// A node of a new cluster that is silent for this time, 1000 to 600000 ms, has failed; leases are half of it.
    #[arg(
        long,
        value_name = "MS",
        default_value_t = HEARTBEAT_TIMEOUT_MS,
        value_parser = clap::value_parser!(u32)
            .range(i64::from(HEARTBEAT_TIMEOUT_MS_MIN)..=i64::from(HEARTBEAT_TIMEOUT_MS_MAX))
    )]
    heartbeat_timeout: u32,
    #[arg(
        long,
        value_name = "POLICY",
        default_value_t = Policy::Contiguous,
        help = format!("How partitions of a new cluster find their shards: {POLICIES}.")
    )]
    assignment: Policy,
    /// Balance the cluster without being asked, while this one leads, when nothing has changed for a
    /// while: so that every shard has its share of partitions (count, also without a value), or of work (load);
    /// the same on all coordinators.
    #[arg(
        long,
        value_enum,
        value_name = "BY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "count"
    )]
    auto_rebalance: Option<BalanceFlag>,
    /// Moves of rebalances and drains under way at a time in the whole cluster, while this one leads; the same on all
    /// coordinators.
    #[arg(
        long,
        value_name = "N",
        default_value_t = MOVES_MAX,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    moves_max: u32,
    /// Secret of the cluster, at least 16 bytes, the same for all coordinators, nodes and operators; needed to
    /// listen beyond loopback.
    #[arg(long, value_name = "FILE")]
    cluster_secret_file: Option<PathBuf>,
    /// error, warn, info, debug or trace; the log goes to standard error.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: tracing::Level,
}

impl CoordinatorFlags {
    /// The options, checked.
    ///
    /// # Errors
    /// One line that names the flag.
    pub fn options(&self) -> Result<CoordinatorOptions, String> {
        let id = RaftId(self.id);
        if !self.listen.ip().is_loopback() && self.cluster_secret_file.is_none() {
            return Err(format!(
                "--listen {}: anyone on that network could take the cluster over; add \
                 --cluster-secret-file, or listen on 127.0.0.1",
                self.listen
            ));
        }
        if self.listen.port() == 0 {
            return Err(format!(
                "--listen {}: the others have to know the port",
                self.listen
            ));
        }
        let secret = super::cluster_secret(self.cluster_secret_file.as_deref())?;
        Ok(CoordinatorOptions {
            id,
            listen: self.listen,
            peers: self.checked_peers(id)?,
            data_dir: self.data_dir.clone(),
            empty: match (self.bootstrap, self.join) {
                (true, _) => Empty::Founds,
                (_, true) => Empty::Joins,
                _ => Empty::Refused,
            },
            layout: ClusterOptions {
                partitions: self.partitions,
                min_nodes: self.min_nodes,
                policy: self.assignment,
                heartbeat_timeout_ms: self.heartbeat_timeout,
            },
            auto_rebalance: self.auto_rebalance.map(Balance::from),
            moves_max: self.moves_max,
            secret,
        })
    }

    fn checked_peers(&self, id: RaftId) -> Result<BTreeMap<RaftId, String>, String> {
        if self.peers.is_empty() {
            if self.listen.ip().is_unspecified() {
                return Err(format!(
                    "--peers has to say where coordinator {id} is reached: --listen {} does not",
                    self.listen
                ));
            }
            if self.join {
                return Err("--join needs --peers with the coordinators to join".to_owned());
            }
            return Ok(BTreeMap::from([(id, self.listen.to_string())]));
        }
        if self.peers.len() > COORDINATORS_MAX {
            return Err(format!(
                "--peers names {} coordinators: {COORDINATORS_MAX} are the most",
                self.peers.len()
            ));
        }
        let mut peers = BTreeMap::new();
        for Peer { id, address } in &self.peers {
            if let Some((other, _)) = peers.iter().find(|(_, taken)| *taken == address) {
                return Err(format!(
                    "--peers: coordinators {other} and {id} are both at {address}"
                ));
            }
            if peers.insert(*id, address.clone()).is_some() {
                return Err(format!("--peers: coordinator {id} is named twice"));
            }
        }
        let own = self.peers.iter().find(|peer| peer.id == id);
        let own = own.ok_or_else(|| {
            format!("--peers does not say where coordinator {id} is reached, which --id names")
        })?;
        if own.port() != self.listen.port() {
            return Err(format!(
                "--listen {} is not where --peers says that coordinator {id} is reached, {}",
                self.listen, own.address
            ));
        }
        if self.join && self.peers.len() == 1 {
            return Err("--join needs --peers with the coordinators to join".to_owned());
        }
        Ok(peers)
    }
}

#[cfg(test)]
mod tests;
