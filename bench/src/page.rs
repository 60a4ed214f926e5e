//! A record as tables of Markdown and as one page of HTML; both have the same tables.

use askama::Template;

use crate::environment::Environment;
use crate::error::{During, Result};
use crate::record::{Case, Plot, Record};

use draw::{Drawn, shown};
pub(crate) use table::{Table, spread};

mod draw;
mod plots;
mod table;
#[cfg(test)]
mod tests;

#[derive(Template)]
#[template(path = "page.html")]
struct Html<'a> {
    page: Page<'a>,
}

#[derive(Template)]
#[template(path = "page.md")]
struct Markdown<'a> {
    page: Page<'a>,
}

struct Page<'a> {
    record: &'a Record,
    results: Vec<Table>,
    sections: Vec<Section<'a>>,
    machine: Vec<(&'static str, String)>,
}

/// A case as the page shows it; each group of plots has a grid of its own.
struct Section<'a> {
    case: &'a Case,
    tiles: Vec<(&'static str, String)>,
    /// What its curves are drawn from.
    figures: Option<Table>,
    tables: Vec<Table>,
    groups: Vec<Vec<Plot>>,
}

impl Html<'_> {
    fn drawn<'a>(&self, plots: &'a [Plot]) -> Vec<Drawn<'a>> {
        plots.iter().map(Drawn::new).collect()
    }
}

/// The page: one file that asks for nothing else.
pub fn html(record: &Record) -> Result<String> {
    let page = Page::of(record);
    rendered(&Html { page })
}

/// The tables, for a terminal.
pub fn markdown(record: &Record) -> Result<String> {
    let page = Page::of(record);
    rendered(&Markdown { page })
}

fn rendered(template: &impl Template) -> Result<String> {
    template.render().during("the page")
}

impl<'a> Page<'a> {
    fn of(record: &'a Record) -> Self {
        let section = |case| Section {
            case,
            tiles: tiles(case),
            figures: table::of_curves(record, case),
            tables: table::of_runs(case),
            groups: plots::groups(case),
        };
        Page {
            record,
            results: table::results(record),
            sections: record.cases.iter().map(section).collect(),
            machine: machine(&record.environment),
        }
    }
}

impl Record {
    fn title(&self) -> String {
        let mut names: Vec<&String> = self.servers.iter().map(|server| &server.name).collect();
        table::keep_first(&mut names);
        let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        match names.is_empty() {
            true => format!("ephesus-bench {}", self.tool),
            false => format!("ephesus-bench {}: {}", self.tool, names.join(", ")),
        }
    }
}

/// What a single run comes to at a glance.
fn tiles(case: &Case) -> Vec<(&'static str, String)> {
    let [run] = &*case.runs else {
        return Vec::new();
    };
    let all = run.all();
    let us = |q| shown(all.us(q), "us");
    let failed: u64 = run.errors.values().sum();
    vec![
        ("operations per s", shown(run.per_s(), "")),
        ("p50", us(0.5)),
        ("p99", us(0.99)),
        ("p99.9", us(0.999)),
        ("longest", us(1.0)),
        ("failed", failed.to_string()),
    ]
}

fn machine(here: &Environment) -> Vec<(&'static str, String)> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let (commit, governor) = (known(&here.commit), known(&here.governor));
    let pages = known(&here.huge_pages);
    let (all, free) = (gib(here.memory_bytes), gib(here.memory_available_bytes));
    let memory = format!("{all:.1} GiB, {free:.1} GiB available");
    let kernel = here.kernel.split(" (").next();
    let (date, load) = (&here.date, &here.load_average);
    let (cpu, cpus) = (&here.cpu, &here.cpus);
    vec![
        ("program", format!("{}, commit {commit}", here.version)),
        ("flags", here.flags.join(" ")),
        ("date", format!("{date}; load before: {load}")),
        ("CPU", format!("{cpu}; CPUs {cpus:?}; governor {governor}")),
        ("kernel", kernel.unwrap_or_default().to_owned()),
        (
            "memory",
            format!("{memory}; transparent huge pages {pages}"),
        ),
        ("disk", known(&here.disk)),
        ("data", format!("{} ({})", here.data_dir, here.mount)),
    ]
}
