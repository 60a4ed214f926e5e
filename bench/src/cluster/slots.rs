use std::net::SocketAddr;

use ephesus_wire::resp::reply;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::measure::Goal;
use crate::procfs::{self, Pid};
use crate::resp::{Connection, Value, unexpected};

use super::bed::{Bed, Layout, PARTITIONS};
use super::settings::Settings;
use super::{Case, CaseReport};

const SHARDS: u16 = 64;
const PIPELINE: usize = 16;
const GOAL_US: f64 = 50.0;
/// So many PINGs for each CLUSTER SLOTS: they are short.
const PINGS: usize = 10;

/// CPU time of the process for each command, us, once per run; and the bytes of a reply.
fn measure(
    pid: Pid,
    address: SocketAddr,
    command: &[&str],
    (runs, batches): (usize, usize),
) -> Result<(Vec<f64>, usize)> {
    let mut batch = Vec::new();
    for _ in 0..PIPELINE {
        reply::command(&mut batch, command);
    }
    let mut connection = Connection::open(address)?;
    let bytes = connection.pass(&batch, PIPELINE)?;
    let mut run = |batches| {
        for _ in 0..batches {
            interrupt::check()?;
            if connection.pass(&batch, PIPELINE)? != bytes {
                return Err(BenchError::reply(
                    command.join(" "),
                    b"another reply than before",
                ));
            }
        }
        Ok(())
    };
    run(batches / 10)?;
    let mut samples = Vec::new();
    for _ in 0..runs {
        let before = procfs::cpu_time(pid)?;
        run(batches)?;
        let used = procfs::cpu_time(pid)?.saturating_sub(before);
        samples.push(used.as_secs_f64() * 1e6 / (batches * PIPELINE) as f64);
    }
    Ok((samples, bytes / PIPELINE))
}

pub(super) fn run(settings: &Settings) -> Result<CaseReport> {
    let (runs, batches) = (settings.or_quick(9, 2), settings.or_quick(500, 20));
    let mut report = CaseReport::new(
        Case::ClusterSlots,
        format!(
            "one node of {SHARDS} shards, {PARTITIONS} partitions; {runs} runs of {} commands, \
             pipeline {PIPELINE}, one connection to the entry port; CPU of the whole node",
            batches * PIPELINE
        ),
    );
    for assignment in ["contiguous", "round-robin"] {
        let bed = Bed::start(
            &settings.ephesus,
            settings.root(),
            Layout {
                coordinators: 1,
                shards: SHARDS,
                assignment,
                ..Layout::of_nodes(1, "relaxed")
            },
        )?;
        let (pid, address) = (bed.node_pids()[0], bed.entry(0));
        let slots = ["CLUSTER", "SLOTS"];
        let ranges = match Connection::open(address)?.call(&slots)? {
            Value::Array(ranges) => ranges.len(),
            other => return Err(unexpected(&slots, &other)),
        };
        let (samples, bytes) = measure(pid, address, &slots, (runs, batches))?;
        let name = format!("CLUSTER SLOTS, {assignment}: {ranges} ranges, {bytes} B");
        report.add(name, "us of CPU", samples, Some(Goal::ValueAtMost(GOAL_US)));
        let (samples, _) = measure(pid, address, &["PING"], (runs, PINGS * batches))?;
        report.add(format!("PING, {assignment}"), "us of CPU", samples, None);
    }
    Ok(report)
}
