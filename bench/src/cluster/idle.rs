use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::interrupt;
use crate::measure::Goal;
use crate::procfs::{self, Pid};

use super::Case;
use super::bed::{Bed, Layout, NODES};
use super::report::CaseReport;
use super::settings::Settings;

const GOAL_PERCENT: f64 = 0.5;
/// What a node's side of coordination runs on.
const MEMBERSHIP_THREAD: &str = "membership";
/// For what a start leaves to do.
const SETTLE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(100);
const UNIT: &str = "% of a core";

/// CPU time of a process by the names of its threads.
type ByThread = BTreeMap<String, Duration>;

fn by_thread(pid: Pid) -> Result<ByThread> {
    let mut sums = ByThread::new();
    for thread in procfs::thread_cpu_times(pid)? {
        *sums.entry(thread.name).or_default() += thread.cpu;
    }
    Ok(sums)
}

fn wait(duration: Duration) -> Result<()> {
    interrupt::wait_until(duration, STEP, || Ok(false)).map(drop)
}

pub(super) fn run(settings: &Settings) -> Result<CaseReport> {
    let window = Duration::from_secs(settings.or_quick(30, 3));
    let mut report = CaseReport::new(
        Case::Idle,
        format!(
            "{NODES} empty nodes of one shard, 3 coordinators, no clients, {} s; shares of one core, \
             from schedstat; one sample for each process",
            window.as_secs()
        ),
    );
    let bed = Bed::start(
        &settings.ephesus,
        settings.root(),
        Layout::of_nodes(NODES, "strict"),
    )?;
    let leader = bed.leader()?;
    wait(SETTLE)?;
    let nodes = bed.node_pids();
    let coordinators = bed.coordinator_pids();
    let pids = nodes
        .iter()
        .copied()
        .chain(coordinators.iter().map(|(_, pid)| *pid));
    let pids: Vec<Pid> = pids.collect();
    let read = || {
        pids.iter()
            .map(|pid| by_thread(*pid))
            .collect::<Result<Vec<_>>>()
    };
    let (before, began) = (read()?, Instant::now());
    wait(window)?;
    let (after, wall) = (read()?, began.elapsed());
    let percent = |cpu: Duration| cpu.as_secs_f64() / wall.as_secs_f64() * 100.0;
    let used: Vec<ByThread> = before
        .into_iter()
        .zip(after)
        .map(|(before, after)| {
            let since = |(name, cpu): (String, Duration)| {
                let before = before.get(&name).copied().unwrap_or_default();
                (name, cpu.saturating_sub(before))
            };
            after.into_iter().map(since).collect()
        })
        .collect();
    let (node_use, coordinator_use) = used.split_at(nodes.len());
    let whole = |used: &ByThread| percent(used.values().sum());
    let membership = node_use.iter().map(|used| {
        let own = used.get(MEMBERSHIP_THREAD).copied();
        percent(own.unwrap_or_default())
    });
    let goal = Some(Goal::ValueAtMost(GOAL_PERCENT));
    let name = format!("node, thread {MEMBERSHIP_THREAD}");
    report.add(name, UNIT, membership.collect(), goal);
    let all = node_use.iter().map(whole).collect();
    report.add("node, whole process", UNIT, all, None);
    let of = |is_leader: bool| {
        let rows = coordinators.iter().zip(coordinator_use);
        rows.filter(|((index, _), _)| (*index == leader) == is_leader)
            .map(|(_, used)| whole(used))
            .collect()
    };
    report.add("coordinator that leads", UNIT, of(true), None);
    report.add("coordinator that follows", UNIT, of(false), None);
    Ok(report)
}
