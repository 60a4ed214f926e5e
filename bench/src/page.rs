//! A record as tables of Markdown and as one page of HTML; both have the same tables.

use askama::Template;

use crate::environment::Environment;
use crate::error::{BenchError, Result};
use crate::plot::{Axis, Kind, Plot, Series};
use crate::record::{Case, Latencies, Record, Row, Run};
use crate::stats::number;

use draw::Drawn;

mod draw;
#[cfg(test)]
mod tests;

/// A table; cells are plain text.
#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Html<'a> {
    record: &'a Record,
    results: Table,
    sections: Vec<Section<'a>>,
    machine: Vec<(&'static str, String)>,
}

/// A case as the page shows it.
struct Section<'a> {
    case: &'a Case,
    tiles: Vec<(&'static str, String)>,
    tables: Vec<Table>,
    plots: Vec<Drawn>,
}

/// The page: one file that asks for nothing else.
///
/// # Errors
/// When a template fails, which none does.
pub fn html(record: &Record) -> Result<String> {
    let section = |case| Section {
        case,
        tiles: tiles(case),
        tables: tables(case),
        plots: plots(case).iter().map(Drawn::new).collect(),
    };
    let html = Html {
        record,
        results: results(record),
        sections: record.cases.iter().map(section).collect(),
        machine: machine(&record.environment),
    };
    html.render()
        .map_err(|error| BenchError::failed("the page", error))
}

/// The tables, for a terminal.
pub fn markdown(record: &Record) -> String {
    let mut page = format!("# {}\n\n", record.title());
    if record.is_quick {
        page += "**--quick: this checks the tool; its figures mean nothing.**\n\n";
    }
    if let Some(why) = &record.truncated {
        page +=
            &format!("**Ended early: {why}. The figures are of what was done until then.**\n\n");
    }
    page += &results(record).markdown();
    for case in &record.cases {
        page += &format!("\n## {}\n\n{}\n", case.heading(), case.how);
        for table in tables(case) {
            page += &format!("\n{}", table.markdown());
        }
        for note in &case.notes {
            page += &format!("\n- note: {note}");
        }
    }
    page += "\n\n## Machine\n\n";
    for (name, value) in machine(&record.environment) {
        page += &format!("- {name}: {value}\n");
    }
    for server in &record.servers {
        page += &format!(
            "- {}: {}; `{}`\n",
            server.name, server.version, server.command_line
        );
    }
    page
}

impl Record {
    fn title(&self) -> String {
        let names: Vec<&str> = self.servers.iter().map(|server| &*server.name).collect();
        format!("ephesus-bench {} {}", self.tool, names.join(", "))
            .trim_end()
            .to_owned()
    }
}

