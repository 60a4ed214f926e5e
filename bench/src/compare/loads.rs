use std::time::Duration;

use crate::error::Result;
use crate::load::{self, Mix, Op, Phase, Plan, Span};
use crate::measure::{CLIENT_BUSY, CPU_PER_OP, Goal, less, more};
use crate::record::{Case, Event};
use crate::runner::{Bed, Driven, Goals, Loaded, drive, how, rounds};
use crate::server::{Durability, Server, is_rewriting};
use crate::{interrupt, locate, redis_benchmark, resp, stats};

use super::{Answer, Question};

/// What, when it counts as done, connections, pipeline, how often, and how much faster than the best peer it is to be.
type Shape = (Op, Durability, usize, u32, u64, Option<f64>);

fn shape(question: Question) -> Shape {
    use Durability::{Always, EverySecond};
    match question {
        Question::SetP16Everysec => (Op::Write, EverySecond, 50, 16, 2_000_000, Some(2.5)),
        Question::SetP16Always => (Op::Write, Always, 50, 16, 1_500_000, Some(2.0)),
        Question::GetP16 => (Op::Read, EverySecond, 50, 16, 3_000_000, Some(1.5)),
        Question::GetP1 => (Op::Read, EverySecond, 50, 1, 300_000, None),
        Question::SetP1Always => (Op::Write, Always, 50, 1, 300_000, Some(1.0)),
        Question::SetP16Cores => (Op::Write, Always, 50, 16, 3_000_000, Some(1.0)),
        Question::GetP16Cores => (Op::Read, EverySecond, 50, 16, 6_000_000, Some(1.0)),
        _ => (Op::Write, Always, 1, 1, 30_000, Some(1.2)),
    }
}

const PEAK_SHARE: f64 = 0.6;
/// Closed-loop runs whose median is the peak.
const PEAK_RUNS: usize = 3;

impl Answer<'_, '_> {
    /// Rate, latency and CPU per operation of GETs or SETs in a closed loop.
    pub(super) fn rate(&mut self, question: Question) -> Result<()> {
        let (op, durability, connections, pipeline, count, faster) = shape(question);
        let no_more_cpu = matches!(question, Question::GetP1 | Question::SetP1Always);
        let goals = Goals {
            rate: faster.map(Goal::RatioAtLeast),
            cpu: no_more_cpu.then_some(Goal::RatioAtMost(1.0)),
            latency: None,
        };
        let arguments = self.arguments;
        let mut cores = 1;
        if matches!(question, Question::SetP16Cores | Question::GetP16Cores) {
            cores = arguments.with.servers.shards.max(2);
            self.contestants = arguments.on_cores();
        }
        let how_many = ([cores; 2], durability, arguments.with.load.keys);
        let bed = self.bed(&self.contestants.clone(), how_many)?;
        let plan = |driven: &Driven| {
            let mut plan = driven.plan.clone();
            plan.workload.mix = Mix::of(&[(op, 1)]);
            plan.pace.connections = connections;
            plan.pace.pipeline = pipeline;
            plan.pace.count = Some(arguments.operations(count));
            plan
        };
        self.case.how = how(&plan(&bed.all[0]));
        rounds(arguments.rounds, &bed.all, |_, driven| {
            let plan = plan(driven);
            let loaded = bed.load(driven, &mut self.case, (&plan, Span::default(), ""))?;
            loaded.flawless()?.record(&mut self.case, goals);
            match arguments.driver.is_some() && !plan.is_cluster {
                true => self.by_redis_benchmark(&bed, driven, &plan),
                false => Ok(()),
            }
        })
    }

    fn by_redis_benchmark(&mut self, bed: &Bed, driven: &Driven, plan: &Plan) -> Result<()> {
        let case = &mut self.case;
        let program = locate::program("redis-benchmark", None)?;
        let (found, cpu) = bed.turn(driven, case, || redis_benchmark::run(&program, plan))?;
        let count = plan.pace.count.unwrap_or(1) as f64;
        let cpu_us = cpu.map(|[cpu, _]| cpu.as_secs_f64() * 1e6 / count);
        for (what, scale, value) in [
            ("rate", more("op/s"), found.per_s),
            (CPU_PER_OP, less("us"), cpu_us.unwrap_or(f64::NAN)),
            ("p50", less("ms"), found.p50_ms),
            ("p99", less("ms"), found.p99_ms),
            (CLIENT_BUSY, less("share"), found.client_busy),
        ] {
            let name = format!("{what}, redis-benchmark");
            case.sample(name, scale, &driven.name, value);
        }
        Ok(())
    }

