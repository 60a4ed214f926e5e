//! Throughput and latency of one server or cluster, which runs already or is started.

use serde::Serialize;

use crate::error::Result;
use crate::load::{Outcome, Plan};
use crate::record::Outputs;
use crate::runner::{Bed, Contestant, LoadArgs, ServerArgs, how, session};
use crate::server::Durability;

/// `ephesus-bench run`: a load on one server.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct RunArgs {
    /// Where it listens; or ephesus, redis, valkey or valkey-cluster, with =PROGRAM or not: such a one is started
    #[arg(value_name = "ADDR:PORT")]
    pub server: Contestant,
    /// How it is reached or started.
    #[command(flatten)]
    #[serde(flatten)]
    pub servers: ServerArgs,
    /// What it gets.
    #[command(flatten)]
    #[serde(flatten)]
    pub load: LoadArgs,
    /// What is written
    #[command(flatten)]
    #[serde(skip)]
    pub outputs: Outputs,
}

/// Drives the server, prints the tables and writes the files that were asked for.
///
/// # Errors
/// When the server is not there, an operation fails, a signal interrupts, or a file cannot be written.
pub fn execute(arguments: &RunArgs) -> Result<()> {
    let (servers, load) = (&arguments.servers, &arguments.load);
    let contestants = std::slice::from_ref(&arguments.server);
    let root = servers.root(contestants, "run-")?;
    let outputs = (&arguments.outputs, root.as_ref(), false);
    session("run", outputs, arguments, |session| {
        let cpus = ([servers.shards; 2], Durability::EverySecond);
        let contestants = (servers, contestants);
        let bed = Bed::start(session, contestants, cpus, |one| load.prepare(one))?;
        let (driven, plan) = (&bed.all[0], &bed.all[0].plan);
        let mut case = load.case();
        case.how = how(plan);
        let mut loaded = bed.load(driven, &mut case, (plan, load.span(), ""))?;
        let done = loaded.outcome.judge();
        case.notes.extend(notes(&loaded.outcome, plan));
        case.runs.push(loaded.run);
        session.put(case)?;
        done
    })
}

/// What a reader must know of a run.
fn notes(outcome: &Outcome, plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if outcome.run.misses > 0 {
        let misses = outcome.run.misses;
        notes.push(format!(
            "{misses} reads found nothing; --fill loads the keys first"
        ));
    }
    if outcome.redirects > 0 {
        let redirects = outcome.redirects;
        notes.push(format!("{redirects} operations were redirected"));
    }
    let cpu_us = outcome.us_per_op(outcome.client_cpu);
    notes.push(format!(
        "the generator used {cpu_us:.2} us of CPU per operation"
    ));
    if plan.workload.ledger.is_some() && outcome.complaint().is_none() {
        notes.push("every value read was of its key, and none older than it had to be".to_owned());
    }
    notes
}
