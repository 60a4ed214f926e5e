use std::time::Instant;

use crate::affinity;
use crate::error::{BenchError, Result};
use crate::measure::Goal;
use crate::named::Named;
use crate::procfs;
use crate::redis_benchmark::{Outcome, Shape, Test};
use crate::stats;

use super::bed::{Bed, Layout};
use super::settings::Settings;
use super::{Case, CaseReport};

/// Of the sum of the two alone.
const GOAL: f64 = 0.95;
/// Servers below this share of their CPUs wait for the client.
const SERVER_BUSY_MIN: f64 = 0.9;
/// Keys of each slot in the cluster; every node has as many keys alone as there.
const KEYS_PER_SLOT: u64 = 20;
const SLOTS_PER_NODE: u64 = 16_384 / 2;
/// To every node, whether it is alone or one of two.
const CONNECTIONS: u32 = 50;
const VALUE_BYTES: usize = 100;

/// Where servers and clients run.
struct Placement<'a> {
    name: &'static str,
    alone: Vec<&'a Bed>,
    pair: &'a Bed,
    server_cpus: usize,
    client_cpus: Vec<usize>,
}

/// What runs of one kind have shown.
#[derive(Default)]
struct Samples {
    rate: Vec<f64>,
    cpu_us: Vec<f64>,
    /// Share of the servers' CPUs.
    busy: Vec<f64>,
}

impl Samples {
    fn take(&mut self, bed: &Bed, cpus: usize, settings: &Settings, shape: &Shape) -> Result<()> {
        let read = || {
            let pids = bed.node_pids().into_iter();
            let times = pids.map(procfs::cpu_time);
            times.sum::<Result<std::time::Duration>>()
        };
        let (before, began) = (read()?, Instant::now());
        let outcome = run_client(bed, settings, shape)?;
        let used = read()?.saturating_sub(before).as_secs_f64();
        let wall = began.elapsed().as_secs_f64();
        self.rate.push(outcome.row.requests_per_s);
        self.cpu_us.push(used * 1e6 / shape.requests as f64);
        self.busy.push(used / wall / cpus as f64);
        Ok(())
    }

    fn is_client_bound(&self) -> bool {
        stats::median(&self.busy).is_some_and(|busy| busy < SERVER_BUSY_MIN)
    }
}

/// `redis-benchmark --cluster` asks for two nodes at least: one alone is driven without.
fn run_client(bed: &Bed, settings: &Settings, shape: &Shape) -> Result<Outcome> {
    let address = if shape.cluster {
        bed.entry(0)
    } else {
        bed.shard(0, 0)
    };
    settings.benchmark.run(address, shape, &settings.scratch())
}

fn shape(settings: &Settings, case: Case, test: Test, nodes: u64) -> Shape {
    let (pipeline, requests) = match case {
        Case::ScalingP1 => (1, 100_000),
        _ => (16, 1_000_000),
    };
    let cluster = nodes > 1;
    Shape {
        test,
        clients: CONNECTIONS * nodes as u32,
        pipeline,
        requests: nodes * requests / settings.or_quick(1, 20),
        keys: if cluster {
            KEYS_PER_SLOT
        } else {
            KEYS_PER_SLOT * SLOTS_PER_NODE
        },
        value_bytes: VALUE_BYTES,
        cluster,
    }
}

