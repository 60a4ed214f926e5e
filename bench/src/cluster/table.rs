use std::thread;
use std::time::{Duration, Instant};

use ephesus_coordinator::report::{Query, Report, StatusReport};

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::measure::Goal;
use crate::operator::Operator;
use crate::resp::Connection;

use super::bed::{Bed, Layout, NODES};
use super::{Case, CaseReport, Settings};

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

pub(super) fn run(settings: &Settings) -> Result<CaseReport> {
    let rounds = settings.or_quick(10, 1);
    let mut report = CaseReport::new(
        Case::TableChange,
        format!(
            "{NODES} nodes of one shard, 3 coordinators; {rounds} times SIGKILL of a node and its \
             restart: two changes each. From the last moment at which the leader's status was still \
             the old one until CLUSTER NODES of the last of the 9 other nodes shows the change"
        ),
    );
    let mut bed = Bed::start(
        &settings.ephesus,
        settings.root(),
        Layout::of_nodes(NODES, "relaxed"),
    )?;
    let (mut last, mut each) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let lost = round % NODES;
        let others = (0..NODES).filter(|index| *index != lost);
        let mut others = others
            .map(|index| Connection::open(bed.entry(index)))
            .collect::<Result<Vec<_>>>()?;
        let mut leader = Operator::open(&bed.coordinator(bed.leader()?).to_string(), None)?;
        let direct = bed.direct(lost).port();
        bed.kill_node(lost);
        let mut follow = |failed: bool| {
            let from = until_failed(&mut leader, failed.into())?;
            let shown = until_shown(&mut others, direct, failed, from)?;
            last.push(shown.iter().copied().fold(0.0, f64::max));
            each.extend(shown);
            Ok(())
        };
        follow(true)?;
        bed.restart_node(lost)?;
        follow(false)?;
        bed.wait_healthy()?;
    }
    let goal = Some(Goal::ValueAtMost(GOAL_MS));
    report.add("change seen on every node", "ms", last, goal);
    report.add("change seen on one node", "ms", each, None);
    Ok(report)
}
