use serde::Serialize;

use crate::environment::Environment;
use crate::report::{Page, cells, interval, or_dash, shown, texts};
use crate::server::Described;

use super::contestant::Contestant;
use super::measures::{Row, Samples};
use super::settings::Settings;

/// A whole run: machine, servers, samples and what they come to.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    environment: Environment,
    #[serde(flatten)]
    settings: &'a Settings,
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

impl<'a> Report<'a> {
    pub(super) fn new(settings: &'a Settings, environment: Environment) -> Self {
        Report {
            environment,
            settings,
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

    /// Tables and settings as Markdown.
    pub fn markdown(&self) -> String {
        let mut page = Page::new("Migration", self.settings.is_quick);
        page.line(format_args!(
            "Half of the source's slots move; 16 B keys; {} interleaved rounds with new servers. \
             Rates are of keys and values, from the first copying to the last commit. Medians; \
             ratio = ephesus / the other, paired by round, with its 95% bootstrap interval.\n",
            self.settings.rounds
        ));
        self.add_table(&mut page);
        page.section("Cases");
        for Entry {
            name,
            how,
            samples,
            notes,
            ..
        } in &self.cases
        {
            page.line(format_args!("- **{name}**: {how}"));
            let [disk, one_by_one, loopback] = samples.raw().map(shown);
            page.line(format_args!(
                "  - raw disk {disk} MB/s, write by write {one_by_one} MB/s, raw loopback TCP {loopback} MB/s"
            ));
            for contestant in &self.settings.contestants {
                let holds = samples.holds(*contestant);
                page.line(format_args!(
                    "  - hold times of {holds} moves of {contestant}"
                ));
            }
            for note in notes {
                page.line(format_args!("  - note: {note}"));
            }
        }
        let [source, target] = self.settings.cpus;
        let use_of = format!(
            "; sources on CPU {source}, targets on CPU {target}, the coordinator and clients anywhere"
        );
        page.machine(&self.environment, &use_of);
        page.section("Servers");
        for (contestant, servers) in &self.servers {
            let version = servers.first().map_or("", |server| server.version.as_str());
            page.line(format_args!("- **{contestant}**: {version}"));
            if *contestant == Contestant::Ephesus {
                page.line(format_args!("  - {} partitions", self.settings.partitions));
            }
            for server in servers {
                page.line(format_args!("  - `{}`", server.command_line));
            }
        }
        page.0
    }

    fn add_table(&self, page: &mut Page) {
        let is_compared = self.settings.contestants.contains(&Contestant::Ephesus);
        let is_other = |one: &&Contestant| is_compared && **one != Contestant::Ephesus;
        let all = || self.settings.contestants.iter();
        page.head(&cells([
            texts([&"values", &"measure", &"unit"]),
            all().map(Contestant::to_string).collect(),
            all()
                .filter(is_other)
                .map(|other| format!("/ {other}"))
                .collect(),
            texts([&"goal", &"verdict"]),
        ]));
        let median = |row: &Row, one| shown(row.medians.get(one).copied().flatten());
        let ratio = |row: &Row, other| {
            let [median, range] = interval(row.ratios.get(other).copied());
            if range == "-" {
                range
            } else {
                format!("{median} ({range})")
            }
        };
        for entry in &self.cases {
            for row in &entry.rows {
                page.row(&cells([
                    texts([&entry.name, &row.name, &row.unit]),
                    all().map(|one| median(row, one)).collect(),
                    all()
                        .filter(is_other)
                        .map(|other| ratio(row, other))
                        .collect(),
                    texts([&or_dash(row.goal), &row.verdict]),
                ]));
            }
        }
    }
}
