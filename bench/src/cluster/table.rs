use std::time::{Duration, Instant};

use ephesus_coordinator::report::{Query, Report};

use crate::error::{BenchError, Result};
use crate::interrupt::wait_for;
use crate::measure::{Goal, less};
use crate::operator::{Operator, unexpected};
use crate::record::{Case, EPHESUS};
use crate::resp::Connection;

use super::bed::Member::{Coordinator, Node};
use super::{NODES, Site};

const GOAL_MS: f64 = 100.0;
const POLL: Duration = Duration::from_micros(500);
/// A heartbeat timeout, or a start, and a lot of patience.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

fn failed_nodes(leader: &mut Operator) -> Result<u64> {
    match leader.ask(&Query::Status)? {
        Report::Status(status) => Ok(status.nodes.get("failed").copied().unwrap_or(0)),
        other => Err(unexpected("the leader's status", &other)),
    }
}

/// Waits until the leader counts so many failed nodes; the moment at which the last question
/// was sent whose answer did not say so yet.
fn until_failed(leader: &mut Operator, count: u64) -> Result<Instant> {
    let mut last_old = Instant::now();
    wait_for(("the leader's status", "new"), CHANGE_TIMEOUT, POLL, || {
        let asked = Instant::now();
        let is_new = failed_nodes(leader)? == count;
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
    wait_for(state, CHANGE_TIMEOUT, Duration::ZERO, || {
        let all = nodes.iter_mut().zip(&mut seen);
        for (node, seen) in all.filter(|(_, seen)| seen.is_none()) {
            let nodes = node.text(&["CLUSTER", "NODES"])?;
            let line = nodes.lines().find(|line| line.contains(&address));
            let flags = line.and_then(|line| line.split(' ').nth(2));
            let flags = flags.ok_or_else(|| BenchError::parse("CLUSTER NODES", &nodes))?;
            if flags.split(',').any(|flag| flag == "fail") == failed {
                *seen = Some(from.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(seen.iter().all(Option::is_some))
    })?;
    Ok(seen.into_iter().flatten().collect())
}

pub(super) fn run(site: &Site, case: &mut Case) -> Result<()> {
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
            let soon = less("ms").to(Goal::ValueAtMost(GOAL_MS));
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
