use std::thread;
use std::time::{Duration, Instant};

use ephesus_coordinator::report::{Query, Report, StatusReport};

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::measure::{Goal, less};
use crate::operator::Operator;
use crate::record::{Case, EPHESUS};
use crate::resp::Connection;

use super::bed::Member::{Coordinator, Node};
use super::{NODES, Site};

const GOAL_MS: f64 = 100.0;
const POLL: Duration = Duration::from_micros(500);
/// A heartbeat timeout, or a start, and a lot of patience.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

fn status(leader: &mut Operator) -> Result<StatusReport> {
    match leader.ask(&Query::Status)? {
        Report::Status(status) => Ok(status),
        other => Err(BenchError::failed(
            "the leader's status",
            format!("{other:?}"),
        )),
    }
}

/// Waits until the leader counts so many failed nodes; the moment at which the last question
/// was sent whose answer did not say so yet.
fn until_failed(leader: &mut Operator, count: u64) -> Result<Instant> {
    let began = Instant::now();
    let mut last_old = began;
    loop {
        interrupt::check()?;
        let asked = Instant::now();
        let failed = status(leader)?.nodes.get("failed").copied().unwrap_or(0);
        if failed == count {
            return Ok(last_old);
        }
        last_old = asked;
        if began.elapsed() > CHANGE_TIMEOUT {
            let problem = format!("{failed} nodes have failed, not {count}");
            return Err(BenchError::failed("the leader's status", problem));
        }
        thread::sleep(POLL);
    }
}

/// Waits until every node shows the shard at `port` as failed, or as not; ms since `from`, by node.
fn until_shown(
    connections: &mut [Connection],
    port: u16,
    failed: bool,
    from: Instant,
) -> Result<Vec<f64>> {
    let mut seen: Vec<Option<f64>> = vec![None; connections.len()];
    let address = format!(":{port}@");
    while seen.iter().any(Option::is_none) {
        interrupt::check()?;
        for (connection, seen) in connections.iter_mut().zip(&mut seen) {
            if seen.is_some() {
                continue;
            }
            let nodes = connection.text(&["CLUSTER", "NODES"])?;
            let line = nodes.lines().find(|line| line.contains(&address));
            let flags = line.and_then(|line| line.split(' ').nth(2));
            let flags = flags.ok_or_else(|| BenchError::parse("CLUSTER NODES", &nodes))?;
            if flags.split(',').any(|flag| flag == "fail") == failed {
                *seen = Some(from.elapsed().as_secs_f64() * 1e3);
            }
        }
        if from.elapsed() > CHANGE_TIMEOUT {
            return Err(BenchError::failed("CLUSTER NODES", "the table is old"));
        }
    }
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
