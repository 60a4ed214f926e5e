use std::time::{Duration, Instant};

use crate::error::Result;
use crate::interrupt;
use crate::measure::{Goal, less};
use crate::procfs::{self, Pid};
use crate::record::{Case, EPHESUS};

use super::bed::Member;
use super::{NODES, Site};

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

pub(super) fn run(site: &Site, case: &mut Case) -> Result<()> {
    let window = Duration::from_secs(site.or_quick(30, 3));
    case.how = format!(
        "{NODES} empty nodes of one shard, 3 coordinators, no clients, {} s; shares of one core, from schedstat; one \
         sample for each process",
        window.as_secs()
    );
    let bed = site.start(NODES, "strict")?;
    let leader = bed.leader()?;
    wait(SETTLE)?;
    let all = bed.pids().map(|(member, pid)| match member {
        Member::Node(_) => (pid, "node"),
        Member::Coordinator(index) if index == leader => (pid, "coordinator that leads"),
        Member::Coordinator(_) => (pid, "coordinator that follows"),
    });
    let all: Vec<(Pid, &str)> = all.collect();
    let read = || {
        all.iter()
            .map(|(pid, _)| cpu(*pid))
            .collect::<Result<Vec<_>>>()
    };
    let (before, began) = (read()?, Instant::now());
    wait(window)?;
    let (after, wall) = (read()?, began.elapsed());
    let percent = |cpu: Duration| cpu.as_secs_f64() / wall.as_secs_f64() * 100.0;
    for (((_, what), before), after) in all.iter().zip(before).zip(after) {
        let [own, whole] = [0, 1].map(|at: usize| percent(after[at].saturating_sub(before[at])));
        if *what == "node" {
            let little = less(UNIT).to(Goal::ValueAtMost(GOAL_PERCENT));
            let name = format!("node, thread {MEMBERSHIP_THREAD}");
            case.sample(name, little, EPHESUS, own);
        }
        case.sample(format!("{what}, whole process"), less(UNIT), EPHESUS, whole);
    }
    Ok(())
}
