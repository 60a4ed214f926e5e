//! What the leader of a large cluster needs for its turns, and how much memory.

use std::process::ExitCode;

use clap::Parser;
use ephesus_bench::error::{BenchError, Result};
use ephesus_bench::heap::Counting;
use ephesus_bench::locate;
use ephesus_bench::measure::{Goal, Verdict, less};
use ephesus_bench::record::{Case, EPHESUS, Outputs, Record};
use ephesus_bench::stats;

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
    let mut add = |name: &str, unit, value, most: Option<f64>| {
        let scale = less(unit).to(most.map(Goal::ValueAtMost));
        report.sample(name, scale, EPHESUS, value);
    };
    let mut all = Vec::new();
    for (when, turns) in life.turns {
        let of = |q| stats::quantile(&turns, q).unwrap_or(f64::NAN);
        let longest = format!("longest turn, {when}");
        let p99 = format!("99% of {} turns, {when}", turns.len());
        add(&longest, "ms", of(1.0), Some(TURN_GOAL_MS));
        add(&p99, "ms", of(0.99), None);
        all.extend(turns);
    }
    add("turns", "", all.len() as f64, None);
    add("CPU of all turns", "ms", all.iter().sum(), None);
    let undecided = life.undecided_max as f64;
    add("proposals under way, most", "", undecided, None);
    add("partitions moved", "", life.moves as f64, None);
    add("versions of the table", "", life.versions as f64, None);
    add("updates encoded", "", life.encoded as f64, None);
    let again = life.encoded_again as f64;
    add("encoded more than once", "", again, Some(0.0));
    let dropped = life.dropped as f64;
    add("messages of raft dropped", "", dropped, Some(0.0));
    let mb = life.heap_peak_bytes as f64 / 1e6;
    add("most memory", "MB", mb, Some(HEAP_GOAL_MB));
    report.judge(EPHESUS, "", str::to_owned);
    Ok(report)
}
