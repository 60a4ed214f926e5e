use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{self, Indexes, Mix, Op, Outcome, Phase, Plan, Sizes, Span};
use crate::measure::{Goal, less};
use crate::procfs;
use crate::resp;
use crate::server::{Product, Server, is_rewriting};
use crate::stats;

use super::bed::Bed;
use super::measure::{CPU_PER_OP, CaseResult};
use super::settings::Settings;
use super::{Case, CaseOutput};

const CONNECTIONS: usize = 50;
const PIPELINE: u32 = 16;
/// The log is filled until images begin, in steps of this length, at most so often.
const FILL_STEP: Duration = Duration::from_millis(500);
const FILL_STEPS_MAX: u32 = 240;
/// Share of GETs in the mixed load, and in the load that brings images about.
const MIXED_GET_PERCENT: u64 = 50;
const IMAGING_GET_PERCENT: u64 = 80;
const PEAK_SHARE: f64 = 0.6;
const HALF_LOAD: f64 = 0.5;
/// Closed-loop runs whose median is the peak.
const PEAK_RUNS: usize = 3;
const WARMUP: Duration = Duration::from_secs(1);
const REWRITE_POLL: Duration = Duration::from_millis(20);
/// Sends later than this at p99 blur the percentiles above.
const SEND_DELAY_P99_US_MAX: f64 = 500.0;
/// Less answered than this share of what was due: the rate was not held.
const ACHIEVED_MIN: f64 = 0.98;

const P999_GROWTH_MAX: f64 = 2.0;

/// Latency at 60% of Redis's peak while every server writes images.
pub(super) fn while_imaging(settings: &Settings, case: Case) -> Result<CaseOutput> {
    let pipeline = if case == Case::LatencyImagesP16 {
        PIPELINE
    } else {
        1
    };
    let bed = imaging_bed(settings, case, settings.keys)?;
    let reference = bed.server(Product::Redis).or_else(|| bed.round(0).next());
    let Some(reference) = reference else {
        return Err(BenchError::parse("servers", "none"));
    };
    let base = base_plan(settings, reference, settings.keys, pipeline);
    let span = measured(settings);
    let peak = peak_rate(&base, span)?;
    let rate = (peak * PEAK_SHARE) as u64;
    let mut result = CaseResult::new(
        case,
        format!(
            "open loop, {rate} op/s = 60% of {}'s peak of {peak:.0} op/s, {MIXED_GET_PERCENT}% \
             GET, {CONNECTIONS} connections, pipeline {pipeline}, {} s",
            reference.product(),
            settings.latency_duration.as_secs()
        ),
    );
    let no_longer = less("us").to(Goal::RatioAtMost(1.0));
    for round in 0..settings.rounds {
        for server in bed.round(round) {
            let product = server.product();
            let plan = Plan {
                target: server.address().into(),
                rate,
                ..base.clone()
            };
            let run = imaging_turn(&bed, server, &mut result, (&plan, span))?;
            let all = run.outcome.all(Phase::Before);
            let seconds = (settings.latency_duration + WARMUP).as_secs_f64();
            result.record("p50", less("us"), product, all.us(0.5));
            result.record("p99", no_longer, product, all.us(0.99));
            result.record("p99.9", no_longer, product, all.us(0.999));
            result.record("max", less("us"), product, all.max_us());
            let cpu_us = run.outcome.us_per_op(run.cpu);
            result.record(CPU_PER_OP, less("us"), product, cpu_us);
            let written_mb = run.written_bytes as f64 / 1e6;
            result.record("device writes", less("MB/s"), product, written_mb / seconds);
        }
    }
    let described = bed.describe();
    Ok((result, described))
}

