//! Policies of placement on paper, side by side: what moves when nodes come and go, how even it is, and what a plan costs.
//!
//! Nothing is started: plans are those of a coordinator. Every round has nodes with other UUIDs, the same for all policies.

use std::collections::BTreeMap;

use clap::builder::RangedU64ValueParser;
use ephesus_coordinator::placement::Policy;
use serde::Serialize;

use crate::error::Result;
use crate::interrupt;
use crate::measure::{Goal, Scale, less};
use crate::named::Named;
use crate::record::{Axis, Case, Kind, Outputs, Plot, Series};
use crate::runner::{Session, session};

use paper::{Change, Measures};

mod keys;
mod paper;
#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum Scenario {
    /// small clusters, to be checked by hand
    Golden,
    /// a node joins
    Join,
    /// a node is drained and leaves
    Leave,
    /// as many nodes join as are there
    Double,
    /// nodes have capacities of 50, 100, 150 and 200, and one of 200 joins
    Weights,
    /// nodes are in three racks, and one joins the first
    Racks,
    /// 1000 nodes of 16 shards: the time and memory of a plan
    Speed,
    /// keys that are in no partitions: hash mod N, rings and jumps
    Keys,
}

#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct PlacementArgs {
    /// A policy with its parameters, as in ring:vnodes=256; once for each [default: all]
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<Policy>,
    /// Scenarios, comma-separated [default: all]
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Scenario::all(), hide_default_value = true)]
    scenarios: Vec<Scenario>,
    /// Nodes of a cluster [default with --quick: 3,10]
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "3,10,30,100,1000,10000",
        default_value_if("quick", "true", "3,10"),
        value_parser = clap::value_parser!(u16).range(2..=10_000)
    )]
    nodes: Vec<u16>,
    /// Shards of a node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: u16,
    /// Partitions
    #[arg(long, default_value_t = 16384, value_parser = clap::value_parser!(u16).range(1..=16384))]
    partitions: u16,
    /// Rounds, each with nodes of other UUIDs [default with --quick: 1]
    #[arg(long, default_value_t = 3, default_value_if("quick", "true", "1"), value_parser = RangedU64ValueParser::<u64>::new().range(1..=1000))]
    rounds: u64,
    /// Few nodes and one round: checks the tool
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    #[serde(skip)]
    outputs: Outputs,
}

/// Nodes and shards of the case about speed, and what plans of them may need.
const FAST: (u16, u16) = (1000, 16);
const FAST_MS: f64 = 50.0;
const SLOW_MS: f64 = 1000.0;
const MEMORY_MB: f64 = 64.0;
const PLAN: &str = "plan";

impl PlacementArgs {
    pub fn execute(&self) -> Result<()> {
        let outputs = (&self.outputs, None, self.quick);
        session("placement", outputs, self, |session| {
            let mut all = self.scenarios.iter();
            all.try_for_each(|scenario| self.measure(*scenario, session))
        })
    }

    fn policies(&self) -> Vec<Policy> {
        if !self.policies.is_empty() {
            return self.policies.clone();
        }
        let even = "ring:tokens=even".parse().into_iter();
        Policy::all().into_iter().chain(even).collect()
    }

    fn measure(&self, scenario: Scenario, session: &mut Session<'_>) -> Result<()> {
        eprintln!("== {}: {}", scenario.name(), scenario.title());
        let mut case = Case::new(scenario);
        match scenario {
            Scenario::Golden => self.golden(&mut case),
            Scenario::Speed => self.speed(&mut case)?,
            Scenario::Keys => self.of_sizes(&mut case, keys::HOW, |(nodes, round), found| {
                keys::measure((nodes, round), self.quick, found);
                Ok(())
            })?,
            change => {
                let how = format!(
                    "{} partitions, {} shards per node; medians of {} rounds. A node's share is what its weight says; moved / \
                     least is what moves for each partition that has to if all get their share: below 1 the node that joins gets less.",
                    self.partitions, self.shards, self.rounds
                );
                let size = (self.shards, self.partitions);
                self.of_sizes(&mut case, &how, |(nodes, round), found| {
                    let change = Change::new(change, (nodes, round), size);
                    self.policies().iter().try_for_each(|policy| {
                        interrupt::check()?;
                        found.insert(policy.to_string(), change.measure(policy));
                        Ok(())
                    })
                })?;
            }
        }
        case.judge(PLAN, "", |_| String::new());
        let rows = case.rows.iter().filter_map(|row| row.name.split_once(", "));
        let mut questions: Vec<&str> = rows.map(|(question, _)| question).collect();
        questions.dedup();
        case.plots = match scenario {
            Scenario::Golden | Scenario::Speed => Vec::new(),
            _ => questions
                .into_iter()
                .map(|question| plot(&case, question))
                .collect(),
        };
        session.put(case)
    }

