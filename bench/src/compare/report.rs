use std::fmt::Write;

use serde::Serialize;

use crate::affinity::Confinement;
use crate::disk::DiskReport;
use crate::environment::Environment;
use crate::error::Result;
use crate::report;
use crate::server::{Described, Product};
use crate::stats::number;

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
pub struct Report {
    environment: Environment,
    products: Vec<Product>,
    subject: Product,
    rounds: u32,
    long_rounds: u32,
    keys: u64,
    large_keys: u64,
    value_bytes: usize,
    is_quick: bool,
    server_cpu: usize,
    client_cpu: usize,
    confinement: Confinement,
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

impl Report {
    pub(super) fn new(settings: &Settings, environment: Environment, disk: DiskReport) -> Self {
        Report {
            environment,
            products: settings.products.clone(),
            subject: settings.subject(),
            rounds: settings.rounds,
            long_rounds: settings.long_rounds,
            keys: settings.keys,
            large_keys: settings.large_keys,
            value_bytes: settings.value_bytes,
            is_quick: settings.shrink > 1,
            server_cpu: settings.server_cpu,
            client_cpu: settings.client_cpu,
            confinement: settings.confine,
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
        writeln!(out, "# Comparison\n")?;
        if self.is_quick {
            writeln!(out, "{}\n", report::QUICK)?;
        }
        writeln!(
            out,
            "{} keys ({} where large), 16 B keys, {} B values; {} interleaved rounds ({} where \
             long). Medians; ratio = {} / best of the others, paired by round, with its 95% \
             bootstrap interval.\n",
            self.keys,
            self.large_keys,
            self.value_bytes,
            self.rounds,
            self.long_rounds,
            self.subject
        )?;
        self.write_table(out)?;
        self.write_cases(out)?;
        self.write_environment(out)?;
        self.write_servers(out)
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let has_older = self.products.contains(&Product::Older);
        write!(out, "| case | measure | unit |")?;
        for product in &self.products {
            write!(out, " {product} |")?;
        }
        writeln!(
            out,
            " ratio | 95% interval |{} goal | verdict | client-bound |",
            if has_older {
                " to older | 95% interval |"
            } else {
                ""
            }
        )?;
        let columns = self.products.len() + 8 + 2 * usize::from(has_older);
        writeln!(out, "|{}", " --- |".repeat(columns))?;
        for entry in &self.cases {
            for row in &entry.summary {
                write!(
                    out,
                    "| {} | {} | {} |",
                    entry.result.case, row.name, row.unit
                )?;
                for product in &self.products {
                    let median = row.medians.get(product).copied().flatten();
                    write!(out, " {} |", median.map_or("-".to_owned(), number))?;
                }
                let ratios = [Some(row.ratio), has_older.then_some(row.ratio_to_older)];
                for ratio in ratios.into_iter().flatten() {
                    match ratio {
                        Some(ratio) => write!(
                            out,
                            " {} | {} to {} |",
                            number(ratio.median),
                            number(ratio.low),
                            number(ratio.high)
                        )?,
                        None => write!(out, " - | - |")?,
                    }
                }
                let bound: Vec<String> =
                    entry.client_bound.iter().map(Product::to_string).collect();
                writeln!(
                    out,
                    " {} | {} | {} |",
                    row.goal.map_or("-".to_owned(), |goal| goal.to_string()),
                    row.verdict,
                    bound.join(", ")
                )?;
            }
        }
        writeln!(out)
    }

    fn write_cases(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "## Cases\n")?;
        for entry in &self.cases {
            let result = &entry.result;
            writeln!(
                out,
                "- **{}**: {}. {}",
                result.case, result.title, result.how
            )?;
            for note in &result.notes {
                writeln!(out, "  - note: {note}")?;
            }
        }
        writeln!(out)
    }

    fn write_environment(&self, out: &mut String) -> std::fmt::Result {
        let here = &self.environment;
        writeln!(out, "## Machine\n")?;
        writeln!(out, "- {}, load before: {}", here.date, here.load_average)?;
        writeln!(
            out,
            "- {}; CPUs {:?}; servers on CPU {}, clients on CPU {}, confined by {:?}, checked over \
             all threads after loading and after every run",
            here.cpu, here.cpus, self.server_cpu, self.client_cpu, self.confinement
        )?;
        writeln!(out, "- {}", here.kernel)?;
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        writeln!(
            out,
            "- memory {:.1} GiB, {:.1} GiB available; transparent huge pages {}; governor {}",
            gib(here.memory_bytes),
            gib(here.memory_available_bytes),
            here.huge_pages.as_deref().unwrap_or("unknown"),
            here.governor.as_deref().unwrap_or("none")
        )?;
        writeln!(out, "- data in {} ({})", here.data_dir, here.mount)?;
        let disks = [
            ("before", Some(&self.disk_before)),
            ("after", self.disk_after.as_ref()),
        ];
        for (when, disk) in disks {
            let Some(disk) = disk else { continue };
            writeln!(
                out,
                "- raw disk {when} ({}): 4 KiB O_DSYNC p50 {:.0} us, p99 {:.0} us; 4 KiB write + \
                 fdatasync p50 {:.0} us, p99 {:.0} us; sequential O_DSYNC {:.0} MB/s at 256 KiB, \
                 {:.0} MB/s at 1 MiB",
                if disk.direct { "O_DIRECT" } else { "buffered" },
                disk.dsync_4k_p50_us,
                disk.dsync_4k_p99_us,
                disk.write_fdatasync_4k_p50_us,
                disk.write_fdatasync_4k_p99_us,
                disk.sequential_256k_mb_per_s,
                disk.sequential_1m_mb_per_s
            )?;
        }
        writeln!(out)
    }

    fn write_servers(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "## Servers\n")?;
        for &product in &self.products {
            let servers = || {
                self.cases.iter().flat_map(|entry| {
                    let servers = entry
                        .servers
                        .iter()
                        .filter(|server| server.product == product);
                    servers.map(move |server| (entry.result.case, server))
                })
            };
            let Some((_, first)) = servers().next() else {
                continue;
            };
            writeln!(out, "- **{product}**: {}", first.version)?;
            let mut lines: Vec<(String, Vec<&'static str>)> = Vec::new();
            for (case, server) in servers() {
                let line = settings_line(server);
                match lines.iter_mut().find(|(known, _)| *known == line) {
                    Some((_, cases)) => cases.push(case.name()),
                    None => lines.push((line, vec![case.name()])),
                }
            }
            for (line, cases) in lines {
                writeln!(out, "  - {}: {line}", cases.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Command line without its port, and the settings that decide durability and speed.
fn settings_line(server: &Described) -> String {
    let mut line = String::from("`");
    let mut is_port = false;
    for word in server.command_line.split(' ') {
        let address = word.strip_prefix("127.0.0.1:").map(|_| "127.0.0.1:PORT");
        line += if is_port {
            "PORT"
        } else {
            address.unwrap_or(word)
        };
        line.push(' ');
        is_port = word == "--port";
    }
    line.truncate(line.trim_end().len());
    line.push('`');
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