/// GET latency at half of each server's own peak, with GETs and SETs on connections of their own:
/// the same load while no image is written and while images are. GETs alone are shown beside.
pub(super) fn with_and_without_images(settings: &Settings, case: Case) -> Result<CaseOutput> {
    let bed = imaging_bed(settings, case, settings.large_keys)?;
    let mut result = CaseResult::new(
        case,
        format!(
            "open loop at half of each server's own peak with {IMAGING_GET_PERCENT}% GET, \
             {CONNECTIONS} connections, GETs and SETs on connections of their own, {} keys; alone: \
             GETs only, same rate; without and with: the same load while no images are written \
             and while they are",
            settings.large_keys
        ),
    );
    let (mut rates, span) = (Vec::new(), measured(settings));
    for server in bed.round(0) {
        let mut base = base_plan(settings, server, settings.large_keys, 1);
        base.workload.mix = mixed(IMAGING_GET_PERCENT);
        base.workload.is_apart = true;
        let turn = bed.turn(server, &mut result, || peak_rate(&base, span))?;
        let rate = (turn.value * HALF_LOAD) as u64;
        result.note(format!("{}: half load is {rate} op/s", server.product()));
        rates.push((server.product(), Plan { rate, ..base }));
    }
    for round in 0..settings.rounds {
        for server in bed.round(round) {
            let product = server.product();
            let Some((_, base)) = rates.iter().find(|(of, _)| *of == product) else {
                continue;
            };
            let mut gets = base.clone();
            gets.workload.mix = mixed(100);
            gets.workload.is_apart = false;
            let mut drive = |plan: &Plan| {
                let outcome = bed.turn(server, &mut result, || driven(plan, span))?.value;
                note_load(&mut result, product, plan, &outcome);
                Ok::<_, BenchError>(outcome)
            };
            let alone = drive(&gets)?;
            let before = server.info("persistence")?;
            let quiet = drive(base)?;
            if product.is_ephesus() && images_advanced(&before, &server.info("persistence")?) {
                result.note("ephesus: images were written in some run without".to_owned());
            }
            let busy = imaging_turn(&bed, server, &mut result, (base, span))?.outcome;
            for outcome in [&alone, &quiet, &busy] {
                if outcome.misses() > 0 {
                    let gets = outcome.sent();
                    return Err(BenchError::keys(product, gets - outcome.misses(), gets));
                }
            }
            let [alone, quiet, busy] = [alone, quiet, busy].map(|outcome| outcome.of(Op::Read));
            let growth = less("x").to(Goal::ValueAtMost(P999_GROWTH_MAX));
            for (name, us) in [
                ("GETs alone, p99", alone.us(0.99)),
                ("GETs alone, p99.9", alone.us(0.999)),
                ("GET p99 without images", quiet.us(0.99)),
                ("GET p99 with images", busy.us(0.99)),
                ("GET p99.9 without images", quiet.us(0.999)),
                ("GET p99.9 with images", busy.us(0.999)),
            ] {
                result.record(name, less("us"), product, us);
            }
            let grown = busy.us(0.999) / quiet.us(0.999);
            result.record("GET p99.9 with / without", growth, product, grown);
        }
    }
    let described = bed.describe();
    Ok((result, described))
}

fn imaging_bed(settings: &Settings, case: Case, keys: u64) -> Result<Bed<'_>> {
    Bed::start(settings, settings.setup(case.durability()), keys)
}

fn measured(settings: &Settings) -> Span {
    Span {
        warmup: WARMUP,
        duration: Some(settings.latency_duration),
    }
}

fn mixed(get_percent: u64) -> Mix {
    Mix::of(&[(Op::Read, get_percent), (Op::Write, 100 - get_percent)])
}

fn base_plan(settings: &Settings, server: &Server, keys: u64, pipeline: u32) -> Plan {
    let mut plan = Plan::new(server.address());
    plan.connections = CONNECTIONS;
    plan.pipeline = pipeline;
    plan.cpus = vec![settings.client_cpu];
    plan.workload.mix = mixed(MIXED_GET_PERCENT);
    plan.workload.keys = Indexes::Below(keys);
    plan.workload.sizes = Sizes::Fixed(settings.value_bytes);
    plan
}

fn driven(plan: &Plan, span: Span) -> Result<Outcome> {
    load::run(plan, span)?.answered()
}

