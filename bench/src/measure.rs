//! Quantities with their samples of every server, and what they are to reach.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::record::{Case, Row};
use crate::runner::Contestant;
use crate::stats;

#[cfg(test)]
mod tests;

/// The row about the server's CPU, which counts when clients are the limit.
pub const CPU_PER_OP: &str = "server CPU per op";
/// The row about the share of its CPUs that the load generator used.
pub const CLIENT_BUSY: &str = "client busy";
/// A client that uses more of its CPUs than this hides the server's limit.
const CLIENT_BUSY_MAX: f64 = 0.9;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Better {
    #[default]
    Higher,
    Lower,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Subject / best peer at least this.
    RatioAtLeast(f64),
    /// Subject / best peer at most this.
    RatioAtMost(f64),
    /// The subject's own value at most this.
    ValueAtMost(f64),
    /// The subject's own value at least this.
    ValueAtLeast(f64),
}

impl Goal {
    fn verdict(self, value: Option<f64>) -> Verdict {
        let is_reached = value.map(|value| match self {
            Goal::RatioAtLeast(least) | Goal::ValueAtLeast(least) => value >= least,
            Goal::RatioAtMost(most) | Goal::ValueAtMost(most) => value <= most,
        });
        match is_reached {
            None => Verdict::NotMeasured,
            Some(true) => Verdict::Met,
            Some(false) => Verdict::Missed,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::RatioAtLeast(least) => write!(f, ">= {least}x"),
            Goal::RatioAtMost(most) => write!(f, "<= {most}x"),
            Goal::ValueAtMost(most) => write!(f, "value <= {most}"),
            Goal::ValueAtLeast(least) => write!(f, "value >= {least}"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Met,
    Missed,
    /// Client-bound, and reached by CPU per operation.
    MetByCpu,
    /// Client-bound, and not reached by CPU per operation.
    MissedByCpu,
    /// A value that the goal needs is missing.
    NotMeasured,
    #[default]
    NoGoal,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::MetByCpu => "met (CPU per op)",
            Verdict::MissedByCpu => "MISSED (CPU per op)",
            Verdict::NotMeasured => "unmeasured",
            Verdict::NoGoal => "-",
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Scale {
    unit: &'static str,
    better: Better,
    goal: Option<Goal>,
}

pub fn more(unit: &'static str) -> Scale {
    Scale {
        unit,
        better: Better::Higher,
        goal: None,
    }
}

pub fn less(unit: &'static str) -> Scale {
    Scale {
        better: Better::Lower,
        ..more(unit)
    }
}

impl Scale {
    pub fn to(self, goal: impl Into<Option<Goal>>) -> Self {
        let goal = goal.into();
        Scale { goal, ..self }
    }
}

impl Case {
    /// Adds a sample of a server to a row, whose first one says how it is read; NaN: there is none in this round.
    pub fn sample(
        &mut self,
        name: impl Into<String>,
        scale: Scale,
        server: impl ToString,
        value: f64,
    ) {
        let samples = self.row(name, scale).samples.entry(server.to_string());
        samples
            .or_default()
            .push((!value.is_nan()).then_some(value));
    }

    fn row(&mut self, name: impl Into<String>, scale: Scale) -> &mut Row {
        let name = name.into();
        let known = self.rows.iter().position(|row| row.name == name);
        let at = known.unwrap_or_else(|| {
            self.rows.push(Row {
                name,
                unit: scale.unit.to_owned(),
                goal: scale.goal,
                better: scale.better,
                ..Row::default()
            });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    /// Adds a row of these servers without samples, and why it has none.
    pub fn unmeasured(
        &mut self,
        (name, scale): (&str, Scale),
        servers: &[Contestant],
        why: &BenchError,
    ) {
        let row = self.row(name, scale);
        for server in servers {
            row.samples.insert(server.name.clone(), Vec::new());
            row.medians.insert(server.name.clone(), None);
        }
        row.verdict = Verdict::NotMeasured;
        self.note(format!("{name}: unmeasured: {why}"));
    }

    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            eprintln!("   note: {note}");
            self.notes.push(note);
        }
    }

    /// Finds medians, ratios of one server to the best of each group of others, and by `judges`, one of the groups,
    /// whether goals are reached.
    ///
    /// Where the load generator had no time left rates say nothing of servers: then CPU per operation counts.
    pub fn judge(&mut self, subject: &str, judges: &str, group: impl Fn(&str) -> String) {
        let ratios = |row: &Row, to: &str| row.ratios_to(subject, |peer| group(peer) == to);
        let named = |name: &str| self.rows.iter().find(|row| row.name == name);
        let mut bound = Vec::new();
        if let Some(busy) = named(CLIENT_BUSY) {
            let servers = busy.samples.keys().cloned();
            bound.extend(servers.filter(|server| busy.median(server) > Some(CLIENT_BUSY_MAX)));
        }
        let cpu = named(CPU_PER_OP).filter(|_| !bound.is_empty());
        let cpu = cpu.map(|row| stats::median(&ratios(row, judges)));
        for row in &mut self.rows {
            let servers: Vec<&String> = row.samples.keys().collect();
            let median = |server: &&String| ((*server).clone(), row.median(server));
            row.medians = servers.iter().map(median).collect();
            let others = servers.iter().filter(|server| **server != subject);
            let ratio = |to: String| Some((to.clone(), stats::estimate(&ratios(row, &to))?));
            row.ratios = others.filter_map(|one| ratio(group(one))).collect();
            row.client_bound.clone_from(&bound);
            row.verdict = match (row.goal, cpu) {
                // What was unmeasured before stays so.
                (None, _) => row.verdict,
                (Some(goal @ (Goal::ValueAtMost(_) | Goal::ValueAtLeast(_))), _) => {
                    goal.verdict(row.median(subject))
                }
                (Some(Goal::RatioAtLeast(least)), Some(cpu)) => {
                    match Goal::RatioAtMost(1.0 / least).verdict(cpu) {
                        Verdict::Met => Verdict::MetByCpu,
                        Verdict::Missed => Verdict::MissedByCpu,
                        other => other,
                    }
                }
                (Some(goal), _) => goal.verdict(stats::median(&ratios(row, judges))),
            };
        }
    }
}

impl Row {
    pub fn median(&self, server: &str) -> Option<f64> {
        let samples = self.samples.get(server)?;
        stats::median(&samples.iter().copied().flatten().collect::<Vec<_>>())
    }

    /// Subject / best of the peers that `counts` holds of, round by round.
    fn ratios_to(&self, subject: &str, counts: impl Fn(&str) -> bool) -> Vec<f64> {
        let is_peer = |server: &str| server != subject && counts(server);
        let best = |round: usize| {
            let peers = self.samples.iter().filter(|(server, _)| is_peer(server));
            let values = peers.filter_map(|(_, samples)| *samples.get(round)?);
            values.reduce(match self.better {
                Better::Higher => f64::max,
                Better::Lower => f64::min,
            })
        };
        let own = self.samples.get(subject).into_iter().flatten().enumerate();
        own.filter_map(|(round, own)| Some((*own)? / best(round)?))
            .filter(|ratio| ratio.is_finite())
            .collect()
    }
}