impl Case {
    fn heading(&self) -> String {
        match self.title.is_empty() {
            true => self.name.clone(),
            false => format!("{}: {}", self.name, self.title),
        }
    }
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Table {
            head: head.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Whether a column has figures, which are aligned to the right.
    fn is_figures(&self, column: &usize) -> bool {
        let is_figure =
            |cell: &str| cell == "-" || cell.starts_with(|first: char| first.is_ascii_digit());
        self.rows.iter().all(|row| is_figure(&row[*column]))
    }

    fn markdown(&self) -> String {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| lines().map(|line| line[column].chars().count()).max();
        let columns: Vec<(usize, bool)> = (0..self.head.len())
            .map(|column| (width(column).unwrap_or(0).max(3), self.is_figures(&column)))
            .collect();
        let mut text = String::new();
        for (at, line) in lines().enumerate() {
            for (cell, &(width, is_right)) in line.iter().zip(&columns) {
                text += &match is_right {
                    true => format!("| {cell:>width$} "),
                    false => format!("| {cell:<width$} "),
                };
            }
            text += "|\n";
            if at == 0 {
                for &(width, is_right) in &columns {
                    let end = if is_right { ':' } else { '-' };
                    text += &format!("| {}{end} ", "-".repeat(width - 1));
                }
                text += "|\n";
            }
        }
        text
    }
}

/// Names of servers in the order of the record.
fn servers(record: &Record) -> Vec<&str> {
    let described = record.servers.iter().map(|server| &server.name);
    let rows = record.cases.iter().flat_map(|case| &case.rows);
    let mut names: Vec<&str> = Vec::new();
    for name in described.chain(rows.flat_map(|row| row.medians.keys())) {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    names
}

/// All quantities of all cases.
fn results(record: &Record) -> Table {
    let servers = servers(record);
    let rows = || {
        record
            .cases
            .iter()
            .flat_map(|case| case.rows.iter().map(move |row| (case, row)))
    };
    let mut table = Table::new(&[]);
    if rows().next().is_none() {
        return table;
    }
    let has = |is_so: fn(&Row) -> bool| rows().any(|(_, row)| is_so(row));
    let mut ratios: Vec<&String> = rows().flat_map(|(_, row)| row.ratios.keys()).collect();
    ratios.sort();
    ratios.dedup();
    let goals = has(|row| row.goal.is_some());
    let bound = has(|row| !row.client_bound.is_empty());
    let names = ["case", "measure", "unit"]
        .into_iter()
        .chain(servers.iter().copied());
    table.head = names.map(str::to_owned).collect();
    table
        .head
        .extend(ratios.iter().map(|to| format!("/ {to} (95% interval)")));
    table.head.extend(
        goals
            .then_some(["goal", "verdict"])
            .into_iter()
            .flatten()
            .map(str::to_owned),
    );
    table.head.extend(bound.then(|| "client-bound".to_owned()));
    for (case, row) in rows() {
        let mut cells = vec![case.name.clone(), row.name.clone(), row.unit.clone()];
        cells.extend(
            servers
                .iter()
                .map(|&server| shown(row.medians.get(server).copied().flatten())),
        );
        cells.extend(ratios.iter().map(|&to| match row.ratios.get(to) {
            Some(one) => format!(
                "{} ({} to {})",
                number(one.median),
                number(one.low),
                number(one.high)
            ),
            None => "-".to_owned(),
        }));
        if goals {
            let goal = row.goal.map_or("-".to_owned(), |goal| goal.to_string());
            cells.extend([goal, row.verdict.to_string()]);
        }
        cells.extend(bound.then(|| row.client_bound.join(", ")));
        table.rows.push(cells);
    }
    table
}

fn shown(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), number)
}

/// What a single run comes to at a glance.
fn tiles(case: &Case) -> Vec<(&'static str, String)> {
    let [run] = &*case.runs else {
        return Vec::new();
    };
    let all = run.all();
    let us = |q| draw::shown(all.us(q), "us");
    let failed: u64 = run.errors.values().sum();
    vec![
        ("operations per s", draw::shown(run.per_s(), "")),
        ("p50", us(0.5)),
        ("p99", us(0.99)),
        ("p99.9", us(0.999)),
        ("longest", us(1.0)),
        ("failed", failed.to_string()),
    ]
}

/// What runs of the load generator came to, and what went wrong in them.
fn tables(case: &Case) -> Vec<Table> {
    let mut latency = Table::new(&[
        "run",
        "operation",
        "count",
        "per s",
        "mean us",
        "p50 us",
        "p90 us",
        "p99 us",
        "p99.9 us",
        "p99.99 us",
        "max us",
    ]);
    let mut troubles = Table::new(&["run", "trouble", "count"]);
    for run in &case.runs {
        let all = (run.operations.len() > 1).then(|| ("all".to_owned(), run.all()));
        let each = run
            .operations
            .iter()
            .map(|(name, one)| (name.clone(), one.clone()));
        for (name, one) in each.chain(all) {
            let per_s = number(one.count() as f64 / run.elapsed_s.max(f64::MIN_POSITIVE));
            let us = [
                one.mean_us(),
                one.us(0.5),
                one.us(0.9),
                one.us(0.99),
                one.us(0.999),
                one.us(0.9999),
                one.max_us(),
            ];
            let cells = [run.name(), name, one.count().to_string(), per_s];
            latency
                .rows
                .push(cells.into_iter().chain(us.map(number)).collect());
        }
        let counts = [("misses", run.misses), ("unanswered", run.unanswered)];
        let errors = run.errors.iter().map(|(why, count)| (why.as_str(), *count));
        for (what, count) in errors.chain(counts).filter(|(_, count)| *count > 0) {
            troubles
                .rows
                .push(vec![run.name(), what.to_owned(), count.to_string()]);
        }
    }
    [latency, troubles]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect()
}

