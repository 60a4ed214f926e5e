use std::time::{Duration, Instant};

use ephesus_coordinator::command::{Addresses, Registration};
use ephesus_coordinator::link::blocking::Client;
use ephesus_coordinator::protocol::{self, Answer, Request, kind};
use ephesus_coordinator::report::{Query, Report};
use ephesus_wire::NodeId;
use ephesus_wire::handshake::LinkRole;

use crate::error::{BenchError, Result};
use crate::interrupt::wait_for;
use crate::measure::Goal;
use ephesus_wire::rng::Rng;

use super::bed::{Bed, Layout};
use super::{Case, CaseReport, Settings};

const GOAL_S: f64 = 3.0;
const POLL: Duration = Duration::from_millis(5);
const CALL_LIMIT: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(30);

/// A node that nobody has heard of; its registration is a change that has to be decided.
fn stranger(name: String, random: &mut Rng) -> Registration {
    let (low, high) = (random.draw(), random.draw());
    let id = u128::from(low) << 64 | u128::from(high);
    let nowhere = || "127.0.0.1:1".to_owned();
    Registration {
        node: NodeId(id.to_be_bytes()),
        cluster: None,
        name,
        incarnation: 1,
        addresses: Addresses {
            entry: nowhere(),
            peer: nowhere(),
        },
        shards: 1,
        capacity: 100,
        speaks: ephesus_coordinator::protocol::VERSIONS,
    }
}

/// Whether this coordinator has taken the node in.
fn register(address: &str, node: &Registration) -> Result<bool> {
    let wrong = |problem: String| BenchError::failed(format!("registering at {address}"), problem);
    let identity = protocol::identity(LinkRole::Node, node.node);
    let Ok(mut client) = Client::dial(address, identity, None, CALL_LIMIT) else {
        return Ok(false);
    };
    let request = Request::Register(node.clone());
    let payload = request.encode().map_err(|error| wrong(error.to_string()))?;
    let Ok(message) = client.request(kind::REQUEST, &payload, CALL_LIMIT) else {
        return Ok(false);
    };
    match Answer::decode(&message.payload).map_err(|error| wrong(error.to_string()))? {
        Answer::Registered { .. } => Ok(true),
        Answer::Refused(refusal) => Err(wrong(refusal.to_string())),
        _ => Ok(false),
    }
}

pub(super) fn run(settings: &Settings) -> Result<CaseReport> {
    let rounds = settings.or_quick(5, 1);
    let mut report = CaseReport::new(
        Case::LeaderLost,
        format!(
            "3 coordinators, 3 nodes; {rounds} times SIGKILL of the leader; from then until one of \
             the others has taken a new node in, which both have on disk"
        ),
    );
    let mut bed = Bed::start(
        &settings.ephesus,
        settings.root(),
        Layout::of_nodes(3, "relaxed"),
    )?;
    let mut random = Rng::new(u64::from(std::process::id()));
    let mut writable = Vec::new();
    for round in 0..rounds {
        let node = stranger(format!("stranger-{round}"), &mut random);
        let leader = bed.leader()?;
        let others: Vec<String> = (0..3)
            .filter(|index| *index != leader)
            .map(|index| bed.coordinator(index).to_string())
            .collect();
        bed.kill_coordinator(leader);
        let lost = Instant::now();
        wait_for(("registering", "done"), TIMEOUT, POLL, || {
            is_taken(&others, &node)
        })?;
        writable.push(lost.elapsed().as_secs_f64());
        bed.restart_coordinator(leader)?;
        remove(&bed, &node.name)?;
        bed.wait_healthy()?;
    }
    let goal = Some(Goal::ValueAtMost(GOAL_S));
    report.add("until a change is accepted", "s", writable, goal);
    Ok(report)
}

fn is_taken(coordinators: &[String], node: &Registration) -> Result<bool> {
    for address in coordinators {
        if register(address, node)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn remove(bed: &Bed, name: &str) -> Result<()> {
    let query = Query::RemoveNode {
        node: name.to_owned(),
        lose_data: false,
    };
    match bed.ask(&query)? {
        Report::NodeRemoved { .. } => Ok(()),
        other => Err(BenchError::failed("node remove", format!("{other:?}"))),
    }
}
