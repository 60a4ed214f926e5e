//! Throughput and latency of one server or cluster, which runs already or is started.

use std::slice;

use serde::Serialize;

use crate::error::Result;
use crate::load::{Outcome, Plan};
use crate::runner::{BenchArgs, Contestant, how};

#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct RunArgs {
    /// Where it listens; or ephesus, redis, valkey or valkey-cluster, with =PROGRAM or not: such a one is started
    #[arg(value_name = "ADDR:PORT")]
    pub server: Contestant,
    #[command(flatten)]
    #[serde(flatten)]
    pub with: BenchArgs,
}

impl RunArgs {
    pub fn execute(&self) -> Result<()> {
        let (with, load) = (&self.with, &self.with.load);
        let contestants = slice::from_ref(&self.server);
        with.session(("run", false), contestants, self, |session| {
            let bed = with.bed(session, contestants, with.servers.shards)?;
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
}

fn notes(outcome: &Outcome, plan: &Plan) -> Vec<String> {
    let (misses, redirects) = (outcome.run.misses, outcome.redirects);
    let cpu_us = outcome.us_per_op(outcome.client_cpu);
    let is_verified = plan.workload.ledger.is_some() && outcome.complaint().is_none();
    let all = [
        (misses > 0).then(|| format!("{misses} reads found nothing; --fill loads the keys first")),
        (redirects > 0).then(|| format!("{redirects} operations were redirected")),
        Some(format!(
            "the generator used {cpu_us:.2} us of CPU per operation"
        )),
        is_verified.then(|| {
            "every value read was of its key, and none older than it had to be".to_owned()
        }),
    ];
    all.into_iter().flatten().collect()
}
