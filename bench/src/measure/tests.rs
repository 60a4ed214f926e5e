use super::*;

const REDIS: &str = "redis";
const VALKEY: &str = "valkey";
const EPHESUS: &str = "ephesus";
const OLDER: &str = "ephesus=/older";
const PEERS: &str = "best peer";

type Samples<'a> = &'a [(&'a str, &'a [f64])];

fn case(name: &str, scale: Scale, samples: Samples<'_>) -> Case {
    let mut case = Case::default();
    for (server, values) in samples {
        for value in *values {
            case.sample(name, scale, server, *value);
        }
    }
    case
}

fn judged(mut case: Case) -> Case {
    case.judge(EPHESUS, PEERS, |peer| match peer {
        OLDER => "older".to_owned(),
        _ => PEERS.to_owned(),
    });
    case
}

fn verdict_of(scale: Scale, samples: Samples<'_>) -> Verdict {
    judged(case("x", scale, samples)).rows[0].verdict
}

fn at_least(least: f64) -> Scale {
    more("op/s").to(Goal::RatioAtLeast(least))
}

#[test]
fn the_best_peer_of_each_round_is_the_divisor() {
    let samples: Samples<'_> = &[
        (REDIS, &[1.0, 2.0]),
        (VALKEY, &[2.0, 1.0]),
        (EPHESUS, &[4.0, 5.0]),
    ];
    let rates = case("x", more("op/s"), samples);
    assert_eq!(rates.rows[0].ratios_to(EPHESUS, |_| true), [2.0, 2.5]);
    let times = case("x", less("us"), samples);
    assert_eq!(times.rows[0].ratios_to(EPHESUS, |_| true), [4.0, 5.0]);
    assert_eq!(times.rows[0].ratios_to(VALKEY, |_| true), [2.0, 0.5]);
}

#[test]
fn an_older_build_is_compared_and_is_no_peer() {
    let samples: Samples<'_> = &[
        (REDIS, &[1.0, 2.0]),
        (EPHESUS, &[4.0, 5.0]),
        (OLDER, &[8.0, 4.0]),
    ];
    let rates = judged(case("x", at_least(2.0), samples));
    let row = &rates.rows[0];
    assert_eq!(row.verdict, Verdict::Met);
    assert_eq!(row.ratios["older"].median, 0.875);
    assert_eq!(row.ratios[PEERS].median, 3.25);
}

#[test]
fn missing_values_leave_their_round_out() {
    let samples: Samples<'_> = &[(REDIS, &[f64::NAN, 2.0]), (EPHESUS, &[4.0, 5.0])];
    let rates = case("x", at_least(1.0), samples);
    assert_eq!(rates.rows[0].ratios_to(EPHESUS, |_| true), [2.5]);
    assert_eq!(rates.rows[0].median(REDIS), Some(2.0));
    let alone = verdict_of(at_least(1.0), &[(EPHESUS, &[1.0])]);
    assert_eq!(alone, Verdict::NotMeasured);
}

#[test]
fn goals_are_judged_by_the_median_ratio_or_value() {
    let samples: Samples<'_> = &[(REDIS, &[10.0; 3]), (EPHESUS, &[19.0, 20.0, 99.0])];
    assert_eq!(verdict_of(at_least(2.0), samples), Verdict::Met);
    assert_eq!(verdict_of(at_least(2.1), samples), Verdict::Missed);
    for (goal, verdict) in [
        (Goal::ValueAtMost(20.0), Verdict::Met),
        (Goal::ValueAtMost(19.9), Verdict::Missed),
        (Goal::ValueAtLeast(20.0), Verdict::Met),
        (Goal::ValueAtLeast(20.1), Verdict::Missed),
    ] {
        assert_eq!(verdict_of(less("").to(goal), samples), verdict, "{goal}");
    }
}

#[test]
fn a_client_bound_rate_is_judged_by_cpu_per_operation() {
    let verdict = |cpu: f64, busy: f64| {
        let mut rate = case(
            "rate",
            at_least(2.0),
            &[(REDIS, &[10.0]), (EPHESUS, &[11.0])],
        );
        for (server, cpu) in [(REDIS, 2.0), (EPHESUS, cpu)] {
            rate.sample(CPU_PER_OP, less("us"), server, cpu);
        }
        rate.sample(CLIENT_BUSY, less("share"), EPHESUS, busy);
        judged(rate)
    };
    let bound = verdict(0.9, 0.95);
    assert_eq!(bound.rows[0].verdict, Verdict::MetByCpu);
    assert_eq!(bound.rows[0].client_bound, [EPHESUS]);
    assert_eq!(verdict(1.1, 0.95).rows[0].verdict, Verdict::MissedByCpu);
    assert_eq!(verdict(0.9, 0.85).rows[0].verdict, Verdict::Missed);
}

#[test]
fn what_could_not_be_measured_has_a_row_that_says_so() {
    let mut rates = Case::default();
    let servers = [VALKEY, EPHESUS].map(Contestant::from);
    let cores = BenchError::TooFewCpus("too few CPUs".to_owned());
    rates.unmeasured(("rate", more("op/s")), &servers, &cores);
    let rates = judged(rates);
    assert_eq!(rates.rows[0].verdict.to_string(), "unmeasured");
    assert_eq!(rates.rows[0].medians[VALKEY], None);
    assert_eq!(rates.notes, ["rate: unmeasured: too few CPUs"]);
}
