use super::*;

#[test]
fn median_of_odd_and_even_counts() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(median(&[]), None);
}

#[test]
fn quantile_interpolates_between_neighbours() {
    let samples: Vec<f64> = (0..=100).map(f64::from).collect();
    assert_eq!(quantile(&samples, 0.99), Some(99.0));
    assert_eq!(quantile(&[10.0, 20.0], 0.25), Some(12.5));
}

#[test]
fn one_sample_has_an_interval_of_no_width() {
    assert_eq!(
        estimate(&[2.5]),
        Some(Estimate {
            median: 2.5,
            low: 2.5,
            high: 2.5
        })
    );
}

#[test]
fn interval_is_the_same_every_time_and_encloses_the_median() {
    let samples = [2.0, 2.1, 1.9, 2.4, 2.2, 2.0, 1.8, 2.3, 2.1, 2.05];
    let first = estimate(&samples).expect("samples");
    assert_eq!(Some(first), estimate(&samples));
    assert!(first.low < first.median && first.median < first.high);
    assert!(first.low >= 1.8 && first.high <= 2.4);
}

#[test]
fn interval_covers_the_true_median_about_as_often_as_it_says() {
    let mut random = Rng::new(7);
    let trials: u64 = 60;
    let covered = (0..trials)
        .filter(|_| {
            let samples: Vec<f64> = (0..15).map(|_| random.below(1_000_001) as f64).collect();
            let interval = estimate(&samples).expect("samples");
            interval.low <= 500_000.0 && 500_000.0 <= interval.high
        })
        .count();
    assert!(
        (50..=60).contains(&covered),
        "covered {covered} of {trials}"
    );
}

#[test]
fn generator_matches_the_published_sequence() {
    let mut random = Rng::new(1_234_567);
    assert_eq!(random.draw(), 6_457_827_717_110_365_317);
    assert_eq!(random.draw(), 3_203_168_211_198_807_973);
}
