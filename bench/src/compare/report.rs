use serde::Serialize;

use crate::disk::DiskReport;
use crate::environment::Environment;
use crate::report::{Page, cells, interval, or_dash, shown, texts};
use crate::server::{Described, Product};

use super::measure::{CaseResult, Summary};
use super::settings::Settings;

/// Settings of peers that decide durability and speed, shown in the text; all are in the JSON.
const SHOWN_SETTINGS: &[&str] = &[
    "appendonly",
    "appendfsync",
    "save",
    "no-appendfsync-on-rewrite",
    "auto-aof-rewrite-percentage",
    "aof-use-rdb-preamble",
    "rdbcompression",
    "io-threads",
    "latency-tracking",
    "maxmemory",
    "hz",
];

/// A whole comparison: machine, settings, samples and what they come to.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    environment: Environment,
    subject: Product,
    #[serde(flatten)]
    settings: &'a Settings,
    disk_before: DiskReport,
    disk_after: Option<DiskReport>,
    cases: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    result: CaseResult,
    summary: Vec<Summary>,
    client_bound: Vec<Product>,
    servers: Vec<Described>,
}

impl<'a> Report<'a> {
    pub(super) fn new(settings: &'a Settings, environment: Environment, disk: DiskReport) -> Self {
        Report {
            environment,
            subject: settings.subject(),
            settings,
            disk_before: disk,
            disk_after: None,
            cases: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, result: CaseResult, servers: Vec<Described>) {
        let summary = result.summarize(self.subject);
        let client_bound = result.client_bound();
        self.cases.push(Entry {
            result,
            summary,
            client_bound,
            servers,
        });
    }

    pub(super) fn finish(&mut self, disk: DiskReport) {
        self.disk_after = Some(disk);
    }

    /// Tables and settings as Markdown.
    pub fn markdown(&self) -> String {
        let mut page = Page::new("Comparison", self.settings.is_quick);
        page.line(format_args!(
            "{} keys ({} where large), 16 B keys, {} B values; {} interleaved rounds ({} where \
             long). Medians; ratio = {} / best of the others, paired by round, with its 95% \
             bootstrap interval.\n",
            self.settings.keys,
            self.settings.large_keys,
            self.settings.value_bytes,
            self.settings.rounds,
            self.settings.long_rounds,
            self.subject
        ));
        self.add_table(&mut page);
        page.section("Cases");
        for entry in &self.cases {
            let CaseResult {
                case,
                title,
                how,
                notes,
                ..
            } = &entry.result;
            page.line(format_args!("- **{case}**: {title}. {how}"));
            for note in notes {
                page.line(format_args!("  - note: {note}"));
            }
        }
        let use_of = format!(
            "; servers on CPU {}, clients on CPU {}, confined by {:?}, checked over all threads after \
             loading and after every run",
            self.settings.server_cpu, self.settings.client_cpu, self.settings.confinement
        );
        page.machine(&self.environment, &use_of);
        let disks = [
            ("before", Some(&self.disk_before)),
            ("after", self.disk_after.as_ref()),
        ];
        for (when, disk) in disks {
            let Some(disk) = disk else { continue };
            page.line(format_args!("- raw disk {when} {disk}"));
        }
        self.add_servers(&mut page);
        page.0
    }

    fn add_table(&self, page: &mut Page) {
        let products = || {
            self.settings
                .products
                .iter()
                .map(Product::to_string)
                .collect()
        };
        let has_older = self.settings.products.contains(&Product::Older);
        let ratios: &[&str] = if has_older {
            &["ratio", "95% interval", "to older", "95% interval"]
        } else {
            &["ratio", "95% interval"]
        };
        page.head(&cells([
            texts([&"case", &"measure", &"unit"]),
            products(),
            ratios.iter().map(|&name| name.to_owned()).collect(),
            texts([&"goal", &"verdict", &"client-bound"]),
        ]));
        for entry in &self.cases {
            let bound: Vec<String> = entry.client_bound.iter().map(Product::to_string).collect();
            for row in &entry.summary {
                let medians = self
                    .settings
                    .products
                    .iter()
                    .map(|product| row.medians.get(product));
                let ratios = [Some(row.ratio), has_older.then_some(row.ratio_to_older)];
                page.row(&cells([
                    texts([&entry.result.case, &row.name, &row.unit]),
                    medians
                        .map(|median| shown(median.copied().flatten()))
                        .collect(),
                    ratios.into_iter().flatten().flat_map(interval).collect(),
                    texts([&or_dash(row.goal), &row.verdict, &bound.join(", ")]),
                ]));
            }
        }
    }

    fn add_servers(&self, page: &mut Page) {
        page.section("Servers");
        for &product in &self.settings.products {
            let mut version = None;
            let mut lines: Vec<(String, Vec<String>)> = Vec::new();
            for entry in &self.cases {
                let servers = entry.servers.iter();
                for server in servers.filter(|server| server.product == product) {
                    version.get_or_insert(&server.version);
                    let (line, case) = (settings_line(server), entry.result.case.to_string());
                    match lines.iter_mut().find(|(known, _)| *known == line) {
                        Some((_, cases)) => cases.push(case),
                        None => lines.push((line, vec![case])),
                    }
                }
            }
            let Some(version) = version else { continue };
            page.line(format_args!("- **{product}**: {version}"));
            for (line, cases) in lines {
                page.line(format_args!("  - {}: {line}", cases.join(", ")));
            }
        }
    }
}

/// Command line without its port, and the settings that decide durability and speed.
fn settings_line(server: &Described) -> String {
    let mut words: Vec<&str> = server.command_line.split(' ').collect();
    for at in 0..words.len() {
        if words[at].starts_with("127.0.0.1:") {
            words[at] = "127.0.0.1:PORT";
        } else if at > 0 && words[at - 1] == "--port" {
            words[at] = "PORT";
        }
    }
    let mut line = format!("`{}`", words.join(" "));
    let is_shown = |name: &String| SHOWN_SETTINGS.contains(&name.as_str());
    let shown = server
        .configuration
        .iter()
        .filter(|(name, _)| is_shown(name));
    let shown: Vec<String> = shown
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    if !shown.is_empty() {
        line += &format!("; CONFIG GET: {}", shown.join(" "));
    }
    line
}
