use std::time::Duration;

use super::super::round::{Course, End, Said};
use super::*;
use crate::measure::Verdict;
use crate::record::Row;

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

/// Rounds of moves.
struct Rounds {
    shape: Shape,
    case: Case,
    holds: Holds,
}

impl Rounds {
    fn new(writes: Option<u64>) -> Self {
        Rounds {
            shape: Shape::new(100, writes, true),
            case: Case::default(),
            holds: Holds::new(),
        }
    }

    fn add(&mut self, raw: Raw, outcomes: impl IntoIterator<Item = (Contestant, Outcome)>) {
        let mut last = Outcomes::new();
        for (who, outcome) in outcomes {
            let who = who.name();
            add(&mut self.case, &who, (self.shape, raw), &outcome);
            outcome.count_holds(self.holds.entry(who.clone()).or_default());
            last.insert(who, outcome);
        }
        conclude(&mut self.case, self.shape, &self.holds, &last);
    }

    fn row(&self, name: &str) -> &Row {
        let mut rows = self.case.rows.iter();
        rows.find(|row| row.name == name).expect(name)
    }
}

#[test]
fn rates_are_compared_with_valkey_in_memory_round_by_round() {
    let mut rounds = Rounds::new(None);
    for (own, other, durable) in [(0.5, 1.0, 5.0), (0.5, 1.5, 5.0), (0.5, 2.0, 5.0)] {
        let outcomes = [
            (Contestant::ValkeyAlways, moved(durable)),
            (Contestant::Ephesus, moved(own)),
            (Contestant::Valkey, moved(other)),
        ];
        rounds.add(USUAL, outcomes);
    }
    let rate = rounds.row("rate");
    assert_eq!(rate.medians["ephesus"], Some(400.0));
    assert_eq!(rate.ratios["valkey"].median, 3.0);
    assert_eq!(rate.ratios["valkey-always"].median, 10.0);
    assert_eq!(rate.verdict, Verdict::Met);
    assert_eq!(rounds.row("keys").medians["ephesus"], Some(4e6));
    let share = rounds.row(SHARE_OF_GOAL);
    assert_eq!(share.medians["ephesus"], Some(1.5));
    assert_eq!(share.verdict, Verdict::Met);
    let beyond = rounds.row("target growth beyond data");
    assert_eq!(beyond.medians["ephesus"], Some(30.0));
    assert_eq!(rounds.row("source memory growth").verdict, Verdict::Missed);
    let by_percentile = &rounds.case.plots[0].series[0];
    assert_eq!(by_percentile.name, "ephesus, 9 moves");
    assert_eq!(rounds.row("hold p99, all moves").verdict, Verdict::Missed);
    let most = rounds.row("hold maximum, all moves");
    assert!((most.medians["valkey"].expect("holds") - 30.0).abs() < 0.03);
}

#[test]
fn the_disk_is_the_goal_where_it_is_slower() {
    let mut rounds = Rounds::new(None);
    let slow = [100.0, 50.0, 4000.0];
    let outcomes = [
        (Contestant::Ephesus, moved(2.0)),
        (Contestant::Valkey, moved(1.0)),
    ];
    rounds.add(slow, outcomes);
    assert_eq!(rounds.row("rate").verdict, Verdict::Missed);
    assert_eq!(rounds.row(SHARE_OF_GOAL).verdict, Verdict::Met);
}

#[test]
fn a_move_that_failed_leaves_its_round_out() {
    let mut rounds = Rounds::new(Some(1));
    let mut failed = moved(1.0);
    failed.course.failure = Some("it did not converge".to_owned());
    let valkeys = [failed, moved(1.0)];
    for valkey in valkeys {
        let outcomes = [
            (Contestant::Ephesus, moved(0.5)),
            (Contestant::Valkey, valkey),
        ];
        rounds.add(USUAL, outcomes);
    }
    let rate = rounds.row("rate");
    assert_eq!(rate.medians["valkey"], Some(200.0));
    assert_eq!(rate.ratios["valkey"].median, 2.0);
    assert_eq!(rate.goal, None);
}

#[test]
fn without_ephesus_nothing_is_judged() {
    let mut rounds = Rounds::new(None);
    rounds.add(USUAL, [(Contestant::Valkey, moved(1.0))]);
    for row in &rounds.case.rows {
        let is_open = matches!(row.verdict, Verdict::NotMeasured | Verdict::NoGoal);
        assert!(is_open && row.ratios.is_empty(), "{}", row.name);
    }
}

#[test]
fn a_page_shows_over_time_how_fast_data_moved_and_how_long_it_was_held() {
    let mut failed = moved(1.0);
    failed.course.failure = Some("it did not converge".to_owned());
    let outcomes = [("ephesus", moved(1.0)), ("valkey", failed)];
    let outcomes = outcomes.map(|(who, outcome)| (who.to_owned(), outcome));
    let [rate, holds] = over_time(&outcomes.into());
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
