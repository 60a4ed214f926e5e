use std::time::{Duration, Instant};

use crate::error::Result;
use crate::interrupt;
use crate::measure::Goal;
use crate::procfs::{self, Pid};

use super::bed::{Bed, Layout, NODES};
use super::{Case, CaseReport, Settings};

const GOAL_PERCENT: f64 = 0.5;
/// What a node's side of coordination runs on.
const MEMBERSHIP_THREAD: &str = "membership";
/// For what a start leaves to do.
const SETTLE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(100);
const UNIT: &str = "% of a core";

/// CPU time of a process: of its membership, and of all its threads.
fn cpu(pid: Pid) -> Result<[Duration; 2]> {
    let threads = procfs::threads(pid)?;
    let own = threads
        .iter()
        .filter(|thread| thread.name == MEMBERSHIP_THREAD);
    let sum_of_own = own.map(|thread| thread.cpu).sum();
    Ok([sum_of_own, threads.iter().map(|thread| thread.cpu).sum()])
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
    let pids = coordinators.iter().map(|(_, pid)| pid);
    let pids: Vec<&Pid> = nodes.iter().chain(pids).collect();
    let read = || {
        pids.iter()
            .map(|pid| cpu(**pid))
            .collect::<Result<Vec<_>>>()
    };
    let (before, began) = (read()?, Instant::now());
    wait(window)?;
    let (after, wall) = (read()?, began.elapsed());
    let percent = |cpu: Duration| cpu.as_secs_f64() / wall.as_secs_f64() * 100.0;
    let since = |(before, after): (&[Duration; 2], &[Duration; 2])| {
        [0, 1].map(|at: usize| percent(after[at].saturating_sub(before[at])))
    };
    let used: Vec<[f64; 2]> = before.iter().zip(&after).map(since).collect();
    let (of_nodes, of_coordinators) = used.split_at(nodes.len());
    let goal = Some(Goal::ValueAtMost(GOAL_PERCENT));
    let name = format!("node, thread {MEMBERSHIP_THREAD}");
    report.add(
        name,
        UNIT,
        of_nodes.iter().map(|used| used[0]).collect(),
        goal,
    );
    let whole = of_nodes.iter().map(|used| used[1]).collect();
    report.add("node, whole process", UNIT, whole, None);
    let of = |is_leader: bool| {
        let rows = coordinators.iter().zip(of_coordinators);
        let rows = rows.filter(|((index, _), _)| (*index == leader) == is_leader);
        rows.map(|(_, used)| used[1]).collect()
    };
    report.add("coordinator that leads", UNIT, of(true), None);
    report.add("coordinator that follows", UNIT, of(false), None);
    Ok(report)
}