    /// Latency of half GETs, half SETs at 60% of Redis's peak while every server writes images.
    pub(super) fn while_imaging(&mut self, pipeline: u32) -> Result<()> {
        self.keep_own();
        let load = &self.arguments.with.load;
        let how_many = ([1; 2], Durability::EverySecond, load.keys);
        let bed = self.bed(&self.contestants.clone(), how_many)?;
        let plan = |driven: &Driven, rate| {
            let mut plan = driven.plan.clone();
            plan.workload.mix = Mix::of(&[(Op::Read, 50), (Op::Write, 50)]);
            plan.pace.pipeline = pipeline;
            plan.pace.rate = rate;
            plan
        };
        let named = bed.all.iter().find(|one| one.name == "redis");
        let Some(reference) = named.or(bed.all.first()) else {
            return Ok(());
        };
        let span = load.span();
        let closed = plan(reference, 0);
        let peak = |_| Ok(drive(&closed, span)?.0.answered()?.per_s(Phase::Before));
        let peaks = (0..PEAK_RUNS).map(peak).collect::<Result<Vec<f64>>>()?;
        let peak = stats::median(&peaks).unwrap_or(0.0);
        let rate = (peak * PEAK_SHARE) as u64;
        let (load, of) = (how(&plan(reference, rate)), &reference.name);
        self.case.how = format!("{load}: 60% of the peak of {of}, {peak:.0} op/s");
        let goals = Goals {
            latency: Some(Goal::RatioAtMost(1.0)),
            ..Goals::default()
        };
        rounds(self.arguments.rounds, &bed.all, |_, driven| {
            let plan = plan(driven, rate);
            let loaded = drive_while_imaging(&bed, driven, &mut self.case, (&plan, span))?;
            loaded.record(&mut self.case, goals);
            Ok(())
        })
    }

    /// The load that the flags say.
    pub(super) fn custom(&mut self) -> Result<()> {
        let (with, case) = (&self.arguments.with, &mut self.case);
        let load = &with.load;
        let bed = with.bed(self.session, &self.contestants, with.servers.shards)?;
        let plan = &bed.all[0].plan;
        case.how = how(plan);
        let mix = &plan.workload.mix;
        let loses_keys = mix.has(Op::Ttl) || mix.has(Op::Delete);
        rounds(self.arguments.rounds, &bed.all, |round, driven| {
            if loses_keys && round > 0 {
                load.fill(driven)?;
            }
            let mut loaded = bed.load(driven, case, (&driven.plan, load.span(), ""))?;
            loaded.outcome.judge()?;
            loaded.record(case, Goals::default());
            Ok(())
        })
    }
}

/// The log is filled until images begin, in steps of this length, at most so often.
const FILL_STEP: Duration = Duration::from_millis(500);
const FILL_STEPS_MAX: u32 = 240;
const FILL_PIPELINE: u32 = 16;
const REWRITE_POLL: Duration = Duration::from_millis(20);
/// Sends later than this at p99 blur the percentiles above.
const SEND_DELAY_P99_US_MAX: f64 = 500.0;
/// Less answered than this share of what was due: the rate was not held.
const ACHIEVED_MIN: f64 = 0.98;

/// Has a server write images and drives it meanwhile: the AOF of a peer is rewritten over and over, Ephesus images by
/// itself.
fn drive_while_imaging(
    bed: &Bed,
    driven: &Driven,
    case: &mut Case,
    (plan, span): (&Plan, Span),
) -> Result<Loaded> {
    let mut rewrites = 0;
    let mut loaded = bed.load_by(driven, case, (plan, ""), || {
        if driven.servers[0].spec.product.is_ephesus() {
            until_imaging(driven, plan)?;
            return drive(plan, span);
        }
        let connections = driven.servers.iter().map(Server::connect);
        let mut connections = connections.collect::<Result<Vec<_>>>()?;
        let rewrite = || {
            connections
                .iter_mut()
                .try_for_each(|one| match is_rewriting(one)? {
                    true => Ok(()),
                    false => {
                        rewrites += 1;
                        one.text(&["BGREWRITEAOF"]).map(drop)
                    }
                })
        };
        interrupt::beside(REWRITE_POLL, rewrite, || drive(plan, span))
    })?;
    loaded.outcome = loaded.outcome.answered()?;
    // Of which a part went into what came before.
    loaded.cpu = None;
    let (outcome, name) = (&loaded.outcome, &driven.name);
    let is_image = |event: &Event| event.kind == "image";
    if rewrites == 0 && !loaded.run.events.iter().any(is_image) {
        case.note(format!("{name}: no image was written in some run"));
    }
    let is_short = outcome.per_s(Phase::Before) < plan.pace.rate as f64 * ACHIEVED_MIN;
    if is_short || !outcome.run.errors.is_empty() {
        case.note(format!("{name} could not hold the rate in some run"));
    }
    if outcome.run.send_delay_p99_us > SEND_DELAY_P99_US_MAX {
        let late = "the generator itself was late in some run of";
        case.note(format!("{late} {name}"));
    }
    Ok(loaded)
}

/// Fills Ephesus's log until it writes images; the peers begin theirs on command.
fn until_imaging(driven: &Driven, plan: &Plan) -> Result<()> {
    let mut fill = plan.clone();
    fill.pace.rate = 0;
    fill.pace.pipeline = FILL_PIPELINE;
    fill.workload.mix = Mix::of(&[(Op::Write, 1)]);
    let span = Span {
        warmup: Duration::ZERO,
        duration: Some(FILL_STEP),
    };
    for _ in 0..FILL_STEPS_MAX {
        let info = driven.servers[0].info("persistence")?;
        if resp::info_number(&info, "image_in_progress") == Some(1) {
            break;
        }
        load::run(&fill, span)?.answered()?;
    }
    Ok(())
}
