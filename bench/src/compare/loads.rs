use crate::error::Result;
use crate::load::{Mix, Op, Phase, Plan, Span};
use crate::locate;
use crate::measure::{Goal, less, more};
use crate::record::Case;
use crate::redis_benchmark;
use crate::runner::{Bed, Contestant, Driven, Goals, Session, drive, how, rounds};
use crate::server::Durability;
use crate::stats;

use super::images::while_imaging;
use super::{Compare, Question};

/// What, when it counts as done, connections, pipeline, how often, and how much faster than the best peer it is to be.
type Shape = (Op, Durability, usize, u32, u64, Option<f64>);

/// Operations of one kind in a closed loop.
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

/// Of Redis's peak.
const PEAK_SHARE: f64 = 0.6;
/// Closed-loop runs whose median is the peak.
const PEAK_RUNS: usize = 3;

impl Compare<'_> {
    /// Rate, latency and CPU per operation of GETs or SETs in a closed loop.
    pub(super) fn rate(
        &self,
        question: Question,
        session: &mut Session<'_>,
        (contestants, case): (&[Contestant], &mut Case),
    ) -> Result<()> {
        let (op, durability, connections, pipeline, count, faster) = shape(question);
        let no_more_cpu = matches!(question, Question::GetP1 | Question::SetP1Always);
        let goals = Goals {
            rate: faster.map(Goal::RatioAtLeast),
            cpu: no_more_cpu.then_some(Goal::RatioAtMost(1.0)),
            latency: None,
        };
        let cores = match question {
            Question::SetP16Cores | Question::GetP16Cores => self.arguments.servers.shards.max(2),
            _ => 1,
        };
        let keys = self.arguments.load.keys;
        let bed = self.bed(session, contestants, ([cores; 2], durability, keys))?;
        let plan = |driven: &Driven| {
            let mut plan = driven.plan.clone();
            plan.workload.mix = Mix::of(&[(op, 1)]);
            plan.connections = connections;
            plan.pipeline = pipeline;
            plan.count = Some(self.operations(count));
            plan
        };
        case.how = how(&plan(&bed.all[0]));
        rounds(self.arguments.rounds, &bed.all, |_, driven| {
            let plan = plan(driven);
            let loaded = bed.load(driven, case, (&plan, Span::default(), ""))?;
            loaded.flawless()?.record(case, goals);
            self.by_redis_benchmark(&bed, driven, case, &plan)
        })
    }

    /// The same by redis-benchmark, if that was asked for.
    fn by_redis_benchmark(
        &self,
        bed: &Bed,
        driven: &Driven,
        case: &mut Case,
        plan: &Plan,
    ) -> Result<()> {
        if self.arguments.driver.is_none() || plan.is_cluster {
            return Ok(());
        }
        let program = locate::program("redis-benchmark", None)?;
        let turn = bed.turn(driven, case, || redis_benchmark::run(&program, plan))?;
        let (found, count) = (turn.value, plan.count.unwrap_or(1) as f64);
        let cpu_us = turn.cpu.map(|[cpu, _]| cpu.as_secs_f64() * 1e6 / count);
        for (what, scale, value) in [
            ("rate", more("op/s"), found.per_s),
            ("server CPU per op", less("us"), cpu_us.unwrap_or(f64::NAN)),
            ("p50", less("ms"), found.p50_ms),
            ("p99", less("ms"), found.p99_ms),
            ("client busy", less("share"), found.client_busy),
        ] {
            let name = format!("{what}, redis-benchmark");
            case.sample(name, scale, &driven.name, value);
        }
        Ok(())
    }

    /// Latency of half GETs, half SETs at 60% of Redis's peak while every server writes images.
    pub(super) fn while_imaging(
        &self,
        pipeline: u32,
        session: &mut Session<'_>,
        case: &mut Case,
    ) -> Result<()> {
        let own = self.own(case);
        let keys = self.arguments.load.keys;
        let bed = self.bed(session, &own, ([1; 2], Durability::EverySecond, keys))?;
        let plan = |driven: &Driven, rate| {
            let mut plan = driven.plan.clone();
            plan.workload.mix = Mix::of(&[(Op::Read, 50), (Op::Write, 50)]);
            plan.pipeline = pipeline;
            Plan { rate, ..plan }
        };
        let named = bed.all.iter().find(|one| one.name == "redis");
        let Some(reference) = named.or(bed.all.first()) else {
            return Ok(());
        };
        let span = self.arguments.load.span();
        let closed = plan(reference, 0);
        let peak = |_| Ok(drive(&closed, span)?.0.answered()?.per_s(Phase::Before));
        let peaks = (0..PEAK_RUNS).map(peak).collect::<Result<Vec<f64>>>()?;
        let peak = stats::median(&peaks).unwrap_or(0.0);
        let rate = (peak * PEAK_SHARE) as u64;
        let (load, of) = (how(&plan(reference, rate)), &reference.name);
        case.how = format!("{load}: 60% of the peak of {of}, {peak:.0} op/s");
        let goals = Goals {
            latency: Some(Goal::RatioAtMost(1.0)),
            ..Goals::default()
        };
        rounds(self.arguments.rounds, &bed.all, |_, driven| {
            let plan = plan(driven, rate);
            let loaded = while_imaging(&bed, driven, case, (&plan, span))?;
            loaded.record(case, goals);
            Ok(())
        })
    }

    /// The load that the flags say, on servers that sync once a second.
    pub(super) fn custom(&self, session: &mut Session<'_>, case: &mut Case) -> Result<()> {
        let load = &self.arguments.load;
        let contestants = (&self.arguments.servers, &*self.arguments.contestants);
        let cpus = ([self.arguments.servers.shards; 2], Durability::EverySecond);
        let bed = Bed::start(session, contestants, cpus, |one| load.prepare(one))?;
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