/// The case's own plots, and those that runs have.
fn plots(case: &Case) -> Vec<Plot> {
    let mut plots = case.plots.clone();
    let plot = |title: String, kind, x, y, series: Vec<Series>| Plot {
        title,
        kind,
        x,
        y,
        series,
        marks: Vec::new(),
    };
    let percentiles = |title, series| {
        plot(
            title,
            Kind::Percentiles,
            Axis::log("percentile", ""),
            Axis::log("latency", "us"),
            series,
        )
    };
    let curve =
        |name: String, of: &Latencies| Series::new(name, of.curve_us().map(|(q, us)| [q, us]));
    // One server: its operations in one plot. Several: their latencies of each operation side by side.
    if let [run] = &*case.runs {
        let series = run
            .operations
            .iter()
            .map(|(name, of)| curve(name.clone(), of));
        plots.push(percentiles(
            "Latency by percentile".to_owned(),
            series.collect(),
        ));
    } else {
        let mut operations: Vec<&String> = case
            .runs
            .iter()
            .flat_map(|run| run.operations.keys())
            .collect();
        operations.sort();
        operations.dedup();
        for name in operations {
            let of = |run: &Run| Some(curve(run.name(), run.operations.get(name)?));
            plots.push(percentiles(
                format!("Latency of {name} by percentile"),
                case.runs.iter().filter_map(of).collect(),
            ));
        }
    }
    let timed = || case.runs.iter().filter(|run| run.seconds.len() > 1);
    if timed().next().is_some() {
        let over_time = |title: &str, y: Axis, value: fn(&crate::record::Second) -> f64| {
            let series = timed().map(|run| {
                Series::new(
                    run.name(),
                    run.seconds.iter().map(|one| [one.at_s, value(one)]),
                )
            });
            let marks = timed().flat_map(|run| run.events.clone()).collect();
            let x = Axis::linear("time", "s");
            Plot {
                marks,
                ..plot(title.to_owned(), Kind::Time, x, y, series.collect())
            }
        };
        plots.push(over_time(
            "Throughput over time",
            Axis::linear("operations", "per s"),
            |one| one.done as f64,
        ));
        plots.push(over_time(
            "99th percentile over time",
            Axis::log("p99", "us"),
            |one| one.p99_us,
        ));
    }
    plots
}

fn machine(here: &Environment) -> Vec<(&'static str, String)> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let unknown = || "unknown".to_owned();
    let commit = here.commit.clone().unwrap_or_else(unknown);
    vec![
        (
            "date",
            format!("{}; load before: {}", here.date, here.load_average),
        ),
        (
            "program",
            format!("ephesus-bench {}, commit {commit}", here.version),
        ),
        ("flags", here.flags.join(" ")),
        (
            "CPU",
            format!(
                "{}; CPUs {:?}; governor {}",
                here.cpu,
                here.cpus,
                here.governor.as_deref().unwrap_or("none")
            ),
        ),
        ("kernel", here.kernel.clone()),
        (
            "memory",
            format!(
                "{:.1} GiB, {:.1} GiB available; transparent huge pages {}",
                gib(here.memory_bytes),
                gib(here.memory_available_bytes),
                here.huge_pages.clone().unwrap_or_else(unknown)
            ),
        ),
        ("disk", here.disk.clone().unwrap_or_else(unknown)),
        ("data", format!("{} ({})", here.data_dir, here.mount)),
    ]
}
