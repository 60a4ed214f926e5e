use std::path::Path;

use super::*;

const GOLDEN: &str = include_str!("../record/golden.json");

/// A record with a median of its own.
fn record(date: &str, median: f64) -> Record {
    let mut record = Record::parse(GOLDEN).expect("record");
    record.environment.date = date.to_owned();
    let rate = &mut record.cases[1].rows[0];
    rate.medians.insert(EPHESUS.to_owned(), Some(median));
    record
}

#[test]
fn the_page_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = page(&root.join("results")).expect("reports");
    let found = fs::read_to_string(root.join("../docs/benchmarks.md")).unwrap_or_default();
    assert!(
        found == page,
        "docs/benchmarks.md is not what bench/results has: make benchmarks"
    );
}

#[test]
fn the_last_result_of_a_row_counts() {
    let page = render(vec![
        record("2026-02-01 10:00:00 UTC", 20.0),
        record("2026-01-01 10:00:00 UTC", 10.0),
    ]);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = page.lines().map(words).collect();
    let row = "| rate, ops/s (client-bound) | 20.00 | 290000 to 310000, of 3 | valkey 149500 | \
               valkey 2.04 (2.00 to 2.08) | 2026-02-01, abc1234, 2 CPUs A CPU |";
    assert!(lines.iter().any(|line| line == row), "{page}");
    assert!(page.contains("## run: side by side\n"), "{page}");
    assert!(!page.contains("2026-01-01"), "{page}");
}

#[test]
fn quick_runs_and_those_that_ended_early_do_not_count() {
    let quick = Record {
        is_quick: true,
        ..record("2026-01-01 10:00:00 UTC", 1.0)
    };
    let short = Record {
        truncated: Some("interrupted".to_owned()),
        ..record("2026-01-01 10:00:00 UTC", 1.0)
    };
    let page = render(vec![quick, short]);
    assert!(page.ends_with("There is no result yet.\n"), "{page}");
}
