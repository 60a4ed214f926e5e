use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::load::{self, Indexes, Mix, Op, Phase, Plan, Sizes, Span};
use crate::measure::{Goal, less, more};
use crate::prefill;
use crate::redis_benchmark::{Shape, Test};
use crate::resp;
use crate::run::{Preset, Workloads};
use crate::server::{Durability, Product, Server};

use super::bed::{Bed, Turn};
use super::measure::{CPU_PER_OP, CaseResult};
use super::settings::Settings;
use super::{Case, CaseOutput};

const CONNECTIONS: usize = 50;
const WARMUP: Duration = Duration::from_secs(1);

/// Rate, latency and CPU per operation of GETs or SETs in a closed loop.
pub(super) fn run(settings: &Settings, case: Case) -> Result<CaseOutput> {
    let Some(shape) = case.shape(settings) else {
        return Err(BenchError::parse("case about rate", &case.to_string()));
    };
    let mut result = CaseResult::new(
        case,
        format!("as redis-benchmark {}", shape.flags().join(" ")),
    );
    let bed = Bed::start(settings, settings.setup(case.durability()), settings.keys)?;
    for round in 0..settings.rounds {
        for server in bed.round(round) {
            let before = hits(server)?;
            let plan = plan(settings, server, &shape);
            drive(
                &bed,
                server,
                &mut result,
                (&plan, Span::default(), goals(case)),
            )?;
            let mut gets = shape.requests;
            if let Some(benchmark) = &settings.benchmark {
                let (address, scratch) = (server.address(), settings.scratch());
                let run = || benchmark.run(address, &shape, &scratch);
                let turn = bed.turn(server, &mut result, run)?;
                let row = &turn.value.row;
                let cpu_us = turn.server_cpu.as_secs_f64() * 1e6 / shape.requests as f64;
                for (what, scale, value) in [
                    ("rate", more("op/s"), row.requests_per_s),
                    ("server CPU per op", less("us"), cpu_us),
                    ("p50", less("ms"), row.p50_ms),
                    ("p99", less("ms"), row.p99_ms),
                    ("client busy", less("share"), turn.value.client_busy()),
                ] {
                    let name = format!("{what}, redis-benchmark");
                    result.record(name, scale, server.product(), value);
                }
                gets += shape.requests;
            }
            if shape.test == Test::Get {
                check_hits(
                    server.product(),
                    before.zip(hits(server)?),
                    gets,
                    &mut result,
                )?;
            }
        }
    }
    let described = bed.describe();
    Ok((result, described))
}

/// A known workload in a closed loop, on servers that sync once a second.
pub(super) fn preset(settings: &Settings, preset: Preset) -> Result<CaseOutput> {
    let setup = settings.setup(Durability::EverySecond);
    let workload = |server: &Server| {
        let mut plan = closed(settings, server);
        plan.workload = Workloads::of(Some(preset)).workload(settings.keys);
        plan
    };
    let fill =
        |server: &Server| prefill::each(workload(server), Op::Write, Indexes::Below(settings.keys));
    let bed = Bed::start_with(settings, setup, fill)?;
    let span = Span {
        warmup: WARMUP,
        duration: Some(settings.latency_duration),
    };
    let how = format!(
        "closed loop, {CONNECTIONS} connections, {} keys, synced once a second, {} s",
        settings.keys,
        settings.latency_duration.as_secs()
    );
    let mut result = CaseResult::new(preset, how);
    for round in 0..settings.rounds {
        for server in bed.round(round) {
            drive(
                &bed,
                server,
                &mut result,
                (&workload(server), span, (None, None)),
            )?;
        }
    }
    let described = bed.describe();
    Ok((result, described))
}

fn closed(settings: &Settings, server: &Server) -> Plan {
    let mut plan = Plan::new(server.address());
    plan.connections = CONNECTIONS;
    plan.cpus = vec![settings.client_cpu];
    plan
}

/// What redis-benchmark does with this shape.
pub(super) fn plan(settings: &Settings, server: &Server, shape: &Shape) -> Plan {
    let op = match shape.test {
        Test::Get => Op::Read,
        Test::Set => Op::Write,
    };
    let mut plan = closed(settings, server);
    plan.connections = shape.clients as usize;
    plan.pipeline = shape.pipeline;
    plan.count = Some(shape.requests);
    plan.workload.mix = Mix::of(&[(op, 1)]);
    plan.workload.keys = Indexes::Below(shape.keys);
    plan.workload.sizes = Sizes::Fixed(shape.value_bytes);
    plan
}

type Goals = (Option<Goal>, Option<Goal>);

/// One turn of a server, which is recorded; `goals` are of rate and of CPU per operation.
fn drive(
    bed: &Bed,
    server: &Server,
    result: &mut CaseResult,
    (plan, span, goals): (&Plan, Span, Goals),
) -> Result<()> {
    let product = server.product();
    let run = || load::run(plan, span)?.flawless();
    let Turn {
        value: outcome,
        server_cpu,
        deferred_cpu,
    } = bed.turn(server, result, run)?;
    let (all, rate) = (outcome.all(Phase::Before), outcome.per_s(Phase::Before));
    let busy = outcome.client_busy;
    eprintln!(
        "   {product}: {rate:.0} op/s, client {:.0}% busy",
        busy * 100.0
    );
    let per_op = |cpu| outcome.us_per_op(cpu);
    for (name, scale, value) in [
        ("rate", more("op/s").to(goals.0), rate),
        (CPU_PER_OP, less("us").to(goals.1), per_op(server_cpu)),
        ("p50", less("ms"), all.us(0.5) / 1e3),
        ("p99", less("ms"), all.us(0.99) / 1e3),
        ("p99.9", less("ms"), all.us(0.999) / 1e3),
        ("CPU per op after the run", less("us"), per_op(deferred_cpu)),
        ("client CPU per op", less("us"), per_op(outcome.client_cpu)),
    ] {
        result.record(name, scale, product, value);
    }
    result.record_client(product, busy);
    let is_new = |run: &crate::record::Run| run.server != product.to_string();
    if result.runs.iter().all(is_new) {
        result
            .runs
            .push(outcome.run(&product.to_string(), "", plan.rate));
    }
    Ok(())
}

fn goals(case: Case) -> Goals {
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
