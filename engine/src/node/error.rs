//! Why a node does not start: each error says what to do about it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use ephesus_coordinator::server::ServerError;
use ephesus_coordinator::state::Refusal;
use ephesus_wire::handshake::HandshakeError;
use ephesus_wire::slot::PartitionCountError;
use ephesus_wire::{Database, ShardId};

use super::data_dir::DataDirError;
use super::environment::EnvironmentError;
use super::recovery::RecoveryError;
use crate::image::StoreError;
use crate::script::functions::FunctionsFileError;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Partitions(#[from] PartitionCountError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    #[error(transparent)]
    Functions(#[from] FunctionsFileError),
    /// Start with at least as many.
    #[error("--databases {databases}: database {highest} has keys; start with at least {}", u16::from(highest.0) + 1)]
    Databases { databases: u16, highest: Database },
    /// Another process listens there: choose another `--listen` or stop that process.
    #[error("address {address} is in use{remedy}")]
    AddressInUse { address: SocketAddr, remedy: String },
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    /// Clients could not be told of these ports: choose a lower `--listen` port.
    #[error("{flag} {first}: {what} needs port {last}, and ports end at 65535")]
    Ports {
        flag: &'static str,
        what: &'static str,
        first: u32,
        last: u32,
    },
    /// Choose another `--tls-port`.
    #[error(
        "--tls-port {first}: ports {first} to {last} are for clients over TLS, and {of} for {what}; choose another port"
    )]
    PortsOverlap {
        first: u16,
        last: u16,
        what: &'static str,
        of: String,
    },
    /// See there.
    #[error("coordinator: {0}")]
    Coordinator(ServerError),
    /// Name some with `--coordinator`, or restore the directory of the one that it brought.
    #[error(
        "{} belongs to a cluster, and has no directory `coordinator` of its own: name its \
         coordinators with --coordinator, or restore that directory",
        .0.display()
    )]
    NoCoordinators(PathBuf),
    /// Name this cluster's coordinators with `--coordinator`, or another `--data-dir`.
    #[error(
        "{} belongs to another cluster than the coordinator at {address}: {reason}",
        data_dir.display()
    )]
    OtherCluster {
        data_dir: PathBuf,
        address: String,
        reason: HandshakeError,
    },
    /// Another number of shards has all data written anew.
    #[error(
        "the number of shards cannot change from {from} to {to}: all data is written anew for that, and the disk of \
         {} has {} MiB free of at least {} MiB that it takes; start with --shards {from}, or set space free",
        data_dir.display(),
        free >> 20,
        needed >> 20
    )]
    NoRoomToChange {
        data_dir: PathBuf,
        from: u16,
        to: u16,
        free: u64,
        needed: u64,
    },
    /// The coordinator does not take this node; its text says what to do.
    #[error("the cluster does not take this node: {0}")]
    Refused(Refusal),
    /// The process was told to stop.
    #[error("stopped before it served")]
    Interrupted,
    #[error("starting {what}: {source}")]
    Thread {
        what: &'static str,
        source: io::Error,
    },
    #[error("shard {shard} could not start: {reason}")]
    Shard { shard: ShardId, reason: String },
}

impl StartError {
    /// That this could not be started.
    pub(super) fn thread(what: &'static str) -> impl Fn(io::Error) -> StartError + Copy {
        move |source| StartError::Thread { what, source }
    }
}
