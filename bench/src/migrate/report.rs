use std::fmt::Write;

use serde::Serialize;

use crate::environment::Environment;
use crate::error::Result;
use crate::report;
use crate::server::{Described, Product};
use crate::stats::number;

use super::contestant::Contestant;
use super::measures::{Row, Samples};
use super::settings::Settings;

/// A whole run: machine, servers, samples and what they come to.
#[derive(Debug, Serialize)]
pub struct Report {
    environment: Environment,
    contestants: Vec<Contestant>,
    rounds: u32,
    partitions: u16,
    cpus: [usize; 2],
    is_quick: bool,
    cases: Vec<Entry>,
    servers: Vec<(Contestant, Vec<Described>)>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    how: String,
    rows: Vec<Row>,
    samples: Samples,
    notes: Vec<String>,
}

impl Report {
    pub(super) fn new(settings: &Settings, environment: Environment) -> Self {
        Report {
            environment,
            contestants: settings.contestants.clone(),
            rounds: settings.rounds,
            partitions: settings.partitions,
            cpus: settings.cpus,
            is_quick: settings.is_quick,
            cases: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Replaces what there is of a case.
    pub(super) fn put(&mut self, name: &str, how: &str, samples: &Samples, notes: &[String]) {
        self.cases.retain(|entry| entry.name != name);
        self.cases.push(Entry {
            name: name.to_owned(),
            how: how.to_owned(),
            rows: samples.rows(),
            samples: samples.clone(),
            notes: notes.to_vec(),
        });
    }

    /// Notes how a contestant's servers were started, once.
    pub(super) fn describe(&mut self, contestant: Contestant, servers: Vec<Described>) {
        let is_known = self.servers.iter().any(|(known, _)| *known == contestant);
        if !is_known && !servers.is_empty() {
            self.servers.push((contestant, servers));
        }
    }

    /// Everything, every sample included.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn json(&self) -> Result<String> {
        report::json(self)
    }

    /// Tables and settings as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = self.write_markdown(&mut text);
        text
    }

    fn write_markdown(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "# Migration\n")?;
        if self.is_quick {
            writeln!(out, "{}\n", report::QUICK)?;
        }
        writeln!(
            out,
            "Half of the source's slots move; 16 B keys; {} interleaved rounds with new servers. \
             Rates are of keys and values, from the first copying to the last commit. Medians; \
             ratio = ephesus / the other, paired by round, with its 95% bootstrap interval.\n",
            self.rounds
        )?;
        self.write_table(out)?;
        self.write_cases(out)?;
        self.write_environment(out)
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let is_compared = self.contestants.contains(&Contestant::Ephesus);
        let others: Vec<Contestant> = self
            .contestants
            .iter()
            .copied()
            .filter(|one| is_compared && *one != Contestant::Ephesus)
            .collect();
        write!(out, "| values | measure | unit |")?;
        for contestant in &self.contestants {
            write!(out, " {contestant} |")?;
        }
        for other in &others {
            write!(out, " / {other} |")?;
        }
        writeln!(out, " goal | verdict |")?;
        let columns = self.contestants.len() + others.len() + 5;
        writeln!(out, "|{}", " --- |".repeat(columns))?;
        for entry in &self.cases {
            for row in &entry.rows {
                write!(out, "| {} | {} | {} |", entry.name, row.name, row.unit)?;
                for contestant in &self.contestants {
                    let median = row.medians.get(contestant).copied().flatten();
                    write!(out, " {} |", median.map_or("-".to_owned(), number))?;
                }
                for other in &others {
                    match row.ratios.get(other) {
                        None => write!(out, " - |")?,
                        Some(ratio) => write!(
                            out,
                            " {} ({} to {}) |",
                            number(ratio.median),
                            number(ratio.low),
                            number(ratio.high)
                        )?,
                    }
                }
                let goal = row.goal.map_or("-".to_owned(), |goal| goal.to_string());
                writeln!(out, " {goal} | {} |", row.verdict)?;
            }
        }
        writeln!(out)
    }

    fn write_cases(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "## Cases\n")?;
        for entry in &self.cases {
            writeln!(out, "- **{}**: {}", entry.name, entry.how)?;
            let shown = |value: Option<f64>| value.map_or("-".to_owned(), number);
            let [disk, one_by_one, loopback] = entry.samples.raw();
            writeln!(
                out,
                "  - raw disk {} MB/s, write by write {} MB/s, raw loopback TCP {} MB/s",
                shown(disk),
                shown(one_by_one),
                shown(loopback)
            )?;
            for contestant in &self.contestants {
                let holds = entry.samples.holds(*contestant);
                writeln!(out, "  - hold times of {holds} moves of {contestant}")?;
            }
            for note in &entry.notes {
                writeln!(out, "  - note: {note}")?;
            }
        }
        writeln!(out)
    }

    fn write_environment(&self, out: &mut String) -> std::fmt::Result {
        let here = &self.environment;
        writeln!(out, "## Machine\n")?;
        writeln!(out, "- {}, load before: {}", here.date, here.load_average)?;
        let [source, target] = self.cpus;
        writeln!(
            out,
            "- {}; CPUs {:?}; sources on CPU {source}, targets on CPU {target}, the coordinator and \
             clients anywhere",
            here.cpu, here.cpus
        )?;
        writeln!(out, "- {}", here.kernel)?;
        writeln!(out, "- data in {} ({})", here.data_dir, here.mount)?;
        writeln!(out, "\n## Servers\n")?;
        for (contestant, servers) in &self.servers {
            let version = servers.first().map_or("", |server| server.version.as_str());
            writeln!(out, "- **{contestant}**: {version}")?;
            if servers
                .iter()
                .any(|server| server.product == Product::Ephesus)
            {
                writeln!(out, "  - {} partitions", self.partitions)?;
            }
            for server in servers {
                writeln!(out, "  - `{}`", server.command_line)?;
            }
        }
        Ok(())
    }
}
