use std::time::Duration;

use super::super::pair::Said;
use super::super::round::{Course, End};
use super::*;

const USUAL: Raw = [1000.0, 500.0, 4000.0];

fn moved(seconds: f64) -> Outcome {
    let end = End {
        cpu: Duration::from_secs(1),
        growth_bytes: 230_000_000,
    };
    Outcome {
        keys: 2_000_000,
        bytes: 200_000_000,
        course: Course {
            failure: None,
            copying: Duration::from_secs_f64(seconds),
            whole: Duration::from_secs_f64(seconds * 2.0),
            arrived: vec![[seconds, 0.0], [seconds * 2.0, 7.0]],
        },
        said: Said {
            holds: vec![[2.0, 1.0], [1.0, 2.0], [2.0, 30.0]],
            retries: 0,
            forked_bytes: 0,
        },
        ends: Some([end, end]),
        writers: None,
    }
}

fn case(writes: Option<u64>) -> Shape {
    Shape::new(100, writes, true)
}

fn row<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    rows.iter().find(|row| row.name == name).expect(name)
}

#[test]
fn rates_are_compared_with_valkey_in_memory_round_by_round() {
    let mut samples = Samples::new(case(None));
    for (own, other, durable) in [(0.5, 1.0, 5.0), (0.5, 1.5, 5.0), (0.5, 2.0, 5.0)] {
        let outcomes = [
            (Contestant::ValkeyAlways, moved(durable)),
            (Contestant::Ephesus, moved(own)),
            (Contestant::Valkey, moved(other)),
        ];
        samples.add(USUAL, &outcomes);
    }
    let rows = samples.rows();
    let rate = row(&rows, "rate");
    assert_eq!(rate.medians["ephesus"], Some(400.0));
    assert_eq!(rate.ratios["valkey"].median, 3.0);
    assert_eq!(rate.ratios["valkey-always"].median, 10.0);
    assert_eq!(rate.verdict, Verdict::Met);
    assert_eq!(row(&rows, "keys").medians["ephesus"], Some(4e6));
    let share = row(&rows, SHARE_OF_GOAL);
    assert_eq!(share.medians["ephesus"], Some(1.5));
    assert_eq!(share.verdict, Verdict::Met);
    let beyond = row(&rows, "target growth beyond data");
    assert_eq!(beyond.medians["ephesus"], Some(30.0));
    assert_eq!(row(&rows, "source memory growth").verdict, Verdict::Missed);
    assert_eq!(
        samples.holds_by_percentile().series[0].name,
        "ephesus, 9 moves"
    );
    assert_eq!(row(&rows, "hold p99, all moves").verdict, Verdict::Missed);
    let most = row(&rows, "hold maximum, all moves");
    assert_eq!(most.medians["valkey"], Some(30.0));
}

#[test]
fn the_disk_is_the_goal_where_it_is_slower() {
    let mut samples = Samples::new(case(None));
    let slow = [100.0, 50.0, 4000.0];
    let outcomes = [
        (Contestant::Ephesus, moved(2.0)),
        (Contestant::Valkey, moved(1.0)),
    ];
    samples.add(slow, &outcomes);
    let rows = samples.rows();
    assert_eq!(row(&rows, "rate").verdict, Verdict::Missed);
    assert_eq!(row(&rows, SHARE_OF_GOAL).verdict, Verdict::Met);
}

#[test]
fn a_move_that_failed_leaves_its_round_out() {
    let mut samples = Samples::new(case(Some(1)));
    let mut failed = moved(1.0);
    failed.course.failure = Some("it did not converge".to_owned());
    let valkeys = [failed, moved(1.0)];
    for valkey in valkeys {
        let outcomes = [
            (Contestant::Ephesus, moved(0.5)),
            (Contestant::Valkey, valkey),
        ];
        samples.add(USUAL, &outcomes);
    }
    let rows = samples.rows();
    let rate = row(&rows, "rate");
    assert_eq!(rate.medians["valkey"], Some(200.0));
    assert_eq!(rate.ratios["valkey"].median, 2.0);
    assert_eq!(rate.goal, None);
}

#[test]
fn without_ephesus_nothing_is_judged() {
    let mut samples = Samples::new(case(None));
    samples.add(USUAL, &[(Contestant::Valkey, moved(1.0))]);
    for row in samples.rows() {
        let is_open = matches!(row.verdict, Verdict::NotMeasured | Verdict::NoGoal);
        assert!(is_open && row.ratios.is_empty(), "{}", row.name);
    }
}

#[test]
fn a_page_shows_over_time_how_fast_data_moved_and_how_long_it_was_held() {
    let mut failed = moved(1.0);
    failed.course.failure = Some("it did not converge".to_owned());
    let outcomes = [
        (Contestant::Ephesus, moved(1.0)),
        (Contestant::Valkey, failed),
    ];
    let [rate, holds] = over_time(&outcomes);
    // All of it in the second half of two seconds.
    assert_eq!(rate.series[0].points, [[0.5, 0.0], [1.5, 200.0]]);
    assert!(rate.series[1].points.is_empty());
    let us = [[1.0, 2e3], [2.0, 3e4]];
    assert_eq!(holds.series[0].points, us);
    let marks = holds.marks.iter();
    let marks: Vec<_> = marks
        .map(|mark| (&*mark.kind, mark.at_s, mark.until_s))
        .collect();
    assert_eq!(marks[0], ("ephesus move", 0.0, Some(2.0)));
}
