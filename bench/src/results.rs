//! `docs/benchmarks.md`: the last result of each row in `bench/results/*.json`, which are records.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::error::{During, Result};
use crate::measure::Verdict;
use crate::page::{Table, spread};
use crate::record::{EPHESUS, Record, Row};
use crate::stats::number;

#[cfg(test)]
mod tests;

const HEAD: &str = include_str!("../templates/benchmarks.md");

const RESULTS: &str = "bench/results";
const PAGE: &str = "docs/benchmarks.md";

/// `ephesus-bench report`, in the directory of the sources.
pub fn write() -> Result<()> {
    fs::write(PAGE, page(Path::new(RESULTS))?).during(PAGE)
}

fn page(dir: &Path) -> Result<String> {
    let mut records = Vec::new();
    for entry in fs::read_dir(dir).during(dir.display())? {
        let path = entry.during(dir.display())?.path();
        if path.extension().is_some_and(|kind| kind == "json") {
            let text = fs::read_to_string(&path).during(path.display())?;
            records.push(Record::parse(&text).during(path.display())?);
        }
    }
    Ok(render(records))
}

/// The page for these records; those of runs with `--quick` or that ended early do not count.
fn render(mut records: Vec<Record>) -> String {
    records.retain(|record| !record.is_quick && record.truncated.is_none());
    records.sort_by_key(|record| record.environment.date.clone());
    // By heading and quantity, of which the last one counts.
    let mut sections = BTreeMap::<String, BTreeMap<String, Vec<String>>>::new();
    for record in &records {
        for case in &record.cases {
            let titles = [&case.title, &case.name];
            let title = titles[usize::from(case.title.is_empty())];
            for row in &case.rows {
                let section = sections.entry(format!("{}: {title}", record.tool));
                let cells = cells(record, row);
                section.or_default().insert(cells[0].clone(), cells);
            }
        }
    }
    let mut page = HEAD.to_owned();
    if sections.is_empty() {
        page += "\nThere is no result yet.\n";
    }
    for (heading, rows) in sections {
        let head = ["quantity", "Ephesus", "spread", "peers", "ratio", "run"];
        let mut table = Table::new(&head);
        table.rows = rows.into_values().collect();
        page += &format!("\n## {heading}\n\n{}", table.markdown());
    }
    page
}

fn cells(record: &Record, row: &Row) -> Vec<String> {
    let mut name = row.name.clone();
    if !row.unit.is_empty() {
        name += &format!(", {}", row.unit);
    }
    if !row.client_bound.is_empty() {
        name += " (client-bound)";
    }
    let missing = match row.verdict {
        Verdict::NotMeasured => row.verdict.to_string(),
        _ => String::new(),
    };
    let shown = |value: Option<f64>| value.map_or(missing.clone(), number);
    let spread = row.samples.get(EPHESUS).map(|of| spread(of));
    let peers = row.medians.iter().filter(|(server, _)| *server != EPHESUS);
    let peers = peers.map(|(server, median)| format!("{} {}", server.trim(), shown(*median)));
    let ratios = row.ratios.iter().map(|(to, one)| format!("{to} {one}"));
    let here = &record.environment;
    let commit = here.commit.as_deref().unwrap_or("unknown commit");
    let date = here.date.split(' ').next().unwrap_or_default();
    vec![
        name,
        shown(row.medians.get(EPHESUS).copied().flatten()),
        spread.unwrap_or_default(),
        peers.collect::<Vec<_>>().join("; "),
        ratios.collect::<Vec<_>>().join("; "),
        format!("{date}, {commit}, {} CPUs {}", here.cpus.len(), here.cpu),
    ]
}