    /// Adds what is found of clusters of all sizes, ordered by what was asked.
    fn of_sizes(
        &self,
        case: &mut Case,
        how: &str,
        find: impl Fn((u16, u64), &mut BTreeMap<String, Measures>) -> Result<()>,
    ) -> Result<()> {
        how.clone_into(&mut case.how);
        let mut samples = Vec::new();
        for (size, nodes) in self.nodes.iter().enumerate() {
            for round in 0..self.rounds {
                let mut found = BTreeMap::new();
                find((*nodes, round), &mut found)?;
                for (policy, measures) in found {
                    let measures = measures.into_iter().enumerate();
                    let named = measures.map(|(at, one)| ((at, size, *nodes), one, policy.clone()));
                    samples.extend(named);
                }
            }
        }
        samples.sort_by_key(|(order, _, _)| *order);
        for ((_, _, nodes), (name, unit, value), policy) in samples {
            case.sample(format!("{name}, {nodes} nodes"), less(unit), policy, value);
        }
        Ok(())
    }

    fn golden(&self, case: &mut Case) {
        case.how = "Nodes of one shard, named in the order of their UUIDs.".to_owned();
        for (title, change) in Change::golden() {
            for policy in self.policies() {
                for (name, unit, value) in change.loads(&policy) {
                    case.sample(format!("{title}: {name}"), less(unit), policy, value);
                }
            }
        }
    }

    fn speed(&self, case: &mut Case) -> Result<()> {
        let (nodes, shards) = FAST;
        case.how = format!(
            "{nodes} nodes of {shards} shards, {} partitions: the first plan, and the one when a node has joined.",
            self.partitions
        );
        for policy in self.policies() {
            let is_slow = matches!(
                policy,
                Policy::Rendezvous(_) | Policy::Maglev(_) | Policy::BoundedRing(_)
            ) || policy.to_string().contains("even");
            let most = if is_slow { SLOW_MS } else { FAST_MS };
            let bound = |unit, most| -> Scale { less(unit).to(Goal::ValueAtMost(most)) };
            for round in 0..self.rounds {
                interrupt::check()?;
                let size = (shards, self.partitions);
                let change = Change::new(Scenario::Join, (nodes, round), size);
                for (ms, mb) in change.costs(&policy) {
                    case.sample(format!("{policy}: time"), bound("ms", most), PLAN, ms);
                    case.sample(
                        format!("{policy}: memory"),
                        bound("MB", MEMORY_MB),
                        PLAN,
                        mb,
                    );
                }
            }
        }
        Ok(())
    }
}

/// What was found of a question, over the number of nodes.
fn plot(case: &Case, question: &str) -> Plot {
    let (mut lines, mut unit) = (BTreeMap::<&str, Vec<[f64; 2]>>::new(), "");
    for row in &case.rows {
        let nodes = row.name.strip_prefix(question);
        let nodes = nodes.and_then(|rest| rest.strip_prefix(", ")?.strip_suffix(" nodes"));
        let Some(nodes) = nodes.and_then(|nodes| nodes.parse().ok()) else {
            continue;
        };
        unit = &row.unit;
        for (policy, median) in &row.medians {
            lines
                .entry(policy)
                .or_default()
                .extend(median.map(|median| [nodes, median]));
        }
    }
    let series = lines
        .into_iter()
        .map(|(name, points)| Series::new(name, points));
    let axes = [Axis::log("nodes", ""), Axis::log(unit, "")];
    Plot::new(question, Kind::Curve, axes, series.collect())
}
