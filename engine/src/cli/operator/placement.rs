//! `ephesus placement`: its flags.

use clap::{Args, Subcommand};
use ephesus_coordinator::placement::{POLICIES, Policy};

use super::{Asking, Look};

#[derive(Debug, Subcommand)]
pub enum PlacementCommand {
    /// Show the policy and where the partitions are against it.
    Show(Look),
    /// Change the policy: says what moves and what that costs, asks, and has it moved.
    Set(SetPlacement),
    /// Stop what a change, a rebalance or a drain moves: what waits is dropped, what is under way stays where it was.
    Cancel(Asking),
}

#[derive(Debug, Args)]
pub struct SetPlacement {
    #[arg(value_name = "POLICY", help = format!("One of {POLICIES}."))]
    pub policy: Policy,
    /// Only show what would be moved.
    #[arg(long, conflicts_with_all = ["wait", "yes"])]
    pub dry_run: bool,
    /// Show how far it is until it is done; to interrupt that changes nothing.
    #[arg(long)]
    pub wait: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub asking: Asking,
}
