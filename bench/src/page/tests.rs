use super::*;
use crate::record::{Axis, Kind, Plot, Series};

const GOLDEN: &str = include_str!("../record/golden.json");

fn record() -> Record {
    Record::parse(GOLDEN).expect("record")
}

#[test]
fn tables_have_a_column_per_server_and_a_row_per_operation() {
    let text = markdown(&record()).expect("text");
    let words = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no {start:?} in {text}"));
        line.split('|')
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
            .join("|")
    };
    assert_eq!(
        words("| case"),
        "|case|measure|unit|ephesus|valkey|/ valkey (95% interval)|goal|verdict|client-bound|"
    );
    assert_eq!(
        words("| two  | rate"),
        "|two|rate|ops/s|300000|149500|2.04 (2.00 to 2.08)|>= 1.5x|met|ephesus|"
    );
    assert!(words("| ephesus | update").starts_with("|ephesus|update|20000|1667|"));
    assert_eq!(words("| ephesus | CLUSTERDOWN"), "|ephesus|CLUSTERDOWN|3|");
}

#[test]
fn text_of_servers_cannot_become_markup() {
    let page = html(&record()).expect("page");
    assert!(page.contains("a &#60;note&#62; &#38; more"), "{page}");
}

#[test]
fn what_curves_are_drawn_from_is_beneath_them() {
    let mut record = record();
    let two = record.cases.iter_mut().find(|case| case.name == "two");
    let axes = [Axis::linear("x", ""), Axis::linear("y", "")];
    let curve = Plot::new("", Kind::Curve, axes, Vec::new());
    two.expect("a case").plots.push(curve);
    let text = markdown(&record).expect("text");
    let at = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("no {what:?} in {text}"))
    };
    assert!(at("## two") < at("| two  | rate"), "{text}");
    assert!(html(&record).expect("page").contains("<summary>figures"));
}

#[test]
fn plots_of_nothing_are_drawn() {
    let plot = |kind, is_log: bool| {
        let axis = |label| {
            if is_log {
                Axis::log(label, "us")
            } else {
                Axis::linear(label, "us")
            }
        };
        let series = vec![
            Series::new("none", []),
            Series::new(
                "odd",
                [
                    [0.0, 0.0],
                    [f64::NAN, 1.0],
                    [f64::INFINITY, f64::INFINITY],
                    [-1.0, -1.0],
                    [1.0, 5.0],
                ],
            ),
        ];
        Plot::new("", kind, [axis("x"), axis("y")], series)
    };
    for kind in [Kind::Time, Kind::Percentiles, Kind::Curve, Kind::Bars] {
        for is_log in [false, true] {
            let mut record = record();
            record.cases[0].plots = vec![plot(kind, is_log)];
            let page = html(&record).expect("page");
            assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        }
    }
    let mut record = record();
    record.cases = vec![Case::default()];
    html(&record).expect("page");
    markdown(&record).expect("text");
}
