use crate::record::{Case, Record};
use crate::stats::{number, quantile};

/// A table; cells are plain text.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(super) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        let head = head.iter().map(|&name| name.to_owned()).collect();
        Table {
            head,
            rows: Vec::new(),
        }
    }

    /// Drops columns from a place on that say nothing.
    fn drop_empty(&mut self, from: usize) {
        for column in (from..self.head.len()).rev() {
            let is_empty = |row: &Vec<String>| matches!(&*row[column], "" | "-");
            if self.rows.iter().all(is_empty) {
                self.head.remove(column);
                for row in &mut self.rows {
                    row.remove(column);
                }
            }
        }
    }

    /// Whether a column has figures, which are aligned to the right.
    pub(super) fn is_figures(&self, column: &usize) -> bool {
        // An amount with its unit is a name.
        let is_figure = |cell: &str| {
            let begins = cell.starts_with(|first: char| first.is_ascii_digit());
            begins && !cell.ends_with(char::is_alphabetic)
        };
        let mut cells = self.rows.iter().map(|row| &*row[*column]);
        cells.all(|cell| cell == "-" || is_figure(cell))
    }

    pub(crate) fn markdown(&self) -> String {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| lines().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| width(column).unwrap_or(0).max(3))
            .collect();
        let mut text = String::new();
        for (at, line) in lines().enumerate() {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                text += &match self.is_figures(&column) {
                    true => format!("| {cell:>width$} "),
                    false => format!("| {cell:<width$} "),
                };
            }
            text += "|\n";
            if at == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let end = if self.is_figures(&column) { ':' } else { '-' };
                    text += &format!("| {}{end} ", "-".repeat(width - 1));
                }
                text += "|\n";
            }
        }
        text
    }
}

/// All quantities but those of curves: a table for each sequence of cases with the same servers, which are its columns.
pub(super) fn results(record: &Record) -> Vec<Table> {
    let cases = record.cases.iter();
    let cases = cases.filter(|case| !case.rows.is_empty() && !case.has_curves());
    let cases: Vec<_> = cases.map(|case| (case, servers(record, case))).collect();
    let same = cases.chunk_by(|(_, one), (_, next)| one == next);
    same.map(results_of).collect()
}

/// What the curves of a case are drawn from.
pub(super) fn of_curves(record: &Record, case: &Case) -> Option<Table> {
    let has_any = case.has_curves() && !case.rows.is_empty();
    has_any.then(|| results_of(&[(case, servers(record, case))]))
}

fn servers(record: &Record, case: &Case) -> Vec<String> {
    let mut names: Vec<&String> = record.servers.iter().map(|server| &server.name).collect();
    names.extend(case.rows.iter().flat_map(|row| row.medians.keys()));
    let is_there = |name: &&String| case.rows.iter().any(|row| row.medians.contains_key(*name));
    names.retain(is_there);
    keep_first(&mut names);
    names.into_iter().cloned().collect()
}

fn results_of(cases: &[(&Case, Vec<String>)]) -> Table {
    let servers = &cases[0].1;
    let rows = || (cases.iter()).flat_map(|(case, _)| case.rows.iter().map(move |row| (case, row)));
    let mut ratios: Vec<&String> = rows().flat_map(|(_, row)| row.ratios.keys()).collect();
    keep_first(&mut ratios);
    let mut table = Table::new(&["case", "measure", "unit"]);
    table.head.extend(servers.iter().cloned());
    let always = table.head.len();
    table.head.push("spread".to_owned());
    let heads = ratios.iter().map(|to| format!("/ {to} (95% interval)"));
    table.head.extend(heads);
    let last = ["goal", "verdict", "client-bound"];
    table.head.extend(last.map(str::to_owned));
    for (case, row) in rows() {
        let mut cells = [&case.name, &row.name, &row.unit]
            .map(String::clone)
            .to_vec();
        let median = |server: &String| row.medians.get(server).copied().flatten().map(number);
        cells.extend(servers.iter().map(|server| or_dash(median(server))));
        cells.push(match &**servers {
            [only] if row.samples[only].len() > 1 => spread(&row.samples[only]),
            _ => or_dash(None),
        });
        let ratio = |to| or_dash(row.ratios.get(to).map(ToString::to_string));
        cells.extend(ratios.iter().map(|&to: &&String| ratio(to)));
        cells.push(or_dash(row.goal.map(|goal| goal.to_string())));
        cells.push(row.verdict.to_string());
        cells.push(row.client_bound.join(", "));
        table.rows.push(cells);
    }
    table.drop_empty(always);
    table
}

/// The smallest and the largest sample, and how many there are.
pub(crate) fn spread(samples: &[Option<f64>]) -> String {
    let present: Vec<f64> = samples.iter().copied().flatten().collect();
    let ends = [0.0, 1.0].map(|q| quantile(&present, q).map(number));
    match ends {
        [Some(low), Some(high)] => format!("{low} to {high}, of {}", present.len()),
        _ => "-".to_owned(),
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Drops what has been there before.
pub(super) fn keep_first(names: &mut Vec<&String>) {
    let all = std::mem::take(names);
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
}

/// What runs of the load generator came to, and what went wrong in them.
pub(super) fn of_runs(case: &Case) -> Vec<Table> {
    let percentiles = "p50 us,p90 us,p99 us,p99.9 us,p99.99 us,max us";
    let head = format!("run,operation,count,per s,mean us,{percentiles}");
    let mut latency = Table::new(&head.split(',').collect::<Vec<_>>());
    let mut troubles = Table::new(&["run", "trouble", "count"]);
    for run in &case.runs {
        let mut operations = run.operations.clone();
        if operations.len() > 1 {
            operations.insert("all".to_owned(), run.all());
        }
        for (name, one) in operations {
            let per_s = one.count() as f64 / run.elapsed_s.max(f64::MIN_POSITIVE);
            let us = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0].map(|q| number(one.us(q)));
            let cells = [run.name(), name, one.count().to_string(), number(per_s)];
            let mean = std::iter::once(number(one.mean_us()));
            let cells = cells.into_iter().chain(mean).chain(us);
            latency.rows.push(cells.collect());
        }
        let counts = [("misses", run.misses), ("unanswered", run.unanswered)];
        let errors = run.errors.iter().map(|(why, count)| (why.as_str(), *count));
        for (what, count) in errors.chain(counts).filter(|(_, count)| *count > 0) {
            let cells = [run.name(), what.to_owned(), count.to_string()];
            troubles.rows.push(cells.to_vec());
        }
    }
    let tables = [latency, troubles].into_iter();
    tables.filter(|table| !table.rows.is_empty()).collect()
}
