//! The log of a process: lines on stderr.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Writes what is of `level` or graver from now on; call it once.
pub fn start(level: Level) {
    // The libraries below speak up only when something is wrong.
    let levels = Targets::new()
        .with_default(level)
        .with_target("sled", Level::WARN)
        .with_target("glommio", Level::WARN);
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(lines)
        .with(levels)
        .init();
}
