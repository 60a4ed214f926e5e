use crate::error::{BenchError, Result};
use crate::measure::{Goal, less, more};
use crate::redis_benchmark::Test;
use crate::resp;
use crate::server::{Product, Server};

use super::bed::Bed;
use super::measure::{CPU_PER_OP, CaseResult};
use super::settings::Settings;
use super::{Case, CaseOutput};

/// Rate, latency and CPU per operation under `redis-benchmark`.
pub(super) fn run(settings: &Settings, case: Case) -> Result<CaseOutput> {
    let Some(shape) = case.shape(settings) else {
        return Err(BenchError::parse("redis-benchmark case", &case.to_string()));
    };
    let setup = settings.setup(case);
    let mut result = CaseResult::new(case, format!("redis-benchmark {}", shape.flags().join(" ")));
    let (rate_goal, cpu_goal) = goals(case);
    let bed = Bed::start(settings, setup, settings.keys)?;
    for round in 0..settings.rounds {
        for server in bed.round(round) {
            let product = server.product();
            let before = hits(server)?;
            let turn = bed.turn(server, &mut result, || {
                settings
                    .benchmark
                    .run(server.address(), &shape, &settings.scratch())
            })?;
            if shape.test == Test::Get {
                check_hits(
                    product,
                    before.zip(hits(server)?),
                    shape.requests,
                    &mut result,
                )?;
            }
            let outcome = turn.value;
            let per_op = 1e6 / shape.requests as f64;
            eprintln!(
                "   round {round} {product}: {:.0} op/s, client {:.0}% busy",
                outcome.row.requests_per_s,
                outcome.client_busy() * 100.0
            );
            let cpu_us = turn.server_cpu.as_secs_f64() * per_op;
            let deferred_us = turn.deferred_cpu.as_secs_f64() * per_op;
            let row = &outcome.row;
            result.record(
                "rate",
                more("op/s").to(rate_goal),
                product,
                row.requests_per_s,
            );
            result.record(CPU_PER_OP, less("us").to(cpu_goal), product, cpu_us);
            result.record("p50", less("ms"), product, row.p50_ms);
            result.record("p99", less("ms"), product, row.p99_ms);
            result.record("CPU per op after the run", less("us"), product, deferred_us);
            result.record_client(product, outcome.client_busy());
        }
    }
    let described = bed.describe();
    Ok((result, described))
}

fn goals(case: Case) -> (Option<Goal>, Option<Goal>) {
    let faster = |factor| Some(Goal::RatioAtLeast(factor));
    let no_more = Some(Goal::RatioAtMost(1.0));
    match case {
        Case::SetP16Everysec => (faster(2.5), None),
        Case::SetP16Always => (faster(2.0), None),
        Case::GetP16 => (faster(1.5), None),
        Case::GetP1 => (None, no_more),
        Case::SetP1Always => (faster(1.0), no_more),
        Case::SetC1Always => (faster(1.2), None),
        _ => (None, None),
    }
}

/// Fails when GETs missed, so that no server is fast at finding nothing.
fn check_hits(
    product: Product,
    counted: Option<([u64; 2], [u64; 2])>,
    requests: u64,
    result: &mut CaseResult,
) -> Result<()> {
    let Some((before, after)) = counted else {
        result.note(format!("{product} does not count keyspace hits"));
        return Ok(());
    };
    let found = after[0] - before[0];
    if after[1] == before[1] && found >= requests {
        return Ok(());
    }
    Err(BenchError::keys(product, found, requests))
}

/// Hits and misses so far, of a server that counts them.
fn hits(server: &Server) -> Result<Option<[u64; 2]>> {
    let info = server.info("stats")?;
    let [hits, misses] =
        ["keyspace_hits", "keyspace_misses"].map(|name| resp::info_number(&info, name));
    Ok(hits.zip(misses).map(<[u64; 2]>::from))
}
