//! What the leader of a large cluster needs for its turns, and how much memory.

use std::process::ExitCode;

use clap::Parser;
use ephesus_bench::error::{BenchError, Result};
use ephesus_bench::locate;
use ephesus_bench::measure::{Goal, Verdict};
use ephesus_bench::record::{Case, Outputs, Record};
use ephesus_bench::stats;

use life::heap::Counting;
use life::{FAILED, Size, nodes};

#[path = "leader/life.rs"]
mod life;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TURN_GOAL_MS: f64 = 50.0;
const HEAP_GOAL_MB: f64 = 200.0;

#[derive(Debug, Parser)]
struct Arguments {
    /// Nodes
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(20..=10_000))]
    nodes: u16,
    /// Partitions
    #[arg(long, default_value_t = 16384, value_parser = clap::value_parser!(u16).range(1..=16384))]
    partitions: u16,
    /// Where results go.
    #[command(flatten)]
    outputs: Outputs,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leader: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    arguments.outputs.prepare()?;
    let (nodes, partitions) = (arguments.nodes, arguments.partitions);
    let root = locate::data_root(None, "leader-")?;
    let settings = serde_json::json!({ "nodes": nodes, "partitions": partitions });
    let mut record = Record::new("leader", root.path(), &settings)?;
    let case = case(Size { nodes, partitions }, root.path())?;
    let missed = case.rows.iter().find(|row| row.verdict == Verdict::Missed);
    let missed = missed.map(|row| BenchError::failed(&row.name, "the bound is missed"));
    record.put(case);
    arguments
        .outputs
        .publish(record, missed.map_or(Ok(()), Err))
}

fn case(size: Size, dir: &std::path::Path) -> Result<Case> {
    let (nodes, partitions) = (size.nodes, size.partitions);
    let mut report = Case {
        name: "scale".to_owned(),
        title: "the leader's turns and memory in a large simulated cluster".to_owned(),
        how: format!(
            "3 coordinators as they ship, {nodes} simulated nodes of {} shards, {partitions} partitions, virtual \
             clock: all nodes register at once, half of them get everything, {FAILED} fail, a rebalance, the \
             {FAILED} are removed, operators ask. A turn of the leader is its decisions, its log's writes and the encoding of what \
             it sends; its memory is what it has allocated",
            nodes::SHARDS
        ),
        ..Case::default()
    };
    let life = life::live(size, dir)?;
    let mut all = Vec::new();
    for (when, turns) in life.turns {
        let longest = stats::quantile(&turns, 1.0).into_iter().collect();
        let goal = Some(Goal::ValueAtMost(TURN_GOAL_MS));
        report.add(format!("longest turn, {when}"), "ms", longest, goal);
        let p99 = stats::quantile(&turns, 0.99).into_iter().collect();
        report.add(format!("99% of {} turns", turns.len()), "ms", p99, None);
        all.extend(turns);
    }
    let mut one = |name: &str, unit, value: f64, most: Option<f64>| {
        report.add(name, unit, vec![value], most.map(Goal::ValueAtMost));
    };
    one("turns", "", all.len() as f64, None);
    one("CPU of all turns", "ms", all.iter().sum(), None);
    let undecided = life.undecided_max as f64;
    one("proposals under way, most", "", undecided, None);
    one("partitions moved", "", life.moves as f64, None);
    one("versions of the table", "", life.versions as f64, None);
    one("updates encoded", "", life.encoded as f64, None);
    let again = life.encoded_again as f64;
    one("encoded more than once", "", again, Some(0.0));
    let dropped = life.dropped as f64;
    one("messages of raft dropped", "", dropped, Some(0.0));
    let mb = life.heap_peak_bytes as f64 / 1e6;
    one("most memory", "MB", mb, Some(HEAP_GOAL_MB));
    Ok(report)
}
