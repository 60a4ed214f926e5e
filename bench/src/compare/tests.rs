use std::collections::BTreeMap;

use crate::server::Product::{self, Ephesus, Older, Redis, Valkey};

use crate::measure::{Better, Goal, Measure, Measures, Verdict};

use super::measure::CPU_PER_OP;
use super::*;

fn measure(better: Better, goal: Goal, samples: &[(Product, &[f64])]) -> Measure {
    let samples: BTreeMap<_, _> = samples
        .iter()
        .map(|(product, values)| (*product, values.to_vec()))
        .collect();
    Measure {
        name: "x".to_owned(),
        unit: "op/s",
        better,
        goal: Some(goal),
        samples,
    }
}

fn verdict_of(measures: Vec<Measure>, client_busy: f64) -> Verdict {
    let mut result = CaseResult::new(Case::SetP16Always, String::new());
    result.measures = Measures(measures);
    result.record_client(Ephesus, client_busy);
    result.recorded(Ephesus).rows[0].verdict
}

#[test]
fn names_are_those_of_reports() {
    let names = "set-p16-everysec set-p16-always get-p16 get-p1 set-p1-always set-c1-always latency-images-p1 \
                 latency-images-p16 get-images memory restart-1-core restart-2-cores log-bytes disk-use";
    let all: Vec<String> = Case::all().iter().map(Case::name).collect();
    assert_eq!(all.join(" "), names);
    for case in Case::all() {
        assert_eq!(serde_json::to_value(case).expect("JSON"), case.name());
        assert!(!case.title().is_empty());
    }
}

#[test]
fn the_best_peer_of_each_round_is_the_divisor() {
    let rates = measure(
        Better::Higher,
        Goal::RatioAtLeast(2.0),
        &[
            (Redis, &[1.0, 2.0]),
            (Valkey, &[2.0, 1.0]),
            (Ephesus, &[4.0, 5.0]),
        ],
    );
    assert_eq!(rates.ratios(Ephesus), [2.0, 2.5]);
    let times = Measure {
        better: Better::Lower,
        ..rates
    };
    assert_eq!(times.ratios(Ephesus), [4.0, 5.0]);
    assert_eq!(times.ratios(Valkey), [2.0, 0.5]);
}

#[test]
fn an_older_build_is_compared_and_is_no_peer() {
    let rates = measure(
        Better::Higher,
        Goal::RatioAtLeast(2.0),
        &[
            (Redis, &[1.0, 2.0]),
            (Ephesus, &[4.0, 5.0]),
            (Older, &[8.0, 4.0]),
        ],
    );
    assert_eq!(rates.ratios(Ephesus), [4.0, 2.5]);
    let mut result = CaseResult::new(Case::GetP1, String::new());
    result.measures.0.push(rates);
    let row = &result.recorded(Ephesus).rows[0];
    assert_eq!(row.verdict, Verdict::Met);
    assert_eq!(row.ratios["older"].median, 0.875);
}

#[test]
fn missing_values_leave_their_round_out() {
    let nan = f64::NAN;
    let rates = measure(
        Better::Higher,
        Goal::RatioAtLeast(1.0),
        &[(Redis, &[nan, 2.0]), (Ephesus, &[4.0, 5.0])],
    );
    assert_eq!(rates.ratios(Ephesus), [2.5]);
    assert_eq!(rates.median(Redis), Some(2.0));
    let alone = measure(
        Better::Higher,
        Goal::RatioAtLeast(1.0),
        &[(Ephesus, &[1.0])],
    );
    assert_eq!(verdict_of(vec![alone], 0.0), Verdict::NotMeasured);
}

#[test]
fn goals_are_judged_by_the_median_ratio_or_value() {
    let samples: &[(Product, &[f64])] = &[(Redis, &[10.0; 3]), (Ephesus, &[19.0, 20.0, 99.0])];
    let at_least = |least| measure(Better::Higher, Goal::RatioAtLeast(least), samples);
    assert_eq!(verdict_of(vec![at_least(2.0)], 0.5), Verdict::Met);
    assert_eq!(verdict_of(vec![at_least(2.1)], 0.5), Verdict::Missed);
    let at_most = |most| measure(Better::Lower, Goal::ValueAtMost(most), samples);
    assert_eq!(verdict_of(vec![at_most(20.0)], 0.5), Verdict::Met);
    assert_eq!(verdict_of(vec![at_most(19.9)], 0.5), Verdict::Missed);
}

#[test]
fn a_client_bound_rate_is_judged_by_cpu_per_operation() {
    let rate = measure(
        Better::Higher,
        Goal::RatioAtLeast(2.0),
        &[(Redis, &[10.0]), (Ephesus, &[11.0])],
    );
    let cpu = |own: f64| {
        let samples: &[(Product, &[f64])] = &[(Redis, &[2.0]), (Ephesus, &[own])];
        Measure {
            name: CPU_PER_OP.to_owned(),
            ..measure(Better::Lower, Goal::RatioAtMost(1.0), samples)
        }
    };
    assert_eq!(
        verdict_of(vec![rate.clone(), cpu(0.9)], 0.95),
        Verdict::MetByCpu
    );
    assert_eq!(
        verdict_of(vec![rate.clone(), cpu(1.1)], 0.95),
        Verdict::MissedByCpu
    );
    assert_eq!(verdict_of(vec![rate, cpu(0.9)], 0.85), Verdict::Missed);
}

#[test]
fn only_growing_image_counters_count_as_images() {
    let before = "# Persistence\r\nimages_written:3\r\nwal_bytes_written:5\r\nimage_state:idle\r\n";
    let after = "# Persistence\r\nimages_written:3\r\nwal_bytes_written:9\r\nimage_state:run\r\n";
    assert!(!latency::images_advanced(before, after));
    assert!(latency::images_advanced(
        before,
        &after.replace("written:3", "written:4")
    ));
}
