//! What parts of a node can do, each beside what memory, disk or loopback allow.

use std::process::ExitCode;

use clap::Parser;
use ephesus_bench::interrupt;

use parts::MicroArgs;

#[path = "micro/parts.rs"]
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
mod parts;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    micro: MicroArgs,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    interrupt::install();
    match Arguments::parse().micro.execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("micro: {error}");
            ExitCode::FAILURE
        }
    }
}