pub(super) fn run(settings: &Settings, case: Case) -> Result<CaseReport> {
    let rounds = settings.or_quick(5, 1);
    let flags = |nodes| shape(settings, case, Test::Set, nodes).flags().join(" ");
    let mut report = CaseReport::new(
        case,
        format!(
            "redis-benchmark {} against {} for one node alone; {rounds} interleaved rounds; one-shard \
             nodes, relaxed. Apart: each node on a CPU of its own, the client anywhere. One CPU: both \
             nodes on one, each for half of the time, the client on the others. Client-bound where \
             over {:.0}% of the servers' CPUs was left: then server CPU per operation decides",
            flags(2),
            flags(1),
            (1.0 - SERVER_BUSY_MIN) * 100.0
        ),
    );
    let [first, second, ..] = settings.cpus[..] else {
        let problem = format!("{} needs two CPUs", case.name());
        return Err(BenchError::flag("--cases", problem));
    };
    let start = |cpus: Vec<usize>| {
        let layout = Layout {
            coordinators: 1,
            cpus: cpus.clone(),
            ..Layout::of_nodes(cpus.len() as u16, "relaxed")
        };
        let nodes = u64::from(layout.nodes);
        let bed = Bed::start(&settings.ephesus, settings.root(), layout)?;
        // Every key is there, and every GET a hit.
        let fill = Shape {
            pipeline: 16,
            requests: nodes * settings.or_quick(2_000_000, 100_000),
            ..shape(settings, case, Test::Set, nodes)
        };
        run_client(&bed, settings, &fill)?;
        Ok::<_, BenchError>(bed)
    };
    let (one, other) = (start(vec![first])?, start(vec![second])?);
    let (apart, together) = (start(vec![first, second])?, start(vec![first, first])?);
    let placements = [
        Placement {
            name: "apart",
            alone: vec![&one, &other],
            pair: &apart,
            server_cpus: 2,
            client_cpus: settings.cpus.clone(),
        },
        Placement {
            name: "one CPU",
            alone: vec![&one],
            pair: &together,
            server_cpus: 1,
            client_cpus: settings.cpus[1..].to_vec(),
        },
    ];
    for placement in &placements {
        affinity::confine_current(&affinity::mask(&placement.client_cpus))
            .map_err(BenchError::io("confining the client"))?;
        for (test, name) in [(Test::Set, "SET"), (Test::Get, "GET")] {
            let mut alone = Vec::new();
            alone.resize_with(placement.alone.len(), Samples::default);
            let mut pair = Samples::default();
            for _ in 0..rounds {
                for (samples, bed) in alone.iter_mut().zip(&placement.alone) {
                    samples.take(bed, 1, settings, &shape(settings, case, test, 1))?;
                }
                let shape = shape(settings, case, test, 2);
                pair.take(placement.pair, placement.server_cpus, settings, &shape)?;
            }
            let name = format!("{name}, {}", placement.name);
            add(&mut report, &name, &alone, pair);
        }
    }
    affinity::confine_current(&affinity::mask(&settings.cpus))
        .map_err(BenchError::io("releasing the client"))?;
    Ok(report)
}

/// The rows of one kind; nodes that were driven alone had a CPU each, or the same one in turn.
fn add(report: &mut CaseReport, name: &str, alone: &[Samples], pair: Samples) {
    let rounds = 0..pair.rate.len();
    let by_round = |f: &dyn Fn(usize) -> f64| rounds.clone().map(f).collect::<Vec<_>>();
    let sum = by_round(&|i| alone.iter().map(|samples| samples.rate[i]).sum());
    let alone_cpu = by_round(&|i| {
        let all = alone.iter().map(|samples| samples.cpu_us[i]);
        all.sum::<f64>() / alone.len() as f64
    });
    let rate_ratio = by_round(&|i| pair.rate[i] / sum[i]);
    let cpu_ratio = by_round(&|i| pair.cpu_us[i] / alone_cpu[i]);
    let by_cpu = stats::median(&cpu_ratio).map(|ratio| ratio <= 1.0 / GOAL);
    let is_bound = pair.is_client_bound();
    let goal = Some(Goal::RatioAtLeast(GOAL));
    let row = |what: &str| format!("{name}: {what}");
    let mut rate = |what: &str, unit, samples, goal, is_bound: bool, by_cpu| {
        let added = report.add(row(what), unit, samples, goal);
        if is_bound {
            added.mark_client_bound(by_cpu);
        }
    };
    let alone_is_bound = alone.iter().any(Samples::is_client_bound);
    rate(
        "rate, sum of each alone",
        "op/s",
        sum,
        None,
        alone_is_bound,
        None,
    );
    rate("rate, one cluster", "op/s", pair.rate, None, is_bound, None);
    rate(
        "rate, cluster / sum",
        "ratio",
        rate_ratio,
        goal,
        is_bound,
        by_cpu,
    );
    report.add(row("server CPU, alone"), "us per op", alone_cpu, None);
    report.add(
        row("server CPU, one cluster"),
        "us per op",
        pair.cpu_us,
        None,
    );
    report.add(row("CPU, cluster / alone"), "ratio", cpu_ratio, None);
}
