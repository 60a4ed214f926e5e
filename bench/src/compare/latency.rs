use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{self, LoadConfig, LoadReport, Operation};
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
const MIXED_GET_PERCENT: u32 = 50;
const IMAGING_GET_PERCENT: u32 = 80;
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
    let base = base_config(settings, reference, settings.keys, pipeline);
    let peak = peak_rate(&base)?;
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
            let config = LoadConfig {
                address: server.address(),
                rate,
                ..base.clone()
            };
            let run = imaging_turn(&bed, server, &mut result, &config)?;
            let (report, cpu) = (&run.report, run.cpu);
            let seconds = (config.duration + config.warmup).as_secs_f64();
            result.record("p50", less("us"), product, report.measured.all.p50_us);
            result.record("p99", no_longer, product, report.measured.all.p99_us);
            result.record("p99.9", no_longer, product, report.measured.all.p999_us);
            result.record("max", less("us"), product, report.measured.all.max_us);
            let cpu_us = cpu.as_secs_f64() * 1e6 / report.found.sent.max(1) as f64;
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
    let mut rates = Vec::new();
    for server in bed.round(0) {
        let base = LoadConfig {
            operation: Operation::Apart,
            get_percent: IMAGING_GET_PERCENT,
            ..base_config(settings, server, settings.large_keys, 1)
        };
        let turn = bed.turn(server, &mut result, || peak_rate(&base))?;
        let rate = (turn.value * HALF_LOAD) as u64;
        result.note(format!("{}: half load is {rate} op/s", server.product()));
        rates.push((server.product(), LoadConfig { rate, ..base }));
    }
    for round in 0..settings.rounds {
        for server in bed.round(round) {
            let product = server.product();
            let Some((_, base)) = rates.iter().find(|(of, _)| *of == product) else {
                continue;
            };
            let gets = LoadConfig {
                operation: Operation::Get,
                ..base.clone()
            };
            let alone = bed.turn(server, &mut result, || load::run(&gets))?.value;
            note_load(&mut result, product, &alone);
            let before = server.info("persistence")?;
            let quiet = bed.turn(server, &mut result, || load::run(base))?.value;
            note_load(&mut result, product, &quiet);
            if product.is_ephesus() && images_advanced(&before, &server.info("persistence")?) {
                result.note("ephesus: images were written in some run without".to_owned());
            }
            let busy = imaging_turn(&bed, server, &mut result, base)?.report;
            for report in [&alone, &quiet, &busy] {
                if report.found.misses > 0 {
                    let hits = report.measured.get.count - report.found.misses;
                    return Err(BenchError::keys(product, hits, report.measured.get.count));
                }
            }
            let (alone, quiet, busy) = (alone.measured.get, quiet.measured.get, busy.measured.get);
            let growth = less("x").to(Goal::ValueAtMost(P999_GROWTH_MAX));
            for (name, us) in [
                ("GETs alone, p99", alone.p99_us),
                ("GETs alone, p99.9", alone.p999_us),
                ("GET p99 without images", quiet.p99_us),
                ("GET p99 with images", busy.p99_us),
                ("GET p99.9 without images", quiet.p999_us),
                ("GET p99.9 with images", busy.p999_us),
            ] {
                result.record(name, less("us"), product, us);
            }
            let grown = busy.p999_us / quiet.p999_us;
            result.record("GET p99.9 with / without", growth, product, grown);
        }
    }
    let described = bed.describe();
    Ok((result, described))
}

fn imaging_bed(settings: &Settings, case: Case, keys: u64) -> Result<Bed<'_>> {
    Bed::start(settings, settings.setup(case), keys)
}

fn base_config(settings: &Settings, server: &Server, keys: u64, pipeline: u32) -> LoadConfig {
    LoadConfig {
        address: server.address(),
        rate: 0,
        connections: CONNECTIONS,
        pipeline,
        operation: Operation::Mixed,
        get_percent: MIXED_GET_PERCENT,
        keys,
        value_bytes: settings.value_bytes,
        duration: settings.latency_duration,
        warmup: WARMUP,
    }
}

fn peak_rate(base: &LoadConfig) -> Result<f64> {
    let duration = Duration::from_secs(2).min(base.duration);
    let closed = LoadConfig {
        rate: 0,
        duration,
        ..base.clone()
    };
    let rates = (0..PEAK_RUNS)
        .map(|_| load::run(&closed).map(|report| report.achieved_per_s))
        .collect::<Result<Vec<_>>>()?;
    Ok(stats::median(&rates).unwrap_or(0.0))
}

/// Fills Ephesus's log until it writes images; the peers begin theirs on command.
fn until_imaging(server: &Server, base: &LoadConfig) -> Result<()> {
    if !server.product().is_ephesus() {
        return Ok(());
    }
    let fill = LoadConfig {
        rate: 0,
        pipeline: PIPELINE,
        operation: Operation::Set,
        duration: FILL_STEP,
        warmup: Duration::ZERO,
        ..base.clone()
    };
    for _ in 0..FILL_STEPS_MAX {
        let info = server.info("persistence")?;
        if resp::info_number(&info, "image_in_progress") == Some(1) {
            break;
        }
        load::run(&fill)?;
    }
    Ok(())
}

struct ImagingRun {
    report: LoadReport,
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
    config: &LoadConfig,
) -> Result<ImagingRun> {
    let product = server.product();
    let before = server.info("persistence")?;
    let mut rewrites = 0;
    let turn = bed.turn(server, result, || {
        until_imaging(server, config)?;
        let mark = server.cpu_mark()?;
        let written_before = procfs::written_bytes(server.pid())?;
        let report = if product.is_ephesus() {
            load::run(config)?
        } else {
            let mut connection = server.connect()?;
            let rewrite = || {
                if !is_rewriting(&mut connection)? {
                    connection.text(&["BGREWRITEAOF"])?;
                    rewrites += 1;
                }
                Ok(())
            };
            interrupt::beside(REWRITE_POLL, rewrite, || load::run(config))?
        };
        Ok(ImagingRun {
            report,
            cpu: mark.elapsed()?,
            written_bytes: procfs::written_bytes(server.pid())? - written_before,
        })
    })?;
    if product.is_ephesus() && !images_advanced(&before, &server.info("persistence")?) {
        result.note("ephesus: no image counter of INFO persistence moved in some run".to_owned());
    } else if !product.is_ephesus() && rewrites == 0 {
        result.note(format!("{product}: no AOF rewrite ran"));
    }
    note_load(result, product, &turn.value.report);
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

fn note_load(result: &mut CaseResult, product: Product, report: &LoadReport) {
    eprintln!(
        "   {product}: p50 {:.0} p99 {:.0} p99.9 {:.0} us, client {:.0}% busy",
        report.measured.all.p50_us,
        report.measured.all.p99_us,
        report.measured.all.p999_us,
        report.found.client_busy * 100.0
    );
    result.record_client(product, report.found.client_busy);
    let is_short = report.achieved_per_s < report.offered_per_s * ACHIEVED_MIN;
    if report.found.overloaded || report.found.unanswered > 0 || is_short {
        result.note(format!("{product} could not hold the rate in some run"));
    }
    if report.found.send_delay_p99_us > SEND_DELAY_P99_US_MAX {
        result.note(format!(
            "the generator itself was late in some run of {product}"
        ));
    }
}
