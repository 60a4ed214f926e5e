//! `make cluster`: three coordinators and three nodes on loopback under one directory, until Ctrl-C.
#![expect(
    clippy::disallowed_methods,
    reason = "real processes are waited for: it needs the real clock"
)]

mod layout;
mod processes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use layout::{COORDINATORS, Layout, NODES};
use processes::Processes;

/// How often the processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Parser)]
#[command(
    name = "ephesus-cluster",
    about = "Three coordinators and the nodes athens, byzantium and cyrene on loopback, until Ctrl-C"
)]
struct Flags {
    /// Directory of all data and logs; created if it is not there
    #[arg(long, default_value = "./ephesus-cluster")]
    dir: PathBuf,
    /// Port of the first coordinator; the other two have the next ones
    #[arg(long, value_name = "PORT", default_value_t = 7500)]
    coordinator_port: u16,
    /// Entry ports of the nodes; shard i of a node also listens on PORT+1+i
    #[arg(
        long,
        value_name = "PORT,PORT,PORT",
        value_delimiter = ',',
        num_args = 1,
        default_values_t = [7400, 7420, 7440]
    )]
    node_ports: Vec<u16>,
    /// Shards of each node [default: a third of the CPUs]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: Option<u16>,
    /// Partitions of a new cluster
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..=16384))]
    partitions: u16,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<(), String> {
    let asked_to_stop = stop_flag().map_err(|error| format!("signals: {error}"))?;
    let is_over = || asked_to_stop.load(Ordering::Acquire);
    let ports: [u16; NODES.len()] = flags.node_ports[..].try_into().map_err(|_| {
        let (needed, given) = (NODES.len(), flags.node_ports.len());
        format!("--node-ports: {needed} are needed, not {given}")
    })?;
    let layout = Layout::new(&flags.dir, flags.coordinator_port, ports, flags.shards)?;
    layout.check_ports()?;
    println!(
        "starting {COORDINATORS} coordinators and {} nodes of {} each under {}",
        NODES.len(),
        counted(layout.shards(), "shard"),
        layout.dir().display()
    );
    let mut processes = Processes::start(&layout, flags.partitions);
    let outcome = serve(&layout, &mut processes, &is_over);
    println!("stopping");
    let stopped = processes.stop();
    outcome.and(stopped)?;
    println!("stopped; the data stays in {}", layout.dir().display());
    Ok(())
}

/// A flag that the first signal sets; the second ends the process, and the kernel its children.
fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let asked_to_stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The handler that ends the process runs before the one that sets the flag.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked_to_stop))?;
        flag::register(signal, Arc::clone(&asked_to_stop))?;
    }
    Ok(asked_to_stop)
}

/// Waits until every partition is online, says how to connect, and watches until it is over.
fn serve(
    layout: &Layout,
    processes: &mut Processes,
    is_over: &dyn Fn() -> bool,
) -> Result<(), String> {
    if !processes.wait_online(layout, is_over)? {
        return Ok(());
    }
    layout.note_founded()?;
    print!("{}", layout.guide());
    while !is_over() {
        for ended in processes.newly_ended() {
            println!("{ended}");
        }
        if processes.have_all_ended() {
            return Err("all processes have ended".to_owned());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn counted(count: u16, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
