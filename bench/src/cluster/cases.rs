use std::time::{Duration, Instant};

use ephesus_coordinator::report::{Query, Report};

use crate::error::{BenchError, Result};
use crate::interrupt::{self, wait_for};
use crate::measure::{Goal, less};
use crate::operator::{Operator, answer};
use crate::procfs::{self, Pid};
use crate::record::{Case, EPHESUS};
use crate::resp::Connection;

use super::bed::Member::{Coordinator, Node};
use super::{NODES, Site};

const TABLE_GOAL_MS: f64 = 100.0;
const TABLE_POLL: Duration = Duration::from_micros(500);
const LEADER_GOAL_S: f64 = 3.0;
const LEADER_POLL: Duration = Duration::from_millis(5);
/// A heartbeat timeout, or a start, and a lot of patience.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until the leader counts so many failed nodes; the moment at which the last question
/// was sent whose answer did not say so yet.
fn until_failed(leader: &mut Operator, count: u64) -> Result<Instant> {
    let mut last_old = Instant::now();
    wait_for(("the leader's status", "new"), TIMEOUT, TABLE_POLL, || {
        let asked = Instant::now();
        let status = answer!(leader.ask(&Query::Status)?, Report::Status)?;
        let is_new = status.nodes.get("failed").copied().unwrap_or(0) == count;
        if !is_new {
            last_old = asked;
        }
        Ok(is_new)
    })?;
    Ok(last_old)
}

/// Waits until every node shows the shard at `port` as failed, or as not; ms since `from`, by node.
fn until_shown(
    nodes: &mut [Connection],
    port: u16,
    failed: bool,
    from: Instant,
) -> Result<Vec<f64>> {
    let mut seen: Vec<Option<f64>> = vec![None; nodes.len()];
    let address = format!(":{port}@");
    let state = ("CLUSTER NODES", "new");
    wait_for(state, TIMEOUT, Duration::ZERO, || {
        let all = nodes.iter_mut().zip(&mut seen);
        for (node, seen) in all.filter(|(_, seen)| seen.is_none()) {
            let nodes = node.text(&["CLUSTER", "NODES"])?;
            let line = nodes.lines().find(|line| line.contains(&address));
            let flags = line.and_then(|line| line.split(' ').nth(2));
            let flags = flags.ok_or_else(|| BenchError::unexpected("CLUSTER NODES", &nodes))?;
            if flags.split(',').any(|flag| flag == "fail") == failed {
                *seen = Some(from.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(seen.iter().all(Option::is_some))
    })?;
    Ok(seen.into_iter().flatten().collect())
}

pub(super) fn of_table(site: &Site, case: &mut Case) -> Result<()> {
    let rounds = site.or_quick(10, 1);
    case.how = format!(
        "{NODES} nodes of one shard, 3 coordinators; {rounds} times SIGKILL of a node and its restart: two changes \
         each. From the last moment at which the leader's status was still the old one until CLUSTER NODES of the last \
         of the 9 other nodes shows the change"
    );
    let mut bed = site.start(NODES, "relaxed")?;
    for round in 0..rounds {
        let lost = round % NODES;
        let others = (0..NODES).filter(|index| *index != lost);
        let others = others.map(|index| Connection::open(bed.address(Node(index))));
        let mut others = others.collect::<Result<Vec<_>>>()?;
        let mut leader =
            Operator::open(&bed.address(Coordinator(bed.leader()?)).to_string(), None)?;
        let direct = bed.address(Node(lost)).port() + 1;
        let mut follow = |failed: bool| {
            let from = until_failed(&mut leader, failed.into())?;
            let shown = until_shown(&mut others, direct, failed, from)?;
            let last = shown.iter().copied().fold(0.0, f64::max);
            let soon = less("ms").to(Goal::ValueAtMost(TABLE_GOAL_MS));
            case.sample("change seen on every node", soon, EPHESUS, last);
            for one in shown {
                case.sample("change seen on one node", less("ms"), EPHESUS, one);
            }
            Ok(())
        };
        bed.kill(Node(lost));
        follow(true)?;
        bed.restart(Node(lost))?;
        follow(false)?;
        bed.wait_healthy()?;
    }
    Ok(())
}

pub(super) fn of_leader(site: &Site, case: &mut Case) -> Result<()> {
    let rounds = site.or_quick(5, 1);
    case.how = format!(
        "3 coordinators, 3 nodes; {rounds} times SIGKILL of the leader; from then until one of the others has taken a \
         change, a limit of moves, which both have on disk"
    );
    let mut bed = site.start(3, "relaxed")?;
    for round in 0..rounds {
        let leader = bed.leader()?;
        let others = (0..3).filter(|index| *index != leader).map(Coordinator);
        let others: Vec<String> = others.map(|one| bed.address(one).to_string()).collect();
        let change = Query::LimitMoves { mb_s: 1 + round };
        // Who does not lead, or not yet, refuses.
        let is_taken = |other: &String| {
            let answer = Operator::open(other, None).and_then(|mut link| link.ask(&change));
            matches!(answer, Ok(Report::MovesLimited))
        };
        bed.kill(Coordinator(leader));
        let lost = Instant::now();
        wait_for(("a change", "taken"), TIMEOUT, LEADER_POLL, || {
            Ok(others.iter().any(is_taken))
        })?;
        let soon = less("s").to(Goal::ValueAtMost(LEADER_GOAL_S));
        let seconds = lost.elapsed().as_secs_f64();
        case.sample("until a change is accepted", soon, EPHESUS, seconds);
        bed.restart(Coordinator(leader))?;
        bed.wait_healthy()?;
    }
    Ok(())
}

const IDLE_GOAL_PERCENT: f64 = 0.5;
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

pub(super) fn of_rest(site: &Site, case: &mut Case) -> Result<()> {
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
        Node(_) => (pid, "node"),
        Coordinator(index) if index == leader => (pid, "coordinator that leads"),
        Coordinator(_) => (pid, "coordinator that follows"),
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
            let little = less(UNIT).to(Goal::ValueAtMost(IDLE_GOAL_PERCENT));
            let name = format!("node, thread {MEMBERSHIP_THREAD}");
            case.sample(name, little, EPHESUS, own);
        }
        case.sample(format!("{what}, whole process"), less(UNIT), EPHESUS, whole);
    }
    Ok(())
}
