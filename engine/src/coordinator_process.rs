//! `ephesus coordinator`: one coordinator as a process of its own.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ephesus_coordinator::command::{ClusterOptions, RaftId};
use ephesus_coordinator::coordinator::Balance;
use ephesus_coordinator::server::{Empty, Ended, Server, ServerError, ServerOptions, executor};
use ephesus_wire::handshake::Secret;

use crate::cli::EXIT_USAGE;
use crate::cli::coordinator::{CoordinatorCommand, CoordinatorFlags, Offline};
use crate::node::Environment;
use crate::small_pages::SmallPages;
use crate::{logging, net, operator, signals};

/// How often the process looks whether it was asked to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `ephesus coordinator`'s options, checked for form only.
#[derive(Debug)]
pub struct CoordinatorOptions {
    /// Its number.
    pub id: RaftId,
    /// Its port.
    pub listen: SocketAddr,
    /// Where the coordinators are reached, itself included, as `host:port`.
    pub peers: BTreeMap<RaftId, String>,
    /// Its directory.
    pub data_dir: PathBuf,
    /// What an empty directory is to become.
    pub empty: Empty,
    /// The layout of a cluster that it founds.
    pub layout: ClusterOptions,
    /// Whether it balances the cluster of its own accord while it leads, and by what.
    pub auto_rebalance: Option<Balance>,
    /// How many migrations of rebalances and drains may be under way at a time while it leads.
    pub moves_max: u32,
    /// What all links have to prove.
    pub secret: Option<Secret>,
}

/// Why the process ends with exit code 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// Do what it says.
    #[error("{0}")]
    Environment(String),
    /// Choose another `--listen`, or stop the process that listens there.
    #[error("address {0} is in use")]
    AddressInUse(SocketAddr),
    /// Correct `--listen`.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// `--listen`.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// See what the operating system says.
    #[error("signals: {0}")]
    Signals(io::Error),
    /// As above; RLIMIT_MEMLOCK may be too small.
    #[error("cannot start an executor: {0}")]
    Executor(String),
    /// See there.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Runs the coordinator until it is told to stop, or changes a stopped one.
#[must_use]
pub fn main(command: &CoordinatorCommand) -> ExitCode {
    match (&command.offline, &command.flags) {
        (Some(Offline::Force(force)), _) => operator::force::main(force),
        (None, Some(flags)) => start(flags),
        (None, None) => {
            eprintln!("error: --id, --listen and --data-dir say which coordinator to run");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn start(flags: &CoordinatorFlags) -> ExitCode {
    logging::start(flags.log_level);
    let options = match flags.options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: CoordinatorOptions) -> Result<(), ProcessError> {
    // It needs little memory, and commands are held while it decides.
    let _small_pages = SmallPages::begin();
    let asked_to_stop = signals::stop_flag().map_err(ProcessError::Signals)?;
    Environment::inspect().map_err(|error| ProcessError::Environment(error.to_string()))?;
    let address = options.listen;
    let port = net::probe(address)
        .and_then(|()| TcpListener::bind(address))
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ProcessError::AddressInUse(address),
            _ => ProcessError::Listen { address, source },
        })?;
    let executor = executor()
        .make()
        .map_err(|error| ProcessError::Executor(error.to_string()))?;
    let (id, data_dir) = (options.id, options.data_dir.clone());
    let peers = options.peers.len();
    if peers.is_multiple_of(2) {
        tracing::warn!(
            "{peers} coordinators bear no more failures than {}",
            peers - 1
        );
    }
    let ended = executor.run(serve(options, port, asked_to_stop))?;
    match ended {
        Ended::Stopped => tracing::info!("stopped"),
        Ended::Removed => say(&format!(
            "coordinator {id} was removed from the cluster; {} is of no more use\n",
            data_dir.display()
        )),
    }
    Ok(())
}

async fn serve(
    options: CoordinatorOptions,
    port: TcpListener,
    asked_to_stop: Arc<AtomicBool>,
) -> Result<Ended, ServerError> {
    let (id, listen) = (options.id, options.listen);
    let (peers, data_dir) = (options.peers.clone(), options.data_dir.clone());
    let server = Server::start(ServerOptions {
        id: options.id,
        port,
        peers: options.peers,
        data_dir: options.data_dir,
        empty: options.empty,
        layout: options.layout,
        auto_rebalance: options.auto_rebalance,
        moves_max: options.moves_max,
        secret: options.secret,
        host: None,
    });
    let server = server.await?;
    let cluster = server.coordinator().state().cluster();
    let cluster = cluster.map_or_else(|| "none yet".to_owned(), |cluster| cluster.to_string());
    let named: Vec<String> = peers.iter().map(|(id, at)| format!("{id}@{at}")).collect();
    let reached: Vec<&str> = peers.values().map(String::as_str).collect();
    say(&format!(
        "ephesus {} coordinator {id}\n\
         \x20 address  {listen}\n\
         \x20 peers    {}\n\
         \x20 data     {}\n\
         \x20 cluster  {cluster}\n\
         \x20 try      ephesus status --coordinator {}\n",
        env!("CARGO_PKG_VERSION"),
        named.join(","),
        data_dir.display(),
        reached.join(","),
    ));
    let stop = async {
        while !asked_to_stop.load(Ordering::Acquire) {
            glommio::timer::sleep(LOOK_EVERY).await;
        }
        tracing::info!("stopping");
    };
    server.run(stop).await
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}
