//! The `ephesus` command.

#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Parser;
use ephesus_engine::cli::{Check, Cli, Command, EXIT_USAGE, Serve};
use ephesus_engine::node::{Node, StartError, check};
use ephesus_engine::{coordinator_process, logging, operator, signals};
use ephesus_wal::Durability;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ephesus_engine::image::end_process_on_panics();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match cli.command {
        Command::Serve(serve) => run_serve(&serve),
        Command::Check(arguments) => run_check(&arguments),
        Command::Coordinator(command) => coordinator_process::main(&command),
        command => operator::main(command),
    }
}

/// Help on request; one line for what is wrong.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(EXIT_USAGE);
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    let line: Vec<&str> = first.lines().map(str::trim).collect();
    eprintln!("{}", line.join(" "));
    ExitCode::from(EXIT_USAGE)
}

fn run_serve(serve: &Serve) -> ExitCode {
    logging::start(serve.log_level);
    let options = match serve.options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let flags = signals::stop_flag().and_then(|stop| Ok((stop, signals::reload_flag()?)));
    let (asked_to_stop, asked_to_reload) = match flags {
        Ok(flags) => flags,
        Err(error) => {
            eprintln!("error: signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let is_over = || asked_to_stop.load(Ordering::Acquire);
    let mut node = match Node::start(options, &is_over) {
        Ok(node) => node,
        Err(StartError::Interrupted) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let is_usage = matches!(
                error,
                StartError::Ports { .. } | StartError::PortsOverlap { .. }
            );
            return if is_usage {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::FAILURE
            };
        }
    };
    banner(&node);
    let must_reload = || asked_to_reload.swap(false, Ordering::AcqRel);
    let outcome = node.supervise(&is_over, &must_reload);
    tracing::info!("stopping: answering what was executed");
    node.stop();
    tracing::info!("stopped");
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            eprintln!("error: the cluster has no place for this node: {refusal}");
            ExitCode::FAILURE
        }
    }
}

/// What an operator wants to know, and a command to try.
fn banner(node: &Node) {
    let shared = &node.shared;
    let settings = &shared.settings;
    let (entry, port) = (settings.listen, settings.listen.port());
    // Where redis-cli looks by itself; any address is one of this machine.
    let at = match entry.ip() {
        ip if ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST => String::new(),
        ip => format!(" -h {ip}"),
    };
    let shards = shared.shards();
    let durability = match settings.durability {
        Durability::Strict => "strict (acknowledged = on the device)",
        Durability::Relaxed => {
            "relaxed (acknowledged = the system has it, device synced every second)"
        }
    };
    let sync = node.sync_latency.map_or_else(
        || "unknown".to_owned(),
        |p50| format!("{} us", p50.as_micros()),
    );
    let data = if node.is_new {
        "new".to_owned()
    } else {
        format!("recovered in {} ms", node.recovery_ms)
    };
    let tls = shared.tls.as_ref().map_or_else(String::new, |tls| {
        let (entry, last) = (tls.port(), tls.port() + shards);
        format!(
            "  TLS         entry port {entry}, shards on ports {} to {last}\n",
            entry + 1
        )
    });
    // redis-cli asks for the password then.
    let asks = match shared.users.newest().default_user().is_open() {
        true => "",
        false => " --askpass",
    };
    let text = format!(
        "ephesus {} node {} ({})\n\
         \x20 entry port  {entry}\n\
         \x20 shards      {shards} on ports {} to {}\n\
         {tls}\
         \x20 partitions  {}\n\
         \x20 durability  {durability}, fsync p50 {sync}\n\
         \x20 data        {data}\n\
         \x20 try         redis-cli{at} -p {port}{asks} set greeting hello\n",
        env!("CARGO_PKG_VERSION"),
        settings.name,
        shared.id,
        port + 1,
        port + shards,
        shared.partitioning.count(),
    );
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

fn run_check(arguments: &Check) -> ExitCode {
    if let Some(store) = arguments.only_store {
        let images = arguments.data_dir.join("images");
        return match check::store::read_store(&images, store, &mut std::io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    match check::check(&arguments.data_dir) {
        Ok(report) => {
            print!("{}", report.text);
            if report.problems == 0 {
                println!("ok");
                ExitCode::SUCCESS
            } else {
                println!("{} problems", report.problems);
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
