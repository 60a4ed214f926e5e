use std::time::Duration;

use super::super::pair::Said;
use super::super::round::End;
use super::*;

const RAW: Raw = Raw {
    disk_mb_per_s: 1000.0,
    disk_one_by_one_mb_per_s: 500.0,
    loopback_mb_per_s: 4000.0,
};

fn moved(seconds: f64) -> Outcome {
    let end = End {
        cpu: Duration::from_secs(1),
        growth_bytes: 230_000_000,
    };
    Outcome {
        failure: None,
        keys: 2_000_000,
        bytes: 200_000_000,
        copying: Duration::from_secs_f64(seconds),
        whole: Duration::from_secs_f64(seconds * 2.0),
        said: Said {
            holds_ms: vec![1.0, 2.0, 30.0],
            retries: 0,
            forked_bytes: 0,
        },
        ends: Some([end, end]),
        writers: None,
    }
}

fn case(writes: Writes) -> Case {
    Case::new(100, 1_000_000, None, writes)
}

fn row<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    rows.iter().find(|row| row.name == name).expect(name)
}

#[test]
fn rates_are_compared_with_valkey_in_memory_round_by_round() {
    let mut samples = Samples::new(case(Writes::None));
    for (own, other, durable) in [(0.5, 1.0, 5.0), (0.5, 1.5, 5.0), (0.5, 2.0, 5.0)] {
        let outcomes = [
            (Contestant::ValkeyAlways, moved(durable)),
            (Contestant::Ephesus, moved(own)),
            (Contestant::Valkey, moved(other)),
        ];
        samples.add(RAW, &outcomes);
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
    assert_eq!(samples.holds().series[0].name, "ephesus, 9 moves");
    assert_eq!(row(&rows, "hold p99, all moves").verdict, Verdict::Missed);
    let most = row(&rows, "hold maximum, all moves");
    assert_eq!(most.medians["valkey"], Some(30.0));
}

#[test]
fn the_disk_is_the_goal_where_it_is_slower() {
    let mut samples = Samples::new(case(Writes::None));
    let slow = Raw {
        disk_mb_per_s: 100.0,
        disk_one_by_one_mb_per_s: 50.0,
        ..RAW
    };
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
    let mut samples = Samples::new(case(Writes::PerSecond(1)));
    let failed = Outcome {
        failure: Some("it did not converge".to_owned()),
        ..moved(1.0)
    };
    let valkeys = [failed, moved(1.0)];
    for valkey in valkeys {
        let outcomes = [
            (Contestant::Ephesus, moved(0.5)),
            (Contestant::Valkey, valkey),
        ];
        samples.add(RAW, &outcomes);
    }
    let rows = samples.rows();
    let rate = row(&rows, "rate");
    assert_eq!(rate.medians["valkey"], Some(200.0));
    assert_eq!(rate.ratios["valkey"].median, 2.0);
    assert_eq!(rate.goal, None);
}

#[test]
fn without_ephesus_nothing_is_judged() {
    let mut samples = Samples::new(case(Writes::None));
    samples.add(RAW, &[(Contestant::Valkey, moved(1.0))]);
    for row in samples.rows() {
        let is_open = matches!(row.verdict, Verdict::NotMeasured | Verdict::NoGoal);
        assert!(is_open && row.ratios.is_empty(), "{}", row.name);
    }
}
