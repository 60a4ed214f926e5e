//! The `ephesus-bench` program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use ephesus_bench::cluster::ClusterArgs;
use ephesus_bench::compare::CompareArgs;
use ephesus_bench::disk::DiskArgs;
use ephesus_bench::heap::Counting;
use ephesus_bench::interrupt;
use ephesus_bench::micro::MicroArgs;
use ephesus_bench::migrate::MigrateArgs;
use ephesus_bench::placement::PlacementArgs;
use ephesus_bench::results;
use ephesus_bench::run::RunArgs;
use ephesus_bench::sweep::SweepArgs;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Debug, Parser)]
#[command(
    name = "ephesus-bench",
    version,
    about = "Load generation and comparison"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a server or a cluster that runs: throughput, and latency from when a request should have been sent
    Run(RunArgs),
    /// Run over and over: throughput against latency as offered load rises, or over another quantity
    Sweep(SweepArgs),
    /// Compare Redis, Valkey and Ephesus, or servers that run, side by side on the same cores
    Compare(CompareArgs),
    /// How fast a cluster of Ephesus changes, and what it costs at rest
    Cluster(ClusterArgs),
    /// How fast half of a node's data moves to another one, beside Valkey's slot migration
    Migrate(MigrateArgs),
    /// Compare policies of placement on paper: what moves, how even it is, and what a plan costs
    Placement(PlacementArgs),
    /// What a disk can do for a log, and what that means for --durability strict
    Disk(DiskArgs),
    /// What parts of a node can do, each beside what memory, disk or loopback allow
    Micro(MicroArgs),
    /// Write docs/benchmarks.md from the results in bench/results
    Report,
}

fn main() -> ExitCode {
    interrupt::install();
    let done = match Cli::parse().command {
        Command::Run(arguments) => arguments.execute(),
        Command::Sweep(arguments) => arguments.execute(),
        Command::Compare(arguments) => arguments.execute(),
        Command::Cluster(arguments) => arguments.execute(),
        Command::Migrate(arguments) => arguments.execute(),
        Command::Placement(arguments) => arguments.execute(),
        Command::Disk(arguments) => arguments.execute(),
        Command::Micro(arguments) => arguments.execute(),
        Command::Report => results::write(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ephesus-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
