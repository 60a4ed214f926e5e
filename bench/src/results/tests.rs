use std::path::Path;

use serde_json::json;

use super::*;

fn environment(date: &str) -> Value {
    json!({ "date": date, "commit": "abc1234", "cpu": "A CPU", "cpus": [0, 1] })
}

fn compare(date: &str, median: f64) -> Value {
    json!({
        "environment": environment(date), "subject": "ephesus", "is_quick": false,
        "cases": [{
            "result": {
                "title": "GET",
                "measures": [{ "name": "rate", "samples": { "ephesus": [median, median + 2.0], "valkey": [5.0, 6.0] } }],
            },
            "summary": [{
                "name": "rate", "unit": "ops/s", "medians": { "ephesus": median, "valkey": 5.5 },
                "ratio": { "median": 2.0, "low": 1.5, "high": 2.5 },
            }],
            "client_bound": ["ephesus"],
        }],
    })
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
        compare("2026-02-01 10:00:00 UTC", 20.0),
        compare("2026-01-01 10:00:00 UTC", 10.0),
    ]);
    let row = "| rate, ops/s (client-bound) | 20.00 | 20.00 to 22.00 | valkey 5.50 | 2.00 (1.50 to 2.50) | \
               2026-02-01, abc1234, 2 CPUs A CPU |";
    assert!(page.contains(row), "{page}");
    assert!(!page.contains("2026-01-01"), "{page}");
}

#[test]
fn reports_of_all_tools_are_read_and_quick_ones_are_not() {
    let migrate = json!({
        "environment": environment("2026-01-01 10:00:00 UTC"), "contestants": ["ephesus", "valkey"], "is_quick": false,
        "cases": [{
            "name": "1 KiB",
            "rows": [{
                "name": "rate", "unit": "", "medians": { "ephesus": 900.0, "valkey": null },
                "ratios": { "valkey": { "median": 2.0, "low": 1.0, "high": 3.0 } },
            }],
            "samples": { "measures": [{ "name": "rate", "samples": { "ephesus": [null, 900.0] } }] },
        }],
    });
    let cluster = json!({
        "environment": environment("2026-01-01 10:00:00 UTC"), "is_quick": false,
        "cases": [{
            "title": "a change",
            "rows": [{ "name": "until known", "unit": "ms", "median": 11.0, "samples": [10.0, 12.0] }],
        }],
    });
    let mut quick = compare("2026-01-01 10:00:00 UTC", 1.0);
    quick["is_quick"] = json!(true);
    let page = render(vec![migrate, cluster, quick]);
    let run = "2026-01-01, abc1234, 2 CPUs A CPU";
    let moved = format!(
        "## migrate: 1 KiB\n\n\
         | quantity | Ephesus | spread | peers | ratio | run |\n\
         | --- | --- | --- | --- | --- | --- |\n\
         | rate | 900.0 | 900.0 to 900.0 | valkey  | valkey 2.00 (1.00 to 3.00) | {run} |\n"
    );
    assert!(page.contains(&moved), "{page}");
    let changed = format!("| until known, ms | 11.00 | 10.00 to 12.00 |  |  | {run} |");
    assert!(page.contains(&changed), "{page}");
    assert!(!page.contains("## compare"), "{page}");
}