fn peak_rate(base: &Plan, span: Span) -> Result<f64> {
    let duration = span.duration.map(|all| all.min(Duration::from_secs(2)));
    let closed = Plan {
        rate: 0,
        ..base.clone()
    };
    let run = |_| driven(&closed, Span { duration, ..span });
    let rates = (0..PEAK_RUNS).map(|n| run(n).map(|outcome| outcome.per_s(Phase::Before)));
    Ok(stats::median(&rates.collect::<Result<Vec<_>>>()?).unwrap_or(0.0))
}

/// Fills Ephesus's log until it writes images; the peers begin theirs on command.
fn until_imaging(server: &Server, base: &Plan) -> Result<()> {
    if !server.product().is_ephesus() {
        return Ok(());
    }
    let mut fill = Plan {
        rate: 0,
        pipeline: PIPELINE,
        ..base.clone()
    };
    fill.workload.mix = mixed(0);
    fill.workload.is_apart = false;
    let span = Span {
        warmup: Duration::ZERO,
        duration: Some(FILL_STEP),
    };
    for _ in 0..FILL_STEPS_MAX {
        let info = server.info("persistence")?;
        if resp::info_number(&info, "image_in_progress") == Some(1) {
            break;
        }
        driven(&fill, span)?;
    }
    Ok(())
}

struct ImagingRun {
    outcome: Outcome,
    /// Of the server, while it was driven.
    cpu: Duration,
    written_bytes: u64,
}

/// Has a server write images and drives it meanwhile: the AOF of a peer is rewritten over and over, Ephesus images by
/// itself.
fn imaging_turn(
    bed: &Bed,
    server: &Server,
    result: &mut CaseResult,
    (plan, span): (&Plan, Span),
) -> Result<ImagingRun> {
    let product = server.product();
    let before = server.info("persistence")?;
    let mut rewrites = 0;
    let turn = bed.turn(server, result, || {
        until_imaging(server, plan)?;
        let mark = server.cpu_mark()?;
        let written_before = procfs::written_bytes(server.pid())?;
        let outcome = if product.is_ephesus() {
            driven(plan, span)?
        } else {
            let mut connection = server.connect()?;
            let rewrite = || {
                if !is_rewriting(&mut connection)? {
                    connection.text(&["BGREWRITEAOF"])?;
                    rewrites += 1;
                }
                Ok(())
            };
            interrupt::beside(REWRITE_POLL, rewrite, || driven(plan, span))?
        };
        Ok(ImagingRun {
            outcome,
            cpu: mark.elapsed()?,
            written_bytes: procfs::written_bytes(server.pid())? - written_before,
        })
    })?;
    if product.is_ephesus() && !images_advanced(&before, &server.info("persistence")?) {
        result.note("ephesus: no image counter of INFO persistence moved in some run".to_owned());
    } else if !product.is_ephesus() && rewrites == 0 {
        result.note(format!("{product}: no AOF rewrite ran"));
    }
    note_load(result, product, plan, &turn.value.outcome);
    Ok(turn.value)
}

/// Whether any number whose name speaks of images grew.
pub(super) fn images_advanced(before: &str, after: &str) -> bool {
    let numbers = after.lines().filter_map(|line| line.trim().split_once(':'));
    let mut images = numbers.filter(|(name, _)| name.contains("image"));
    images.any(|(name, value)| {
        let after = value.parse::<u64>().ok();
        after
            .zip(resp::info_number(before, name))
            .is_some_and(|(after, before)| after > before)
    })
}

fn note_load(result: &mut CaseResult, product: Product, plan: &Plan, outcome: &Outcome) {
    let all = outcome.all(Phase::Before);
    eprintln!(
        "   {product}: p50 {:.0} p99 {:.0} p99.9 {:.0} us, client {:.0}% busy",
        all.us(0.5),
        all.us(0.99),
        all.us(0.999),
        outcome.client_busy * 100.0
    );
    result.record_client(product, outcome.client_busy);
    let is_short = outcome.per_s(Phase::Before) < plan.rate as f64 * ACHIEVED_MIN;
    if is_short || !outcome.errors().is_empty() {
        result.note(format!("{product} could not hold the rate in some run"));
    }
    if outcome.send_delay_p99_us() > SEND_DELAY_P99_US_MAX {
        result.note(format!(
            "the generator itself was late in some run of {product}"
        ));
    }
}
