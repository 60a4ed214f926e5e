//! Commands that move partitions: their flags.

use clap::{Args, Subcommand};

use super::{Asking, Look};
use crate::cli::BalanceFlag;

#[derive(Debug, Args)]
pub struct Rebalance {
    /// Give every shard its share of partitions, by the policy of placement, or of the work that they do.
    #[arg(long, value_enum, value_name = "BY", default_value_t = BalanceFlag::Count)]
    pub by: BalanceFlag,
    /// Only show what would be moved.
    #[arg(long, conflicts_with_all = ["wait", "limit"])]
    pub dry_run: bool,
    /// Show how far it is until it is done; to interrupt that changes nothing.
    #[arg(long)]
    pub wait: bool,
    /// Most that each node copies per second, in MB (1,000,000 bytes), until all moves are done; writes that are made
    /// meanwhile are sent on top. 0 ends an earlier limit.
    #[arg(long, value_name = "MB")]
    pub limit: Option<u32>,
    #[command(flatten)]
    pub asking: Asking,
}

#[derive(Debug, Args)]
pub struct MoveOne {
    /// Which one, as `ephesus partitions` counts them.
    #[arg(long, value_name = "N")]
    pub partition: u16,
    /// Name or id of the node that gets it, and the shard if not the one that has the fewest.
    #[arg(long, value_name = "NODE[/SHARD]")]
    pub to: String,
    /// Show how far it is until it is done; to interrupt that changes nothing.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub asking: Asking,
}

#[derive(Debug, Args)]
pub struct Drain {
    /// Name of the node, or its id.
    pub name: String,
    /// It may get partitions again; what is under way goes on, what waits is dropped.
    #[arg(long, conflicts_with = "wait")]
    pub end: bool,
    /// Show how far it is until it is done; to interrupt that changes nothing.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub asking: Asking,
}

#[derive(Debug, Args)]
pub struct Migrations {
    #[command(flatten)]
    pub look: Look,
    /// Show it again whenever it has changed, until interrupted; with --json a line each time.
    #[arg(long)]
    pub watch: bool,
}

#[derive(Debug, Subcommand)]
pub enum MigrationCommand {
    /// Give a move up, and what would follow if it fails: the partition stays where it is.
    Cancel {
        /// Its id, as `ephesus migrations` has it.
        #[arg(value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
        id: u64,
        #[command(flatten)]
        asking: Asking,
    },
}

impl MoveOne {
    /// The node and the shard that are meant, if the node is not called `NODE/SHARD` as a whole.
    #[must_use]
    pub fn place(&self) -> Option<(&str, u16)> {
        let (node, shard) = self.to.rsplit_once('/')?;
        Some((node, shard.parse().ok()?))
    }
}

#[cfg(test)]
mod tests;
